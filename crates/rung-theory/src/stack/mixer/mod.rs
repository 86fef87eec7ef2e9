//! The mixers, one per file: names, options, and the facts that everyone else reads.
//!
//! A mixer is known here by its sizes only: how many numbers cross from one token to the next, how many are kept
//! for every token, how wide a message it can send. That is all a bound needs, and it is what makes the theory
//! apply *by type*: a mixer either reads the whole prefix ([`MixerReach::Full`]) or sees it through a state of fixed
//! size ([`MixerReach::Bounded`]).
//!
//! What else the project needs to know of a mixer is declared in the same file: whether known weights carry bits through it,
//! whether it tracks parity, its sizes in benchmarks, what it was held against. Nothing outside asks for a mixer by name.
//!
//! Adding one: write a file with the page on top and a `KIND`, and add its name to the list in `registry!`.

mod facts;
mod family;
mod option;
#[cfg(test)]
mod tests;

use std::fmt;

use super::{Defaults, StackError};
use crate::page::{ExplainPage, Subject};
use crate::spec::{self, Spec, SpecValue};

pub use facts::{
    AttentionHeads, CacheLayout, CacheReach, Facts, Flops, Forwarding, KeyValueLayout, MessageSize, MixerReach,
    StateLayout, Summaries, TokenSelection, WeightPrecision,
};
pub use option::{LARGEST, MixerOption, OptionChoice, OptionKind, OptionValue, OptionValues};

use family::{
    attention, gated_delta, log_linear, mamba2_sizes, matrix_state, with_convolution, with_weights, without_weights,
};
use option::{
    BITS, CHANNEL_SHIFT, HEAD, KEY, KEY_HEADS, KV_HEADS, NEGATIVE, QUERY_HEADS, SHORT_CONVOLUTION, STATE_HEADS, VALUE,
    VALUE_HEADS, choice, choices, count, flag, size,
};

macro_rules! registry {
    ($($module:ident),* $(,)?) => {
        $(mod $module;)*
        /// Every mixer, in the order in which lists show them.
        pub static KINDS: &[&MixerKind] = &[$(&$module::KIND),*];
        const SOURCES: &[&str] = &[$(include_str!(concat!(stringify!($module), ".rs"))),*];
    };
}

registry! {
    full, mla, compositional, window, chunked, evicting,
    linear, retnet, lightning, gla, hgrn2, rwkv6, rwkv7, mamba1, mamba2, rglru,
    deltanet, gdn, kda, deltaproduct, loglinear_mamba2, loglinear_gdn, fastmax, inline, conv, gated,
    moba, nsa, dsa, compressed, none,
}

pub use evicting::EvictionPolicy;
pub use gdn::DEFAULT_RECURRENCE;
pub use linear::FeatureMap;
pub use moba::BlockSummary;

/// Options with their numbers, as a mixer's file gives them to others.
pub type OptionSizes = Vec<(&'static str, u64)>;

/// The name of a mixer, and its sizes.
pub type NamedSizes = (&'static str, OptionSizes);

/// A mixer as the registry knows it: what holds of it whatever its sizes.
#[derive(Debug)]
pub struct MixerKind {
    /// The name that is printed.
    pub name: &'static str,
    /// Other names that are read.
    pub aliases: &'static [&'static str],
    /// Its options.
    pub options: &'static [MixerOption],
    /// What holds of it at given sizes.
    pub facts: fn(&OptionValues) -> Facts,
    /// How large it must be to carry bits by known weights; none if no such weights are known.
    pub carry: Option<CarrySizes>,
    /// What shows that one layer keeps the parity of all bits so far; none if nothing here does.
    pub parity_shown_by: Option<&'static str>,
    /// Sizes other than the defaults in benchmarks.
    pub benchmark: fn(Benchmark) -> OptionSizes,
    /// Whether layers of this kind share weights or values with each other, so that none can be trained or replaced alone.
    pub shares_between_layers: bool,
    /// Mixer and sizes of the same layer if it kept and read every token; for mixers of attention that do not.
    pub unrestricted: Option<fn(&OptionValues) -> NamedSizes>,
    /// What its network was compared with, number for number.
    pub reference: Reference,
    /// Inference engines whose rules for recurrent state cover it, by the names that `rung plan` knows them by.
    pub engines: &'static [&'static str],
}

/// The smallest sizes at which known weights carry bits.
#[derive(Clone, Copy, Debug)]
pub struct CarrySizes {
    /// For so many bits.
    pub smallest: fn(u64) -> OptionSizes,
    /// The option that says how many slots a table in the state can have.
    pub slots: Option<&'static str>,
}

/// What a benchmark needs a mixer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    /// Sequences of so many tokens: windows, and what is selected, are a quarter of it, so that they matter.
    Length(u64),
    /// Growing lengths, this the shortest: blocks are as long as published models have them, and few.
    Growth(u64),
}

impl Benchmark {
    /// The shortest sequence.
    fn length(self) -> u64 {
        match self {
            Self::Length(length) | Self::Growth(length) => length,
        }
    }

    /// Tokens of a window, or tokens selected.
    fn quarter(self) -> u64 {
        (self.length() / 4).max(2)
    }

    /// Tokens of a block.
    fn block(self) -> u64 {
        (self.length() / 16).max(2)
    }
}

/// What a mixer's network was compared with, number for number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Nothing: there is no network, or it has no weights.
    None,
    /// A second implementation of our own, written from the definition.
    Definition,
    /// A second implementation of our own, written after this public code.
    After(&'static str),
    /// This class of this public library.
    Public {
        /// The library.
        library: &'static str,
        /// The class.
        class: &'static str,
    },
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("nothing"),
            Self::Definition => out.write_str("a second implementation from the definition"),
            Self::After(code) => write!(out, "a second implementation after {code}"),
            Self::Public { library, class } => write!(out, "{class} of {library}"),
        }
    }
}

