//! A small model with attention and a recurrence, for tests of training steps.

use rung_engine::{
    AttentionInputs, AttentionMask, Decay, GeneralDelta, Native, Ops, Parameter, Parameters, Recurrence, Tensor,
};

/// Tokens per sequence.
pub const LENGTH: usize = 24;
const WIDTH: usize = 16;
const HEADS: usize = 2;

/// The model and its weights.
pub struct Model {
    pub weights: Parameters<f32>,
    embedding: Parameter,
    /// Projections q, k, v, o, up and down of each layer.
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
        let embedding = add("embedding", &[32, WIDTH]);
        let layers = (0..2).map(|layer| {
            ["q", "k", "v", "o", "up", "down"].map(|name| add(&format!("{layer}.{name}"), &[WIDTH, WIDTH]))
        });
        let layers = layers.collect();
        let (gates, filters, gain) =
            (add("gates", &[HEADS, WIDTH]), add("filters", &[WIDTH, 4]), add("gain", &[WIDTH]));
        Self { weights, embedding, layers, gates, filters, gain }
    }

    /// The token of an item at a position, the same in every run.
    fn token(item: usize, position: usize) -> usize {
        (item * 31 + position * position * 7) % 32
    }

    /// Sum of the losses of some items over the batch size: an attention layer, then a gated and a general delta rule with a
    /// convolution.
    pub fn loss(&self, ops: &Native<f32>, items: std::ops::Range<usize>, batch: usize) -> Tensor<f32> {
        const MAX_ITEMS: usize = 8;
        let count = items.len();
        let (mut tokens, mut targets) = ([0; MAX_ITEMS * LENGTH], [0; MAX_ITEMS]);
        for (row, item) in items.enumerate() {
            targets[row] = item % 32;
            for position in 0..LENGTH {
                tokens[row * LENGTH + position] = Self::token(item, position);
            }
        }
        let x = ops.gather_rows(&ops.parameter(self.embedding), &tokens[..count * LENGTH]);
        let mut x = ops.reshape(&x, &[count, LENGTH, WIDTH]);
        for (index, layer) in self.layers.iter().enumerate() {
            let name = ["layer 0: softmax", "layer 1: gdn"][index];
            x = ops.scope(name, || self.layer(ops, index, layer, &x));
        }
        let last = ops.reshape(&ops.slice(&x, 1, LENGTH - 1..LENGTH), &[count, WIDTH]);
        let logits = ops.linear(&last, &ops.parameter(self.embedding), None);
        ops.scale(&ops.sum_all(&ops.cross_entropy(&logits, &targets[..count])), 1.0 / batch as f64)
    }

    fn layer(&self, ops: &Native<f32>, index: usize, layer: &[Parameter; 6], x: &Tensor<f32>) -> Tensor<f32> {
        let y = ops.rms_norm(x, Some(&ops.parameter(self.gain)), 1e-5);
        let shape = ops.shape(&y);
        let heads = |y: &Tensor<f32>| ops.reshape(y, &[shape[0], LENGTH, HEADS, WIDTH / HEADS]);
        let [query, key, value] = [0, 1, 2].map(|index| heads(&ops.linear(&y, &ops.parameter(layer[index]), None)));
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
            let written = ops.recurrence(&inputs).0;
            ops.general_delta(&GeneralDelta {
                query: &query,
                key: &key,
                value: &written,
                decay: &ops.neg(&ops.softplus(&query)),
                recall_key: &key,
                erase_key: &ops.scale(&key, 0.5),
                state: None,
                chunk: 16,
                rounding: None,
            })
            .0
        };
        let x = ops.add(x, &ops.linear(&ops.reshape(&mixed, &shape), &ops.parameter(layer[3]), None));
        let hidden = ops.linear(&x, &ops.parameter(layer[4]), None);
        ops.add(&x, &ops.linear(&ops.silu_gate(&hidden, &x), &ops.parameter(layer[5]), None))
    }
}
