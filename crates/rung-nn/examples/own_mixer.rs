//! A mixer of your own, in one file, outside of the crate, written only with primitives.
//!
//! The mixer here keeps one running average per channel, `s_t = a . s_{t-1} + (1 - a) . v_t` with a learned `a` per channel, and
//! gates what it reads. It is trained beside a short convolution on a small induction task:
//!
//! ```text
//! cargo run --release -p rung-nn --example own_mixer
//! ```
//!
//! The recurrence is computed for all tokens at once as a product with the matrix `a^(t-s)`, one channel at a time in spirit
//! and by broadcasting in fact. That costs `time^2 * channels`; a kernel would make it linear.

use std::time::Instant;

use rung_engine::{AdamWConfig, Native, Ops, Parameter, Parameters, Scalar, Team};
use rung_nn::mixer::conv::{ShortConvolution, ShortConvolutionConfig};
use rung_nn::parts::Linear;
use rung_nn::{Fill, Input, MixerConfig, ModelConfig, Site, State, TokenMixer};
use rung_theory::task::{NO_TARGET, seeded, shuffle};

/// A running average per channel.
struct Average {
    value: Linear,
    gate: Linear,
    keep: Parameter,
    output: Linear,
}

impl Average {
    fn init<S: Scalar>(site: &mut Site<'_, S>) -> Self {
        let width = site.settings.width;
        Self {
            value: site.linear("v_proj", width, width),
            gate: site.linear("g_proj", width, width),
            // The logit of the share that is kept: horizons from two tokens to fifty.
            keep: site.offset("keep", &[width], Fill::Uniform(0.0, 4.0)),
            output: site.linear("o_proj", width, width),
        }
    }
}

impl TokenMixer for Average {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let [batch, time, width] = ops.shape(x)[..] else { panic!("tokens of shape {}", ops.shape(x)) };
        let keep = ops.parameter(self.keep);
        // log a = -softplus(-logit), and 1 - a = sigmoid(-logit).
        let fade = ops.neg(&ops.softplus(&ops.neg(&keep)));
        let written = ops.mul(&self.value.apply(ops, x), &ops.sigmoid(&ops.neg(&keep)));
        // a^(t-s) for s <= t: a table of distances times the log, minus infinity above the diagonal.
        let cells = || (0..time).flat_map(|reader| (0..time).map(move |source| (reader, source)));
        let table = |value: &dyn Fn(usize, usize) -> f64| {
            let values: Vec<O::Scalar> = cells().map(|(t, s)| O::Scalar::of(value(t, s))).collect();
            ops.constant(&[time, time, 1], &values)
        };
        let distance = table(&|t, s| t.saturating_sub(s) as f64);
        let mask = table(&|t, s| if s <= t { 0.0 } else { -1e30 });
        let powers = ops.exp(&ops.add(&ops.mul(&distance, &fade), &mask));
        let terms = ops.mul(&powers, &ops.reshape(&written, &[batch, 1, time, width]));
        let mut sums = ops.reshape(&ops.sum(&terms, 2), &[batch, time, width]);
        if let Some(before) = State::part(state, 0) {
            let steps: Vec<O::Scalar> = (1..=time).map(|t| O::Scalar::of(t as f64)).collect();
            let faded = ops.exp(&ops.mul(&ops.constant(&[time, 1], &steps), &fade));
            sums = ops.add(&sums, &ops.mul(&faded, before));
        }
        let out = self.output.apply(ops, &ops.silu_gate(&self.gate.apply(ops, x), &sums));
        let last = ops.slice(&sums, 1, time - 1..time);
        (out, State::new(State::seen(state) + time, [Some(last)]))
    }
}

/// The mixers of this model: ours, and one of the crate's.
enum Mine {
    Average(Average),
    Convolution(ShortConvolution),
}

impl TokenMixer for Mine {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        match self {
            Self::Average(mixer) => mixer.forward(ops, x, state),
            Self::Convolution(mixer) => mixer.forward(ops, x, state),
        }
    }
}

const WIDTH: usize = 32;
const LETTERS: usize = 8;
const ROWS: usize = 64;

/// Rows of eight letters in some order, twice: in the second pass, what follows each letter is asked.
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config =
        ModelConfig { input: Input::Vocabulary(LETTERS), classes: LETTERS, deviation: 0.1, ..ModelConfig::default() };
    let mut weights = Parameters::<f32>::new();
    let convolution = ShortConvolutionConfig { taps: 3, channels: WIDTH, gated: true };
    let model = config.init_with(WIDTH, 2, &mut weights, &mut seeded(0), |site, _| {
        let mine = site.within("average", |site| Mine::Average(Average::init(site)));
        let theirs = site.within("conv", |site| convolution.init(site).map(Mine::Convolution))?;
        Ok(vec![mine, theirs])
    })?;
    println!("{} weights", weights.size());

    let mut team = Team::new(2, 16);
    let mut optimizer = AdamWConfig { rate: 3e-3, ..AdamWConfig::default() }.init();
    let (start, steps, length) = (Instant::now(), 300, 2 * LETTERS);
    for step in 0..steps {
        let (tokens, targets) = batch(step);
        let outcome = team.step(&weights, ROWS, |ops: &Native<f32>, rows| {
            let range = rows.start * length..rows.end * length;
            let loss = model.loss(ops, &tokens[range.clone()], rows.len(), &targets[range]);
            let (loss, _) = loss.expect("tokens of the task fit the model");
            ops.scale(&loss, 1.0 / (ROWS * (LETTERS - 1)) as f64)
        })?;
        optimizer.update(&mut weights, team.gradient(), 1.0);
        if step % 50 == 0 || step + 1 == steps {
            println!("step {step:4}  loss {:.4}", outcome.loss);
        }
    }
    let tokens = steps as usize * ROWS * length;
    println!("{:.0} tokens a second", tokens as f64 / start.elapsed().as_secs_f64());
    Ok(())
}
