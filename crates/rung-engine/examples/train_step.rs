//! How long a training step takes.
//!
//! A decoder-only model written directly on `Ops` (pre-norm, a mixer, a GELU MLP four times as wide, cross-entropy on the last
//! position) is trained on random tokens at three shapes with three mixers. Printed: milliseconds per step, tokens per second,
//! the share of the arithmetic limit (the speed of a large product on all cores), and peak memory. With `--against python`
//! the same work is done in turns by PyTorch, through `benches/torch_step.py`, and two ratios are printed: of the median steps,
//! and of the fastest, which other work on the machine disturbs least.
//!
//! ```text
//! cargo run --release -p rung-engine --example train_step -- [--only MIXER] [--shape S|M|L] [--steps N] [--piece N]
//!     [--threads N] [--against PYTHON]
//! ```

use rung_engine::{AdamW, AdamWConfig, Attention, Decay, Native, Ops, Parameter, Parameters, Recurrence, Sight, Team};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const VOCABULARY: usize = 64;
const CHUNK: usize = 32;

/// Extents of a run.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    batch: usize,
    length: usize,
    width: usize,
    heads: usize,
    layers: usize,
}

const SIZES: [Size; 3] = [
    Size { name: "S", batch: 64, length: 64, width: 64, heads: 4, layers: 2 },
    Size { name: "M", batch: 32, length: 256, width: 128, heads: 4, layers: 4 },
    Size { name: "L", batch: 4, length: 1024, width: 256, heads: 8, layers: 4 },
];

#[derive(Clone, Copy, PartialEq)]
enum Mixer {
    Softmax,
    Linear,
    GatedDelta,
}

/// The last two differ only in the peer: PyTorch solves the triangular systems with its library, or row by row as public
/// implementations do.
const MIXERS: [(&str, Mixer); 4] = [
    ("softmax", Mixer::Softmax),
    ("linear", Mixer::Linear),
    ("gdn", Mixer::GatedDelta),
    ("gdn_rows", Mixer::GatedDelta),
];

/// A weight and bias.
struct Affine {
    weight: Parameter,
    bias: Parameter,
}

struct Block {
    norms: [Affine; 2],
    query: Affine,
    key: Affine,
    value: Affine,
    out: Affine,
    up: Affine,
    down: Affine,
    beta: Affine,
    decay: Affine,
    rate: Parameter,
}

struct Model {
    size: Size,
    mixer: Mixer,
    tokens: Parameter,
    places: Parameter,
    blocks: Vec<Block>,
    norm: Affine,
    head: Affine,
}

/// Makes weights with numbers that look random.
struct Maker {
    weights: Parameters<f32>,
    seed: u64,
}

impl Maker {
    fn uniform(&mut self, count: usize, scale: f32) -> Vec<f32> {
        let mut next = || {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.seed >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
        };
        (0..count).map(|_| next()).collect()
    }

    fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Parameter {
        let values = self.uniform(rows * columns, (columns as f32).powf(-0.5));
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

    fn block(&mut self, index: usize, Size { width, heads, .. }: Size) -> Block {
        let name = |part: &str| format!("blocks.{index}.{part}");
        Block {
            norms: [self.norm(&name("norms.0"), width), self.norm(&name("norms.1"), width)],
            query: self.affine(&name("q"), width, width),
            key: self.affine(&name("k"), width, width),
            value: self.affine(&name("v"), width, width),
            out: self.affine(&name("o"), width, width),
            up: self.affine(&name("up"), 4 * width, width),
            down: self.affine(&name("down"), width, 4 * width),
            beta: self.affine(&name("beta"), heads, width),
            decay: self.affine(&name("decay"), heads, width),
            rate: self.weights.add(name("rate"), &[heads], vec![0.0; heads]).without_decay().id(),
        }
    }
}

impl Model {
    fn new(size: Size, mixer: Mixer) -> (Self, Parameters<f32>) {
        let mut maker = Maker { weights: Parameters::new(), seed: 1 };
        let tokens = maker.matrix("tokens", VOCABULARY, size.width);
        let places = maker.matrix("places", size.length, size.width);
        let blocks = (0..size.layers).map(|index| maker.block(index, size)).collect();
        let norm = maker.norm("norm", size.width);
        let head = maker.affine("head", VOCABULARY, size.width);
        (Self { size, mixer, tokens, places, blocks, norm, head }, maker.weights)
    }

