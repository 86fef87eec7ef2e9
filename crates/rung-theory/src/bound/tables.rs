//! The sizes of one instance of function composition.

use num_bigint::BigUint;

/// m and n_1 .. n_{L-1}, with what follows from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSizes {
    /// m = N_0.
    pub m: BigUint,
    /// n_1 .. n_{L-1}.
    pub n: Vec<BigUint>,
    /// N_0 .. N_{L-1}.
    sizes: Vec<BigUint>,
}

/// Sizes that make no instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// Too few or too many n.
    #[error("--n has {found} entries, expected {expected} (one less than the hops)")]
    Length {
        /// How many were given.
        found: usize,
        /// How many are needed.
        expected: usize,
    },
    /// A size is zero.
    #[error("{name} is 0, expected at least {least}")]
    Zero {
        /// Which.
        name: String,
        /// The smallest allowed.
        least: u8,
    },
    /// No hops, or too many.
    #[error("hops: found {found}, expected 1 to {most}")]
    Hops {
        /// How many were asked for.
        found: usize,
        /// How many are possible.
        most: usize,
    },
}

impl TableSizes {
    /// Checks and multiplies out the sizes.
    ///
    /// # Errors
    /// A size is zero or the list has the wrong length.
    pub fn new(hops: usize, m: BigUint, n: Vec<BigUint>) -> Result<Self, TablesError> {
        let most = super::checker::MAX_HOPS;
        if !(1..=most).contains(&hops) {
            return Err(TablesError::Hops { found: hops, most });
        }
        if n.len() + 1 != hops {
            return Err(TablesError::Length { found: n.len(), expected: hops - 1 });
        }
        if let Some(index) = n.iter().position(|n| *n == BigUint::ZERO) {
            return Err(TablesError::Zero { name: format!("n_{}", index + 1), least: 1 });
        }
        if m == BigUint::ZERO {
            return Err(TablesError::Zero { name: "m".to_owned(), least: 1 });
        }
        let mut sizes = vec![m.clone()];
        for n in &n {
            sizes.push(sizes[sizes.len() - 1].clone() * n);
        }
        Ok(Self { m, n, sizes })
    }

    /// L.
    pub fn hops(&self) -> usize {
        self.sizes.len()
    }

    /// N_e, the entries of table z_{e+1}.
    pub fn size(&self, e: usize) -> &BigUint {
        &self.sizes[e]
    }

    /// Bits of i_l: ceil(log N_{l-1}), and of z_0 for l = 0.
    pub fn value_bits(&self, l: usize) -> u64 {
        ceil_log2(&self.sizes[l.saturating_sub(1)])
    }

    /// Bits of the address of an entry of z_{e+1}: w_e beside i_e.
    pub fn address_bits(&self, e: usize) -> u64 {
        if e == 0 { self.value_bits(0) } else { ceil_log2(&self.n[e - 1]) + self.value_bits(e) }
    }

    /// Tokens of the prompt, with one token for an entry, for z_0 and for w.
    pub fn tokens(&self) -> BigUint {
        self.sizes.iter().sum::<BigUint>() + 2_u8
    }
}

/// Bits that tell `number` things apart.
pub fn ceil_log2(number: &BigUint) -> u64 {
    if *number == BigUint::ZERO { 0 } else { (number - 1_u8).bits() }
}
