//! Messages are all there is.

use rung_engine::{Native, Parameters};
use rung_theory::stack::{Convention, Defaults, Plan};
use rung_theory::task::{self, Prompt, seeded};

use super::*;
use crate::construct::{ConstructionRequest, build, carry};
use crate::model::{InputConfig, ModelConfig, NormConfig};
use crate::position::Positions;
use crate::precision::Precision;

fn prompt_of(task: &dyn AnyTask) -> Vec<u32> {
    let mut prompt = Prompt::new();
    task.prompt(&mut seeded(4), &mut prompt);
    prompt.tokens().to_vec()
}

/// A network with random weights: as a trained one, all of its numbers matter.
fn with_random<S: Scalar>(stack: &str, positions: Positions, see: impl FnOnce(&Network<S>, &[u32])) {
    with_precise(stack, positions, Precision::default(), see);
}

/// The same, in few bits.
fn with_precise<S: Scalar>(
    stack: &str,
    positions: Positions,
    precision: Precision,
    see: impl FnOnce(&Network<S>, &[u32]),
) {
    let defaults = Defaults { heads: 2, head_dim: 4, bits: 8 * size_of::<S>() as u64, ..Defaults::default() };
    let (task, plan) = (task::parse("funccomp{hops=2,m=3,n=[2]}").unwrap(), Plan::parse(stack, &defaults).unwrap());
    let config = ModelConfig {
        input: InputConfig::Fields(task.fields()),
        classes: task.classes() as usize,
        norm: NormConfig::Rms,
        positions,
        deviation: 0.4,
        chunk: 2,
        precision,
        ..ModelConfig::default()
    };
    let mut weights = Parameters::new();
    let model = config.init(&plan, &mut weights, &mut seeded(5)).unwrap();
    let network = Network::new(stack.to_owned(), task, plan, config, model, weights);
    see(&network, &prompt_of(network.task().unwrap()));
}

fn hold<S: Scalar>(network: &Network<S>, prompt: &[u32]) -> Transcript<S> {
    Transcript::record(network, prompt, players(network.task().unwrap(), prompt), NumberEncoding::whole::<S>()).unwrap()
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
fn every_player_finds_the_same_bits_from_its_messages_alone() {
    for (index, stack) in STACKS.into_iter().enumerate() {
        let positions =
            [Positions::Rotary { base: 100.0 }, Positions::Alibi, Positions::Learned { length: 16 }][index % 3];
        with_random::<f32>(stack, positions, |network, prompt| {
            let held = hold(network, prompt);
            assert_eq!(held.players.len(), 4);
            assert_eq!(held.replay(network, prompt).unwrap(), 4, "{stack}");
        });
    }
}

/// A cache of fixed size crosses as any state does.
#[test]
fn a_bounded_cache_is_a_message() {
    for stack in ["evicting{size=3} full", "full evicting{size=2,policy=heavy} full"] {
        with_random::<f32>(stack, Positions::None, |network, prompt| {
            assert_eq!(hold(network, prompt).replay(network, prompt).unwrap(), 4, "{stack}");
        });
    }
}

#[test]
fn the_conversation_is_the_forward_pass_up_to_rounding() {
    for (index, stack) in STACKS.into_iter().enumerate() {
        let positions = [Positions::Alibi, Positions::Rotary { base: 100.0 }, Positions::None][index % 3];
        with_random::<f64>(stack, positions, |network, prompt| {
            let held = hold(network, prompt);
            let ops = Native::new();
            ops.bind_frozen(&network.weights);
            let (hidden, _) = network.model.forward(&ops, prompt, 1, None).unwrap();
            let (found, expected) = (held.outputs.concat(), ops.values(&hidden));
            assert_eq!(found.len(), expected.len());
            let worst =
                found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-9, "{stack}: {worst}");
        });
    }
}

