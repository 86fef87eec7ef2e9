//! The same model as in `torch_step.py`, written directly on [`Ops`].
//!
//! A decoder with learned positions, pre-norm, biases in all layers, one mixer without convolution or output gate, a GELU MLP four
//! times as wide, and cross-entropy on the last position. Both frameworks train this same model, weight for weight; the models of
//! `rung-nn`, which users train, have gates and convolutions that the PyTorch script would have to copy.
//!
//! As in `rung-nn`, only the positions that have a loss go through the last layer's MLP: the gradient is the same. With
//! `all_positions` all of them do, which is the same arithmetic as in PyTorch.

use rung_engine::{AttentionInputs, AttentionMask, Decay, Native, Ops, Parameter, Parameters, Recurrence, Tensor};

use super::{CHUNK, Size, VOCABULARY, pseudo_random};

/// The token mixer of all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoderMixer {
    /// Causal softmax attention.
    Softmax,
    /// Linear attention with the feature map `elu + 1`, without normalisation.
    Linear,
    /// The gated delta rule.
    GatedDelta,
}

/// Weight and bias of a linear layer, or gain and bias of a norm.
struct Affine {
    weight: Parameter,
    bias: Parameter,
}

/// Projections of the gated delta rule.
struct DeltaGates {
    beta: Affine,
    decay: Affine,
    /// Logarithm of the decay rate of each head.
    log_rate: Parameter,
}

struct Block {
    norms: [Affine; 2],
    query: Affine,
    key: Affine,
    value: Affine,
    out: Affine,
    up: Affine,
    down: Affine,
    /// `Some` for the gated delta rule.
    gates: Option<DeltaGates>,
}

/// The decoder that PyTorch trains too.
pub struct BenchDecoder {
    size: Size,
    mixer: DecoderMixer,
    all_positions: bool,
    tokens: Parameter,
    positions: Parameter,
    blocks: Vec<Block>,
    norm: Affine,
    head: Affine,
}

/// Adds named weights with random values.
struct WeightBuilder {
    weights: Parameters<f32>,
}

impl WeightBuilder {
    fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Parameter {
        let bound = (columns as f32).powf(-0.5);
        let values = pseudo_random(self.weights.size() as u64, rows * columns, -bound..bound);
        self.weights.add(name, &[rows, columns], values).id()
    }

    fn affine(&mut self, name: &str, rows: usize, columns: usize) -> Affine {
        let weight = self.matrix(&format!("{name}.weight"), rows, columns);
        Affine { weight, bias: self.weights.add(format!("{name}.bias"), &[rows], vec![0.0; rows]).without_decay().id() }
    }

    fn norm(&mut self, name: &str, width: usize) -> Affine {
        let mut add = |part: &str, value: f32| {
            self.weights.add(format!("{name}.{part}"), &[width], vec![value; width]).without_decay().id()
        };
        Affine { weight: add("weight", 1.0), bias: add("bias", 0.0) }
    }

    fn block(&mut self, index: usize, mixer: DecoderMixer, Size { width, heads, .. }: Size) -> Block {
        let name = |part: &str| format!("blocks.{index}.{part}");
        Block {
            norms: [self.norm(&name("norms.0"), width), self.norm(&name("norms.1"), width)],
            query: self.affine(&name("q"), width, width),
            key: self.affine(&name("k"), width, width),
            value: self.affine(&name("v"), width, width),
            out: self.affine(&name("o"), width, width),
            up: self.affine(&name("up"), 4 * width, width),
            down: self.affine(&name("down"), width, 4 * width),
            gates: (mixer == DecoderMixer::GatedDelta).then(|| DeltaGates {
                beta: self.affine(&name("beta"), heads, width),
                decay: self.affine(&name("decay"), heads, width),
                log_rate: self.weights.add(name("rate"), &[heads], vec![0.0; heads]).without_decay().id(),
            }),
        }
    }
}

impl BenchDecoder {
    /// A model and its weights. With `all_positions` all positions go through the last MLP, else only the last.
    pub fn new(size: Size, mixer: DecoderMixer, all_positions: bool) -> (Self, Parameters<f32>) {
        let mut builder = WeightBuilder { weights: Parameters::new() };
        let tokens = builder.matrix("tokens", VOCABULARY, size.width);
        let positions = builder.matrix("positions", size.length, size.width);
        let blocks = (0..size.layers).map(|index| builder.block(index, mixer, size)).collect();
        let norm = builder.norm("norm", size.width);
        let head = builder.affine("head", VOCABULARY, size.width);
        (Self { size, mixer, all_positions, tokens, positions, blocks, norm, head }, builder.weights)
    }

