//! Every fused operation: its kernel agrees with the composition of primitives and with finite differences.
//!
//! All checks run over one table of cases. A case has inputs as weights, an operation, and as loss the sum of the results times
//! fixed random numbers, so that every element of every gradient matters. A new operation needs one more case.

use rung_engine::{
    AttentionInputs, AttentionMask, BlockAttention, BlockChoice, Decay, GatedScan, GeneralDelta, Indexer, Native, Ops,
    Parameter, Parameters, Recurrence, Scalar, Tensor, composed, rotary_angles, rotary_frequencies,
};

/// A seeded generator of numbers between -1 and 1.
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
    }
    fn take<S: Scalar>(&mut self, count: usize) -> Vec<S> {
        (0..count).map(|_| S::from_f64(self.next())).collect()
    }
}

/// Runs an operation on inputs, with the kernel if the flag is set, else composed.
type Body<S> = fn(&Native<S>, &[<Native<S> as Ops>::Tensor], bool) -> Vec<<Native<S> as Ops>::Tensor>;

/// An operation with the shapes of its inputs.
struct Case<S: Scalar> {
    name: &'static str,
    shapes: &'static [&'static [usize]],
    body: Body<S>,
}

/// Random inputs of these shapes, as weights.
fn random_inputs<S: Scalar>(shapes: &[&[usize]], seed: u64) -> (Parameters<S>, Vec<Parameter>) {
    let mut generator = Generator(seed);
    let mut weights = Parameters::new();
    let ids = shapes.iter().enumerate().map(|(index, shape)| {
        let values = generator.take(shape.iter().product());
        weights.add(format!("input {index}"), shape, values).id()
    });
    let ids = ids.collect();
    (weights, ids)
}

/// The weighted sum of all results, its gradient, and the results.
fn run<S: Scalar>(
    ops: &Native<S>,
    case: &Case<S>,
    weights: &Parameters<S>,
    ids: &[Parameter],
    fused: bool,
) -> (f64, Vec<S>, Vec<S>) {
    ops.bind(weights);
    let inputs: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
    let results = (case.body)(ops, &inputs, fused);
    let mut generator = Generator(99);
    let mut loss = ops.zeros(&[1]);
    let mut values = Vec::new();
    for result in &results {
        let shape = ops.shape(result);
        let factors = ops.constant(&shape, &generator.take::<S>(shape.size()));
        loss = ops.add(&loss, &ops.sum_all(&ops.mul(result, &factors)));
        values.extend(ops.values(result));
    }
    ops.backward(&loss);
    (ops.values(&loss)[0].to_f64(), ops.gradient(), values)
}

/// Largest difference, relative to the largest value.
fn difference<S: Scalar>(left: &[S], right: &[S]) -> f64 {
    assert_eq!(left.len(), right.len());
    let largest = left.iter().fold(1e-3_f64, |largest, x| largest.max(x.to_f64().abs()));
    let differences = left.iter().zip(right).map(|(x, y)| (x.to_f64() - y.to_f64()).abs());
    // `max` alone would ignore a NaN.
    let maximum = |most: f64, x: f64| if x.is_nan() { f64::INFINITY } else { most.max(x) };
    differences.fold(0.0_f64, maximum) / largest
}

fn check<S: Scalar>(cases: &[Case<S>], tolerance: f64) {
    let ops = Native::new();
    for case in cases {
        let (weights, ids) = random_inputs::<S>(case.shapes, 7);
        let (_, fused_gradient, fused) = run(&ops, case, &weights, &ids, true);
        let (_, gradient, values) = run(&ops, case, &weights, &ids, false);
        let (forward, backward) = (difference(&values, &fused), difference(&gradient, &fused_gradient));
        assert!(forward < tolerance, "{}: kernel and composition differ by {forward:e}", case.name);
        assert!(backward < tolerance, "{}: gradients of kernel and composition differ by {backward:e}", case.name);
    }
}

fn attention<S: Scalar>(
    ops: &Native<S>,
    inputs: &AttentionInputs<'_, <Native<S> as Ops>::Tensor>,
    fused: bool,
) -> <Native<S> as Ops>::Tensor {
    if fused { ops.attention(inputs) } else { composed::attention(ops, inputs) }
}

macro_rules! attention_case {
    ($name:literal, $shapes:expr, $mask:expr, $bias:expr) => {
        Case {
            name: $name,
            shapes: $shapes,
            body: |ops, x, fused| {
                let bias = if $bias { Some(&x[3]) } else { None };
                vec![attention(
                    ops,
                    &AttentionInputs { query: &x[0], key: &x[1], value: &x[2], bias, mask: $mask, scale: 0.7 },
                    fused,
                )]
            },
        }
    };
}

/// Random blocks for every query: each visible block with probability one half, and at least one.
fn random_blocks(batch: usize, groups: usize, [queries, keys]: [usize; 2], block: usize) -> BlockChoice {
    let (mut generator, mut choice) = (Generator(5), BlockChoice::new(block, groups));
    for row in 0..batch * groups * queries {
        let last_visible = (row % queries + keys - queries) / block;
        let mut blocks: Vec<usize> = (0..=last_visible).filter(|_| generator.next() > 0.0).collect();
        if blocks.is_empty() {
            blocks.push(row % (last_visible + 1));
        }
        choice.push(blocks);
    }
    choice
}

macro_rules! block_case {
    ($name:literal, $shapes:expr, $groups:literal, $block:literal) => {
        Case {
            name: $name,
            shapes: $shapes,
            body: |ops, x, fused| {
                let [query, key] = [0, 1].map(|index| ops.shape(&x[index]));
                let choice = random_blocks(query[0], $groups, [query[1], key[1]], $block);
                let inputs = BlockAttention { query: &x[0], key: &x[1], value: &x[2], choice: &choice, scale: 0.7 };
                vec![if fused { ops.block_attention(&inputs) } else { composed::block_attention(ops, &inputs) }]
            },
        }
    };
}

