//! The hop capacity of a stack: full layers, blocks, and the hop that a well-placed bounded-state layer adds.
//!
//! # Claim
//! Let F be the number of full-attention layers, and c = 1 if a bounded-state layer that may hand the start value on stands
//! before the first of them or between the first and the second, else 0. For sizes polylogarithmic in the number of tokens n,
//! n large, and suitable tables: L-step function composition is solvable in one forward pass only if L <= F + c - 1. That
//! number is the stack's *rungs*: *at most* so many hops, by certificates.
//!
//! It is solvable if the layers are ones whose weights are known: softmax attention that looks up, a bounded-state mixer that
//! provably hands a value on. Counting only those gives *at least* so many hops, by constructions. Where the two agree the
//! stack has *exactly* so many; they differ where no weights are known (latent and sparse attention), or where a mixer hands a
//! value on at some positions only (chunks, some cache policies).
//!
//! # Conditions
//! One causal forward pass, any weights, arithmetic of p bits; no chain of thought. Mixers beside attention in the same
//! layer never earn the extra hop; a convolution in front of a full layer's projections belongs to the block before it. A cache
//! that keeps only the first tokens never holds the start value, which stands near the end: it earns nothing.
//!
//! # Vacuous when
//! Never as a count, but it is asymptotic: `rung bound` and `rung decide` say what holds at a given size.
//!
//! # Source
//! Chen, Peng and Wu (2412.02975); Ye et al. (2602.01763); the exact place of the extra hop is worked out in the guide.

use super::mixer::{Forwarding, Mixer, MixerReach};
use super::plan::{Convention, Layer, Plan};

/// The bounded-state layers between two full ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerBlock {
    /// Indices (from 0) of its layers. A full layer is listed if a convolution in front of it belongs here.
    pub layers: Vec<usize>,
    /// Bits that cross from token to token in them.
    pub state_bits: u128,
    /// Of those, the bits of layers that provably do not hand the start value on; see [`Forwarding::FirstTokens`].
    pub dropping_bits: u128,
    /// Tokens after which those layers keep nothing new.
    pub filled_after: u128,
}

impl LayerBlock {
    /// Bits of layers that may hand the start value on.
    pub fn carrying_bits(&self) -> u128 {
        self.state_bits - self.dropping_bits
    }
}

/// What the hierarchy theorem counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Full-attention layers.
    pub full: usize,
    /// Whether a bounded-state layer may earn the extra hop.
    pub extra_hop: bool,
    /// Indices (from 0) of the layers that may earn it.
    pub earned_by: Vec<usize>,
    /// What the first of these are: `recurrent`, `window`, `convolution`, or `bounded-state` for several kinds.
    pub carrier: &'static str,
    /// At most so many hops of function composition: full + extra - 1, and never below 0.
    pub rungs: usize,
    /// At least so many hops, by weights that are known; never above `rungs`.
    pub at_least: usize,
    /// Block e stands after the e-th full layer, block 0 before the first.
    pub blocks: Vec<LayerBlock>,
    /// Bits of the mixers beside each full layer.
    pub parallel_bits: Vec<u128>,
    /// Bits of the widest message.
    pub message_bits: u128,
}

impl Plan {
    /// Counts with the papers' message convention.
    pub fn capacity(&self) -> Capacity {
        self.capacity_with(Convention::Paper)
    }

    /// Counts full layers, blocks and rungs.
    pub fn capacity_with(&self, convention: Convention) -> Capacity {
        let mut blocks = vec![LayerBlock::default()];
        let mut parallel_bits = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let last = blocks.last_mut().unwrap_or_else(|| unreachable!("there is always a block"));
            let bits = if layer.is_full() { layer.front_bits() } else { layer.state_bits() };
            if bits > 0 {
                last.layers.push(index);
                last.state_bits += bits;
                if let Some(tokens) = drops_after(layer) {
                    last.dropping_bits += bits;
                    last.filled_after = last.filled_after.max(tokens);
                }
            }
            if layer.is_full() {
                parallel_bits.push(layer.state_bits());
                blocks.push(LayerBlock::default());
            }
        }
        let full = parallel_bits.len();
        let earns = |index: &usize| drops_after(&self.layers[*index]).is_none();
        let earned_by: Vec<usize> =
            blocks.iter().take(2).flat_map(|block| block.layers.iter().copied()).filter(earns).collect();
        let extra_hop = !earned_by.is_empty();
        let first_block = usize::from(!blocks[0].layers.iter().any(earns));
        let carriers = blocks.iter().skip(first_block).take(1).flat_map(|block| &block.layers);
        let carrier = kind_of_all(carriers.filter(|index| earns(index)).map(|&index| &self.layers[index]));
        Capacity {
            full,
            extra_hop,
            earned_by,
            carrier,
            rungs: (full + usize::from(extra_hop)).saturating_sub(1),
            at_least: self.constructed_hops(),
            blocks,
            parallel_bits,
            message_bits: self.message_bits(convention),
        }
    }

    /// Hops that known weights climb, with heads and states as wide as they need: by look-ups alone, or with a layer that hands
    /// the start value on, or with one that hands on the first result.
    fn constructed_hops(&self) -> usize {
        let look_ups: Vec<bool> =
            self.layers.iter().map(|layer| layer.mixers.iter().any(|mixer| mixer.facts().looks_up)).collect();
        let mut after = look_ups.iter().filter(|look_up| **look_up).count();
        let mut hops = after.saturating_sub(1);
        let mut before = 0;
        for (layer, look_up) in self.layers.iter().zip(look_ups) {
            after -= usize::from(look_up);
            if layer.mixers.iter().any(|mixer| mixer.facts().forwarding() == Forwarding::Everywhere) {
                hops = hops.max(after + before);
            }
            before |= usize::from(look_up);
        }
        hops
    }
}

