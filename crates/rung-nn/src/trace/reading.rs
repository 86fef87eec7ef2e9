//! Who read whom: the weights of one attention, recurrence or convolution, row by row.
//!
//! A [`MixingOp`] keeps the queries and keys that the forward pass really used. A row of weights is worked out from them when it
//! is asked for, from the definition and in double precision:
//!
//! - attention: `softmax(scale q_t.k_s + bias)` over the unmasked keys;
//! - a recurrence is linear in its values, `o_t = sum_s c_ts v_s`. Going back from t with `r = q_t`: `c_ts = beta_s k_s.r`, then
//!   `r <- a_s (r - beta_s k_s (k_s.r))`; for the general delta rule `c_ts = k_s.r`, then `r <- a_s r - sought_s (removed_s.r)`;
//! - a convolution: its taps.
//!
//! A recurrence may have other rows than the text has tokens: several for every token, of which the last reads (`DeltaProduct`), or
//! one more, each token writing a row late, after it has read (RWKV-6). What is asked and answered here are tokens.
//!
//! [`MixingOp::mismatch`] multiplies a row by the values and compares with what the kernel gave: this is how a picture knows that
//! its arrows are the network's own.

use rung_engine::{AttentionInputs, AttentionMask, Decay, GeneralDelta, Ops, Recurrence, Scalar, Shape, Tensor};

use crate::observer::ConvolutionInputs;

/// What kind of mixer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderKind {
    /// Softmax attention.
    Attention,
    /// A recurrent state.
    State,
    /// A short convolution.
    Convolution,
}

/// One operation that moved things between tokens.
#[derive(Clone, Debug)]
pub struct MixingOp {
    /// What kind.
    pub reads: ReaderKind,
    /// Heads; a convolution has one for every channel.
    pub heads: usize,
    values: Table,
    output: Table,
    rule: MixingRule,
    rows: MixingRows,
}

/// How the rows of an operation belong to tokens.
#[derive(Clone, Copy, Debug)]
struct MixingRows {
    per_token: usize,
    late: usize,
}

impl MixingRows {
    const TOKENS: Self = Self { per_token: 1, late: 0 };

    /// The row with which a token reads.
    fn reader(self, token: usize) -> usize {
        token * self.per_token + self.per_token - 1
    }

    /// Sums over the rows that a token writes.
    fn fold(self, rows: &[f64]) -> Vec<f64> {
        rows[self.late..].chunks(self.per_token).map(|rows| rows.iter().sum()).collect()
    }
}

#[derive(Clone, Debug)]
enum MixingRule {
    Attention { query: Table, key: Table, bias: Option<(Shape, Vec<f64>)>, mask: AttentionMask, scale: f64 },
    Recurrence { query: Table, key: Table, fade: DecayTable, beta: Option<Table> },
    GeneralDelta { query: Table, key: Table, fade: Table, recall_key: Table, erase_key: Table },
    Convolution { filters: Vec<f64>, taps: usize, bias: Option<Vec<f64>> },
}

#[derive(Clone, Debug)]
enum DecayTable {
    None,
    Head(Table),
    Channel(Table),
}

/// Numbers as `[time, heads, width]`, for the first row of a batch.
#[derive(Clone, Debug)]
struct Table {
    heads: usize,
    width: usize,
    numbers: Vec<f64>,
}

impl Table {
    fn of<S: Scalar>(ops: &impl Ops<Scalar = S, Tensor = Tensor<S>>, x: &Tensor<S>) -> Self {
        let shape = ops.shape(x);
        let (heads, width) = match shape[..] {
            [_, _, heads, width] => (heads, width),
            [_, _, heads] => (heads, 1),
            _ => unreachable!("a mixer's tensors have three or four axes, not {shape}"),
        };
        let numbers = ops.values(x).into_iter().take(shape[1] * heads * width).map(Scalar::to_f64).collect();
        Self { heads, width, numbers }
    }

    /// The numbers of one token and head; several of `heads` may share one of ours.
    fn row(&self, time: usize, head: usize, heads: usize) -> &[f64] {
        let first = (time * self.heads + head * self.heads / heads) * self.width;
        &self.numbers[first..first + self.width]
    }

