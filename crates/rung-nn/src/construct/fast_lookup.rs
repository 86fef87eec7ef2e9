//! Answers many prompts at once, for attention stacks whose keys and values depend on the embedding alone.
//!
//! In such a stack (U1, for instance) only the last token has to pass through the layers. The key of an earlier token is the sum over its
//! fields of embedding row times key projection, and so is its value. So these products are computed once for the whole vocabulary of
//! each field:
//!
//! - fields that no key depends on (for instance the field with the value of a table entry) may differ from prompt to prompt; the keys are
//!   then the same for all prompts of a batch, and all attention scores are one matrix product;
//! - the output of a head is a weighted sum of rows of the value products;
//! - the columns of the unembedding that are zero are left out.
//!
//! Sums are taken in another order than in [`Model::forward`](crate::Model::forward); a test compares the two.

use rung_engine::{Native, Ops, Scalar, Tensor};

use super::weight_writer::AttentionSizes;
use crate::model::{InputConfig, ModelConfig, NormConfig};
use crate::network::Network;
use crate::position::Positions;
use crate::precision::SimulatedPrecision;

/// The products that are the same for all prompts.
pub struct FastLookup<S: Scalar> {
    layers: Vec<LookupLayer<S>>,
    /// The embedding table of each field.
    embeddings: Vec<Tensor<S>>,
    /// The unembedding without its zero columns.
    unembedding: Tensor<S>,
    /// The columns of the residual stream that remain in `unembedding`.
    unembedding_columns: Vec<usize>,
    /// Fields that keys depend on, which must be equal in all prompts of a batch.
    key_fields: Vec<usize>,
    /// Fields that no key depends on (values may).
    value_only_fields: Vec<usize>,
    /// Keys and values of the last batch, which the next one can use if its key fields are the same.
    cache: Option<CachedKeys<S>>,
}

struct LookupLayer<S: Scalar> {
    sizes: AttentionSizes,
    query: Tensor<S>,
    key: Tensor<S>,
    value: Tensor<S>,
    output: Tensor<S>,
    up: Tensor<S>,
    down: Tensor<S>,
    /// For each field, its embedding table times the value projection, if that is not all zero.
    field_values: Vec<Option<Tensor<S>>>,
}

/// The keys of all tokens but the last, and what the key fields add to their values.
struct CachedKeys<S: Scalar> {
    /// The ids in the key fields, token after token.
    ids: Vec<u32>,
    /// One tensor per layer.
    keys: Vec<Tensor<S>>,
    /// One tensor per layer, unless it is zero.
    values: Vec<Option<Tensor<S>>>,
}

impl<S: Scalar> FastLookup<S> {
    /// Prepares a network, or returns `None` if its keys and values depend on more than the embedding. The executor must be bound to its
    /// weights.
    pub fn new(network: &Network<S>, ops: &Native<S>) -> Option<Self> {
        let ModelConfig { norm, causal, positions, precision, .. } = network.config;
        let is_supported = norm == NormConfig::None
            && causal
            && positions == Positions::None
            && precision == SimulatedPrecision::default()
            && network.chain_of_thought().is_none();
        let is_attention_only = network.plan.layers.iter().all(
            |layer| matches!(&layer.mixers[..], [mixer] if mixer.name() == "full" && mixer.number("conv") == Some(0)),
        );
        if !is_supported
            || !is_attention_only
            || super::layers_on_all_tokens(&network.config, &network.model, &network.weights) > 0
        {
            return None;
        }
        let weights = &network.weights;
        let get = |name: &str| weights.find(name).map(|id| ops.parameter(id));
        let InputConfig::Fields(fields) = &network.config.input else { return None };
        let embeddings: Option<Vec<_>> =
            fields.iter().map(|field| get(&format!("embeddings.{}.weight", field.name))).collect();
        let embeddings = embeddings?;
        let mut used_by_keys = vec![false; fields.len()];
        let mut layers = Vec::new();
        for (index, layer) in network.plan.layers.iter().enumerate() {
            let weight = |name: &str| get(&format!("layers.{index}.{name}_proj.weight"));
            let [key, value] = [weight("mixer.k")?, weight("mixer.v")?];
            let nonzero_product = |embedding: &Tensor<S>, projection: &Tensor<S>| {
                let product = ops.linear(embedding, projection, None);
                ops.values(&product).iter().any(|number| *number != S::ZERO).then_some(product)
            };
            for (used, embedding) in used_by_keys.iter_mut().zip(&embeddings) {
                *used |= nonzero_product(embedding, &key).is_some();
            }
            let field_values = embeddings.iter().map(|embedding| nonzero_product(embedding, &value)).collect();
            layers.push(LookupLayer {
                sizes: AttentionSizes::from_mixer(&layer.mixers[0]),
                query: weight("mixer.q")?,
                output: weight("mixer.o")?,
                up: weight("mlp.up")?,
                down: weight("mlp.down")?,
                key,
                value,
                field_values,
            });
        }
        let (key_fields, value_only_fields) = (0..fields.len()).partition(|field| used_by_keys[*field]);
        let (unembedding, unembedding_columns) = without_zero_columns(ops, &get("lm_head.weight")?);
        Some(Self { layers, embeddings, unembedding, unembedding_columns, key_fields, value_only_fields, cache: None })
    }