    /// Sum of the losses of some sequences of a batch, divided by the batch size.
    pub fn loss(&self, ops: &Native<f32>, tokens: &[usize], targets: &[usize]) -> Tensor<f32> {
        let Size { batch, length, width, .. } = self.size;
        let sequences = targets.len();
        let x = ops.gather_rows(&ops.parameter(self.tokens), tokens);
        let mut x = ops.add(&ops.reshape(&x, &[sequences, length, width]), &ops.parameter(self.positions));
        let last_rows: Vec<usize> = (1..=sequences).map(|count| count * length - 1).collect();
        let last_positions =
            |x: &Tensor<f32>| ops.gather_rows(&ops.reshape(x, &[sequences * length, width]), &last_rows);
        for (index, block) in self.blocks.iter().enumerate() {
            x = ops.scope(&format!("block {index}"), || {
                let x = self.add_mixer_output(ops, block, &x);
                let last_only = !self.all_positions && index + 1 == self.blocks.len();
                feed_forward(ops, block, &if last_only { last_positions(&x) } else { x })
            });
        }
        let x = if self.all_positions { last_positions(&x) } else { x };
        let logits = apply(ops, &self.head, &layer_norm(ops, &self.norm, &x));
        ops.scale(&ops.sum_all(&ops.cross_entropy(&logits, targets)), 1.0 / batch as f64)
    }

    fn add_mixer_output<O: Ops>(&self, ops: &O, block: &Block, x: &O::Tensor) -> O::Tensor {
        let mixed = self.mix(ops, block, &layer_norm(ops, &block.norms[0], x));
        ops.add(x, &apply(ops, &block.out, &mixed))
    }

    fn mix<O: Ops>(&self, ops: &O, block: &Block, x: &O::Tensor) -> O::Tensor {
        let shape = ops.shape(x);
        let (heads, head_dim) = (self.size.heads, self.size.width / self.size.heads);
        let split = |layer: &Affine| ops.reshape(&apply(ops, layer, x), &[shape[0], shape[1], heads, head_dim]);
        let (query, key, value) = (split(&block.query), split(&block.key), split(&block.value));
        let scale = (head_dim as f64).powf(-0.5);
        let run_recurrence =
            |query: &O::Tensor, key: &O::Tensor, decay: Decay<'_, O::Tensor>, beta: Option<&O::Tensor>| {
                ops.recurrence(&Recurrence {
                    query,
                    key,
                    value: &value,
                    decay,
                    beta,
                    state: None,
                    chunk: CHUNK,
                    rounding: None,
                })
                .0
            };
        let mixed = match (self.mixer, &block.gates) {
            (DecoderMixer::Linear, _) => {
                run_recurrence(&ops.elu_plus_one(&query), &ops.elu_plus_one(&key), Decay::None, None)
            }
            (DecoderMixer::GatedDelta, Some(gates)) => {
                let beta = ops.sigmoid(&apply(ops, &gates.beta, x));
                let rate = ops.neg(&ops.exp(&ops.parameter(gates.log_rate)));
                let decay = ops.mul(&ops.softplus(&apply(ops, &gates.decay, x)), &rate);
                let (query, key) = (ops.scale(&ops.l2_norm(&query, 1e-6), scale), ops.l2_norm(&key, 1e-6));
                run_recurrence(&query, &key, Decay::Scalar(&decay), Some(&beta))
            }
            _ => {
                let (query, key, value) = (&query, &key, &value);
                ops.attention(&AttentionInputs { query, key, value, bias: None, mask: AttentionMask::Causal, scale })
            }
        };
        ops.reshape(&mixed, &shape)
    }

    /// Floating-point operations of a step: those of products only, a multiply-add as two, a backward pass as two forward passes.
    pub fn flops_per_step(&self) -> f64 {
        let Size { batch, length, width, heads, layers, .. } = self.size;
        let (width, head_dim, chunk) = (width as f64, (width / heads) as f64, CHUNK as f64);
        let projections = 2.0 * 4.0 * width * width;
        let mixing = match self.mixer {
            DecoderMixer::Softmax => 2.0 * length as f64 * width,
            DecoderMixer::Linear => 4.0 * width * (head_dim + chunk / 2.0),
            DecoderMixer::GatedDelta => width * (6.0 * head_dim + 4.0 * chunk),
        };
        let tokens = self.size.tokens();
        let mlp_tokens = tokens * (layers - 1) as f64 + if self.all_positions { tokens } else { batch as f64 };
        3.0 * (tokens * layers as f64 * (projections + mixing) + mlp_tokens * 2.0 * projections)
    }
}

fn feed_forward<O: Ops>(ops: &O, block: &Block, x: &O::Tensor) -> O::Tensor {
    let hidden = ops.gelu(&apply(ops, &block.up, &layer_norm(ops, &block.norms[1], x)));
    ops.add(x, &apply(ops, &block.down, &hidden))
}

fn apply<O: Ops>(ops: &O, layer: &Affine, x: &O::Tensor) -> O::Tensor {
    ops.linear(x, &ops.parameter(layer.weight), Some(&ops.parameter(layer.bias)))
}

fn layer_norm<O: Ops>(ops: &O, layer: &Affine, x: &O::Tensor) -> O::Tensor {
    ops.layer_norm(x, Some(&ops.parameter(layer.weight)), Some(&ops.parameter(layer.bias)), 1e-5)
}
