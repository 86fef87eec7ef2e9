//! How fast function composition is sampled, side by side with the same sampler in `numpy`.
//!
//! `cargo bench -p rung-theory --bench sampler`, with a `python3` on the path that has `numpy` (without one, only
//! our own figures are printed). Both run on one thread and fill the same arrays; they take turns, so that a busy
//! moment of the machine hits both. Each side runs the way that suits it. `numpy` works on whole batches, tries
//! several batch sizes, bit generators and integer widths, and keeps the fastest. Ours fills one prompt again and
//! again, as a trainer would that copies it on. A second figure of ours fills as many prompts as the other side has
//! in its batch: then both mostly wait for memory, because the cells of a prompt that change lie a whole token
//! apart.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rung_theory::task::{AnyTask, Prompt, parse, seeded};

const SPEC: &str = "funccomp{hops=3,m=10,n=[9,10],order=hard,queries=1,mixed=no}";
const SIZES: [&str; 3] = ["10", "9", "10"];
const ROUNDS: usize = 25;
const TURN: Duration = Duration::from_millis(120);

/// Tokens per second when filling the prompts one after the other for about one turn.
fn ours(task: &dyn AnyTask, prompts: &mut [Prompt], seed: u64) -> f64 {
    let mut rng = seeded(seed);
    let start = Instant::now();
    let mut tokens = 0;
    while start.elapsed() < TURN {
        for _ in 0..256_usize.div_ceil(prompts.len()) {
            for prompt in &mut *prompts {
                task.prompt(&mut rng, prompt);
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
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    batch: usize,
    about: String,
}

impl NumPy {
    /// Starts it and checks with our oracle that its prompt is one of the task.
    fn start(task: &dyn AnyTask) -> Result<Self, Box<dyn std::error::Error>> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/sampler.py");
        let mut command = Command::new("python3");
        command.arg(script).args(SIZES).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let ask = child.stdin.take().ok_or("no input")?;
        let mut answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = || -> Result<serde_json::Value, Box<dyn std::error::Error>> {
            let mut text = String::new();
            answers.read_line(&mut text)?;
            Ok(serde_json::from_str(&text)?)
        };
        let (setting, prompt) = (line()?, line()?);
        let numbers = |name: &str| -> Vec<u32> {
            let list = prompt[name].as_array().cloned().unwrap_or_default();
            list.iter().filter_map(|number| number.as_u64().map(|number| number as u32)).collect()
        };
        assert_eq!(task.oracle(&numbers("tokens"))?, numbers("targets"), "NumPy must sample the same task");
        let batch = setting["batch"].as_u64().ok_or("no batch")? as usize;
        Ok(Self { child, ask, answers, batch, about: setting["about"].as_str().unwrap_or_default().to_owned() })
    }

    /// Tokens per second over one turn.
    fn speed(&mut self) -> Result<f64, Box<dyn std::error::Error>> {
        writeln!(self.ask, "{}", TURN.as_secs_f64())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
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
    // `cargo test --benches` only wants to know that it runs.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let task = parse(SPEC)?;
    println!("{SPEC}: {} tokens of {} ids, one thread each", task.length(), task.fields().len());
    let mut one = [Prompt::new()];
    if quick {
        task.prompt(&mut seeded(0), &mut one[0]);
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
        println!("fastest setting of the other side: {}, batch {batch}", numpy.about);
    }
    let mut prompts: Vec<Prompt> = (0..batch).map(|_| Prompt::new()).collect();
    let (mut reused, mut batched, mut others) = (Vec::new(), Vec::new(), Vec::new());
    println!("million tokens per second");
    println!(
        "{:>6}{:>12}{:>12}{:>12}{:>18}{:>14}",
        "round", "one prompt", "batch", "numpy", "one prompt/numpy", "batch/numpy"
    );
    for round in 0..ROUNDS {
        reused.push(ours(&*task, &mut one, round as u64) / 1e6);
        batched.push(ours(&*task, &mut prompts, round as u64) / 1e6);
        print!("{:>6}{:>12.0}{:>12.0}", round + 1, reused[round], batched[round]);
        if let Some(numpy) = &mut numpy {
            others.push(numpy.speed()? / 1e6);
            print!(
                "{:>12.0}{:>18.2}{:>14.2}",
                others[round],
                reused[round] / others[round],
                batched[round] / others[round]
            );
        }
        println!();
    }
    let ratios = |ours: &[f64]| ours.iter().zip(&others).map(|(ours, other)| ours / other).collect::<Vec<f64>>();
    print!("{:>6}{:>12.0}{:>12.0}", "median", median(reused.clone()), median(batched.clone()));
    if !others.is_empty() {
        let (one, batch) = (median(ratios(&reused)), median(ratios(&batched)));
        print!("{:>12.0}{one:>18.2}{batch:>14.2}", median(others));
    }
    println!();
    Ok(())
}
