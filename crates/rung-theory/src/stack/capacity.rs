//! The hop capacity of a stack: full layers, blocks, and the hop that a well-placed bounded-state layer adds.
//!
//! # Claim
//! Let F be the number of full-attention layers, and c = 1 if a bounded-state layer that may forward the start value comes
//! before the first of them or between the first and the second, else 0. For sizes polylogarithmic in the number of tokens n,
//! n large, and suitable tables: L-step function composition is solvable in one forward pass only if L <= F + c - 1. That
//! number is the stack's *rungs*: an upper bound on the hops, by certificates.
//!
//! It is solvable if suitable weights of the layers are known: softmax attention that looks up an entry, a bounded-state mixer that
//! forwards a value. Counting only those layers gives a lower bound on the hops, by constructions. If the two bounds agree, the
//! number of hops is exact; they differ if no weights are known (latent and sparse attention), or if a mixer forwards values at
//! some positions only (chunks, some cache policies).
//!
//! # Conditions
//! One causal forward pass, any weights, arithmetic of p bits; no chain of thought. Mixers in parallel with attention in the same
//! layer never add the extra hop; a convolution before a full layer's projections belongs to the block before that layer. A cache
//! that keeps only the first tokens never holds the start value, which comes near the end, so it adds no hop.
//!
//! # Vacuous when
//! Never as a count, but it is asymptotic: `rung bound` and `rung decide` say what holds at a given size.
//!
//! # Source
//! Chen, Peng and Wu (2412.02975); Ye et al. (2602.01763).

use super::mixer::{Forwarding, Mixer, MixerReach};
use super::plan::{Layer, MessageSizeConvention, Plan};

/// The bounded-state layers between two full ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerBlock {
    /// Indices (from 0) of its layers. A full layer is listed if a convolution in front of it belongs here.
    pub layers: Vec<usize>,
    /// State bits that these layers pass from one token to the next.
    pub state_bits: u128,
    /// Of those, the bits of layers that keep only the first tokens, never the start value; see [`Forwarding::FirstTokens`].
    pub first_tokens_cache_bits: u128,
    /// The largest number of first tokens that one of those layers keeps.
    pub first_tokens_cache_length: u128,
}

impl LayerBlock {
    /// Bits of layers that may forward the start value.
    pub fn forwarding_bits(&self) -> u128 {
        self.state_bits - self.first_tokens_cache_bits
    }
}

/// The full layers, blocks and bits of a stack, and the number of hops that follows from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of full-attention layers.
    pub full_layers: usize,
    /// Whether a bounded-state layer may add a hop (c = 1).
    pub extra_hop: bool,
    /// Indices (from 0) of the layers that may add it.
    pub extra_hop_layers: Vec<usize>,
    /// The common kind of those in the first block that has any: `recurrent`, `window`, `convolution`, or `bounded-state` if they differ.
    pub extra_hop_kind: &'static str,
    /// Upper bound on the hops of function composition: `full_layers` + c - 1, and never below 0.
    pub rungs: usize,
    /// Lower bound on the hops, by known weights; never above `rungs`.
    pub constructed_hops: usize,
    /// Block e comes after the e-th full layer, block 0 before the first.
    pub blocks: Vec<LayerBlock>,
    /// State bits of the mixers in parallel with each full layer.
    pub parallel_bits: Vec<u128>,
    /// Bits of the widest message.
    pub message_bits: u128,
}

impl Plan {
    /// Counts with the papers' message convention.
    pub fn capacity(&self) -> Capacity {
        self.capacity_with(MessageSizeConvention::Paper)
    }

