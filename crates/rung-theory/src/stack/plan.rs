//! The resolved plan: every layer of a stack, every number explicit.
//!
//! Plans come from the stack grammar, from the audit's config dialects, or from Rust. Bounds, reports and networks read the
//! plan and never the text.
//!
//! A plan also gives the two quantities that the bounds use. *Blocks* are the bounded-state layers between the
//! full ones: block 0 before the first full layer, block e after the e-th. A *message* is the information about a prefix that one
//! token receives in one full layer; its number of bits depends on how the sum over the prefix is computed,
//! hence the three [`MessageSizeConvention`]s.

use std::collections::HashMap;
use std::sync::Arc;

use super::mixer::{MessageSize, Mixer, MixerReach, TokenSelection};
use super::{Stack, StackError};
use crate::spec::{self, Spec};

/// The largest number of layers: a thousand times that of the deepest model.
pub const MAX_LAYERS: u64 = 1 << 20;

/// The largest number of different layers: each takes about a kilobyte.
pub const MAX_DISTINCT_LAYERS: u64 = 1 << 16;

/// Default sizes for mixer options that are not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Query heads.
    pub heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Key/value heads, if fewer than query heads.
    pub kv_heads: Option<u64>,
    /// Width of the residual stream, if not `heads * head_dim`.
    pub model_width: Option<u64>,
    /// Bits per number.
    pub bits: u64,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { heads: 8, head_dim: 64, kv_heads: None, model_width: None, bits: 16 }
    }
}

impl Defaults {
    /// The largest number of bits per number.
    pub const MAX_BITS: u64 = 4096;

    /// The width of the residual stream.
    pub fn width(&self) -> u64 {
        self.model_width.unwrap_or(self.heads.saturating_mul(self.head_dim))
    }

    /// Key/value heads: as many as query heads if not given.
    pub fn kv_heads(&self) -> u64 {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// Checks that every size is in its range.
    ///
    /// # Errors
    /// A number is zero or too large to multiply.
    pub fn validate(&self) -> Result<(), StackError> {
        let max_size = super::mixer::MAX_SIZE;
        for (name, found, max) in [
            ("heads", self.heads, max_size),
            ("head-dim", self.head_dim, max_size),
            ("key/value heads", self.kv_heads(), max_size),
            ("bits", self.bits, Self::MAX_BITS),
            ("width (heads times head-dim)", self.width(), max_size),
        ] {
            if !(1..=max).contains(&found) {
                return Err(StackError::BadDefault { name, found, expected: format!("1 to {max}") });
            }
        }
        Ok(())
    }
}

/// How the bits of a message are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageSizeConvention {
    /// `2 H d p`, as in the papers; an upper bound of the other two for head widths of at least 2.
    #[default]
    Paper,
    /// `H (d+1) p`: sums of values and of weights, accumulated from left to right in p-bit registers.
    Register,
    /// `H (d+2) p`: the same with a running maximum (online softmax).
    Online,
}

impl MessageSizeConvention {
    /// The name users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Register => "register",
            Self::Online => "online",
        }
    }

    /// The formula, for reports.
    pub fn formula(self) -> &'static str {
        match self {
            Self::Paper => "2*H*d*p",
            Self::Register => "H*(d+1)*p",
            Self::Online => "H*(d+2)*p",
        }
    }

    /// The formula for one layer's messages, which differs for layers that select tokens or blocks of tokens.
    fn message_formula(self, message: &MessageSize) -> String {
        match message.selection {
            None => self.formula().to_owned(),
            Some(selection) if selection.block == 1 => "k*p*(1 + cached elements per token)".to_owned(),
            Some(selection) => {
                let compressed = if selection.compressed { " + H*(d+2)*p" } else { "" };
                format!("G*((k+1)*block*(cached elements per token) + k)*p{compressed}")
            }
        }
    }

    /// The convention for a mixer: [`Register`](Self::Register) if the mixer itself fixes its accumulators, else this one.
    fn for_mixer(self, mixer: &Mixer) -> Self {
        if mixer.accumulator_bits().is_some() { Self::Register } else { self }
    }

    /// Elements of one message; none if the number does not fit 128 bits.
    pub(super) fn message_elements(self, message: &MessageSize) -> Option<u128> {
        let MessageSize { heads, value_head_dim, selection } = *message;
        let online = || heads.checked_mul(value_head_dim.checked_add(2)?);
        let Some(selection) = selection else {
            return match self {
                Self::Paper => heads.checked_mul(value_head_dim)?.checked_mul(2),
                Self::Register => heads.checked_mul(value_head_dim.checked_add(1)?),
                Self::Online => online(),
            };
        };
        let TokenSelection { groups, selected_count, block, cached_elements_per_token, compressed, .. } = selection;
        if block == 1 {
            return selected_count.checked_mul(cached_elements_per_token.checked_add(1)?);
        }
        let tokens = selected_count.checked_add(1)?.checked_mul(block)?;
        let group = tokens.checked_mul(cached_elements_per_token)?.checked_add(selected_count)?;
        groups.checked_mul(group)?.checked_add(if compressed { online()? } else { 0 })
    }
}

