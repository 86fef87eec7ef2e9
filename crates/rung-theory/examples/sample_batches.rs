//! Measures how fast Rust samples batches of prompts into arrays; `crates/rung-py/benches/sample.py` compares Python with it.
//!
//! `cargo run --release -p rung-theory --example sample_batches -- 'funccomp{hops=2,m=8,n=[4]}' 4096 1.0` prints how many tokens it
//! samples in 1.0 seconds.

use std::time::{Duration, Instant};

use rung_theory::task::{self, NO_TARGET, Prompt};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [spec, count, seconds] = arguments.as_slice() else { return Err("expected TASK COUNT SECONDS".into()) };
    let (task, count, duration) = (task::parse(spec)?, count.parse()?, Duration::from_secs_f64(seconds.parse()?));
    let (length, width) = (task.length(), task.fields().len());
    let (start, mut tokens, mut seed) = (Instant::now(), 0, 0);
    while start.elapsed() < duration {
        let (mut rng, mut prompt) = (task::seeded(seed), Prompt::new());
        let (mut ids, mut targets) = (Vec::with_capacity(count * length * width), Vec::with_capacity(count * length));
        let (mut mask, mut groups) = (Vec::with_capacity(count * length), Vec::with_capacity(count * length));
        for _ in 0..count {
            task.sample_prompt(&mut rng, &mut prompt);
            ids.extend_from_slice(prompt.tokens());
            targets.extend_from_slice(prompt.targets());
            mask.extend(prompt.targets().iter().map(|target| *target != NO_TARGET));
            groups.extend_from_slice(prompt.groups());
        }
        tokens += targets.len();
        seed += 1;
        std::hint::black_box((ids, targets, mask, groups));
    }
    println!("{tokens}");
    Ok(())
}
