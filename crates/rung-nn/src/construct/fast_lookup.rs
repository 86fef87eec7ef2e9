//! The answers of many prompts at once, for stacks of attention whose keys and values come from the embedding alone.
//!
//! There (U1, say) only the answering token climbs. What the others contribute is a sum over their fields: the key of an entry
//! is the sum of its fields' rows, each times the key projection. So those products are made once, for whole vocabularies:
//!
//! - fields that no key reads (the values of the entries) may differ from prompt to prompt; the keys are then the same for a
//!   whole batch, and all its scores are one matrix product;
//! - the read is a sum of values by weight, each a row of its vocabulary's products;
//! - the unembedding's columns that are zero are left out.
//!
//! Sums are taken in another order than in [`Model::forward`](crate::Model::forward); a test holds the two against each other.

use rung_engine::{Native, Ops, Scalar, Tensor};

use crate::model::{InputConfig, ModelConfig, NormConfig};
use crate::network::Network;
use crate::position::Positions;
use crate::precision::Precision;

/// What is the same for all prompts.
pub struct FastLookup<S: Scalar> {
    layers: Vec<Layer<S>>,
    tables: Vec<Tensor<S>>,
    /// The unembedding without its columns of zeros, and which columns those are that remain.
    unembedding: Tensor<S>,
    scored: Vec<usize>,
    /// Fields that keys read, or that say the same in every prompt.
    shared: Vec<usize>,
    /// Fields that only values read.
    free: Vec<usize>,
    layout: Option<Layout<S>>,
}

struct Layer<S: Scalar> {
    sizes: Sizes,
    query: Tensor<S>,
    key: Tensor<S>,
    value: Tensor<S>,
    output: Tensor<S>,
    up: Tensor<S>,
    down: Tensor<S>,
    /// For each field, its vocabulary times the value projection, if that is not all zero.
    values: Vec<Option<Tensor<S>>>,
}

#[derive(Clone, Copy)]
struct Sizes {
    heads: usize,
    kv: usize,
    key: usize,
    value: usize,
}

/// Keys and shared values of one arrangement of entries.
struct Layout<S: Scalar> {
    cells: Vec<u32>,
    keys: Vec<Tensor<S>>,
    values: Vec<Option<Tensor<S>>>,
}

impl<S: Scalar> FastLookup<S> {
    /// Prepares a construction, if it is of this kind. The executor must be bound to its weights.
    pub fn new(built: &Network<S>, ops: &Native<S>) -> Option<Self> {
        let ModelConfig { norm, causal, positions, precision, .. } = built.config;
        let plain = norm == NormConfig::None
            && causal
            && positions == Positions::None
            && precision == Precision::default()
            && built.chain_of_thought().is_none();
        let softmax = built.plan.layers.iter().all(
            |layer| matches!(&layer.mixers[..], [mixer] if mixer.name() == "full" && mixer.number("conv") == Some(0)),
        );
        if !plain || !softmax || super::layers_on_all_tokens(&built.config, &built.model, &built.weights) > 0 {
            return None;
        }
        let weights = &built.weights;
        let get = |name: &str| weights.find(name).map(|id| ops.parameter(id));
        let InputConfig::Fields(fields) = &built.config.input else { return None };
        let tables: Option<Vec<_>> =
            fields.iter().map(|field| get(&format!("embeddings.{}.weight", field.name))).collect();
        let tables = tables?;
        let mut read_by_keys = vec![false; fields.len()];
        let mut layers = Vec::new();
        for (index, layer) in built.plan.layers.iter().enumerate() {
            let number = |name: &str| layer.mixers[0].number(name).unwrap_or_default() as usize;
            let weight = |name: &str| get(&format!("layers.{index}.{name}_proj.weight"));
            let [key, value] = [weight("mixer.k")?, weight("mixer.v")?];
            let used = |table: &Tensor<S>, projection: &Tensor<S>| {
                let product = ops.linear(table, projection, None);
                ops.values(&product).iter().any(|number| *number != S::ZERO).then_some(product)
            };
            for (read, table) in read_by_keys.iter_mut().zip(&tables) {
                *read |= used(table, &key).is_some();
            }
            let values = tables.iter().map(|table| used(table, &value)).collect();
            layers.push(Layer {
                sizes: Sizes { heads: number("heads"), kv: number("kv"), key: number("key"), value: number("value") },
                query: weight("mixer.q")?,
                output: weight("mixer.o")?,
                up: weight("mlp.up")?,
                down: weight("mlp.down")?,
                key,
                value,
                values,
            });
        }
        let (shared, free) = (0..fields.len()).partition(|field| read_by_keys[*field]);
        let (unembedding, scored) = without_zeros(ops, &get("lm_head.weight")?);
        Some(Self { layers, tables, unembedding, scored, shared, free, layout: None })
    }

