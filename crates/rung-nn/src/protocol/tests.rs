//! The messages of the protocol determine every player's outputs, and their bits are those that the theory counts.

use rung_engine::{Native, Parameters};
use rung_theory::stack::{Defaults, MessageSizeConvention, Plan};
use rung_theory::task::{self, Prompt, seeded};

use super::*;
use crate::construct::{ConstructionRequest, build, forwarding};
use crate::model::{InputConfig, ModelConfig, NormConfig};
use crate::position::Positions;
use crate::precision::SimulatedPrecision;

fn prompt_of(task: &dyn AnyTask) -> Vec<u32> {
    let mut prompt = Prompt::new();
    task.sample_prompt(&mut seeded(4), &mut prompt);
    prompt.tokens().to_vec()
}

/// Calls `check` with a network of random weights and a prompt.
fn run_random_network<S: Scalar>(stack: &str, positions: Positions, check: impl FnOnce(&Network<S>, &[u32])) {
    run_rounded_network(stack, positions, SimulatedPrecision::default(), check);
}

/// As [`run_random_network`], for a network that rounds its numbers.
fn run_rounded_network<S: Scalar>(
    stack: &str,
    positions: Positions,
    precision: SimulatedPrecision,
    check: impl FnOnce(&Network<S>, &[u32]),
) {
    let defaults = Defaults { heads: 2, head_dim: 4, bits: 8 * size_of::<S>() as u64, ..Defaults::default() };
    let (task, plan) = (task::parse("funccomp{hops=2,m=3,n=[2]}").unwrap(), Plan::parse(stack, &defaults).unwrap());
    let config = ModelConfig {
        input: InputConfig::Fields(task.fields()),
        classes: task.classes() as usize,
        norm: NormConfig::Rms,
        positions,
        init_std: 0.4,
        chunk: 2,
        precision,
        ..ModelConfig::default()
    };
    let mut weights = Parameters::new();
    let model = config.init(&plan, &mut weights, &mut seeded(5)).unwrap();
    let network = Network::new(stack.to_owned(), task, plan, config, model, weights);
    check(&network, &prompt_of(network.task().unwrap()));
}

fn record<S: Scalar>(network: &Network<S>, prompt: &[u32]) -> Transcript<S> {
    Transcript::record(network, prompt, players(network.task().unwrap(), prompt), NumberEncoding::full_precision::<S>())
        .unwrap()
}

const STACKS: [&str; 15] = [
    "full full",
    "full{kv=1} full",
    "full{conv=3} full",
    "window{size=3} full",
    "linear full",
    "retnet full",
    "gla full",
    "mamba2 full mamba2",
    "full deltanet full",
    "gdn full",
    "lightning full",
    "full rglru full",
    "rwkv7{rank=2} full",
    "conv full",
    "full+gdn full",
];

#[test]
fn replayed_players_give_the_recorded_outputs_bit_for_bit() {
    for (index, stack) in STACKS.into_iter().enumerate() {
        let positions =
            [Positions::Rotary { base: 100.0 }, Positions::Alibi, Positions::Learned { length: 16 }][index % 3];
        run_random_network::<f32>(stack, positions, |network, prompt| {
            let transcript = record(network, prompt);
            assert_eq!(transcript.players.len(), 4);
            assert_eq!(transcript.replay(network, prompt).unwrap(), 4, "{stack}");
        });
    }
}

/// A cache of fixed size is sent as any other state.
#[test]
fn bounded_caches_are_sent_as_states() {
    for stack in ["evicting{size=3} full", "full evicting{size=2,policy=heavy} full"] {
        run_random_network::<f32>(stack, Positions::None, |network, prompt| {
            assert_eq!(record(network, prompt).replay(network, prompt).unwrap(), 4, "{stack}");
        });
    }
}

#[test]
fn outputs_equal_the_ordinary_forward_pass_up_to_rounding() {
    for (index, stack) in STACKS.into_iter().enumerate() {
        let positions = [Positions::Alibi, Positions::Rotary { base: 100.0 }, Positions::None][index % 3];
        run_random_network::<f64>(stack, positions, |network, prompt| {
            let transcript = record(network, prompt);
            let ops = Native::new();
            ops.bind_frozen(&network.weights);
            let (hidden, _) = network.model.forward(&ops, prompt, 1, None).unwrap();
            let (actual, expected) = (transcript.outputs.concat(), ops.values(&hidden));
            assert_eq!(actual.len(), expected.len());
            let worst =
                actual.iter().zip(&expected).map(|(actual, expected)| (actual - expected).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-9, "{stack}: {worst}");
        });
    }
}

