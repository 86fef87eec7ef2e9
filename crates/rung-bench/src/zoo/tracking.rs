//! State tracking: what one layer can track, and the evidence.
//!
//! Two states must be tracked exactly: the parity of the bits so far, and the product so far in the group S3 of permutations of
//! three elements, the smallest group in which the order of factors matters. Claims are about one layer and sequences of any length.
//!
//! - A layer without a recurrent state or a growing cache sees only the last few tokens, so earlier tokens change nothing that it
//!   sees: it tracks neither, *proved*.
//! - `rung construct parity` builds weights of DeltaNet whose state changes its sign: *constructed*. Gated DeltaNet without decay and
//!   DeltaProduct with one micro-step are DeltaNet, as tests check.
//! - All other cases are unknown.

use std::fmt;

use rung_theory::stack::Mixer;

use rung_figure::Evidence;

/// Whether a layer can track a state, with the evidence and what shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingClaim {
    /// The layer can.
    Yes(Evidence, &'static str),
    /// The layer cannot.
    No(Evidence, &'static str),
    /// This project neither proves nor constructs it.
    Unknown,
}

impl TrackingClaim {
    /// `yes`, `no` or `unknown`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Yes(..) => "yes",
            Self::No(..) => "no",
            Self::Unknown => "unknown",
        }
    }

    /// The kind of evidence.
    pub fn evidence(self) -> Option<Evidence> {
        match self {
            Self::Yes(evidence, _) | Self::No(evidence, _) => Some(evidence),
            Self::Unknown => None,
        }
    }

    /// The construction or reason that shows the claim.
    pub fn justification(self) -> Option<&'static str> {
        match self {
            Self::Yes(_, reason) | Self::No(_, reason) => Some(reason),
            Self::Unknown => None,
        }
    }
}

/// `yes, constructed`.
impl fmt::Display for TrackingClaim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.label())?;
        self.evidence().map_or(Ok(()), |evidence| write!(out, ", {evidence}"))
    }
}

const BOUNDED_CONTEXT: TrackingClaim = TrackingClaim::No(Evidence::Proved, "it sees only the last few tokens");

/// Whether one layer can track the parity of the bits so far.
pub fn parity(mixer: &Mixer) -> TrackingClaim {
    if has_bounded_context(mixer) {
        return BOUNDED_CONTEXT;
    }
    mixer
        .kind()
        .parity_evidence
        .map_or(TrackingClaim::Unknown, |reason| TrackingClaim::Yes(Evidence::Constructed, reason))
}

/// Whether one layer can track the product of permutations of three elements so far.
pub fn permutations(mixer: &Mixer) -> TrackingClaim {
    // Parity is a quotient of S3: a layer that cannot track parity cannot track S3.
    if has_bounded_context(mixer) { BOUNDED_CONTEXT } else { TrackingClaim::Unknown }
}

/// Whether the layer sees only a bounded number of tokens.
fn has_bounded_context(mixer: &Mixer) -> bool {
    let facts = mixer.facts();
    facts.recurrent_state == 0 && facts.cache_growth() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exponents::benchmark_mixer;

    #[test]
    fn parity_claims_follow_the_evidence() {
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
            assert_eq!(parity(&benchmark_mixer(name).unwrap()).label(), expected, "{name}");
        }
    }
}