    /// Counts full layers, blocks and rungs.
    pub fn capacity_with(&self, convention: MessageSizeConvention) -> Capacity {
        let mut blocks = vec![LayerBlock::default()];
        let mut parallel_bits = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let block = blocks.last_mut().unwrap_or_else(|| unreachable!("there is always a block"));
            let bits = if layer.is_full() { layer.input_conv_bits() } else { layer.state_bits() };
            if bits > 0 {
                block.layers.push(index);
                block.state_bits += bits;
                if let Some(tokens) = first_tokens_kept(layer) {
                    block.first_tokens_cache_bits += bits;
                    block.first_tokens_cache_length = block.first_tokens_cache_length.max(tokens);
                }
            }
            if layer.is_full() {
                parallel_bits.push(layer.state_bits());
                blocks.push(LayerBlock::default());
            }
        }
        let full_layers = parallel_bits.len();
        let may_forward = |index: &usize| first_tokens_kept(&self.layers[*index]).is_none();
        let extra_hop_layers: Vec<usize> =
            blocks.iter().take(2).flat_map(|block| block.layers.iter().copied()).filter(may_forward).collect();
        let extra_hop = !extra_hop_layers.is_empty();
        let first_block = usize::from(!blocks[0].layers.iter().any(may_forward));
        let first_layers = blocks.iter().skip(first_block).take(1).flat_map(|block| &block.layers);
        let extra_hop_kind =
            common_kind(first_layers.filter(|index| may_forward(index)).map(|&index| &self.layers[index]));
        Capacity {
            full_layers,
            extra_hop,
            extra_hop_layers,
            extra_hop_kind,
            rungs: (full_layers + usize::from(extra_hop)).saturating_sub(1),
            constructed_hops: self.constructed_hops(),
            blocks,
            parallel_bits,
            message_bits: self.message_bits(convention),
        }
    }

    /// Number of hops that known weights solve, with heads and states as wide as needed: by look-ups alone, with a layer that forwards
    /// the start value, or with one that forwards the first result.
    fn constructed_hops(&self) -> usize {
        let can_look_up: Vec<bool> =
            self.layers.iter().map(|layer| layer.mixers.iter().any(|mixer| mixer.facts().looks_up)).collect();
        let mut look_ups_after = can_look_up.iter().filter(|can_look_up| **can_look_up).count();
        let mut hops = look_ups_after.saturating_sub(1);
        let mut look_up_before = 0;
        for (layer, is_look_up) in self.layers.iter().zip(can_look_up) {
            look_ups_after -= usize::from(is_look_up);
            if layer.mixers.iter().any(|mixer| mixer.facts().forwarding() == Forwarding::Everywhere) {
                hops = hops.max(look_ups_after + look_up_before);
            }
            look_up_before |= usize::from(is_look_up);
        }
        hops
    }
}

/// The kind of these bounded-state layers if they have the same one, else `bounded-state`.
fn common_kind<'a>(layers: impl Iterator<Item = &'a Layer>) -> &'static str {
    let mut kinds = layers.map(|layer| {
        let facts: Vec<_> = layer.mixers.iter().map(Mixer::facts).collect();
        if facts.iter().any(|facts| facts.recurrent_state > 0) {
            "recurrent"
        } else if facts.iter().any(|facts| facts.window_elements_per_token > 0 && facts.reach == MixerReach::Bounded) {
            "window"
        } else if facts.iter().any(|facts| facts.conv_state + facts.input_conv_state > 0) {
            "convolution"
        } else {
            "bounded-state"
        }
    });
    let first = kinds.next().unwrap_or("bounded-state");
    if kinds.all(|kind| kind == first) { first } else { "bounded-state" }
}

/// The number of first tokens that a bounded-state layer keeps, if all of its mixers with a state keep only first tokens.
fn first_tokens_kept(layer: &Layer) -> Option<u128> {
    if layer.is_full() {
        return None;
    }
    let mut stateful = layer.mixers.iter().filter(|mixer| mixer.state_bits() > 0);
    stateful.try_fold(0, |max: u128, mixer| match mixer.facts().forwarding() {
        Forwarding::FirstTokens(tokens) => Some(max.max(tokens)),
        _ => None,
    })
}

