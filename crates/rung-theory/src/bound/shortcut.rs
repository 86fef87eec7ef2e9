//! Shortcuts: ways to beat the hop count when tables are small, in the model of the bounds.
//!
//! # Claim
//! In the abstract model (any recurrence with S bits, any message of B bits) these take the query w further than one hop per
//! full layer. V_l = ceil(log N_{l-1}) is the number of bits of i_l.
//!
//! - S2, table in state: a block with S >= V_a + sum_{l=a+1..b} N_{l-1} V_l takes w from hop a to hop b.
//! - S3, prefetch: entries look ahead while w is busy. After t-1 full layers an entry can hold a g-hop table, g <= 2^(t-1),
//!   if n_{a+1} .. n_{a+g-1} V_{a+g} <= B; then layer t takes w from a to a+g.
//! - S4, speculation: B >= V_{a+1} + N_a V_{a+2} takes w two hops in one layer; B >= (m+1) ceil(log m) ships z_1 with z_0.
//! - S5, candidates: s_0 >= m ceil(log ceil(m/q)) + ceil(log m) and B >= q V_2 + V_1 for some q: layer 1 yields i_2.
//! - S6, candidates and rows (two hops, one full layer): block 0 narrows z_1 down as in S5 for some arguments a; the entries of the
//!   others look ahead (n_1 V_2 <= B), and block 1 brings their rows: s_0 >= a ceil(log ceil(m/q)) + ceil(log m),
//!   B >= q V_2 + V_1, s_1 >= (m - a) n_1 V_2 + 2 V_2.
//! - S7, a state used twice (two hops, one full layer): up to the start of z_1 the state brings h rows of z_2, at its end it holds,
//!   of every argument, which of the candidates its value is among: s_0 >= max(h n_1 V_2, m ceil(log(1 + ceil((m-h)/q)))) +
//!   ceil(log m), B >= q V_2 + V_1. This works between the tables, where the bounds look; a recurrence would have to hold rows and
//!   candidates at once while it reads z_1.
//!
//! # Conditions
//! B and S are counted generously and the weights are not given: a shortcut shows that no certificate of this kind can exist,
//! not that the stack does it.
//!
//! # Vacuous when
//! Tables are large against the state and the message: then only one hop per layer remains.
//!
//! # Source
//! Ours; S5 shows the two-hop bound to be tight up to rounding.

use num_bigint::BigUint;

use super::tables::{TableSizes, ceil_log2};
use crate::stack::Capacity;
use crate::stack::capacity::LayerBlock;

/// One step of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// `S2`..`S7`, or none for an ordinary hop or carry.
    pub shortcut: Option<&'static str>,
    /// What happens, for people.
    pub text: String,
}

/// The way by which w reaches the last hop in the abstract model, if there is one.
///
/// Ordinary steps alone mean that the hops are within the stack's rungs.
pub fn way(capacity: &Capacity, tables: &TableSizes) -> Option<Vec<Step>> {
    let hops = tables.hops();
    let mut walk = ShortcutSearch { tables, message: capacity.message_bits.into(), known: vec![None; hops + 2] };
    walk.known[0] = Some(Vec::new());
    // A cache that is full at the end of z_L holds nothing of the other tables.
    let filled = |block: &LayerBlock| *tables.size(hops - 1) >= BigUint::from(block.filled_after);
    let usable = |block: &LayerBlock| if filled(block) { block.carrying_bits() } else { block.state_bits };
    for (e, block) in capacity.blocks.iter().enumerate() {
        if e > 0 {
            walk.full_layer(e, usable(&capacity.blocks[0]));
        }
        walk.block(e, &usable(block).into());
    }
    if let ([before, after], 2) = (&capacity.blocks[..], hops) {
        walk.two_hops(usable(before), usable(after));
    }
    walk.known.pop().flatten()
}

/// How w came to know i_a; `known[a + 1]`, since w starts without z_0.
struct ShortcutSearch<'a> {
    tables: &'a TableSizes,
    message: BigUint,
    known: Vec<Option<Vec<Step>>>,
}

