//! Measures how many bits a construction's numbers need.
//!
//! Recurrent states and messages are rounded to p bits, evenly spaced over a range that holds every number that
//! occurs; the computation within a token is not rounded, as in the theory.

use rung_engine::{Ops, Scalar};
use rung_theory::task::{Prompt, seeded};

use super::Answerer;
use super::verify::{InstanceSet, Verification, VerifyError, verify};
use crate::error::ModelError;
use crate::network::Network;
use crate::precision::SimulatedPrecision;

/// The most bits that can be simulated: more are the precision of `f32` itself.
pub const MAX_BITS: u32 = rung_engine::Rounding::MAX_BITS;

/// Prompts that are run to find the largest number.
const RANGE_PROMPTS: usize = 8;

impl<S: Scalar> Network<S> {
    /// The smallest power of two above every number that occurs, over some random prompts, in the residual stream or in the states of the
    /// layers that the construction uses. Unused layers write nothing, whatever their states hold.
    ///
    /// # Errors
    /// The network rejects the tokens.
    pub fn number_range(&self) -> Result<f64, ModelError> {
        let ops = self.executor();
        let (mut rng, mut prompt, mut largest) = (seeded(1), Prompt::new(), 0.0_f64);
        let mut include = |values: Vec<S>| {
            for value in values {
                largest = largest.max(value.to_f64().abs());
            }
        };
        for _ in 0..RANGE_PROMPTS {
            self.task()?.sample_prompt(&mut rng, &mut prompt);
            let mut tokens = prompt.tokens().to_vec();
            if let Some(chain) = Answerer::new(self).chain_of_thought(&tokens)? {
                tokens.extend(chain.tokens);
            }
            for residual in self.model.residuals(&ops, &tokens, 1)? {
                include(ops.values(&residual));
            }
            let (_, state) = self.model.forward(&ops, &tokens, 1, None)?;
            let is_used = |layer: usize| self.construction().is_none_or(|info| !info.layers[layer].is_empty());
            let layers = self.plan.layers.iter().enumerate();
            let used = layers.flat_map(|(index, layer)| std::iter::repeat_n(is_used(index), layer.mixers.len()));
            for (state, _) in state.states.iter().zip(used).filter(|(_, used)| *used) {
                state.tensors.iter().flatten().for_each(|tensor| include(ops.values(tensor)));
            }
        }
        // A number just below a power of two may be rounded up to it, so that the range must be the next one.
        Ok((largest * 1.001).max(0.5).log2().floor().exp2() * 2.0)
    }

    /// The fewest bits with which every answer is still right, and the verification at that precision. `progress` is called with the number
    /// of instances finished since its last call.
    ///
    /// # Errors
    /// As [`verify`].
    pub fn find_fewest_bits(
        &mut self,
        instance_set: InstanceSet,
        range: f64,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Option<(u32, Verification)>, VerifyError> {
        for bits in 1..=MAX_BITS {
            self.set_precision(SimulatedPrecision::bits(bits, range))?;
            let verification = verify(self, instance_set, threads, progress)?;
            if verification.correct == verification.instances {
                return Ok(Some((bits, verification)));
            }
        }
        Ok(None)
    }
}
