//! The resolved plan: every layer of a stack, every number explicit.
//!
//! Plans come from the stack grammar, from the audit's config dialects, or from Rust. Whatever comes after — bounds,
//! reports, networks — reads the plan and never the text again.
//!
//! A plan also knows the two quantities that the bounds are about. *Blocks* are the bounded-state layers between the
//! full ones: block 0 before the first full layer, block e after the e-th. *Messages* are what one token can learn
//! from a prefix in one full layer; how many bits that is depends on how the sum over the prefix is carried out,
//! hence the three [`Convention`]s.

use std::sync::Arc;

use super::mixer::{MessageSize, Mixer, MixerReach};
use super::{Stack, StackError};
use crate::spec::{self, Spec};

/// Longer stacks are refused: a million layers is a thousand times the deepest model.
pub const MAX_LAYERS: u64 = 1 << 20;

/// What mixers take when their options do not say otherwise.
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
    /// More bits per number than this are refused.
    pub const MOST_BITS: u64 = 4096;

    /// The width of the residual stream.
    pub fn width(&self) -> u64 {
        self.model_width.unwrap_or(self.heads.saturating_mul(self.head_dim))
    }

    /// Key/value heads.
    pub fn kv_heads(&self) -> u64 {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// # Errors
    /// A number is zero or too large to multiply.
    pub fn validate(&self) -> Result<(), StackError> {
        let largest = super::mixer::LARGEST;
        for (name, found, most) in [
            ("heads", self.heads, largest),
            ("head-dim", self.head_dim, largest),
            ("key/value heads", self.kv_heads(), largest),
            ("bits", self.bits, Self::MOST_BITS),
            ("width (heads times head-dim)", self.width(), largest),
        ] {
            if !(1..=most).contains(&found) {
                return Err(StackError::BadDefault { name, found, expected: format!("1 to {most}") });
            }
        }
        Ok(())
    }
}

/// How the bits of a message are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Convention {
    /// `2 H d p`, as in the papers; covers the other two for heads at least two wide.
    #[default]
    Paper,
    /// `H (d+1) p`: a sum of values and a sum of weights in registers, filled from left to right.
    Register,
    /// `H (d+2) p`: the same with a running maximum.
    Online,
}

impl Convention {
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

    /// The formula of one layer's messages: a layer that picks tokens or blocks has another than one that reads all.
    fn formula_of(self, message: &MessageSize) -> String {
        match message.selection {
            None => self.formula().to_owned(),
            Some(pick) if pick.block == 1 => "k*p*(1 + numbers kept of a token)".to_owned(),
            Some(pick) => {
                let compressed = if pick.compressed { " + H*(d+2)*p" } else { "" };
                format!("G*((k+1)*block*(numbers kept of a token) + k)*p{compressed}")
            }
        }
    }

    /// The one that holds for a mixer: where it says how it sums, that is known and nothing has to be agreed upon.
    fn of(self, mixer: &Mixer) -> Self {
        if mixer.accumulator_bits().is_some() { Self::Register } else { self }
    }

    /// Bits of one message at `bits` per number.
    fn message_bits(self, message: &MessageSize, bits: u128) -> u128 {
        let MessageSize { heads, value, selection } = *message;
        let Some(pick) = selection else {
            return match self {
                Self::Paper => 2 * heads * value * bits,
                Self::Register => heads * (value + 1) * bits,
                Self::Online => heads * (value + 2) * bits,
            };
        };
        if pick.block == 1 {
            return pick.picked * bits * (1 + pick.cached);
        }
        let read = pick.groups * ((pick.picked + 1) * pick.block * pick.cached + pick.picked) * bits;
        read + if pick.compressed { heads * (value + 2) * bits } else { 0 }
    }
}

/// One layer: the mixers that stand side by side in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// At least one.
    pub mixers: Arc<[Mixer]>,
    /// Reads the cache of an earlier layer and keeps none itself.
    pub shares_cache: bool,
}