/// One layer: one mixer, or several in parallel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The parallel mixers; at least one.
    pub mixers: Arc<[Mixer]>,
    /// Whether it reads the cache of an earlier layer and has none itself.
    pub shares_cache: bool,
}

impl Layer {
    /// A layer of one mixer.
    pub fn new(mixer: Mixer) -> Self {
        Self { mixers: Arc::new([mixer]), shares_cache: false }
    }

    /// A layer of several mixers in parallel.
    pub fn parallel(mixers: Vec<Mixer>) -> Self {
        Self { mixers: mixers.into(), shares_cache: false }
    }

    /// Whether any of its mixers reads the whole prefix.
    pub fn is_full(&self) -> bool {
        self.mixers.iter().any(|mixer| matches!(mixer.facts().reach, MixerReach::Full(_)))
    }

    /// State bits that its mixers pass from one token to the next.
    pub fn state_bits(&self) -> u128 {
        self.mixers.iter().map(Mixer::state_bits).sum()
    }

    /// State bits of convolutions before the layer's projections.
    pub fn input_conv_bits(&self) -> u128 {
        self.mixers.iter().map(|mixer| mixer.facts().input_conv_state * u128::from(mixer.bits())).sum()
    }

    /// Bits about a prefix that one token receives through its full mixers; 0 if it has none.
    pub fn message_bits(&self, convention: MessageSizeConvention) -> u128 {
        let bits = |mixer: &Mixer| match &mixer.facts().reach {
            MixerReach::Full(message) => {
                let bits = mixer.accumulator_bits().unwrap_or(mixer.bits());
                let elements = convention.for_mixer(mixer).message_elements(message);
                // Resolving a mixer checks that this fits 100 bits.
                elements.unwrap_or(u128::MAX).saturating_mul(u128::from(bits))
            }
            MixerReach::Bounded => 0,
        };
        self.mixers.iter().map(bits).sum()
    }

    /// The specs of its mixers with every option.
    pub fn specs(&self) -> Vec<Spec> {
        self.mixers.iter().map(Mixer::spec).collect()
    }
}

/// A stack with every number explicit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Width of the residual stream.
    pub width: u64,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
}

impl Plan {
    /// Parses and resolves a stack.
    ///
    /// # Errors
    /// The text is no stack, names an unknown mixer or option, or is too long.
    pub fn parse(text: &str, defaults: &Defaults) -> Result<Self, StackError> {
        Self::resolve(&Stack::parse(text)?, defaults)
    }

