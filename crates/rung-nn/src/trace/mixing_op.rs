//! The weights with which one attention, recurrence or convolution reads earlier tokens.
//!
//! A [`MixingOp`] stores the queries and keys of the forward pass. A row of weights is computed from them when it is needed, by definition
//! and in double precision:
//!
//! - attention: `softmax(scale q_t.k_s + bias)` over the unmasked keys;
//! - a recurrence is linear in its values, `o_t = sum_s c_ts v_s`. Going back from t with `r = q_t` (the readout): `c_ts = beta_s k_s.r`, then
//!   `r <- a_s (r - beta_s k_s (k_s.r))`; for the general delta rule `c_ts = k_s.r`, then `r <- a_s r - recall_s (erase_s.r)`;
//! - a gated scan, whose tokens read the state before they write: `c_ts = g_s (1 - g_(s+1)) .. (1 - g_(t-1))`;
//! - a convolution: its taps.
//!
//! A recurrence may have more rows than the sequence has tokens: several for every token, of which the last one reads (`DeltaProduct`), or
//! one more, because each token writes to the next row, after it has read (RWKV-6, gated scan). The public methods take and return tokens.
//!
//! [`MixingOp::mismatch`] multiplies a row of weights by the values and compares with the kernel's output. So a picture of the weights can
//! be checked against the network.

use rung_engine::{
    AttentionInputs, AttentionMask, Decay, GatedScan, GeneralDelta, Ops, Recurrence, Scalar, Shape, Tensor,
};

use crate::observer::ConvolutionInputs;

/// The kind of operation with which a token reads others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixingKind {
    /// Softmax attention.
    Attention,
    /// A recurrent state.
    State,
    /// A short convolution.
    Convolution,
}

/// One operation that mixed tokens.
#[derive(Clone, Debug)]
pub struct MixingOp {
    /// Attention, recurrence or convolution.
    pub kind: MixingKind,
    /// Heads; a convolution has one for every channel.
    pub heads: usize,
    values: HeadRows,
    output: HeadRows,
    inputs: MixingInputs,
    rows: MixingRows,
}

/// Which rows of an operation belong to which token.
#[derive(Clone, Copy, Debug)]
struct MixingRows {
    per_token: usize,
    /// Rows before those of the first token.
    leading: usize,
}

impl MixingRows {
    const ONE_PER_TOKEN: Self = Self { per_token: 1, leading: 0 };

    /// The row of a token whose query gives the token's output.
    fn read_row(self, token: usize) -> usize {
        token * self.per_token + self.per_token - 1
    }

    /// For each token, the sum over the rows that it writes.
    fn sum_per_token(self, rows: &[f64]) -> Vec<f64> {
        rows[self.leading..].chunks(self.per_token).map(|rows| rows.iter().sum()).collect()
    }
}

#[derive(Clone, Debug)]
enum MixingInputs {
    Attention {
        query: HeadRows,
        key: HeadRows,
        bias: Option<(Shape, Vec<f64>)>,
        mask: AttentionMask,
        scale: f64,
    },
    Recurrence {
        query: HeadRows,
        key: HeadRows,
        log_decay: LogDecay,
        beta: Option<HeadRows>,
    },
    GeneralDelta {
        query: HeadRows,
        key: HeadRows,
        log_decay: HeadRows,
        recall_key: HeadRows,
        erase_key: HeadRows,
    },
    /// For every row, the fraction of the state that it replaces; the first row is the initial state.
    GatedScan {
        gates: Vec<f64>,
    },
    Convolution {
        filters: Vec<f64>,
        kernel_size: usize,
        bias: Option<Vec<f64>>,
    },
}

#[derive(Clone, Debug)]
enum LogDecay {
    None,
    PerHead(HeadRows),
    PerChannel(HeadRows),
}

/// A tensor `[rows, heads, width]` in double precision: the first sequence of a batch.
#[derive(Clone, Debug)]
struct HeadRows {
    heads: usize,
    width: usize,
    values: Vec<f64>,
}

