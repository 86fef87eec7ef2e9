//! One player at work: its own tokens, and messages.
//!
//! A player runs the ordinary model on its tokens. Two things are different. Softmax sums run from left to right in registers
//! (the largest score so far, the sum of weights, the sum of weighted values), as the theory has them. And what was there before
//! the player's first token comes in as a message: registers for every query of a full layer, states for the others.
//!
//! Numbers on levels have a range, and scores may be far outside of it. There the message is what the theory allows, a function
//! of what both sides know: the odds of the earlier tokens against the player's own, as a logarithm, and the mean of the earlier
//! values. Odds beyond the range are nearly certain anyway.

use std::cell::{Cell, RefCell};

use rung_engine::{AttentionInputs, Native, Ops, Scalar, Tensor};
use rung_theory::stack::Plan;

use super::wire::{BitString, NumberEncoding};
use crate::model::names;
use crate::observer::OpObserver;

/// Where the registers of a full layer come from.
pub(super) enum Source {
    /// From the keys and values of all earlier tokens, which are there; the registers are written down as they cross.
    Cache,
    /// From messages, in the order of calls. Of earlier tokens nothing is there.
    Inbox(Vec<BitString>),
}

/// Attention in registers.
pub(super) struct Registers {
    /// For every layer, whether each of its attention calls reads the whole prefix.
    full: Vec<Vec<bool>>,
    /// Tokens before the player's first.
    seen: Cell<usize>,
    source: RefCell<Source>,
    /// Registers as they crossed, with layer and call.
    crossed: RefCell<Vec<(usize, usize, BitString)>>,
    width: NumberEncoding,
    layer: Cell<usize>,
    call: Cell<usize>,
}

impl Registers {
    pub(super) fn new(plan: &Plan, width: NumberEncoding) -> Self {
        let calls = |layer: &rung_theory::stack::Layer| {
            let attention = layer.mixers.iter().filter(|mixer| ["full", "window"].contains(&mixer.name()));
            attention.map(|mixer| mixer.name() == "full").collect()
        };
        Self {
            full: plan.layers.iter().map(calls).collect(),
            seen: Cell::new(0),
            source: RefCell::new(Source::Cache),
            crossed: RefCell::default(),
            width,
            layer: Cell::new(0),
            call: Cell::new(0),
        }
    }

    /// The next player sits down.
    pub(super) fn seat(&self, seen: usize, source: Source) {
        self.seen.set(seen);
        *self.source.borrow_mut() = source;
    }

    /// What crossed into the player.
    pub(super) fn crossed(&self) -> Vec<(usize, usize, BitString)> {
        self.crossed.take()
    }

    /// What is said about the tokens before the player's own, as it arrives; nothing if there are none. `say` makes it where they
    /// are known.
    fn received<S: Scalar>(&self, say: impl FnOnce() -> Vec<S>) -> Option<Vec<S>> {
        if self.seen.get() == 0 {
            return None;
        }
        let wire = match &mut *self.source.borrow_mut() {
            Source::Inbox(inbox) if !inbox.is_empty() => inbox.remove(0),
            Source::Inbox(_) => return None,
            Source::Cache => BitString::of(&say(), self.width),
        };
        let numbers = wire.numbers(self.width);
        self.crossed.borrow_mut().push((self.layer.get(), self.call.get(), wire));
        Some(numbers)
    }

    /// The sums go on from the registers of earlier tokens.
    fn through_registers<S: Scalar>(&self, sums: &AttentionSums<S>) -> Vec<S> {
        let earlier = sums.keys - sums.queries;
        let received = self.received(|| {
            sums.each(|query, head| {
                let mut registers = sums.over(sums.empty(), query, head, 0..earlier);
                settle(&mut registers, self.width);
                registers
            })
        });
        sums.each(|query, head| {
            let before =
                received.as_ref().map(|received| sums.part(received, query, head, sums.value_width + 2).to_vec());
            let all = sums.over(before.unwrap_or_else(|| sums.empty()), query, head, earlier..=earlier + query);
            all[2..].iter().map(|value| *value / all[1]).collect()
        })
    }

    /// The player's own sums, and those of earlier tokens by their odds.
    fn merge_by_odds<S: Scalar>(&self, sums: &AttentionSums<S>) -> Vec<S> {
        let earlier = sums.keys - sums.queries;
        let own = |query, head| sums.over(sums.empty(), query, head, earlier..=earlier + query);
        let received = self.received(|| {
            sums.each(|query, head| {
                let (before, own) = (sums.over(sums.empty(), query, head, 0..earlier), own(query, head));
                let odds = before[0] - own[0] + before[1].ln() - own[1].ln();
                std::iter::once(odds).chain(before[2..].iter().map(|value| *value / before[1])).collect()
            })
        });
        sums.each(|query, head| {
            let own = own(query, head);
            let means = own[2..].iter().map(|value| *value / own[1]);
            let Some(received) = &received else { return means.collect() };
            let [odds, before @ ..] = sums.part(received, query, head, sums.value_width + 1) else {
                unreachable!("the odds come before the means")
            };
            let share = odds.sigmoid();
            means.zip(before).map(|(own, before)| own + share * (*before - own)).collect()
        })
    }
}

