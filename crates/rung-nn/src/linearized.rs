//! An executor that freezes gates and attention weights, so that a forward pass becomes one linear operator.
//!
//! A model is not linear. But if everything that *controls* the computation on one input is frozen at its value there (attention weights,
//! gates, decays, the scale of every norm, the ratio of output to input of every activation, choices), the rest is affine, `y = T x + b`,
//! and gives the same output on that input. No derivative is taken.
//!
//! [`LinearizedOps`] runs any model like that. The first pass *records*: every tensor is either **live**, an affine function of the tracked
//! tensors ([`LinearizedOps::track`]), or **frozen**. An operation on live tensors that is not affine is made so:
//!
//! | operation | live | frozen |
//! |---|---|---|
//! | attention, recurrences | values, states | queries, keys, decays, strengths, biases |
//! | norms | the input | the factor it is divided by |
//! | ReLU, GELU, SiLU | the input | output over input |
//! | gate times x | x | the gate |
//! | product of two live tensors | the right one | the left one |
//! | any other function | – | its result |
//!
//! Later passes *replay*: they use the frozen values of the first pass, in the same order, for any input. So `T` is applied without being
//! built, and the outputs of the parts of an input sum exactly to the output of the input. Which of two live factors is frozen is a
//! convention; the sum is the same.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use rung_engine::{
    AccumulatorRounding, AttentionInputs, Binary, BlockAttention, BlockChoice, Decay, GeneralDelta, Indexer, Native,
    Ops, Parameter, Recurrence, Scalar, Shape, Tensor, Unary, delegate_ops,
};

/// A tensor that is an affine function of the tracked tensors (live), or a frozen one.
#[derive(Clone)]
pub struct LinearizedTensor<S: Scalar> {
    tensor: Tensor<S>,
    live: bool,
}

/// A recorded value.
#[derive(Clone)]
enum FrozenValue<S: Scalar> {
    Tensor(Tensor<S>),
    Values(Vec<S>),
}

/// An executor that records frozen values, then replays them.
pub struct LinearizedOps<S: Scalar> {
    native: Native<S>,
    frozen_values: RefCell<Vec<FrozenValue<S>>>,
    /// Index in `frozen_values` of the next value to replay; `None` while recording.
    replay_index: Cell<Option<usize>>,
}

impl<S: Scalar> LinearizedOps<S> {
    /// An executor that records.
    pub fn new(native: Native<S>) -> Self {
        Self { native, frozen_values: RefCell::new(Vec::new()), replay_index: Cell::new(None) }
    }

    /// The executor that runs the operations.
    pub fn native(&self) -> &Native<S> {
        &self.native
    }

    /// Starts a replay from the first recorded value.
    pub fn rewind(&self) {
        self.replay_index.set(Some(0));
    }

    /// The same values as a live tensor.
    pub fn track(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        LinearizedTensor { tensor: x.tensor.clone(), live: true }
    }

    /// A weight as a live tensor, with a gradient.
    pub fn track_parameter(&self, id: Parameter) -> LinearizedTensor<S> {
        LinearizedTensor { tensor: self.native.parameter(id), live: true }
    }

