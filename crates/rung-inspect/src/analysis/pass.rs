//! A forward pass as one linear operator: recorded once, then fed with other streams, and followed back.

use rung_engine::{Native, Ops, Parameter, Parameters, Scalar};
use rung_nn::Network;
use rung_nn::linearized::{LinearizedOps, LinearizedTensor};
use rung_nn::{Hooks, MixerIndex, ModelError};

/// A forward pass whose gates are held still.
pub struct LinearizedPass<'a, S: Scalar> {
    network: &'a Network<S>,
    tokens: &'a [u32],
    ops: LinearizedOps<S>,
    leaves: Vec<Parameter>,
}

/// What happens to the streams of a pass.
#[derive(Default)]
struct StreamEdits<'a, S> {
    leaves: &'a [Parameter],
    /// A stream that is put in at a level.
    put: Option<(usize, Vec<S>)>,
    /// A factor for what every mixer adds.
    factor: Option<&'a dyn Fn(MixerIndex) -> f64>,
    streams: Vec<Vec<S>>,
}

impl<S: Scalar> Hooks<LinearizedOps<S>> for StreamEdits<'_, S> {
    fn stream(&mut self, ops: &LinearizedOps<S>, level: usize, x: LinearizedTensor<S>) -> LinearizedTensor<S> {
        let mut x = match &self.put {
            Some((at, values)) if *at == level => ops.track(&ops.constant(&ops.shape(&x), values)),
            _ if level == 0 => ops.track(&x),
            _ => x,
        };
        self.streams.push(ops.native().values(ops.tensor(&x)));
        if let Some(leaf) = self.leaves.get(level) {
            x = ops.add(&x, &ops.leaf(*leaf));
        }
        x
    }

    fn mixed(
        &mut self,
        ops: &LinearizedOps<S>,
        place: MixerIndex,
        _: &LinearizedTensor<S>,
        output: LinearizedTensor<S>,
    ) -> LinearizedTensor<S> {
        self.factor.map_or(output.clone(), |factor| ops.scale(&output, factor(place)))
    }
}

impl<'a, S: Scalar> LinearizedPass<'a, S> {
    /// Records a pass; returns it with its streams and its scores, `[tokens, classes]`.
    ///
    /// # Errors
    /// The tokens are none of the model's.
    pub fn record(network: &'a Network<S>, tokens: &'a [u32]) -> Result<(Self, RecordedPass<S>), ModelError> {
        let mut weights: Parameters<S> = network.weights.clone();
        let (width, length) = (network.model.width(), tokens.len() / network.config.input.fields());
        let mut leaf = |level: usize| {
            let zeros = vec![S::ZERO; length * width];
            weights.add(format!("lens.{level}"), &[1, length, width], zeros).id()
        };
        let leaves: Vec<Parameter> = (0..=network.model.depth()).map(&mut leaf).collect();
        let native = Native::new();
        native.bind(&weights);
        let pass = Self { network, tokens, ops: LinearizedOps::new(native), leaves };
        let mut through = StreamEdits { leaves: &pass.leaves, ..StreamEdits::default() };
        let last = pass.network.model.forward_with_hooks(&pass.ops, tokens, 1, &mut through)?;
        let scores = pass.network.model.read_out(&pass.ops, &last);
        let streams = through.streams;
        let recorded = RecordedPass { values: pass.ops.native().values(pass.ops.tensor(&scores)), scores, streams };
        Ok((pass, recorded))
    }

    /// The gradient of one score with respect to every stream. Only the first call finds it.
    pub fn back(&self, recorded: &RecordedPass<S>, token: usize, class: usize) -> Vec<Vec<S>> {
        let ops = &self.ops;
        let row = ops.slice(&recorded.scores, 1, token..token + 1);
        let score = ops.sum_all(&ops.slice(&row, 2, class..class + 1));
        ops.native().backward(ops.tensor(&score));
        let gradient = ops.native().gradient();
        let first = self.network.weights.size();
        let size = recorded.streams[0].len();
        (0..self.leaves.len())
            .map(|level| gradient[first + level * size..first + (level + 1) * size].to_vec())
            .collect()
    }

    /// The last stream and the scores if another stream were put in at a level, and every mixer's output had a factor.
    ///
    /// # Errors
    /// The tokens are none of the model's.
    pub fn replay(
        &self,
        put: Option<(usize, Vec<S>)>,
        factor: Option<&dyn Fn(MixerIndex) -> f64>,
    ) -> Result<(Vec<S>, Vec<S>), ModelError> {
        self.ops.rewind();
        let mut through = StreamEdits { put, factor, ..StreamEdits::default() };
        let last = self.network.model.forward_with_hooks(&self.ops, self.tokens, 1, &mut through)?;
        let scores = self.network.model.read_out(&self.ops, &last);
        let values = |x: &LinearizedTensor<S>| self.ops.native().values(self.ops.tensor(x));
        Ok((values(&last), values(&scores)))
    }
}

/// What a recorded pass gave.
pub struct RecordedPass<S: Scalar> {
    scores: LinearizedTensor<S>,
    /// Scores, `[tokens, classes]`.
    pub values: Vec<S>,
    /// Streams at every level, `[tokens, width]`.
    pub streams: Vec<Vec<S>>,
}
