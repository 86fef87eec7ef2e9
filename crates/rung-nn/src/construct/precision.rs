//! How few bits a construction can do with: measured.
//!
//! States and messages are kept in p bits, evenly spaced over a range that holds every number that occurs; work inside of a token
//! is done in the machine's precision, as in the theory.

use rung_engine::{Native, Ops, Parameters, Scalar};
use rung_theory::task::{Prompt, seeded};

use super::verify::{Verified, VerifyError, Which, verify};
use super::{Answerer, Construction};
use crate::error::ModelError;
use crate::precision::Precision;

/// More bits than this are the machine's own.
pub const MOST_BITS: u32 = rung_engine::Rounding::MOST_BITS;

/// Prompts that are looked at for the largest number.
const LOOKED_AT: usize = 8;

impl<S: Scalar> Construction<S> {
    /// The same weights in a network that keeps states and messages in few bits.
    ///
    /// # Errors
    /// There is no such precision.
    pub fn keep_in(&mut self, precision: Precision) -> Result<(), ModelError> {
        self.config.precision = precision;
        // Fresh weights have the same places; the old ones stay.
        self.model = self.config.init(&self.plan, &mut Parameters::<S>::new(), &mut seeded(0))?;
        Ok(())
    }

    /// The smallest power of two above every number that some prompts leave in the stream or in the state of a layer that does
    /// something. Layers that do nothing write nothing, whatever they hold.
    ///
    /// # Errors
    /// The network refuses the tokens.
    pub fn range(&self) -> Result<f64, ModelError> {
        let ops = Native::new();
        ops.bind_frozen(&self.weights);
        let (mut rng, mut prompt, mut largest) = (seeded(1), Prompt::new(), 0.0_f64);
        let mut look = |values: Vec<S>| {
            for value in values {
                largest = largest.max(value.wide().abs());
            }
        };
        for _ in 0..LOOKED_AT {
            self.task.prompt(&mut rng, &mut prompt);
            let mut tokens = prompt.tokens().to_vec();
            if let Some(thought) = Answerer::new(self).thoughts(&tokens)? {
                tokens.extend(thought.tokens);
            }
            for stream in self.model.streams(&ops, &tokens, 1)? {
                look(ops.values(&stream));
            }
            let (_, state) = self.model.forward(&ops, &tokens, 1, None)?;
            let used = self
                .sheet
                .layers
                .iter()
                .zip(&self.plan.layers)
                .flat_map(|(about, layer)| std::iter::repeat_n(!about.is_empty(), layer.mixers.len()));
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
        which: Which,
        range: f64,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Option<(u32, Verified)>, VerifyError> {
        for bits in 1..=MOST_BITS {
            self.keep_in(Precision::bits(bits, range))?;
            let found = verify(self, which, threads, progress)?;
            if found.correct == found.instances {
                return Ok(Some((bits, found)));
            }
        }
        Ok(None)
    }
}