impl Layer {
    /// A layer of one mixer.
    pub fn new(mixer: Mixer) -> Self {
        Self { mixers: Arc::new([mixer]), shares_cache: false }
    }

    /// Several mixers side by side.
    pub fn parallel(mixers: Vec<Mixer>) -> Self {
        Self { mixers: mixers.into(), shares_cache: false }
    }

    /// Whether any of its mixers reads the whole prefix.
    pub fn is_full(&self) -> bool {
        self.mixers.iter().any(|mixer| matches!(mixer.facts().reach, MixerReach::Full(_)))
    }

    /// Bits of state that cross from token to token in its bounded mixers.
    pub fn state_bits(&self) -> u128 {
        self.mixers.iter().map(Mixer::state_bits).sum()
    }

    /// Bits of state of convolutions that stand before the layer's projections.
    pub fn front_bits(&self) -> u128 {
        self.mixers.iter().map(|mixer| mixer.facts().input_conv_state * u128::from(mixer.bits())).sum()
    }

    /// Bits that one token can learn from a prefix through its full mixers; 0 if it has none.
    pub fn message_bits(&self, convention: Convention) -> u128 {
        let bits = |mixer: &Mixer| match &mixer.facts().reach {
            MixerReach::Full(message) => {
                let bits = mixer.accumulator_bits().unwrap_or(mixer.bits());
                convention.of(mixer).message_bits(message, u128::from(bits))
            }
            MixerReach::Bounded => 0,
        };
        self.mixers.iter().map(bits).sum()
    }

    /// The specs that name its mixers with every number.
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
    /// Reads and resolves a stack.
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
        let count = stack.layers();
        if count.is_none_or(|count| count > u128::from(MAX_LAYERS)) {
            let found = count.map_or_else(|| "more than 2^128".to_owned(), |count| count.to_string());
            return Err(StackError::TooManyLayers { found });
        }
        // Layers written alike share one resolved copy; neighbours usually are.
        let mut known: Vec<(Vec<Spec>, Layer)> = Vec::new();
        let mut layers = Vec::with_capacity(count.unwrap_or_default() as usize);
        stack.for_each_layer(&mut |specs| {
            let same = |a: &Spec, b: &Spec| a.name == b.name && a.options == b.options;
            let found = known
                .iter()
                .rev()
                .take(8)
                .find(|(seen, _)| seen.len() == specs.len() && seen.iter().zip(specs).all(|(a, b)| same(a, b)));
            if let Some((_, layer)) = found {
                layers.push(layer.clone());
                return Ok(());
            }
            let mixers = specs.iter().map(|spec| Mixer::resolve(spec, defaults)).collect::<Result<_, _>>()?;
            let layer = Layer::parallel(mixers);
            known.push((specs.to_vec(), layer.clone()));
            layers.push(layer);
            Ok::<(), StackError>(())
        })?;
        Ok(Self { width: defaults.width(), layers })
    }

    /// How many layers read the whole prefix.
    pub fn full_layers(&self) -> usize {
        self.layers.iter().filter(|layer| layer.is_full()).count()
    }

    /// Bits of the widest message of any full layer.
    pub fn message_bits(&self, convention: Convention) -> u128 {
        self.layers.iter().map(|layer| layer.message_bits(convention)).max().unwrap_or_default()
    }

    /// The formula by which the bits of the widest message were counted, for reports.
    pub fn message_formula(&self, convention: Convention) -> String {
        let widest = self.layers.iter().max_by_key(|layer| layer.message_bits(convention));
        let full = |mixer: &Mixer| match &mixer.facts().reach {
            MixerReach::Full(message) => Some(convention.of(mixer).formula_of(message)),
            MixerReach::Bounded => None,
        };
        let formulas: Vec<String> = widest.into_iter().flat_map(|layer| layer.mixers.iter().filter_map(full)).collect();
        if formulas.is_empty() { "no full layer".to_owned() } else { formulas.join(" + ") }
    }

    /// The smallest head among full layers: what a look-up's address must fit into.
    pub fn narrowest_head(&self) -> Option<u64> {
        let mixers = self.layers.iter().flat_map(|layer| layer.mixers.iter());
        let full = mixers.filter(|mixer| matches!(mixer.facts().reach, MixerReach::Full(_)));
        full.filter_map(|mixer| mixer.number("key").or_else(|| mixer.number("head"))).min()
    }

    /// The longest context for which all sizes hold, as a power of two.
    pub fn log2_context(&self) -> Option<u64> {
        let mixers = self.layers.iter().flat_map(|layer| layer.mixers.iter());
        mixers.filter_map(|mixer| mixer.facts().log2_context).min()
    }

    /// The shortest text that reads back as this plan, with every number.
    pub fn to_stack(&self) -> Stack {
        let layers: Vec<Vec<Spec>> = self.layers.iter().map(Layer::specs).collect();
        Stack::compress(&layers)
    }

    /// The shortest text that names its mixers, without their numbers: for people.
    pub fn outline(&self) -> String {
        let bare = |mixer: &Mixer| Spec { name: mixer.name().to_owned(), options: Vec::new(), at: 0 };
        let layers: Vec<Vec<Spec>> = self.layers.iter().map(|layer| layer.mixers.iter().map(bare).collect()).collect();
        Stack::compress(&layers).to_string()
    }
}