    /// The native tensor, with its gradient.
    pub fn tensor<'a>(&self, x: &'a LinearizedTensor<S>) -> &'a Tensor<S> {
        &x.tensor
    }

    /// The next recorded value in a replay; else records the result of `compute`.
    fn record_or_replay(&self, compute: impl FnOnce() -> FrozenValue<S>) -> FrozenValue<S> {
        if let Some(index) = self.replay_index.get() {
            self.replay_index.set(Some(index + 1));
            return self.frozen_values.borrow()[index].clone();
        }
        let value = compute();
        self.frozen_values.borrow_mut().push(value.clone());
        value
    }

    /// The recorded result of `compute`, without gradient.
    fn freeze_result(&self, compute: impl FnOnce() -> Tensor<S>) -> Tensor<S> {
        match self.record_or_replay(|| FrozenValue::Tensor(self.native.detach(&compute()))) {
            FrozenValue::Tensor(x) => x,
            FrozenValue::Values(_) => unreachable!("a replay runs the same operations as the recording"),
        }
    }

    /// The recorded value of a tensor.
    fn freeze(&self, x: &LinearizedTensor<S>) -> Tensor<S> {
        if x.live { self.freeze_result(|| x.tensor.clone()) } else { x.tensor.clone() }
    }

    /// A result that is frozen if an input is live.
    fn freeze_if(&self, live: bool, compute: impl FnOnce() -> Tensor<S>) -> LinearizedTensor<S> {
        LinearizedTensor { tensor: if live { self.freeze_result(compute) } else { compute() }, live: false }
    }

    /// `x` times the frozen ratio `function(x) / x`, which is `limit` at zero.
    fn multiply_by_ratio(
        &self,
        x: &LinearizedTensor<S>,
        limit: f64,
        function: impl FnOnce(&Tensor<S>) -> Tensor<S>,
    ) -> LinearizedTensor<S> {
        if !x.live {
            return LinearizedTensor { tensor: function(&x.tensor), live: false };
        }
        let ratio = self.freeze_result(|| {
            let (inputs, outputs) = (self.native.values(&x.tensor), self.native.values(&function(&x.tensor)));
            let ratio = |(input, output): (&S, &S)| {
                let (input, output) = (input.to_f64(), output.to_f64());
                S::from_f64(if input.abs() < 1e-12 { limit } else { output / input })
            };
            let ratios: Vec<S> = inputs.iter().zip(&outputs).map(ratio).collect();
            self.native.constant(&self.native.shape(&x.tensor), &ratios)
        });
        LinearizedTensor { tensor: self.native.mul(&x.tensor, &ratio), live: true }
    }

    /// `x` divided by the frozen `sqrt(factor * sum of squares + epsilon)` over the last axis.
    fn divide_by_root(&self, x: &Tensor<S>, factor: f64, epsilon: f64) -> Tensor<S> {
        let native = &self.native;
        let root = self.freeze_result(|| {
            let squares = native.sum(&native.mul(x, x), native.shape(x).len() - 1);
            native.sqrt(&native.affine(&squares, factor, epsilon))
        });
        native.div(x, &root)
    }

    /// A linear function of one tensor.
    fn apply_linear(x: &LinearizedTensor<S>, function: impl FnOnce(&Tensor<S>) -> Tensor<S>) -> LinearizedTensor<S> {
        LinearizedTensor { tensor: function(&x.tensor), live: x.live }
    }

    /// A recurrence, which returns an output and a state and is linear in values and state without rounding. `controls_live` says whether a
    /// query, key, decay or beta is live, `live` whether a value or the state is; `run` takes whether to round.
    fn run_recurrence(
        &self,
        (controls_live, live, has_rounding): (bool, bool, bool),
        run: impl Fn(bool) -> (Tensor<S>, Tensor<S>),
    ) -> (LinearizedTensor<S>, LinearizedTensor<S>) {
        let tensor = |x: Tensor<S>, live: bool| LinearizedTensor { tensor: x, live };
        if !live {
            if !controls_live {
                let (out, state) = run(has_rounding);
                return (tensor(out, false), tensor(state, false));
            }
            let new_state = Cell::new(None);
            let out = self.freeze_result(|| {
                let (out, state) = run(has_rounding);
                new_state.set(Some(state));
                out
            });
            let state =
                self.freeze_result(|| new_state.take().unwrap_or_else(|| unreachable!("computed with the output")));
            return (tensor(out, false), tensor(state, false));
        }
        let (out, state) = run(false);
        if !has_rounding {
            return (tensor(out, true), tensor(state, true));
        }
        // The rounding errors are frozen.
        let state_error_cell = Cell::new(None);
        let native = &self.native;
        let out_error = self.freeze_result(|| {
            let (rounded_out, rounded_state) = run(true);
            state_error_cell.set(Some(native.sub(&rounded_state, &state)));
            native.sub(&rounded_out, &out)
        });
        let state_error =
            self.freeze_result(|| state_error_cell.take().unwrap_or_else(|| unreachable!("computed with the output")));
        (tensor(native.add(&out, &out_error), true), tensor(native.add(&state, &state_error), true))
    }
}

impl<S: Scalar> Ops for LinearizedOps<S> {
    type Scalar = S;
    type Tensor = LinearizedTensor<S>;

