//! Shortcuts: how small tables allow more hops than full layers, in the abstract model of the bounds.
//!
//! # Claim
//! In the abstract model (any recurrence with S bits, any message of B bits) each of these advances the query w by more than one hop per
//! full layer. V_l = ceil(log N_{l-1}) is the number of bits of i_l.
//!
//! - S2, table in state: a block with S >= V_a + sum_{l=a+1..b} N_{l-1} V_l advances w from hop a to hop b.
//! - S3, prefetch: table entries look up later tables themselves. After t full layers an entry can hold a g-hop table, g <= 2^t,
//!   if n_{a+1} .. n_{a+g-1} V_{a+g} <= B; then the next full layer advances w from a to a+g.
//! - S4, speculation: B >= V_{a+1} + N_a V_{a+2} advances w by two hops in one layer; B >= (m+1) ceil(log m) sends all of z_1 with z_0.
//! - S5, candidates: s_0 >= m ceil(log ceil(m/q)) + ceil(log m) and B >= q V_2 + V_1 for some q: the first full layer yields i_2.
//! - S6, candidates and rows (two hops, one full layer): block 0 narrows z_1 down as in S5 for a of its arguments; the entries of the
//!   other arguments look up their rows of z_2 themselves (n_1 V_2 <= B), and block 1 passes those rows on: s_0 >= a ceil(log ceil(m/q)) + ceil(log m),
//!   B >= q V_2 + V_1, s_1 >= (m - a) n_1 V_2 + 2 V_2.
//! - S7, a state used twice (two hops, one full layer): up to the start of z_1 the state holds h rows of z_2; at the end of z_1 it
//!   holds, for every argument, the group of candidates that its value belongs to: s_0 >= max(h n_1 V_2, m ceil(log(1 + ceil((m-h)/q)))) +
//!   ceil(log m), B >= q V_2 + V_1. This fits at the borders between tables, which are all that the bounds count; a real recurrence would have
//!   to hold rows and candidates at once while it reads z_1.
//!
//! # Conditions
//! B and S are upper limits and no weights are given: a shortcut shows that no certificate of this kind can exist,
//! not that the stack can solve the task.
//!
//! # Vacuous when
//! Tables are large compared with the state and the message: then only one hop per layer remains.
//!
//! # Source
//! Ours; S5 shows the two-hop bound to be tight up to rounding.

use num_bigint::BigUint;

use super::tables::{TableSizes, ceil_log2};
use crate::stack::Capacity;
use crate::stack::capacity::LayerBlock;

/// One layer's step of the query towards the last hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// `S2`..`S7`, or none for an ordinary look-up or forwarded value.
    pub shortcut: Option<&'static str>,
    /// A description of the step.
    pub text: String,
}

/// The steps by which w reaches the last hop in the abstract model; none if it cannot.
///
/// If no step is a shortcut, the hops are within the stack's rungs.
pub fn find_steps(capacity: &Capacity, tables: &TableSizes) -> Option<Vec<Step>> {
    let hops = tables.hops();
    let mut search = ShortcutSearch { tables, message_bits: capacity.message_bits.into(), paths: vec![None; hops + 2] };
    search.paths[0] = Some(Vec::new());
    // A cache that keeps only the first tokens and is full at the end of z_L holds nothing of the other tables.
    let is_full = |block: &LayerBlock| *tables.size(hops - 1) >= BigUint::from(block.first_tokens_cache_length);
    let usable_bits = |block: &LayerBlock| if is_full(block) { block.forwarding_bits() } else { block.state_bits };
    for (e, block) in capacity.blocks.iter().enumerate() {
        if e > 0 {
            search.add_full_layer(e, usable_bits(&capacity.blocks[0]));
        }
        search.add_block(e, &usable_bits(block).into());
    }
    if let ([before, after], 2) = (&capacity.blocks[..], hops) {
        search.add_two_hop_paths(usable_bits(before), usable_bits(after));
    }
    search.paths.pop().flatten()
}

/// Searches, layer by layer, for the values that w can know.
struct ShortcutSearch<'a> {
    tables: &'a TableSizes,
    message_bits: BigUint,
    /// `paths[a + 1]`: the steps after which w knows i_a; `paths[0]`: w knows nothing, not even z_0.
    paths: Vec<Option<Vec<Step>>>,
}