/// A state on levels crosses as it is, in as many bits as the model says, so that a model without full layers says in the
/// conversation what it says alone, up to the order of sums.
#[test]
fn a_model_of_few_bits_speaks_in_as_few() {
    for stack in STACKS {
        with_precise::<f64>(stack, Positions::None, Precision::bits(7, 4.0), |network, prompt| {
            let widths = ProtocolEncodings::of::<f64>(&network.config);
            let held = Transcript::record(network, prompt, players(network.task().unwrap(), prompt), widths).unwrap();
            assert_eq!(held.replay(network, prompt).unwrap(), held.players.len(), "{stack}");
            let whole = hold(network, prompt);
            let numbers = |held: &Transcript<f64>, bits: u64| {
                let states = held.messages.iter().filter(|message| message.content != Content::Registers);
                states.map(|message| message.wire.bits() / bits).sum::<u64>()
            };
            assert_eq!(numbers(&held, 7), numbers(&whole, 64), "{stack}");
            assert!(7 * whole.bits() >= 64 * held.bits(), "{stack}: {} bits", held.bits());
        });
        let bounded = stack.split(' ').find(|layer| !layer.contains("full"));
        let Some(bounded) = bounded else { continue };
        with_precise::<f64>(bounded, Positions::None, Precision::bits(7, 4.0), |network, prompt| {
            let widths = ProtocolEncodings::of::<f64>(&network.config);
            let held = Transcript::record(network, prompt, players(network.task().unwrap(), prompt), widths).unwrap();
            let ops = Native::new();
            ops.bind_frozen(&network.weights);
            let (hidden, _) = network.model.forward(&ops, prompt, 1, None).unwrap();
            for (found, expected) in held.outputs.concat().iter().zip(ops.values(&hidden)) {
                assert!((found - expected).abs() < 1e-9, "{bounded}: {found}, expected {expected}");
            }
        });
    }
}

#[test]
fn a_construction_of_few_bits_answers_right_in_as_few() {
    for (name, mixer) in [("U1", None), ("U2", Some("gdn")), ("U2", Some("rwkv7")), ("U2'", Some("linear"))] {
        let request = ConstructionRequest {
            mixer: mixer.map(str::to_owned),
            hops: 2,
            m: 4,
            n: vec![2],
            ..ConstructionRequest::default()
        };
        let mut built = build::<f32>(name, &request).unwrap();
        let range = built.range().unwrap();
        built.set_precision(Precision::bits(12, range)).unwrap();
        let (network, prompt) = (&built, prompt_of(built.task().unwrap()));
        let people = players(network.task().unwrap(), &prompt);
        let held = Transcript::record(network, &prompt, people, ProtocolEncodings::of::<f32>(&built.config)).unwrap();
        assert_eq!(held.replay(network, &prompt).unwrap(), held.players.len(), "{name} {mixer:?}");
        let right = *built.task().unwrap().oracle(&prompt).unwrap().last().unwrap() as usize;
        let best = (0..held.scores.len())
            .fold(0, |best, class| if held.scores[class] > held.scores[best] { class } else { best });
        assert_eq!(best, right, "{name} {mixer:?}");
    }
}

#[test]
fn bits_are_those_that_the_theory_counts() {
    for stack in STACKS {
        with_random::<f32>(stack, Positions::None, |network, prompt| {
            let held = hold(network, prompt);
            for (layer, plan) in network.plan.layers.iter().enumerate() {
                for (into, player) in held.players.iter().enumerate().skip(1) {
                    let of = |content: Content| {
                        let here =
                            held.messages.iter().filter(|message| message.layer == layer && message.into == into);
                        u128::from(
                            here.filter(|message| message.content == content)
                                .map(|message| message.wire.bits())
                                .sum::<u64>(),
                        )
                    };
                    let tokens = player.tokens.len() as u128;
                    assert_eq!(of(Content::Registers), tokens * plan.message_bits(Convention::Online), "{stack}");
                    assert!(
                        of(Content::State) <= plan.state_bits() && of(Content::Front) <= plan.front_bits(),
                        "{stack}"
                    );
                    // A state that does not start short is exactly as large as the theory says.
                    if player.tokens.start > 3 {
                        assert_eq!(of(Content::State), plan.state_bits(), "{stack}");
                    }
                }
            }
            assert!(held.messages.iter().all(|message| message.into > 0), "no message goes to the first player");
        });
    }
}

