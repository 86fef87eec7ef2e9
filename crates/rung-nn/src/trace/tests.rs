//! Traces are compared with the forward pass, and those of constructions with the lookups they are built to do.

use rung_engine::Parameters;
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, Prompt, seeded};

use super::*;
use crate::construct::{ConstructionRequest, build, forwarding};
use crate::model::{InputConfig, ModelConfig, NormConfig};
use crate::position::Positions;

/// Calls `check` with a network of random weights, with norms and positions, and a prompt.
fn run_random_network<R>(stack: &str, positions: Positions, check: impl FnOnce(&Network<f64>, &[u32]) -> R) -> R {
    let defaults = Defaults { heads: 2, head_dim: 4, ..Defaults::default() };
    let (task, plan) = (task::parse("funccomp{hops=2,m=3,n=[2]}").unwrap(), Plan::parse(stack, &defaults).unwrap());
    let config = ModelConfig {
        input: InputConfig::Fields(task.fields()),
        classes: task.classes() as usize,
        norm: NormConfig::Rms,
        positions,
        init_std: 0.5,
        chunk: 4,
        ..ModelConfig::default()
    };
    let mut weights = Parameters::new();
    let model = config.init(&plan, &mut weights, &mut seeded(5)).unwrap();
    let mut prompt = Prompt::new();
    task.sample_prompt(&mut seeded(1), &mut prompt);
    let network = Network::new(stack.to_owned(), task, plan, config, model, weights);
    check(&network, prompt.tokens())
}

#[test]
fn recorded_weights_times_values_are_what_the_layers_computed() {
    let stacks = [
        "full",
        "window{size=3}",
        "linear",
        "retnet",
        "lightning",
        "gla",
        "mamba2",
        "rglru",
        "deltanet",
        "gdn{value-heads=4}",
        "rwkv7{rank=2}",
        "conv",
        "full+gdn",
        "gated",
    ];
    for (index, stack) in stacks.into_iter().enumerate() {
        let positions = [Positions::Rotary { base: 100.0 }, Positions::Alibi, Positions::None][index % 3];
        run_random_network(&format!("{stack} {stack}"), positions, |network, tokens| {
            let trace = Trace::record(network, tokens).unwrap();
            assert_eq!(trace.layers.len(), 2);
            for op in trace.layers.iter().flatten() {
                for token in 0..trace.token_count() {
                    assert!(op.mismatch(token) < 1e-9, "{stack}, token {token}: {}", op.mismatch(token));
                }
            }
            assert!(trace.layers.iter().all(|layer| !layer.is_empty()), "{stack} reads nothing");
        });
    }
}

#[test]
fn recording_does_not_change_the_logits() {
    for stack in ["full linear", "gdn full", "rwkv7{rank=2} full", "mamba2 window{size=2}"] {
        run_random_network(stack, Positions::None, |network, tokens| {
            let trace = Trace::record(network, tokens).unwrap();
            let ops = Native::new();
            ops.bind_frozen(&network.weights);
            let (hidden, _) = network.model.forward(&ops, tokens, 1, None).unwrap();
            let logits = ops.values(&network.model.logits(&ops, &hidden));
            assert_eq!(logits, trace.logits, "{stack}");
        });
    }
}

#[test]
fn attention_weights_sum_to_one_and_are_zero_outside_the_mask() {
    run_random_network("full window{size=3}", Positions::Alibi, |network, tokens| {
        let trace = Trace::record(network, tokens).unwrap();
        for (op, reach) in trace.layers.iter().flatten().zip([usize::MAX, 3]) {
            for token in 0..trace.token_count() {
                let weights = op.weights(token, 1);
                assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                let is_masked = |other: usize| other > token || token - other >= reach;
                assert!(weights.iter().enumerate().all(|(other, weight)| !is_masked(other) || *weight == 0.0));
            }
        }
    });
}

/// The positions of the last token of the prompt and all after it.
fn answer_positions(trace: &Trace, prompt: usize) -> Vec<usize> {
    (prompt - 1..trace.token_count()).collect()
}

