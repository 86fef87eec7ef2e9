//! The mixers, one per file: names, options, and the numbers that the theory needs.
//!
//! A mixer is known here by its sizes only: how many numbers cross from one token to the next, how many are kept
//! for every token, how wide a message it can send. That is all a bound needs, and it is what makes the theory
//! apply *by type*: a mixer either reads the whole prefix ([`Reach::Full`]) or sees it through a state of fixed
//! size ([`Reach::Bounded`]).
//!
//! Adding one: write a file with the page on top and a `KIND`, and add its name to the list in [`registry!`].
//!
//! Options are whole numbers (or a word out of a list). Each has a default, worked out from the stack's defaults
//! and from the options before it, so a plan always holds every number explicitly.

use std::fmt;

use super::{Defaults, StackError};
use crate::page::{Page, Subject};
use crate::spec::{self, Call, Value};

/// No size in a stack may exceed this: products of four of them, times layers and bits, still fit 128 bits.
pub const LARGEST: u64 = 1 << 24;

macro_rules! registry {
    ($($module:ident),* $(,)?) => {
        $(mod $module;)*
        /// Every mixer, in the order in which lists show them.
        pub static KINDS: &[&MixerKind] = &[$(&$module::KIND),*];
        const SOURCES: &[&str] = &[$(include_str!(concat!(stringify!($module), ".rs"))),*];
    };
}

registry! {
    full, mla, compositional, window, chunked, fake,
    linear, retnet, lightning, gla, hgrn2, rwkv6, rwkv7, mamba1, mamba2, rglru,
    deltanet, gdn, kda, deltaproduct, loglinear_mamba2, loglinear_gdn, fastmax, inline, conv, gated,
    moba, nsa, dsa, compressed, none,
}

/// How far a mixer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Any token of the prefix: a full-attention layer in the sense of the bounds.
    Full(Message),
    /// Only what a state of fixed size carries from token to token.
    Bounded,
}

/// What a token can learn from a prefix in one full-attention layer, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Query heads, each with its own accumulator.
    pub heads: u128,
    /// Width of one head's accumulator.
    pub value: u128,
    /// A layer that picks some tokens or blocks and reads only those.
    pub selection: Option<Selection>,
}

/// A layer that picks before it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Groups of heads that pick separately.
    pub groups: u128,
    /// Tokens or blocks picked by each group.
    pub picked: u128,
    /// Tokens in a block; 1 for a choice of single tokens.
    pub block: u128,
    /// Numbers kept for each token that a group reads.
    pub cached: u128,
    /// Whether the summaries are also attended to (a compressed branch).
    pub compressed: bool,
    /// Numbers in one block's summary, all heads: what the block-sparse bound counts.
    pub summary: u128,
}

/// Work in floating-point operations (a multiply and an add are two).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// For each token, whatever came before.
    pub token: u128,
    /// For each earlier token that is looked at.
    pub seen: u128,
    /// How many earlier tokens are looked at, at most; none for all of them.
    pub limit: Option<u128>,
}

/// What is kept of stretches of tokens beside the tokens themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summaries {
    /// Numbers of one.
    pub numbers: u128,
    /// Tokens in it.
    pub length: u128,
    /// Tokens from the start of one to the start of the next.
    pub stride: u128,
}

impl Summaries {
    /// How many there are after that many tokens.
    pub fn after(&self, tokens: u128) -> u128 {
        if tokens < self.length { 0 } else { (tokens - self.length) / self.stride + 1 }
    }
}

