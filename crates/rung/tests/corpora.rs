//! The fuzz targets on their stored corpora, and on mutants of them: no panic, whatever is read. Coverage-guided runs are described in
//! `fuzz/README.md`.

#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::path::Path;
use std::time::{Duration, Instant};

/// Time for the mutants of one target, and the most of them.
const TIME: Duration = Duration::from_secs(2);
const MUTANTS: u64 = 2000;

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

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// A few bytes changed, a piece of another seed put in, or the end cut off.
fn mutate(bytes: &[u8], other: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    const DIGITS: [&[u8]; 6] = [b"0", b"-1", b"18446744073709551616", b"1e999", b"4294967295", b"999999999"];
    let mut mutant = bytes.to_vec();
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(mutant.len() + 1);
        match numbers.below(5) {
            0 if at < mutant.len() => mutant[at] ^= 1 << numbers.below(8),
            1 => mutant.truncate(at),
            2 => {
                let start = numbers.below(other.len());
                let piece = &other[start..][..numbers.below(other.len() - start + 1)];
                mutant.splice(at..at, piece.iter().copied());
            }
            3 => {
                // A number in the place of another.
                let digit = |byte: &u8| byte.is_ascii_digit();
                let Some(start) = mutant[at.min(mutant.len())..].iter().position(digit).map(|found| at + found) else {
                    continue;
                };
                let length = mutant[start..].iter().take_while(|byte| digit(byte)).count();
                mutant.splice(start..start + length, DIGITS[numbers.below(DIGITS.len())].iter().copied());
            }
            _ => {
                let end = at + numbers.below(mutant.len() - at + 1);
                mutant.drain(at..end);
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
            let began = Instant::now();
            target(bytes);
            assert!(began.elapsed() < Duration::from_secs(20), "{path}: {:?}", began.elapsed());
        }
        let (mut numbers, mut count) = (Numbers(name.len() as u64), 0);
        let begun = Instant::now();
        while count < MUTANTS && begun.elapsed() < TIME {
            let [one, other] = [0, 1].map(|_| &seeds[numbers.below(seeds.len())].1);
            let mutant = mutate(one, other, &mut numbers);
            let caught = std::panic::catch_unwind(|| target(&mutant));
            assert!(caught.is_ok(), "{name} panics on {:?}", String::from_utf8_lossy(&mutant));
            count += 1;
        }
        println!("{name}: {} seeds, {count} mutants, {:.1} s", seeds.len(), started.elapsed().as_secs_f64());
    }
}

#[test]
fn every_folder_of_seeds_has_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let folders: Vec<String> = folders.collect();
    assert_eq!(folders.len(), targets::TARGETS.len(), "{folders:?}");
    for name in &folders {
        targets::find(name)(b"");
    }
}