/// The reads of a construction as (layer, from, to), without those of a token from itself. RWKV reads the previous token both by its token
/// shift and by its state; that counts as one read.
fn reads(name: &str, request: &ConstructionRequest) -> (Trace, Vec<(usize, usize, usize)>, Vec<u32>) {
    let network = build::<f32>(name, request).unwrap();
    let mut prompt = Prompt::new();
    network.task().unwrap().sample_prompt(&mut seeded(3), &mut prompt);
    let tokens = full_sequence(&network, prompt.tokens()).unwrap();
    let trace = Trace::record(&network, &tokens).unwrap();
    let flow = trace.flow(&answer_positions(&trace, prompt.len()), 0.05, 20);
    let others = flow.reads.iter().filter(|read| read.from != read.to);
    let mut reads: Vec<_> = others.map(|read| (read.layer, read.from, read.to)).collect();
    reads.dedup();
    (trace, reads, prompt.tokens().to_vec())
}

/// The positions of the entries of z_1, .., z_L that an instance looks up, determined from its tokens.
fn lookup_positions(tokens: &[u32], hops: usize) -> Vec<usize> {
    let width = 3 + hops;
    let rows: Vec<&[u32]> = tokens.chunks_exact(width).collect();
    let last = rows[rows.len() - 1];
    let mut value = rows[rows.len() - 2][3];
    (1..=hops)
        .map(|hop| {
            let entry =
                |row: &&[u32]| row[0] as usize == hop - 1 && row[2] == value && (hop == 1 || row[1] == last[2 + hop]);
            let position = rows.iter().position(entry).unwrap();
            value = rows[position][3];
            position
        })
        .collect()
}

#[test]
fn constructions_read_the_entries_they_look_up_and_nothing_else() {
    for hops in 1..=4 {
        let request = ConstructionRequest {
            hops,
            first_table_entries: 4,
            growth_factors: vec![2; hops - 1],
            ..ConstructionRequest::default()
        };
        let (trace, actual, tokens) = reads("U1", &request);
        let (start, query) = (trace.token_count() - 2, trace.token_count() - 1);
        let positions = lookup_positions(&tokens, hops);
        let lookups = |first: usize| positions.iter().enumerate().map(move |(hop, entry)| (hop + first, *entry, query));
        assert_eq!(actual, [(0, start, query)].into_iter().chain(lookups(1)).collect::<Vec<_>>());
        for mixer in forwarding::names() {
            let request = ConstructionRequest { mixer: Some(mixer.to_owned()), ..request.clone() };
            let (_, actual, _) = reads("U2", &request);
            assert_eq!(
                actual,
                [(0, start, query)].into_iter().chain(lookups(1)).collect::<Vec<_>>(),
                "U2 with {mixer}"
            );
            let (_, actual, _) = reads("U2'", &request);
            let first_reads = [(0, positions[0], start), (1, start, query)];
            let later_reads = positions.iter().enumerate().skip(1).map(|(hop, entry)| (hop + 1, *entry, query));
            assert_eq!(actual, first_reads.into_iter().chain(later_reads).collect::<Vec<_>>(), "U2' with {mixer}");
        }
    }
}

#[test]
fn trace_of_u3_includes_its_chain_of_thought() {
    let request = ConstructionRequest {
        hops: 3,
        first_table_entries: 3,
        growth_factors: vec![2, 2],
        ..ConstructionRequest::default()
    };
    let (trace, actual, tokens) = reads("U3", &request);
    let positions = lookup_positions(&tokens, 3);
    assert_eq!(trace.token_count(), tokens.len() / 6 + 3);
    // w reads z_0, and each emitted token the next entry.
    let query = tokens.len() / 6 - 1;
    let lookups = positions.iter().enumerate().map(|(hop, entry)| (0, *entry, query + 1 + hop));
    assert_eq!(actual, [(0, query - 1, query)].into_iter().chain(lookups).collect::<Vec<_>>());
}

#[test]
fn sequences_above_max_tokens_are_rejected() {
    let network = build::<f32>(
        "U5",
        &ConstructionRequest { length: MAX_TOKENS + 1, modulus: 4, ..ConstructionRequest::default() },
    )
    .unwrap();
    let error = Trace::record(&network, &vec![0; MAX_TOKENS + 1]).err().unwrap();
    assert_eq!(error.to_string(), "trace: number of tokens is 16385; expected at most 16384");
}
