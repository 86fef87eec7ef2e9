//! The certified sizes that we claim, row by row: log2 of the tokens for each stack and model.

use std::time::{Duration, Instant};

use rung_theory::bound::checker::check;
use rung_theory::bound::checker::{ProofCase, TokensPer};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::smallest;

/// (heads, head, bits, linear layers in a block).
type Model = (u128, u128, u128, u128);
const MODELS: [Model; 3] = [(1, 4, 4, 1), (1, 8, 8, 3), (16, 128, 16, 3)];

/// Where a block holds a state.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    First,
    Last,
    All,
    None,
}

/// Case, hops, blocks with state, and log2 of the tokens for each model: whatever the order of a table's entries, and for
/// tables that list w as the major index. Infinity where nothing smaller is claimed.
type Row = (u64, usize, Blocks, [f64; 3], [f64; 3]);
const NO: [f64; 3] = [f64::INFINITY; 3];
const ROWS: [Row; 17] = [
    (1, 2, Blocks::First, [6.36, 9.76, 21.56], NO),
    (1, 2, Blocks::All, [9.24, 15.06, 33.49], NO),
    (1, 2, Blocks::Last, [7.66, 12.10, 26.84], NO),
    (1, 3, Blocks::All, [26.62, 37.09, 81.78], NO),
    (1, 3, Blocks::First, [23.91, 32.78, 72.87], [22.77, 31.63, 68.84]),
    (1, 4, Blocks::All, [55.69, 73.79, 155.54], [f64::INFINITY, f64::INFINITY, 154.22]),
    (1, 4, Blocks::First, [54.74, 71.88, 154.81], [47.35, 62.15, 128.63]),
    (1, 5, Blocks::All, [104.49, 134.59, 277.65], [f64::INFINITY, 125.39, 250.10]),
    (1, 5, Blocks::First, NO, [87.95, 111.89, 223.91]),
    (0, 2, Blocks::None, [11.76, 16.58, 40.81], NO),
    (0, 2, Blocks::All, [15.77, 24.09, 56.31], NO),
    (0, 3, Blocks::All, [49.14, 66.82, 127.64], NO),
    (0, 3, Blocks::None, [49.15, 66.83, 126.50], [43.14, 57.35, f64::INFINITY]),
    (0, 4, Blocks::All, [99.20, 128.73, 266.06], [f64::INFINITY, f64::INFINITY, 221.92]),
    (0, 4, Blocks::None, NO, [83.73, 107.77, 219.47]),
    (0, 5, Blocks::All, [163.84, 208.46, 423.42], NO),
    (0, 5, Blocks::None, NO, [137.64, 173.34, 338.35]),
];

fn question(case: ProofCase, hops: usize, blocks: Blocks, (heads, head, bits, linear): Model) -> BoundInput {
    let state = linear * heads * head * (head + 1) * bits;
    let first = if case == ProofCase::OneLayerFewer { 0 } else { 2 };
    let count = if case == ProofCase::OneLayerFewer { hops } else { hops + 1 };
    let holds = |e: usize| match blocks {
        Blocks::First => e == first,
        Blocks::Last => e + 1 == count,
        Blocks::All => e >= first,
        Blocks::None => false,
    };
    let states: Vec<u128> = (0..count).map(|e| if holds(e) { state } else { 0 }).collect();
    BoundInput::new(case, hops, 2 * heads * head * bits, &states, TokensPer::default())
}

#[test]
fn the_search_reaches_every_figure() {
    let mut missed = Vec::new();
    for (case, hops, blocks, any_order, w_major) in ROWS {
        for (model, (any_order, w_major)) in MODELS.into_iter().zip(any_order.into_iter().zip(w_major)) {
            let question = question(ProofCase::new(case).unwrap(), hops, blocks, model);
            let with_order = question.clone().with_w_major_tables();
            for (question, figure) in [(question, any_order), (with_order, w_major)] {
                if figure.is_infinite() {
                    continue;
                }
                let started = Instant::now();
                let found = smallest(&question).unwrap();
                let log2_tokens = found.log2_tokens();
                let took = started.elapsed();
                let row = format!(
                    "case {case}, {hops} hops, {blocks:?}, {model:?}, w-major {}: {log2_tokens:.2} against {figure} by {} in {:.1} s",
                    question.w_major,
                    found.certificate.theorem.name(),
                    took.as_secs_f64()
                );
                println!("{row}");
                assert_eq!(check(&found.certificate), Ok(found.accepted.clone()));
                assert!(took < Duration::from_secs(10), "{row}");
                if log2_tokens > figure + 0.1 {
                    missed.push(row);
                }
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
