//! One player at work: its own tokens, and messages.
//!
//! A player runs the ordinary model on its tokens. Two things are different. Softmax sums run from left to right in registers
//! (the largest score so far, the sum of weights, the sum of weighted values), as the theory has them. And what was there before
//! the player's first token comes in as a message: registers for every query of a full layer, states for the others.

use std::cell::{Cell, RefCell};

use rung_engine::{Attention, Native, Ops, Scalar, Tensor};
use rung_theory::stack::Plan;

use super::wire::{Width, Wire};
use crate::trace::layer_of;
use crate::watch::Watch;

/// Where the registers of a full layer come from.
pub(super) enum Source {
    /// From the keys and values of all earlier tokens, which are there; the registers are written down as they cross.
    Cache,
    /// From messages, in the order of calls. Of earlier tokens nothing is there.
    Inbox(Vec<Wire>),
}

/// Attention in registers.
pub(super) struct Registers {
    /// For every layer, whether each of its attention calls reads the whole prefix.
    full: Vec<Vec<bool>>,
    /// Tokens before the player's first.
    seen: Cell<usize>,
    source: RefCell<Source>,
    /// Registers as they crossed, with layer and call.
    crossed: RefCell<Vec<(usize, usize, Wire)>>,
    width: Width,
    layer: Cell<usize>,
    call: Cell<usize>,
}

impl Registers {
    pub(super) fn new(plan: &Plan, width: Width) -> Self {
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
    pub(super) fn crossed(&self) -> Vec<(usize, usize, Wire)> {
        self.crossed.take()
    }

    /// Registers before the player's own tokens, query by query and head by head.
    fn before<S: Scalar>(&self, sums: &Sums<S>, own: usize) -> Vec<S> {
        if self.seen.get() == 0 {
            return sums.each(|_, _| sums.empty());
        }
        let wire = match &mut *self.source.borrow_mut() {
            Source::Inbox(inbox) if !inbox.is_empty() => inbox.remove(0),
            Source::Inbox(_) => return sums.each(|_, _| sums.empty()),
            Source::Cache => {
                let earlier = sums.keys - own;
                let registers = sums.each(|query, head| {
                    let mut registers = sums.empty();
                    (0..earlier).for_each(|key| sums.take_in(&mut registers, query, head, key));
                    settle(&mut registers, self.width);
                    registers
                });
                Wire::of(&registers, self.width)
            }
        };
        let registers = wire.numbers(self.width);
        self.crossed.borrow_mut().push((self.layer.get(), self.call.get(), wire));
        registers
    }
}

impl<S: Scalar> Watch<S> for Registers {
    fn enter(&self, name: &str) {
        self.layer.set(layer_of(name).unwrap_or(usize::MAX));
        self.call.set(0);
    }

    fn attention(&self, ops: &Native<S>, inputs: &Attention<'_, Tensor<S>>) -> Tensor<S> {
        let (layer, call) = (self.layer.get(), self.call.get());
        self.call.set(call + 1);
        if !self.full.get(layer).and_then(|calls| calls.get(call)).copied().unwrap_or(false) {
            return ops.attention(inputs);
        }
        let sums = Sums::new(ops, inputs);
        let own = sums.queries;
        let mut registers = self.before(&sums, own);
        let size = sums.value_width + 2;
        let mut output = Vec::with_capacity(own * sums.heads * sums.value_width);
        for (index, registers) in registers.chunks_exact_mut(size).enumerate() {
            let (query, head) = (index / sums.heads, index % sums.heads);
            for key in sums.keys - own..=sums.keys - own + query {
                sums.take_in(registers, query, head, key);
            }
            let [_, sum, values @ ..] = registers else { unreachable!("registers hold two numbers and the values") };
            output.extend(values.iter().map(|value| *value / *sum));
        }
        ops.constant(&[1, own, sums.heads, sums.value_width], &output)
    }
}

/// Rounds registers to what a message holds. The largest score goes first, and the sums are taken relative to what it becomes.
fn settle<S: Scalar>(registers: &mut [S], width: Width) {
    let largest = width.rounded(registers[0]);
    let scale = (registers[0] - largest).exp();
    registers[0] = largest;
    for number in &mut registers[1..] {
        *number = width.rounded(*number * scale);
    }
}

/// The inputs of an attention, and its sums.
struct Sums<S> {
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

impl<S: Scalar> Sums<S> {
    fn new(ops: &Native<S>, inputs: &Attention<'_, Tensor<S>>) -> Self {
        let (query, key, value) = (ops.shape(inputs.query), ops.shape(inputs.key), ops.shape(inputs.value));
        let bias = inputs.bias.map(|bias| (ops.values(bias), ops.shape(bias)[1], ops.shape(bias)[3]));
        Self {
            query: ops.values(inputs.query),
            key: ops.values(inputs.key),
            value: ops.values(inputs.value),
            bias,
            scale: S::of(inputs.scale),
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

    /// One more key in the registers: the largest score, the sum of weights, the weighted sum of values.
    fn take_in(&self, registers: &mut [S], query: usize, head: usize, key: usize) {
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
