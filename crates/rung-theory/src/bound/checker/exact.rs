//! Exact comparisons: logarithms as integers scaled by 2^80, rounded against the claim, and the tail of a draw.

use num_bigint::BigUint;

/// Binary digits of a logarithm after the point.
pub(super) const FRACTION: u64 = 80;
const MANTISSA: u64 = 128;

/// log2(a/b) * 2^80 for a >= b >= 1, rounded down or up throughout.
pub(super) fn log2(a: &BigUint, b: &BigUint, up: bool) -> BigUint {
    let shift = |value: BigUint, by: u64| {
        let down = &value >> by;
        if up && (&down << by) != value { down + 1_u8 } else { down }
    };
    let mut whole = a.bits() - b.bits();
    if &(b << whole) > a {
        whole -= 1;
    }
    let divisor = b << whole;
    let mut rest = (a << MANTISSA) / &divisor; // in [1, 2), scaled
    if up && &rest * &divisor != a << MANTISSA {
        rest += 1_u8;
    }
    let mut digits = BigUint::from(whole);
    for _ in 0..FRACTION {
        rest = shift(&rest * &rest, MANTISSA);
        digits <<= 1;
        if rest.bits() > MANTISSA + 1 {
            digits += 1_u8;
            rest = shift(rest, 1);
        }
    }
    digits + u8::from(up)
}

/// Whether a^m > 2^bits * b^m, for b >= 1: by logarithms, and by the powers themselves where those are too close to tell.
pub(super) fn power_exceeds(a: &BigUint, b: &BigUint, m: &BigUint, bits: &BigUint) -> bool {
    const LONGEST_POWER: u64 = 1 << 22;
    if a <= b {
        return false;
    }
    let bound = bits << FRACTION;
    if m * log2(a, b, false) > bound {
        return true;
    }
    if m * log2(a, b, true) <= bound {
        return false;
    }
    match (u32::try_from(m), u64::try_from(bits)) {
        (Ok(m), Ok(bits)) if u64::from(m) * a.bits() <= LONGEST_POWER => a.pow(m) > (b.pow(m) << bits),
        _ => false,
    }
}

fn binomial(m: u32, t: u32) -> BigUint {
    (1..=t.min(m - t)).fold(BigUint::from(1_u8), |c, i| c * (m - i + 1) / i)
}

/// E(M, T, sigma) = log 1/[C(M,t) (t/M)^T], t = sigma - 1: minus the logarithm of the probability that T uniform draws from M
/// pairs hit fewer than sigma.
pub(super) enum TailBound {
    /// Sigma pairs cannot be hit, or nothing is known.
    None,
    /// E is at least (`gain` - `loss`) / 2^80.
    Bits { gain: BigUint, loss: BigUint },
    /// One pair is always hit.
    Certain,
}

impl TailBound {
    pub(super) fn new(m: &BigUint, draws: &BigUint, sigma: &BigUint) -> Self {
        let one = BigUint::from(1_u8);
        if *sigma < one || sigma > m || *draws < one {
            return Self::None;
        }
        let t = sigma - &one;
        if t == BigUint::ZERO {
            return Self::Certain;
        }
        if t >= *draws {
            return Self::None;
        }
        match (u32::try_from(m), u32::try_from(&t)) {
            (Ok(small), Ok(few)) if small <= 4000 => {
                Self::Bits { gain: draws * log2(m, &t, false), loss: log2(&binomial(small, few), &one, true) }
            }
            _ => Self::Bits { gain: (draws - &t) * log2(m, &t, false), loss: (m - &t) * log2(m, &(m - &t), true) },
        }
    }

    /// E >= need.
    pub(super) fn reaches(&self, need: &BigUint) -> bool {
        match self {
            Self::None => false,
            Self::Certain => true,
            Self::Bits { gain, loss } => *gain >= (need << FRACTION) + loss,
        }
    }

    /// E * groups > need.
    pub(super) fn exceeds(&self, groups: &BigUint, need: &BigUint) -> bool {
        match self {
            Self::None => false,
            Self::Certain => true,
            Self::Bits { gain, loss } => gain * groups > (need << FRACTION) + loss * groups,
        }
    }
}
