//! A table of all mixers: state and cache, cost, speed on this machine, and what they can compute.
//!
//! One row for each mixer of the registry, in its order, as a narrow layer: two heads of sixteen channels, windows of 64 tokens.
//! State, cache, cost and hop contribution follow from the definition and hold for all weights, so they are *proved*. Speed, and the
//! exponent of cost in the sequence length, are *measured* for the mixers that are implemented. What a layer can track ([`tracking`])
//! is claimed only with evidence.
//!
//! The measured exponent may differ from the formula next to it: at short lengths projections dominate, and an implementation may do more
//! work than its mixer needs.
//!
//! ```
//! use rung_bench::zoo::{HopContribution, MixerRow, Timing};
//!
//! let row = MixerRow::measure("chunked", &Timing { lengths: vec![8, 16], repetitions: 1 })?;
//! assert_eq!((row.cost(), row.hop_contribution()), ("32 n".to_owned(), HopContribution::State));
//! assert!(row.speed.is_none());
//! # Ok::<(), rung_bench::BenchError>(())
//! ```

mod draw;
pub mod tracking;

use rung_theory::stack::mixer::{Mixer, MixerReach, TokenSelection};

pub use draw::MixerTable;
use tracking::TrackingClaim;

use crate::{BenchError, exponents};

/// Sequence lengths over which all mixers can be measured within a minute.
pub const LENGTHS: [usize; 3] = [512, 2048, 8192];

/// The lengths and repetitions of the measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Sequence lengths, ascending.
    pub lengths: Vec<usize>,
    /// Repetitions; reported times are their medians.
    pub repetitions: usize,
}

/// How many hops of function composition a layer adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopContribution {
    /// Full attention: one hop per layer.
    Full,
    /// Full attention to selected blocks: at most one hop, and 2-Sum only with summaries that are long enough.
    Blocks,
    /// Full attention to selected tokens: at most one hop.
    Tokens,
    /// A state of bounded size: one more hop in total, if the layer is before the second layer of full attention.
    State,
    /// Nothing is passed from token to token.
    Nothing,
}

impl HopContribution {
    /// The label in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Blocks => "block-sparse",
            Self::Tokens => "token-sparse",
            Self::State => "bounded-state",
            Self::Nothing => "none",
        }
    }
}

/// The measured speed of a mixer.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Tokens per second at every length.
    pub tokens_per_second: Vec<f64>,
    /// Exponent of cost in the length.
    pub exponent: f64,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct MixerRow {
    /// The mixer with all its options.
    pub mixer: Mixer,
    /// `None` for a mixer that is not implemented or does nothing.
    pub speed: Option<Speed>,
}

impl MixerRow {
    /// Measures a mixer of the registry, or a layer with options such as `nsa{heads=8,kv=1}`.
    ///
    /// # Errors
    /// No mixer has that name, or there is more than one.
    pub fn measure(layer: &str, timing: &Timing) -> Result<Self, BenchError> {
        let mixer = exponents::benchmark_mixer(layer)?;
        // The implementation of `none` does nothing, so it is not timed.
        let is_timed = mixer.facts().flops.per_token > 0 && rung_nn::mixer::NAMES.contains(&mixer.name());
        let speed = is_timed.then(|| Speed::measure(layer, timing)).transpose()?;
        Ok(Self { mixer, speed })
    }

    /// Elements that are passed from one token to the next, without caches; of a state with levels, one level is counted.
    pub fn state_size(&self) -> u128 {
        let facts = self.mixer.facts();
        facts.state_size() - facts.recurrent_state + self.per_level().unwrap_or(facts.recurrent_state)
    }

    /// How state and cache grow with the length, in elements: `64 per token`, `512 per doubling` (of the length), or `None`.
    pub fn growth(&self) -> Option<String> {
        let per_token = self.mixer.facts().cache_growth();
        let levels = self.per_level().map(|elements| format!("{elements} per doubling"));
        levels.or_else(|| (per_token > 0).then(|| format!("{per_token} per token")))
    }

    /// Elements per level, if the state has levels.
    fn per_level(&self) -> Option<u128> {
        let facts = self.mixer.facts();
        facts.log2_context.map(|last| facts.recurrent_state / (u128::from(last) + 1))
    }

