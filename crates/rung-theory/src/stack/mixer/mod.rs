//! The mixers, one per file: names, options, and the facts that other modules read.
//!
//! A mixer is described here by its sizes only: how many elements of state it passes from one token to the next, how many it caches
//! for every token, how wide its messages are. The bounds need nothing else. They distinguish two kinds: a mixer either reads the
//! whole prefix ([`MixerReach::Full`]) or sees it through a state of fixed size ([`MixerReach::Bounded`]).
//!
//! The same file declares all other facts about a mixer: whether known weights forward bits through it, whether it tracks parity,
//! its sizes in benchmarks, the implementation it was compared with. No other module refers to a mixer by name.
//!
//! To add one: write a file with the page on top and a `KIND`, and add its name to the list in `registry!`.

mod facts;
mod family;
mod option;
#[cfg(test)]
mod tests;

use std::fmt;

use super::plan::MessageSizeConvention;
use super::{Defaults, StackError};
use crate::page::{ExplainPage, Subject};
use crate::spec::{self, Spec, SpecValue};

pub use facts::{
    AttentionHeads, CacheLayout, CacheReach, Facts, Flops, Forwarding, KeyValueLayout, MessageSize, MixerReach,
    StateLayout, Summaries, TokenSelection, WeightPrecision,
};
pub use option::{MAX_SIZE, MixerOption, OptionChoice, OptionKind, OptionValue, OptionValues};

use family::{
    attention, delta_rule_state, gated_delta, log_linear, mamba2_facts, matrix_state, with_convolution, with_weights,
    without_weights,
};
use option::{
    BITS, CHANNEL_SHIFT, HEAD_DIM, KEY_HEAD_DIM, KEY_HEADS, KV_HEADS, NEGATIVE, QUERY_HEADS, SHORT_CONVOLUTION,
    STATE_HEADS, VALUE_HEAD_DIM, VALUE_HEADS, choice, choices, count, flag, size,
};

macro_rules! registry {
    ($($module:ident),* $(,)?) => {
        $(mod $module;)*
        /// Every mixer, in the order of lists.
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

/// log2 of the most bits of a mixer's state, message or cache entry: sums over the 2^20 mixers of the longest stack fit 128 bits, with a
/// factor of 256 to spare.
pub const MAX_LOG2_BITS: u32 = 100;

/// Option names with their values.
pub type OptionSizes = Vec<(&'static str, u64)>;

/// The name of a mixer, and its option values.
pub type NamedSizes = (&'static str, OptionSizes);

/// A kind of mixer: everything that does not depend on its sizes.
#[derive(Debug)]
pub struct MixerKind {
    /// The canonical name.
    pub name: &'static str,
    /// Other names that the parser accepts.
    pub aliases: &'static [&'static str],
    /// Its options, in the order in which they are printed.
    pub options: &'static [MixerOption],
    /// Its facts at given sizes.
    pub facts: fn(&OptionValues) -> Facts,
    /// The sizes at which known weights forward bits; none if no such weights are known.
    pub forwarding_sizes: Option<ForwardingSizes>,
    /// The evidence that one layer can track the parity of all bits so far; none if there is none.
    pub parity_evidence: Option<&'static str>,
    /// Options in benchmarks that differ from the defaults.
    pub benchmark: fn(Benchmark) -> OptionSizes,
    /// Whether it is attention that keeps and reads every token, so that it shows what full attention costs in its model.
    pub reads_every_token: bool,
    /// Whether its state has the last inputs of a convolution and nothing else.
    pub is_convolution: bool,
    /// Whether layers of this kind share weights or values, so that a single layer cannot be trained or replaced alone.
    pub shares_between_layers: bool,
    /// For attention that does not keep or read every token: the same layer if it did.
    pub full_attention_equivalent: Option<fn(&OptionValues) -> NamedSizes>,
    /// The implementation that its network was compared with, output by output.
    pub reference: Reference,
    /// Names, as in `rung plan`, of the inference engines that support its recurrent state.
    pub engines: &'static [&'static str],
}

/// The smallest sizes at which known weights forward bits.
#[derive(Clone, Copy, Debug)]
pub struct ForwardingSizes {
    /// The smallest options with which this many bits can be forwarded.
    pub options_for_bits: fn(u64) -> OptionSizes,
    /// The option that says how many rows a table in the state can have.
    pub table_rows_option: Option<&'static str>,
}

/// The sequence lengths of a benchmark, which determine a mixer's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    /// One length: windows and selections are a quarter of it, so that they have an effect.
    Length(u64),
    /// Increasing lengths, with the shortest: blocks are as long as in published models, and few are selected.
    Growth(u64),
}

impl Benchmark {
    /// The length of the shortest sequence.
    fn length(self) -> u64 {
        match self {
            Self::Length(length) | Self::Growth(length) => length,
        }
    }

    /// Tokens in a window or selection: a quarter of the length.
    fn window_tokens(self) -> u64 {
        (self.length() / 4).max(2)
    }

    /// Tokens in a block: a sixteenth of the length.
    fn block_tokens(self) -> u64 {
        (self.length() / 16).max(2)
    }
}

/// The implementation that a mixer's network was compared with, output by output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// None: there is no network, or it has no weights.
    None,
    /// Our second implementation, written from the definition.
    Definition,
    /// Our second implementation, written after this public code.
    Reimplementation(&'static str),
    /// This class of this public library.
    Public {
        /// The library's name.
        library: &'static str,
        /// The class in that library.
        class: &'static str,
    },
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("nothing"),
            Self::Definition => out.write_str("a second implementation from the definition"),
            Self::Reimplementation(code) => write!(out, "a second implementation after {code}"),
            Self::Public { library, class } => write!(out, "{class} of {library}"),
        }
    }
}

