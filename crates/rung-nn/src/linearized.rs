//! An executor that holds gates still, so that a forward pass becomes one linear operator.
//!
//! A model is not linear, but on one input it can be read as if it were: hold everything fixed that was *computed* from the input
//! to *steer* what happens to it — attention weights, gates, decays, the scale of every norm, the slope of every activation, what
//! was selected — and what is left is affine, `y = T x + b`, and gives the same output on that input. No derivative is taken.
//!
//! [`LinearizedOps`] runs any model like that. The first pass *records*: every tensor is either **live**, an affine function of what was
//! put in ([`LinearizedOps::track`]), or **still**. An operation on live tensors that is not affine is made so:
//!
//! | operation | live | held still |
//! |---|---|---|
//! | attention, recurrences | values, states | queries, keys, decays, strengths, biases |
//! | norms | the input | the factor it is divided by |
//! | ReLU, GELU, SiLU | the input | output over input |
//! | gate times x | x | the gate |
//! | product of two live ones | the right one | the left one |
//! | any other function | – | its result |
//!
//! Later passes *replay*: they take what was held still from the first one, in the same order, whatever they are fed. So
//! `T` is applied without ever being built, and it is exact by construction that the parts of an input give parts that sum up to
//! the output. Which of two live factors is held still is a convention: the sum is the same.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use rung_engine::{
    AccumulatorRounding, AttentionInputs, Binary, BlockAttention, Decay, GeneralDelta, Native, Ops, Parameter,
    Recurrence, Scalar, Shape, Tensor, Unary, delegate_ops,
};

/// A tensor that is an affine function of what was put in, or one that is not.
#[derive(Clone)]
pub struct LinearizedTensor<S: Scalar> {
    x: Tensor<S>,
    live: bool,
}

/// What is held still.
enum FrozenValue<S: Scalar> {
    Tensor(Tensor<S>),
    Values(Vec<S>),
}

/// The executor.
pub struct LinearizedOps<S: Scalar> {
    native: Native<S>,
    kept: RefCell<Vec<FrozenValue<S>>>,
    /// What comes next of what was kept; none while recording.
    next: Cell<Option<usize>>,
}

impl<S: Scalar> LinearizedOps<S> {
    /// An executor that records.
    pub fn new(native: Native<S>) -> Self {
        Self { native, kept: RefCell::new(Vec::new()), next: Cell::new(None) }
    }

    /// What runs.
    pub fn native(&self) -> &Native<S> {
        &self.native
    }

    /// From now on, and from the beginning, what was recorded is taken again.
    pub fn rewind(&self) {
        self.next.set(Some(0));
    }

    /// The same values, as something that the result is a function of.
    pub fn track(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        LinearizedTensor { x: x.x.clone(), live: true }
    }

    /// A weight that the result is a function of, with a gradient.
    pub fn leaf(&self, id: Parameter) -> LinearizedTensor<S> {
        LinearizedTensor { x: self.native.parameter(id), live: true }
    }

