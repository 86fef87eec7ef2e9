//! Exact comparisons: logarithms as integers scaled by 2^80, rounded so that an error can only reject a certificate, and the tail of a random draw.

use num_bigint::BigUint;

/// Binary digits of a logarithm after the point.
pub(super) const FRACTION_BITS: u64 = 80;
/// Binary digits after the point of the mantissa while a logarithm is computed.
const MANTISSA_BITS: u64 = 128;

/// log2(a/b) * 2^80 for a >= b >= 1, at most the exact value.
pub(super) fn log2_rounded_down(a: &BigUint, b: &BigUint) -> BigUint {
    scaled_log2(a, b, false)
}

/// log2(a/b) * 2^80 for a >= b >= 1, at least the exact value.
fn log2_rounded_up(a: &BigUint, b: &BigUint) -> BigUint {
    scaled_log2(a, b, true)
}

/// log2(a/b) * 2^80 for a >= b >= 1, with every step rounded down, or every step rounded up.
fn scaled_log2(a: &BigUint, b: &BigUint, round_up: bool) -> BigUint {
    let shift_right = |value: BigUint, by: u64| {
        let down = &value >> by;
        if round_up && (&down << by) != value { down + 1_u8 } else { down }
    };
    let mut exponent = a.bits() - b.bits();
    if &(b << exponent) > a {
        exponent -= 1;
    }
    let divisor = b << exponent;
    let mut mantissa = (a << MANTISSA_BITS) / &divisor; // in [1, 2), scaled
    if round_up && &mantissa * &divisor != a << MANTISSA_BITS {
        mantissa += 1_u8;
    }
    let mut digits = BigUint::from(exponent);
    for _ in 0..FRACTION_BITS {
        mantissa = shift_right(&mantissa * &mantissa, MANTISSA_BITS);
        digits <<= 1;
        if mantissa.bits() > MANTISSA_BITS + 1 {
            digits += 1_u8;
            mantissa = shift_right(mantissa, 1);
        }
    }
    digits + u8::from(round_up)
}

/// Whether a^m > 2^bits * b^m, for b >= 1: compares logarithms, and the powers themselves where the logarithms are too close to decide.
pub(super) fn power_exceeds(a: &BigUint, b: &BigUint, m: &BigUint, bits: &BigUint) -> bool {
    const MAX_POWER_BITS: u64 = 1 << 22;
    if a <= b {
        return false;
    }
    let bound = bits << FRACTION_BITS;
    if m * log2_rounded_down(a, b) > bound {
        return true;
    }
    if m * log2_rounded_up(a, b) <= bound {
        return false;
    }
    match (u32::try_from(m), u64::try_from(bits)) {
        (Ok(m), Ok(bits)) if u64::from(m) * a.bits() <= MAX_POWER_BITS => a.pow(m) > (b.pow(m) << bits),
        _ => false,
    }
}

fn binomial(m: u32, t: u32) -> BigUint {
    (1..=t.min(m - t)).fold(BigUint::from(1_u8), |c, i| c * (m - i + 1) / i)
}

/// E(M, T, sigma) = log 1/[C(M,t) (t/M)^T], t = sigma - 1: minus the logarithm of the probability that T uniform draws from M
/// pairs hit fewer than sigma of them.
pub(super) enum TailBound {
    /// There is no bound: sigma pairs cannot be hit, or not enough is known.
    None,
    /// E is at least (`gain` - `loss`) / 2^80.
    Bits { gain: BigUint, loss: BigUint },
    /// The draw cannot fail: sigma is 1, and one pair is always hit.
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
            (Ok(m_small), Ok(t_small)) if m_small <= 4000 => Self::Bits {
                gain: draws * log2_rounded_down(m, &t),
                loss: log2_rounded_up(&binomial(m_small, t_small), &one),
            },
            _ => Self::Bits {
                gain: (draws - &t) * log2_rounded_down(m, &t),
                loss: (m - &t) * log2_rounded_up(m, &(m - &t)),
            },
        }
    }

    /// Whether E >= `bits`.
    pub(super) fn reaches(&self, bits: &BigUint) -> bool {
        match self {
            Self::None => false,
            Self::Certain => true,
            Self::Bits { gain, loss } => *gain >= (bits << FRACTION_BITS) + loss,
        }
    }

    /// Whether E * `groups` > `bits`.
    pub(super) fn exceeds(&self, groups: &BigUint, bits: &BigUint) -> bool {
        match self {
            Self::None => false,
            Self::Certain => true,
            Self::Bits { gain, loss } => gain * groups > (bits << FRACTION_BITS) + loss * groups,
        }
    }
}
