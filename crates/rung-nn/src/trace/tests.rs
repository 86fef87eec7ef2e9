//! The listener hears what the network does.

use rung_engine::Parameters;
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, Prompt, seeded};

use super::*;
use crate::construct::{ConstructionRequest, build, carry};
use crate::model::{InputConfig, ModelConfig, NormConfig};
use crate::position::Positions;

/// A network with random weights, as a trained one: dense, normed, with positions.
fn with_random<R>(stack: &str, positions: Positions, see: impl FnOnce(&Network<f64>, &[u32]) -> R) -> R {
    let defaults = Defaults { heads: 2, head_dim: 4, ..Defaults::default() };
    let (task, plan) = (task::parse("funccomp{hops=2,m=3,n=[2]}").unwrap(), Plan::parse(stack, &defaults).unwrap());
    let config = ModelConfig {
        input: InputConfig::Fields(task.fields()),
        classes: task.classes() as usize,
        norm: NormConfig::Rms,
        positions,
        deviation: 0.5,
        chunk: 4,
        ..ModelConfig::default()
    };
    let mut weights = Parameters::new();
    let model = config.init(&plan, &mut weights, &mut seeded(5)).unwrap();
    let mut prompt = Prompt::new();
    task.prompt(&mut seeded(1), &mut prompt);
    let network = Network::new(stack.to_owned(), task, plan, config, model, weights);
    see(&network, prompt.tokens())
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
    ];
    for (index, stack) in stacks.into_iter().enumerate() {
        let positions = [Positions::Rotary { base: 100.0 }, Positions::Alibi, Positions::None][index % 3];
        with_random(&format!("{stack} {stack}"), positions, |network, tokens| {
            let trace = Trace::record(network, tokens).unwrap();
            assert_eq!(trace.layers.len(), 2);
            for reading in trace.layers.iter().flatten() {
                for token in 0..trace.tokens() {
                    assert!(reading.mismatch(token) < 1e-9, "{stack}, token {token}: {}", reading.mismatch(token));
                }
            }
            assert!(trace.layers.iter().all(|layer| !layer.is_empty()), "{stack} reads nothing");
        });
    }
}

#[test]
fn a_listener_changes_nothing() {
    for stack in ["full linear", "gdn full", "rwkv7{rank=2} full", "mamba2 window{size=2}"] {
        with_random(stack, Positions::None, |network, tokens| {
            let trace = Trace::record(network, tokens).unwrap();
            let ops = Native::new();
            ops.bind_frozen(&network.weights);
            let (hidden, _) = network.model.forward(&ops, tokens, 1, None).unwrap();
            let scores = ops.values(&network.model.logits(&ops, &hidden));
            assert_eq!(scores, trace.scores, "{stack}");
        });
    }
}

#[test]
fn attention_adds_up_to_one_and_sees_no_future() {
    with_random("full window{size=3}", Positions::Alibi, |network, tokens| {
        let trace = Trace::record(network, tokens).unwrap();
        for (reading, reach) in trace.layers.iter().flatten().zip([usize::MAX, 3]) {
            for token in 0..trace.tokens() {
                let weights = reading.weights(token, 1);
                assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                let unseen = |other: usize| other > token || token - other >= reach;
                assert!(weights.iter().enumerate().all(|(other, weight)| !unseen(other) || *weight == 0.0));
            }
        }
    });
}

/// The last token of the prompt and all after it.
fn answers(trace: &Trace, prompt: usize) -> Vec<usize> {
    (prompt - 1..trace.tokens()).collect()
}

