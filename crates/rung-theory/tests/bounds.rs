//! Tests of the search against the checker, of verdicts against each other, and of published figures.

use num_bigint::BigUint;
use proptest::prelude::*;
use rung_theory::bound::checker::{Certificate, ProofCase, TableLists, Theorem, TokenCounts, check};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::{certificate_for_tables, smallest_certificate};
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::{Unknown, Verdict};
use rung_theory::bound::{certificate, construction, shortcut};
use rung_theory::stack::{Defaults, MessageSizeConvention, Plan};

/// The input of a model (heads, `head_dim`, bits, linear layers in a block). In case 0, blocks 0 and 1 are empty.
fn model_input(
    case: ProofCase,
    hops: usize,
    (heads, head_dim, bits, linear_layers): (u128, u128, u128, u128),
) -> BoundInput {
    let state = linear_layers * heads * head_dim * (head_dim + 1) * bits;
    let blocks =
        if case == ProofCase::OneLayerFewer { vec![state; hops] } else { [vec![0, 0], vec![state; hops - 1]].concat() };
    BoundInput::new(case, hops, 2 * heads * head_dim * bits, &blocks, TokenCounts::default())
}

#[test]
fn smallest_certificate_finds_the_known_smallest_instances() {
    for (state, message, tokens) in [(1, 4, 14_u32), (2, 4, 22), (3, 5, 32), (4, 5, 42)] {
        let checked = smallest_certificate(&BoundInput::new(
            ProofCase::OneLayerFewer,
            2,
            message,
            &[state, 0],
            TokenCounts::default(),
        ))
        .unwrap();
        assert!(checked.accepted.tokens <= tokens.into(), "{:?}", checked.accepted);
        assert!(!checked.accepted.trivial);
    }
}

#[test]
fn one_hop_needs_a_state_as_large_as_the_table() {
    // s bits against m log m: 8 * 3 = 24 is not above 24, 9 * 3.17 is.
    let tokens = |case, bits: &[u128], message| {
        u64::try_from(
            &smallest_certificate(&BoundInput::new(case, 1, message, bits, TokenCounts::default()))
                .unwrap()
                .accepted
                .tokens,
        )
        .unwrap()
    };
    assert_eq!(tokens(ProofCase::OneLayerFewer, &[24], 1), 9 + 2);
    assert_eq!(tokens(ProofCase::AsManyLayers, &[0, 0], 24), 9 + 2);
}

fn lists_of(certificate: &mut Certificate) -> &mut TableLists {
    match &mut certificate.theorem {
        Theorem::Product(lists, _) => lists,
        other => panic!("{other:?}"),
    }
}

/// Copies of a certificate, each with one field changed so that it claims more than was proved.
fn mutations(certificate: &Certificate) -> Vec<(String, Certificate)> {
    let mut mutants = Vec::new();
    let mut push = |name: &str, change: &dyn Fn(&mut Certificate)| {
        let mut copy = certificate.clone();
        change(&mut copy);
        mutants.push((name.to_owned(), copy));
    };
    push("message_bits", &|mutant| mutant.message_bits *= 3_u8);
    push("m", &|mutant| mutant.m = &mutant.m / 8_u8 + 1_u8);
    push("hops", &|mutant| mutant.hops += 1);
    push("case", &|mutant| mutant.case = ProofCase::new(1 - u64::from(mutant.case.number())).unwrap());
    push("tokens_per", &|mutant| mutant.token_counts.query <<= 12_u8);
    for index in 0..certificate.state_bits.len() {
        push("state_bits", &|mutant| mutant.state_bits[index] = (&mutant.state_bits[index] + 1_u8) << 400_u32);
    }
    for index in 0..certificate.n.len() {
        push("n", &|mutant| mutant.n[index] = &mutant.n[index] / 2_u8);
    }
    if let Theorem::Product(lists, _) = &certificate.theorem {
        for index in 0..lists.sigma.len() {
            push("sigma", &|mutant| lists_of(mutant).sigma[index] *= 4_u8);
            push("kappa", &|mutant| lists_of(mutant).kappa[index] = &lists_of(mutant).kappa[index] * 2_u8 + 1_u8);
        }
        for index in 0..lists.x.len() {
            push("x", &|mutant| lists_of(mutant).x[index] <<= 12_u8);
        }
    }
    mutants
}

#[test]
fn check_rejects_a_certificate_with_one_changed_field() {
    for case in [ProofCase::OneLayerFewer, ProofCase::AsManyLayers] {
        for hops in 3..=4 {
            let checked = smallest_certificate(&model_input(case, hops, (1, 8, 8, 3))).unwrap();
            for (name, mutant) in mutations(&checked.certificate) {
                assert!(check(&mutant).is_err(), "{case:?}, {hops} hops: {name} changed and still accepted");
            }
        }
    }
}