    /// Scores of all classes at the last token of each prompt, `[batch, classes]`; none if the prompts differ in what keys read.
    pub fn scores(&mut self, ops: &Native<S>, tokens: &[u32], batch: usize) -> Option<Tensor<S>> {
        let fields = self.tables.len();
        let length = tokens.len() / batch / fields;
        let rows: Vec<&[u32]> = tokens.chunks_exact(length * fields).collect();
        self.arrange(ops, &rows, length)?;
        let layout = self.layout.as_ref()?;
        let last: Vec<&[u32]> = rows.iter().map(|row| &row[(length - 1) * fields..]).collect();
        let mut stream = ops.gather_rows(&self.tables[0], &column(&last, 0));
        for field in 1..fields {
            stream = ops.add(&stream, &ops.gather_rows(&self.tables[field], &column(&last, field)));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let read = layer.read(ops, &stream, &layout.keys[index], layout.values[index].as_ref(), &|weights, own| {
                self.free_values(ops, layer, &rows, length, weights, own)
            });
            stream = ops.add(&stream, &ops.linear(&read, &layer.output, None));
            let hidden = ops.relu(&ops.linear(&stream, &layer.up, None));
            stream = ops.add(&stream, &ops.linear(&hidden, &layer.down, None));
        }
        let (values, width) = (ops.values(&stream), ops.shape(&stream).width());
        let scored: Vec<S> =
            values.chunks_exact(width).flat_map(|row| self.scored.iter().map(|column| row[*column])).collect();
        Some(ops.linear(&ops.constant(&[batch, self.scored.len()], &scored), &self.unembedding, None))
    }

    /// Makes keys and shared values for the arrangement of these prompts, unless they are there already.
    fn arrange(&mut self, ops: &Native<S>, rows: &[&[u32]], length: usize) -> Option<()> {
        let fields = self.tables.len();
        let same = |cells: &[u32], row: &[u32]| {
            let others = row.chunks_exact(fields).take(length - 1).zip(cells.chunks_exact(self.shared.len().max(1)));
            others
                .into_iter()
                .all(|(token, cells)| self.shared.iter().zip(cells).all(|(field, cell)| token[*field] == *cell))
        };
        let known = self.layout.as_ref().is_some_and(|layout| {
            layout.cells.len() == (length - 1) * self.shared.len() && same(&layout.cells, rows[0])
        });
        if !known {
            let tokens = rows[0].chunks_exact(fields).take(length - 1);
            let cells: Vec<u32> =
                tokens.clone().flat_map(|token| self.shared.iter().map(|field| token[*field])).collect();
            let others: Vec<&[u32]> = tokens.collect();
            let mut keys = Vec::new();
            let mut values = Vec::new();
            for layer in &self.layers {
                let mut key = ops.zeros(&[others.len(), layer.sizes.kv * layer.sizes.key]);
                let mut value: Option<Tensor<S>> = None;
                for field in &self.shared {
                    let ids = column(&others, *field);
                    let rows = ops.gather_rows(&self.tables[*field], &ids);
                    key = ops.add(&key, &ops.linear(&rows, &layer.key, None));
                    if let Some(table) = &layer.values[*field] {
                        let rows = ops.gather_rows(table, &ids);
                        value = Some(value.map_or(rows.clone(), |value| ops.add(&value, &rows)));
                    }
                }
                keys.push(key);
                values.push(value);
            }
            self.layout = Some(Layout { cells, keys, values });
        }
        let cells = &self.layout.as_ref()?.cells;
        rows.iter().all(|row| same(cells, row)).then_some(())
    }

