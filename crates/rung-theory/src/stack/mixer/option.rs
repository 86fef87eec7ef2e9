//! Options of mixers: whole numbers in a range, yes or no, or one of a few named choices.
//!
//! Every option has a default, worked out from the stack's defaults and from the options before it, so a plan always holds
//! every value explicitly. Values are typed: a flag is a `bool` and a choice an enum, in the mixer's file and wherever it is read.

use super::super::{Defaults, StackError};
use crate::spec::SpecValue;

/// No size in a stack may exceed this: products of four of them, times layers and bits, still fit 128 bits.
pub const LARGEST: u64 = 1 << 24;

/// One option of a mixer.
#[derive(Debug)]
pub struct MixerOption {
    /// What users type.
    pub name: &'static str,
    /// One line for `rung explain`.
    pub help: &'static str,
    /// Which values it takes, and its value when not given.
    pub kind: OptionKind,
}

/// Which values an option takes, with the default.
#[derive(Clone, Copy, Debug)]
pub enum OptionKind {
    /// A whole number.
    Integer {
        /// The smallest number allowed.
        least: u64,
        /// The largest number allowed.
        most: u64,
        /// From the stack's defaults and the options before it; taken into the range.
        default: fn(&OptionValues) -> u64,
    },
    /// `yes` or `no`.
    Flag {
        /// From the stack's defaults and the options before it.
        default: fn(&OptionValues) -> bool,
    },
    /// One of these words, the first by default.
    Choice(&'static [&'static str]),
}

/// An enum that is an option of a mixer.
pub trait OptionChoice: Copy + 'static {
    /// The words users type, each with its value; the first is the default.
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
            OptionValue::Flag(flag) => Self::Word(word(flag).to_owned()),
            OptionValue::Word(word) => Self::Word(word.to_owned()),
        }
    }
}

fn word(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

impl std::fmt::Display for OptionValue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(out),
            Self::Flag(flag) => out.write_str(word(*flag)),
            Self::Word(word) => out.write_str(word),
        }
    }
}

impl MixerOption {
    /// Reads what was typed.
    pub(super) fn read(&self, mixer: &'static str, value: &SpecValue) -> Result<OptionValue, StackError> {
        let read = match (self.kind, value) {
            (OptionKind::Integer { least, most, .. }, SpecValue::Number(number)) => {
                (least..=most).contains(number).then_some(OptionValue::Integer(*number))
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
        read.ok_or_else(|| StackError::BadOption {
            mixer,
            option: self.name,
            found: value.to_string(),
            expected: self.expected(),
        })
    }

    /// The values it takes, in words.
    pub fn expected(&self) -> String {
        match self.kind {
            OptionKind::Integer { least, most, .. } => format!("a whole number from {least} to {most}"),
            OptionKind::Flag { .. } => "yes or no".to_owned(),
            OptionKind::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// The value when not given.
    pub(super) fn default(&self, before: &OptionValues) -> OptionValue {
        match self.kind {
            OptionKind::Integer { least, most, default } => OptionValue::Integer(default(before).clamp(least, most)),
            OptionKind::Flag { default } => OptionValue::Flag(default(before)),
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
    /// The value of an option of this mixer, if it has such an option.
    pub fn find(&self, name: &str) -> Option<OptionValue> {
        self.values.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }

    /// The number of an option of this mixer.
    ///
    /// # Panics
    /// If the mixer has no such option, here and below: a mistake in its file, met by the test that resolves every mixer.
    pub fn integer(&self, name: &str) -> u64 {
        match self.find(name) {
            Some(OptionValue::Integer(number)) => number,
            other => panic!("option {name} is {other:?}, no number, in {:?}", self.values),
        }
    }

    /// The same, wide enough to multiply.
    pub fn size(&self, name: &str) -> u128 {
        u128::from(self.integer(name))
    }

    /// Whether an option is `yes`.
    ///
    /// # Panics
    /// As [`OptionValues::integer`].
    pub fn flag(&self, name: &str) -> bool {
        match self.find(name) {
            Some(OptionValue::Flag(flag)) => flag,
            other => panic!("option {name} is {other:?}, no flag, in {:?}", self.values),
        }
    }

    /// Which choice an option is.
    ///
    /// # Panics
    /// As [`OptionValues::integer`].
    pub fn choice<C: OptionChoice>(&self, name: &str) -> C {
        let value = self.find(name);
        let chosen = |(word, _): &&(&'static str, C)| value == Some(OptionValue::Word(word));
        let found = C::WORDS.iter().find(chosen);
        found.unwrap_or_else(|| panic!("option {name} is {value:?}, no such choice, in {:?}", self.values)).1
    }

    /// The width of the residual stream.
    pub fn width(&self) -> u128 {
        u128::from(self.defaults.width())
    }
}

/// A whole number of at least 1.
pub(super) const fn size(name: &'static str, help: &'static str, default: fn(&OptionValues) -> u64) -> MixerOption {
    MixerOption { name, help, kind: OptionKind::Integer { least: 1, most: LARGEST, default } }
}

/// A whole number, 0 included.
pub(super) const fn count(name: &'static str, help: &'static str, default: fn(&OptionValues) -> u64) -> MixerOption {
    MixerOption { name, help, kind: OptionKind::Integer { least: 0, most: LARGEST, default } }
}

/// Yes or no.
pub(super) const fn flag(name: &'static str, help: &'static str, default: fn(&OptionValues) -> bool) -> MixerOption {
    MixerOption { name, help, kind: OptionKind::Flag { default } }
}

/// One of a few words.
pub(super) const fn choice(name: &'static str, help: &'static str, words: &'static [&'static str]) -> MixerOption {
    MixerOption { name, help, kind: OptionKind::Choice(words) }
}

/// Declares an enum that is an option, with the word of each variant.
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
    kind: OptionKind::Integer { least: 1, most: Defaults::MOST_BITS, default: |values| values.defaults.bits },
};

// Options that many mixers share.
pub(super) const QUERY_HEADS: MixerOption = size("heads", "query heads", |n| n.defaults.heads);
pub(super) const STATE_HEADS: MixerOption = size("heads", "heads, each with its own state", |n| n.defaults.heads);
pub(super) const KEY_HEADS: MixerOption = size("heads", "query and key heads", |n| n.defaults.heads);
pub(super) const VALUE_HEADS: MixerOption =
    size("value-heads", "value heads, each with its own state", |n| n.integer("heads"));
pub(super) const KV_HEADS: MixerOption = size("kv", "key/value heads", |n| n.defaults.kv_heads());
pub(super) const HEAD: MixerOption = size("head", "width of a head", |n| n.defaults.head_dim);
pub(super) const KEY: MixerOption = size("key", "width of a key head", |n| n.integer("head"));
pub(super) const VALUE: MixerOption = size("value", "width of a value head", |n| n.integer("head"));
pub(super) const NEGATIVE: MixerOption = flag("negative", "allow negative eigenvalues", |_| false);
pub(super) const SHORT_CONVOLUTION: MixerOption = count("conv", "taps of the short convolution, 0 for none", |_| 4);
/// RWKV's channel mixing shifts tokens too. It is no part of the mixer: stacks have it only if they say so.
pub(super) const CHANNEL_SHIFT: MixerOption =
    flag("channel", "whether RWKV's channel mixing, with a shift of its own, follows", |_| false);