/// A state that the model rounds to 7 bits per element is sent in 7 bits per element without loss, so that the outputs of a model without
/// full attention are those of the ordinary forward pass, up to the order of sums.
#[test]
fn models_with_few_bits_per_number_send_messages_with_few_bits_per_number() {
    for stack in STACKS {
        run_rounded_network::<f64>(stack, Positions::None, SimulatedPrecision::bits(7, 4.0), |network, prompt| {
            let encodings = ProtocolEncodings::for_config::<f64>(&network.config);
            let transcript =
                Transcript::record(network, prompt, players(network.task().unwrap(), prompt), encodings).unwrap();
            assert_eq!(transcript.replay(network, prompt).unwrap(), transcript.players.len(), "{stack}");
            let full_precision = record(network, prompt);
            let state_number_count = |transcript: &Transcript<f64>, bits: u64| {
                let states =
                    transcript.messages.iter().filter(|message| message.content != MessageContent::SoftmaxAccumulators);
                states.map(|message| message.bits.len() / bits).sum::<u64>()
            };
            assert_eq!(state_number_count(&transcript, 7), state_number_count(&full_precision, 64), "{stack}");
            assert!(
                7 * full_precision.bit_count() >= 64 * transcript.bit_count(),
                "{stack}: {} bits",
                transcript.bit_count()
            );
        });
        let bounded = stack.split(' ').find(|layer| !layer.contains("full"));
        let Some(bounded) = bounded else { continue };
        run_rounded_network::<f64>(bounded, Positions::None, SimulatedPrecision::bits(7, 4.0), |network, prompt| {
            let encodings = ProtocolEncodings::for_config::<f64>(&network.config);
            let transcript =
                Transcript::record(network, prompt, players(network.task().unwrap(), prompt), encodings).unwrap();
            let ops = Native::new();
            ops.bind_frozen(&network.weights);
            let (hidden, _) = network.model.forward(&ops, prompt, 1, None).unwrap();
            for (actual, expected) in transcript.outputs.concat().iter().zip(ops.values(&hidden)) {
                assert!((actual - expected).abs() < 1e-9, "{bounded}: {actual}, expected {expected}");
            }
        });
    }
}

#[test]
fn constructions_with_twelve_bits_per_number_answer_right_by_messages_of_as_many() {
    for (name, mixer) in [("U1", None), ("U2", Some("gdn")), ("U2", Some("rwkv7")), ("U2'", Some("linear"))] {
        let request = ConstructionRequest {
            mixer: mixer.map(str::to_owned),
            hops: 2,
            first_table_entries: 4,
            growth_factors: vec![2],
            ..ConstructionRequest::default()
        };
        let mut network = build::<f32>(name, &request).unwrap();
        let range = network.number_range().unwrap();
        network.set_precision(SimulatedPrecision::bits(12, range)).unwrap();
        let prompt = prompt_of(network.task().unwrap());
        let all_players = players(network.task().unwrap(), &prompt);
        let transcript =
            Transcript::record(&network, &prompt, all_players, ProtocolEncodings::for_config::<f32>(&network.config))
                .unwrap();
        assert_eq!(transcript.replay(&network, &prompt).unwrap(), transcript.players.len(), "{name} {mixer:?}");
        let expected = *network.task().unwrap().oracle(&prompt).unwrap().last().unwrap() as usize;
        let best = (0..transcript.last_logits.len()).fold(0, |best, class| {
            if transcript.last_logits[class] > transcript.last_logits[best] { class } else { best }
        });
        assert_eq!(best, expected, "{name} {mixer:?}");
    }
}

#[test]
fn message_bits_are_those_that_the_theory_counts() {
    for stack in STACKS {
        run_random_network::<f32>(stack, Positions::None, |network, prompt| {
            let transcript = record(network, prompt);
            for (layer, plan_layer) in network.plan.layers.iter().enumerate() {
                for (receiver, player) in transcript.players.iter().enumerate().skip(1) {
                    let bits_of = |content: MessageContent| {
                        let received = transcript
                            .messages
                            .iter()
                            .filter(|message| message.layer == layer && message.receiver == receiver);
                        u128::from(
                            received
                                .filter(|message| message.content == content)
                                .map(|message| message.bits.len())
                                .sum::<u64>(),
                        )
                    };
                    let tokens = player.tokens.len() as u128;
                    assert_eq!(
                        bits_of(MessageContent::SoftmaxAccumulators),
                        tokens * plan_layer.message_bits(MessageSizeConvention::Online),
                        "{stack}"
                    );
                    assert!(
                        bits_of(MessageContent::State) <= plan_layer.state_bits()
                            && bits_of(MessageContent::ConvolutionState) <= plan_layer.input_conv_bits(),
                        "{stack}"
                    );
                    // After four tokens or more, a window or convolution state is full and exactly as large as the theory says.
                    if player.tokens.start > 3 {
                        assert_eq!(bits_of(MessageContent::State), plan_layer.state_bits(), "{stack}");
                    }
                }
            }
            assert!(
                transcript.messages.iter().all(|message| message.receiver > 0),
                "no message goes to the first player"
            );
        });
    }
}

