//! The hop capacity of a stack: full layers, blocks, and the hop that a well-placed bounded-state layer adds.
//!
//! # Claim
//! Let F be the number of full-attention layers, and c = 1 if a bounded-state layer stands before the first of them or
//! between the first and the second, else 0. For sizes polylogarithmic in the number of tokens n, n large, and suitable
//! tables: L-step function composition is solvable in one forward pass if and only if L <= F + c - 1. That number is
//! the stack's *rungs*.
//!
//! # Conditions
//! One causal forward pass, any weights, arithmetic of p bits; no chain of thought. Mixers beside attention in the same
//! layer never earn the extra hop; a convolution in front of a full layer's projections belongs to the block before it.
//!
//! # Vacuous when
//! Never as a count, but it is asymptotic: `rung bound` and `rung decide` say what holds at a given size.
//!
//! # Source
//! Chen, Peng and Wu (2412.02975); Ye et al. (2602.01763); the exact place of the extra hop is worked out in the guide.

use super::plan::{Convention, Plan};

/// The bounded-state layers between two full ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Indices (from 0) of its layers. A full layer is listed if a convolution in front of it belongs here.
    pub layers: Vec<usize>,
    /// Bits that cross from token to token in them.
    pub state_bits: u128,
}

/// What the hierarchy theorem counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Full-attention layers.
    pub full: usize,
    /// Whether a bounded-state layer earns the extra hop.
    pub extra_hop: bool,
    /// Indices (from 0) of the layers that earn it.
    pub earned_by: Vec<usize>,
    /// Hops of function composition: full + extra - 1, and never below 0.
    pub rungs: usize,
    /// Block e stands after the e-th full layer, block 0 before the first.
    pub blocks: Vec<Block>,
    /// Bits of the mixers beside each full layer.
    pub beside_bits: Vec<u128>,
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
        let mut blocks = vec![Block::default()];
        let mut beside_bits = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let last = blocks.last_mut().unwrap_or_else(|| unreachable!("there is always a block"));
            let bits = if layer.is_full() { layer.front_bits() } else { layer.state_bits() };
            if bits > 0 {
                last.layers.push(index);
                last.state_bits += bits;
            }
            if layer.is_full() {
                beside_bits.push(layer.state_bits());
                blocks.push(Block::default());
            }
        }
        let full = beside_bits.len();
        let earned_by: Vec<usize> = blocks.iter().take(2).flat_map(|block| block.layers.clone()).collect();
        let extra_hop = !earned_by.is_empty();
        Capacity {
            full,
            extra_hop,
            earned_by,
            rungs: (full + usize::from(extra_hop)).saturating_sub(1),
            blocks,
            beside_bits,
            message_bits: self.message_bits(convention),
        }
    }
}

impl Capacity {
    /// State bits of each block.
    pub fn state_bits(&self) -> Vec<u128> {
        self.blocks.iter().map(|block| block.state_bits).collect()
    }

    /// Why there is, or is not, an extra hop: one sentence for people.
    pub fn reason(&self) -> String {
        let before = &self.blocks[0].layers;
        let after = self.blocks.get(1).map_or(&[][..], |block| &block.layers);
        let earned = if before.is_empty() { after } else { before };
        let (Some(first), Some(last)) = (earned.first(), earned.last()) else {
            return "No layer with state stands before the first full layer or between the first and the second, so \
                    one full layer is spent on finding the start value."
                .to_owned();
        };
        let (first, last) = (first + 1, last + 1);
        let layers = if first == last { format!("Layer {first}") } else { format!("Layers {first} to {last}") };
        if self.full == 0 {
            return format!("{layers} could hand on a start value, but no full layer is there to look anything up.");
        }
        if before.is_empty() {
            format!("{layers}: state right after the first full layer hands the first result to the query.")
        } else {
            format!("{layers}: state before the first full layer hands the start value to the query.")
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
    fn blocks_hold_what_stands_between_full_layers() {
        let capacity = capacity("linear*2 full gdn full full{conv=2} linear");
        let layers: Vec<_> = capacity.blocks.iter().map(|block| block.layers.clone()).collect();
        assert_eq!(layers, [vec![0, 1], vec![3], vec![5], vec![6]]);
        assert_eq!(capacity.earned_by, [0, 1, 3]);
        assert_eq!(capacity.state_bits()[0], 2 * 8 * 64 * 65 * 16);
    }
}
