//! Named registers: slices of the residual stream.
//!
//! A construction divides the width of its stream into registers, each with a name, and every weight it sets is a sentence
//! about registers: this head compares that one with this one, that neuron writes there. A register is written once, by the
//! embedding or by one layer, and never cleared; so what a token knows after any layer can be read off its vector, which is
//! what `rung trace` shows.
//!
//! Numbers are held as bits, the lowest first, and a bit is +1 or -1. Zero stands for "nothing here": a blank field, or a
//! register before its layer. So two numbers of b bits agree exactly when their product is b, and any difference costs 2.
//!
//! ```
//! use rung_nn::construct::{RegisterKind, Registers};
//!
//! let mut registers = Registers::default();
//! let value = registers.add("value", 3, RegisterKind::Number, "what the entry says");
//! let mut stream = vec![0.0; registers.width()];
//! for (column, bit) in value.code(6) {
//!     stream[column] = bit;
//! }
//! assert_eq!(registers.find("value").unwrap().number(&stream), Some(6));
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// What the numbers of a register mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegisterKind {
    /// The number 1, for offsets.
    Constant,
    /// Yes or no: +1 or -1.
    Flag,
    /// A whole number in bits of +1 and -1.
    Number,
    /// One 1 among zeros.
    OneHot,
    /// What a mixer read, before it was snapped to bits.
    Raw,
}

/// A register with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Its name.
    pub name: String,
    /// First column of the stream.
    pub start: usize,
    /// Columns.
    pub size: usize,
    /// What its numbers mean.
    pub holds: RegisterKind,
    /// A few words for people.
    pub about: String,
}

/// Where a register lies: the handle that weights are set with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// First column.
    pub start: usize,
    /// Columns.
    pub size: usize,
}

/// All registers of a construction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Registers {
    all: Vec<Register>,
}

impl Slice {
    /// One of its columns.
    pub fn column(self, index: usize) -> usize {
        self.start + index
    }

    /// All of its columns.
    pub fn columns(self) -> Range<usize> {
        self.start..self.start + self.size
    }

    /// Its first columns: the low bits.
    #[must_use]
    pub fn low_bits(self, size: usize) -> Self {
        Self { size: size.min(self.size), ..self }
    }

    /// The columns and bits of a number.
    pub fn code(self, number: u64) -> Vec<(usize, f64)> {
        self.columns().enumerate().map(|(index, column)| (column, sign(number, index))).collect()
    }
}

/// +1 if a number has this bit, else -1.
pub fn sign(number: u64, bit: usize) -> f64 {
    if bit < 64 && number >> bit & 1 == 1 { 1.0 } else { -1.0 }
}

/// Bits that tell `count` things apart; at least one, so that no register is empty.
pub fn bits(count: u64) -> usize {
    (64 - count.saturating_sub(1).leading_zeros() as usize).max(1)
}

impl Registers {
    /// Adds a register after the others.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        size: usize,
        holds: RegisterKind,
        about: impl Into<String>,
    ) -> Slice {
        let (name, start) = (name.into(), self.width());
        debug_assert!(self.find(&name).is_none(), "two registers are named {name}");
        self.all.push(Register { name, start, size, holds, about: about.into() });
        Slice { start, size }
    }

    /// Columns of all of them.
    pub fn width(&self) -> usize {
        self.all.last().map_or(0, |last| last.start + last.size)
    }

    /// The register of this name.
    pub fn find(&self, name: &str) -> Option<&Register> {
        self.all.iter().find(|register| register.name == name)
    }

    /// Every register, in the order of columns.
    pub fn iter(&self) -> impl Iterator<Item = &Register> {
        self.all.iter()
    }

    /// Whether registers follow each other without gaps within a width: what a file must say.
    pub fn fit(&self, width: usize) -> bool {
        let mut next = 0;
        self.all.iter().all(|register| {
            let follows = register.start == next && register.size <= width - next.min(width);
            next = register.start.saturating_add(register.size);
            follows && next <= width
        })
    }
}

impl Register {
    /// Where it lies.
    pub fn slice(&self) -> Slice {
        Slice { start: self.start, size: self.size }
    }

    /// Its part of a token's vector.
    pub fn of<'a, T>(&self, stream: &'a [T]) -> &'a [T] {
        &stream[self.slice().columns()]
    }

    /// The number it holds: bits by their signs, or the place of the one. None where it holds none.
    pub fn number(&self, stream: &[f64]) -> Option<u64> {
        let values = self.of(stream);
        match self.holds {
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
    fn bits_tell_things_apart() {
        let needed: Vec<usize> = [0, 1, 2, 3, 4, 5, 8, 9, 1 << 40].into_iter().map(bits).collect();
        assert_eq!(needed, [1, 1, 1, 2, 2, 3, 3, 4, 40]);
    }

    #[test]
    fn registers_hold_numbers_flags_and_nothing() {
        let mut registers = Registers::default();
        let flag = registers.add("flag", 1, RegisterKind::Flag, "");
        let value = registers.add("value", 4, RegisterKind::Number, "");
        let place = registers.add("place", 3, RegisterKind::OneHot, "");
        let mut stream = vec![0.0; registers.width()];
        let read = |stream: &[f64]| registers.iter().map(|register| register.number(stream)).collect::<Vec<_>>();
        assert_eq!(read(&stream), [None, None, None]);
        for (column, bit) in value.code(9).into_iter().chain(flag.code(0)) {
            stream[column] = bit;
        }
        stream[place.column(2)] = 1.0;
        assert_eq!(read(&stream), [Some(0), Some(9), Some(2)]);
        assert!(registers.fit(8) && !registers.fit(7));
    }
}