#[test]
fn replay_differs_if_any_message_is_changed() {
    for stack in ["full full", "gdn full", "window{size=3} full"] {
        run_random_network::<f32>(stack, Positions::None, |network, prompt| {
            let mut transcript = record(network, prompt);
            for index in 0..transcript.messages.len() {
                // The highest bit of the fraction of the third number.
                transcript.messages[index].bits.flip(2 * 32 + 22);
                let matching_players = transcript.replay(network, prompt).unwrap();
                transcript.messages[index].bits.flip(2 * 32 + 22);
                assert!(matching_players < 4, "{stack}: message {index} does not matter");
            }
            assert_eq!(transcript.replay(network, prompt).unwrap(), 4);
        });
    }
}

#[test]
fn constructions_answer_right_as_protocols() {
    let request = ConstructionRequest {
        hops: 2,
        first_table_entries: 4,
        growth_factors: vec![2],
        ..ConstructionRequest::default()
    };
    let mut cases = vec![("U1", None)];
    cases.extend(forwarding::names().flat_map(|mixer| [("U2", Some(mixer)), ("U2'", Some(mixer))]));
    for (name, mixer) in cases {
        let request = ConstructionRequest { mixer: mixer.map(str::to_owned), ..request.clone() };
        let network = build::<f32>(name, &request).unwrap();
        let prompt = prompt_of(network.task().unwrap());
        let expected = *network.task().unwrap().oracle(&prompt).unwrap().last().unwrap() as usize;
        for bits in [32, 16] {
            let all_players = players(network.task().unwrap(), &prompt);
            let transcript =
                Transcript::record(&network, &prompt, all_players, NumberEncoding::new(bits).unwrap()).unwrap();
            assert_eq!(
                transcript.replay(&network, &prompt).unwrap(),
                transcript.players.len(),
                "{name} {mixer:?} in {bits} bits"
            );
            let best = (0..transcript.last_logits.len()).fold(0, |best, class| {
                if transcript.last_logits[class] > transcript.last_logits[best] { class } else { best }
            });
            assert_eq!(best, expected, "{name} {mixer:?} in {bits} bits");
        }
    }
}

#[test]
fn players_are_one_per_table_or_split_before_the_last_token() {
    let task = task::parse("funccomp{hops=3,m=2,n=[2,2]}").unwrap();
    let all_players = players(&*task, &prompt_of(&*task));
    let names: Vec<&str> = all_players.iter().map(|player| player.name.as_str()).collect();
    assert_eq!(names, ["z3", "z2", "z1", "z0", "w"]);
    let sizes: Vec<usize> = all_players.iter().map(|player| player.tokens.len()).collect();
    assert_eq!(sizes, [8, 4, 2, 1, 1]);
    let task = task::parse("twosum{length=5}").unwrap();
    let all_players = players(&*task, &prompt_of(&*task));
    assert_eq!(all_players.iter().map(|player| player.tokens.clone()).collect::<Vec<_>>(), [0..4, 4..5]);
}

#[test]
fn networks_that_cannot_run_as_protocols_are_rejected() {
    for name in ["U4", "U3"] {
        let network = build::<f32>(name, &ConstructionRequest::default()).unwrap();
        let prompt = prompt_of(network.task().unwrap());
        let all_players = players(network.task().unwrap(), &prompt);
        let error =
            Transcript::record(&network, &prompt, all_players, NumberEncoding::full_precision::<f32>()).err().unwrap();
        assert!(error.to_string().contains("as a protocol"), "{error}");
    }
    for stack in ["moba full", "full nsa", "mla", "full+evicting"] {
        run_random_network::<f32>(stack, Positions::None, |network, prompt| {
            let all_players = players(network.task().unwrap(), prompt);
            let error = Transcript::record(network, prompt, all_players, NumberEncoding::full_precision::<f32>())
                .err()
                .unwrap();
            assert!(
                error.to_string().contains("this attention, as a protocol, is not implemented"),
                "{stack}: {error}"
            );
        });
    }
}
