//! A custom mixer in one file, outside of the crate, written with primitives only.
//!
//! The mixer has one moving average per channel, `s_t = a . s_{t-1} + (1 - a) . v_t` with a learned decay `a` per channel, and an
//! output gate. It is trained together with a short convolution on a small induction task, tested on new samples, compared between
//! decoding token by token and one parallel pass, and timed against a mixer that has a kernel:
//!
//! ```text
//! cargo run --release -p rung-nn --example own_mixer
//! ```
//!
//! The recurrence is computed for all tokens at once as a product with the matrix `a^(t-s)`, by broadcasting over channels. That
//! costs `seq_len^2 * channels`, as the last table shows; a kernel would make it linear.

use std::time::Instant;

use rung_engine::{
    AdamWConfig, DataParallel, LearningRateDecay, Native, Ops, Parameter, Parameters, Role, Scalar, Schedule,
};
use rung_nn::mixer::conv::{ShortConvolution, ShortConvolutionConfig};
use rung_nn::mixer::linear::{FeatureMap, LinearAttentionConfig};
use rung_nn::submodules::Linear;
use rung_nn::{
    BuildSettings, Init, InputConfig, MixerConfig, Model, ModelConfig, ModelError, ParamBuilder, State, TokenMixer,
};
use rung_theory::task::{NO_TARGET, seeded, shuffle};

/// An exponential moving average per channel.
struct MovingAverage {
    value: Linear,
    gate: Linear,
    /// The logit of the decay `a`, per channel.
    decay_logit: Parameter,
    output: Linear,
}

impl MovingAverage {
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>) -> Self {
        let width = params.settings.width;
        Self {
            value: params.role(Role::Value).linear("v_proj", width, width),
            gate: params.role(Role::Gate).linear("g_proj", width, width),
            // Time constants from two tokens to fifty.
            decay_logit: params.parameter_without_weight_decay("decay_logit", &[width], Init::Uniform(0.0, 4.0)),
            output: params.role(Role::Output).linear("o_proj", width, width),
        }
    }
}

impl TokenMixer for MovingAverage {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let [batch, seq_len, width] = ops.shape(x)[..] else { panic!("tokens of shape {}", ops.shape(x)) };
        let decay_logit = ops.parameter(self.decay_logit);
        // log a = -softplus(-logit), and 1 - a = sigmoid(-logit)
        let log_decay = ops.neg(&ops.softplus(&ops.neg(&decay_logit)));
        let inputs = ops.mul(&self.value.apply(ops, x), &ops.sigmoid(&ops.neg(&decay_logit)));
        // a^(t-s) for s <= t: the exponential of distances times the log-decay, masked above the diagonal.
        let pairs = || (0..seq_len).flat_map(|t| (0..seq_len).map(move |s| (t, s)));
        let table = |value: &dyn Fn(usize, usize) -> f64| {
            let values: Vec<O::Scalar> = pairs().map(|(t, s)| O::Scalar::from_f64(value(t, s))).collect();
            ops.constant(&[seq_len, seq_len, 1], &values)
        };
        let distance = table(&|t, s| t.saturating_sub(s) as f64);
        let mask = table(&|t, s| if s <= t { 0.0 } else { -1e30 });
        let powers = ops.exp(&ops.add(&ops.mul(&distance, &log_decay), &mask));
        let terms = ops.mul(&powers, &ops.reshape(&inputs, &[batch, 1, seq_len, width]));
        let mut sums = ops.reshape(&ops.sum(&terms, 2), &[batch, seq_len, width]);
        if let Some(initial) = State::tensor(state, 0) {
            let steps: Vec<O::Scalar> = (1..=seq_len).map(|t| O::Scalar::from_f64(t as f64)).collect();
            let powers = ops.exp(&ops.mul(&ops.constant(&[seq_len, 1], &steps), &log_decay));
            sums = ops.add(&sums, &ops.mul(&powers, initial));
        }
        let out = self.output.apply(ops, &ops.silu_gate(&self.gate.apply(ops, x), &sums));
        let last = ops.slice(&sums, 1, seq_len - 1..seq_len);
        (out, State::new(State::past_len(state) + seq_len, [Some(last)]))
    }
}

/// The mixers of this model: the custom one, and one of the crate.
enum ModelMixer {
    MovingAverage(MovingAverage),
    Convolution(ShortConvolution),
}

impl TokenMixer for ModelMixer {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        match self {
            Self::MovingAverage(mixer) => mixer.forward(ops, x, state),
            Self::Convolution(mixer) => mixer.forward(ops, x, state),
        }
    }
}

const WIDTH: usize = 32;
const LETTERS: usize = 8;
const ROWS: usize = 64;

/// Rows of eight letters in random order, twice. In the second half the target is the next letter.
fn batch(seed: u64) -> (Vec<u32>, Vec<u32>) {
    let (mut rng, mut tokens, mut targets) = (seeded(seed), Vec::new(), Vec::new());
    for _ in 0..ROWS {
        let mut letters: Vec<u32> = (0..LETTERS as u32).collect();
        shuffle(&mut rng, &mut letters);
        tokens.extend(letters.iter().chain(&letters));
        targets.extend([NO_TARGET; LETTERS].iter().chain(&letters[1..]).chain(&[NO_TARGET]));
    }
    (tokens, targets)
}