/// The one kind of bounded-state layer that all of these are.
fn kind_of_all<'a>(layers: impl Iterator<Item = &'a Layer>) -> &'static str {
    let mut kinds = layers.map(|layer| {
        let facts: Vec<_> = layer.mixers.iter().map(Mixer::facts).collect();
        if facts.iter().any(|facts| facts.recurrent_state > 0) {
            "recurrent"
        } else if facts.iter().any(|facts| facts.window_per_token > 0 && facts.reach == MixerReach::Bounded) {
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

/// Tokens after which a bounded-state layer keeps nothing new, if that holds for all of its mixers that have a state.
fn drops_after(layer: &Layer) -> Option<u128> {
    if layer.is_full() {
        return None;
    }
    let mut stateful = layer.mixers.iter().filter(|mixer| mixer.state_bits() > 0);
    stateful.try_fold(0, |most: u128, mixer| match mixer.facts().forwarding() {
        Forwarding::FirstTokens(tokens) => Some(most.max(tokens)),
        _ => None,
    })
}

impl Capacity {
    /// `exactly` where certificates and constructions agree, else `at most`: what is proved of [`Capacity::rungs`].
    pub fn relation(&self) -> &'static str {
        if self.at_least == self.rungs { "exactly" } else { "at most" }
    }

    /// What is proved of the number of hops, in words.
    pub fn claim(&self) -> String {
        let most = format!("{} {} hop{}", self.relation(), self.rungs, if self.rungs == 1 { "" } else { "s" });
        match self.at_least {
            least if least == self.rungs => most,
            0 => format!("{most}, no weights known for any"),
            least => format!("{most}, at least {least}"),
        }
    }

    /// State bits of each block.
    pub fn state_bits(&self) -> Vec<u128> {
        self.blocks.iter().map(|block| block.state_bits).collect()
    }

    /// Why there is, or is not, an extra hop, in one sentence. Layers are numbered from 0.
    pub fn reason(&self) -> String {
        let (Some(first), Some(last)) = (self.earned_by.first(), self.earned_by.last()) else {
            if self.blocks.iter().take(2).any(|block| block.dropping_bits > 0) {
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
        let last = if in_front { self.earned_by.iter().rfind(in_block_0) } else { Some(last) };
        let last = last.unwrap_or(first);
        let layers = if first == last { format!("Layer {first}") } else { format!("Layers {first} to {last}") };
        if self.full == 0 {
            return format!("{layers} could pass the start value on, but there is no full layer to look anything up.");
        }
        // A mixer that is not known to pass values on everywhere still cannot be excluded.
        let verb = if self.at_least == self.rungs { "passes" } else { "may pass" };
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
    fn rungs_of_known_stacks() {
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
            // Mixers beside attention, a window of one token and a layer without a mixer hand nothing on.
            ("full+mamba2 full", 1),
            ("window{size=1} none full full", 1),
            ("full{conv=4} full", 2),
        ] {
            assert_eq!(capacity(text).rungs, rungs, "{text}");
        }
    }

    #[test]
    fn at_least_counts_only_what_has_weights() {
        for (text, at_most, at_least) in [
            // Caches that keep the first tokens never hold the start value.
            ("evicting{policy=prefix} full", 0, 0),
            ("evicting{policy=prefix,size=9} full full", 1, 1),
            ("full evicting{policy=sinks,size=2} full", 1, 1),
            ("evicting{policy=sinks,size=3} full", 1, 1),
            ("evicting{policy=last,size=2} full", 1, 1),
            // What arrives depends on the position.
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
            // Known on both sides.
            ("(gdn*3 full)*12", 12, 12),
            ("full linear full", 2, 2),
            ("full full linear full", 2, 2),
            ("full+mamba2 full", 1, 1),
            ("mamba2*48", 0, 0),
        ] {
            let capacity = capacity(text);
            assert_eq!((capacity.rungs, capacity.at_least), (at_most, at_least), "{text}");
        }
        assert_eq!(capacity("chunked full").claim(), "at most 1 hop, no weights known for any");
        assert_eq!(capacity("full full linear full").claim(), "exactly 2 hops");
        assert_eq!(capacity("dsa full full").claim(), "at most 2 hops, at least 1");
    }

    #[test]
    fn blocks_hold_what_stands_between_full_layers() {
        let capacity = capacity("linear*2 full gdn full full{conv=2} linear");
        let layers: Vec<_> = capacity.blocks.iter().map(|block| block.layers.clone()).collect();
        assert_eq!(layers, [vec![0, 1], vec![3], vec![5], vec![6]]);
        assert_eq!(capacity.earned_by, [0, 1, 3]);
        assert_eq!(capacity.state_bits()[0], 2 * 8 * 64 * 65 * 16);
    }

    #[test]
    fn a_reason_is_found_in_one_pass_over_the_layers() {
        let started = std::time::Instant::now();
        let reason = capacity("(gdn*400000 full)*2").reason();
        assert!(reason.starts_with("Layers 0 to 399999: state before the first full layer"), "{reason}");
        // Every layer compared with every other would take minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn the_layer_that_earns_the_extra_hop_is_named() {
        for (text, carrier) in [
            ("window full full", "window"),
            ("gdn window full", "bounded-state"),
            ("gdn full window full", "recurrent"),
            ("full window full", "window"),
            ("full{conv=4} full", "convolution"),
            ("conv full", "convolution"),
            ("chunked full", "window"),
        ] {
            assert_eq!(capacity(text).carrier, carrier, "{text}");
        }
    }
}