impl MixerKind {
    /// A mixer of which nothing is known: files start from this and name what they have.
    const DEFAULT: Self = Self {
        name: "",
        aliases: &[],
        options: &[],
        facts: |_| Facts::EMPTY,
        carry: None,
        parity_shown_by: None,
        benchmark: |_| Vec::new(),
        shares_between_layers: false,
        unrestricted: None,
        reference: Reference::None,
        engines: &[],
    };

    /// Its text in a stack for a benchmark.
    pub fn benchmark_text(&self, benchmark: Benchmark) -> String {
        let options = (self.benchmark)(benchmark).into_iter();
        let options = options.map(|(option, number)| (option.to_owned(), SpecValue::Number(number))).collect();
        Spec { name: self.name.to_owned(), options, at: 0 }.to_string()
    }
}

/// A mixer with every number explicit.
#[derive(Clone)]
pub struct Mixer {
    kind: &'static MixerKind,
    values: OptionValues,
    facts: Facts,
    bits: u64,
}

impl PartialEq for Mixer {
    fn eq(&self, other: &Self) -> bool {
        self.kind.name == other.kind.name && self.values.values == other.values.values && self.bits == other.bits
    }
}

impl Eq for Mixer {}

impl fmt::Debug for Mixer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// Prints every option, so that the text means the same under any defaults of the same width.
impl fmt::Display for Mixer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec().fmt(out)
    }
}

impl Mixer {
    /// Resolves a spec such as `mamba2{heads=8}`.
    ///
    /// # Errors
    /// No mixer or option has that name, or a value is out of range.
    pub fn resolve(spec: &Spec, defaults: &Defaults) -> Result<Self, StackError> {
        let kind = find(&spec.name).ok_or_else(|| StackError::UnknownMixer {
            name: spec.name.clone(),
            nearest: spec::nearest(&spec.name, all_names()).map(str::to_owned),
        })?;
        let known = || kind.options.iter().chain([&BITS]).map(|option| option.name);
        if let Some((option, _)) = spec.options.iter().find(|(given, _)| known().all(|name| name != given)) {
            return Err(StackError::UnknownOption {
                mixer: kind.name,
                option: option.clone(),
                nearest: spec::nearest(option, known()).map(str::to_owned),
                known: known().collect::<Vec<_>>().join(", "),
            });
        }
        let mut values = OptionValues { defaults: *defaults, values: Vec::with_capacity(kind.options.len() + 1) };
        for option in kind.options.iter().chain([&BITS]) {
            let value = match spec.options.iter().find(|(given, _)| given == option.name) {
                Some((_, value)) => option.read(kind.name, value)?,
                None => option.default(&values),
            };
            values.values.push((option.name, value));
        }
        let (facts, bits) = ((kind.facts)(&values), values.integer(BITS.name));
        Ok(Self { kind, values, facts, bits })
    }

    /// Builds one in Rust, as the audit does: `Mixer::new("gdn", &[("heads", 16)], &defaults)`. A flag is 0 or 1.
    ///
    /// # Errors
    /// As [`Mixer::resolve`].
    pub fn new<V: Copy + Into<OptionValue>>(
        name: &str,
        options: &[(&str, V)],
        defaults: &Defaults,
    ) -> Result<Self, StackError> {
        let options = options.iter().map(|&(option, value)| (option.to_owned(), value.into().into())).collect();
        Self::resolve(&Spec { name: name.to_owned(), options, at: 0 }, defaults)
    }

    /// What the registry knows of mixers of this kind.
    pub fn kind(&self) -> &'static MixerKind {
        self.kind
    }

    /// The name that is printed.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// What holds of it at its sizes.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Its options.
    pub fn options(&self) -> &OptionValues {
        &self.values
    }

    /// Bits per number of its state and messages.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// The number of one of its options.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.values.find(name)? {
            OptionValue::Integer(number) => Some(number),
            OptionValue::Flag(_) | OptionValue::Word(_) => None,
        }
    }

    /// Bits of each accumulator, if it sums from left to right in `value + 1` accumulators a head.
    pub fn accumulator_bits(&self) -> Option<u64> {
        self.facts.accumulator_bits
    }

    /// Whether one of its options is `yes`; none if it has no such flag.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.values.find(name)? {
            OptionValue::Flag(flag) => Some(flag),
            OptionValue::Integer(_) | OptionValue::Word(_) => None,
        }
    }

    /// The same layer if it kept and read every token; none for mixers that are not attention, or that do so already.
    pub fn unrestricted(&self) -> Option<NamedSizes> {
        self.kind.unrestricted.map(|sizes| sizes(&self.values))
    }

    /// Bits of state that cross from one token to the next.
    pub fn state_bits(&self) -> u128 {
        self.facts.crossing() * u128::from(self.bits)
    }

    /// The spec that names it with every option.
    pub fn spec(&self) -> Spec {
        let options = self.values.values.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect();
        Spec { name: self.kind.name.to_owned(), options, at: 0 }
    }
}

/// The mixer of that name or alias.
pub fn find(name: &str) -> Option<&'static MixerKind> {
    KINDS.iter().copied().find(|kind| kind.name == name || kind.aliases.contains(&name))
}

/// Every name and alias.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().flat_map(|kind| std::iter::once(kind.name).chain(kind.aliases.iter().copied()))
}

/// The pages of all mixers.
pub fn pages() -> Vec<ExplainPage> {
    let page = |(kind, &source): (&&MixerKind, &&'static str)| ExplainPage {
        name: kind.name,
        subject: Subject::Mixer,
        source,
    };
    KINDS.iter().zip(SOURCES).map(page).collect()
}
