//! Runs the fuzz targets on their stored corpora and on mutants of them; none may panic. `fuzz/README.md` describes coverage-guided runs.

mod common;
#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::path::Path;
use std::time::{Duration, Instant};

use common::Lcg;

/// Time limit for the mutants of one target.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Maximum number of mutants of one target.
const MAX_MUTANTS: u64 = 2000;

/// Names and contents of the files in a target's corpus.
fn seeds(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    seeds.sort();
    seeds
}

/// Changes a file at up to three positions: flips a bit, truncates, inserts a slice of another file, replaces a number, or deletes bytes.
fn mutate(bytes: &[u8], other: &[u8], rng: &mut Lcg) -> Vec<u8> {
    const NUMBERS: [&[u8]; 6] = [b"0", b"-1", b"18446744073709551616", b"1e999", b"4294967295", b"999999999"];
    let mut mutant = bytes.to_vec();
    for _ in 0..=rng.random_below(3) {
        let position = rng.random_below(mutant.len() + 1);
        match rng.random_below(5) {
            0 if position < mutant.len() => mutant[position] ^= 1 << rng.random_below(8),
            1 => mutant.truncate(position),
            2 => {
                let start = rng.random_below(other.len());
                let slice = &other[start..][..rng.random_below(other.len() - start + 1)];
                mutant.splice(position..position, slice.iter().copied());
            }
            3 => {
                // Replace a number by another.
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let Some(start) =
                    mutant[position.min(mutant.len())..].iter().position(is_digit).map(|offset| position + offset)
                else {
                    continue;
                };
                let length = mutant[start..].iter().take_while(|byte| is_digit(byte)).count();
                mutant.splice(start..start + length, NUMBERS[rng.random_below(NUMBERS.len())].iter().copied());
            }
            _ => {
                let end = position + rng.random_below(mutant.len() - position + 1);
                mutant.drain(position..end);
            }
        }
    }
    mutant
}

#[test]
fn no_target_panics_on_seeds_or_mutants() {
    for (name, target) in targets::TARGETS {
        let (seeds, started) = (seeds(name), Instant::now());
        for (path, bytes) in &seeds {
            let seed_start = Instant::now();
            target(bytes);
            assert!(seed_start.elapsed() < Duration::from_secs(20), "{path}: {:?}", seed_start.elapsed());
        }
        let (mut rng, mut count) = (Lcg(name.len() as u64), 0);
        let mutants_start = Instant::now();
        while count < MAX_MUTANTS && mutants_start.elapsed() < MAX_TIME {
            let [seed, other] = [0, 1].map(|_| &seeds[rng.random_below(seeds.len())].1);
            let mutant = mutate(seed, other, &mut rng);
            let result = std::panic::catch_unwind(|| target(&mutant));
            assert!(result.is_ok(), "{name} panics on {:?}", String::from_utf8_lossy(&mutant));
            count += 1;
        }
        println!("{name}: {} seeds, {count} mutants, {:.1} s", seeds.len(), started.elapsed().as_secs_f64());
    }
}

#[test]
fn every_corpus_has_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let folders: Vec<String> = folders.collect();
    assert_eq!(folders.len(), targets::TARGETS.len(), "{folders:?}");
    for name in &folders {
        targets::find(name)(b"");
    }
}