#[test]
fn a_message_changed_on_the_way_is_noticed() {
    for stack in ["full full", "gdn full", "window{size=3} full"] {
        with_random::<f32>(stack, Positions::None, |network, prompt| {
            let mut held = hold(network, prompt);
            for index in 0..held.messages.len() {
                // The highest bit of the fraction of the third number.
                held.messages[index].wire.flip(2 * 32 + 22);
                let same = held.replay(network, prompt).unwrap();
                held.messages[index].wire.flip(2 * 32 + 22);
                assert!(same < 4, "{stack}: message {index} does not matter");
            }
            assert_eq!(held.replay(network, prompt).unwrap(), 4);
        });
    }
}

#[test]
fn constructions_answer_right_in_conversation() {
    let request = ConstructionRequest { hops: 2, m: 4, n: vec![2], ..ConstructionRequest::default() };
    let mut cases = vec![("U1", None)];
    cases.extend(carry::names().flat_map(|mixer| [("U2", Some(mixer)), ("U2'", Some(mixer))]));
    for (name, mixer) in cases {
        let request = ConstructionRequest { mixer: mixer.map(str::to_owned), ..request.clone() };
        let built = build::<f32>(name, &request).unwrap();
        let (network, prompt) = (&built, prompt_of(built.task().unwrap()));
        let right = *built.task().unwrap().oracle(&prompt).unwrap().last().unwrap() as usize;
        for bits in [32, 16] {
            let people = players(network.task().unwrap(), &prompt);
            let held = Transcript::record(network, &prompt, people, NumberEncoding::new(bits).unwrap()).unwrap();
            assert_eq!(held.replay(network, &prompt).unwrap(), held.players.len(), "{name} {mixer:?} in {bits} bits");
            let best = (0..held.scores.len())
                .fold(0, |best, class| if held.scores[class] > held.scores[best] { class } else { best });
            assert_eq!(best, right, "{name} {mixer:?} in {bits} bits");
        }
    }
}

#[test]
fn players_hold_tables_and_other_tasks_are_cut_before_the_last_token() {
    let task = task::parse("funccomp{hops=3,m=2,n=[2,2]}").unwrap();
    let people = players(&*task, &prompt_of(&*task));
    let names: Vec<&str> = people.iter().map(|player| player.name.as_str()).collect();
    assert_eq!(names, ["z3", "z2", "z1", "z0", "w"]);
    let sizes: Vec<usize> = people.iter().map(|player| player.tokens.len()).collect();
    assert_eq!(sizes, [8, 4, 2, 1, 1]);
    let task = task::parse("twosum{length=5}").unwrap();
    let people = players(&*task, &prompt_of(&*task));
    assert_eq!(people.iter().map(|player| player.tokens.clone()).collect::<Vec<_>>(), [0..4, 4..5]);
}

#[test]
fn what_is_no_conversation_is_refused() {
    for name in ["U4", "U3"] {
        let built = build::<f32>(name, &ConstructionRequest::default()).unwrap();
        let prompt = prompt_of(built.task().unwrap());
        let people = players(built.task().unwrap(), &prompt);
        let error = Transcript::record(&built, &prompt, people, NumberEncoding::whole::<f32>()).err().unwrap();
        assert!(error.to_string().contains("as a protocol"), "{error}");
    }
    for stack in ["moba full", "full nsa", "mla", "full+evicting"] {
        with_random::<f32>(stack, Positions::None, |network, prompt| {
            let people = players(network.task().unwrap(), prompt);
            let error = Transcript::record(network, prompt, people, NumberEncoding::whole::<f32>()).err().unwrap();
            assert!(error.to_string().contains("this attention, as a protocol, has no network"), "{stack}: {error}");
        });
    }
}