    /// Logits at the last token of each prompt, `[batch, classes]`; `None` if the prompts differ in their key fields.
    pub fn last_logits(&mut self, ops: &Native<S>, tokens: &[u32], batch: usize) -> Option<Tensor<S>> {
        let fields = self.embeddings.len();
        let length = tokens.len() / batch / fields;
        let prompts: Vec<&[u32]> = tokens.chunks_exact(length * fields).collect();
        self.cache_keys(ops, &prompts, length)?;
        let cache = self.cache.as_ref()?;
        let last_tokens: Vec<&[u32]> = prompts.iter().map(|prompt| &prompt[(length - 1) * fields..]).collect();
        let mut residual = ops.gather_rows(&self.embeddings[0], &field_ids(&last_tokens, 0));
        for field in 1..fields {
            residual = ops.add(&residual, &ops.gather_rows(&self.embeddings[field], &field_ids(&last_tokens, field)));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let value_only_output = |weights: &[S], kv_head: usize| {
                self.value_only_output(ops, layer, (&prompts, length), weights, kv_head)
            };
            let head_outputs =
                layer.attend(ops, &residual, &cache.keys[index], cache.values[index].as_ref(), &value_only_output);
            residual = ops.add(&residual, &ops.linear(&head_outputs, &layer.output, None));
            let hidden = ops.relu(&ops.linear(&residual, &layer.up, None));
            residual = ops.add(&residual, &ops.linear(&hidden, &layer.down, None));
        }
        let (values, width) = (ops.values(&residual), ops.shape(&residual).width());
        let columns = &self.unembedding_columns;
        let used_values: Vec<S> =
            values.chunks_exact(width).flat_map(|row| columns.iter().map(|column| row[*column])).collect();
        Some(ops.linear(&ops.constant(&[batch, columns.len()], &used_values), &self.unembedding, None))
    }

    /// Computes the keys of these prompts, unless they are cached already. Returns `None` if the prompts differ in their key fields.
    fn cache_keys(&mut self, ops: &Native<S>, prompts: &[&[u32]], length: usize) -> Option<()> {
        let fields = self.embeddings.len();
        let has_key_ids = |prompt: &[u32], ids: &[u32]| {
            let tokens = prompt.chunks_exact(fields).take(length - 1);
            tokens
                .zip(ids.chunks_exact(self.key_fields.len().max(1)))
                .all(|(token, ids)| self.key_fields.iter().zip(ids).all(|(field, id)| token[*field] == *id))
        };
        let is_cached = self.cache.as_ref().is_some_and(|cache| {
            cache.ids.len() == (length - 1) * self.key_fields.len() && has_key_ids(prompts[0], &cache.ids)
        });
        if !is_cached {
            let tokens: Vec<&[u32]> = prompts[0].chunks_exact(fields).take(length - 1).collect();
            let ids: Vec<u32> =
                tokens.iter().flat_map(|token| self.key_fields.iter().map(|field| token[*field])).collect();
            let mut keys = Vec::new();
            let mut values = Vec::new();
            for layer in &self.layers {
                let mut key = ops.zeros(&[tokens.len(), layer.sizes.kv_heads * layer.sizes.key_dim]);
                let mut value: Option<Tensor<S>> = None;
                for field in &self.key_fields {
                    let ids = field_ids(&tokens, *field);
                    let rows = ops.gather_rows(&self.embeddings[*field], &ids);
                    key = ops.add(&key, &ops.linear(&rows, &layer.key, None));
                    if let Some(field_values) = &layer.field_values[*field] {
                        let rows = ops.gather_rows(field_values, &ids);
                        value = Some(value.map_or(rows.clone(), |value| ops.add(&value, &rows)));
                    }
                }
                keys.push(key);
                values.push(value);
            }
            self.cache = Some(CachedKeys { ids, keys, values });
        }
        let ids = &self.cache.as_ref()?.ids;
        prompts.iter().all(|prompt| has_key_ids(prompt, ids)).then_some(())
    }

