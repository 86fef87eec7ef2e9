//! Named registers: ranges of columns of the residual stream.
//!
//! A construction divides the columns of its residual stream into named registers, and sets every weight by register: a head
//! compares two registers, a neuron adds to one. A register is written once, by the embedding or by one layer, and never cleared.
//! So the vector of a token after any layer shows everything computed so far, which is what `rung trace` prints.
//!
//! Numbers are stored as bits, the lowest first, and a bit is +1 or -1. Zero means empty: a blank field, or a register before the
//! layer that writes it. So the dot product of two numbers of b bits is b if they are equal, and each bit that differs takes 2 off.
//!
//! ```
//! use rung_nn::construct::{RegisterKind, Registers};
//!
//! let mut registers = Registers::default();
//! let value = registers.add("value", 3, RegisterKind::Number, "what the entry says");
//! let mut residual = vec![0.0; registers.width()];
//! for (column, bit) in value.encode(6) {
//!     residual[column] = bit;
//! }
//! assert_eq!(registers.find("value").unwrap().decode(&residual), Some(6));
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How the numbers of a register are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegisterKind {
    /// The same number at every token, such as the 1 by which weights add biases.
    Constant,
    /// A Boolean: +1 for true, -1 for false.
    Flag,
    /// An unsigned integer in bits of +1 and -1.
    Number,
    /// A one-hot vector.
    OneHot,
    /// The output of a mixer, before it is rounded to bits.
    #[serde(rename = "raw")]
    Unrounded,
}

/// A named range of columns of the residual stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Unique within a construction.
    pub name: String,
    /// First column.
    pub start: usize,
    /// Number of columns.
    pub size: usize,
    /// How its numbers are to be read.
    #[serde(rename = "holds")]
    pub kind: RegisterKind,
    /// A short description.
    pub about: String,
}

/// The columns of a register: the handle that weights are set with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnRange {
    /// First column.
    pub start: usize,
    /// Number of columns.
    pub size: usize,
}

/// The registers of a construction, in the order of their columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Registers {
    registers: Vec<Register>,
}

impl ColumnRange {
    /// The column at an index within the range.
    pub fn column(self, index: usize) -> usize {
        self.start + index
    }

    /// Every column, as a range of indices.
    pub fn columns(self) -> Range<usize> {
        self.start..self.start + self.size
    }

    /// The first `size` columns, which hold the low bits of a number.
    #[must_use]
    pub fn low_bits(self, size: usize) -> Self {
        Self { size: size.min(self.size), ..self }
    }

    /// The bits of a number, each as (column, +1 or -1).
    pub fn encode(self, number: u64) -> Vec<(usize, f64)> {
        self.columns().enumerate().map(|(index, column)| (column, bit_sign(number, index))).collect()
    }
}

/// +1 if a number has this bit set, else -1.
pub fn bit_sign(number: u64, bit: usize) -> f64 {
    if bit < 64 && number >> bit & 1 == 1 { 1.0 } else { -1.0 }
}

/// Bits needed to number `count` values; at least one, so that no register is empty.
pub fn bits_for(count: u64) -> usize {
    (64 - count.saturating_sub(1).leading_zeros() as usize).max(1)
}

impl Registers {
    /// Adds a register after the existing ones.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        size: usize,
        kind: RegisterKind,
        about: impl Into<String>,
    ) -> ColumnRange {
        let (name, start) = (name.into(), self.width());
        debug_assert!(self.find(&name).is_none(), "two registers are named {name}");
        self.registers.push(Register { name, start, size, kind, about: about.into() });
        ColumnRange { start, size }
    }

    /// Columns that the registers take together.
    pub fn width(&self) -> usize {
        self.registers.last().map_or(0, |last| last.start + last.size)
    }

    /// The register of this name.
    pub fn find(&self, name: &str) -> Option<&Register> {
        self.registers.iter().find(|register| register.name == name)
    }

    /// Every register, in the order of columns.
    pub fn iter(&self) -> impl Iterator<Item = &Register> {
        self.registers.iter()
    }

    /// Whether the registers follow each other without gaps and end within `width`, as every valid file has them.
    pub fn are_contiguous_within(&self, width: usize) -> bool {
        let mut next = 0;
        self.registers.iter().all(|register| {
            let follows = register.start == next && register.size <= width - next.min(width);
            next = register.start.saturating_add(register.size);
            follows && next <= width
        })
    }
}

impl Register {
    /// The handle of its columns.
    pub fn column_range(&self) -> ColumnRange {
        ColumnRange { start: self.start, size: self.size }
    }

    /// Its values in the vector of one token.
    pub fn values_in<'a, T>(&self, residual: &'a [T]) -> &'a [T] {
        &residual[self.column_range().columns()]
    }

    /// The number it holds: bits by their signs, or the index of the 1 in a one-hot vector. None if the register is empty.
    pub fn decode(&self, residual: &[f64]) -> Option<u64> {
        let values = self.values_in(residual);
        match self.kind {
            RegisterKind::OneHot => {
                let mut ones = values.iter().enumerate().filter(|(_, value)| **value > 0.5);
                let first = ones.next().map(|(index, _)| index as u64);
                first.filter(|_| ones.next().is_none())
            }
            _ if values.iter().any(|value| value.abs() < 0.5) => None,
            _ => Some(values.iter().rev().fold(0, |number, value| 2 * number + u64::from(*value > 0.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_for_is_the_rounded_up_logarithm_but_at_least_one() {
        let needed: Vec<usize> = [0, 1, 2, 3, 4, 5, 8, 9, 1 << 40].into_iter().map(bits_for).collect();
        assert_eq!(needed, [1, 1, 1, 2, 2, 3, 3, 4, 40]);
    }

    #[test]
    fn decode_returns_numbers_flags_and_one_hot_indices_or_none_if_empty() {
        let mut registers = Registers::default();
        let flag = registers.add("flag", 1, RegisterKind::Flag, "");
        let value = registers.add("value", 4, RegisterKind::Number, "");
        let one_hot = registers.add("one-hot", 3, RegisterKind::OneHot, "");
        let mut residual = vec![0.0; registers.width()];
        let decode_all =
            |residual: &[f64]| registers.iter().map(|register| register.decode(residual)).collect::<Vec<_>>();
        assert_eq!(decode_all(&residual), [None, None, None]);
        for (column, bit) in value.encode(9).into_iter().chain(flag.encode(0)) {
            residual[column] = bit;
        }
        residual[one_hot.column(2)] = 1.0;
        assert_eq!(decode_all(&residual), [Some(0), Some(9), Some(2)]);
        assert!(registers.are_contiguous_within(8) && !registers.are_contiguous_within(7));
    }
}
