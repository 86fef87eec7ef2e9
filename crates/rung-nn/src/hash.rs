//! A hash that detects accidental changes: FNV-1a in 128 bits.
//!
//! Each step (exclusive or, then a multiplication by an odd number) is a bijection of the hash, so two inputs that differ in one byte
//! never have the same hash. It is not a cryptographic hash: it does not protect against deliberate changes.
//!
//! ```
//! use rung_nn::hash::Hash;
//!
//! assert_eq!(Hash::new().with(b"a").with(b"b"), Hash::new().with(b"ab"));
//! assert_eq!(Hash::new().with(b"a").to_hex(), "d228cb696f1a8caf78912b704e4a8964");
//! ```

/// A hash of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(u128);

impl Hash {
    /// Hexadecimal digits of a hash.
    pub const DIGITS: usize = 32;

    /// The hash of no bytes.
    pub fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// The hash of the bytes so far followed by these.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        Self(bytes.iter().fold(self.0, step))
    }

    /// The hash in hexadecimal digits.
    pub fn to_hex(self) -> String {
        format!("{:032x}", self.0)
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}