    /// What the value-only fields add to the output of a head, given its attention weights.
    fn value_only_output(
        &self,
        ops: &Native<S>,
        layer: &LookupLayer<S>,
        (prompts, length): (&[&[u32]], usize),
        weights: &[S],
        kv_head: usize,
    ) -> Option<Tensor<S>> {
        let (fields, width) = (self.embeddings.len(), layer.sizes.value_dim);
        let mut sum: Option<Tensor<S>> = None;
        for field in &self.value_only_fields {
            let Some(table) = &layer.field_values[*field] else { continue };
            let (table, stride, offset) = (ops.values(table), ops.shape(table)[1], kv_head * width);
            let mut outputs = vec![S::ZERO; prompts.len() * width];
            let rows = prompts.iter().zip(weights.chunks_exact(length)).zip(outputs.chunks_exact_mut(width));
            for ((prompt, weights), output) in rows {
                let ids = prompt.iter().skip(*field).step_by(fields);
                for (id, weight) in ids.zip(&weights[..length - 1]) {
                    let values = &table[*id as usize * stride + offset..][..width];
                    for (sum, value) in output.iter_mut().zip(values) {
                        *sum += *weight * *value;
                    }
                }
            }
            let addend = ops.constant(&[prompts.len(), width], &outputs);
            sum = Some(sum.map_or(addend.clone(), |sum| ops.add(&sum, &addend)));
        }
        sum
    }
}

/// What the value-only fields add to a head's output, given the attention weights of all tokens and the index of the KV head.
type ValueOnlyOutput<'a, S> = dyn Fn(&[S], usize) -> Option<Tensor<S>> + 'a;

impl<S: Scalar> LookupLayer<S> {
    /// The output of attention at the last tokens, before the output projection: `[batch, heads * value width]`.
    fn attend(
        &self,
        ops: &Native<S>,
        residual: &Tensor<S>,
        keys: &Tensor<S>,
        values: Option<&Tensor<S>>,
        value_only_output: &ValueOnlyOutput<'_, S>,
    ) -> Tensor<S> {
        let AttentionSizes { heads, kv_heads, key_dim, value_dim } = self.sizes;
        let scale = (key_dim as f64).powf(-0.5);
        let earlier_tokens = ops.shape(keys)[0];
        let query = ops.linear(residual, &self.query, None);
        let (last_token_key, last_token_value) =
            (ops.linear(residual, &self.key, None), ops.linear(residual, &self.value, None));
        let outputs: Vec<Tensor<S>> = (0..heads)
            .map(|head| {
                let kv_head = head * kv_heads / heads;
                let slice_head =
                    |x: &Tensor<S>, index: usize, width: usize| ops.slice(x, 1, index * width..(index + 1) * width);
                let query = ops.scale(&slice_head(&query, head, key_dim), scale);
                let last_token_score = ops.sum(&ops.mul(&query, &slice_head(&last_token_key, kv_head, key_dim)), 1);
                let earlier_scores = ops.product(&query, false, &slice_head(keys, kv_head, key_dim), true);
                let weights = ops.softmax(&ops.concat(&[earlier_scores, last_token_score], 1));
                let last_token_weight = ops.slice(&weights, 1, earlier_tokens..earlier_tokens + 1);
                let mut output = ops.mul(&slice_head(&last_token_value, kv_head, value_dim), &last_token_weight);
                if let Some(values) = values {
                    let earlier_weights = ops.slice(&weights, 1, 0..earlier_tokens);
                    output = ops.add(&output, &ops.matmul(&earlier_weights, &slice_head(values, kv_head, value_dim)));
                }
                if let Some(addend) = value_only_output(&ops.values(&weights), kv_head) {
                    output = ops.add(&output, &addend);
                }
                output
            })
            .collect();
        ops.concat(&outputs, 1)
    }
}

/// A matrix without its zero columns (one stays if all are zero), and the indices of the remaining columns.
fn without_zero_columns<S: Scalar>(ops: &Native<S>, matrix: &Tensor<S>) -> (Tensor<S>, Vec<usize>) {
    let (values, shape) = (ops.values(matrix), ops.shape(matrix));
    let width = shape.width();
    let is_nonzero = |column: &usize| values.iter().skip(*column).step_by(width).any(|value| *value != S::ZERO);
    let mut nonzero_columns: Vec<usize> = (0..width).filter(is_nonzero).collect();
    if nonzero_columns.is_empty() {
        nonzero_columns.push(0);
    }
    let narrowed: Vec<S> =
        values.chunks_exact(width).flat_map(|row| nonzero_columns.iter().map(|column| row[*column])).collect();
    (ops.constant(&[shape.rows(), nonzero_columns.len()], &narrowed), nonzero_columns)
}

/// The ids of one field of many tokens.
fn field_ids(tokens: &[&[u32]], field: usize) -> Vec<usize> {
    tokens.iter().map(|token| token[field] as usize).collect()
}
