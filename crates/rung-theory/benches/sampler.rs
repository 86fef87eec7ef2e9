//! Measures how fast function composition is sampled, compared with the same sampler in `numpy`.
//!
//! `cargo bench -p rung-theory --bench sampler`, with a `python3` on the path that has `numpy` (without one, only
//! the speed of Rust is printed). Both run on one thread and fill the same arrays; their runs are interleaved, so that other load
//! on the machine affects both. Each uses its fastest form. `numpy` works on batches, tries several batch sizes, bit generators
//! and integer widths, and uses the fastest. Rust refills one prompt, as a trainer does that copies it. A second measurement
//! fills as many prompts as the batch of `numpy` has: then both are mostly limited by memory, because the ids that change are one
//! token apart.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rung_theory::task::{AnyTask, Prompt, parse, seeded};

const SPEC: &str = "funccomp{hops=3,m=10,n=[9,10],order=hard,queries=1,mixed=no}";
const SIZES: [&str; 3] = ["10", "9", "10"];
const ROUNDS: usize = 25;
const RUN_TIME: Duration = Duration::from_millis(120);

/// Tokens per second of Rust when filling the prompts one after the other for about [`RUN_TIME`].
fn rust_speed(task: &dyn AnyTask, prompts: &mut [Prompt], seed: u64) -> f64 {
    let mut rng = seeded(seed);
    let start = Instant::now();
    let mut tokens = 0;
    while start.elapsed() < RUN_TIME {
        for _ in 0..256_usize.div_ceil(prompts.len()) {
            for prompt in &mut *prompts {
                task.sample_prompt(&mut rng, prompt);
                tokens += prompt.len();
            }
        }
    }
    std::hint::black_box(&prompts);
    tokens as f64 / start.elapsed().as_secs_f64()
}

/// A running `sampler.py`.
struct NumPy {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    batch: usize,
    /// The fastest setting: version, bit generator and integer type.
    setting: String,
}

impl NumPy {
    /// Starts the script and checks with the task's oracle that it samples the same task.
    fn start(task: &dyn AnyTask) -> Result<Self, Box<dyn std::error::Error>> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/sampler.py");
        let mut command = Command::new("python3");
        command.arg(script).args(SIZES).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().ok_or("no input")?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = || -> Result<serde_json::Value, Box<dyn std::error::Error>> {
            let mut text = String::new();
            stdout.read_line(&mut text)?;
            Ok(serde_json::from_str(&text)?)
        };
        let (setting, prompt) = (line()?, line()?);
        let numbers = |name: &str| -> Vec<u32> {
            let list = prompt[name].as_array().cloned().unwrap_or_default();
            list.iter().filter_map(|number| number.as_u64().map(|number| number as u32)).collect()
        };
        assert_eq!(task.oracle(&numbers("tokens"))?, numbers("targets"), "NumPy must sample the same task");
        let batch = setting["batch"].as_u64().ok_or("no batch")? as usize;
        Ok(Self { child, stdin, stdout, batch, setting: setting["about"].as_str().unwrap_or_default().to_owned() })
    }

    /// Tokens per second over [`RUN_TIME`].
    fn speed(&mut self) -> Result<f64, Box<dyn std::error::Error>> {
        writeln!(self.stdin, "{}", RUN_TIME.as_secs_f64())?;
        let mut answer = String::new();
        self.stdout.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }
}

impl Drop for NumPy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo test --benches` only checks that it runs.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let task = parse(SPEC)?;
    println!("{SPEC}: {} tokens of {} ids, one thread each", task.length(), task.fields().len());
    let mut single_prompt = [Prompt::new()];
    if quick {
        task.sample_prompt(&mut seeded(0), &mut single_prompt[0]);
        return Ok(());
    }
    let mut numpy = match NumPy::start(&*task) {
        Ok(numpy) => Some(numpy),
        Err(error) => {
            println!("no comparison, as python3 with numpy could not be started: {error}");
            None
        }
    };
    let batch = numpy.as_ref().map_or(64, |numpy| numpy.batch);
    if let Some(numpy) = &numpy {
        println!("fastest setting of the other side: {}, batch {batch}", numpy.setting);
    }
    let mut prompts: Vec<Prompt> = (0..batch).map(|_| Prompt::new()).collect();
    let (mut reused, mut batched, mut numpy_speeds) = (Vec::new(), Vec::new(), Vec::new());
    println!("million tokens per second");
    println!(
        "{:>6}{:>12}{:>12}{:>12}{:>18}{:>14}",
        "round", "one prompt", "batch", "numpy", "one prompt/numpy", "batch/numpy"
    );
    for round in 0..ROUNDS {
        reused.push(rust_speed(&*task, &mut single_prompt, round as u64) / 1e6);
        batched.push(rust_speed(&*task, &mut prompts, round as u64) / 1e6);
        print!("{:>6}{:>12.0}{:>12.0}", round + 1, reused[round], batched[round]);
        if let Some(numpy) = &mut numpy {
            numpy_speeds.push(numpy.speed()? / 1e6);
            print!(
                "{:>12.0}{:>18.2}{:>14.2}",
                numpy_speeds[round],
                reused[round] / numpy_speeds[round],
                batched[round] / numpy_speeds[round]
            );
        }
        println!();
    }
    let ratios =
        |speeds: &[f64]| speeds.iter().zip(&numpy_speeds).map(|(rust, numpy)| rust / numpy).collect::<Vec<f64>>();
    print!("{:>6}{:>12.0}{:>12.0}", "median", median(reused.clone()), median(batched.clone()));
    if !numpy_speeds.is_empty() {
        let (single_ratio, batch_ratio) = (median(ratios(&reused)), median(ratios(&batched)));
        print!("{:>12.0}{single_ratio:>18.2}{batch_ratio:>14.2}", median(numpy_speeds));
    }
    println!();
    Ok(())
}
