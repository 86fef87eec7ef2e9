//! The facts of a mixer at given sizes: state, cache, messages, cost, and what known weights can do with it.
//!
//! A mixer's file computes these from its options; the bounds, the audit, the benchmarks and the reports read them.
//! Sizes are counts of elements, not bytes: a plan says how many bits an element has.

/// Which earlier tokens a mixer can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixerReach {
    /// Any token of the prefix: a full-attention layer in the sense of the bounds.
    Full(MessageSize),
    /// None directly: only a state of fixed size is passed from token to token.
    Bounded,
}

/// The size of a message: the information about a prefix that a token receives in one full-attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Query heads, each with its own accumulator.
    pub heads: u128,
    /// Width of one head's accumulator.
    pub value_head_dim: u128,
    /// Which tokens or blocks of tokens the layer selects; none if it reads all of them.
    pub selection: Option<TokenSelection>,
}

/// Sparse attention: how a layer selects the tokens or blocks of tokens that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSelection {
    /// Groups of heads that select separately.
    pub groups: u128,
    /// Tokens or blocks of tokens that each group selects.
    pub selected_count: u128,
    /// Tokens in a block; 1 if single tokens are selected.
    pub block: u128,
    /// Cached elements of each token that a group reads.
    pub cached_elements_per_token: u128,
    /// Whether the summaries are also attended to (a compressed branch).
    pub compressed: bool,
    /// Elements of one block's summary, over all heads; the block-sparse bound counts these.
    pub summary_elements: u128,
}

/// Floating-point operations of a forward pass (a multiply and an add are two).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// For each token, independent of the prefix.
    pub per_token: u128,
    /// For each earlier token that is attended to.
    pub per_attended: u128,
    /// How many earlier tokens a token of a long prompt attends to: a window or a selection, or the mean over the tokens of a chunk; none
    /// if this increases with the prompt.
    pub max_attended: Option<u128>,
}

/// Cache entries for spans of tokens, in addition to the entries of single tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summaries {
    /// Elements of one entry.
    pub entry_size: u128,
    /// Tokens in the span.
    pub length: u128,
    /// Tokens from the start of one span to the start of the next.
    pub stride: u128,
}

impl Summaries {
    /// The number of entries after that many tokens.
    pub fn count_after(&self, tokens: u128) -> u128 {
        if tokens < self.length { 0 } else { (tokens - self.length) / self.stride + 1 }
    }
}

/// Heads of softmax attention with grouped keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionHeads {
    /// Query heads.
    pub query_heads: u64,
    /// Key/value heads.
    pub kv_heads: u64,
    /// Width of a key head.
    pub key_head_dim: u64,
    /// Width of a value head.
    pub value_head_dim: u64,
}

/// The memory that an inference engine allocates for a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLayout {
    /// Keys and values of earlier tokens.
    KeyValues(KeyValueLayout),
    /// A state of fixed size for each sequence.
    State(StateLayout),
    /// No memory.
    Nothing,
}

/// Which tokens' keys and values a layer caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CacheReach {
    /// Every token.
    All,
    /// This many last tokens, the current one included.
    Window(u64),
    /// The tokens of the same chunk, with the chunk's length.
    Chunk(u64),
    /// One entry for every `ratio` tokens, and a window of single tokens.
    Compressed {
        /// Tokens in an entry.
        ratio: u64,
        /// Tokens of the window.
        window: u64,
    },
}

/// The key/value cache of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyValueLayout {
    /// Which tokens are cached.
    pub reach: CacheReach,
    /// Key/value heads.
    pub kv_heads: u64,
    /// Width of a key.
    pub key_head_dim: u64,
    /// Width of a value; 0 where one vector serves as key and value.
    pub value_head_dim: u64,
    /// One latent vector for all heads, which tensor parallelism does not divide.
    pub latent: bool,
    /// Elements of an index key per token (or per entry); 0 without an indexer.
    pub index_key_dim: u64,
}

impl KeyValueLayout {
    /// Key/value heads on each of `devices` under tensor parallelism.
    pub fn local_heads(&self, devices: u64) -> u64 {
        if self.latent { 1 } else { (self.kv_heads / devices).max(1) }
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
    /// Elements of the previous input that a token shift caches.
    pub shift: u64,
}

/// Whether a bounded-state mixer can forward the value of one token to all later tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Known weights forward a value from every position.
    Everywhere,
    /// Only from some positions of the prompt.
    SomePositions,
    /// Only from this many first tokens; later tokens are never kept.
    FirstTokens(u128),
    /// Neither weights are known nor a proof that none exist.
    Unknown,
}

/// Bits per number that known weights need, as a function of the prompt length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPrecision {
    /// Bits for every prompt.
    pub base_bits: u64,
    /// Additional bits for every doubling of the prompt: 1 if the state counts tokens.
    pub bits_per_doubling: u64,
}

impl WeightPrecision {
    /// Enough for the values -1, 0 and +1.
    pub const SIGNS: Self = Self { base_bits: 2, bits_per_doubling: 0 };

    /// Bits for prompts of fewer than 2^`log2_tokens` tokens.
    pub fn bits(self, log2_tokens: u64) -> u64 {
        self.bits_per_doubling.saturating_mul(log2_tokens).saturating_add(self.base_bits)
    }
}