impl MixerKind {
    /// The default values of all fields, for the mixers' files.
    const DEFAULT: Self = Self {
        name: "",
        aliases: &[],
        options: &[],
        facts: |_| Facts::EMPTY,
        forwarding_sizes: None,
        parity_evidence: None,
        benchmark: |_| Vec::new(),
        reads_every_token: false,
        is_convolution: false,
        shares_between_layers: false,
        full_attention_equivalent: None,
        reference: Reference::None,
        engines: &[],
    };

    /// The mixer as stack text, with its options for a benchmark.
    pub fn benchmark_text(&self, benchmark: Benchmark) -> String {
        let options = (self.benchmark)(benchmark).into_iter();
        let options = options.map(|(option, number)| (option.to_owned(), SpecValue::Number(number))).collect();
        Spec { name: self.name.to_owned(), options, offset: 0 }.to_string()
    }
}

/// A mixer with every option resolved.
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

/// Prints every option, so that the text does not depend on the defaults, except on the width.
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
        if let Some((option, _)) = spec.options.iter().find(|(typed, _)| known().all(|name| name != typed)) {
            return Err(StackError::UnknownOption {
                mixer: kind.name,
                option: option.clone(),
                nearest: spec::nearest(option, known()).map(str::to_owned),
                known: known().collect::<Vec<_>>().join(", "),
            });
        }
        let mut values = OptionValues { defaults: *defaults, values: Vec::with_capacity(kind.options.len() + 1) };
        for option in kind.options.iter().chain([&BITS]) {
            let value = match spec.options.iter().find(|(typed, _)| typed == option.name) {
                Some((_, value)) => option.parse(kind.name, value)?,
                None => option.default(&values),
            };
            values.values.push((option.name, value));
        }
        let (facts, bits) = ((kind.facts)(&values), values.integer(BITS.name));
        let mixer = Self { kind, values, facts, bits };
        mixer.check_bits()?;
        Ok(mixer)
    }

    /// Rejects sizes with which a sum over the layers of a stack could overflow: a certificate about a sum that wrapped would be wrong.
    fn check_bits(&self) -> Result<(), StackError> {
        let message = match &self.facts.reach {
            MixerReach::Full(message) => [MessageSizeConvention::Paper, MessageSizeConvention::Online]
                .map(|convention| convention.message_elements(message)),
            MixerReach::Bounded => [Some(0); 2],
        };
        let quantities = [
            ("a state", self.facts.checked_state_size()),
            ("a convolution before the projections", Some(self.facts.input_conv_state)),
            ("a message", message[0]),
            ("a message", message[1]),
            ("a cache per token", Some(self.facts.cache_per_token)),
        ];
        let bits_per_number = u128::from(self.bits.max(self.accumulator_bits().unwrap_or_default()));
        for (quantity, elements) in quantities {
            let bits = elements.and_then(|elements| elements.checked_mul(bits_per_number));
            if bits.is_none_or(|bits| bits > 1 << MAX_LOG2_BITS) {
                let found = bits.map_or_else(|| "more than 2^128".to_owned(), |bits| bits.to_string());
                return Err(StackError::TooManyBits { mixer: self.to_string(), quantity, found });
            }
        }
        Ok(())
    }

    /// A mixer from a name and options: `Mixer::new("gdn", &[("heads", 16)], &defaults)`. A flag is 0 or 1.
    ///
    /// # Errors
    /// As [`Mixer::resolve`].
    pub fn new<V: Copy + Into<OptionValue>>(
        name: &str,
        options: &[(&str, V)],
        defaults: &Defaults,
    ) -> Result<Self, StackError> {
        let options = options.iter().map(|&(option, value)| (option.to_owned(), value.into().into())).collect();
        Self::resolve(&Spec { name: name.to_owned(), options, offset: 0 }, defaults)
    }

    /// The facts that do not depend on its sizes.
    pub fn kind(&self) -> &'static MixerKind {
        self.kind
    }

    /// The canonical name.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// The facts at its sizes.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Its resolved options.
    pub fn options(&self) -> &OptionValues {
        &self.values
    }

    /// Bits of each number in its state and messages.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// The value of an integer option; none if it has no such option.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.values.find(name)? {
            OptionValue::Integer(number) => Some(number),
            OptionValue::Flag(_) | OptionValue::Word(_) => None,
        }
    }

    /// Bits of each accumulator, if it sums from left to right in `value + 1` accumulators per head.
    pub fn accumulator_bits(&self) -> Option<u64> {
        self.facts.accumulator_bits
    }

    /// The value of a flag; none if it has no such flag.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.values.find(name)? {
            OptionValue::Flag(flag) => Some(flag),
            OptionValue::Integer(_) | OptionValue::Word(_) => None,
        }
    }

    /// The same layer if it kept and read every token; none for mixers that are not attention or already do.
    pub fn full_attention_equivalent(&self) -> Option<NamedSizes> {
        self.kind.full_attention_equivalent.map(|sizes| sizes(&self.values))
    }

    /// State bits that it passes from one token to the next.
    pub fn state_bits(&self) -> u128 {
        self.facts.state_size() * u128::from(self.bits)
    }

    /// The spec with every option.
    pub fn spec(&self) -> Spec {
        let options = self.values.values.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect();
        Spec { name: self.kind.name.to_owned(), options, offset: 0 }
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