    /// The tensor itself, with its gradient.
    pub fn tensor<'a>(&self, x: &'a LinearizedTensor<S>) -> &'a Tensor<S> {
        &x.x
    }

    fn keep(&self, make: impl FnOnce() -> FrozenValue<S>) -> FrozenValue<S> {
        if let Some(at) = self.next.get() {
            self.next.set(Some(at + 1));
            return match &self.kept.borrow()[at] {
                FrozenValue::Tensor(x) => FrozenValue::Tensor(x.clone()),
                FrozenValue::Values(x) => FrozenValue::Values(x.clone()),
            };
        }
        let fresh = make();
        self.kept.borrow_mut().push(match &fresh {
            FrozenValue::Tensor(x) => FrozenValue::Tensor(x.clone()),
            FrozenValue::Values(x) => FrozenValue::Values(x.clone()),
        });
        fresh
    }

    /// What `make` gave when it was recorded, without gradient.
    fn hold(&self, make: impl FnOnce() -> Tensor<S>) -> Tensor<S> {
        match self.keep(|| FrozenValue::Tensor(self.native.detach(&make()))) {
            FrozenValue::Tensor(x) => x,
            FrozenValue::Values(_) => unreachable!("a replay goes the way of the record"),
        }
    }

    /// A tensor as it was when recorded.
    fn still(&self, x: &LinearizedTensor<S>) -> Tensor<S> {
        if x.live { self.hold(|| x.x.clone()) } else { x.x.clone() }
    }

    /// A result that is held still if an input is live.
    fn stilled(&self, live: bool, make: impl FnOnce() -> Tensor<S>) -> LinearizedTensor<S> {
        LinearizedTensor { x: if live { self.hold(make) } else { make() }, live: false }
    }

    /// `x` times what `function` makes of it over x; `limit` at zero.
    fn by_ratio(
        &self,
        x: &LinearizedTensor<S>,
        limit: f64,
        function: impl FnOnce(&Tensor<S>) -> Tensor<S>,
    ) -> LinearizedTensor<S> {
        if !x.live {
            return LinearizedTensor { x: function(&x.x), live: false };
        }
        let ratio = self.hold(|| {
            let (from, to) = (self.native.values(&x.x), self.native.values(&function(&x.x)));
            let ratio = |(from, to): (&S, &S)| {
                if from.to_f64().abs() < 1e-12 { S::from_f64(limit) } else { S::from_f64(to.to_f64() / from.to_f64()) }
            };
            let ratios: Vec<S> = from.iter().zip(&to).map(ratio).collect();
            self.native.constant(&self.native.shape(&x.x), &ratios)
        });
        LinearizedTensor { x: self.native.mul(&x.x, &ratio), live: true }
    }

    /// `x` divided by the root of its squares over the last axis, times factor, plus epsilon; the root is held still.
    fn by_root(&self, x: &Tensor<S>, factor: f64, epsilon: f64) -> Tensor<S> {
        let native = &self.native;
        let root = self.hold(|| {
            let squares = native.sum(&native.mul(x, x), native.shape(x).len() - 1);
            native.sqrt(&native.affine(&squares, factor, epsilon))
        });
        native.div(x, &root)
    }

    /// A linear function of one tensor.
    fn moved(x: &LinearizedTensor<S>, function: impl FnOnce(&Tensor<S>) -> Tensor<S>) -> LinearizedTensor<S> {
        LinearizedTensor { x: function(&x.x), live: x.live }
    }

    /// An operation that is linear in what `live` says as long as nothing is rounded, and returns two tensors.
    fn pair(
        &self,
        (steered, live, rounds): (bool, bool, bool),
        run: impl Fn(bool) -> (Tensor<S>, Tensor<S>),
    ) -> (LinearizedTensor<S>, LinearizedTensor<S>) {
        let part = |x: Tensor<S>, live: bool| LinearizedTensor { x, live };
        if !live {
            if !steered {
                let (out, state) = run(rounds);
                return (part(out, false), part(state, false));
            }
            let made = Cell::new(None);
            let out = self.hold(|| {
                let (out, state) = run(rounds);
                made.set(Some(state));
                out
            });
            let state = self.hold(|| made.take().unwrap_or_else(|| unreachable!("made with the output")));
            return (part(out, false), part(state, false));
        }
        let (out, state) = run(false);
        if !rounds {
            return (part(out, true), part(state, true));
        }
        // What rounding added is held still.
        let made = Cell::new(None);
        let native = &self.native;
        let more = self.hold(|| {
            let (rounded, after) = run(true);
            made.set(Some(native.sub(&after, &state)));
            native.sub(&rounded, &out)
        });
        let after = self.hold(|| made.take().unwrap_or_else(|| unreachable!("made with the output")));
        (part(native.add(&out, &more), true), part(native.add(&state, &after), true))
    }
}

impl<S: Scalar> Ops for LinearizedOps<S> {
    type Scalar = S;
    type Tensor = LinearizedTensor<S>;