    /// Sum of the losses of some sequences, divided by the batch size.
    fn loss<O: Ops>(&self, ops: &O, tokens: &[usize], targets: &[usize]) -> O::Tensor {
        let Size { batch, length, width, .. } = self.size;
        let items = targets.len();
        let x = ops.gather_rows(&ops.parameter(self.tokens), tokens);
        let mut x = ops.add(&ops.reshape(&x, &[items, length, width]), &ops.parameter(self.places));
        for (index, block) in self.blocks.iter().enumerate() {
            x = ops.scope(&format!("block {index}"), || self.block(ops, block, &x));
        }
        let last: Vec<usize> = (1..=items).map(|item| item * length - 1).collect();
        let x = ops.gather_rows(&ops.reshape(&x, &[items * length, width]), &last);
        let logits = apply(ops, &self.head, &normed(ops, &self.norm, &x));
        ops.scale(&ops.sum_all(&ops.cross_entropy(&logits, targets)), 1.0 / batch as f64)
    }

    fn block<O: Ops>(&self, ops: &O, block: &Block, x: &O::Tensor) -> O::Tensor {
        let mixed = self.mix(ops, block, &normed(ops, &block.norms[0], x));
        let x = ops.add(x, &apply(ops, &block.out, &mixed));
        let hidden = ops.gelu(&apply(ops, &block.up, &normed(ops, &block.norms[1], &x)));
        ops.add(&x, &apply(ops, &block.down, &hidden))
    }

    fn mix<O: Ops>(&self, ops: &O, block: &Block, x: &O::Tensor) -> O::Tensor {
        let shape = ops.shape(x);
        let (heads, width) = (self.size.heads, self.size.width / self.size.heads);
        let split = |layer: &Affine| ops.reshape(&apply(ops, layer, x), &[shape[0], shape[1], heads, width]);
        let (query, key, value) = (split(&block.query), split(&block.key), split(&block.value));
        let scale = (width as f64).powf(-0.5);
        let plain = |query: &O::Tensor, key: &O::Tensor, decay: Decay<'_, O::Tensor>, beta: Option<&O::Tensor>| {
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
        let mixed = match self.mixer {
            Mixer::Softmax => ops.attention(&Attention {
                query: &query,
                key: &key,
                value: &value,
                bias: None,
                sight: Sight::Past,
                scale,
            }),
            Mixer::Linear => plain(&ops.elu_plus_one(&query), &ops.elu_plus_one(&key), Decay::None, None),
            Mixer::GatedDelta => {
                let beta = ops.sigmoid(&apply(ops, &block.beta, x));
                let rate = ops.neg(&ops.exp(&ops.parameter(block.rate)));
                let decay = ops.mul(&ops.softplus(&apply(ops, &block.decay, x)), &rate);
                let (query, key) = (ops.scale(&ops.l2_norm(&query, 1e-6), scale), ops.l2_norm(&key, 1e-6));
                plain(&query, &key, Decay::Scalar(&decay), Some(&beta))
            }
        };
        ops.reshape(&mixed, &shape)
    }

    /// Floating-point operations of a step, counting a multiply-add as two and products only.
    fn flops(&self) -> f64 {
        let Size { batch, length, width, heads, layers, .. } = self.size;
        let (tokens, channels, head) = ((batch * length) as f64, width as f64, (width / heads) as f64);
        let dense = 2.0 * 12.0 * channels * channels;
        let mixing = match self.mixer {
            Mixer::Softmax => 2.0 * length as f64 * channels,
            Mixer::Linear => 4.0 * channels * (head + CHUNK as f64 / 2.0),
            Mixer::GatedDelta => channels * (6.0 * head + 4.0 * CHUNK as f64),
        };
        3.0 * tokens * layers as f64 * (dense + mixing)
    }
}

fn apply<O: Ops>(ops: &O, layer: &Affine, x: &O::Tensor) -> O::Tensor {
    ops.linear(x, &ops.parameter(layer.weight), Some(&ops.parameter(layer.bias)))
}

fn normed<O: Ops>(ops: &O, layer: &Affine, x: &O::Tensor) -> O::Tensor {
    ops.layer_norm(x, Some(&ops.parameter(layer.weight)), Some(&ops.parameter(layer.bias)), 1e-5)
}

/// A model in training.
struct Training {
    model: Model,
    weights: Parameters<f32>,
    team: Team<f32>,
    optimizer: AdamW<f32>,
    tokens: Vec<usize>,
    targets: Vec<usize>,
}

impl Training {
    fn new(size: Size, mixer: Mixer, options: &Options) -> Self {
        let (model, weights) = Model::new(size, mixer);
        let piece = options.piece.unwrap_or_else(|| Team::<f32>::piece_for(size.length, size.width));
        let team = Team::new(options.threads, piece);
        let tokens = (0..size.batch * size.length).map(|index| index * index % 61 % VOCABULARY).collect();
        let targets = (0..size.batch).map(|index| index * 7 % VOCABULARY).collect();
        Self { model, weights, team, optimizer: AdamWConfig::default().init(), tokens, targets }
    }

