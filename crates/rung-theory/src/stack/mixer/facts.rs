//! What a mixer declares about itself at given sizes: state, cache, messages, cost, and what known weights do with it.
//!
//! A mixer's file computes these from its options; the bounds, the audit, the benchmarks and the reports read them and ask for
//! no mixer by name. Sizes are in numbers (elements), not bytes: a plan says how many bits a number has.

/// How far a mixer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixerReach {
    /// Any token of the prefix: a full-attention layer in the sense of the bounds.
    Full(MessageSize),
    /// Only what a state of fixed size carries from token to token.
    Bounded,
}

/// What a token can learn from a prefix in one full-attention layer, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Query heads, each with its own accumulator.
    pub heads: u128,
    /// Width of one head's accumulator.
    pub value: u128,
    /// A layer that picks some tokens or blocks and reads only those.
    pub selection: Option<TokenSelection>,
}

/// Sparse attention: a layer that picks tokens or blocks before it reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSelection {
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

/// Floating-point operations of a forward pass (a multiply and an add are two).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// For each token, whatever came before.
    pub per_token: u128,
    /// For each earlier token that is attended to.
    pub per_attended: u128,
    /// How many earlier tokens are attended to, at most; none for all of them.
    pub max_attended: Option<u128>,
}

/// A cache entry for every span of tokens, beside the entries of single tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summaries {
    /// Numbers of one entry.
    pub numbers: u128,
    /// Tokens in the span.
    pub length: u128,
    /// Tokens from the start of one span to the start of the next.
    pub stride: u128,
}

impl Summaries {
    /// How many entries there are after that many tokens.
    pub fn after(&self, tokens: u128) -> u128 {
        if tokens < self.length { 0 } else { (tokens - self.length) / self.stride + 1 }
    }
}

/// Heads of softmax attention with grouped keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionHeads {
    /// Query heads.
    pub query: u64,
    /// Key/value heads.
    pub kv: u64,
    /// Width of a key head.
    pub key: u64,
    /// Width of a value head.
    pub value: u64,
}

/// What an inference engine has to allocate for a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLayout {
    /// Keys and values of earlier tokens.
    KeyValues(KeyValueLayout),
    /// A state of fixed size for each sequence.
    State(StateLayout),
    /// Nothing.
    Nothing,
}

/// How far back a layer's keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CacheReach {
    /// Every token.
    All,
    /// The last so many tokens, the current one included.
    Window(u64),
    /// The tokens of the same chunk.
    Chunk(u64),
    /// One entry for every so many tokens, and a window of single tokens.
    Compressed {
        /// Tokens in an entry.
        ratio: u64,
        /// Tokens of the window.
        window: u64,
    },
}

/// Keys and values of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyValueLayout {
    /// How far back they are kept.
    pub reach: CacheReach,
    /// Key/value heads.
    pub heads: u64,
    /// Width of a key.
    pub key: u64,
    /// Width of a value; 0 where one vector serves as key and value.
    pub value: u64,
    /// One latent vector for all heads, which tensor parallelism does not divide.
    pub latent: bool,
    /// Elements of an index key per token (or per entry).
    pub index: u64,
}

impl KeyValueLayout {
    /// Heads on one of `devices` that share a layer by tensor parallelism.
    pub fn local_heads(&self, devices: u64) -> u64 {
        if self.latent { 1 } else { (self.heads / devices).max(1) }
    }
}

/// Fixed-size state of one layer and one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateLayout {
    /// Channels of the short convolution that tensor parallelism divides.
    pub channels: u64,
    /// Groups of heads that share input and output projections (Mamba-2).
    pub groups: u64,
    /// Convolved channels of one such group.
    pub group_channels: u64,
    /// Kernel size of the short convolution; 0 for none.
    pub kernel_size: u64,
    /// Elements of the recurrent state.
    pub recurrent: u64,
    /// Heads that the state is divided into.
    pub heads: u64,
    /// Elements of earlier inputs that are kept without a convolution (token shift).
    pub shift: u64,
}

/// Whether a bounded-state mixer forwards what a token wrote to all later tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Weights are known that do it at every position.
    Everywhere,
    /// At some positions only: whether the value arrives depends on where in the prompt its token stands.
    SomePositions,
    /// Only what the first so many tokens wrote; nothing that comes later is ever kept.
    FirstTokens(u128),
    /// Neither weights nor a proof that there are none.
    Unknown,
}

/// Bits per number that known weights need: so many, and some more for every doubling of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPrecision {
    /// Whatever the length of the prompt.
    pub least: u64,
    /// For every doubling of the prompt: 1 where the state counts tokens.
    pub per_doubling: u64,
}

impl WeightPrecision {
    /// Registers of -1, 0 and +1.
    pub const SIGNS: Self = Self { least: 2, per_doubling: 0 };

    /// Bits for prompts of fewer than 2^`log2_tokens` tokens.
    pub fn bits(self, log2_tokens: u64) -> u64 {
        self.per_doubling.saturating_mul(log2_tokens).saturating_add(self.least)
    }
}