    /// Resolves a stack.
    ///
    /// # Errors
    /// It names an unknown mixer or option, or is too long.
    pub fn resolve(stack: &Stack, defaults: &Defaults) -> Result<Self, StackError> {
        defaults.validate()?;
        let too_many = |count: Option<u128>| {
            let found = count.map_or_else(|| "more than 2^128".to_owned(), |count| count.to_string());
            count.is_none_or(|count| count > u128::from(MAX_LAYERS)).then_some(found)
        };
        let count = stack.layer_count();
        if let Some(found) = too_many(count) {
            return Err(StackError::TooManyLayers { found });
        }
        if let Some(found) = too_many(stack.mixer_count()) {
            return Err(StackError::TooManyMixers { found });
        }
        // Equal layers share one resolved copy. A layer of the syntax tree that is repeated is recognized by its address, layers that were
        // typed several times by their text.
        let mut by_address: HashMap<*const Spec, Layer> = HashMap::new();
        let mut by_text: HashMap<String, Layer> = HashMap::new();
        let mut layers = Vec::with_capacity(count.unwrap_or_default() as usize);
        stack.for_each_layer(&mut |specs| {
            if let Some(layer) = by_address.get(&specs.as_ptr()) {
                layers.push(layer.clone());
                return Ok(());
            }
            let text = specs.iter().map(Spec::to_string).collect::<Vec<_>>().join("+");
            let layer = if let Some(layer) = by_text.get(&text) {
                layer.clone()
            } else {
                if by_text.len() as u64 == MAX_DISTINCT_LAYERS {
                    return Err(StackError::TooManyDistinctLayers);
                }
                let mixers = specs.iter().map(|spec| Mixer::resolve(spec, defaults)).collect::<Result<_, _>>()?;
                by_text.entry(text).or_insert(Layer::parallel(mixers)).clone()
            };
            by_address.insert(specs.as_ptr(), layer.clone());
            layers.push(layer);
            Ok::<(), StackError>(())
        })?;
        Ok(Self { width: defaults.width(), layers })
    }

    /// The number of full-attention layers.
    pub fn full_layers(&self) -> usize {
        self.layers.iter().filter(|layer| layer.is_full()).count()
    }

    /// Bits of the widest message of any full layer.
    pub fn message_bits(&self, convention: MessageSizeConvention) -> u128 {
        self.layers.iter().map(|layer| layer.message_bits(convention)).max().unwrap_or_default()
    }

    /// The formula by which the bits of the widest message were counted, for reports.
    pub fn message_formula(&self, convention: MessageSizeConvention) -> String {
        let widest = self.layers.iter().max_by_key(|layer| layer.message_bits(convention));
        let full = |mixer: &Mixer| match &mixer.facts().reach {
            MixerReach::Full(message) => Some(convention.for_mixer(mixer).message_formula(message)),
            MixerReach::Bounded => None,
        };
        let formulas: Vec<String> = widest.into_iter().flat_map(|layer| layer.mixers.iter().filter_map(full)).collect();
        if formulas.is_empty() { "no full layer".to_owned() } else { formulas.join(" + ") }
    }

    /// log2 of the longest context for which all state sizes are valid; none if there is no limit.
    pub fn log2_context(&self) -> Option<u64> {
        let mixers = self.layers.iter().flat_map(|layer| layer.mixers.iter());
        mixers.filter_map(|mixer| mixer.facts().log2_context).min()
    }

    /// A short stack that resolves to this plan, with every option.
    pub fn to_stack(&self) -> Stack {
        Stack::compress(&self.layers, &Layer::specs)
    }

    /// The stack with the names of its mixers and without their options, for display.
    pub fn mixer_names(&self) -> String {
        let names = |layer: &Layer| layer.mixers.iter().map(Mixer::name).collect::<Vec<_>>();
        let bare = |name: &&'static str| Spec { name: (*name).to_owned(), options: Vec::new(), offset: 0 };
        let layers: Vec<Vec<&'static str>> = self.layers.iter().map(names).collect();
        Stack::compress(&layers, &|names| names.iter().map(bare).collect()).to_string()
    }
}

