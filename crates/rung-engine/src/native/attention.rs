//! Softmax attention on the native executor: forward and backward pass of all its variants.

use super::pool::Buffer;
use super::record::Record;
use super::tape::{BackwardPass, GradientTarget, Tensor};
use super::{Native, extents_of, threaded_attention};
use crate::choice::{BlockChoice, BlockReaders};
use crate::kernels::{attention, blocks, indexer, left_to_right, tokens};
use crate::ops::{AccumulatorRounding, AttentionInputs, BlockAttention, Indexer};
use crate::scalar::Scalar;
use crate::shape::Shape;
use std::sync::PoisonError;

/// The extents of attention, checked against each other.
fn attention_extents<S: Scalar>(inputs: &AttentionInputs<'_, Tensor<S>>) -> attention::Extents {
    let AttentionInputs { query, key, value, bias, mask, scale } = *inputs;
    let [batch, query_len, heads, width] = extents_of("attention", query);
    let [_, key_len, kv_heads, value_width] = extents_of("attention", value);
    assert_eq!(key.shape, Shape::new(&[batch, key_len, kv_heads, width]), "keys of attention from {}", query.shape);
    assert!(heads.is_multiple_of(kv_heads) && value.shape[0] == batch, "{heads} heads on {kv_heads} KV heads");
    assert!(query_len <= key_len, "{query_len} queries cannot be the last of {key_len} keys");
    if let Some(bias) = bias {
        assert_eq!(bias.shape[2..], [query_len, key_len], "a bias of attention");
    }
    attention::Extents { batch, query_len, key_len, heads, kv_heads, width, value_width, mask, scale }
}

impl<S: Scalar> Native<S> {
    #[inline(never)]
    pub(super) fn run_attention(&self, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        let AttentionInputs { query, key, value, bias, .. } = *inputs;
        let extents = attention_extents(inputs);
        let shape = query.shape.with(3, extents.value_width);
        let view = kernel_inputs(query, key, value, bias);
        let bias_target = Tensor::grad_target_or_none(bias);
        let grad_targets = [query.grad_target, key.grad_target, value.grad_target, bias_target];
        let takes_gradient = grad_targets.iter().any(|target| target.is_some());
        let divisible = threaded_attention::is_divisible(&extents, &view) && !takes_gradient;
        if let Some(workers) = self.workers.as_ref().filter(|_| divisible) {
            let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
            let fill = |out: &mut [S]| threaded_attention::forward_on(&mut workers, &self.pool, extents, &view, out);
            let data = self.compute_buffer(shape.size(), fill);
            self.lock().end_operation("attention", &data);
            return Tensor { data, shape, grad_target: GradientTarget::None };
        }
        let mut scratch = self.pool.take(extents.forward_scratch_len::<S>());
        let mut log_sums = self.pool.take(extents.batch * extents.heads * extents.query_len);
        let data = self.compute_buffer(shape.size(), |out| {
            attention::forward(extents, &view, scratch.write(), log_sums.write(), out);
        });
        self.emit("attention", shape, data, &grad_targets, |out, data, _| Record::Attention {
            extents,
            inputs: [query.clone(), key.clone(), value.clone()],
            bias: bias.cloned(),
            result: data.clone(),
            log_sums,
            out,
        })
    }

    #[inline(never)]
    pub(super) fn run_left_to_right_attention(
        &self,
        inputs: &AttentionInputs<'_, Tensor<S>>,
        rounding: Option<AccumulatorRounding>,
    ) -> Tensor<S> {
        let AttentionInputs { query, key, value, bias, .. } = *inputs;
        let (extents, view) = (attention_extents(inputs), kernel_inputs(query, key, value, bias));
        let shape = query.shape.with(3, extents.value_width);
        let data = self.compute_buffer(shape.size(), |out| {
            out.fill(S::ZERO);
            left_to_right::forward(extents, &view, rounding, out);
        });
        Tensor { data, shape, grad_target: GradientTarget::None }
    }

    #[inline(never)]
    pub(super) fn run_block_attention(&self, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        let BlockAttention { query, key, value, choice, scale } = *inputs;
        let [batch, query_len, heads, width] = extents_of("block_attention", query);
        let [_, key_len, kv_heads, value_width] = extents_of("block_attention", value);
        assert_eq!(key.shape, Shape::new(&[batch, key_len, kv_heads, width]), "keys of attention from {}", query.shape);
        let (groups, block) = (choice.groups(), choice.block_size());
        assert!(heads.is_multiple_of(kv_heads) && heads.is_multiple_of(groups), "{heads} heads, {groups} groups");
        choice.check(batch, query_len, key_len);
        let extents =
            blocks::Extents { batch, query_len, key_len, heads, kv_heads, groups, width, value_width, block, scale };
        let mut log_sums = self.pool.take(batch * heads * query_len);
        let shape = query.shape.with(3, value_width);
        let grad_targets = [query.grad_target, key.grad_target, value.grad_target];
        if block == 1 {
            let mut scratch = self.pool.take(extents.tokens_forward_scratch_len::<S>(choice));
            let data = self.compute_buffer(shape.size(), |out| {
                let inputs = [query, key, value].map(|x| &x.data[..]);
                tokens::forward(extents, choice, inputs, scratch.write(), (log_sums.write(), out));
            });
            return self.emit("block_attention", shape, data, &grad_targets, |out, data, _| Record::TokenAttention {
                extents,
                choice: choice.clone(),
                inputs: [query.clone(), key.clone(), value.clone()],
                result: data.clone(),
                log_sums,
                out,
            });
        }
        let readers = choice.readers(query_len, key_len);
        let mut scratch = self.pool.take(extents.forward_scratch_len());
        let data = self.compute_buffer(shape.size(), |out| {
            let inputs = [query, key, value].map(|x| &x.data[..]);
            blocks::forward(extents, &readers, inputs, scratch.write(), (log_sums.write(), out));
        });
        self.emit("block_attention", shape, data, &grad_targets, |out, data, _| Record::BlockAttention {
            extents,
            readers,
            inputs: [query.clone(), key.clone(), value.clone()],
            result: data.clone(),
            log_sums,
            out,
        })
    }

