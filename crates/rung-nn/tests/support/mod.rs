//! What several tests share: a small generator.
#![allow(dead_code, reason = "each test uses a part of it")]

use rung_theory::stack::mixer::{MixerOption, OptionKind, OptionValue};

/// Numbers that look random, the same in every run.
pub struct Draws(pub u64);

impl Draws {
    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// One of several things.
    pub fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A value of a mixer's option: a number is one of the `count` smallest.
    pub fn option(&mut self, option: &MixerOption, count: u64) -> OptionValue {
        match option.kind {
            OptionKind::Integer { least, most, .. } => OptionValue::Integer((least + self.below(count)).min(most)),
            OptionKind::Flag { .. } => OptionValue::Flag(self.below(2) == 1),
            OptionKind::Choice(words) => OptionValue::Word(self.pick(words)),
        }
    }
}