    /// Milliseconds of one step.
    fn step(&mut self) -> f64 {
        let start = Instant::now();
        let (model, length) = (&self.model, self.model.size.length);
        let (tokens, targets) = (&self.tokens, &self.targets);
        let outcome = self.team.step(&self.weights, model.size.batch, |ops: &Native<f32>, items| {
            model.loss(ops, &tokens[items.start * length..items.end * length], &targets[items])
        });
        outcome.expect("a finite step");
        self.optimizer.update(&mut self.weights, self.team.gradient(), 1.0);
        start.elapsed().as_secs_f64() * 1e3
    }
}

/// The peer: a Python process that answers requests.
struct Peer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn start(python: &str) -> std::io::Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/torch_step.py");
        let mut process = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let requests = process.stdin.take().expect("a piped input");
        let answers = BufReader::new(process.stdout.take().expect("a piped output"));
        Ok(Self { process, requests, answers })
    }

    /// Milliseconds of some steps, and peak memory.
    fn steps(&mut self, mixer: &str, size: &Size, steps: usize) -> std::io::Result<(Vec<f64>, f64)> {
        writeln!(self.requests, "{mixer} {} {steps}", size.name)?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let mut numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let peak = numbers.pop().unwrap_or(f64::NAN);
        Ok((numbers, peak))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Options {
    only: Option<String>,
    shape: Option<String>,
    steps: usize,
    piece: Option<usize>,
    threads: usize,
    against: Option<String>,
}

impl Options {
    fn read() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut options = Self { only: None, shape: None, steps: 5, piece: None, threads, against: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            let number = || value.parse().unwrap_or_else(|_| panic!("{word} needs a number, not {value}"));
            match word.as_str() {
                "--only" => options.only = Some(value),
                "--shape" => options.shape = Some(value),
                "--steps" => options.steps = number(),
                "--piece" => options.piece = Some(number()),
                "--threads" => options.threads = number(),
                "--against" => options.against = Some(value),
                _ => panic!("unknown option {word}; see the top of this example's source"),
            }
        }
        options
    }
}

/// Multiply-adds per second of a large product on all threads, times two.
fn limit(threads: usize) -> f64 {
    let side = 1024;
    let mut weights = Parameters::<f32>::new();
    let matrix = weights.add("matrix", &[side, side], vec![0.5; side * side]).id();
    let run = || {
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let x = ops.parameter(matrix);
        let once = || {
            let start = Instant::now();
            let _ = ops.matmul(&x, &x);
            start.elapsed().as_secs_f64()
        };
        (0..8).map(|_| once()).fold(f64::INFINITY, f64::min)
    };
    let slowest = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        runs.into_iter().map(|run| run.join().expect("a product")).fold(0.0, f64::max)
    });
    threads as f64 * 2.0 * (side as f64).powi(3) / slowest
}

/// Peak resident memory of this process so far.
fn peak_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).map_or(f64::NAN, |kib: f64| kib * 1024.0)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn fastest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

fn main() -> std::io::Result<()> {
    let options = Options::read();
    let mut peer = options.against.as_deref().map(Peer::start).transpose()?;
    let limit = limit(options.threads);
    println!("arithmetic limit: {:.0} GFLOP/s on {} threads", limit / 1e9, options.threads);
    println!("mixer    shape       ms   tokens/s  of limit  peak MB  torch ms  torch MB  ratio  fastest");
    for size in SIZES {
        for (name, mixer) in MIXERS {
            let asked = |wish: &Option<String>, name: &str| wish.as_ref().is_none_or(|wish| wish == name);
            if !asked(&options.only, name) || !asked(&options.shape, size.name) {
                continue;
            }
            let mut training = Training::new(size, mixer, &options);
            for _ in 0..2 {
                training.step();
            }
            if let Some(peer) = &mut peer {
                peer.steps(name, &size, 2)?;
            }
            let (mut ours, mut theirs, mut their_peak) = (Vec::new(), Vec::new(), f64::NAN);
            for _ in 0..options.steps {
                ours.extend((0..3).map(|_| training.step()));
                if let Some(peer) = &mut peer {
                    let (times, peak) = peer.steps(name, &size, 3)?;
                    theirs.extend(times);
                    their_peak = peak;
                }
            }
            let (best, ours) = (fastest(&ours), median(ours));
            let tokens = (size.batch * size.length) as f64 / ours * 1e3;
            let share = training.model.flops() / (ours * 1e-3) / limit;
            print!(
                "{name:8} {:5} {ours:8.2} {tokens:10.0} {:8.0}% {:8.0}",
                size.name,
                share * 100.0,
                peak_bytes() / 1e6
            );
            if theirs.is_empty() {
                println!();
                continue;
            }
            let (their_best, theirs) = (fastest(&theirs), median(theirs));
            println!("  {theirs:8.2}  {:8.0}  {:5.2}   {:5.2}", their_peak / 1e6, theirs / ours, their_best / best);
        }
    }
    Ok(())
}
