//! A record of the compared inequalities, for reports. It never changes the checker's decision.

use num_bigint::BigUint;

use super::Instance;
use super::exact::{FRACTION_BITS, TailBound, log2_rounded_down};

/// One inequality of a theorem, with the numbers of both sides as they were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inequality {
    /// Both sides in the letters of `docs/proof.md`, and `>`, `>=` or `<` between them.
    pub formula: [String; 3],
    /// The left side times 2^80, rounded so that an error can only reject; none if it is infinite.
    pub left: Option<BigUint>,
    /// The right side times 2^80.
    pub right: BigUint,
    /// Whether it holds.
    pub holds: bool,
}

impl Instance<'_> {
    /// Returns `holds`, and records the inequality if the caller asked for a record. Only then are the sides computed.
    pub(super) fn record(
        &self,
        formula: [&str; 3],
        holds: bool,
        sides: impl FnOnce() -> (Option<BigUint>, BigUint),
    ) -> bool {
        if let Some(inequalities) = self.inequalities {
            let (left, right) = sides();
            let formula = formula.map(str::to_owned);
            inequalities.borrow_mut().push(Inequality { formula, left, right, holds });
        }
        holds
    }

    /// Records the comparison of a tail bound, times `groups`, with the bits that it must exceed.
    pub(super) fn record_tail(
        &self,
        formula: [&str; 3],
        tail: &TailBound,
        groups: &BigUint,
        required: &BigUint,
        holds: bool,
    ) -> bool {
        self.record(formula, holds, || {
            let left = match tail {
                TailBound::Certain => None,
                TailBound::Bits { gain, loss } if gain > loss => Some((gain - loss) * groups),
                TailBound::Bits { .. } | TailBound::None => Some(BigUint::ZERO),
            };
            (left, required << FRACTION_BITS)
        })
    }

    /// Records the comparison of m log(a / b) with `bits`.
    pub(super) fn record_power(&self, formula: [&str; 3], [a, b]: [&BigUint; 2], bits: &BigUint, holds: bool) -> bool {
        self.record(formula, holds, || {
            let left = if a > b { self.m * log2_rounded_down(a, b) } else { BigUint::ZERO };
            (Some(left), bits << FRACTION_BITS)
        })
    }
}