    /// The cost of a sequence of n tokens as a formula, without the factors of widths.
    pub fn cost(&self) -> String {
        let facts = self.mixer.facts();
        let ratio = self.mixer.number("ratio").filter(|ratio| *ratio > 1);
        match (facts.selection(), facts.flops.max_attended) {
            (Some(TokenSelection { block: 1, selected_count, .. }), _) => format!("n^2 + {selected_count} n"),
            (Some(TokenSelection { block, .. }), limit) => format!("n^2/{block} + {} n", limit.unwrap_or_default()),
            (None, Some(limit)) => format!("{limit} n"),
            (None, None) if facts.flops.per_attended > 0 => {
                ratio.map_or("n^2".to_owned(), |ratio| format!("n^2/{ratio}"))
            }
            (None, None) if facts.log2_context.is_some() => "n log n".to_owned(),
            (None, None) if facts.flops.per_token == 0 => "0".to_owned(),
            (None, None) => "n".to_owned(),
        }
    }

    /// How many hops a layer with this mixer adds.
    pub fn hop_contribution(&self) -> HopContribution {
        let facts = self.mixer.facts();
        match (facts.reach, facts.selection()) {
            (MixerReach::Full(_), None) => HopContribution::Full,
            (MixerReach::Full(_), Some(TokenSelection { block: 1, .. })) => HopContribution::Tokens,
            (MixerReach::Full(_), Some(_)) => HopContribution::Blocks,
            (MixerReach::Bounded, _) if facts.state_size() > 0 => HopContribution::State,
            (MixerReach::Bounded, _) => HopContribution::Nothing,
        }
    }

    /// Whether one layer can track the parity of all bits so far.
    pub fn parity(&self) -> TrackingClaim {
        tracking::parity(&self.mixer)
    }

    /// Whether one layer can track the product of all permutations of three elements so far.
    pub fn permutations(&self) -> TrackingClaim {
        tracking::permutations(&self.mixer)
    }
}

impl Speed {
    fn measure(name: &str, timing: &Timing) -> Result<Self, BenchError> {
        let times = exponents::forward_times(name, &timing.lengths, timing.repetitions)?;
        let per_second = times.iter().map(|(length, times)| *length as f64 / (times.median() * 1e-3));
        Ok(Self { tokens_per_second: per_second.collect(), exponent: exponents::exponent(&times) })
    }
}

/// Names of all mixers, in the order of the registry.
pub fn names() -> impl Iterator<Item = &'static str> {
    rung_theory::stack::mixer::KINDS.iter().map(|kind| kind.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_without_speed(name: &str) -> MixerRow {
        MixerRow { mixer: exponents::benchmark_mixer(name).unwrap(), speed: None }
    }

    #[test]
    fn counts_follow_from_the_definition() {
        for (name, state_size, growth, cost, contribution) in [
            ("full", 0, Some("64 per token"), "n^2", HopContribution::Full),
            ("window", 63 * 64, None, "64 n", HopContribution::State),
            ("linear", 2 * (16 * 16 + 16), None, "n", HopContribution::State),
            ("loglinear-gdn", 512 + 3 * 96, Some("512 per doubling"), "n log n", HopContribution::State),
            ("moba", 0, Some("64 per token"), "n^2/64 + 256 n", HopContribution::Blocks),
            ("dsa", 0, Some("88 per token"), "n^2 + 64 n", HopContribution::Tokens),
            ("compressed", 127 * 16 + 3 * 2 * 16, Some("4 per token"), "n^2/4", HopContribution::Full),
            ("none", 0, None, "0", HopContribution::Nothing),
        ] {
            let row = row_without_speed(name);
            let actual = (row.state_size(), row.growth(), row.cost(), row.hop_contribution());
            assert_eq!(actual, (state_size, growth.map(str::to_owned), cost.to_owned(), contribution), "{name}");
        }
    }

    #[test]
    fn only_implemented_mixers_have_a_speed() {
        let timing = Timing { lengths: vec![4, 8, 16], repetitions: 1 };
        for name in ["gdn", "rglru", "lightning", "chunked", "none"] {
            let row = MixerRow::measure(name, &timing).unwrap();
            assert_eq!(row.speed.is_some(), !["chunked", "none"].contains(&name), "{name}");
            let Some(speed) = row.speed else { continue };
            assert!(speed.tokens_per_second.len() == 3 && speed.exponent.is_finite());
            assert!(speed.tokens_per_second.iter().all(|speed| *speed > 0.0));
        }
    }
}