#[test]
fn decide_gives_the_expected_verdicts() {
    let small = Defaults { heads: 1, head_dim: 8, bits: 4, ..Defaults::default() };
    let decide = |stack: &str, defaults: &Defaults, m: u32, n: &[u32]| {
        let tables = TableSizes::new(n.len() + 1, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
        StackBounds::new(&Plan::parse(stack, defaults).unwrap(), MessageSizeConvention::Paper).decide(&tables)
    };
    let solved = |stack: &str, m, n: &[u32]| match decide(stack, &Defaults::default(), m, n) {
        Verdict::Solved(construction) => construction.name,
        other => panic!("{stack}: {}", other.reason()),
    };
    assert_eq!(solved("full full", 1000, &[]), "U1");
    assert_eq!(solved("linear full", 1000, &[]), "U2");
    assert_eq!(solved("full mamba2 full", 50, &[7]), "U2'");
    assert_eq!(decide("linear full", &small, 1000, &[100]).name(), "impossible");
    assert_eq!(decide("linear*4", &small, 1000, &[]).name(), "impossible");
    // The table fits in the state.
    let Verdict::Unknown(Unknown::NotExcludable(steps)) = decide("linear full", &Defaults::default(), 8, &[4]) else {
        panic!("expected a shortcut")
    };
    assert!(steps.iter().any(|step| step.shortcut.is_some()));
    // Within the rungs, but the heads are too narrow for an address.
    assert_eq!(decide("linear full", &small, 1 << 20, &[]).name(), "unknown");
}

fn any_stack() -> impl Strategy<Value = String> {
    let mixers = ["full", "full", "linear", "conv{taps=2}", "gdn{conv=0}", "window{size=3}", "full+linear", "none"];
    let mixer = proptest::sample::select(mixers.to_vec());
    proptest::collection::vec(mixer, 1..6).prop_map(|layers| layers.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// An instance that is solvable, by weights or in the abstract model, is never certified to be impossible.
    #[test]
    fn certified_instances_have_no_shortcut_and_no_construction(
        stack in any_stack(), head in 1_u64..10, bits in 1_u64..6,
        m in 2_u32..3000, n in proptest::collection::vec(1_u32..200, 0..3),
    ) {
        let defaults = Defaults { heads: 1, head_dim: head, bits, ..Defaults::default() };
        let plan = Plan::parse(&stack, &defaults).unwrap();
        let capacity = plan.capacity();
        let hops = n.len() + 1;
        let tables = TableSizes::new(hops, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
        let Some(input) = BoundInput::for_stack(&capacity, hops, &TokenCounts::default()) else { return Ok(()) };
        let Some(checked) = certificate_for_tables(&input, &tables.m, &tables.n) else { return Ok(()) };
        prop_assert_eq!(check(&checked.certificate), Ok(checked.accepted.clone()));
        // Shortcuts assume messages with at least the bits of an answer, so trivial certificates are excluded.
        prop_assert!(checked.accepted.trivial || shortcut::find_steps(&capacity, &tables).is_none(), "{} {:?}", stack, tables);
        prop_assert!(construction::find(&plan, &capacity, &tables).is_err());
    }

    /// The same at the limit: the state is just large enough for the table, or slightly too small.
    #[test]
    fn no_certificate_if_the_state_just_holds_the_table(
        m in 2_u128..200, n in 1_u128..200, missing_bits in 0_u128..3, message in 1_u128..2000,
    ) {
        let bits = u128::from(128 - (m - 1).leading_zeros());
        let state = ((m + 1) * bits).saturating_sub(missing_bits).max(1);
        let input = BoundInput::new(ProofCase::OneLayerFewer, 2, message, &[state, 0], TokenCounts::default());
        // Trivial certificates, whose messages are smaller than an answer, do not count.
        let checked = certificate_for_tables(&input, &BigUint::from(m), &[BigUint::from(n)]);
        let certified = checked.is_some_and(|checked| !checked.accepted.trivial);
        prop_assert!(!(certified && missing_bits == 0), "the state holds the whole table");
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The checker accepts every result of the search, and larger messages never make the instance smaller.
    #[test]
    fn smallest_returns_only_accepted_certificates(
        message in 1_u128..5000, state in proptest::collection::vec(0_u128..100_000, 2..4), entry in 1_u64..4,
    ) {
        let hops = state.len();
        let checked = smallest_certificate(&BoundInput::new(ProofCase::OneLayerFewer, hops, message, &state, TokenCounts::new([entry, 1, 2])));
        let wider = smallest_certificate(&BoundInput::new(ProofCase::OneLayerFewer, hops, message * 2, &state, TokenCounts::new([entry, 1, 2])));
        if let (Some(checked), Some(wider)) = (checked, wider) {
            prop_assert_eq!(check(&checked.certificate), Ok(checked.accepted.clone()));
            prop_assert!(wider.log2_tokens() > checked.log2_tokens() - 0.05);
        }
    }
}

/// A smaller task inside constant tables gives smaller instances than additional idle layers, and the checker verifies the embedding.
#[test]
fn stacks_with_too_few_layers_are_certified_by_a_smaller_task() {
    let defaults = Defaults { heads: 16, head_dim: 128, bits: 16, ..Defaults::default() };
    let search = |stack: &str, hops| {
        let input =
            BoundInput::for_stack(&Plan::parse(stack, &defaults).unwrap().capacity(), hops, &TokenCounts::default())
                .unwrap();
        let idle = BoundInput { inputs_with_fewer_hops: vec![], ..input.clone() };
        (smallest_certificate(&input).unwrap(), smallest_certificate(&idle))
    };
    let two_hops = search("linear*3 full", 2).0.log2_tokens();
    for hops in 3..=5 {
        let (checked, idle) = search("linear*3 full", hops);
        assert!(checked.log2_tokens() < two_hops + 1.5, "{hops} hops: {}", checked.log2_tokens());
        assert!(idle.unwrap().log2_tokens() > checked.log2_tokens() + 40.0);
        let inner = checked.certificate.inner_instance.unwrap();
        assert_eq!((inner.hops, checked.certificate.hops), (2, hops));
        // The inner task must fit into the tables, and identity tables need n = 1.
        for (hops, middle) in [(0, 0), (2, checked.certificate.hops - 1), (checked.certificate.hops, 0)] {
            let inner_instance = Some(rung_theory::bound::checker::InnerInstance { hops, middle });
            assert!(check(&Certificate { inner_instance, ..checked.certificate.clone() }).is_err());
        }
        let mut wrong_identity = checked.certificate.clone();
        wrong_identity.inner_instance.as_mut().unwrap().middle = 1;
        wrong_identity.n[0] = 2_u8.into();
        assert!(check(&wrong_identity).is_err());
    }
    // Two full layers alone: two hops are out of reach already, and three with them.
    let (checked, idle) = search("full full", 3);
    assert!(checked.certificate.case == ProofCase::AsManyLayers && checked.log2_tokens() < idle.unwrap().log2_tokens());
    // No full layer: only the state counts.
    let (checked, _) = search("linear*3", 4);
    assert_eq!(checked.certificate.theorem, Theorem::State);
    // The certificates name their stacks.
    for (stack, hops) in [("linear*3 full", 4), ("full full", 3), ("linear*3", 4), ("full+linear full", 2)] {
        let checked = search(stack, hops).0;
        let conventions = certificate::conventions(&defaults, MessageSizeConvention::Paper);
        let text = certificate::write(&checked.certificate, stack, &conventions).to_string();
        let parsed = certificate::read(&text).unwrap();
        assert_eq!(parsed, checked.certificate);
        assert_eq!(certificate::matches_named_stack(&text, &parsed), Ok(true), "{stack}");
        let wider = text.replace(stack, &format!("linear*9 {stack}"));
        let wider_certificate = certificate::read(&wider).unwrap();
        assert!(certificate::matches_named_stack(&wider, &wider_certificate).is_err(), "{stack}");
    }
}

#[test]
fn a_small_model_is_certified_at_a_trainable_size() {
    let defaults = Defaults { heads: 1, head_dim: 8, bits: 4, ..Defaults::default() };
    let plan = Plan::parse("linear full", &defaults).unwrap();
    let verdict = |m: u32| {
        let tables = TableSizes::new(2, m.into(), vec![1_u8.into()]).unwrap();
        StackBounds::new(&plan, MessageSizeConvention::Paper).decide(&tables).name()
    };
    assert_eq!(verdict(106), "impossible");
    let checked =
        smallest_certificate(&BoundInput::for_stack(&plan.capacity(), 2, &TokenCounts::default()).unwrap()).unwrap();
    assert_eq!(checked.certificate.theorem, Theorem::Entropy);
    assert!(checked.accepted.tokens <= 214_u8.into(), "{:?}", checked.accepted);
    assert!(!checked.accepted.trivial);
}
