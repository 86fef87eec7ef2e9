//! A small random generator that several tests share.
#![allow(dead_code, reason = "not every test uses every method")]

use rung_theory::stack::mixer::{MixerOption, OptionKind, OptionValue};

/// A linear congruential generator: the same numbers in every run.
pub struct TestRng(pub u64);

impl TestRng {
    /// A number below `bound`.
    pub fn random_below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// A random element.
    pub fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.random_below(items.len() as u64) as usize]
    }

    /// A random value of a mixer's option; an integer is one of the `count` smallest.
    pub fn option(&mut self, option: &MixerOption, count: u64) -> OptionValue {
        match option.kind {
            OptionKind::Integer { min, max, .. } => OptionValue::Integer((min + self.random_below(count)).min(max)),
            OptionKind::Flag { .. } => OptionValue::Flag(self.random_below(2) == 1),
            OptionKind::Choice(words) => OptionValue::Word(self.pick(words)),
        }
    }
}