impl<S: Scalar> OpObserver<S> for Registers {
    fn enter(&self, name: &str) {
        self.layer.set(names::layer_index(name).unwrap_or(usize::MAX));
        self.call.set(0);
    }

    fn attention(&self, ops: &Native<S>, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        let (layer, call) = (self.layer.get(), self.call.get());
        self.call.set(call + 1);
        if !self.full.get(layer).and_then(|calls| calls.get(call)).copied().unwrap_or(false) {
            return ops.attention(inputs);
        }
        let sums = AttentionSums::new(ops, inputs);
        let output = match self.width {
            NumberEncoding::Float(_) => self.through_registers(&sums),
            NumberEncoding::Levels(_) => self.merge_by_odds(&sums),
        };
        ops.constant(&[1, sums.queries, sums.heads, sums.value_width], &output)
    }
}

/// Rounds registers to what a message holds. The largest score goes first, and the sums are taken relative to what it becomes.
fn settle<S: Scalar>(registers: &mut [S], width: NumberEncoding) {
    let largest = width.rounded(registers[0]);
    let scale = (registers[0] - largest).exp();
    registers[0] = largest;
    for number in &mut registers[1..] {
        *number = width.rounded(*number * scale);
    }
}

/// The inputs of an attention, and its sums.
struct AttentionSums<S> {
    query: Vec<S>,
    key: Vec<S>,
    value: Vec<S>,
    bias: Option<(Vec<S>, usize, usize)>,
    scale: S,
    queries: usize,
    keys: usize,
    heads: usize,
    kv: usize,
    key_width: usize,
    value_width: usize,
}

impl<S: Scalar> AttentionSums<S> {
    fn new(ops: &Native<S>, inputs: &AttentionInputs<'_, Tensor<S>>) -> Self {
        let (query, key, value) = (ops.shape(inputs.query), ops.shape(inputs.key), ops.shape(inputs.value));
        let bias = inputs.bias.map(|bias| (ops.values(bias), ops.shape(bias)[1], ops.shape(bias)[3]));
        Self {
            query: ops.values(inputs.query),
            key: ops.values(inputs.key),
            value: ops.values(inputs.value),
            bias,
            scale: S::from_f64(inputs.scale),
            queries: query[1],
            keys: key[1],
            heads: query[2],
            kv: key[2],
            key_width: key[3],
            value_width: value[3],
        }
    }

    fn empty(&self) -> Vec<S> {
        let mut registers = vec![S::ZERO; self.value_width + 2];
        registers[0] = S::LOWEST;
        registers
    }

    fn each(&self, make: impl Fn(usize, usize) -> Vec<S>) -> Vec<S> {
        (0..self.queries)
            .flat_map(|query| (0..self.heads).map(move |head| (query, head)))
            .flat_map(|(query, head)| make(query, head))
            .collect()
    }

    /// Registers after some more keys.
    fn over(&self, mut registers: Vec<S>, query: usize, head: usize, keys: impl Iterator<Item = usize>) -> Vec<S> {
        keys.for_each(|key| self.add_key(&mut registers, query, head, key));
        registers
    }

    /// The numbers of one query and head, of `size` each.
    fn part<'a>(&self, numbers: &'a [S], query: usize, head: usize, size: usize) -> &'a [S] {
        let first = (query * self.heads + head) * size;
        &numbers[first..first + size]
    }

    /// One more key in the registers: the largest score, the sum of weights, the weighted sum of values.
    fn add_key(&self, registers: &mut [S], query: usize, head: usize, key: usize) {
        let kv = head * self.kv / self.heads;
        let first = (query * self.heads + head) * self.key_width;
        let asks = &self.query[first..first + self.key_width];
        let first = (key * self.kv + kv) * self.key_width;
        let mut score = S::ZERO;
        for (asked, has) in asks.iter().zip(&self.key[first..first + self.key_width]) {
            score = asked.mul_add(*has, score);
        }
        score *= self.scale;
        if let Some((bias, heads, keys)) = &self.bias {
            // Penalties may be given for more keys than there are; the last ones are ours.
            let (head, place) = (if *heads == 1 { 0 } else { head }, key + keys - self.keys);
            score += bias[(head * self.queries + query) * keys + place];
        }
        let largest = registers[0].larger(score);
        let fade = if registers[0] == S::LOWEST { S::ZERO } else { (registers[0] - largest).exp() };
        let weight = (score - largest).exp();
        registers[0] = largest;
        registers[1] = registers[1].mul_add(fade, weight);
        let first = (key * self.kv + kv) * self.value_width;
        for (register, value) in registers[2..].iter_mut().zip(&self.value[first..]) {
            *register = register.mul_add(fade, weight * *value);
        }
    }
}