    fn parameter(&self, id: Parameter) -> LinearizedTensor<S> {
        LinearizedTensor { tensor: self.native.detach(&self.native.parameter(id)), live: false }
    }
    fn constant(&self, shape: &[usize], values: &[S]) -> LinearizedTensor<S> {
        LinearizedTensor { tensor: self.native.constant(shape, values), live: false }
    }
    fn full(&self, shape: &[usize], value: f64) -> LinearizedTensor<S> {
        LinearizedTensor { tensor: self.native.full(shape, value), live: false }
    }
    fn detach(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        x.clone()
    }
    fn shape(&self, x: &LinearizedTensor<S>) -> Shape {
        self.native.shape(&x.tensor)
    }
    fn values(&self, x: &LinearizedTensor<S>) -> Vec<S> {
        if !x.live {
            return self.native.values(&x.tensor);
        }
        match self.record_or_replay(|| FrozenValue::Values(self.native.values(&x.tensor))) {
            FrozenValue::Values(values) => values,
            FrozenValue::Tensor(_) => unreachable!("a replay runs the same operations as the recording"),
        }
    }
    fn unary(&self, kind: Unary, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        if kind == Unary::Relu {
            return self.multiply_by_ratio(x, 0.0, |x| self.native.relu(x));
        }
        self.freeze_if(x.live, || self.native.unary(kind, &x.tensor))
    }
    fn binary(&self, kind: Binary, left: &LinearizedTensor<S>, right: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        let native = &self.native;
        match kind {
            Binary::Add | Binary::Sub => LinearizedTensor {
                tensor: native.binary(kind, &left.tensor, &right.tensor),
                live: left.live || right.live,
            },
            Binary::Mul if left.live && right.live => {
                LinearizedTensor { tensor: native.mul(&self.freeze(left), &right.tensor), live: true }
            }
            Binary::Mul => {
                LinearizedTensor { tensor: native.mul(&left.tensor, &right.tensor), live: left.live || right.live }
            }
            Binary::Div if left.live => {
                LinearizedTensor { tensor: native.div(&left.tensor, &self.freeze(right)), live: true }
            }
            Binary::Div => self.freeze_if(right.live, || native.div(&left.tensor, &right.tensor)),
        }
    }
    fn affine(&self, x: &LinearizedTensor<S>, factor: f64, offset: f64) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.affine(x, factor, offset))
    }
    fn product(
        &self,
        left: &LinearizedTensor<S>,
        transpose_left: bool,
        right: &LinearizedTensor<S>,
        transpose_right: bool,
    ) -> LinearizedTensor<S> {
        let live = left.live || right.live;
        let left = if left.live && right.live { self.freeze(left) } else { left.tensor.clone() };
        LinearizedTensor { tensor: self.native.product(&left, transpose_left, &right.tensor, transpose_right), live }
    }
    fn reshape(&self, x: &LinearizedTensor<S>, shape: &[usize]) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.reshape(x, shape))
    }
    fn permute(&self, x: &LinearizedTensor<S>, order: &[usize]) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.permute(x, order))
    }
    fn slice(&self, x: &LinearizedTensor<S>, axis: usize, range: Range<usize>) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.slice(x, axis, range))
    }
    fn concat(&self, inputs: &[LinearizedTensor<S>], axis: usize) -> LinearizedTensor<S> {
        let live = inputs.iter().any(|input| input.live);
        let tensors: Vec<Tensor<S>> = inputs.iter().map(|input| input.tensor.clone()).collect();
        LinearizedTensor { tensor: self.native.concat(&tensors, axis), live }
    }
    fn broadcast(&self, x: &LinearizedTensor<S>, shape: &[usize]) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.broadcast(x, shape))
    }
    fn gather_rows(&self, x: &LinearizedTensor<S>, rows: &[usize]) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.gather_rows(x, rows))
    }
    fn sum(&self, x: &LinearizedTensor<S>, axis: usize) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.sum(x, axis))
    }
    fn max(&self, x: &LinearizedTensor<S>, axis: usize) -> LinearizedTensor<S> {
        self.freeze_if(x.live, || self.native.max(&x.tensor, axis))
    }
    fn cumulative_sum(&self, x: &LinearizedTensor<S>, axis: usize) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.cumulative_sum(x, axis))
    }
    delegate_ops!(native => scope);
    // Composed of operations that are affine in live tensors.
    delegate_ops!(composed => linear, gated_scan);
    fn softmax(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.freeze_if(x.live, || self.native.softmax(&x.tensor))
    }
    fn attention(&self, inputs: &AttentionInputs<'_, LinearizedTensor<S>>) -> LinearizedTensor<S> {
        let controls = [Some(inputs.query), Some(inputs.key), inputs.bias];
        let run = |[query, key, bias]: [Option<&Tensor<S>>; 3]| {
            let (Some(query), Some(key)) = (query, key) else { unreachable!("query and key always exist") };
            let (mask, scale) = (inputs.mask, inputs.scale);
            self.native.attention(&AttentionInputs { query, key, value: &inputs.value.tensor, bias, mask, scale })
        };
        if !inputs.value.live {
            let live = controls.iter().flatten().any(|control| control.live);
            return self.freeze_if(live, || run(controls.map(|control| control.map(|control| &control.tensor))));
        }
        let controls = controls.map(|control| control.map(|control| self.freeze(control)));
        LinearizedTensor { tensor: run(controls.each_ref().map(Option::as_ref)), live: true }
    }
    fn left_to_right_attention(
        &self,
        inputs: &AttentionInputs<'_, LinearizedTensor<S>>,
        rounding: Option<AccumulatorRounding>,
    ) -> LinearizedTensor<S> {
        let AttentionInputs { query, key, value, bias, mask, scale } = *inputs;
        let run_rounded = || {
            let (query, key, value, bias) = (&query.tensor, &key.tensor, &value.tensor, bias.map(|bias| &bias.tensor));
            self.native.left_to_right_attention(&AttentionInputs { query, key, value, bias, mask, scale }, rounding)
        };
        if !value.live {
            return self.freeze_if(query.live || key.live || bias.is_some_and(|bias| bias.live), run_rounded);
        }
        let exact = self.attention(inputs);
        let rounding_error = self.freeze_result(|| self.native.sub(&run_rounded(), &exact.tensor));
        LinearizedTensor { tensor: self.native.add(&exact.tensor, &rounding_error), live: true }
    }
    fn block_attention(&self, inputs: &BlockAttention<'_, LinearizedTensor<S>>) -> LinearizedTensor<S> {
        let (choice, scale) = (inputs.choice, inputs.scale);
        let run = |query: &Tensor<S>, key: &Tensor<S>| {
            self.native.block_attention(&BlockAttention { query, key, value: &inputs.value.tensor, choice, scale })
        };
        if !inputs.value.live {
            return self
                .freeze_if(inputs.query.live || inputs.key.live, || run(&inputs.query.tensor, &inputs.key.tensor));
        }
        LinearizedTensor { tensor: run(&self.freeze(inputs.query), &self.freeze(inputs.key)), live: true }
    }
    fn choose_tokens(&self, inputs: &Indexer<'_, LinearizedTensor<S>>) -> BlockChoice {
        let Indexer { query, head_weights, key, top } = *inputs;
        let [query, head_weights, key] = [query, head_weights, key].map(|x| self.freeze(x));
        self.native.choose_tokens(&Indexer { query: &query, head_weights: &head_weights, key: &key, top })
    }
    fn recurrence(&self, inputs: &Recurrence<'_, LinearizedTensor<S>>) -> (LinearizedTensor<S>, LinearizedTensor<S>) {
        let decay = match inputs.decay {
            Decay::None => None,
            Decay::Scalar(decay) | Decay::Vector(decay) => Some(decay),
        };
        let controls = [Some(inputs.query), Some(inputs.key), decay, inputs.beta];
        let controls_live = controls.iter().flatten().any(|control| control.live);
        let live = inputs.value.live || inputs.state.is_some_and(|state| state.live);
        let controls = controls
            .map(|control| control.map(|control| if live { self.freeze(control) } else { control.tensor.clone() }));
        let run = |rounds: bool| {
            let [Some(query), Some(key), decay, beta] = &controls else { unreachable!("query and key always exist") };
            let decay = match (&inputs.decay, decay) {
                (Decay::Scalar(_), Some(decay)) => Decay::Scalar(decay),
                (Decay::Vector(_), Some(decay)) => Decay::Vector(decay),
                _ => Decay::None,
            };
            self.native.recurrence(&Recurrence {
                query,
                key,
                value: &inputs.value.tensor,
                decay,
                beta: beta.as_ref(),
                state: inputs.state.map(|state| &state.tensor),
                chunk: inputs.chunk,
                rounding: inputs.rounding.filter(|_| rounds),
            })
        };
        self.run_recurrence((controls_live, live, inputs.rounding.is_some()), run)
    }
    fn general_delta(
        &self,
        inputs: &GeneralDelta<'_, LinearizedTensor<S>>,
    ) -> (LinearizedTensor<S>, LinearizedTensor<S>) {
        let controls = [inputs.query, inputs.key, inputs.decay, inputs.recall_key, inputs.erase_key];
        let controls_live = controls.iter().any(|control| control.live);
        let live = inputs.value.live || inputs.state.is_some_and(|state| state.live);
        let controls = controls.map(|control| if live { self.freeze(control) } else { control.tensor.clone() });
        let run = |rounds: bool| {
            let [query, key, decay, recall_key, erase_key] = &controls;
            self.native.general_delta(&GeneralDelta {
                query,
                key,
                value: &inputs.value.tensor,
                decay,
                recall_key,
                erase_key,
                state: inputs.state.map(|state| &state.tensor),
                chunk: inputs.chunk,
                rounding: inputs.rounding.filter(|_| rounds),
            })
        };
        self.run_recurrence((controls_live, live, inputs.rounding.is_some()), run)
    }
    fn rms_norm(
        &self,
        x: &LinearizedTensor<S>,
        weight: Option<&LinearizedTensor<S>>,
        epsilon: f64,
    ) -> LinearizedTensor<S> {
        let native = &self.native;
        let gain = weight.map(|weight| self.freeze(weight));
        if !x.live {
            return LinearizedTensor { tensor: native.rms_norm(&x.tensor, gain.as_ref(), epsilon), live: false };
        }
        let normed = self.divide_by_root(&x.tensor, 1.0 / native.shape(&x.tensor).width() as f64, epsilon);
        LinearizedTensor { tensor: gain.map_or(normed.clone(), |gain| native.mul(&normed, &gain)), live: true }
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
            return LinearizedTensor { tensor: self.native.l2_norm(&x.tensor, epsilon), live: false };
        }
        LinearizedTensor { tensor: self.divide_by_root(&x.tensor, 1.0, epsilon), live: true }
    }
    fn silu(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.multiply_by_ratio(x, 0.5, |x| self.native.silu(x))
    }
    fn gelu(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.multiply_by_ratio(x, 0.5, |x| self.native.gelu(x))
    }
    fn gelu_exact(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.multiply_by_ratio(x, 0.5, |x| self.native.gelu_exact(x))
    }
    fn elu_plus_one(&self, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        self.freeze_if(x.live, || self.native.elu_plus_one(&x.tensor))
    }
    fn silu_gate(&self, gate: &LinearizedTensor<S>, x: &LinearizedTensor<S>) -> LinearizedTensor<S> {
        let gate = if x.live { self.freeze_if(gate.live, || self.native.silu(&gate.tensor)) } else { self.silu(gate) };
        self.mul(&gate, x)
    }
    fn short_convolution(
        &self,
        x: &LinearizedTensor<S>,
        filters: &LinearizedTensor<S>,
        bias: Option<&LinearizedTensor<S>>,
        state: Option<&LinearizedTensor<S>>,
    ) -> (LinearizedTensor<S>, LinearizedTensor<S>) {
        let (filters, bias) = (self.freeze(filters), bias.map(|bias| self.freeze(bias)));
        let live = x.live || state.is_some_and(|state| state.live);
        let state = state.map(|state| &state.tensor);
        let (out, next) = self.native.short_convolution(&x.tensor, &filters, bias.as_ref(), state);
        (LinearizedTensor { tensor: out, live }, LinearizedTensor { tensor: next, live })
    }
    fn rotary(
        &self,
        x: &LinearizedTensor<S>,
        cosine: &LinearizedTensor<S>,
        sine: &LinearizedTensor<S>,
    ) -> LinearizedTensor<S> {
        Self::apply_linear(x, |x| self.native.rotary(x, &cosine.tensor, &sine.tensor))
    }
    fn round_to_bits(&self, x: &LinearizedTensor<S>, bits: u32, range: f64) -> LinearizedTensor<S> {
        let native = &self.native;
        if !x.live {
            return LinearizedTensor { tensor: native.round_to_bits(&x.tensor, bits, range), live: false };
        }
        let rounding_error =
            self.freeze_result(|| native.sub(&native.round_to_bits(&x.tensor, bits, range), &x.tensor));
        LinearizedTensor { tensor: native.add(&x.tensor, &rounding_error), live: true }
    }
    fn cross_entropy(&self, logits: &LinearizedTensor<S>, targets: &[usize]) -> LinearizedTensor<S> {
        self.freeze_if(logits.live, || self.native.cross_entropy(&logits.tensor, targets))
    }
}
