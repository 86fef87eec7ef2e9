//! A small model with every kind of layer, for the tests of whole steps.

use rung_engine::{AttentionInputs, AttentionMask, Decay, Native, Ops, Parameter, Parameters, Recurrence, Tensor};

/// Extents.
pub const LENGTH: usize = 24;
const WIDTH: usize = 16;
const HEADS: usize = 2;

/// Weights, and one matrix per projection.
pub struct Model {
    pub weights: Parameters<f32>,
    table: Parameter,
    layers: Vec<[Parameter; 6]>,
    gates: Parameter,
    filters: Parameter,
    gain: Parameter,
}

impl Model {
    pub fn new() -> Self {
        let mut weights = Parameters::new();
        let mut seed = 1_u64;
        let mut add = |name: &str, shape: &[usize]| {
            let values = (0..shape.iter().product()).map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((seed >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.3
            });
            let values = values.collect();
            weights.add(name, shape, values).id()
        };
        let table = add("table", &[32, WIDTH]);
        let layers = (0..2).map(|layer| {
            ["q", "k", "v", "o", "up", "down"].map(|part| add(&format!("{layer}.{part}"), &[WIDTH, WIDTH]))
        });
        let layers = layers.collect();
        let (gates, filters, gain) =
            (add("gates", &[HEADS, WIDTH]), add("filters", &[WIDTH, 4]), add("gain", &[WIDTH]));
        Self { weights, table, layers, gates, filters, gain }
    }

    /// A token of an item, the same in every run.
    fn token(item: usize, place: usize) -> usize {
        (item * 31 + place * place * 7) % 32
    }

    /// Mean loss share of some items: an attention layer, then a gated delta layer with a convolution.
    pub fn loss(&self, ops: &Native<f32>, items: std::ops::Range<usize>, batch: usize) -> Tensor<f32> {
        const MOST: usize = 8;
        let count = items.len();
        let (mut tokens, mut targets) = ([0; MOST * LENGTH], [0; MOST]);
        for (row, item) in items.enumerate() {
            targets[row] = item % 32;
            for place in 0..LENGTH {
                tokens[row * LENGTH + place] = Self::token(item, place);
            }
        }
        let x = ops.gather_rows(&ops.parameter(self.table), &tokens[..count * LENGTH]);
        let mut x = ops.reshape(&x, &[count, LENGTH, WIDTH]);
        for (index, layer) in self.layers.iter().enumerate() {
            let name = ["layer 0: softmax", "layer 1: gdn"][index];
            x = ops.scope(name, || self.layer(ops, index, layer, &x));
        }
        let last = ops.reshape(&ops.slice(&x, 1, LENGTH - 1..LENGTH), &[count, WIDTH]);
        let logits = ops.linear(&last, &ops.parameter(self.table), None);
        ops.scale(&ops.sum_all(&ops.cross_entropy(&logits, &targets[..count])), 1.0 / batch as f64)
    }

    fn layer(&self, ops: &Native<f32>, index: usize, layer: &[Parameter; 6], x: &Tensor<f32>) -> Tensor<f32> {
        let y = ops.rms_norm(x, Some(&ops.parameter(self.gain)), 1e-5);
        let shape = ops.shape(&y);
        let heads = |y: &Tensor<f32>| ops.reshape(y, &[shape[0], LENGTH, HEADS, WIDTH / HEADS]);
        let [query, key, value] = [0, 1, 2].map(|part| heads(&ops.linear(&y, &ops.parameter(layer[part]), None)));
        let mixed = if index == 0 {
            ops.attention(&AttentionInputs {
                query: &query,
                key: &key,
                value: &value,
                bias: None,
                mask: AttentionMask::Causal,
                scale: 0.4,
            })
        } else {
            let value = ops.reshape(&value, &shape);
            let value = heads(&ops.short_convolution(&value, &ops.parameter(self.filters), None, None).0);
            let gates = ops.linear(&y, &ops.parameter(self.gates), None);
            let (beta, decay) = (ops.sigmoid(&gates), ops.neg(&ops.softplus(&gates)));
            let key = ops.l2_norm(&key, 1e-6);
            let inputs = Recurrence {
                query: &query,
                key: &key,
                value: &value,
                decay: Decay::Scalar(&decay),
                beta: Some(&beta),
                state: None,
                chunk: 16,
                rounding: None,
            };
            ops.recurrence(&inputs).0
        };
        let x = ops.add(x, &ops.linear(&ops.reshape(&mixed, &shape), &ops.parameter(layer[3]), None));
        let hidden = ops.linear(&x, &ops.parameter(layer[4]), None);
        ops.add(&x, &ops.linear(&ops.silu_gate(&hidden, &x), &ops.parameter(layer[5]), None))
    }
}