    fn parameter(&self, id: Parameter) -> LinearizedTensor<S> {
        LinearizedTensor { x: self.native.detach(&self.native.parameter(id)), live: false }
    }
    fn constant(&self, shape: &[usize], values: &[S]) -> LinearizedTensor<S> {
        LinearizedTensor { x: self.native.constant(shape, values), live: false }
    }
    fn full(&self, shape: &[usize], value: f64) -> LinearizedTensor<S> {
        LinearizedTensor { x: self.native.full(shape, value), live: false }
    }
    fn detach(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        x.clone()
    }
    fn shape(&self, x: &LinearizedTensor<S>) -> Shape {
        self.native.shape(&x.x)
    }
    fn values(&self, x: &LinearizedTensor<S>) -> Vec<S> {
        if !x.live {
            return self.native.values(&x.x);
        }
        match self.keep(|| FrozenValue::Values(self.native.values(&x.x))) {
            FrozenValue::Values(values) => values,
            FrozenValue::Tensor(_) => unreachable!("a replay goes the way of the record"),
        }
    }
    fn unary(&self, kind: Unary, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        if kind == Unary::Relu {
            return self.by_ratio(x, 0.0, |x| self.native.relu(x));
        }
        self.stilled(x.live, || self.native.unary(kind, &x.x))
    }
    fn binary(&self, kind: Binary, left: &LinearizedTensor<S>, right: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        let native = &self.native;
        match kind {
            Binary::Add | Binary::Sub => {
                LinearizedTensor { x: native.binary(kind, &left.x, &right.x), live: left.live || right.live }
            }
            Binary::Mul if left.live && right.live => {
                LinearizedTensor { x: native.mul(&self.still(left), &right.x), live: true }
            }
            Binary::Mul => LinearizedTensor { x: native.mul(&left.x, &right.x), live: left.live || right.live },
            Binary::Div if left.live => LinearizedTensor { x: native.div(&left.x, &self.still(right)), live: true },
            Binary::Div => self.stilled(right.live, || native.div(&left.x, &right.x)),
        }
    }
    fn affine(&self, x: &LinearizedTensor<S>, factor: f64, offset: f64) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.affine(x, factor, offset))
    }
    fn product(
        &self,
        left: &LinearizedTensor<S>,
        flip_left: bool,
        right: &LinearizedTensor<S>,
        flip_right: bool,
    ) -> LinearizedTensor<S> {
        let live = left.live || right.live;
        let left = if left.live && right.live { self.still(left) } else { left.x.clone() };
        LinearizedTensor { x: self.native.product(&left, flip_left, &right.x, flip_right), live }
    }
    fn reshape(&self, x: &LinearizedTensor<S>, shape: &[usize]) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.reshape(x, shape))
    }
    fn permute(&self, x: &LinearizedTensor<S>, order: &[usize]) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.permute(x, order))
    }
    fn slice(&self, x: &LinearizedTensor<S>, axis: usize, range: Range<usize>) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.slice(x, axis, range))
    }
    fn concat(&self, parts: &[LinearizedTensor<S>], axis: usize) -> LinearizedTensor<S> {
        let live = parts.iter().any(|part| part.live);
        let parts: Vec<Tensor<S>> = parts.iter().map(|part| part.x.clone()).collect();
        LinearizedTensor { x: self.native.concat(&parts, axis), live }
    }
    fn broadcast(&self, x: &LinearizedTensor<S>, shape: &[usize]) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.broadcast(x, shape))
    }
    fn gather_rows(&self, x: &LinearizedTensor<S>, rows: &[usize]) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.gather_rows(x, rows))
    }
    fn sum(&self, x: &LinearizedTensor<S>, axis: usize) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.sum(x, axis))
    }
    fn max(&self, x: &LinearizedTensor<S>, axis: usize) -> LinearizedTensor<S> {
        self.stilled(x.live, || self.native.max(&x.x, axis))
    }
    fn cumulative_sum(&self, x: &LinearizedTensor<S>, axis: usize) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.cumulative_sum(x, axis))
    }
    delegate_ops!(native => scope);
    // Made of operations that are affine in what is live.
    delegate_ops!(composed => linear, gated_scan);
    fn softmax(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.stilled(x.live, || self.native.softmax(&x.x))
    }
    fn attention(&self, inputs: &AttentionInputs<'_, LinearizedTensor<S>>) -> LinearizedTensor<S> {
        let steers = [Some(inputs.query), Some(inputs.key), inputs.bias];
        let run = |[query, key, bias]: [Option<&Tensor<S>>; 3]| {
            let (Some(query), Some(key)) = (query, key) else { unreachable!("both are given") };
            let (mask, scale) = (inputs.mask, inputs.scale);
            self.native.attention(&AttentionInputs { query, key, value: &inputs.value.x, bias, mask, scale })
        };
        if !inputs.value.live {
            let live = steers.iter().flatten().any(|part| part.live);
            return self.stilled(live, || run(steers.map(|part| part.map(|part| &part.x))));
        }
        let steers = steers.map(|part| part.map(|part| self.still(part)));
        LinearizedTensor { x: run(steers.each_ref().map(Option::as_ref)), live: true }
    }
    fn left_to_right_attention(
        &self,
        inputs: &AttentionInputs<'_, LinearizedTensor<S>>,
        rounding: Option<AccumulatorRounding>,
    ) -> LinearizedTensor<S> {
        let AttentionInputs { query, key, value, bias, mask, scale } = *inputs;
        let rounded = || {
            let (query, key, value, bias) = (&query.x, &key.x, &value.x, bias.map(|bias| &bias.x));
            self.native.left_to_right_attention(&AttentionInputs { query, key, value, bias, mask, scale }, rounding)
        };
        if !value.live {
            return self.stilled(query.live || key.live || bias.is_some_and(|bias| bias.live), rounded);
        }
        let exact = self.attention(inputs);
        let more = self.hold(|| self.native.sub(&rounded(), &exact.x));
        LinearizedTensor { x: self.native.add(&exact.x, &more), live: true }
    }
    fn block_attention(&self, inputs: &BlockAttention<'_, LinearizedTensor<S>>) -> LinearizedTensor<S> {
        let (choice, scale) = (inputs.choice, inputs.scale);
        let run = |query: &Tensor<S>, key: &Tensor<S>| {
            self.native.block_attention(&BlockAttention { query, key, value: &inputs.value.x, choice, scale })
        };
        if !inputs.value.live {
            return self.stilled(inputs.query.live || inputs.key.live, || run(&inputs.query.x, &inputs.key.x));
        }
        LinearizedTensor { x: run(&self.still(inputs.query), &self.still(inputs.key)), live: true }
    }
    fn recurrence(&self, inputs: &Recurrence<'_, LinearizedTensor<S>>) -> (LinearizedTensor<S>, LinearizedTensor<S>) {
        let decay = match inputs.decay {
            Decay::None => None,
            Decay::Scalar(decay) | Decay::Vector(decay) => Some(decay),
        };
        let steers = [Some(inputs.query), Some(inputs.key), decay, inputs.beta];
        let steered = steers.iter().flatten().any(|part| part.live);
        let live = inputs.value.live || inputs.state.is_some_and(|state| state.live);
        let steers = steers.map(|part| part.map(|part| if live { self.still(part) } else { part.x.clone() }));
        let run = |rounds: bool| {
            let [Some(query), Some(key), decay, beta] = &steers else { unreachable!("both are given") };
            let decay = match (&inputs.decay, decay) {
                (Decay::Scalar(_), Some(decay)) => Decay::Scalar(decay),
                (Decay::Vector(_), Some(decay)) => Decay::Vector(decay),
                _ => Decay::None,
            };
            self.native.recurrence(&Recurrence {
                query,
                key,
                value: &inputs.value.x,
                decay,
                beta: beta.as_ref(),
                state: inputs.state.map(|state| &state.x),
                chunk: inputs.chunk,
                rounding: inputs.rounding.filter(|_| rounds),
            })
        };
        self.pair((steered, live, inputs.rounding.is_some()), run)
    }
    fn general_delta(
        &self,
        inputs: &GeneralDelta<'_, LinearizedTensor<S>>,
    ) -> (LinearizedTensor<S>, LinearizedTensor<S>) {
        let steers = [inputs.query, inputs.key, inputs.decay, inputs.recall_key, inputs.erase_key];
        let steered = steers.iter().any(|part| part.live);
        let live = inputs.value.live || inputs.state.is_some_and(|state| state.live);
        let steers = steers.map(|part| if live { self.still(part) } else { part.x.clone() });
        let run = |rounds: bool| {
            let [query, key, decay, recall_key, erase_key] = &steers;
            self.native.general_delta(&GeneralDelta {
                query,
                key,
                value: &inputs.value.x,
                decay,
                recall_key,
                erase_key,
                state: inputs.state.map(|state| &state.x),
                chunk: inputs.chunk,
                rounding: inputs.rounding.filter(|_| rounds),
            })
        };
        self.pair((steered, live, inputs.rounding.is_some()), run)
    }
    fn rms_norm(
        &self,
        x: &LinearizedTensor<S>,
        weight: Option<&LinearizedTensor<S>>,
        epsilon: f64,
    ) -> LinearizedTensor<S> {
        let native = &self.native;
        let gain = weight.map(|weight| self.still(weight));
        if !x.live {
            return LinearizedTensor { x: native.rms_norm(&x.x, gain.as_ref(), epsilon), live: false };
        }
        let normed = self.by_root(&x.x, 1.0 / native.shape(&x.x).width() as f64, epsilon);
        LinearizedTensor { x: gain.map_or(normed.clone(), |gain| native.mul(&normed, &gain)), live: true }
    }
    fn layer_norm(
        &self,
        x: &LinearizedTensor<S>,
        weight: Option<&LinearizedTensor<S>>,
        bias: Option<&LinearizedTensor<S>>,
        epsilon: f64,
    ) -> LinearizedTensor<S> {
        let centred = self.sub(x, &self.mean(x, self.shape(x).len() - 1));
        let normed = self.rms_norm(&centred, weight, epsilon);
        bias.map_or(normed.clone(), |bias| self.add(&normed, bias))
    }
    fn l2_norm(&self, x: &LinearizedTensor<S>, epsilon: f64) -> LinearizedTensor<S> {
        if !x.live {
            return LinearizedTensor { x: self.native.l2_norm(&x.x, epsilon), live: false };
        }
        LinearizedTensor { x: self.by_root(&x.x, 1.0, epsilon), live: true }
    }
    fn silu(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.by_ratio(x, 0.5, |x| self.native.silu(x))
    }
    fn gelu(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.by_ratio(x, 0.5, |x| self.native.gelu(x))
    }
    fn gelu_exact(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.by_ratio(x, 0.5, |x| self.native.gelu_exact(x))
    }
    fn elu_plus_one(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.stilled(x.live, || self.native.elu_plus_one(&x.x))
    }
    fn silu_gate(&self, gate: &LinearizedTensor<S>, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        let gate = if x.live { self.stilled(gate.live, || self.native.silu(&gate.x)) } else { self.silu(gate) };
        self.mul(&gate, x)
    }
    fn short_convolution(
        &self,
        x: &LinearizedTensor<S>,
        filters: &LinearizedTensor<S>,
        bias: Option<&LinearizedTensor<S>>,
        state: Option<&LinearizedTensor<S>>,
    ) -> (LinearizedTensor<S>, LinearizedTensor<S>) {
        let (filters, bias) = (self.still(filters), bias.map(|bias| self.still(bias)));
        let live = x.live || state.is_some_and(|state| state.live);
        let state = state.map(|state| &state.x);
        let (out, next) = self.native.short_convolution(&x.x, &filters, bias.as_ref(), state);
        (LinearizedTensor { x: out, live }, LinearizedTensor { x: next, live })
    }
    fn rotary(
        &self,
        x: &LinearizedTensor<S>,
        cosine: &LinearizedTensor<S>,
        sine: &LinearizedTensor<S>,
    ) -> LinearizedTensor<S> {
        Self::moved(x, |x| self.native.rotary(x, &cosine.x, &sine.x))
    }
    fn round_to_bits(&self, x: &LinearizedTensor<S>, bits: u32, range: f64) -> LinearizedTensor<S> {
        let native = &self.native;
        if !x.live {
            return LinearizedTensor { x: native.round_to_bits(&x.x, bits, range), live: false };
        }
        let more = self.hold(|| native.sub(&native.round_to_bits(&x.x, bits, range), &x.x));
        LinearizedTensor { x: native.add(&x.x, &more), live: true }
    }
    fn cross_entropy(&self, logits: &LinearizedTensor<S>, targets: &[usize]) -> LinearizedTensor<S> {
        self.stilled(logits.live, || self.native.cross_entropy(&logits.x, targets))
    }
}