/// The reads of a construction as (layer, from, to), without those of a token from itself. RWKV's shift brings the token before
/// as well as the state does; that is one read.
fn reads(name: &str, request: &ConstructionRequest) -> (Trace, Vec<(usize, usize, usize)>, Vec<u32>) {
    let built = build::<f32>(name, request).unwrap();
    let mut prompt = Prompt::new();
    built.task().unwrap().prompt(&mut seeded(3), &mut prompt);
    let tokens = sequence(&built, prompt.tokens()).unwrap();
    let trace = Trace::record(&built, &tokens).unwrap();
    let flow = trace.flow(&answers(&trace, prompt.len()), 0.05, 20);
    let others = flow.reads.iter().filter(|read| read.from != read.to);
    let mut reads: Vec<_> = others.map(|read| (read.layer, read.from, read.to)).collect();
    reads.dedup();
    (trace, reads, prompt.tokens().to_vec())
}

/// Where the walk of an instance passes, from the tokens: the entries of z_1, .., z_L.
fn walk(tokens: &[u32], hops: usize) -> Vec<usize> {
    let width = 3 + hops;
    let rows: Vec<&[u32]> = tokens.chunks_exact(width).collect();
    let last = rows[rows.len() - 1];
    let mut value = rows[rows.len() - 2][3];
    (1..=hops)
        .map(|hop| {
            let entry =
                |row: &&[u32]| row[0] as usize == hop - 1 && row[2] == value && (hop == 1 || row[1] == last[2 + hop]);
            let place = rows.iter().position(entry).unwrap();
            value = rows[place][3];
            place
        })
        .collect()
}

#[test]
fn constructions_read_the_entries_of_their_walk_and_nothing_else() {
    for hops in 1..=4 {
        let request = ConstructionRequest { hops, m: 4, n: vec![2; hops - 1], ..ConstructionRequest::default() };
        let (trace, found, tokens) = reads("U1", &request);
        let (start, query) = (trace.tokens() - 2, trace.tokens() - 1);
        let path = walk(&tokens, hops);
        let climb = |first: usize| path.iter().enumerate().map(move |(hop, entry)| (hop + first, *entry, query));
        assert_eq!(found, [(0, start, query)].into_iter().chain(climb(1)).collect::<Vec<_>>());
        // The scan of the gated recurrence is not traced.
        for mixer in carry::names().filter(|name| *name != "gated") {
            let request = ConstructionRequest { mixer: Some(mixer.to_owned()), ..request.clone() };
            let (_, found, _) = reads("U2", &request);
            assert_eq!(found, [(0, start, query)].into_iter().chain(climb(1)).collect::<Vec<_>>(), "U2 with {mixer}");
            let (_, found, _) = reads("U2'", &request);
            let front = [(0, path[0], start), (1, start, query)];
            let rest = path.iter().enumerate().skip(1).map(|(hop, entry)| (hop + 1, *entry, query));
            assert_eq!(found, front.into_iter().chain(rest).collect::<Vec<_>>(), "U2' with {mixer}");
        }
    }
}

#[test]
fn thoughts_are_part_of_the_text() {
    let request = ConstructionRequest { hops: 3, m: 3, n: vec![2, 2], ..ConstructionRequest::default() };
    let (trace, found, tokens) = reads("U3", &request);
    let path = walk(&tokens, 3);
    assert_eq!(trace.tokens(), tokens.len() / 6 + 3);
    // w reads z_0, and each thought the next entry.
    let query = tokens.len() / 6 - 1;
    let climb = path.iter().enumerate().map(|(hop, entry)| (0, *entry, query + 1 + hop));
    assert_eq!(found, [(0, query - 1, query)].into_iter().chain(climb).collect::<Vec<_>>());
}

#[test]
fn a_text_too_long_to_inspect_is_refused() {
    let built = build::<f32>(
        "U5",
        &ConstructionRequest { length: MOST_TOKENS + 1, modulus: 4, ..ConstructionRequest::default() },
    )
    .unwrap();
    let error = Trace::record(&built, &vec![0; MOST_TOKENS + 1]).err().unwrap();
    assert_eq!(error.to_string(), "trace: number of tokens is 16385; expected at most 16384, to be drawn");
}