    /// What fields that differ from prompt to prompt add to a read.
    fn free_values(
        &self,
        ops: &Native<S>,
        layer: &Layer<S>,
        rows: &[&[u32]],
        length: usize,
        weights: &[S],
        kv_head: usize,
    ) -> Option<Tensor<S>> {
        let (fields, width) = (self.tables.len(), layer.sizes.value);
        let mut sum: Option<Tensor<S>> = None;
        for field in &self.free {
            let Some(table) = &layer.values[*field] else { continue };
            let (table, stride, place) = (ops.values(table), ops.shape(table)[1], kv_head * width);
            let mut read = vec![S::ZERO; rows.len() * width];
            let of_prompts = rows.iter().zip(weights.chunks_exact(length)).zip(read.chunks_exact_mut(width));
            for ((row, weights), read) in of_prompts {
                let ids = row.iter().skip(*field).step_by(fields);
                for (id, weight) in ids.zip(&weights[..length - 1]) {
                    let values = &table[*id as usize * stride + place..][..width];
                    for (sum, value) in read.iter_mut().zip(values) {
                        *sum += *weight * *value;
                    }
                }
            }
            let part = ops.constant(&[rows.len(), width], &read);
            sum = Some(sum.map_or(part.clone(), |sum| ops.add(&sum, &part)));
        }
        sum
    }
}

/// What free fields add to a read, given the weights of all tokens and the number of the value head.
type Free<'a, S> = dyn Fn(&[S], usize) -> Option<Tensor<S>> + 'a;

impl<S: Scalar> Layer<S> {
    /// What the answering tokens read, `[batch, heads * value]`.
    fn read(
        &self,
        ops: &Native<S>,
        stream: &Tensor<S>,
        keys: &Tensor<S>,
        values: Option<&Tensor<S>>,
        free: &Free<'_, S>,
    ) -> Tensor<S> {
        let Sizes { heads, kv, key, value } = self.sizes;
        let scale = (key as f64).powf(-0.5);
        let others = ops.shape(keys)[0];
        let query = ops.linear(stream, &self.query, None);
        let (own_key, own_value) = (ops.linear(stream, &self.key, None), ops.linear(stream, &self.value, None));
        let parts: Vec<Tensor<S>> = (0..heads)
            .map(|head| {
                let kv_head = head * kv / heads;
                let part =
                    |x: &Tensor<S>, index: usize, width: usize| ops.slice(x, 1, index * width..(index + 1) * width);
                let query = ops.scale(&part(&query, head, key), scale);
                let own = ops.sum(&ops.mul(&query, &part(&own_key, kv_head, key)), 1);
                let seen = ops.product(&query, false, &part(keys, kv_head, key), true);
                let weights = ops.softmax(&ops.concat(&[seen, own], 1));
                let of_own = ops.slice(&weights, 1, others..others + 1);
                let mut read = ops.mul(&part(&own_value, kv_head, value), &of_own);
                if let Some(values) = values {
                    let of_others = ops.slice(&weights, 1, 0..others);
                    read = ops.add(&read, &ops.matmul(&of_others, &part(values, kv_head, value)));
                }
                if let Some(more) = free(&ops.values(&weights), kv_head) {
                    read = ops.add(&read, &more);
                }
                read
            })
            .collect();
        ops.concat(&parts, 1)
    }
}

/// A matrix without its columns of zeros (one stays if there are no others), and which columns remain.
fn without_zeros<S: Scalar>(ops: &Native<S>, matrix: &Tensor<S>) -> (Tensor<S>, Vec<usize>) {
    let (values, shape) = (ops.values(matrix), ops.shape(matrix));
    let width = shape.width();
    let used = |column: &usize| values.iter().skip(*column).step_by(width).any(|value| *value != S::ZERO);
    let mut kept: Vec<usize> = (0..width).filter(used).collect();
    if kept.is_empty() {
        kept.push(0);
    }
    let rest: Vec<S> = values.chunks_exact(width).flat_map(|row| kept.iter().map(|column| row[*column])).collect();
    (ops.constant(&[shape.rows(), kept.len()], &rest), kept)
}

fn column(tokens: &[&[u32]], field: usize) -> Vec<usize> {
    tokens.iter().map(|token| token[field] as usize).collect()
}