/// Everything that the theory, the audit and the reports read about a mixer of given sizes.
///
/// *Known weights* are weights that the constructions of this project set by hand, without training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether it reads the whole prefix or only a state of fixed size.
    pub reach: MixerReach,
    /// Bits of the accumulators that sum a message from left to right; none if they have the mixer's bits per number.
    pub accumulator_bits: Option<u64>,
    /// Elements of the recurrent state.
    pub recurrent_state: u128,
    /// Elements of the states of short convolutions and token shifts.
    pub conv_state: u128,
    /// Elements of the state of a convolution *before* this layer's projections.
    pub input_conv_state: u128,
    /// Cached elements per token of a window.
    pub window_elements_per_token: u128,
    /// Tokens in that window, the current one included.
    pub window_tokens: u128,
    /// Cached elements per token of the prompt.
    pub cache_per_token: u128,
    /// Cache entries for spans of tokens, over the whole prompt.
    pub summaries: Summaries,
    /// The same memory as inference engines allocate it; none if no engine is known to support it.
    pub layout: Option<CacheLayout>,
    /// Its heads, if it is softmax attention over grouped keys and values.
    pub attention: Option<AttentionHeads>,
    /// Weights of projections, gates and convolutions.
    pub parameters: u128,
    /// Weights of norms, biases and scalars per head in published models; 0 if not counted.
    pub norm_and_bias_parameters: u128,
    /// Floating-point operations.
    pub flops: Flops,
    /// Whether known weights look up an entry by its address, anywhere in the prefix.
    pub looks_up: bool,
    /// How many bits of a token the layer can copy to the next token, with weights that the constructions know; 0 if no such
    /// weights are known.
    pub forwarded_bits: u128,
    /// How many table rows of `forwarded_bits` bits each those weights can store in the state and look up later; 0 for none.
    pub table_rows: u128,
    /// Bits per number that those weights need.
    pub precision: WeightPrecision,
    /// Which values are forwarded, if no known weights forward all of them.
    pub partial_forwarding: Forwarding,
    /// Reflections that a token can apply to the state: steps of a delta rule with negative eigenvalues. One per token tracks
    /// parity, two per token make a rotation.
    pub reflections: u64,
    /// Whether the state is a plain sum of one term per token, independent of their order: no decay, no delta rule.
    pub additive_state: bool,
    /// Whether the output is divided by a sum of weights without a constant term, so that the scale of a query has no effect.
    pub scale_invariant: bool,
    /// log2 of the longest context for which the sizes are valid; none if there is no limit.
    pub log2_context: Option<u64>,
    /// Whether this project implements the mixer with these sizes as a network.
    pub is_implemented: bool,
}

impl Facts {
    /// A layer without state, cache or weights: the default for the mixers' files.
    pub(super) const EMPTY: Self = Self {
        reach: MixerReach::Bounded,
        accumulator_bits: None,
        recurrent_state: 0,
        conv_state: 0,
        input_conv_state: 0,
        window_elements_per_token: 0,
        window_tokens: 0,
        cache_per_token: 0,
        summaries: Summaries { entry_size: 0, length: 1, stride: 1 },
        layout: None,
        attention: None,
        parameters: 0,
        norm_and_bias_parameters: 0,
        flops: Flops { per_token: 0, per_attended: 0, max_attended: None },
        looks_up: false,
        forwarded_bits: 0,
        table_rows: 0,
        precision: WeightPrecision::SIGNS,
        partial_forwarding: Forwarding::Unknown,
        reflections: 0,
        additive_state: false,
        scale_invariant: false,
        log2_context: None,
        is_implemented: true,
    };

    /// Whether it can forward the value of one token to all later tokens.
    pub fn forwarding(&self) -> Forwarding {
        if self.forwarded_bits > 0 { Forwarding::Everywhere } else { self.partial_forwarding }
    }

    /// How it selects what it reads, if it is sparse attention.
    pub fn selection(&self) -> Option<TokenSelection> {
        match self.reach {
            MixerReach::Full(message) => message.selection,
            MixerReach::Bounded => None,
        }
    }

    /// How it selects blocks, if it is block-sparse attention.
    pub fn block_selection(&self) -> Option<TokenSelection> {
        self.selection().filter(|selection| selection.block > 1)
    }

    /// Elements that are passed from one token to the next. A window of W tokens passes on W-1 of them.
    pub fn state_size(&self) -> u128 {
        self.recurrent_state + self.conv_state + self.window_elements_per_token * self.window_tokens.saturating_sub(1)
    }

    /// As [`Facts::state_size`]; none if it does not fit 128 bits.
    pub(super) fn checked_state_size(&self) -> Option<u128> {
        let window = self.window_elements_per_token.checked_mul(self.window_tokens.saturating_sub(1))?;
        self.recurrent_state.checked_add(self.conv_state)?.checked_add(window)
    }

    /// Elements in memory after that many tokens, state and cache, once windows and caches of fixed size are full.
    pub fn memory_size(&self, tokens: u128) -> u128 {
        let cached = self.cache_per_token * tokens + self.summaries.entry_size * self.summaries.count_after(tokens);
        self.state_size() + self.input_conv_state + cached - self.unused_levels(tokens)
    }

    /// For a log-linear state, elements of the levels that this many tokens do not use: one level for every binary digit of the
    /// last token's position, and one more, are in use.
    fn unused_levels(&self, tokens: u128) -> u128 {
        let Some(last) = self.log2_context.map(u128::from) else { return 0 };
        let highest_used = tokens.saturating_sub(1).checked_ilog2().map_or(0, |log| u128::from(log) + 1);
        last.saturating_sub(highest_used) * (self.recurrent_state / (last + 1))
    }

    /// Elements by which the cache grows per token, on average and rounded up.
    pub fn cache_growth(&self) -> u128 {
        self.cache_per_token + self.summaries.entry_size.div_ceil(self.summaries.stride)
    }
}
