//! How few bits a construction can do with: measured.
//!
//! States and messages are kept in p bits, evenly spaced over a range that holds every number that occurs; work inside of a token
//! is done in the machine's precision, as in the theory.

use rung_engine::{Ops, Scalar};
use rung_theory::task::{Prompt, seeded};

use super::Answerer;
use super::verify::{InstanceSet, Verification, VerifyError, verify};
use crate::error::ModelError;
use crate::network::Network;
use crate::precision::Precision;

/// More bits than this are the machine's own.
pub const MOST_BITS: u32 = rung_engine::Rounding::MOST_BITS;

/// Prompts that are run to find the largest number.
const LOOKED_AT: usize = 8;

impl<S: Scalar> Network<S> {
    /// The smallest power of two above every number that some prompts leave in the stream or in the state of a layer that does
    /// something. Layers that do nothing write nothing, whatever they hold.
    ///
    /// # Errors
    /// The network refuses the tokens.
    pub fn range(&self) -> Result<f64, ModelError> {
        let ops = self.executor();
        let (mut rng, mut prompt, mut largest) = (seeded(1), Prompt::new(), 0.0_f64);
        let mut look = |values: Vec<S>| {
            for value in values {
                largest = largest.max(value.to_f64().abs());
            }
        };
        for _ in 0..LOOKED_AT {
            self.task()?.prompt(&mut rng, &mut prompt);
            let mut tokens = prompt.tokens().to_vec();
            if let Some(thought) = Answerer::new(self).chain_of_thought(&tokens)? {
                tokens.extend(thought.tokens);
            }
            for stream in self.model.streams(&ops, &tokens, 1)? {
                look(ops.values(&stream));
            }
            let (_, state) = self.model.forward(&ops, &tokens, 1, None)?;
            let does = |layer: usize| self.construction().is_none_or(|info| !info.layers[layer].is_empty());
            let layers = self.plan.layers.iter().enumerate();
            let used = layers.flat_map(|(index, layer)| std::iter::repeat_n(does(index), layer.mixers.len()));
            for (state, _) in state.states.iter().zip(used).filter(|(_, used)| *used) {
                state.tensors.iter().flatten().for_each(|tensor| look(ops.values(tensor)));
            }
        }
        // A hair below the power of two is at it, once rounded.
        Ok((largest * 1.001).max(0.5).log2().floor().exp2() * 2.0)
    }

    /// The fewest bits with which every answer is still right, with what was found there. `progress` hears of every instance.
    ///
    /// # Errors
    /// As [`verify`].
    pub fn fewest_bits(
        &mut self,
        which: InstanceSet,
        range: f64,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Option<(u32, Verification)>, VerifyError> {
        for bits in 1..=MOST_BITS {
            self.set_precision(Precision::bits(bits, range))?;
            let found = verify(self, which, threads, progress)?;
            if found.correct == found.instances {
                return Ok(Some((bits, found)));
            }
        }
        Ok(None)
    }
}