impl std::str::FromStr for Convention {
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
    fn messages_name_the_formula_that_counted_them() {
        let formula = |text: &str| plan(text).message_formula(Convention::Paper);
        assert_eq!(formula("gdn full mla"), "2*H*d*p");
        assert_eq!(formula("nsa full"), "G*((k+1)*block*(numbers kept of a token) + k)*p + H*(d+2)*p");
        assert_eq!(formula("dsa{top=2048} full"), "k*p*(1 + numbers kept of a token)");
        assert_eq!(formula("gdn"), "no full layer");
    }

    #[test]
    fn messages_follow_their_conventions() {
        let bits = |text: &str, convention| plan(text).message_bits(convention);
        assert_eq!(bits("full", Convention::Paper), 2 * 16 * 128 * 16);
        assert_eq!(bits("full", Convention::Register), 16 * 129 * 16);
        assert_eq!(bits("full", Convention::Online), 16 * 130 * 16);
        assert_eq!(bits("full full{heads=32}", Convention::Paper), 2 * 32 * 128 * 16);
        assert_eq!(bits("linear", Convention::Paper), 0);
        // k (1 + numbers that cross of each chosen token), and (k+1) blocks for every head that chooses.
        assert_eq!(bits("dsa{latent=512,rope=64,heads=128}", Convention::Paper), 2048 * 16 * (1 + 576));
        assert_eq!(bits("moba{block=64,top=3}", Convention::Paper), 16 * (3 * 64 * 256 + 2) * 16);
    }

    #[test]
    fn plans_print_and_read_back() {
        let first = plan("linear*3 (full+mamba2 gdn{key=64}*3)*2 window{size=7} full{conv=4}");
        let text = first.to_stack().to_string();
        assert_eq!(Plan::parse(&text, &Defaults { heads: 16, head_dim: 128, ..Defaults::default() }).unwrap(), first);
        assert_eq!(first.outline(), "linear*3 (full+mamba2 gdn*3)*2 window full");
    }

    #[test]
    fn long_stacks_are_counted_before_they_are_built() {
        let parse = |text: &str| Plan::parse(text, &Defaults::default());
        assert_eq!(parse("full*100000").unwrap().layers.len(), 100_000);
        assert!(matches!(parse("((full*99999)*99999)*99999"), Err(StackError::TooManyLayers { .. })));
        assert!(matches!(
            Plan::parse("full", &Defaults { bits: 0, ..Defaults::default() }),
            Err(StackError::BadDefault { name: "bits", .. })
        ));
    }
}