impl ShortcutSearch<'_> {
    fn hops(&self) -> usize {
        self.tables.hops()
    }

    /// V_l: bits of i_l.
    fn value_bits(&self, l: usize) -> BigUint {
        self.tables.value_bits(l).into()
    }

    /// Records a path to hop `to`, unless one with as few shortcuts is known.
    fn add_path(next: &mut [Option<Vec<Step>>], prefix: &[Step], to: usize, step: Step) {
        let path: Vec<Step> = prefix.iter().cloned().chain([step]).collect();
        let shortcut_count = |path: &[Step]| path.iter().filter(|step| step.shortcut.is_some()).count();
        let known_path = &mut next[to + 1];
        if known_path.as_ref().is_none_or(|known| shortcut_count(&path) < shortcut_count(known)) {
            *known_path = Some(path);
        }
    }

    /// Adds the paths through block e, which has `state` bits.
    fn add_block(&mut self, e: usize, state: &BigUint) {
        let mut next = self.paths.clone();
        for from in 0..self.paths.len() {
            let Some(path) = self.paths[from].clone() else { continue };
            // From hop a (from - 1); from no value at all, the state needs as many bits as from z_0.
            let a = from.saturating_sub(1);
            if from == 0 && *state >= self.value_bits(0) {
                let text = format!("block {e} forwards z_0 to w");
                Self::add_path(&mut next, &path, 0, Step { shortcut: None, text });
            }
            if from == 0 && e > 0 && *state >= self.value_bits(1) {
                let text = format!("z_0 looks up z_1, block {e} forwards i_1 to w");
                Self::add_path(&mut next, &path, 1, Step { shortcut: None, text });
            }
            let mut needed_bits = self.value_bits(a);
            for b in a + 1..=self.hops() {
                needed_bits += self.tables.size(b - 1) * self.value_bits(b);
                if needed_bits > *state {
                    break;
                }
                let text = format!("block {e} holds tables {} to {b}: {needed_bits} of {state} bits", a + 1);
                Self::add_path(&mut next, &path, b, Step { shortcut: Some("S2"), text });
            }
        }
        self.paths = next;
    }

    /// Adds the paths through full layer t, counted from 1.
    fn add_full_layer(&mut self, t: usize, first_state: u128) {
        let mut next = self.paths.clone();
        let hops = self.hops();
        for from in 0..self.paths.len() {
            let Some(path) = self.paths[from].clone() else { continue };
            if from <= hops {
                let text = if from == 0 { "w reads z_0".to_owned() } else { format!("w looks up z_{from}") };
                Self::add_path(
                    &mut next,
                    &path,
                    from,
                    Step { shortcut: None, text: format!("full layer {}: {text}", t - 1) },
                );
            }
            if from == 0 {
                let needed_bits = (&self.tables.m + 1_u8) * self.value_bits(0);
                if needed_bits <= self.message_bits {
                    let text =
                        format!("full layer {}: the message carries z_0 and all of z_1, {needed_bits} bits", t - 1);
                    Self::add_path(&mut next, &path, 1, Step { shortcut: Some("S4"), text });
                }
                continue;
            }
            let a = from - 1;
            self.add_prefetch_paths(&mut next, &path, a, t);
            if a + 2 <= hops {
                let needed_bits = self.value_bits(a + 1) + self.tables.size(a) * self.value_bits(a + 2);
                if needed_bits <= self.message_bits {
                    let text =
                        format!("full layer {}: the message carries a row of z_{}, {needed_bits} bits", t - 1, a + 2);
                    Self::add_path(&mut next, &path, a + 2, Step { shortcut: Some("S4"), text });
                }
            }
            if t == 1 && a == 0 && hops >= 2 && self.candidates_fit(first_state) {
                let text = "full layer 0: block 0 narrows i_1 to a few candidates, the message carries all of theirs";
                Self::add_path(&mut next, &path, 2, Step { shortcut: Some("S5"), text: text.to_owned() });
            }
        }
        self.paths = next;
    }

    /// Adds the paths of S3.
    fn add_prefetch_paths(&self, next: &mut [Option<Vec<Step>>], path: &[Step], a: usize, t: usize) {
        let max_hops = if t > 6 { 64 } else { 1 << (t - 1) };
        let mut rows = BigUint::from(1_u8);
        for g in 2..=max_hops {
            if a + g > self.hops() {
                return;
            }
            rows *= &self.tables.n[a + g - 2];
            let needed_bits = &rows * self.value_bits(a + g);
            if needed_bits > self.message_bits {
                return;
            }
            let text =
                format!("full layer {}: entries of z_{} hold {g}-hop tables of {needed_bits} bits", t - 1, a + 1);
            Self::add_path(next, path, a + g, Step { shortcut: Some("S3"), text });
        }
    }

    /// Whether both conditions of S5 hold for some q: the largest q that the message allows needs the smallest state.
    fn candidates_fit(&self, first_state: u128) -> bool {
        let Some(q) = self.max_candidates() else { return false };
        let classes = ceil_div(&self.tables.m, &q);
        BigUint::from(first_state) >= &self.tables.m * ceil_log2(&classes) + self.value_bits(0)
    }

    /// The largest q with B >= q V_2 + V_1, at most m; none if even one candidate does not fit.
    fn max_candidates(&self) -> Option<BigUint> {
        let (m, second_value_bits) = (&self.tables.m, self.value_bits(2));
        let free_bits =
            if self.message_bits > self.value_bits(1) { &self.message_bits - self.value_bits(1) } else { return None };
        let q =
            if second_value_bits == BigUint::ZERO { m.clone() } else { (free_bits / second_value_bits).min(m.clone()) };
        Some(q).filter(|q| *q > BigUint::ZERO)
    }

    /// Adds the paths of S6 and S7.
    fn add_two_hop_paths(&mut self, first_state: u128, last_state: u128) {
        let (Some(start), Some(q)) = (self.paths[0].clone(), self.max_candidates()) else { return };
        let (m, row_bits) = (self.tables.m.clone(), &self.tables.n[0] * self.value_bits(2));
        let (before, after) = (BigUint::from(first_state), BigUint::from(last_state));
        if before < self.value_bits(0) {
            return;
        }
        let free_bits = before - self.value_bits(0);
        let bits_per_argument = ceil_log2(&ceil_div(&m, &q));
        let narrowed_arguments =
            if bits_per_argument == 0 { m.clone() } else { (&free_bits / bits_per_argument).min(m.clone()) };
        let other_arguments = &m - &narrowed_arguments;
        let mut next = self.paths.clone();
        if row_bits <= self.message_bits && after >= &other_arguments * &row_bits + 2_u8 * self.value_bits(2) {
            let text = format!(
                "block 0 narrows z_1 down for {narrowed_arguments} arguments, block 1 brings the rows of the other {other_arguments}"
            );
            Self::add_path(&mut next, &start, 2, Step { shortcut: Some("S6"), text });
        }
        let stored_rows = if row_bits == BigUint::ZERO { m.clone() } else { (&free_bits / &row_bits).min(m.clone()) };
        let classes = ceil_div(&(&m - &stored_rows), &q) + 1_u8;
        if free_bits >= &m * ceil_log2(&classes) {
            let text = format!(
                "block 0 brings {stored_rows} rows of z_2 up to z_1, then narrows z_1 down (between the tables only)"
            );
            Self::add_path(&mut next, &start, 2, Step { shortcut: Some("S7"), text });
        }
        self.paths = next;
    }
}

fn ceil_div(number: &BigUint, divisor: &BigUint) -> BigUint {
    (number + divisor - 1_u8) / divisor
}

/// The sizes that the cheapest shortcuts would need, compared with the stack's; there may also be too few layers.
pub fn missing_sizes(capacity: &Capacity, tables: &TableSizes) -> String {
    let table_bits: BigUint = (&tables.m + 1_u8) * tables.value_bits(0);
    let (state, message) = (BigUint::from(capacity.blocks[0].state_bits), BigUint::from(capacity.message_bits));
    let mut missing = Vec::new();
    if table_bits > state {
        missing.push(format!("S2 would need {table_bits} bits in block 0, which has {state}"));
    }
    let cheapest = (2..tables.hops()).map(|e| (&tables.n[e - 1] * tables.value_bits(e + 1), e)).min();
    if let Some((need, e)) = cheapest.filter(|(need, _)| *need > message) {
        missing.push(format!("S3 would need messages of {need} bits at hop {e}, they have {message}"));
    }
    if missing.is_empty() {
        let (full, hops) = (capacity.full_layers, tables.hops());
        missing.push(format!("shortcuts from {full} full layers do not add up to {hops} hops"));
    }
    missing.join("; ")
}