impl std::str::FromStr for MessageSizeConvention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Paper, Self::Register, Self::Online];
        let found = all.into_iter().find(|convention| convention.name() == text);
        found.ok_or_else(|| {
            let names = all.map(Self::name);
            let hint = spec::nearest(text, names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            format!("expected one of {}{hint}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::parse(text, &Defaults { heads: 16, head_dim: 128, ..Defaults::default() }).unwrap()
    }

    #[test]
    fn message_formula_is_that_of_the_widest_layer() {
        let formula = |text: &str| plan(text).message_formula(MessageSizeConvention::Paper);
        assert_eq!(formula("gdn full mla"), "2*H*d*p");
        assert_eq!(formula("nsa full"), "G*((k+1)*block*(cached elements per token) + k)*p + H*(d+2)*p");
        assert_eq!(formula("dsa{top=2048} full"), "k*p*(1 + cached elements per token)");
        assert_eq!(formula("gdn"), "no full layer");
    }

    #[test]
    fn message_bits_follow_the_convention() {
        let bits = |text: &str, convention| plan(text).message_bits(convention);
        assert_eq!(bits("full", MessageSizeConvention::Paper), 2 * 16 * 128 * 16);
        assert_eq!(bits("full", MessageSizeConvention::Register), 16 * 129 * 16);
        assert_eq!(bits("full", MessageSizeConvention::Online), 16 * 130 * 16);
        assert_eq!(bits("full full{heads=32}", MessageSizeConvention::Paper), 2 * 32 * 128 * 16);
        assert_eq!(bits("linear", MessageSizeConvention::Paper), 0);
        // dsa: k selected tokens, each with its score and its cached numbers.
        assert_eq!(bits("dsa{latent=512,rope=64,heads=128}", MessageSizeConvention::Paper), 2048 * 16 * (1 + 576));
        // moba: `top` includes the current block of tokens, so k = top - 1 = 2 earlier blocks are selected.
        assert_eq!(bits("moba{block=64,top=3}", MessageSizeConvention::Paper), 16 * (3 * 64 * 256 + 2) * 16);
    }

    #[test]
    fn to_stack_parses_back_to_the_same_plan() {
        let first = plan("linear*3 (full+mamba2 gdn{key=64}*3)*2 window{size=7} full{conv=4}");
        let text = first.to_stack().to_string();
        assert_eq!(Plan::parse(&text, &Defaults { heads: 16, head_dim: 128, ..Defaults::default() }).unwrap(), first);
        assert_eq!(first.mixer_names(), "linear*3 (full+mamba2 gdn*3)*2 window full");
    }

    #[test]
    fn layers_are_counted_before_a_long_stack_is_built() {
        let parse = |text: &str| Plan::parse(text, &Defaults::default());
        assert_eq!(parse("full*100000").unwrap().layers.len(), 100_000);
        assert!(matches!(parse("((full*99999)*99999)*99999"), Err(StackError::TooManyLayers { .. })));
        assert!(matches!(parse("(full+full+full)*999999"), Err(StackError::TooManyMixers { .. })));
        let different: Vec<String> = (1..=70_000).map(|heads| format!("full{{heads={heads}}}")).collect();
        assert!(matches!(parse(&different.join(" ")), Err(StackError::TooManyDistinctLayers)));
        assert!(matches!(
            Plan::parse("full", &Defaults { bits: 0, ..Defaults::default() }),
            Err(StackError::BadDefault { name: "bits", .. })
        ));
    }

    #[test]
    fn layers_of_a_repeated_group_are_resolved_once() {
        let kinds: Vec<String> = (1..=9).map(|heads| format!("full{{heads={heads}}}")).collect();
        let layers = plan(&format!("({})*1000 {}", kinds.join(" "), kinds[4])).layers;
        let distinct: std::collections::HashSet<_> = layers.iter().map(|layer| Arc::as_ptr(&layer.mixers)).collect();
        assert_eq!((layers.len(), distinct.len()), (9001, 9));
    }

    #[test]
    fn sizes_whose_sum_could_overflow_are_errors() {
        let wide = "loglinear-gdn{value-heads=16777216,key=16777216,value=16777216,conv=0,levels=16777216,bits=4096}";
        for text in [wide.to_owned(), format!("({wide}+{wide})*524287 full")] {
            let error = Plan::parse(&text, &Defaults::default()).unwrap_err();
            assert!(matches!(error, StackError::TooManyBits { quantity: "a state", .. }), "{error}");
        }
        // The largest state that is accepted, as often as possible.
        let half = "loglinear-gdn{value-heads=16777216,key=16777216,value=16777216,conv=0,levels=4096,bits=4096}";
        let plan = Plan::parse(&format!("({half}+{half})*524287 full"), &Defaults::default()).unwrap();
        assert_eq!(plan.capacity().blocks[0].state_bits, 2 * 524_287 * (1 << 96));
    }
}
