//! Rust and the Coq definitions count the same bits for a stack: both are tested on the table in `proof/StackTable.v`.

use std::path::Path;

use rung_theory::stack::{Defaults, MessageSizeConvention, Plan};

/// A row of the table: a stack, its sizes, and the numbers that Coq checks.
struct Row {
    stack: String,
    sizes: [u64; 3],
    convention: MessageSizeConvention,
    message_bits: u128,
    state_bits: Vec<u128>,
    parallel_bits: Vec<u128>,
}

fn numbers<T: std::str::FromStr>(text: &str) -> Vec<T> {
    let digits = text.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|number| number.parse().ok()).collect()
}

/// Parses `Row "stack" (heads, head size, bits, MessageSizeConvention) .. (message, [:: states], [:: parallel])`.
fn parse(line: &str) -> Option<Row> {
    let (stack, rest) = line.trim().strip_prefix("Row \"")?.split_once("\" (")?;
    let (sizes, rest) = rest.split_once(')')?;
    let (numeric_sizes, convention) = sizes.rsplit_once(", ")?;
    let (message, lists) = rest.rsplit_once(" (")?.1.split_once(", [::")?;
    let (states, parallel) = lists.split_once("], [::")?;
    Some(Row {
        stack: stack.to_owned(),
        sizes: numbers(numeric_sizes).try_into().ok()?,
        convention: convention.to_lowercase().parse().ok()?,
        message_bits: message.parse().ok()?,
        state_bits: numbers(states),
        parallel_bits: numbers(parallel),
    })
}

#[test]
fn rust_and_coq_count_the_same_bits() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proof/StackTable.v");
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  Row ")).collect();
    assert!(lines.len() >= 28, "the table was found");
    for line in lines {
        let row = parse(line).unwrap_or_else(|| panic!("a row of the table: {line}"));
        let [heads, head_dim, bits] = row.sizes;
        let defaults = Defaults { heads, head_dim, kv_heads: None, model_width: None, bits };
        let capacity = Plan::parse(&row.stack, &defaults).unwrap().capacity_with(row.convention);
        assert_eq!(capacity.message_bits, row.message_bits, "message bits of {}", row.stack);
        assert_eq!(capacity.state_bits(), row.state_bits, "state bits of {}", row.stack);
        assert_eq!(capacity.parallel_bits, row.parallel_bits, "bits in parallel with the full layers of {}", row.stack);
    }
}