impl ShortcutSearch<'_> {
    fn hops(&self) -> usize {
        self.tables.hops()
    }

    fn bits(&self, l: usize) -> BigUint {
        self.tables.value_bits(l).into()
    }

    /// Records a way to hop `to`, unless a shorter or more ordinary one is known.
    fn learn(next: &mut [Option<Vec<Step>>], from: &[Step], to: usize, step: Step) {
        let way: Vec<Step> = from.iter().cloned().chain([step]).collect();
        let cost = |way: &[Step]| way.iter().filter(|step| step.shortcut.is_some()).count();
        let slot = &mut next[to + 1];
        if slot.as_ref().is_none_or(|old| cost(&way) < cost(old)) {
            *slot = Some(way);
        }
    }

    fn block(&mut self, e: usize, state: &BigUint) {
        let mut next = self.known.clone();
        for from in 0..self.known.len() {
            let Some(way) = self.known[from].clone() else { continue };
            // From hop a (from - 1), or from nothing, which costs the same as from z_0.
            let a = from.saturating_sub(1);
            if from == 0 && *state >= self.bits(0) {
                let text = format!("block {e} hands z_0 to w");
                Self::learn(&mut next, &way, 0, Step { shortcut: None, text });
            }
            if from == 0 && e > 0 && *state >= self.bits(1) {
                let text = format!("z_0 looks up z_1, block {e} hands i_1 to w");
                Self::learn(&mut next, &way, 1, Step { shortcut: None, text });
            }
            let mut need = self.bits(a);
            for b in a + 1..=self.hops() {
                need += self.tables.size(b - 1) * self.bits(b);
                if need > *state {
                    break;
                }
                let text = format!("block {e} holds tables {} to {b}: {need} of {state} bits", a + 1);
                Self::learn(&mut next, &way, b, Step { shortcut: Some("S2"), text });
            }
        }
        self.known = next;
    }

    fn full_layer(&mut self, t: usize, first_state: u128) {
        let mut next = self.known.clone();
        let hops = self.hops();
        for from in 0..self.known.len() {
            let Some(way) = self.known[from].clone() else { continue };
            if from <= hops {
                let text = if from == 0 { "w reads z_0".to_owned() } else { format!("w looks up z_{from}") };
                Self::learn(
                    &mut next,
                    &way,
                    from,
                    Step { shortcut: None, text: format!("full layer {}: {text}", t - 1) },
                );
            }
            if from == 0 {
                let need = (&self.tables.m + 1_u8) * self.bits(0);
                if need <= self.message {
                    let text = format!("full layer {}: the message carries z_0 and all of z_1, {need} bits", t - 1);
                    Self::learn(&mut next, &way, 1, Step { shortcut: Some("S4"), text });
                }
                continue;
            }
            let a = from - 1;
            self.prefetch(&mut next, &way, a, t);
            if a + 2 <= hops {
                let need = self.bits(a + 1) + self.tables.size(a) * self.bits(a + 2);
                if need <= self.message {
                    let text = format!("full layer {}: the message carries a row of z_{}, {need} bits", t - 1, a + 2);
                    Self::learn(&mut next, &way, a + 2, Step { shortcut: Some("S4"), text });
                }
            }
            if t == 1 && a == 0 && hops >= 2 && self.candidates(first_state) {
                let text = "full layer 0: block 0 narrows i_1 to a few candidates, the message carries all of theirs";
                Self::learn(&mut next, &way, 2, Step { shortcut: Some("S5"), text: text.to_owned() });
            }
        }
        self.known = next;
    }

    fn prefetch(&self, next: &mut [Option<Vec<Step>>], way: &[Step], a: usize, t: usize) {
        let reach = if t > 6 { 64 } else { 1 << (t - 1) };
        let mut rows = BigUint::from(1_u8);
        for g in 2..=reach {
            if a + g > self.hops() {
                return;
            }
            rows *= &self.tables.n[a + g - 2];
            let need = &rows * self.bits(a + g);
            if need > self.message {
                return;
            }
            let text = format!("full layer {}: entries of z_{} hold {g}-hop tables of {need} bits", t - 1, a + 1);
            Self::learn(next, way, a + g, Step { shortcut: Some("S3"), text });
        }
    }

    /// Whether S5's two conditions hold for some q: the largest that the message allows asks least of the state.
    fn candidates(&self, first_state: u128) -> bool {
        let Some(q) = self.most_candidates() else { return false };
        let classes = ceil_div(&self.tables.m, &q);
        BigUint::from(first_state) >= &self.tables.m * ceil_log2(&classes) + self.bits(0)
    }

    /// The largest q with B >= q V_2 + V_1, at most m; none if even one candidate is too many.
    fn most_candidates(&self) -> Option<BigUint> {
        let (m, second) = (&self.tables.m, self.bits(2));
        let room = if self.message > self.bits(1) { &self.message - self.bits(1) } else { return None };
        let q = if second == BigUint::ZERO { m.clone() } else { (room / second).min(m.clone()) };
        Some(q).filter(|q| *q > BigUint::ZERO)
    }

    /// S6 and S7.
    fn two_hops(&mut self, first_state: u128, last_state: u128) {
        let (Some(start), Some(q)) = (self.known[0].clone(), self.most_candidates()) else { return };
        let (m, row) = (self.tables.m.clone(), &self.tables.n[0] * self.bits(2));
        let (before, after) = (BigUint::from(first_state), BigUint::from(last_state));
        if before < self.bits(0) {
            return;
        }
        let room = before - self.bits(0);
        let each = ceil_log2(&ceil_div(&m, &q));
        let narrowed = if each == 0 { m.clone() } else { (&room / each).min(m.clone()) };
        let rows = &m - &narrowed;
        let mut next = self.known.clone();
        if row <= self.message && after >= &rows * &row + 2_u8 * self.bits(2) {
            let text = format!(
                "block 0 narrows z_1 down for {narrowed} arguments, block 1 brings the rows of the other {rows}"
            );
            Self::learn(&mut next, &start, 2, Step { shortcut: Some("S6"), text });
        }
        let brought = if row == BigUint::ZERO { m.clone() } else { (&room / &row).min(m.clone()) };
        let classes = ceil_div(&(&m - &brought), &q) + 1_u8;
        if room >= &m * ceil_log2(&classes) {
            let text = format!(
                "block 0 brings {brought} rows of z_2 up to z_1, then narrows z_1 down (between the tables only)"
            );
            Self::learn(&mut next, &start, 2, Step { shortcut: Some("S7"), text });
        }
        self.known = next;
    }
}

fn ceil_div(number: &BigUint, by: &BigUint) -> BigUint {
    (number + by - 1_u8) / by
}

/// What the cheapest shortcuts would need that the stack does not have; they may also lack layers.
pub fn nearest(capacity: &Capacity, tables: &TableSizes) -> String {
    let table: BigUint = (&tables.m + 1_u8) * tables.value_bits(0);
    let (state, message) = (BigUint::from(capacity.blocks[0].state_bits), BigUint::from(capacity.message_bits));
    let mut lacks = Vec::new();
    if table > state {
        lacks.push(format!("S2 would need {table} bits in block 0, which has {state}"));
    }
    let cheapest = (2..tables.hops()).map(|e| (&tables.n[e - 1] * tables.value_bits(e + 1), e)).min();
    if let Some((need, e)) = cheapest.filter(|(need, _)| *need > message) {
        lacks.push(format!("S3 would need messages of {need} bits at hop {e}, they have {message}"));
    }
    if lacks.is_empty() {
        let (full, hops) = (capacity.full, tables.hops());
        lacks.push(format!("shortcuts from {full} full layers do not add up to {hops} hops"));
    }
    lacks.join("; ")
}