    #[inline(never)]
    pub(super) fn run_choose_tokens(&self, inputs: &Indexer<'_, Tensor<S>>) -> BlockChoice {
        let Indexer { query, head_weights, key, top } = *inputs;
        let [batch, query_len, heads, width] = extents_of("choose_tokens", query);
        let [_, key_len, _] = extents_of("choose_tokens", key);
        assert_eq!(key.shape, Shape::new(&[batch, key_len, width]), "keys of an indexer with queries {}", query.shape);
        assert_eq!(head_weights.shape.size(), batch * query_len * heads, "head weights {}", head_weights.shape);
        assert!(query_len <= key_len, "{query_len} queries cannot be the last of {key_len} keys");
        let extents = indexer::Extents { batch, query_len, key_len, heads, width, top };
        let mut scratch = self.pool.take(extents.scratch_len::<S>());
        let choice = indexer::choose(extents, [query, head_weights, key].map(|x| &x.data[..]), scratch.write());
        self.lock().end_operation("choose_tokens", &[]);
        choice
    }
}

/// Gradients of attention, from its result, its log-sums and the gradient of its result.
pub(super) fn backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    extents: attention::Extents,
    [query, key, value]: &[Tensor<S>; 3],
    bias: Option<&Tensor<S>>,
    results: (&[S], &[S], &[S]),
) {
    let mut grad_query = pass.pool.take(query.shape.size());
    let mut grad_key = pass.pool.take_filled(key.shape.size(), S::ZERO);
    let mut grad_value = pass.pool.take_filled(value.shape.size(), S::ZERO);
    let mut grad_bias =
        bias.filter(|bias| bias.grad_target.is_some()).map(|bias| pass.pool.take_filled(bias.shape.size(), S::ZERO));
    let mut scratch = pass.pool.take(extents.backward_scratch_len::<S>());
    let inputs = kernel_inputs(query, key, value, bias);
    let mut gradients = attention::Gradients {
        query: grad_query.write(),
        key: grad_key.write(),
        value: grad_value.write(),
        bias: grad_bias.as_mut().map(Buffer::write),
    };
    attention::backward(extents, &inputs, results, scratch.write(), &mut gradients);
    pass.add_gradient(query.grad_target, grad_query);
    pass.add_gradient(key.grad_target, grad_key);
    pass.add_gradient(value.grad_target, grad_value);
    if let Some(grad_bias) = grad_bias {
        pass.add_gradient(Tensor::grad_target_or_none(bias), grad_bias);
    }
}

/// Gradients of block attention, from its result, its log-sums and the gradient of its result.
pub(super) fn backward_blocks<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    extents: blocks::Extents,
    readers: &BlockReaders,
    inputs: &[Tensor<S>; 3],
    results: (&[S], &[S], &[S]),
) {
    let mut gradients = inputs.each_ref().map(|x| pass.pool.take_filled(x.shape.size(), S::ZERO));
    let mut scratch = pass.pool.take(extents.backward_scratch_len());
    let data = inputs.each_ref().map(|x| &x.data[..]);
    blocks::backward(extents, readers, data, results, scratch.write(), gradients.each_mut().map(Buffer::write));
    for (x, gradient) in inputs.iter().zip(gradients) {
        pass.add_gradient(x.grad_target, gradient);
    }
}

/// The same for blocks of one token.
pub(super) fn backward_tokens<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    extents: blocks::Extents,
    choice: &BlockChoice,
    inputs: &[Tensor<S>; 3],
    results: (&[S], &[S], &[S]),
) {
    let mut gradients = inputs.each_ref().map(|x| pass.pool.take_filled(x.shape.size(), S::ZERO));
    let mut scratch = pass.pool.take(extents.tokens_backward_scratch_len::<S>(choice));
    let data = inputs.each_ref().map(|x| &x.data[..]);
    tokens::backward(extents, choice, data, results, scratch.write(), gradients.each_mut().map(Buffer::write));
    for (x, gradient) in inputs.iter().zip(gradients) {
        pass.add_gradient(x.grad_target, gradient);
    }
}

/// What the kernel reads of attention's tensors.
fn kernel_inputs<'a, S: Scalar>(
    query: &'a Tensor<S>,
    key: &'a Tensor<S>,
    value: &'a Tensor<S>,
    bias: Option<&'a Tensor<S>>,
) -> attention::Inputs<'a, S> {
    let bias = bias.map(|bias| attention::Bias {
        values: &bias.data,
        per_sequence: bias.shape[0] > 1,
        per_head: bias.shape[1] > 1,
    });
    attention::Inputs { query: &query.data, key: &key.data, value: &value.data, bias }
}