/// Options of a recurrence.
#[derive(Clone, Copy)]
struct Options {
    /// 0 for no decay, 1 for a scalar decay, 2 for a vector decay.
    decay_rank: usize,
    delta: bool,
    state: bool,
    chunk: usize,
    /// Factor of the log-decays.
    decay_strength: f64,
}

/// A recurrence of the inputs query, key, value, decay and beta before their activations, and state.
fn recurrence<S: Scalar>(
    ops: &Native<S>,
    x: &[<Native<S> as Ops>::Tensor],
    options: Options,
    fused: bool,
) -> Vec<<Native<S> as Ops>::Tensor> {
    let decay = ops.scale(&ops.softplus(&x[3]), -options.decay_strength);
    let beta = ops.scale(&ops.sigmoid(&x[4]), 2.0);
    let key = ops.l2_norm(&x[1], 1e-6);
    let inputs = Recurrence {
        query: &x[0],
        key: &key,
        value: &x[2],
        decay: match options.decay_rank {
            0 => Decay::None,
            1 => Decay::Scalar(&decay),
            _ => Decay::Vector(&decay),
        },
        beta: options.delta.then_some(&beta),
        state: options.state.then_some(&x[5]),
        chunk: options.chunk,
        rounding: None,
    };
    let (out, last) = if fused { ops.recurrence(&inputs) } else { composed::recurrence(ops, &inputs) };
    vec![out, last]
}

macro_rules! recurrence_case {
    ($name:literal, $decay_rank:literal, $delta:literal, $state:literal, $chunk:literal, $decay_strength:literal) => {
        Case {
            name: $name,
            shapes: match $decay_rank {
                2 => &[&[2, 11, 2, 3], &[2, 11, 2, 3], &[2, 11, 4, 5], &[2, 11, 4, 3], &[2, 11, 4], &[2, 4, 3, 5]],
                _ => &[&[2, 11, 2, 3], &[2, 11, 2, 3], &[2, 11, 4, 5], &[2, 11, 4], &[2, 11, 4], &[2, 4, 3, 5]],
            },
            body: |ops, x, fused| {
                let options = Options {
                    decay_rank: $decay_rank,
                    delta: $delta,
                    state: $state,
                    chunk: $chunk,
                    decay_strength: $decay_strength,
                };
                recurrence(ops, x, options, fused)
            },
        }
    };
}

/// A general delta rule of the inputs query, key, value, decay before its activation, recall key, erase strength before its
/// activation, and state.
fn general_delta<S: Scalar>(
    ops: &Native<S>,
    x: &[<Native<S> as Ops>::Tensor],
    (state, chunk, decay_strength): (bool, usize, f64),
    operation: impl Fn(&GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>),
) -> Vec<Tensor<S>> {
    let decay = ops.scale(&ops.softplus(&x[3]), -decay_strength);
    let recall_key = ops.l2_norm(&x[4], 1e-6);
    let erase_key = ops.mul(&recall_key, &ops.scale(&ops.sigmoid(&x[5]), 2.0));
    let inputs = GeneralDelta {
        query: &x[0],
        key: &x[1],
        value: &x[2],
        decay: &decay,
        recall_key: &recall_key,
        erase_key: &erase_key,
        state: state.then_some(&x[6]),
        chunk,
        rounding: None,
    };
    let (out, last) = operation(&inputs);
    vec![out, last]
}

macro_rules! general_delta_case {
    ($name:literal, $key:literal, $value:literal, $options:expr) => {
        general_delta_case!($name, $key, $value, $options, |ops, inputs| ops.general_delta(inputs))
    };
    ($name:literal, $key:literal, $value:literal, $options:expr, $kernel:expr) => {
        Case {
            name: $name,
            shapes: &[
                &[2, 11, 3, $key],
                &[2, 11, 3, $key],
                &[2, 11, 3, $value],
                &[2, 11, 3, $key],
                &[2, 11, 3, $key],
                &[2, 11, 3, $key],
                &[2, 3, $key, $value],
            ],
            body: |ops, x, fused| {
                let kernel: fn(&Native<S>, &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) = $kernel;
                general_delta(ops, x, $options, |inputs| {
                    if fused { kernel(ops, inputs) } else { composed::general_delta(ops, inputs) }
                })
            },
        }
    };
}

macro_rules! parallel_delta_case {
    ($name:literal, $key:literal, $value:literal, $options:expr) => {
        general_delta_case!($name, $key, $value, $options, composed::chunked_general_delta)
    };
}

/// The forms for GPUs: the chunked general delta rule and the parallel gated scan, in place of the kernel.
fn parallel_cases<S: Scalar>() -> Vec<Case<S>> {
    vec![
        parallel_delta_case!("chunked general delta rule", 4, 3, (false, 4, 1.0)),
        parallel_delta_case!("chunked general delta rule from a state", 3, 5, (true, 16, 1.0)),
        parallel_delta_case!("chunked general delta rule, chunks of one token", 5, 4, (true, 1, 0.3)),
        parallel_delta_case!("chunked general delta rule, strong decay", 4, 4, (true, 3, 40.0)),
        Case {
            name: "parallel gated scan",
            shapes: &[&[2, 7, 5], &[2, 7, 1], &[2, 1, 5]],
            body: |ops, x, fused| gated_scan(ops, &x[0], &ops.sigmoid(&x[1]), &x[2], fused),
        },
        Case {
            name: "parallel gated scan of one token",
            shapes: &[&[2, 1, 5], &[2, 1, 1], &[2, 1, 5]],
            body: |ops, x, fused| gated_scan(ops, &x[0], &ops.sigmoid(&x[1]), &x[2], fused),
        },
        Case {
            name: "parallel gated scan, gates of zero and one",
            shapes: &[&[1, 5, 2], &[1, 1, 2]],
            body: |ops, x, fused| {
                let gates = [0.0, 1.0, 0.0, 1.0, 0.5].map(S::from_f64);
                gated_scan(ops, &x[0], &ops.constant(&[1, 5, 1], &gates), &x[1], fused)
            },
        },
    ]
}

