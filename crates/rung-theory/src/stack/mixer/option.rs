//! Options of mixers: integers in a range, flags, or one of a few words.
//!
//! Every option has a default, computed from the stack's defaults and the options before it, so a plan has every value
//! explicitly. Values are typed: a flag is a `bool` and a choice is an enum.

use super::super::{Defaults, StackError};
use crate::spec::SpecValue;

/// The largest size in a stack: products of four sizes, times layers and bits, still fit 128 bits.
pub const MAX_SIZE: u64 = 1 << 24;

/// One option of a mixer.
#[derive(Debug)]
pub struct MixerOption {
    /// The name in stack text.
    pub name: &'static str,
    /// One line of help for `rung explain`.
    pub help: &'static str,
    /// Its type, range and default.
    pub kind: OptionKind,
}

/// The type, range and default of an option.
#[derive(Clone, Copy, Debug)]
pub enum OptionKind {
    /// A whole number.
    Integer {
        /// The smallest number allowed.
        min: u64,
        /// The largest number allowed.
        max: u64,
        /// Computes the default from the stack's defaults and the options before it; clamped to the range.
        default: fn(&OptionValues) -> u64,
    },
    /// `yes` or `no`.
    Flag {
        /// Computes the default from the stack's defaults and the options before it.
        default: fn(&OptionValues) -> bool,
    },
    /// One of these words; the first is the default.
    Choice(&'static [&'static str]),
}

/// An enum that is an option of a mixer.
pub trait OptionChoice: Copy + 'static {
    /// The words in stack text, each with its value; the first is the default.
    const WORDS: &'static [(&'static str, Self)];
}

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A whole number.
    Integer(u64),
    /// `yes` or `no`.
    Flag(bool),
    /// A word of a choice.
    Word(&'static str),
}

impl From<u64> for OptionValue {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for OptionValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<OptionValue> for SpecValue {
    fn from(value: OptionValue) -> Self {
        match value {
            OptionValue::Integer(number) => Self::Number(number),
            OptionValue::Flag(flag) => Self::Word(yes_or_no(flag).to_owned()),
            OptionValue::Word(word) => Self::Word(word.to_owned()),
        }
    }
}

fn yes_or_no(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

impl std::fmt::Display for OptionValue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(out),
            Self::Flag(flag) => out.write_str(yes_or_no(*flag)),
            Self::Word(word) => out.write_str(word),
        }
    }
}

impl MixerOption {
    /// Parses a typed value.
    pub(super) fn parse(&self, mixer: &'static str, value: &SpecValue) -> Result<OptionValue, StackError> {
        let parsed = match (self.kind, value) {
            (OptionKind::Integer { min, max, .. }, SpecValue::Number(number)) => {
                (min..=max).contains(number).then_some(OptionValue::Integer(*number))
            }
            (OptionKind::Flag { .. }, SpecValue::Word(typed)) => match typed.as_str() {
                "yes" | "true" => Some(OptionValue::Flag(true)),
                "no" | "false" => Some(OptionValue::Flag(false)),
                _ => None,
            },
            (OptionKind::Flag { .. }, SpecValue::Number(number @ (0 | 1))) => Some(OptionValue::Flag(*number == 1)),
            (OptionKind::Choice(words), SpecValue::Word(typed)) => {
                words.iter().find(|word| *word == typed).map(|word| OptionValue::Word(word))
            }
            _ => None,
        };
        parsed.ok_or_else(|| StackError::BadOption {
            mixer,
            option: self.name,
            found: value.to_string(),
            expected: self.expected(),
        })
    }

