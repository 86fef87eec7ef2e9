//! What one layer can track, and how that is known.
//!
//! Two states that must be kept exactly: the parity of the bits so far, and the product so far in the group S3 of permutations
//! of three things, the smallest in which the order of factors matters. A claim is made for a text of any length and one layer.
//!
//! - A layer without a state or a cache that grows sees only the last few tokens, so a token further back changes nothing that
//!   it sees: it tracks neither, *proved*.
//! - `rung construct parity` builds weights of DeltaNet whose state changes its sign: *constructed*. Gated DeltaNet holds DeltaNet
//!   where nothing decays, and DeltaProduct where one micro-step does the work; tests hold both.
//! - All else is unknown here.

use std::fmt;

use rung_theory::stack::Mixer;

use rung_figure::Evidence;

/// Whether a layer can track something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingClaim {
    /// It can.
    Yes(Evidence, &'static str),
    /// It cannot, and why.
    No(Evidence, &'static str),
    /// The project does not show it.
    Unknown,
}

impl TrackingClaim {
    /// `yes`, `no` or `unknown`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Yes(..) => "yes",
            Self::No(..) => "no",
            Self::Unknown => "unknown",
        }
    }

    /// How it is known.
    pub fn evidence(self) -> Option<Evidence> {
        match self {
            Self::Yes(evidence, _) | Self::No(evidence, _) => Some(evidence),
            Self::Unknown => None,
        }
    }

    /// What shows it.
    pub fn shown_by(self) -> Option<&'static str> {
        match self {
            Self::Yes(_, by) | Self::No(_, by) => Some(by),
            Self::Unknown => None,
        }
    }
}

/// `yes, constructed`.
impl fmt::Display for TrackingClaim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())?;
        self.evidence().map_or(Ok(()), |evidence| write!(out, ", {evidence}"))
    }
}

const SHORT_SIGHTED: TrackingClaim = TrackingClaim::No(Evidence::Proved, "it sees only the last few tokens");

/// Whether one layer keeps the parity of the bits so far.
pub fn parity(mixer: &Mixer) -> TrackingClaim {
    if short_sighted(mixer) {
        return SHORT_SIGHTED;
    }
    mixer.kind().parity_shown_by.map_or(TrackingClaim::Unknown, |by| TrackingClaim::Yes(Evidence::Constructed, by))
}

/// Whether one layer keeps the product of the permutations of three things so far.
pub fn permutations(mixer: &Mixer) -> TrackingClaim {
    // Parity is a quotient of S3: who cannot keep the one cannot keep the other.
    if short_sighted(mixer) { SHORT_SIGHTED } else { TrackingClaim::Unknown }
}

fn short_sighted(mixer: &Mixer) -> bool {
    let facts = mixer.facts();
    facts.recurrent_state == 0 && facts.per_token() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exponents::benchmark_mixer;

    #[test]
    fn only_what_is_shown_is_claimed() {
        for (name, expected) in [
            ("conv", "no"),
            ("window", "no"),
            ("chunked", "no"),
            ("none", "no"),
            ("deltanet", "yes"),
            ("full", "unknown"),
            ("rglru", "unknown"),
            ("evicting", "unknown"),
        ] {
            assert_eq!(parity(&benchmark_mixer(name).unwrap()).word(), expected, "{name}");
        }
    }
}