/// Everything the theory, the audit and the reports read off a mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Full or bounded.
    pub reach: Reach,
    /// Numbers of recurrent state.
    pub state: u128,
    /// Numbers kept by short convolutions and token shifts.
    pub tail: u128,
    /// Numbers kept for each token of a window.
    pub window: u128,
    /// Tokens in that window, the current one included.
    pub window_tokens: u128,
    /// Numbers kept for every token, for ever.
    pub growing: u128,
    /// Numbers kept for every so many tokens, for ever.
    pub summaries: Summaries,
    /// Numbers of state that stand *before* this layer: a convolution in front of the projections.
    pub front: u128,
    /// Weights.
    pub parameters: u128,
    /// Arithmetic.
    pub work: Work,
    /// Bits that known weights hand from any token to the next; 0 where no such weights are known.
    pub carries: u128,
    /// Slots of a table that known weights keep in the state, each with as many bits as it carries; 0 for none.
    pub slots: u128,
    /// Bits per number that those weights need.
    pub precision: Precision,
    /// Which later tokens what one token wrote can reach, where no weights are known that hand it on everywhere.
    pub arrival: Arrival,
    /// The sizes hold for contexts of at most 2^this tokens.
    pub log2_context: Option<u64>,
    /// Whether there is a network of these sizes: what no network has, no weights solve.
    pub network: bool,
}

/// Bits per number that known weights need: so many, and some more for every doubling of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Whatever the length of the prompt.
    pub least: u64,
    /// For every doubling of the prompt: 1 where the state counts tokens.
    pub per_doubling: u64,
}

impl Precision {
    /// Registers of -1, 0 and +1.
    pub const SIGNS: Self = Self { least: 2, per_doubling: 0 };

    /// Bits for prompts of fewer than 2^`log2_tokens` tokens.
    pub fn bits(self, log2_tokens: u64) -> u64 {
        self.per_doubling.saturating_mul(log2_tokens).saturating_add(self.least)
    }
}

/// Whether a bounded-state mixer hands what a token wrote to the next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// No weights are known that do it, and no proof that there are none.
    Unknown,
    /// At some positions only: whether the value arrives depends on where in the prompt its token stands.
    SomePositions,
    /// Only what the first so many tokens wrote: nothing that comes later is ever kept.
    FirstTokens(u128),
}

/// What is known of a mixer that should hand the start value to the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandsOn {
    /// Weights are known that do it at every position.
    Provably,
    /// It does at some positions and not at others.
    SomePositions,
    /// It provably does not, once this many tokens came before.
    NeverAfter(u128),
    /// Neither weights nor a proof.
    Unknown,
}

impl Facts {
    /// A layer with nothing in it: files start from this and name what they have.
    const NOTHING: Self = Self {
        reach: Reach::Bounded,
        state: 0,
        tail: 0,
        window: 0,
        window_tokens: 0,
        growing: 0,
        summaries: Summaries { numbers: 0, length: 1, stride: 1 },
        front: 0,
        parameters: 0,
        work: Work { token: 0, seen: 0, limit: None },
        carries: 0,
        slots: 0,
        precision: Precision::SIGNS,
        arrival: Arrival::Unknown,
        log2_context: None,
        network: true,
    };

    /// Whether it hands what a token wrote to the next token.
    pub fn hands_on(&self) -> HandsOn {
        match self.arrival {
            _ if self.carries > 0 => HandsOn::Provably,
            Arrival::Unknown => HandsOn::Unknown,
            Arrival::SomePositions => HandsOn::SomePositions,
            Arrival::FirstTokens(tokens) => HandsOn::NeverAfter(tokens),
        }
    }

    /// Numbers that cross from one token to the next. A window of W tokens hands on W-1 of them.
    pub fn crossing(&self) -> u128 {
        self.state + self.tail + self.window * self.window_tokens.saturating_sub(1)
    }

    /// Numbers kept after that many tokens, once windows and caches of fixed size are full.
    pub fn kept(&self, tokens: u128) -> u128 {
        let cached = self.growing * tokens + self.summaries.numbers * self.summaries.after(tokens);
        self.crossing() + self.front + cached - self.unreached(tokens)
    }

    /// Numbers of those levels that so many tokens do not fill, where a state grows with the logarithm of the text: a level
    /// for every binary digit of the last token's position and one more are filled.
    fn unreached(&self, tokens: u128) -> u128 {
        let Some(last) = self.log2_context.map(u128::from) else { return 0 };
        let reached = tokens.saturating_sub(1).checked_ilog2().map_or(0, |log| u128::from(log) + 1);
        last.saturating_sub(reached) * (self.state / (last + 1))
    }

    /// Numbers by which a cache grows for every token: on average, rounded up.
    pub fn per_token(&self) -> u128 {
        self.growing + self.summaries.numbers.div_ceil(self.summaries.stride)
    }
}