impl HeadRows {
    fn from_tensor<S: Scalar>(ops: &impl Ops<Scalar = S, Tensor = Tensor<S>>, x: &Tensor<S>) -> Self {
        let shape = ops.shape(x);
        let (heads, width) = match shape[..] {
            [_, _, heads, width] => (heads, width),
            [_, _, heads] => (heads, 1),
            _ => unreachable!("a mixer's tensors have three or four axes, not {shape}"),
        };
        let values = ops.values(x).into_iter().take(shape[1] * heads * width).map(Scalar::to_f64).collect();
        Self { heads, width, values }
    }

    /// The values of one row and head, out of `heads`; several of those may share one head of this tensor.
    fn row(&self, row: usize, head: usize, heads: usize) -> &[f64] {
        let first = (row * self.heads + head * self.heads / heads) * self.width;
        &self.values[first..first + self.width]
    }

    fn row_count(&self) -> usize {
        self.values.len() / (self.heads * self.width).max(1)
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

impl MixingOp {
    pub(super) fn attention<S: Scalar, O: Ops<Scalar = S, Tensor = Tensor<S>>>(
        ops: &O,
        inputs: &AttentionInputs<'_, Tensor<S>>,
        output: &Tensor<S>,
    ) -> Self {
        let bias =
            inputs.bias.map(|bias| (ops.shape(bias), ops.values(bias).into_iter().map(Scalar::to_f64).collect()));
        let [query, key, values, output] =
            [inputs.query, inputs.key, inputs.value, output].map(|x| HeadRows::from_tensor(ops, x));
        let inputs_f64 = MixingInputs::Attention { key, bias, mask: inputs.mask, scale: inputs.scale, query };
        Self {
            kind: MixingKind::Attention,
            heads: output.heads,
            values,
            output,
            inputs: inputs_f64,
            rows: MixingRows::ONE_PER_TOKEN,
        }
    }

    /// `tokens` is the length of the sequence, which may differ from the number of rows.
    pub(super) fn recurrence<S: Scalar, O: Ops<Scalar = S, Tensor = Tensor<S>>>(
        ops: &O,
        inputs: &Recurrence<'_, Tensor<S>>,
        output: &Tensor<S>,
        tokens: usize,
    ) -> Self {
        let [query, key, values, output] =
            [inputs.query, inputs.key, inputs.value, output].map(|x| HeadRows::from_tensor(ops, x));
        let log_decay = match inputs.decay {
            Decay::None => LogDecay::None,
            Decay::Scalar(log) => LogDecay::PerHead(HeadRows::from_tensor(ops, log)),
            Decay::Vector(log) => LogDecay::PerChannel(HeadRows::from_tensor(ops, log)),
        };
        let beta = inputs.beta.map(|beta| HeadRows::from_tensor(ops, beta));
        let leading = usize::from(tokens > 1 && values.row_count() == tokens + 1);
        let rows = MixingRows { per_token: (values.row_count() - leading) / tokens.max(1), leading };
        Self {
            kind: MixingKind::State,
            heads: output.heads,
            values,
            output,
            inputs: MixingInputs::Recurrence { query, key, log_decay, beta },
            rows,
        }
    }

    pub(super) fn general_delta<S: Scalar, O: Ops<Scalar = S, Tensor = Tensor<S>>>(
        ops: &O,
        inputs: &GeneralDelta<'_, Tensor<S>>,
        output: &Tensor<S>,
    ) -> Self {
        let [values, output] = [inputs.value, output].map(|x| HeadRows::from_tensor(ops, x));
        let rows = [inputs.query, inputs.key, inputs.decay, inputs.recall_key, inputs.erase_key];
        let [query, key, log_decay, recall_key, erase_key] = rows.map(|x| HeadRows::from_tensor(ops, x));
        let inputs_f64 = MixingInputs::GeneralDelta { query, key, log_decay, recall_key, erase_key };
        Self {
            kind: MixingKind::State,
            heads: output.heads,
            values,
            output,
            inputs: inputs_f64,
            rows: MixingRows::ONE_PER_TOKEN,
        }
    }

    /// `states` are the states after every token.
    pub(super) fn gated_scan<S: Scalar, O: Ops<Scalar = S, Tensor = Tensor<S>>>(
        ops: &O,
        inputs: &GatedScan<'_, Tensor<S>>,
        states: &Tensor<S>,
    ) -> Self {
        let shape = ops.shape(inputs.value);
        let (time, width) = (shape[1], shape[2]);
        let first_sequence = |x: &Tensor<S>, count: usize| ops.values(x).into_iter().take(count).map(Scalar::to_f64);
        let with_initial_state = |x: &Tensor<S>| {
            let values = first_sequence(inputs.state, width).chain(first_sequence(x, time * width)).collect();
            HeadRows { heads: 1, width, values }
        };
        Self {
            kind: MixingKind::State,
            heads: 1,
            values: with_initial_state(inputs.value),
            output: with_initial_state(states),
            inputs: MixingInputs::GatedScan {
                gates: std::iter::once(1.0).chain(first_sequence(inputs.gate, time)).collect(),
            },
            rows: MixingRows { per_token: 1, leading: 1 },
        }
    }

    pub(super) fn convolution<S: Scalar, O: Ops<Scalar = S, Tensor = Tensor<S>>>(
        ops: &O,
        inputs: &ConvolutionInputs<'_, S>,
        output: &Tensor<S>,
    ) -> Self {
        let to_f64 = |x: &Tensor<S>| ops.values(x).into_iter().map(Scalar::to_f64).collect::<Vec<f64>>();
        let kernel_size = ops.shape(inputs.filters)[1];
        let inputs_f64 =
            MixingInputs::Convolution { filters: to_f64(inputs.filters), kernel_size, bias: inputs.bias.map(to_f64) };
        let [values, output] = [inputs.x, output].map(|x| HeadRows::from_tensor(ops, x));
        Self {
            kind: MixingKind::Convolution,
            heads: output.heads,
            values,
            output,
            inputs: inputs_f64,
            rows: MixingRows::ONE_PER_TOKEN,
        }
    }

    /// The number of tokens that can be read.
    pub fn token_count(&self) -> usize {
        (self.values.row_count() - self.rows.leading) / self.rows.per_token
    }

    /// The weight of every token in what a token reads through a head. Attention weights sum to 1.
    pub fn weights(&self, token: usize, head: usize) -> Vec<f64> {
        self.rows.sum_per_token(&self.row_weights(self.rows.read_row(token), head))
    }

    /// The query with which a token reads through a head; `None` for a convolution and a gated scan.
    pub fn query(&self, token: usize, head: usize) -> Option<&[f64]> {
        self.row_query(self.rows.read_row(token), head)
    }

    /// As [`weights`](Self::weights), with another query.
    ///
    /// # Panics
    /// The query has another width than the recorded one.
    pub fn weights_with_query(&self, token: usize, head: usize, query: &[f64]) -> Vec<f64> {
        let row = self.rows.read_row(token);
        assert_eq!(self.row_query(row, head).map(<[f64]>::len), Some(query.len()), "width of a query");
        self.rows.sum_per_token(&self.row_weights_with_query(row, head, query))
    }

    fn row_query(&self, row: usize, head: usize) -> Option<&[f64]> {
        match &self.inputs {
            MixingInputs::Attention { query, .. }
            | MixingInputs::Recurrence { query, .. }
            | MixingInputs::GeneralDelta { query, .. } => Some(query.row(row, head, self.heads)),
            MixingInputs::GatedScan { .. } | MixingInputs::Convolution { .. } => None,
        }
    }

    fn row_weights(&self, row: usize, head: usize) -> Vec<f64> {
        self.row_weights_with_query(row, head, self.row_query(row, head).unwrap_or_default())
    }

    fn row_weights_with_query(&self, read_row: usize, head: usize, query: &[f64]) -> Vec<f64> {
        let mut weights = vec![0.0; self.values.row_count()];
        match &self.inputs {
            MixingInputs::Attention { key, bias, mask, scale, .. } => {
                let visible_keys = mask.range(read_row, weights.len());
                for (row, weight) in weights.iter_mut().enumerate().take(visible_keys.end).skip(visible_keys.start) {
                    *weight = scale * dot(query, key.row(row, head, self.heads));
                    if let Some((shape, bias)) = bias {
                        let head = if shape[1] == 1 { 0 } else { head };
                        *weight += bias[(head * shape[2] + read_row) * shape[3] + row];
                    }
                }
                let scores = &mut weights[visible_keys];
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                for score in scores {
                    *score = (*score - largest).exp() / sum;
                }
            }
            MixingInputs::Recurrence { key, log_decay, beta, .. } => {
                let mut readout = query.to_vec();
                for row in (0..=read_row).rev() {
                    let key = key.row(row, head, self.heads);
                    let beta = beta.as_ref().map(|beta| beta.row(row, head, self.heads)[0]);
                    let weight = beta.unwrap_or(1.0) * dot(key, &readout);
                    weights[row] = weight;
                    let log_decay = match log_decay {
                        LogDecay::None => &[0.0][..],
                        LogDecay::PerHead(log) | LogDecay::PerChannel(log) => log.row(row, head, self.heads),
                    };
                    for (channel, (readout, key)) in readout.iter_mut().zip(key).enumerate() {
                        let remaining = if beta.is_some() { *readout - weight * key } else { *readout };
                        *readout = remaining * log_decay[channel % log_decay.len()].exp();
                    }
                }
            }
            MixingInputs::GeneralDelta { key, log_decay, recall_key, erase_key, .. } => {
                let mut readout = query.to_vec();
                for row in (0..=read_row).rev() {
                    let [key, log_decay, recall_key, erase_key] =
                        [key, log_decay, recall_key, erase_key].map(|table| table.row(row, head, self.heads));
                    weights[row] = dot(key, &readout);
                    let erased = dot(erase_key, &readout);
                    for (readout, (log_decay, recall_key)) in readout.iter_mut().zip(log_decay.iter().zip(recall_key)) {
                        *readout = *readout * log_decay.exp() - recall_key * erased;
                    }
                }
            }
            MixingInputs::GatedScan { gates } => {
                let mut remaining = 1.0;
                for row in (0..=read_row).rev() {
                    weights[row] = remaining * gates[row];
                    remaining *= 1.0 - gates[row];
                }
            }
            MixingInputs::Convolution { filters, kernel_size, .. } => {
                for offset in 0..(*kernel_size).min(read_row + 1) {
                    weights[read_row - offset] = filters[head * kernel_size + kernel_size - 1 - offset];
                }
            }
        }
        weights
    }

    /// The fraction of what a token reads that comes from every token, from 0 to 1: the attention weights themselves; for the
    /// other kinds, whose weights have no fixed scale, the norm of weight times value. All zero if nothing is read.
    pub fn shares(&self, token: usize, head: usize) -> Vec<f64> {
        let mut shares = self.row_weights(self.rows.read_row(token), head);
        if self.kind == MixingKind::Attention {
            return shares;
        }
        for (row, share) in shares.iter_mut().enumerate() {
            let value = self.values.row(row, head, self.heads);
            *share = share.abs() * dot(value, value).sqrt();
        }
        let sum: f64 = shares.iter().sum();
        let scale = if sum > 1e-9 { 1.0 / sum } else { 0.0 };
        for share in &mut shares {
            *share *= scale;
        }
        self.rows.sum_per_token(&shares)
    }

    /// The largest difference at a token, over all heads, between weights times values and what the forward pass computed.
    pub fn mismatch(&self, token: usize) -> f64 {
        let (read_row, mut largest) = (self.rows.read_row(token), 0.0_f64);
        for head in 0..self.heads {
            let weights = self.row_weights(read_row, head);
            let output = self.output.row(read_row, head, self.heads);
            for (channel, output) in output.iter().enumerate() {
                let values = (0..weights.len()).map(|row| self.values.row(row, head, self.heads)[channel]);
                let mut sum: f64 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
                if let MixingInputs::Convolution { bias: Some(bias), .. } = &self.inputs {
                    sum += bias[head];
                }
                largest = largest.max((sum - output).abs());
            }
        }
        largest
    }
}
