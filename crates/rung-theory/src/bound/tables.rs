//! The table sizes of one instance of function composition; the letters are those of `docs/proof.md`.

use num_bigint::BigUint;

/// m and n_1 .. n_{L-1}, with the table sizes N_0 .. N_{L-1} that follow from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSizes {
    /// m = N_0: entries of the first table.
    pub m: BigUint,
    /// n_1 .. n_{L-1}: values of each component of the query w.
    pub n: Vec<BigUint>,
    /// N_0 .. N_{L-1}: entries of each table.
    sizes: Vec<BigUint>,
}

/// Why sizes do not describe an instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// The list n has the wrong length.
    #[error("--n has {found} entries, expected {expected} (one less than the hops)")]
    Length {
        /// The length of the given list.
        found: usize,
        /// One less than the hops.
        expected: usize,
    },
    /// A size is zero.
    #[error("{name} is 0, expected at least {min}")]
    Zero {
        /// The size that is zero, such as `n_1`.
        name: String,
        /// The smallest allowed.
        min: u8,
    },
    /// The number of hops is out of range.
    #[error("hops: found {found}, expected 1 to {max}")]
    Hops {
        /// The given number of hops.
        found: usize,
        /// The largest possible number.
        max: usize,
    },
}

impl TableSizes {
    /// Checks the sizes and computes those of all tables.
    ///
    /// # Errors
    /// A size is zero or the list has the wrong length.
    pub fn new(hops: usize, m: BigUint, n: Vec<BigUint>) -> Result<Self, TablesError> {
        let max_hops = super::checker::MAX_HOPS;
        if !(1..=max_hops).contains(&hops) {
            return Err(TablesError::Hops { found: hops, max: max_hops });
        }
        if n.len() + 1 != hops {
            return Err(TablesError::Length { found: n.len(), expected: hops - 1 });
        }
        if let Some(index) = n.iter().position(|n| *n == BigUint::ZERO) {
            return Err(TablesError::Zero { name: format!("n_{}", index + 1), min: 1 });
        }
        if m == BigUint::ZERO {
            return Err(TablesError::Zero { name: "m".to_owned(), min: 1 });
        }
        let mut sizes = vec![m.clone()];
        for n in &n {
            sizes.push(sizes[sizes.len() - 1].clone() * n);
        }
        Ok(Self { m, n, sizes })
    }

    /// L: the number of tables.
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

    /// Bits of the address of an entry of z_{e+1}: those of w_e and of i_e.
    pub fn address_bits(&self, e: usize) -> u64 {
        if e == 0 { self.value_bits(0) } else { ceil_log2(&self.n[e - 1]) + self.value_bits(e) }
    }

    /// Tokens of the prompt, with one token for an entry, for z_0 and for w.
    pub fn tokens(&self) -> BigUint {
        self.sizes.iter().sum::<BigUint>() + 2_u8
    }
}

/// ceil(log2 `number`): the bits needed to distinguish `number` values; 0 for 0.
pub fn ceil_log2(number: &BigUint) -> u64 {
    if *number == BigUint::ZERO { 0 } else { (number - 1_u8).bits() }
}
