//! A forward pass as one linear operator of the residual stream: recorded once, then replayed with other inputs or differentiated.

use rung_engine::{Native, Ops, Parameter, Parameters, Scalar};
use rung_nn::Network;
use rung_nn::linearized::{LinearizedOps, LinearizedTensor};
use rung_nn::{Hooks, MixerIndex, ModelError};

/// A forward pass that is linear in the residual stream because attention weights, gates and norms are frozen at their recorded values.
pub struct LinearizedPass<'a, S: Scalar> {
    network: &'a Network<S>,
    tokens: &'a [u32],
    ops: LinearizedOps<S>,
    /// Zeros that are added to the residual stream at every level, to get the gradient there.
    offsets: Vec<Parameter>,
}

/// Changes to the residual streams of a pass. Level 0 is the embedding, level l the residual stream after layer l - 1.
#[derive(Default)]
struct ResidualEdits<'a, S> {
    /// Zero parameters that are added to the residual stream at every level, to get the gradient there.
    offsets: &'a [Parameter],
    /// A level, and the values that replace the residual stream there.
    replacement: Option<(usize, Vec<S>)>,
    /// A factor of every mixer's output.
    factor: Option<&'a dyn Fn(MixerIndex) -> f64>,
    /// The residual streams of all levels so far.
    residuals: Vec<Vec<S>>,
}

impl<S: Scalar> Hooks<LinearizedOps<S>> for ResidualEdits<'_, S> {
    fn residual(&mut self, ops: &LinearizedOps<S>, level: usize, x: LinearizedTensor<S>) -> LinearizedTensor<S> {
        let mut x = match &self.replacement {
            Some((replaced, values)) if *replaced == level => ops.track(&ops.constant(&ops.shape(&x), values)),
            _ if level == 0 => ops.track(&x),
            _ => x,
        };
        self.residuals.push(ops.native().values(ops.tensor(&x)));
        if let Some(offset) = self.offsets.get(level) {
            x = ops.add(&x, &ops.track_parameter(*offset));
        }
        x
    }

    fn mixer_output(
        &mut self,
        ops: &LinearizedOps<S>,
        mixer: MixerIndex,
        _: &LinearizedTensor<S>,
        output: LinearizedTensor<S>,
    ) -> LinearizedTensor<S> {
        self.factor.map_or(output.clone(), |factor| ops.scale(&output, factor(mixer)))
    }
}

impl<'a, S: Scalar> LinearizedPass<'a, S> {
    /// Records a pass; returns it with its residual streams and its logits, `[tokens, classes]`.
    ///
    /// # Errors
    /// The tokens are not in the model's vocabulary.
    pub fn record(network: &'a Network<S>, tokens: &'a [u32]) -> Result<(Self, RecordedPass<S>), ModelError> {
        let mut weights: Parameters<S> = network.weights.clone();
        let (width, length) = (network.model.width(), tokens.len() / network.config.input.field_count());
        let mut offset = |level: usize| {
            let zeros = vec![S::ZERO; length * width];
            weights.add(format!("lens.{level}"), &[1, length, width], zeros).id()
        };
        let offsets: Vec<Parameter> = (0..=network.model.depth()).map(&mut offset).collect();
        let native = Native::new();
        native.bind(&weights);
        let pass = Self { network, tokens, ops: LinearizedOps::new(native), offsets };
        let mut edits = ResidualEdits { offsets: &pass.offsets, ..ResidualEdits::default() };
        let last_residual = pass.network.model.forward_with_hooks(&pass.ops, tokens, 1, &mut edits)?;
        let logits = pass.network.model.logits_from_residual(&pass.ops, &last_residual);
        let residuals = edits.residuals;
        let recorded = RecordedPass {
            logits: pass.ops.native().values(pass.ops.tensor(&logits)),
            logits_tensor: logits,
            residuals,
        };
        Ok((pass, recorded))
    }

    /// The gradient of one logit with respect to the residual stream at every level. It can be computed once per recorded pass.
    pub fn gradients(&self, recorded: &RecordedPass<S>, token: usize, class: usize) -> Vec<Vec<S>> {
        let ops = &self.ops;
        let row = ops.slice(&recorded.logits_tensor, 1, token..token + 1);
        let logit = ops.sum_all(&ops.slice(&row, 2, class..class + 1));
        ops.native().backward(ops.tensor(&logit));
        let gradient = ops.native().gradient();
        // The offsets are after the network's weights in the flat gradient.
        let first = self.network.weights.size();
        let size = recorded.residuals[0].len();
        (0..self.offsets.len())
            .map(|level| gradient[first + level * size..first + (level + 1) * size].to_vec())
            .collect()
    }

    /// The last residual stream and the logits with the residual stream replaced at a level and every mixer's output scaled by a factor.
    ///
    /// # Errors
    /// The tokens are not in the model's vocabulary.
    pub fn replay(
        &self,
        replacement: Option<(usize, Vec<S>)>,
        factor: Option<&dyn Fn(MixerIndex) -> f64>,
    ) -> Result<(Vec<S>, Vec<S>), ModelError> {
        self.ops.rewind();
        let mut edits = ResidualEdits { replacement, factor, ..ResidualEdits::default() };
        let last_residual = self.network.model.forward_with_hooks(&self.ops, self.tokens, 1, &mut edits)?;
        let logits = self.network.model.logits_from_residual(&self.ops, &last_residual);
        let values = |x: &LinearizedTensor<S>| self.ops.native().values(self.ops.tensor(x));
        Ok((values(&last_residual), values(&logits)))
    }
}

/// The outputs of a recorded pass.
pub struct RecordedPass<S: Scalar> {
    logits_tensor: LinearizedTensor<S>,
    /// Logits, `[tokens, classes]`.
    pub logits: Vec<S>,
    /// The residual stream at every level, `[tokens, width]`.
    pub residuals: Vec<Vec<S>>,
}