/// The parallel gated scan if the flag is set, else the definition.
fn gated_scan<S: Scalar>(
    ops: &Native<S>,
    value: &Tensor<S>,
    gate: &Tensor<S>,
    state: &Tensor<S>,
    parallel: bool,
) -> Vec<Tensor<S>> {
    let inputs = GatedScan { value, gate, state, rounding: None };
    vec![if parallel { composed::parallel_gated_scan(ops, &inputs) } else { composed::gated_scan(ops, &inputs) }]
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn cases<S: Scalar>() -> Vec<Case<S>> {
    vec![
        attention_case!(
            "causal attention",
            &[&[2, 7, 2, 3], &[2, 7, 2, 3], &[2, 7, 2, 5]],
            AttentionMask::Causal,
            false
        ),
        attention_case!(
            "grouped attention",
            &[&[2, 9, 6, 3], &[2, 9, 2, 3], &[2, 9, 2, 4]],
            AttentionMask::Causal,
            false
        ),
        attention_case!(
            "long causal attention",
            &[&[1, 131, 1, 4], &[1, 131, 1, 4], &[1, 131, 1, 4]],
            AttentionMask::Causal,
            false
        ),
        attention_case!("window", &[&[1, 37, 2, 3], &[1, 37, 1, 3], &[1, 37, 1, 3]], AttentionMask::Window(5), false),
        attention_case!(
            "window of one",
            &[&[1, 4, 1, 3], &[1, 4, 1, 3], &[1, 4, 1, 3]],
            AttentionMask::Window(1),
            false
        ),
        attention_case!(
            "long window",
            &[&[1, 150, 1, 2], &[1, 150, 1, 2], &[1, 150, 1, 2]],
            AttentionMask::Window(20),
            false
        ),
        attention_case!("bidirectional", &[&[2, 6, 2, 3], &[2, 6, 2, 3], &[2, 6, 2, 3]], AttentionMask::None, false),
        attention_case!("cached keys", &[&[2, 2, 2, 3], &[2, 6, 1, 3], &[2, 6, 1, 3]], AttentionMask::Causal, false),
        attention_case!(
            "bias per head",
            &[&[2, 5, 2, 3], &[2, 5, 2, 3], &[2, 5, 2, 3], &[1, 2, 5, 5]],
            AttentionMask::Causal,
            true
        ),
        attention_case!(
            "bias for all",
            &[&[2, 5, 2, 3], &[2, 5, 2, 3], &[2, 5, 2, 3], &[1, 1, 5, 5]],
            AttentionMask::Causal,
            true
        ),
        attention_case!(
            "bias per sequence",
            &[&[2, 5, 2, 3], &[2, 5, 2, 3], &[2, 5, 2, 3], &[2, 2, 5, 5]],
            AttentionMask::Causal,
            true
        ),
        block_case!("blocks", &[&[2, 11, 2, 3], &[2, 11, 2, 3], &[2, 11, 2, 5]], 2, 3),
        block_case!("blocks of grouped heads", &[&[2, 9, 6, 3], &[2, 9, 2, 3], &[2, 9, 2, 4]], 2, 4),
        block_case!("blocks that all heads share", &[&[1, 9, 4, 3], &[1, 9, 2, 3], &[1, 9, 2, 4]], 1, 2),
        block_case!("blocks of one token", &[&[1, 17, 2, 3], &[1, 17, 1, 3], &[1, 17, 1, 2]], 2, 1),
        block_case!("wide blocks of one token", &[&[2, 9, 4, 19], &[2, 12, 2, 19], &[2, 12, 2, 21]], 1, 1),
        block_case!("blocks with many readers", &[&[1, 250, 1, 4], &[1, 250, 1, 4], &[1, 250, 1, 4]], 1, 16),
        block_case!("blocks of cached keys", &[&[2, 2, 2, 3], &[2, 7, 1, 3], &[2, 7, 1, 3]], 1, 3),
        recurrence_case!("linear attention", 0, false, false, 4, 0.0),
        recurrence_case!("linear attention from a state", 0, false, true, 4, 0.0),
        recurrence_case!("scalar decay", 1, false, true, 4, 1.0),
        recurrence_case!("scalar decay, one chunk", 1, false, true, 16, 1.0),
        recurrence_case!("scalar decay, chunks of one", 1, false, true, 1, 1.0),
        recurrence_case!("scalar decay, strong decay", 1, false, true, 8, 40.0),
        recurrence_case!("vector decay", 2, false, true, 4, 1.0),
        recurrence_case!("vector decay, strong decay", 2, false, true, 8, 40.0),
        recurrence_case!("delta rule", 0, true, false, 4, 0.0),
        recurrence_case!("delta rule from a state", 0, true, true, 16, 0.0),
        recurrence_case!("gated delta rule", 1, true, true, 4, 1.0),
        recurrence_case!("gated delta rule, one chunk", 1, true, true, 16, 1.0),
        recurrence_case!("gated delta rule, strong decay", 1, true, true, 8, 40.0),
        recurrence_case!("delta rule with vector decay", 2, true, true, 5, 1.0),
        general_delta_case!("general delta rule", 4, 3, (false, 4, 1.0)),
        general_delta_case!("general delta rule from a state", 3, 5, (true, 16, 1.0)),
        general_delta_case!("general delta rule, wide", 5, 37, (true, 1, 0.3)),
        general_delta_case!("general delta rule, wide keys", 37, 5, (true, 4, 1.0)),
        general_delta_case!("general delta rule, whole vectors", 64, 32, (false, 8, 1.0)),
        general_delta_case!("general delta rule, no decay", 16, 16, (true, 4, 0.0)),
        general_delta_case!("general delta rule, strong decay", 4, 4, (true, 3, 40.0)),
        Case {
            name: "rms norm",
            shapes: &[&[3, 5, 19], &[19]],
            body: |ops, x, fused| {
                vec![if fused {
                    ops.rms_norm(&x[0], Some(&x[1]), 1e-5)
                } else {
                    composed::rms_norm(ops, &x[0], Some(&x[1]), 1e-5)
                }]
            },
        },
        Case {
            name: "rms norm without weight",
            shapes: &[&[4, 16]],
            body: |ops, x, fused| {
                vec![if fused { ops.rms_norm(&x[0], None, 1e-5) } else { composed::rms_norm(ops, &x[0], None, 1e-5) }]
            },
        },
        Case {
            name: "layer norm",
            shapes: &[&[3, 33], &[33], &[33]],
            body: |ops, x, fused| {
                let (weight, bias) = (Some(&x[1]), Some(&x[2]));
                vec![if fused {
                    ops.layer_norm(&x[0], weight, bias, 1e-5)
                } else {
                    composed::layer_norm(ops, &x[0], weight, bias, 1e-5)
                }]
            },
        },
        Case {
            name: "layer norm with a bias alone",
            shapes: &[&[3, 6], &[6]],
            body: |ops, x, fused| {
                let bias = Some(&x[1]);
                vec![if fused {
                    ops.layer_norm(&x[0], None, bias, 1e-5)
                } else {
                    composed::layer_norm(ops, &x[0], None, bias, 1e-5)
                }]
            },
        },
        Case {
            name: "l2 norm",
            shapes: &[&[3, 2, 7]],
            body: |ops, x, fused| {
                vec![if fused { ops.l2_norm(&x[0], 1e-6) } else { composed::l2_norm(ops, &x[0], 1e-6) }]
            },
        },
        Case {
            name: "silu",
            shapes: &[&[3, 11]],
            body: |ops, x, fused| {
                let x = ops.scale(&x[0], 4.0);
                vec![if fused { ops.silu(&x) } else { composed::silu(ops, &x) }]
            },
        },
        Case {
            name: "gelu",
            shapes: &[&[3, 11]],
            body: |ops, x, fused| {
                let x = ops.scale(&x[0], 4.0);
                vec![if fused { ops.gelu(&x) } else { composed::gelu(ops, &x) }]
            },
        },
        Case {
            name: "exact gelu",
            shapes: &[&[3, 11]],
            body: |ops, x, fused| {
                let x = ops.scale(&x[0], 4.0);
                vec![if fused { ops.gelu_exact(&x) } else { composed::gelu_exact(ops, &x) }]
            },
        },
        Case {
            name: "elu plus one",
            shapes: &[&[3, 11]],
            body: |ops, x, fused| {
                vec![if fused { ops.elu_plus_one(&x[0]) } else { composed::elu_plus_one(ops, &x[0]) }]
            },
        },
        Case {
            name: "silu gate",
            shapes: &[&[3, 11], &[3, 11]],
            body: |ops, x, fused| {
                vec![if fused { ops.silu_gate(&x[0], &x[1]) } else { composed::silu_gate(ops, &x[0], &x[1]) }]
            },
        },
        Case {
            name: "short convolution",
            shapes: &[&[2, 7, 5], &[5, 4], &[5], &[2, 3, 5]],
            body: |ops, x, fused| {
                let (bias, state) = (Some(&x[2]), Some(&x[3]));
                let (out, last) = if fused {
                    ops.short_convolution(&x[0], &x[1], bias, state)
                } else {
                    composed::short_convolution(ops, &x[0], &x[1], bias, state)
                };
                vec![out, last]
            },
        },
        Case {
            name: "short convolution of two tokens",
            shapes: &[&[2, 2, 3], &[3, 4]],
            body: |ops, x, fused| {
                let (out, last) = if fused {
                    ops.short_convolution(&x[0], &x[1], None, None)
                } else {
                    composed::short_convolution(ops, &x[0], &x[1], None, None)
                };
                vec![out, last]
            },
        },
        Case {
            name: "gated scan",
            shapes: &[&[2, 7, 5], &[2, 7, 1], &[2, 1, 5]],
            body: |ops, x, fused| {
                let (gate, state) = (&ops.sigmoid(&x[1]), &x[2]);
                let inputs = GatedScan { value: &x[0], gate, state, rounding: None };
                vec![if fused { ops.gated_scan(&inputs) } else { composed::gated_scan(ops, &inputs) }]
            },
        },
        Case {
            name: "rotary",
            shapes: &[&[2, 5, 3, 6]],
            body: |ops, x, fused| {
                let (cosine, sine) = rotary_angles(2..7, &rotary_frequencies(6, 10_000.0));
                let (cosine, sine) = (ops.constant(&[5, 3], &cosine), ops.constant(&[5, 3], &sine));
                vec![if fused {
                    ops.rotary(&x[0], &cosine, &sine)
                } else {
                    composed::rotary(ops, &x[0], &cosine, &sine)
                }]
            },
        },
        Case {
            name: "cross-entropy",
            shapes: &[&[4, 9]],
            body: |ops, x, fused| {
                let targets = [3, 0, 8, 3];
                vec![if fused {
                    ops.cross_entropy(&x[0], &targets)
                } else {
                    composed::cross_entropy(ops, &x[0], &targets)
                }]
            },
        },
        Case {
            name: "linear",
            shapes: &[&[2, 3, 5], &[4, 5], &[4]],
            body: |ops, x, fused| {
                vec![if fused {
                    ops.linear(&x[0], &x[1], Some(&x[2]))
                } else {
                    composed::linear(ops, &x[0], &x[1], Some(&x[2]))
                }]
            },
        },
        Case {
            name: "primitives",
            shapes: &[&[2, 3, 4], &[3, 1], &[2, 4, 3]],
            body: |ops, x, _| {
                let sum = ops.sub(&ops.add(&x[0], &x[1]), &ops.mul(&x[1], &x[0]));
                let positive = ops.affine(&ops.mul(&x[0], &x[0]), 1.0, 0.5);
                let ratio = ops.div(&x[0], &ops.sqrt(&positive));
                let reciprocal = ops.div(&x[1], &positive);
                let curves = ops.add(&ops.tanh(&ops.exp(&x[0])), &ops.log(&ops.softplus(&x[0])));
                let cumulative = ops.add(&ops.relu(&ops.sigmoid(&x[0])), &ops.cumulative_sum(&x[0], 1));
                let product = ops.product(&x[0], true, &x[2], true);
                let joined = ops.concat(&[ops.slice(&x[0], 1, 1..3), ops.permute(&x[2], &[0, 2, 1])], 1);
                let broadcast = ops.broadcast(&ops.sum(&x[0], 1), &[2, 3, 4]);
                let rows = ops.gather_rows(&ops.reshape(&x[0], &[6, 4]), &[5, 0, 5]);
                vec![
                    sum,
                    ratio,
                    reciprocal,
                    curves,
                    cumulative,
                    product,
                    joined,
                    broadcast,
                    rows,
                    ops.mean(&x[0], 2),
                    ops.softmax(&x[0]),
                ]
            },
        },
    ]
}

#[test]
fn kernels_agree_with_compositions_in_double_precision() {
    check(&cases::<f64>(), 1e-10);
}

#[test]
fn kernels_agree_with_compositions_in_single_precision() {
    check(&cases::<f32>(), 1e-4);
}

#[test]
fn parallel_forms_agree_with_their_definitions() {
    check(&parallel_cases::<f64>(), 1e-10);
    check(&parallel_cases::<f32>(), 1e-4);
}

/// With one key at all tokens, powers of the matrix of scores are far larger than the inverse that the writes are computed with.
#[test]
fn compositions_are_accurate_in_single_precision_where_keys_repeat() {
    const TIME: usize = 64;
    let ops = Native::<f32>::new();
    let mut generator = Generator(17);
    let key = ops.broadcast(&ops.constant(&[1, 1, 1, 2], &[0.6, 0.8]), &[1, TIME, 1, 2]);
    let value = ops.constant(&[1, TIME, 1, 3], &generator.take(TIME * 3));
    for strength in [0.5, 1.0] {
        let beta = ops.full(&[1, TIME, 1], strength);
        let results = |chunk| {
            let (query, decay, beta) = (&key, Decay::None, Some(&beta));
            let inputs =
                Recurrence { query, key: &key, value: &value, decay, beta, state: None, chunk, rounding: None };
            ops.values(&composed::recurrence(&ops, &inputs).0)
        };
        let [chunk, token] = [TIME, 1].map(results);
        assert!(difference(&chunk, &token) < 1e-5, "strength {strength}: {}", difference(&chunk, &token));
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let ops = Native::<f64>::new();
    for case in cases::<f64>() {
        let (mut weights, ids) = random_inputs::<f64>(case.shapes, 7);
        let (_, gradient, _) = run(&ops, &case, &weights, &ids, true);
        // Every element of a small input; about fifty of a large one.
        for index in (0..gradient.len()).step_by(gradient.len().div_ceil(50)) {
            let mut loss_at = |offset: f64| {
                ops.release();
                weights.flat_mut()[index] += offset;
                let loss = run(&ops, &case, &weights, &ids, true).0;
                ops.release();
                weights.flat_mut()[index] -= offset;
                loss
            };
            let step = 1e-5;
            let expected = (loss_at(step) - loss_at(-step)) / (2.0 * step);
            let error = (expected - gradient[index]).abs() / (1.0 + expected.abs());
            assert!(error < 1e-6, "{}: gradient {index} is {}, expected {expected}", case.name, gradient[index]);
        }
    }
}

#[test]
fn recurrence_does_not_depend_on_chunks_and_continues_from_its_state() {
    let shapes: &[&[usize]] =
        &[&[2, 11, 2, 3], &[2, 11, 2, 3], &[2, 11, 4, 5], &[2, 11, 4], &[2, 11, 4], &[2, 4, 3, 5]];
    let (weights, ids) = random_inputs::<f64>(shapes, 3);
    let ops = Native::<f64>::new();
    ops.bind_frozen(&weights);
    let x: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
    for (decay_rank, delta) in [(0, false), (1, false), (0, true), (1, true)] {
        let run = |x: &[_], chunk| {
            recurrence(&ops, x, Options { decay_rank, delta, state: true, chunk, decay_strength: 1.0 }, true)
        };
        let one_chunk = run(&x, 11);
        for chunk in [1, 2, 3, 5, 64] {
            let results = run(&x, chunk);
            assert!(difference(&ops.values(&one_chunk[0]), &ops.values(&results[0])) < 1e-12);
            assert!(difference(&ops.values(&one_chunk[1]), &ops.values(&results[1])) < 1e-12);
        }
        let mut state = x[5].clone();
        let mut outputs = Vec::new();
        for range in [0..4, 4..5, 5..11] {
            let mut inputs: Vec<_> = x[..5].iter().map(|x| ops.slice(x, 1, range.clone())).collect();
            inputs.push(state);
            let results = run(&inputs, 3);
            outputs.push(results[0].clone());
            state = results[1].clone();
        }
        assert!(difference(&ops.values(&one_chunk[0]), &ops.values(&ops.concat(&outputs, 1))) < 1e-12);
        assert!(difference(&ops.values(&one_chunk[1]), &ops.values(&state)) < 1e-12);
    }
}

#[test]
fn recurrence_agrees_with_its_definition() {
    let shapes: &[&[usize]] = &[&[1, 6, 1, 2], &[1, 6, 1, 2], &[1, 6, 1, 3], &[1, 6, 1], &[1, 6, 1], &[1, 1, 2, 3]];
    let (weights, ids) = random_inputs::<f64>(shapes, 5);
    let ops = Native::<f64>::new();
    ops.bind_frozen(&weights);
    let x: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
    let results =
        recurrence(&ops, &x, Options { decay_rank: 1, delta: true, state: true, chunk: 4, decay_strength: 1.0 }, true);
    let (query, key) = (ops.values(&x[0]), ops.values(&ops.l2_norm(&x[1], 1e-6)));
    let (value, mut state) = (ops.values(&x[2]), ops.values(&x[5]));
    let (raw_decay, raw_beta) = (ops.values(&x[3]), ops.values(&x[4]));
    let mut outputs = Vec::new();
    for t in 0..6 {
        let (q, k, v) = (&query[2 * t..2 * t + 2], &key[2 * t..2 * t + 2], &value[3 * t..3 * t + 3]);
        let (decay_factor, beta) = ((-raw_decay[t].softplus()).exp(), 2.0 * raw_beta[t].sigmoid());
        for x in &mut state {
            *x *= decay_factor;
        }
        let errors: Vec<_> = (0..3).map(|c| v[c] - state[c] * k[0] - state[3 + c] * k[1]).collect();
        for (index, x) in state.iter_mut().enumerate() {
            *x += beta * k[index / 3] * errors[index % 3];
        }
        outputs.extend((0..3).map(|c| state[c] * q[0] + state[3 + c] * q[1]));
    }
    assert!(difference(&outputs, &ops.values(&results[0])) < 1e-12);
    assert!(difference(&state, &ops.values(&results[1])) < 1e-12);
}

#[test]
fn general_delta_agrees_with_its_definition() {
    let row: &[usize] = &[1, 6, 1, 2];
    let (weights, ids) = random_inputs::<f64>(&[row, row, row, row, row, row, &[1, 1, 2, 2]], 5);
    let ops = Native::<f64>::new();
    ops.bind_frozen(&weights);
    let x: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
    let [query, key, value, raw_decay, recall_key, raw_strength] =
        [0, 1, 2, 3, 4, 5].map(|index| ops.values(&x[index]));
    let (mut state, mut outputs) = (ops.values(&x[6]), Vec::new());
    for row in (0..12).step_by(2) {
        let norm = (recall_key[row] * recall_key[row] + recall_key[row + 1] * recall_key[row + 1] + 1e-6).sqrt();
        let unit = [recall_key[row] / norm, recall_key[row + 1] / norm];
        let transition = |to: usize, from: usize| {
            let decay_factor = if to == from { (-raw_decay[row + to].softplus()).exp() } else { 0.0 };
            decay_factor - 2.0 * raw_strength[row + to].sigmoid() * unit[to] * unit[from]
        };
        let next = |to: usize, column: usize| {
            let from_state = transition(to, 0) * state[column] + transition(to, 1) * state[2 + column];
            from_state + key[row + to] * value[row + column]
        };
        state = vec![next(0, 0), next(0, 1), next(1, 0), next(1, 1)];
        outputs.extend([0, 1].map(|column| query[row] * state[column] + query[row + 1] * state[2 + column]));
    }
    let results = general_delta(&ops, &x, (true, 4, 1.0), |inputs| ops.general_delta(inputs));
    assert!(difference(&outputs, &ops.values(&results[0])) < 1e-12);
    assert!(difference(&state, &ops.values(&results[1])) < 1e-12);
}

/// Without decay, and with equal keys and strengths for erasing and writing, the general delta rule is the delta rule.
#[test]
fn general_delta_includes_the_delta_rule() {
    let row: &[usize] = &[2, 9, 3, 4];
    let (weights, ids) = random_inputs::<f64>(&[row, row, &[2, 9, 3, 5], &[2, 9, 3], &[2, 3, 4, 5]], 8);
    let ops = Native::<f64>::new();
    ops.bind_frozen(&weights);
    let x: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
    let (key, beta) = (ops.l2_norm(&x[1], 1e-6), ops.scale(&ops.sigmoid(&x[3]), 2.0));
    let scaled_key = ops.mul(&key, &ops.reshape(&beta, &[2, 9, 3, 1]));
    let (query, value, state) = (&x[0], &x[2], Some(&x[4]));
    let general = ops.general_delta(&GeneralDelta {
        query,
        key: &scaled_key,
        value,
        decay: &ops.zeros(row),
        recall_key: &key,
        erase_key: &scaled_key,
        state,
        chunk: 4,
        rounding: None,
    });
    let (decay, beta) = (Decay::None, Some(&beta));
    let delta = ops.recurrence(&Recurrence { query, key: &key, value, decay, beta, state, chunk: 4, rounding: None });
    for (found, expected) in [(&general.0, &delta.0), (&general.1, &delta.1)] {
        assert!(difference(&ops.values(expected), &ops.values(found)) < 1e-12);
    }
}

#[test]
fn general_delta_does_not_depend_on_chunks_and_continues_from_its_state() {
    let row: &[usize] = &[2, 11, 3, 7];
    let (weights, ids) = random_inputs::<f64>(&[row, row, &[2, 11, 3, 5], row, row, row, &[2, 3, 7, 5]], 3);
    let ops = Native::<f64>::new();
    ops.bind_frozen(&weights);
    let x: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
    let run = |x: &[_], chunk| general_delta(&ops, x, (true, chunk, 1.0), |inputs| ops.general_delta(inputs));
    let values = |results: &[Tensor<f64>]| results.iter().flat_map(|result| ops.values(result)).collect::<Vec<_>>();
    let one_cell = values(&run(&x, 11));
    for chunk in [1, 2, 3, 64] {
        assert_eq!(values(&run(&x, chunk)), one_cell, "chunks of {chunk}");
    }
    let (mut state, mut outputs) = (x[6].clone(), Vec::new());
    for range in [0..4, 4..5, 5..11] {
        let mut inputs: Vec<_> = x[..6].iter().map(|x| ops.slice(x, 1, range.clone())).collect();
        inputs.push(state);
        let [out, last] = run(&inputs, 3).try_into().ok().expect("outputs and a state");
        outputs.push(out);
        state = last;
    }
    assert_eq!(values(&[ops.concat(&outputs, 1), state]), one_cell, "in spans");
}

/// Channels that keep everything beside channels that forget at some tokens, as far as minus infinity, in several cells.
#[test]
fn general_delta_is_accurate_for_extreme_decays() {
    const ROW: &[usize] = &[1, 70, 2, 18];
    fn run<S: Scalar>(fused: bool) -> Vec<Vec<f64>> {
        let (weights, ids) = random_inputs::<S>(&[ROW, ROW, ROW, ROW, ROW, &[1, 2, 18, 18]], 11);
        let (ops, mut generator) = (Native::<S>::new(), Generator(12));
        ops.bind(&weights);
        let x: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
        let levels = [0.0, 0.0, -1e-3, -0.6, -30.0, -90.0, -1e6, f64::NEG_INFINITY];
        let decay: Vec<S> = (0..ROW.iter().product())
            .map(|_| S::from_f64(levels[((generator.next() + 1.0) * 4.0) as usize % levels.len()]))
            .collect();
        // The gradient of the decays is that of an offset, which keeps minus infinity as it is.
        let decay = ops.add(&ops.constant(ROW, &decay), &ops.scale(&x[3], 1e-3));
        let recall_key = ops.l2_norm(&x[4], 1e-6);
        let (key, erase_key) = (ops.scale(&x[1], 0.3), ops.scale(&recall_key, 0.5));
        let inputs = GeneralDelta {
            query: &x[0],
            key: &key,
            value: &x[2],
            decay: &decay,
            recall_key: &recall_key,
            erase_key: &erase_key,
            state: Some(&x[5]),
            chunk: 16,
            rounding: None,
        };
        let (out, last) = if fused { ops.general_delta(&inputs) } else { composed::general_delta(&ops, &inputs) };
        let loss = ops.add(&ops.sum_all(&ops.mul(&out, &out)), &ops.sum_all(&last));
        let values = [&out, &last].map(|result| ops.values(result));
        ops.backward(&loss);
        let gradient = ops.gradient();
        let gradients = ids.iter().map(|&id| gradient[weights.entry(id).range.clone()].to_vec());
        let to_f64 = |numbers: Vec<S>| numbers.into_iter().map(S::to_f64).collect();
        values.into_iter().chain(gradients).map(to_f64).collect()
    }
    let (expected, double, single) = (run::<f64>(false), run::<f64>(true), run::<f32>(true));
    for (index, expected) in expected.iter().enumerate() {
        let (double, single) = (difference(expected, &double[index]), difference(expected, &single[index]));
        assert!(double < 1e-12, "double precision, result {index}: {double:e}");
        assert!(single < 3e-6, "single precision, result {index}: {single:e}");
    }
}

#[test]
fn recurrence_is_finite_for_extreme_decays() {
    let shape: &[&[usize]] = &[&[1, 70, 2, 8], &[1, 70, 2, 8], &[1, 70, 2, 8], &[1, 70, 2], &[1, 70, 2], &[1, 2, 8, 8]];
    let ops = Native::<f32>::new();
    for (delta, decay_strength) in [(false, 0.0), (false, 50.0), (false, 1e6), (true, 0.0), (true, 50.0), (true, 1e6)] {
        let (weights, ids) = random_inputs::<f32>(shape, 11);
        ops.bind(&weights);
        let x: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
        let results =
            recurrence(&ops, &x, Options { decay_rank: 1, delta, state: true, chunk: 64, decay_strength }, true);
        assert!(
            results.iter().all(|result| ops.values(result).iter().all(|x| x.is_finite())),
            "outputs at {decay_strength}"
        );
        ops.backward(&ops.add(&ops.sum_all(&results[0]), &ops.sum_all(&results[1])));
        assert!(ops.gradient().iter().all(|x| x.is_finite()), "gradients at {decay_strength}");
        ops.release();
    }
}

/// Arguments, values and derivatives of PyTorch 2's `gelu` without approximation.
#[test]
fn exact_gelu_agrees_with_pytorch() {
    let reference = [
        (-9.0, 0.0, 0.0),
        (-3.0, -0.004_049_694_094_890_31, -0.011_945_647_204_183_92),
        (-1.0, -0.158_655_253_931_457, -0.083_315_470_587_686_35),
        (-0.25, -0.100_323_418_579_269_07, 0.304_626_645_116_364),
        (0.0, 0.0, 0.5),
        (0.5, 0.345_731_230_637_007, 0.867_495_124_656_163),
        (1.0, 0.841_344_746_068_543, 1.083_315_470_587_686_4),
        (2.5, 2.484_475_836_685_559_7, 1.037_611_085_908_145),
        (6.0, 5.999_999_994_080_474, 1.000_000_035_468_709_3),
        (300.0, 300.0, 1.0),
    ];
    let mut weights = Parameters::<f64>::new();
    let id = weights.add("x", &[reference.len()], reference.map(|(x, ..)| x).to_vec()).id();
    let ops = Native::new();
    ops.bind(&weights);
    let y = ops.gelu_exact(&ops.parameter(id));
    for (found, (x, expected, _)) in ops.values(&y).into_iter().zip(reference) {
        assert!((found - expected).abs() < 1e-13, "at {x}: {found}, expected {expected}");
    }
    ops.backward(&ops.sum_all(&y));
    for (found, (x, _, expected)) in ops.gradient().into_iter().zip(reference) {
        assert!((found - expected).abs() < 1e-13, "derivative at {x}: {found}, expected {expected}");
    }
    // Single precision is finite for the largest and smallest arguments.
    let single = Native::<f32>::new();
    let extremes = single.gelu_exact(&single.constant(&[4], &[f32::MAX, f32::MIN, 1e-38, -1e20]));
    assert_eq!(single.values(&extremes), [f32::MAX, 0.0, 5e-39, 0.0]);
}

#[test]
fn round_to_bits_gives_the_nearest_level_and_the_gradient_of_its_input() {
    let mut weights = Parameters::<f64>::new();
    let id = weights.add("x", &[5], vec![-9.0, -0.3, 0.1, 0.62, 9.0]).id();
    let ops = Native::new();
    ops.bind(&weights);
    let rounded = ops.round_to_bits(&ops.parameter(id), 3, 1.0);
    assert_eq!(ops.values(&rounded), [-1.0, -0.25, 0.0, 0.5, 0.75]);
    ops.backward(&ops.sum_all(&rounded));
    assert_eq!(ops.gradient(), [1.0; 5]);
}

/// NaNs in a block that no query chose: a kernel that read them would have NaNs in its result.
#[test]
fn block_attention_does_not_read_blocks_that_no_query_chose() {
    let (mut weights, ids) = random_inputs::<f32>(&[&[1, 4, 2, 3], &[1, 12, 1, 3], &[1, 12, 1, 5]], 7);
    for (id, width) in [(ids[1], 3), (ids[2], 5)] {
        weights.get_mut(id)[4 * width..8 * width].fill(f32::NAN);
    }
    let mut choice = BlockChoice::new(4, 1);
    (0..4).for_each(|_| choice.push([0, 2]));
    let ops = Native::new();
    ops.bind(&weights);
    let [query, key, value] = [0, 1, 2].map(|index| ops.parameter(ids[index]));
    let inputs = BlockAttention { query: &query, key: &key, value: &value, choice: &choice, scale: 0.7 };
    let out = ops.block_attention(&inputs);
    assert!(ops.values(&out).iter().all(|number| number.is_finite()));
    ops.backward(&ops.sum_all(&out));
    assert!(ops.gradient().iter().all(|gradient| gradient.is_finite()));
    let key_start = weights.entry(ids[1]).range.start;
    assert!(ops.gradient()[key_start + 4 * 3..key_start + 8 * 3].iter().all(|gradient| *gradient == 0.0));
}

/// Queries that read all tokens before them, most of them, few of them, and a few queries as in decoding.
#[test]
fn attention_to_tokens_agrees_with_the_composed_function_at_every_density() {
    for (queries, keys, one_in) in [(70, 70, 1.0), (70, 75, 2.0), (300, 300, 20.0), (5, 40, 4.0), (3, 20, 1.0)] {
        let (weights, ids) = random_inputs::<f64>(&[&[2, queries, 4, 19], &[2, keys, 2, 19], &[2, keys, 2, 17]], 11);
        let (mut generator, mut choice) = (Generator(5), BlockChoice::new(1, 2));
        for row in 0..2 * 2 * queries {
            let own = row % queries + keys - queries;
            choice.push((0..=own).filter(|token| *token == own || generator.next() * one_in > one_in - 2.0));
        }
        let run = |fused: bool| {
            let ops = Native::new();
            ops.bind(&weights);
            let [query, key, value] = [0, 1, 2].map(|index| ops.parameter(ids[index]));
            let inputs = BlockAttention { query: &query, key: &key, value: &value, choice: &choice, scale: 0.7 };
            let out = if fused { ops.block_attention(&inputs) } else { composed::block_attention(&ops, &inputs) };
            ops.backward(&ops.sum_all(&ops.mul(&out, &out)));
            (ops.values(&out), ops.gradient())
        };
        let ((out, gradient), (expected_out, expected_gradient)) = (run(true), run(false));
        for (actual, expected) in [(out, expected_out), (gradient, expected_gradient)] {
            assert_eq!(actual.len(), expected.len());
            for (index, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert!((actual - expected).abs() < 1e-11, "{index}, one in {one_in}: {actual}, expected {expected}");
            }
        }
    }
}

/// The sizes are those of several tiles of queries and keys, and of a partial tile at the end.
#[test]
fn choose_tokens_agrees_with_the_composed_function() {
    for (batch, queries, keys, heads, width, top) in
        [(2, 7, 7, 2, 3, 3), (1, 1, 40, 3, 5, 20), (2, 30, 600, 2, 16, 64), (1, 25, 25, 1, 4, 100)]
    {
        let mut generator = Generator(3);
        let ops = Native::<f64>::new();
        let mut sample_tensor = |shape: &[usize]| ops.constant(shape, &generator.take(shape.iter().product()));
        let query = sample_tensor(&[batch, queries, heads, width]);
        let head_weights = sample_tensor(&[batch, queries, heads]);
        let key = sample_tensor(&[batch, keys, width]);
        let inputs = Indexer { query: &query, head_weights: &head_weights, key: &key, top };
        let choice = ops.choose_tokens(&inputs);
        assert_eq!(choice, composed::choose_tokens(&ops, &inputs), "{top} of {keys} for {queries} queries");
        assert_eq!(choice.blocks_of(batch * queries - 1).len(), top.min(keys));
    }
}