    /// The allowed values, in words.
    pub fn expected(&self) -> String {
        match self.kind {
            OptionKind::Integer { min, max, .. } => format!("a whole number from {min} to {max}"),
            OptionKind::Flag { .. } => "yes or no".to_owned(),
            OptionKind::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// The default, given the options before this one.
    pub(super) fn default(&self, previous: &OptionValues) -> OptionValue {
        match self.kind {
            OptionKind::Integer { min, max, default } => OptionValue::Integer(default(previous).clamp(min, max)),
            OptionKind::Flag { default } => OptionValue::Flag(default(previous)),
            OptionKind::Choice(words) => OptionValue::Word(words[0]),
        }
    }
}

/// The resolved options of one mixer, with the stack's defaults.
#[derive(Clone, Debug)]
pub struct OptionValues {
    pub(super) defaults: Defaults,
    pub(super) values: Vec<(&'static str, OptionValue)>,
}

impl OptionValues {
    /// The value of an option; none if the mixer has no such option.
    pub fn find(&self, name: &str) -> Option<OptionValue> {
        self.values.iter().find(|(option, _)| *option == name).map(|&(_, value)| value)
    }

    /// The value of an integer option, as `u64`: for sizes that are passed on unchanged. [`size`](Self::size) is for arithmetic.
    ///
    /// # Panics
    /// The mixer has no such option: a mistake in its file, which the test that resolves every mixer finds.
    pub fn integer(&self, name: &str) -> u64 {
        match self.find(name) {
            Some(OptionValue::Integer(number)) => number,
            other => panic!("option {name} is {other:?}, no number, in {:?}", self.values),
        }
    }

    /// The value of an integer option as `u128`, so that products of several options do not overflow. [`integer`](Self::integer)
    /// has the same value.
    pub fn size(&self, name: &str) -> u128 {
        u128::from(self.integer(name))
    }

    /// The value of a flag.
    ///
    /// # Panics
    /// As [`OptionValues::integer`].
    pub fn flag(&self, name: &str) -> bool {
        match self.find(name) {
            Some(OptionValue::Flag(flag)) => flag,
            other => panic!("option {name} is {other:?}, no flag, in {:?}", self.values),
        }
    }

    /// The value of a choice.
    ///
    /// # Panics
    /// As [`OptionValues::integer`].
    pub fn choice<C: OptionChoice>(&self, name: &str) -> C {
        let value = self.find(name);
        let chosen = |(word, _): &&(&'static str, C)| value == Some(OptionValue::Word(word));
        let choice = C::WORDS.iter().find(chosen);
        choice.unwrap_or_else(|| panic!("option {name} is {value:?}, no such choice, in {:?}", self.values)).1
    }

    /// The width of the residual stream.
    pub fn width(&self) -> u128 {
        u128::from(self.defaults.width())
    }
}

/// An option: an integer of at least 1.
pub(super) const fn size(name: &'static str, help: &'static str, default: fn(&OptionValues) -> u64) -> MixerOption {
    MixerOption { name, help, kind: OptionKind::Integer { min: 1, max: MAX_SIZE, default } }
}

/// An option: an integer of at least 0.
pub(super) const fn count(name: &'static str, help: &'static str, default: fn(&OptionValues) -> u64) -> MixerOption {
    MixerOption { name, help, kind: OptionKind::Integer { min: 0, max: MAX_SIZE, default } }
}

/// An option: yes or no.
pub(super) const fn flag(name: &'static str, help: &'static str, default: fn(&OptionValues) -> bool) -> MixerOption {
    MixerOption { name, help, kind: OptionKind::Flag { default } }
}

/// An option: one of a few words.
pub(super) const fn choice(name: &'static str, help: &'static str, words: &'static [&'static str]) -> MixerOption {
    MixerOption { name, help, kind: OptionKind::Choice(words) }
}

/// Declares an enum for an option, with the word of each variant.
macro_rules! choices {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            const NAMES: &'static [&'static str] = &[$($word),*];
        }

        impl super::OptionChoice for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),*];
        }
    };
}
pub(super) use choices;

/// Bits per number, an option of every mixer.
pub(super) const BITS: MixerOption = MixerOption {
    name: "bits",
    help: "bits per number",
    kind: OptionKind::Integer { min: 1, max: Defaults::MAX_BITS, default: |values| values.defaults.bits },
};

// Options that many mixers share.
pub(super) const QUERY_HEADS: MixerOption = size("heads", "query heads", |options| options.defaults.heads);
pub(super) const STATE_HEADS: MixerOption =
    size("heads", "heads, each with its own state", |options| options.defaults.heads);
pub(super) const KEY_HEADS: MixerOption = size("heads", "query and key heads", |options| options.defaults.heads);
pub(super) const VALUE_HEADS: MixerOption =
    size("value-heads", "value heads, each with its own state", |options| options.integer("heads"));
pub(super) const KV_HEADS: MixerOption = size("kv", "key/value heads", |options| options.defaults.kv_heads());
pub(super) const HEAD_DIM: MixerOption = size("head", "width of a head", |options| options.defaults.head_dim);
pub(super) const KEY_HEAD_DIM: MixerOption = size("key", "width of a key head", |options| options.integer("head"));
pub(super) const VALUE_HEAD_DIM: MixerOption =
    size("value", "width of a value head", |options| options.integer("head"));
pub(super) const NEGATIVE: MixerOption = flag("negative", "allow negative eigenvalues", |_| false);
pub(super) const SHORT_CONVOLUTION: MixerOption =
    count("conv", "kernel size of the short convolution, 0 for none", |_| 4);
/// RWKV's channel mixing shifts tokens too. It is not part of the mixer, so it is off by default.
pub(super) const CHANNEL_SHIFT: MixerOption =
    flag("channel", "whether RWKV's channel mixing, with a shift of its own, follows", |_| false);