/// One option of a mixer.
#[derive(Debug)]
pub struct Field {
    /// What users type.
    pub name: &'static str,
    /// One line for `rung explain`.
    pub help: &'static str,
    /// The words it takes, if it takes words; their index is the number kept.
    pub choices: &'static [&'static str],
    /// The smallest number allowed.
    pub least: u64,
    /// The largest number allowed.
    pub most: u64,
    /// Its value when not given, from the stack's defaults and the options before it.
    pub default: fn(&Numbers) -> u64,
}

const fn size(name: &'static str, help: &'static str, default: fn(&Numbers) -> u64) -> Field {
    Field { name, help, choices: &[], least: 1, most: LARGEST, default }
}

const fn count(name: &'static str, help: &'static str, default: fn(&Numbers) -> u64) -> Field {
    Field { name, help, choices: &[], least: 0, most: LARGEST, default }
}

const fn choice(name: &'static str, help: &'static str, choices: &'static [&'static str]) -> Field {
    Field { name, help, choices, least: 0, most: LARGEST, default: |_| 0 }
}

/// Bits per number, an option of every mixer.
const BITS: Field = Field { most: Defaults::MOST_BITS, ..size("bits", "bits per number", |_| 0) };

// Options that many mixers share.
const QUERY_HEADS: Field = size("heads", "query heads", |n| n.defaults.heads);
const STATE_HEADS: Field = size("heads", "heads, each with its own state", |n| n.defaults.heads);
const KEY_HEADS: Field = size("heads", "query and key heads", |n| n.defaults.heads);
const VALUE_HEADS: Field = size("value-heads", "value heads, each with its own state", |n| n.get("heads"));
const KV_HEADS: Field = size("kv", "key/value heads", |n| n.defaults.kv_heads());
const HEAD: Field = size("head", "width of a head", |n| n.defaults.head_dim);
const KEY: Field = size("key", "width of a key head", |n| n.get("head"));
const VALUE: Field = size("value", "width of a value head", |n| n.get("head"));
/// RWKV's channel mixing shifts tokens too. It is no part of the mixer: stacks have it only if they say so.
const CHANNEL_SHIFT: Field =
    choice("channel", "whether RWKV's channel mixing, with a shift of its own, follows", NO_YES);
const SHORT_CONVOLUTION: Field = count("conv", "taps of the short convolution, 0 for none", |_| 4);

const NO_YES: &[&str] = &["no", "yes"];
const YES_NO: &[&str] = &["yes", "no"];

/// A mixer as the registry knows it.
#[derive(Debug)]
pub struct MixerKind {
    /// The name that is printed.
    pub name: &'static str,
    /// Other names that are read.
    pub aliases: &'static [&'static str],
    /// Its options.
    pub fields: &'static [Field],
    /// Its sizes.
    pub facts: fn(&Numbers) -> Facts,
}

/// The resolved numbers of one mixer, with the stack's defaults at hand.
#[derive(Clone, Debug)]
pub struct Numbers {
    defaults: Defaults,
    values: Vec<(&'static str, u64)>,
}

impl Numbers {
    /// The number of an option of this mixer.
    ///
    /// # Panics
    /// If the mixer has no such option: a mistake in its file, met by the test that resolves every mixer.
    pub fn get(&self, name: &str) -> u64 {
        let found = self.values.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no option {name} in {:?}", self.values)).1
    }

    /// The same, wide enough to multiply.
    fn wide(&self, name: &str) -> u128 {
        u128::from(self.get(name))
    }

    /// The width of the residual stream.
    fn width(&self) -> u128 {
        u128::from(self.defaults.width())
    }
}

/// A mixer with every number explicit.
#[derive(Clone)]
pub struct Mixer {
    kind: &'static MixerKind,
    numbers: Numbers,
    facts: Facts,
    bits: u64,
}

impl PartialEq for Mixer {
    fn eq(&self, other: &Self) -> bool {
        self.kind.name == other.kind.name && self.numbers.values == other.numbers.values && self.bits == other.bits
    }
}

impl Eq for Mixer {}

impl fmt::Debug for Mixer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// Prints every number, so that the text means the same under any defaults of the same width.
impl fmt::Display for Mixer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call().fmt(out)
    }
}