    fn time(&self) -> usize {
        self.numbers.len() / (self.heads * self.width).max(1)
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
        let [query, key, values, output] = [inputs.query, inputs.key, inputs.value, output].map(|x| Table::of(ops, x));
        let rule = MixingRule::Attention { key, bias, mask: inputs.mask, scale: inputs.scale, query };
        Self { reads: ReaderKind::Attention, heads: output.heads, values, output, rule, rows: MixingRows::TOKENS }
    }

    /// `tokens` are those of the text.
    pub(super) fn recurrence<S: Scalar, O: Ops<Scalar = S, Tensor = Tensor<S>>>(
        ops: &O,
        inputs: &Recurrence<'_, Tensor<S>>,
        output: &Tensor<S>,
        tokens: usize,
    ) -> Self {
        let [query, key, values, output] = [inputs.query, inputs.key, inputs.value, output].map(|x| Table::of(ops, x));
        let fade = match inputs.decay {
            Decay::None => DecayTable::None,
            Decay::Scalar(log) => DecayTable::Head(Table::of(ops, log)),
            Decay::Vector(log) => DecayTable::Channel(Table::of(ops, log)),
        };
        let beta = inputs.beta.map(|beta| Table::of(ops, beta));
        let late = usize::from(tokens > 1 && values.time() == tokens + 1);
        let rows = MixingRows { per_token: (values.time() - late) / tokens.max(1), late };
        Self {
            reads: ReaderKind::State,
            heads: output.heads,
            values,
            output,
            rule: MixingRule::Recurrence { query, key, fade, beta },
            rows,
        }
    }

    pub(super) fn general_delta<S: Scalar, O: Ops<Scalar = S, Tensor = Tensor<S>>>(
        ops: &O,
        inputs: &GeneralDelta<'_, Tensor<S>>,
        output: &Tensor<S>,
    ) -> Self {
        let [values, output] = [inputs.value, output].map(|x| Table::of(ops, x));
        let rows = [inputs.query, inputs.key, inputs.decay, inputs.recall_key, inputs.erase_key];
        let [query, key, fade, recall_key, erase_key] = rows.map(|x| Table::of(ops, x));
        let rule = MixingRule::GeneralDelta { query, key, fade, recall_key, erase_key };
        Self { reads: ReaderKind::State, heads: output.heads, values, output, rule, rows: MixingRows::TOKENS }
    }

    pub(super) fn convolution<S: Scalar, O: Ops<Scalar = S, Tensor = Tensor<S>>>(
        ops: &O,
        inputs: &ConvolutionInputs<'_, S>,
        output: &Tensor<S>,
    ) -> Self {
        let wide = |x: &Tensor<S>| ops.values(x).into_iter().map(Scalar::to_f64).collect::<Vec<f64>>();
        let taps = ops.shape(inputs.filters)[1];
        let rule = MixingRule::Convolution { filters: wide(inputs.filters), taps, bias: inputs.bias.map(wide) };
        let [values, output] = [inputs.x, output].map(|x| Table::of(ops, x));
        Self { reads: ReaderKind::Convolution, heads: output.heads, values, output, rule, rows: MixingRows::TOKENS }
    }

    /// Tokens that can be read.
    pub fn tokens(&self) -> usize {
        (self.values.time() - self.rows.late) / self.rows.per_token
    }

    /// The weight of every token in what the token at `time` reads through a head. Those of attention add up to one.
    pub fn weights(&self, time: usize, head: usize) -> Vec<f64> {
        self.rows.fold(&self.row_weights(self.rows.reader(time), head))
    }

    /// The query with which the token at `time` reads through a head; none for a convolution, which has none.
    pub fn query(&self, time: usize, head: usize) -> Option<&[f64]> {
        self.asks(self.rows.reader(time), head)
    }

    /// As [`weights`](Self::weights), if another query were asked.
    ///
    /// # Panics
    /// The query is not as wide as the one it stands for.
    pub fn weights_for(&self, time: usize, head: usize, query: &[f64]) -> Vec<f64> {
        let reader = self.rows.reader(time);
        assert_eq!(self.asks(reader, head).map(<[f64]>::len), Some(query.len()), "width of a query");
        self.rows.fold(&self.row_weights_for(reader, head, query))
    }

    fn asks(&self, row: usize, head: usize) -> Option<&[f64]> {
        match &self.rule {
            MixingRule::Attention { query, .. }
            | MixingRule::Recurrence { query, .. }
            | MixingRule::GeneralDelta { query, .. } => Some(query.row(row, head, self.heads)),
            MixingRule::Convolution { .. } => None,
        }
    }

