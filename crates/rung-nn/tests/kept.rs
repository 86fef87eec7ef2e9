//! What a mixer keeps between two tokens is what the theory counts: every mixer with a network, random options, token by token.
//!
//! Everything in a mixer's state after a token is written out, number by number. That is all the next token can learn of the past,
//! so the bits that a bound counts must cover it; and once windows and caches of fixed size are full they must be exactly it.

mod support;

use rung_engine::{Native, Ops, Parameters};
use rung_nn::model::InputConfig;
use rung_nn::{ModelConfig, State};
use rung_theory::stack::mixer::{KINDS, MixerKind};
use rung_theory::stack::{Defaults, Layer, Mixer, MixerReach, Plan};
use rung_theory::task::seeded;

use support::Draws;

/// More tokens than any window or cache of fixed size of the options drawn.
const TOKENS: usize = 15;

fn draw(kind: &MixerKind, draws: &mut Draws) -> (Mixer, Defaults) {
    let (heads, head_dim) = (1 + draws.below(3), 2 + 2 * draws.below(3));
    let defaults = Defaults { heads, head_dim, bits: 1 + draws.below(16), ..Defaults::default() };
    // Half of the options stay at their defaults, where those are small.
    let mut options = Vec::new();
    for option in kind.options {
        let value = draws.option(option, 5);
        let large = ["window", "block", "size", "length", "stride", "top", "latent", "levels", "expand"];
        if draws.below(2) == 0 || large.contains(&option.name) {
            options.push((option.name, value));
        }
    }
    (Mixer::new(kind.name, &options, &defaults).unwrap(), defaults)
}

/// Every number in a state, for one sequence.
fn written_out(ops: &Native<f32>, state: &State<rung_engine::Tensor<f32>>) -> usize {
    state.tensors.iter().flatten().map(|tensor| ops.values(tensor).len()).sum()
}

#[test]
fn the_theory_counts_everything_that_crosses_between_two_tokens() {
    let mut draws = Draws(1);
    let mut tried = std::collections::BTreeMap::new();
    for kind in KINDS {
        for _ in 0..80 {
            let (mixer, defaults) = draw(kind, &mut draws);
            let facts = *mixer.facts();
            if !facts.has_network {
                continue;
            }
            let plan = Plan { width: defaults.width(), layers: vec![Layer::new(mixer.clone())] };
            let config = ModelConfig { input: InputConfig::Vocabulary(5), classes: 5, ..ModelConfig::default() };
            let mut weights = Parameters::<f32>::new();
            let Ok(model) = config.init(&plan, &mut weights, &mut seeded(1)) else { continue };
            let ops = Native::new();
            ops.bind_frozen(&weights);
            let mut state = None;
            // States that grow with the logarithm of the prompt are counted for contexts of a given length.
            let last = facts.log2_context.map_or(TOKENS, |most| TOKENS.min(1 << most.min(4)));
            for token in 1..=last {
                let (_, next) = model.forward(&ops, &[draws.below(5) as u32], 1, state.as_ref()).unwrap();
                let kept: usize = next.states.iter().map(|state| written_out(&ops, state)).sum();
                let counted = facts.kept(token as u128);
                assert!(kept as u128 <= counted, "{mixer}: {kept} numbers after {token} tokens, {counted} counted");
                if facts.reach == MixerReach::Bounded {
                    let bits = kept as u128 * u128::from(mixer.bits());
                    assert!(bits <= plan.layers[0].state_bits(), "{mixer}: {bits} bits after {token} tokens");
                }
                if token == last {
                    assert_eq!(kept as u128, counted, "{mixer} after {token} tokens");
                }
                state = Some(next);
            }
            *tried.entry(kind.name).or_insert(0) += 1;
        }
    }
    let without: Vec<&str> = KINDS.iter().map(|kind| kind.name).filter(|name| !tried.contains_key(name)).collect();
    // Those two have no network; their bookkeeping is simulated where their facts are.
    assert!(without.iter().all(|name| ["chunked", "compressed"].contains(name)), "{without:?}");
    assert!(tried.values().all(|count| *count >= 5), "{tried:?}");
}
