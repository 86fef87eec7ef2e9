//! All mixers side by side: what they keep, what they cost, how fast they are here, and what they are good for.
//!
//! One row for each mixer of the registry, in its order, as a narrow layer: two heads of sixteen, windows of 64 tokens. What is
//! kept, the cost and the credit in hops are read off the definition and hold for all weights, so they are *proved*. Speed, and
//! the exponent of cost in the length of the sequence, are *measured* for the mixers that have a network. What a layer can track
//! ([`tracking`]) is claimed only where the project shows it.
//!
//! The exponent may disagree with the formula beside it, and that is shown, not hidden: at short lengths projections still count,
//! and a network may do more work than its mixer needs.
//!
//! ```
//! use rung_bench::zoo::{HopCredit, MixerRow, Timing};
//!
//! let row = MixerRow::of("chunked", &Timing { lengths: vec![8, 16], rounds: 1 })?;
//! assert_eq!((row.cost(), row.credit()), ("32 n".to_owned(), HopCredit::State));
//! assert!(row.speed.is_none());
//! # Ok::<(), rung_bench::BenchError>(())
//! ```

mod draw;
pub mod tracking;

use rung_theory::stack::mixer::{Mixer, MixerReach, TokenSelection};

pub use draw::Zoo;
use tracking::TrackingClaim;

use crate::{BenchError, exponents};

/// Lengths that show a slope within a minute for all mixers.
pub const LENGTHS: [usize; 3] = [512, 2048, 8192];

/// How speed is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Tokens of the texts, growing.
    pub lengths: Vec<usize>,
    /// Repetitions that are counted; figures are their median.
    pub rounds: usize,
}

/// What a layer is worth in hops of function composition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopCredit {
    /// A full layer: a hop each.
    Full,
    /// A full layer that reads blocks of its choice: a hop at most, and 2-Sum only with summaries that are long enough.
    Blocks,
    /// A full layer that reads tokens of its choice: a hop at most.
    Tokens,
    /// A state of fixed size: one hop more in all, if it stands before the second full layer.
    State,
    /// Nothing crosses from token to token.
    Nothing,
}

impl HopCredit {
    /// As tables have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Blocks => "block-sparse",
            Self::Tokens => "token-sparse",
            Self::State => "bounded-state",
            Self::Nothing => "none",
        }
    }
}

/// What was measured of a mixer.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// At every length.
    pub tokens_per_second: Vec<f64>,
    /// Of cost in the length.
    pub exponent: f64,
}

/// One mixer.
#[derive(Clone, Debug, PartialEq)]
pub struct MixerRow {
    /// With every number of the layer that was counted and timed.
    pub mixer: Mixer,
    /// None without a network.
    pub speed: Option<Speed>,
}

impl MixerRow {
    /// Counts and times a mixer of the registry.
    ///
    /// # Errors
    /// No mixer has that name.
    pub fn of(name: &str, timing: &Timing) -> Result<Self, BenchError> {
        let mixer = exponents::benchmark_mixer(name)?;
        // `none` has a network that does nothing: its time is that of a call.
        let timed = mixer.facts().flops.per_token > 0 && rung_nn::mixer::NAMES.contains(&mixer.name());
        let speed = timed.then(|| Speed::measure(name, timing)).transpose()?;
        Ok(Self { mixer, speed })
    }

    /// Numbers that cross from one token to the next, caches apart; of a state in levels, one level is counted.
    pub fn crossing(&self) -> u128 {
        let facts = self.mixer.facts();
        facts.crossing() - facts.recurrent_state + self.per_level().unwrap_or(facts.recurrent_state)
    }

    /// What grows with the text, in words: `64 a token`, `512 a doubling`, nothing.
    pub fn grows(&self) -> Option<String> {
        let per_token = self.mixer.facts().per_token();
        let levels = self.per_level().map(|numbers| format!("{numbers} a doubling"));
        levels.or_else(|| (per_token > 0).then(|| format!("{per_token} a token")))
    }

    /// Numbers of one level, where a state has levels.
    fn per_level(&self) -> Option<u128> {
        let facts = self.mixer.facts();
        facts.log2_context.map(|last| facts.recurrent_state / (u128::from(last) + 1))
    }

    /// The cost of a text of n tokens as a formula, widths left out.
    pub fn cost(&self) -> String {
        let facts = self.mixer.facts();
        let ratio = self.mixer.number("ratio").filter(|ratio| *ratio > 1);
        match (facts.selection(), facts.flops.max_attended) {
            (Some(TokenSelection { block: 1, picked, .. }), _) => format!("n^2 + {picked} n"),
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

    /// What it is worth in hops.
    pub fn credit(&self) -> HopCredit {
        let facts = self.mixer.facts();
        match (facts.reach, facts.selection()) {
            (MixerReach::Full(_), None) => HopCredit::Full,
            (MixerReach::Full(_), Some(TokenSelection { block: 1, .. })) => HopCredit::Tokens,
            (MixerReach::Full(_), Some(_)) => HopCredit::Blocks,
            (MixerReach::Bounded, _) if facts.crossing() > 0 => HopCredit::State,
            (MixerReach::Bounded, _) => HopCredit::Nothing,
        }
    }

    /// Whether one layer keeps the parity of all bits so far.
    pub fn parity(&self) -> TrackingClaim {
        tracking::parity(&self.mixer)
    }

    /// Whether one layer keeps the product of all permutations of three things so far.
    pub fn permutations(&self) -> TrackingClaim {
        tracking::permutations(&self.mixer)
    }
}

impl Speed {
    fn measure(name: &str, timing: &Timing) -> Result<Self, BenchError> {
        let times = exponents::forward_times(name, &timing.lengths, timing.rounds)?;
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

    fn counted(name: &str) -> MixerRow {
        MixerRow { mixer: exponents::benchmark_mixer(name).unwrap(), speed: None }
    }

    #[test]
    fn what_is_counted_follows_from_the_definition() {
        for (name, crossing, grows, cost, credit) in [
            ("full", 0, Some("64 a token"), "n^2", HopCredit::Full),
            ("window", 63 * 64, None, "64 n", HopCredit::State),
            ("linear", 2 * (16 * 16 + 16), None, "n", HopCredit::State),
            ("loglinear-gdn", 512 + 3 * 96, Some("512 a doubling"), "n log n", HopCredit::State),
            ("moba", 0, Some("64 a token"), "n^2/64 + 256 n", HopCredit::Blocks),
            ("dsa", 0, Some("88 a token"), "n^2 + 64 n", HopCredit::Tokens),
            ("compressed", 127 * 16 + 3 * 2 * 16, Some("4 a token"), "n^2/4", HopCredit::Full),
            ("none", 0, None, "0", HopCredit::Nothing),
        ] {
            let row = counted(name);
            let found = (row.crossing(), row.grows(), row.cost(), row.credit());
            assert_eq!(found, (crossing, grows.map(str::to_owned), cost.to_owned(), credit), "{name}");
        }
    }

    #[test]
    fn networks_are_timed_and_the_rest_is_listed() {
        let timing = Timing { lengths: vec![4, 8, 16], rounds: 1 };
        for name in ["gdn", "rglru", "lightning", "chunked", "none"] {
            let row = MixerRow::of(name, &timing).unwrap();
            assert_eq!(row.speed.is_some(), !["chunked", "none"].contains(&name), "{name}");
            let Some(speed) = row.speed else { continue };
            assert!(speed.tokens_per_second.len() == 3 && speed.exponent.is_finite());
            assert!(speed.tokens_per_second.iter().all(|speed| *speed > 0.0));
        }
    }
}