/// Everything the theory, the audit and the reports read off a mixer of given sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Full or bounded.
    pub reach: MixerReach,
    /// Bits of each number that a message is summed in, from left to right; none for as many as its other numbers have.
    pub accumulator_bits: Option<u64>,
    /// Numbers of recurrent state.
    pub recurrent_state: u128,
    /// Numbers kept by short convolutions and token shifts.
    pub conv_state: u128,
    /// Numbers of a convolution's state that stands *before* this layer: in front of its projections.
    pub input_conv_state: u128,
    /// Numbers kept for each token of a window.
    pub window_per_token: u128,
    /// Tokens in that window, the current one included.
    pub window_tokens: u128,
    /// Numbers kept for every token of the prompt.
    pub cache_per_token: u128,
    /// What is kept for spans of tokens, for the whole prompt.
    pub summaries: Summaries,
    /// The same memory as an inference engine allocates it; none where no engine is known that does.
    pub layout: Option<CacheLayout>,
    /// Its heads, if it is softmax attention over grouped keys and values.
    pub attention: Option<AttentionHeads>,
    /// Weights of projections, gates and convolutions.
    pub parameters: u128,
    /// Weights of norms, biases and scalars per head, in published models; 0 where they were not counted.
    pub small_parameters: u128,
    /// Arithmetic.
    pub flops: Flops,
    /// Whether weights are known with which it looks up an entry by its address, anywhere in the prefix.
    pub looks_up: bool,
    /// Bits that known weights carry from any token to the next; 0 where no such weights are known.
    pub carried_bits: u128,
    /// Slots of a table that known weights keep in the state, each with as many bits as it carries; 0 for none.
    pub table_slots: u128,
    /// Bits per number that those weights need.
    pub precision: WeightPrecision,
    /// Which tokens' values arrive, where no weights are known that forward them everywhere.
    pub partial_forwarding: Forwarding,
    /// Reflections that a token can apply to the state: steps of a delta rule with negative eigenvalues. One tracks parity, two
    /// a token make a rotation.
    pub reflections: u64,
    /// Whether the state is a sum of one term for each token, whatever their order: nothing decays, and no term depends on others.
    pub additive_state: bool,
    /// Whether what is read is divided by a sum of weights that has no constant part, so that the scale of a query is lost.
    pub scale_invariant: bool,
    /// The sizes hold for contexts of at most 2^this tokens.
    pub log2_context: Option<u64>,
    /// Whether there is a network of these sizes: what no network has, no weights solve.
    pub has_network: bool,
}

impl Facts {
    /// A layer with nothing in it: files start from this and name what they have.
    pub(super) const EMPTY: Self = Self {
        reach: MixerReach::Bounded,
        accumulator_bits: None,
        recurrent_state: 0,
        conv_state: 0,
        input_conv_state: 0,
        window_per_token: 0,
        window_tokens: 0,
        cache_per_token: 0,
        summaries: Summaries { numbers: 0, length: 1, stride: 1 },
        layout: None,
        attention: None,
        parameters: 0,
        small_parameters: 0,
        flops: Flops { per_token: 0, per_attended: 0, max_attended: None },
        looks_up: false,
        carried_bits: 0,
        table_slots: 0,
        precision: WeightPrecision::SIGNS,
        partial_forwarding: Forwarding::Unknown,
        reflections: 0,
        additive_state: false,
        scale_invariant: false,
        log2_context: None,
        has_network: true,
    };

    /// Whether it forwards what a token wrote to all later tokens.
    pub fn forwarding(&self) -> Forwarding {
        if self.carried_bits > 0 { Forwarding::Everywhere } else { self.partial_forwarding }
    }

    /// How it picks what it reads, if it is sparse attention.
    pub fn selection(&self) -> Option<TokenSelection> {
        match self.reach {
            MixerReach::Full(message) => message.selection,
            MixerReach::Bounded => None,
        }
    }

    /// How it picks blocks, if it is attention to blocks of its choice.
    pub fn block_selection(&self) -> Option<TokenSelection> {
        self.selection().filter(|selection| selection.block > 1)
    }

    /// Numbers that cross from one token to the next. A window of W tokens hands on W-1 of them.
    pub fn crossing(&self) -> u128 {
        self.recurrent_state + self.conv_state + self.window_per_token * self.window_tokens.saturating_sub(1)
    }

    /// Numbers kept after that many tokens, once windows and caches of fixed size are full.
    pub fn kept(&self, tokens: u128) -> u128 {
        let cached = self.cache_per_token * tokens + self.summaries.numbers * self.summaries.after(tokens);
        self.crossing() + self.input_conv_state + cached - self.empty_entries(tokens)
    }

    /// Numbers of those levels that so many tokens do not fill, where a state grows with the logarithm of the prompt: a level
    /// for every binary digit of the last token's position and one more are filled.
    fn empty_entries(&self, tokens: u128) -> u128 {
        let Some(last) = self.log2_context.map(u128::from) else { return 0 };
        let reached = tokens.saturating_sub(1).checked_ilog2().map_or(0, |log| u128::from(log) + 1);
        last.saturating_sub(reached) * (self.recurrent_state / (last + 1))
    }

    /// Numbers by which a cache grows for every token: on average, rounded up.
    pub fn per_token(&self) -> u128 {
        self.cache_per_token + self.summaries.numbers.div_ceil(self.summaries.stride)
    }
}
