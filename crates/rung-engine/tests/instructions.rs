//! Every instruction set that this machine has gives the same results but for rounding.
//!
//! The set is chosen once per process, so the test starts itself once for each, and prints which of them ran.

use std::process::Command;

use rung_engine::{Native, Ops, Parameters, vector_instructions};

/// Set for the processes that print numbers to compare.
const CHILD: &str = "RUNG_TEST_PRINTS_NUMBERS";

/// Output and gradients of a layer that is large enough for every path.
fn layer() -> Vec<f32> {
    let numbers = |count: usize| -> Vec<f32> { (0..count).map(|index| (index as f32 * 0.37).sin()).collect() };
    let (rows, width, hidden) = (70, 96, 300);
    let mut weights = Parameters::new();
    let x = weights.add("x", &[rows, width], numbers(rows * width)).id();
    let weight = weights.add("weight", &[hidden, width], numbers(width * hidden)).id();
    let ops = Native::new();
    ops.bind(&weights);
    let out = ops.linear(&ops.parameter(x), &ops.parameter(weight), None);
    ops.backward(&ops.sum_all(&ops.mul(&out, &out)));
    ops.values(&out).into_iter().chain(ops.gradient()).collect()
}

#[test]
fn instruction_sets_differ_only_in_rounding() {
    if std::env::var_os(CHILD).is_some() {
        let numbers: Vec<String> = layer().iter().map(|x| x.to_bits().to_string()).collect();
        return println!("\nnumbers {} {}", vector_instructions(), numbers.join(" "));
    }
    let here = layer();
    let largest = here.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    for limit in ["amx", "avx512", "avx2", "none"] {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program).arg("--nocapture").env("RUNG_INSTRUCTIONS", limit).env(CHILD, "1").output();
        let output = String::from_utf8(child.unwrap().stdout).unwrap();
        let line = output.lines().find_map(|line| line.strip_prefix("numbers ")).expect("the numbers of a child");
        let (instructions, numbers) = line.split_once(' ').unwrap();
        println!("{limit}: ran with {instructions}");
        let numbers: Vec<f32> = numbers.split(' ').map(|bits| f32::from_bits(bits.parse().unwrap())).collect();
        assert_eq!(numbers.len(), here.len());
        let difference = here.iter().zip(&numbers).fold(0.0_f32, |most, (x, y)| most.max((x - y).abs()));
        assert!(difference <= 1e-6 * largest, "{instructions}: {difference:e} of {largest:e}");
        assert!(limit != "none" || instructions == "none", "RUNG_INSTRUCTIONS=none ran with {instructions}");
    }
}