/// The accuracy at tokens that have a target.
fn accuracy(model: &Model<ModelMixer>, weights: &Parameters<f32>, seed: u64) -> Result<f64, ModelError> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    let (tokens, targets) = batch(seed);
    let (hidden, _) = model.forward(&ops, &tokens, ROWS, None)?;
    let logits = ops.values(&model.logits(&ops, &hidden));
    let best = |row: &[f32]| (0..LETTERS).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as u32;
    let predictions: Vec<_> = logits.chunks(LETTERS).zip(targets).filter(|(_, target)| *target != NO_TARGET).collect();
    let correct = predictions.iter().filter(|(row, target)| best(row) == *target).count();
    Ok(correct as f64 / predictions.len() as f64)
}

/// The largest difference between the outputs of decoding token by token and of one parallel pass.
fn decoding_error(model: &Model<ModelMixer>, weights: &Parameters<f32>) -> Result<f32, ModelError> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    let tokens = &batch(7).0[..2 * LETTERS];
    let parallel = ops.values(&model.forward(&ops, tokens, 1, None)?.0);
    let (mut state, mut stepwise) = (None, Vec::new());
    for token in tokens {
        let (hidden, next) = model.forward(&ops, &[*token], 1, state.as_ref())?;
        stepwise.extend(ops.values(&hidden));
        state = Some(next);
    }
    Ok(stepwise.iter().zip(parallel).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
}

/// Milliseconds of a forward and a backward pass over eight rows of `seq_len` tokens: the best of five runs.
fn pass_milliseconds<M: TokenMixer>(
    seq_len: usize,
    build: impl Fn(&mut ParamBuilder<'_, f32>) -> Result<M, ModelError>,
) -> Result<f64, ModelError> {
    let mut weights = Parameters::new();
    let settings = BuildSettings { width: WIDTH, ..BuildSettings::default() };
    let mixer = build(&mut ParamBuilder::new(settings, &mut weights, &mut seeded(0)))?;
    let ops = Native::new();
    let mut fastest = f64::INFINITY;
    for _ in 0..5 {
        ops.bind(&weights);
        let start = Instant::now();
        let (out, _) = mixer.forward(&ops, &ops.full(&[8, seq_len, WIDTH], 0.5), None);
        ops.backward(&ops.mean_all(&out));
        fastest = fastest.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(fastest)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = ModelConfig {
        input: InputConfig::Vocabulary(LETTERS),
        classes: LETTERS,
        init_std: 0.1,
        ..ModelConfig::default()
    };
    let mut weights = Parameters::<f32>::new();
    let convolution = ShortConvolutionConfig { kernel_size: 3, channels: WIDTH, gated: true };
    let model = config.init_with(WIDTH, 2, &mut weights, &mut seeded(0), |params, _| {
        let custom = params.with_prefix("average", |params| ModelMixer::MovingAverage(MovingAverage::init(params)));
        let convolution = params.with_prefix("conv", |params| convolution.init(params).map(ModelMixer::Convolution))?;
        Ok(vec![custom, convolution])
    })?;
    println!("{} weights", weights.size());

    let mut trainer = DataParallel::new(2, 16);
    let mut optimizer = AdamWConfig { rate: 3e-3, ..AdamWConfig::default() }.init();
    let (start, steps, length) = (Instant::now(), 300, 2 * LETTERS);
    let schedule = Schedule { warmup: 10, steps, decay: LearningRateDecay::Cosine { floor: 0.0 } };
    for step in 0..steps {
        let (tokens, targets) = batch(step as u64);
        let outcome = trainer.compute_gradient(&weights, ROWS, |ops: &Native<f32>, rows| {
            let range = rows.start * length..rows.end * length;
            let loss = model.loss(ops, &tokens[range.clone()], rows.len(), &targets[range]);
            let (loss, _) = loss.expect("tokens of the task fit the model");
            ops.scale(&loss, 1.0 / (ROWS * (LETTERS - 1)) as f64)
        })?;
        optimizer.update(&mut weights, trainer.gradient(), schedule.factor(step));
        if step % 50 == 0 || step + 1 == steps {
            println!("step {step:4}  loss {:.4}", outcome.loss);
        }
    }
    let tokens = steps * ROWS * length;
    println!("{:.0} tokens a second", tokens as f64 / start.elapsed().as_secs_f64());
    println!("{:.1} % accuracy on new samples", 100.0 * accuracy(&model, &weights, 1_000_000)?);
    println!("decoding differs from the parallel pass by {:.1e} at most", decoding_error(&model, &weights)?);

    println!("forward and backward, 8 rows, width {WIDTH}:\n tokens  average (ms)  linear attention (ms)");
    let map = FeatureMap::EluPlusOne;
    let linear = LinearAttentionConfig { heads: 2, key_dim: 16, value_dim: 16, normaliser: true, map };
    for seq_len in [32, 64, 128, 256] {
        let custom = pass_milliseconds(seq_len, |params| Ok(MovingAverage::init(params)))?;
        println!("{seq_len:7}  {custom:12.2}  {:21.2}", pass_milliseconds(seq_len, |params| linear.init(params))?);
    }
    Ok(())
}
