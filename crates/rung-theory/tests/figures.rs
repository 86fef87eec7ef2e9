//! Recorded certified sizes, row by row: log2 of the tokens for each stack and model. The search must find a certificate at most
//! 2^0.1 times as long. They are recorded only here, as a limit against regressions.

use std::time::{Duration, Instant};

use rung_theory::bound::checker::ProofCase::{self, AsManyLayers, OneLayerFewer};
use rung_theory::bound::checker::{TokenCounts, check};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::smallest_certificate;

/// (heads, `head_dim`, bits, linear layers in a block).
type Model = (u128, u128, u128, u128);
const MODELS: [Model; 3] = [(1, 4, 4, 1), (1, 8, 8, 3), (16, 128, 16, 3)];

/// Which blocks have a state.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    First,
    Last,
    All,
    None,
}

/// Case, hops, blocks with state, and log2 of the tokens for each model: for any order of a table's entries, and for
/// tables that list w as the major index. Infinity: no claim for this model and entry order.
type Row = (ProofCase, usize, Blocks, [f64; 3], [f64; 3]);
const NO_CLAIM: [f64; 3] = [f64::INFINITY; 3];
const ROWS: [Row; 17] = [
    (OneLayerFewer, 2, Blocks::First, [6.36, 9.76, 21.56], NO_CLAIM),
    (OneLayerFewer, 2, Blocks::All, [9.24, 15.06, 33.49], NO_CLAIM),
    (OneLayerFewer, 2, Blocks::Last, [7.66, 12.10, 26.84], NO_CLAIM),
    (OneLayerFewer, 3, Blocks::All, [26.62, 37.09, 81.78], NO_CLAIM),
    (OneLayerFewer, 3, Blocks::First, [23.91, 32.78, 72.87], [22.77, 31.63, 68.84]),
    (OneLayerFewer, 4, Blocks::All, [55.69, 73.79, 155.54], [f64::INFINITY, f64::INFINITY, 154.22]),
    (OneLayerFewer, 4, Blocks::First, [54.74, 71.88, 154.81], [47.35, 62.15, 128.63]),
    (OneLayerFewer, 5, Blocks::All, [104.49, 134.59, 277.65], [f64::INFINITY, 125.39, 250.10]),
    (OneLayerFewer, 5, Blocks::First, NO_CLAIM, [87.95, 111.89, 223.91]),
    (AsManyLayers, 2, Blocks::None, [11.76, 16.58, 40.81], NO_CLAIM),
    (AsManyLayers, 2, Blocks::All, [15.77, 24.09, 56.31], NO_CLAIM),
    (AsManyLayers, 3, Blocks::All, [49.14, 66.82, 127.64], NO_CLAIM),
    (AsManyLayers, 3, Blocks::None, [49.15, 66.83, 126.50], [43.14, 57.35, f64::INFINITY]),
    (AsManyLayers, 4, Blocks::All, [99.20, 128.73, 266.06], [f64::INFINITY, f64::INFINITY, 221.92]),
    (AsManyLayers, 4, Blocks::None, NO_CLAIM, [83.73, 107.77, 219.47]),
    (AsManyLayers, 5, Blocks::All, [163.84, 208.46, 423.42], NO_CLAIM),
    (AsManyLayers, 5, Blocks::None, NO_CLAIM, [137.64, 173.34, 338.35]),
];

fn model_input(
    case: ProofCase,
    hops: usize,
    blocks: Blocks,
    (heads, head_dim, bits, linear_layers): Model,
) -> BoundInput {
    let state_bits = linear_layers * heads * head_dim * (head_dim + 1) * bits;
    // Case 0 requires that blocks 0 and 1 are empty. F full layers separate F + 1 blocks.
    let (first_block_with_state, block_count) = match case {
        OneLayerFewer => (0, hops),
        AsManyLayers => (2, hops + 1),
    };
    let has_state = |block: usize| match blocks {
        Blocks::First => block == first_block_with_state,
        Blocks::Last => block + 1 == block_count,
        Blocks::All => block >= first_block_with_state,
        Blocks::None => false,
    };
    let states: Vec<u128> = (0..block_count).map(|block| if has_state(block) { state_bits } else { 0 }).collect();
    BoundInput::new(case, hops, 2 * heads * head_dim * bits, &states, TokenCounts::default())
}

#[test]
fn smallest_certificate_reaches_every_recorded_size() {
    let mut missed = Vec::new();
    for (case, hops, blocks, any_order, w_major) in ROWS {
        for (model, (any_order, w_major)) in MODELS.into_iter().zip(any_order.into_iter().zip(w_major)) {
            let input = model_input(case, hops, blocks, model);
            let w_major_input = input.clone().with_w_major_tables();
            for (input, recorded) in [(input, any_order), (w_major_input, w_major)] {
                if recorded.is_infinite() {
                    continue;
                }
                let started = Instant::now();
                let smallest = smallest_certificate(&input).unwrap();
                let log2_tokens = smallest.log2_tokens();
                let elapsed = started.elapsed();
                let row = format!(
                    "case {}, {hops} hops, {blocks:?}, {model:?}, w-major {}: {log2_tokens:.2} against {recorded} by {} in {:.1} s",
                    case.number(),
                    input.w_major,
                    smallest.certificate.theorem.name(),
                    elapsed.as_secs_f64()
                );
                println!("{row}");
                assert_eq!(check(&smallest.certificate), Ok(smallest.accepted.clone()));
                assert!(elapsed < Duration::from_secs(10), "{row}");
                if log2_tokens > recorded + 0.1 {
                    missed.push(row);
                }
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
