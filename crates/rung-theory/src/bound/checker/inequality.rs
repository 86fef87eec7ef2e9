//! What was compared, for whoever wants to see the numbers: notes on the side that decide nothing.

use num_bigint::BigUint;

use super::Instance;
use super::exact::{FRACTION, TailBound, log2};

/// One inequality of a theorem, with the numbers of both sides as they were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inequality {
    /// Both sides in the letters of `docs/proof.md`, and `>`, `>=` or `<` between them.
    pub formula: [String; 3],
    /// The left side times 2^80, rounded against the claim; nothing where it has no limit.
    pub left: Option<BigUint>,
    /// The right side times 2^80.
    pub right: BigUint,
    /// Whether it holds.
    pub holds: bool,
}

impl Instance<'_> {
    /// Hands on whether an inequality holds; the sides are worked out only for whoever wants to see them.
    pub(super) fn note(
        &self,
        formula: [&str; 3],
        holds: bool,
        sides: impl FnOnce() -> (Option<BigUint>, BigUint),
    ) -> bool {
        if let Some(notes) = self.notes {
            let (left, right) = sides();
            let formula = formula.map(str::to_owned);
            notes.borrow_mut().push(Inequality { formula, left, right, holds });
        }
        holds
    }

    /// Notes that a draw was compared with what it must reach.
    pub(super) fn note_draw(
        &self,
        formula: [&str; 3],
        tail: &TailBound,
        groups: &BigUint,
        need: &BigUint,
        holds: bool,
    ) -> bool {
        self.note(formula, holds, || {
            let left = match tail {
                TailBound::Certain => None,
                TailBound::Bits { gain, loss } if gain > loss => Some((gain - loss) * groups),
                TailBound::Bits { .. } | TailBound::None => Some(BigUint::ZERO),
            };
            (left, need << FRACTION)
        })
    }

    /// Notes that m log(a / b) was compared with bits.
    pub(super) fn note_power(&self, formula: [&str; 3], [a, b]: [&BigUint; 2], bits: &BigUint, holds: bool) -> bool {
        self.note(formula, holds, || {
            let left = if a > b { self.m * log2(a, b, false) } else { BigUint::ZERO };
            (Some(left), bits << FRACTION)
        })
    }
}
