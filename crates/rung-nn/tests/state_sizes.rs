//! The size of every mixer's state equals the theory's count, for random options, after every token.
//!
//! The state after a token is all that later tokens can know of the past. So the numbers in it must be at most as many as a bound counts,
//! and exactly as many once windows and caches of fixed size are full.

mod support;

use rung_engine::{Native, Ops, Parameters};
use rung_nn::model::InputConfig;
use rung_nn::{ModelConfig, State};
use rung_theory::stack::mixer::{KINDS, MixerKind};
use rung_theory::stack::{Defaults, Layer, Mixer, MixerReach, Plan};
use rung_theory::task::seeded;

use support::TestRng;

/// More tokens than any window or cache of fixed size has, for the options below.
const TOKENS: usize = 15;

/// A mixer with random options.
fn random_mixer(kind: &MixerKind, rng: &mut TestRng) -> (Mixer, Defaults) {
    let (heads, head_dim) = (1 + rng.random_below(3), 2 + 2 * rng.random_below(3));
    let defaults = Defaults { heads, head_dim, bits: 1 + rng.random_below(16), ..Defaults::default() };
    // Half of the options stay at their defaults, except those with large defaults.
    let mut options = Vec::new();
    for option in kind.options {
        let value = rng.option(option, 5);
        let large_defaults = ["window", "block", "size", "length", "stride", "top", "latent", "levels", "expand"];
        if rng.random_below(2) == 0 || large_defaults.contains(&option.name) {
            options.push((option.name, value));
        }
    }
    (Mixer::new(kind.name, &options, &defaults).unwrap(), defaults)
}

/// How many numbers are in a state.
fn count_elements(ops: &Native<f32>, state: &State<rung_engine::Tensor<f32>>) -> usize {
    state.tensors.iter().flatten().map(|tensor| ops.values(tensor).len()).sum()
}

#[test]
fn states_have_as_many_elements_as_the_theory_counts() {
    let mut rng = TestRng(1);
    let mut test_counts = std::collections::BTreeMap::new();
    for kind in KINDS {
        for _ in 0..80 {
            let (mixer, defaults) = random_mixer(kind, &mut rng);
            let facts = *mixer.facts();
            if !facts.is_implemented {
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
            let tokens = facts.log2_context.map_or(TOKENS, |log2| TOKENS.min(1 << log2.min(4)));
            for token in 1..=tokens {
                let (_, next) = model.forward(&ops, &[rng.random_below(5) as u32], 1, state.as_ref()).unwrap();
                let numbers: usize = next.states.iter().map(|state| count_elements(&ops, state)).sum();
                let counted = facts.memory_size(token as u128);
                assert!(
                    numbers as u128 <= counted,
                    "{mixer}: {numbers} numbers after {token} tokens, {counted} counted"
                );
                if facts.reach == MixerReach::Bounded {
                    let bits = numbers as u128 * u128::from(mixer.bits());
                    assert!(bits <= plan.layers[0].state_bits(), "{mixer}: {bits} bits after {token} tokens");
                }
                if token == tokens {
                    assert_eq!(numbers as u128, counted, "{mixer} after {token} tokens");
                }
                state = Some(next);
            }
            *test_counts.entry(kind.name).or_insert(0) += 1;
        }
    }
    let untested: Vec<&str> =
        KINDS.iter().map(|kind| kind.name).filter(|name| !test_counts.contains_key(name)).collect();
    // These two are not implemented; the tests beside their facts simulate their state.
    assert!(untested.iter().all(|name| ["chunked", "compressed"].contains(name)), "{untested:?}");
    assert!(test_counts.values().all(|count| *count >= 5), "{test_counts:?}");
}