impl Mixer {
    /// Resolves a call such as `mamba2{heads=8}`.
    ///
    /// # Errors
    /// No mixer or option has that name, or a number is out of range.
    pub fn resolve(call: &Call, defaults: &Defaults) -> Result<Self, StackError> {
        let kind = find(&call.name).ok_or_else(|| StackError::UnknownMixer {
            name: call.name.clone(),
            nearest: spec::nearest(&call.name, all_names()).map(str::to_owned),
        })?;
        let unknown = call.options.iter().find(|(key, _)| key != "bits" && !kind.fields.iter().any(|f| f.name == key));
        if let Some((option, _)) = unknown {
            let known: Vec<&str> = kind.fields.iter().map(|field| field.name).chain(["bits"]).collect();
            return Err(StackError::UnknownOption {
                mixer: kind.name,
                option: option.clone(),
                nearest: spec::nearest(option, known.iter().copied()).map(str::to_owned),
                known: known.join(", "),
            });
        }
        let given = |name: &str| call.options.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let mut numbers = Numbers { defaults: *defaults, values: Vec::with_capacity(kind.fields.len()) };
        for field in kind.fields {
            let number = match given(field.name) {
                Some(value) => read(kind.name, field, value)?,
                None => (field.default)(&numbers).clamp(field.least, field.most),
            };
            numbers.values.push((field.name, number));
        }
        let bits = match given("bits") {
            Some(value) => read(kind.name, &BITS, value)?,
            None => defaults.bits,
        };
        let facts = (kind.facts)(&numbers);
        Ok(Self { kind, numbers, facts, bits })
    }

    /// Builds one in Rust, as the audit does: `Mixer::new("gdn", &[("heads", 16)], &defaults)`.
    ///
    /// # Errors
    /// As [`Mixer::resolve`].
    pub fn new(name: &str, numbers: &[(&str, u64)], defaults: &Defaults) -> Result<Self, StackError> {
        let options = numbers.iter().map(|&(key, number)| (key.to_owned(), Value::Number(number))).collect();
        Self::resolve(&Call { name: name.to_owned(), options, at: 0 }, defaults)
    }

    /// The name that is printed.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Its sizes.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Bits per number of its state and messages.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// The number of one of its options.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers.values.iter().find(|(known, _)| *known == name).map(|&(_, number)| number)
    }

    /// Bits of each accumulator, if it sums from left to right in `value + 1` accumulators a head.
    pub fn accumulator_bits(&self) -> Option<u64> {
        self.number("accumulator").filter(|bits| *bits > 0)
    }

    /// Whether weights are known with which it looks up an entry by its address, anywhere in the prefix. None are known for sums in
    /// accumulators of a given number of bits.
    pub fn looks_up(&self) -> bool {
        self.kind.name == full::KIND.name && self.accumulator_bits().is_none()
    }

    /// Bits of state that cross from one token to the next.
    pub fn state_bits(&self) -> u128 {
        self.facts.crossing() * u128::from(self.bits)
    }

    /// The call that names it with every number.
    pub fn call(&self) -> Call {
        let words = |field: &Field, number: u64| match field.choices.get(number as usize) {
            Some(word) => Value::Word((*word).to_owned()),
            None => Value::Number(number),
        };
        let fields = self.kind.fields.iter().zip(&self.numbers.values);
        let mut options: Vec<_> = fields.map(|(f, &(name, number))| (name.to_owned(), words(f, number))).collect();
        options.push(("bits".to_owned(), Value::Number(self.bits)));
        Call { name: self.kind.name.to_owned(), options, at: 0 }
    }
}