    fn row_weights(&self, time: usize, head: usize) -> Vec<f64> {
        self.row_weights_for(time, head, self.asks(time, head).unwrap_or_default())
    }

    fn row_weights_for(&self, time: usize, head: usize, asks: &[f64]) -> Vec<f64> {
        let mut weights = vec![0.0; self.values.time()];
        match &self.rule {
            MixingRule::Attention { key, bias, mask, scale, .. } => {
                let seen = mask.range(time, weights.len());
                for (token, weight) in weights.iter_mut().enumerate().take(seen.end).skip(seen.start) {
                    *weight = scale * dot(asks, key.row(token, head, self.heads));
                    if let Some((shape, bias)) = bias {
                        let head = if shape[1] == 1 { 0 } else { head };
                        *weight += bias[(head * shape[2] + time) * shape[3] + token];
                    }
                }
                let seen = &mut weights[seen];
                let largest = seen.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = seen.iter().map(|score| (score - largest).exp()).sum();
                for score in seen {
                    *score = (*score - largest).exp() / sum;
                }
            }
            MixingRule::Recurrence { key, fade, beta, .. } => {
                let mut wanted = asks.to_vec();
                for token in (0..=time).rev() {
                    let key = key.row(token, head, self.heads);
                    let strength = beta.as_ref().map(|beta| beta.row(token, head, self.heads)[0]);
                    let agrees = strength.unwrap_or(1.0) * dot(key, &wanted);
                    weights[token] = agrees;
                    let fade = match fade {
                        DecayTable::None => &[0.0][..],
                        DecayTable::Head(log) | DecayTable::Channel(log) => log.row(token, head, self.heads),
                    };
                    for (channel, (wanted, key)) in wanted.iter_mut().zip(key).enumerate() {
                        let kept = if strength.is_some() { *wanted - agrees * key } else { *wanted };
                        *wanted = kept * fade[channel % fade.len()].exp();
                    }
                }
            }
            MixingRule::GeneralDelta { key, fade, recall_key, erase_key, .. } => {
                let mut wanted = asks.to_vec();
                for token in (0..=time).rev() {
                    let [key, fade, recall_key, erase_key] =
                        [key, fade, recall_key, erase_key].map(|table| table.row(token, head, self.heads));
                    weights[token] = dot(key, &wanted);
                    let erased = dot(erase_key, &wanted);
                    for (wanted, (fade, recall_key)) in wanted.iter_mut().zip(fade.iter().zip(recall_key)) {
                        *wanted = *wanted * fade.exp() - recall_key * erased;
                    }
                }
            }
            MixingRule::Convolution { filters, taps, .. } => {
                for back in 0..(*taps).min(time + 1) {
                    weights[time - back] = filters[head * taps + taps - 1 - back];
                }
            }
        }
        weights
    }

    /// How much of what the token at `time` reads comes from every token, from 0 to 1: weights of attention as they are;
    /// elsewhere, where weights have no scale of their own, by the size of weight times value. All zero if nothing is read.
    pub fn shares(&self, time: usize, head: usize) -> Vec<f64> {
        let mut shares = self.row_weights(self.rows.reader(time), head);
        if self.reads == ReaderKind::Attention {
            return shares;
        }
        for (token, share) in shares.iter_mut().enumerate() {
            let value = self.values.row(token, head, self.heads);
            *share = share.abs() * dot(value, value).sqrt();
        }
        let sum: f64 = shares.iter().sum();
        let scale = if sum > 1e-9 { 1.0 / sum } else { 0.0 };
        for share in &mut shares {
            *share *= scale;
        }
        self.rows.fold(&shares)
    }

    /// The largest difference between a row of weights times the values and what the forward pass computed, over all heads.
    pub fn mismatch(&self, time: usize) -> f64 {
        let (time, mut worst) = (self.rows.reader(time), 0.0_f64);
        for head in 0..self.heads {
            let weights = self.row_weights(time, head);
            let found = self.output.row(time, head, self.heads);
            for (channel, found) in found.iter().enumerate() {
                let values = (0..weights.len()).map(|token| self.values.row(token, head, self.heads)[channel]);
                let mut sum: f64 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
                if let MixingRule::Convolution { bias: Some(bias), .. } = &self.rule {
                    sum += bias[head];
                }
                worst = worst.max((sum - found).abs());
            }
        }
        worst
    }
}