impl Capacity {
    /// `exactly` if certificates and constructions agree, else `at most`: how [`Capacity::rungs`] bounds the hops.
    pub fn relation(&self) -> &'static str {
        if self.constructed_hops == self.rungs { "exactly" } else { "at most" }
    }

    /// What is proved about the number of hops, such as `at most 2 hops, at least 1`.
    pub fn claim(&self) -> String {
        let upper = format!("{} {} hop{}", self.relation(), self.rungs, if self.rungs == 1 { "" } else { "s" });
        match self.constructed_hops {
            lower if lower == self.rungs => upper,
            0 => format!("{upper}, no weights known for any"),
            lower => format!("{upper}, at least {lower}"),
        }
    }

    /// State bits of each block.
    pub fn state_bits(&self) -> Vec<u128> {
        self.blocks.iter().map(|block| block.state_bits).collect()
    }

    /// Why there is, or is not, an extra hop, in one sentence. Layers are numbered from 0.
    pub fn reason(&self) -> String {
        let (Some(first), Some(last)) = (self.extra_hop_layers.first(), self.extra_hop_layers.last()) else {
            if self.blocks.iter().take(2).any(|block| block.first_tokens_cache_bits > 0) {
                return "The caches before the second full layer keep only the first tokens of the prompt, never the start \
                        value, so one full layer is spent on finding it."
                    .to_owned();
            }
            return "No recurrent or window layer comes before the second full layer, so \
                    one full layer is spent on finding the start value."
                .to_owned();
        };
        // Layers are in order, so those before the first full layer are those up to the last of block 0.
        let in_block_0 = |index: &&usize| self.blocks[0].layers.last().is_some_and(|end| *index <= end);
        let in_front = in_block_0(&first);
        let last = if in_front { self.extra_hop_layers.iter().rfind(in_block_0) } else { Some(last) };
        let last = last.unwrap_or(first);
        let layers = if first == last { format!("Layer {first}") } else { format!("Layers {first} to {last}") };
        if self.full_layers == 0 {
            return format!("{layers} could pass the start value on, but there is no full layer to look anything up.");
        }
        // A mixer without known weights that forward values everywhere may still be able to do it.
        let verb = if self.constructed_hops == self.rungs { "passes" } else { "may pass" };
        if in_front {
            format!("{layers}: state before the first full layer {verb} the start value on to the query.")
        } else {
            format!("{layers}: state right after the first full layer {verb} the first result on to the query.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Defaults;

    fn capacity(text: &str) -> Capacity {
        Plan::parse(text, &Defaults::default()).unwrap().capacity()
    }

    #[test]
    fn rungs_count_full_layers_and_the_extra_hop() {
        for (text, rungs) in [
            ("linear full", 1),
            ("full full", 1),
            ("full linear full", 2),
            ("linear full full", 2),
            ("full full full", 2),
            ("full full full linear*9", 2),
            ("mamba2*48", 0),
            ("(gdn*3 full)*12", 12),
            ("full", 0),
            ("none*3", 0),
            // Mixers in parallel with attention, a window of one token and a layer without a mixer add no hop.
            ("full+mamba2 full", 1),
            ("window{size=1} none full full", 1),
            ("full{conv=4} full", 2),
        ] {
            assert_eq!(capacity(text).rungs, rungs, "{text}");
        }
    }

    #[test]
    fn at_least_counts_only_layers_with_known_weights() {
        for (text, at_most, at_least) in [
            // Caches that keep the first tokens never hold the start value.
            ("evicting{policy=prefix} full", 0, 0),
            ("evicting{policy=prefix,size=9} full full", 1, 1),
            ("full evicting{policy=sinks,size=2} full", 1, 1),
            ("evicting{policy=sinks,size=3} full", 1, 1),
            ("evicting{policy=last,size=2} full", 1, 1),
            // Whether a value is forwarded depends on its position.
            ("evicting{policy=stride} full", 1, 0),
            ("evicting{policy=reservoir} full full", 2, 1),
            ("evicting{policy=heavy} full", 1, 0),
            ("chunked full", 1, 0),
            ("chunked*3 full window full", 2, 2),
            // No weights are known.
            ("mla mla", 1, 0),
            ("gdn*3 mla", 1, 0),
            ("dsa full full", 2, 1),
            ("gdn nsa full", 2, 1),
            ("conv{gated=no} full", 1, 0),
            ("fastmax full", 1, 0),
            ("fastmax{order=1} full", 1, 1),
            ("full{conv=4} full", 2, 1),
            // Both bounds agree.
            ("(gdn*3 full)*12", 12, 12),
            ("full linear full", 2, 2),
            ("full full linear full", 2, 2),
            ("full+mamba2 full", 1, 1),
            ("mamba2*48", 0, 0),
        ] {
            let capacity = capacity(text);
            assert_eq!((capacity.rungs, capacity.constructed_hops), (at_most, at_least), "{text}");
        }
        assert_eq!(capacity("chunked full").claim(), "at most 1 hop, no weights known for any");
        assert_eq!(capacity("full full linear full").claim(), "exactly 2 hops");
        assert_eq!(capacity("dsa full full").claim(), "at most 2 hops, at least 1");
    }

    #[test]
    fn blocks_list_the_layers_between_full_layers() {
        let capacity = capacity("linear*2 full gdn full full{conv=2} linear");
        let layers: Vec<_> = capacity.blocks.iter().map(|block| block.layers.clone()).collect();
        assert_eq!(layers, [vec![0, 1], vec![3], vec![5], vec![6]]);
        assert_eq!(capacity.extra_hop_layers, [0, 1, 3]);
        assert_eq!(capacity.state_bits()[0], 2 * 8 * 64 * 65 * 16);
    }

    #[test]
    fn reason_takes_linear_time_in_the_layers() {
        let started = std::time::Instant::now();
        let reason = capacity("(gdn*400000 full)*2").reason();
        assert!(reason.starts_with("Layers 0 to 399999: state before the first full layer"), "{reason}");
        // Comparing every layer with every other would take minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn extra_hop_kind_names_the_kind_of_the_first_layers() {
        for (text, kind) in [
            ("window full full", "window"),
            ("gdn window full", "bounded-state"),
            ("gdn full window full", "recurrent"),
            ("full window full", "window"),
            ("full{conv=4} full", "convolution"),
            ("conv full", "convolution"),
            ("chunked full", "window"),
        ] {
            assert_eq!(capacity(text).extra_hop_kind, kind, "{text}");
        }
    }
}