fn read(mixer: &'static str, field: &Field, value: &Value) -> Result<u64, StackError> {
    let (least, most, choices) = (field.least, field.most, field.choices);
    match value {
        Value::Word(word) if choices.contains(&word.as_str()) => {
            Ok(choices.iter().position(|known| known == word).unwrap_or_default() as u64)
        }
        // A plan made in Rust gives the index of a word.
        Value::Number(number) if !choices.is_empty() && *number < choices.len() as u64 => Ok(*number),
        Value::Number(number) if choices.is_empty() && (least..=most).contains(number) => Ok(*number),
        _ => Err(StackError::BadOption {
            mixer,
            option: field.name,
            found: value.to_string(),
            expected: if choices.is_empty() {
                format!("a whole number from {least} to {most}")
            } else {
                format!("one of {}", choices.join(", "))
            },
        }),
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
pub fn pages() -> Vec<Page> {
    let page =
        |(kind, &source): (&&MixerKind, &&'static str)| Page { name: kind.name, subject: Subject::Mixer, source };
    KINDS.iter().zip(SOURCES).map(page).collect()
}

/// The sizes of a recurrence `S = A S + k v^T` with `heads` states of `key` by `value`.
///
/// Its projections (query, key, value, output) and its state update are shared by the whole family; `erase` adds
/// the second product of a delta rule.
fn matrix_state(heads: u128, key: u128, value: u128, width: u128, erase: bool) -> Facts {
    let state = heads * key * value;
    let parameters = width * heads * (2 * key + 2 * value);
    let touched = if erase { 7 } else { 5 };
    Facts {
        state,
        parameters,
        work: Work { token: 2 * parameters + touched * state, ..Work::default() },
        ..Facts::NOTHING
    }
}

/// Adds a short depthwise convolution over `channels` to what a layer has.
fn with_convolution(facts: &Facts, channels: u128, taps: u128) -> Facts {
    let weights = channels * taps;
    Facts {
        tail: facts.tail + channels * taps.saturating_sub(1),
        parameters: facts.parameters + weights,
        work: Work { token: facts.work.token + 2 * weights, ..facts.work },
        ..*facts
    }
}

/// Adds projections or gates with that many weights.
fn with_weights(facts: &Facts, weights: u128) -> Facts {
    Facts {
        parameters: facts.parameters + weights,
        work: Work { token: facts.work.token + 2 * weights, ..facts.work },
        ..*facts
    }
}

/// Takes projections or gates with that many weights away again.
fn without_weights(facts: &Facts, weights: u128) -> Facts {
    Facts {
        parameters: facts.parameters - weights,
        work: Work { token: facts.work.token - 2 * weights, ..facts.work },
        ..*facts
    }
}

/// The sizes of softmax attention over key/value heads, before it is said how far it sees.
fn attention(n: &Numbers) -> Facts {
    let (heads, kv, key, value) = (n.wide("heads"), n.wide("kv"), n.wide("key"), n.wide("value"));
    let parameters = n.width() * (heads * (key + value) + kv * (key + value));
    let work = Work { token: 2 * parameters, seen: 2 * heads * (key + value), limit: None };
    Facts { parameters, work, network: heads.is_multiple_of(kv), ..Facts::NOTHING }
}

/// The sizes of Mamba-2, which its log-linear form shares.
fn mamba2_facts(n: &Numbers) -> Facts {
    let (heads, head, state, groups) = (n.wide("heads"), n.wide("head"), n.wide("state"), n.wide("groups"));
    let (inner, shared) = (heads * head, 2 * groups * state);
    let parameters = n.width() * (2 * inner + shared + heads) + inner * n.width();
    let core = Facts {
        state: inner * state,
        parameters,
        work: Work { token: 2 * parameters + 5 * inner * state, ..Work::default() },
        // Through SiLU a bit goes as a pair of channels.
        carries: heads * (head / 2),
        slots: state,
        network: heads.is_multiple_of(groups),
        ..Facts::NOTHING
    };
    with_convolution(&core, inner + shared, n.wide("conv"))
}

/// The sizes of Gated DeltaNet and its kin, with `steps` delta steps per token.
fn gated_delta_facts(n: &Numbers, steps: u128) -> Facts {
    let (heads, value_heads) = (n.wide("heads"), n.wide("value-heads"));
    let (key, value, width) = (n.wide("key"), n.wide("value"), n.width());
    let (keys, values) = (heads * key, value_heads * value);
    let state = value_heads * key * value;
    // Query, per-step key and value, output and its gate, then the decay and per-step rate of each value head.
    let parameters = width * (keys + steps * (keys + values) + 2 * values + (1 + steps) * value_heads);
    let core = Facts {
        state,
        parameters,
        work: Work { token: 2 * parameters + (3 + 4 * steps) * state, ..Work::default() },
        carries: value_heads * (value / 2),
        slots: key,
        network: value_heads.is_multiple_of(heads),
        ..Facts::NOTHING
    };
    with_convolution(&core, keys + steps * (keys + values), n.wide("conv"))
}

/// A state for every level of the hierarchy, and for each of its `heads` a weight per level.
fn log_linear(core: &Facts, heads: &str, n: &Numbers) -> Facts {
    let levels = n.wide("levels");
    let core = with_weights(core, n.width() * n.wide(heads) * levels);
    let work = Work { token: core.work.token + 2 * levels * core.state, ..core.work };
    Facts { state: levels * core.state, work, log2_context: Some(n.get("levels") - 1), ..core }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, defaults: &Defaults) -> Result<Mixer, StackError> {
        Mixer::resolve(&spec::parse_call(text).unwrap(), defaults)
    }

    #[test]
    fn every_mixer_resolves_prints_and_reads_back_under_odd_defaults() {
        for defaults in [Defaults::default(), Defaults { heads: 1, head_dim: 1, bits: 1, ..Defaults::default() }] {
            for name in all_names() {
                let mixer = parse(name, &defaults).unwrap();
                assert_eq!(parse(&mixer.to_string(), &defaults).unwrap(), mixer);
            }
        }
    }

    #[test]
    fn names_are_unique_and_every_page_has_its_headings() {
        let names: Vec<_> = all_names().collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len());
        for page in pages() {
            for heading in ["# Recurrence", "# Parallel form", "# State", "# Reduces to", "# Held against", "# Source"]
            {
                assert!(page.text().contains(heading), "{} lacks {heading}", page.name);
            }
        }
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        let defaults = Defaults { heads: LARGEST, head_dim: 1, bits: 64, ..Defaults::default() };
        for kind in KINDS {
            let all: Vec<(&str, u64)> =
                kind.fields.iter().filter(|f| f.choices.is_empty()).map(|f| (f.name, f.most)).collect();
            let mixer = Mixer::new(kind.name, &all, &defaults).unwrap();
            assert!(mixer.state_bits() < u128::MAX >> 1);
        }
    }

    #[test]
    fn state_sizes_match_the_published_defaults_at_width_2048() {
        let wide = |heads| Defaults { heads, head_dim: 2048 / heads, ..Defaults::default() };
        for (text, heads, state, tail) in [
            ("retnet{heads=8,key=256,value=512}", 8, 1_048_576, 0),
            ("gla{heads=4}", 4, 524_288, 0),
            ("hgrn2{expand=128}", 16, 262_144, 0),
            ("rwkv6{head=64}", 32, 131_072, 2_048),
            ("rwkv6{head=64,channel=yes}", 32, 131_072, 4_096),
            ("rwkv7{head=64}", 32, 131_072, 2_048),
            ("rwkv7{head=64,channel=yes}", 32, 131_072, 4_096),
            ("mamba1", 16, 65_536, 12_288),
            ("mamba2", 16, 524_288, 13_056),
            ("deltanet{heads=4,key=512,value=512}", 4, 1_048_576, 18_432),
            ("gdn{heads=6,key=256,value=512}", 6, 786_432, 18_432),
            ("kda{heads=16,key=128,value=128}", 16, 262_144, 18_432),
            ("linear{heads=1,key=4,value=4}", 1, 20, 0),
            ("fastmax{order=2,heads=1,key=3,value=5}", 1, (1 + 3 + 9) * 6, 0),
            ("inline{heads=2,key=3,value=5,local=3}", 2, 2 * (15 + 3 + 5), 2 * 2 * 5),
            ("gated{channels=24}", 2, 24, 0),
        ] {
            let mixer = parse(text, &wide(heads)).unwrap();
            assert_eq!((mixer.facts().state, mixer.facts().tail), (state, tail), "{text}");
        }
    }

    #[test]
    fn a_log_linear_state_has_the_levels_that_the_text_has_reached() {
        let mixer = parse("loglinear-gdn{heads=1,key=3,value=5,conv=0,levels=15}", &Defaults::default()).unwrap();
        for (tokens, levels) in [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (16_384, 15), (1 << 40, 15)] {
            assert_eq!(mixer.facts().kept(tokens), levels * 15, "{tokens} tokens");
        }
        assert_eq!(mixer.facts().crossing(), 15 * 15);
        let plain = parse("gdn", &Defaults::default()).unwrap();
        assert_eq!(plain.facts().kept(9), plain.facts().crossing());
    }

    /// Compressed attention has no network: its buffers are kept here token by token, as its page describes them.
    #[test]
    fn buffers_of_compressed_attention_hold_what_is_counted() {
        for ratio in 1..7_u64 {
            for (overlap, index) in [(0, 0), (1, 0), (0, 3), (1, 5)] {
                let options =
                    [("head", 8), ("ratio", ratio), ("index-head", index), ("window", 0), ("overlap", overlap)];
                let mixer = Mixer::new("compressed", &options, &Defaults::default()).unwrap();
                let vectors = u128::from(2 * (8 + index));
                let (mut waiting, mut overlapping, mut most) = (0, 0, 0);
                for _ in 0..40 {
                    waiting += 1;
                    if waiting == ratio {
                        // An entry is made. Half of what its tokens brought is pooled again with the next ones.
                        (waiting, overlapping) = (0, overlap * ratio);
                    }
                    let numbers = u128::from(waiting * (1 + overlap) + overlapping) * vectors;
                    most = most.max(numbers);
                }
                assert_eq!(mixer.facts().crossing(), most, "{mixer}");
            }
        }
    }

    #[test]
    fn a_chunk_hands_on_all_but_its_last_token() {
        let mixer = parse("chunked{size=5,kv=2,key=3,value=4,bits=8}", &Defaults::default()).unwrap();
        let kept = |token: u128| if token % 5 == 4 { 0 } else { token % 5 + 1 };
        assert_eq!(mixer.facts().crossing(), (0..40).map(kept).max().unwrap_or_default() * 2 * 7);
    }

    #[test]
    fn a_window_hands_on_all_but_the_current_token() {
        let mixer = parse("window{size=128,kv=8,key=64,value=64,bits=16}", &Defaults::default()).unwrap();
        assert_eq!(mixer.state_bits(), 127 * 2 * 8 * 64 * 16);
    }

    #[test]
    fn accumulators_are_the_whole_message() {
        use crate::stack::Convention;
        let sizes = Defaults { heads: 2, head_dim: 8, bits: 32, ..Defaults::default() };
        let plan = |text: &str| crate::stack::Plan::parse(text, &sizes).unwrap();
        for convention in [Convention::Paper, Convention::Register, Convention::Online] {
            assert_eq!(plan("full{accumulator=5}").message_bits(convention), 2 * 9 * 5);
            assert_eq!(plan("full{accumulator=5}").message_formula(convention), "H*(d+1)*p");
        }
        assert_eq!(plan("full").message_bits(Convention::Paper), 2 * 2 * 8 * 32);
        assert!(parse("full{accumulator=33}", &sizes).is_err());
        assert!(parse("full", &sizes).unwrap().looks_up() && !parse("full{accumulator=5}", &sizes).unwrap().looks_up());
    }

    #[test]
    fn a_gated_recurrence_has_channels_times_bits() {
        let mixer = parse("gated{bits=2}", &Defaults::default()).unwrap();
        assert_eq!(mixer.state_bits(), 16);
        assert_eq!(parse("gated{channels=24,bits=2}", &Defaults::default()).unwrap().state_bits(), 48);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text| parse(text, &Defaults::default()).unwrap_err().to_string();
        assert!(error("lineer").contains("did you mean `linear`"));
        assert!(error("full{head=0}").contains("option"));
        assert!(error("full{heads=0}").contains("found 0, expected a whole number from 1"));
        assert!(error("full{heads=99999999999}").contains("found 99999999999"));
        assert!(error("linear{map=cube}").contains("one of elu"));
    }
}
