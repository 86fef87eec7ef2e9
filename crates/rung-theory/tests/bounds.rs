//! The search against the checker, the verdicts against each other, and the figures we claim.

use num_bigint::BigUint;
use proptest::prelude::*;
use rung_theory::bound::checker::{Certificate, ProofCase, TableLists, Theorem, TokensPer, check};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::{for_tables, smallest};
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::{Unknown, Verdict};
use rung_theory::bound::{certificate, construction, shortcut};
use rung_theory::stack::{Convention, Defaults, Plan};

fn question(case: ProofCase, hops: usize, (heads, head, bits, linear): (u128, u128, u128, u128)) -> BoundInput {
    let state = linear * heads * head * (head + 1) * bits;
    let blocks =
        if case == ProofCase::OneLayerFewer { vec![state; hops] } else { [vec![0, 0], vec![state; hops - 1]].concat() };
    BoundInput::new(case, hops, 2 * heads * head * bits, &blocks, TokensPer::default())
}

#[test]
fn the_smallest_points_that_are_not_trivial() {
    for (state, message, tokens) in [(1, 4, 14_u32), (2, 4, 22), (3, 5, 32), (4, 5, 42)] {
        let found = smallest(&BoundInput::new(ProofCase::OneLayerFewer, 2, message, &[state, 0], TokensPer::default()))
            .unwrap();
        assert!(found.accepted.tokens <= tokens.into(), "{:?}", found.accepted);
        assert!(!found.accepted.trivial);
    }
}

#[test]
fn one_hop_is_the_pigeonhole() {
    // s bits against m log m: 8 * 3 = 24 is not above 24, 9 * 3.17 is.
    let tokens = |case, bits: &[u128], message| {
        u64::try_from(
            &smallest(&BoundInput::new(case, 1, message, bits, TokensPer::default())).unwrap().accepted.tokens,
        )
        .unwrap()
    };
    assert_eq!(tokens(ProofCase::OneLayerFewer, &[24], 1), 9 + 2);
    assert_eq!(tokens(ProofCase::AsManyLayers, &[0, 0], 24), 9 + 2);
}

fn lists_of(point: &mut Certificate) -> &mut TableLists {
    match &mut point.theorem {
        Theorem::Product(lists, _) => lists,
        other => panic!("{other:?}"),
    }
}

/// Every change that makes one field claim more than was proved.
fn mutations(point: &Certificate) -> Vec<(String, Certificate)> {
    let mut changed = Vec::new();
    let mut push = |name: &str, change: &dyn Fn(&mut Certificate)| {
        let mut copy = point.clone();
        change(&mut copy);
        changed.push((name.to_owned(), copy));
    };
    push("message_bits", &|p| p.message_bits *= 3_u8);
    push("m", &|p| p.m = &p.m / 8_u8 + 1_u8);
    push("hops", &|p| p.hops += 1);
    push("case", &|p| p.case = ProofCase::new(1 - u64::from(p.case.number())).unwrap());
    push("tokens_per", &|p| p.tokens_per.query <<= 12_u8);
    for index in 0..point.state_bits.len() {
        push("state_bits", &|p| p.state_bits[index] = (&p.state_bits[index] + 1_u8) << 400_u32);
    }
    for index in 0..point.n.len() {
        push("n", &|p| p.n[index] = &p.n[index] / 2_u8);
    }
    if let Theorem::Product(lists, _) = &point.theorem {
        for index in 0..lists.sigma.len() {
            push("sigma", &|p| lists_of(p).sigma[index] *= 4_u8);
            push("kappa", &|p| lists_of(p).kappa[index] = &lists_of(p).kappa[index] * 2_u8 + 1_u8);
        }
        for index in 0..lists.x.len() {
            push("x", &|p| lists_of(p).x[index] <<= 12_u8);
        }
    }
    changed
}

#[test]
fn a_certificate_with_one_false_field_is_refused() {
    for case in [ProofCase::OneLayerFewer, ProofCase::AsManyLayers] {
        for hops in 3..=4 {
            let found = smallest(&question(case, hops, (1, 8, 8, 3))).unwrap();
            for (name, changed) in mutations(&found.certificate) {
                assert!(check(&changed).is_err(), "{case:?}, {hops} hops: {name} changed and still accepted");
            }
        }
    }
}

#[test]
fn verdicts_on_known_instances() {
    let small = Defaults { heads: 1, head_dim: 8, bits: 4, ..Defaults::default() };
    let word = |stack: &str, defaults: &Defaults, m: u32, n: &[u32]| {
        let tables = TableSizes::new(n.len() + 1, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
        StackBounds::new(&Plan::parse(stack, defaults).unwrap(), Convention::Paper).decide(&tables)
    };
    let solved = |stack: &str, m, n: &[u32]| match word(stack, &Defaults::default(), m, n) {
        Verdict::Solved(construction) => construction.name,
        other => panic!("{stack}: {}", other.reason()),
    };
    assert_eq!(solved("full full", 1000, &[]), "U1");
    assert_eq!(solved("linear full", 1000, &[]), "U2");
    assert_eq!(solved("full mamba2 full", 50, &[7]), "U2'");
    assert_eq!(word("linear full", &small, 1000, &[100]).word(), "impossible");
    assert_eq!(word("linear*4", &small, 1000, &[]).word(), "impossible");
    // The table fits in the state.
    let Verdict::Unknown(Unknown::NotExcludable(steps)) = word("linear full", &Defaults::default(), 8, &[4]) else {
        panic!("expected a shortcut")
    };
    assert!(steps.iter().any(|step| step.shortcut.is_some()));
    // Within the rungs, but the heads are too narrow for an address.
    assert_eq!(word("linear full", &small, 1 << 20, &[]).word(), "unknown");
}

fn any_stack() -> impl Strategy<Value = String> {
    let mixers = ["full", "full", "linear", "conv{taps=2}", "gdn{conv=0}", "window{size=3}", "full+linear", "none"];
    let mixer = proptest::sample::select(mixers.to_vec());
    proptest::collection::vec(mixer, 1..6).prop_map(|layers| layers.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What can be done, with weights or in the abstract model, is never certified to be impossible.
    #[test]
    fn shortcuts_and_constructions_never_meet_a_certificate(
        stack in any_stack(), head in 1_u64..10, bits in 1_u64..6,
        m in 2_u32..3000, n in proptest::collection::vec(1_u32..200, 0..3),
    ) {
        let defaults = Defaults { heads: 1, head_dim: head, bits, ..Defaults::default() };
        let plan = Plan::parse(&stack, &defaults).unwrap();
        let capacity = plan.capacity();
        let hops = n.len() + 1;
        let tables = TableSizes::new(hops, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
        let Some(question) = BoundInput::for_stack(&capacity, hops, &TokensPer::default()) else { return Ok(()) };
        let Some(found) = for_tables(&question, &tables.m, &tables.n) else { return Ok(()) };
        prop_assert_eq!(check(&found.certificate), Ok(found.accepted.clone()));
        // A shortcut's look-ups take messages that can carry an answer.
        prop_assert!(found.accepted.trivial || shortcut::way(&capacity, &tables).is_none(), "{} {:?}", stack, tables);
        prop_assert!(construction::find(&plan, &capacity, &tables).is_err());
    }

    /// The same near the border: states and tables chosen so that a shortcut just works or just fails.
    #[test]
    fn table_in_state_and_candidates_meet_no_certificate_at_the_border(
        m in 2_u128..200, n in 1_u128..200, less in 0_u128..3, message in 1_u128..2000,
    ) {
        let bits = u128::from(128 - (m - 1).leading_zeros());
        let state = ((m + 1) * bits).saturating_sub(less).max(1);
        let question = BoundInput::new(ProofCase::OneLayerFewer, 2, message, &[state, 0], TokensPer::default());
        // A message that cannot carry an answer is no use for any protocol.
        let found = for_tables(&question, &BigUint::from(m), &[BigUint::from(n)]);
        let certified = found.is_some_and(|found| !found.accepted.trivial);
        prop_assert!(!(certified && less == 0), "the state holds the whole table");
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the search returns, the checker accepts, and a wider message never makes the instance smaller.
    #[test]
    fn the_search_never_returns_what_the_checker_refuses(
        message in 1_u128..5000, state in proptest::collection::vec(0_u128..100_000, 2..4), entry in 1_u64..4,
    ) {
        let hops = state.len();
        let found = smallest(&BoundInput::new(ProofCase::OneLayerFewer, hops, message, &state, TokensPer::new([entry, 1, 2])));
        let wider = smallest(&BoundInput::new(ProofCase::OneLayerFewer, hops, message * 2, &state, TokensPer::new([entry, 1, 2])));
        if let (Some(found), Some(wider)) = (found, wider) {
            prop_assert_eq!(check(&found.certificate), Ok(found.accepted.clone()));
            prop_assert!(wider.log2_tokens() > found.log2_tokens() - 0.05);
        }
    }
}

/// Fewer hops inside constant tables are never worse than idle layers, and the checker verifies the embedding.
#[test]
fn a_stack_with_too_few_layers_is_answered_by_a_smaller_task() {
    let defaults = Defaults { heads: 16, head_dim: 128, bits: 16, ..Defaults::default() };
    let ask = |stack: &str, hops| {
        let question =
            BoundInput::for_stack(&Plan::parse(stack, &defaults).unwrap().capacity(), hops, &TokensPer::default())
                .unwrap();
        let idle = BoundInput { with_fewer_hops: vec![], ..question.clone() };
        (smallest(&question).unwrap(), smallest(&idle))
    };
    let two = ask("linear*3 full", 2).0.log2_tokens();
    for hops in 3..=5 {
        let (found, idle) = ask("linear*3 full", hops);
        assert!(found.log2_tokens() < two + 1.5, "{hops} hops: {}", found.log2_tokens());
        assert!(idle.unwrap().log2_tokens() > found.log2_tokens() + 40.0);
        let inner = found.certificate.embedding.unwrap();
        assert_eq!((inner.hops, found.certificate.hops), (2, hops));
        // The embedding must leave room, and identity tables need n = 1.
        for (hops, middle) in [(0, 0), (2, found.certificate.hops - 1), (found.certificate.hops, 0)] {
            let embedding = Some(rung_theory::bound::checker::InnerInstance { hops, middle });
            assert!(check(&Certificate { embedding, ..found.certificate.clone() }).is_err());
        }
        let mut wide = found.certificate.clone();
        wide.embedding.as_mut().unwrap().middle = 1;
        wide.n[0] = 2_u8.into();
        assert!(check(&wide).is_err());
    }
    // Two full layers alone: two hops are out of reach already, and three with them.
    let (found, idle) = ask("full full", 3);
    assert!(found.certificate.case == ProofCase::AsManyLayers && found.log2_tokens() < idle.unwrap().log2_tokens());
    // No full layer: only the state counts.
    let (found, _) = ask("linear*3", 4);
    assert_eq!(found.certificate.theorem, Theorem::State);
    // The certificates name their stacks.
    for (stack, hops) in [("linear*3 full", 4), ("full full", 3), ("linear*3", 4), ("full+linear full", 2)] {
        let found = ask(stack, hops).0;
        let conventions = certificate::conventions(&defaults, Convention::Paper);
        let text = certificate::write(&found.certificate, stack, &conventions).to_string();
        let point = certificate::read(&text).unwrap();
        assert_eq!(point, found.certificate);
        assert_eq!(certificate::names_its_stack(&text, &point), Ok(true), "{stack}");
        let wider = text.replace(stack, &format!("linear*9 {stack}"));
        let wider_point = certificate::read(&wider).unwrap();
        assert!(certificate::names_its_stack(&wider, &wider_point).is_err(), "{stack}");
    }
}

#[test]
fn small_models_are_certified_at_sizes_that_can_be_trained() {
    let defaults = Defaults { heads: 1, head_dim: 8, bits: 4, ..Defaults::default() };
    let plan = Plan::parse("linear full", &defaults).unwrap();
    let word = |m: u32| {
        let tables = TableSizes::new(2, m.into(), vec![1_u8.into()]).unwrap();
        StackBounds::new(&plan, Convention::Paper).decide(&tables).word()
    };
    assert_eq!(word(106), "impossible");
    let found = smallest(&BoundInput::for_stack(&plan.capacity(), 2, &TokensPer::default()).unwrap()).unwrap();
    assert_eq!(found.certificate.theorem, Theorem::Entropy);
    assert!(found.accepted.tokens <= 214_u8.into(), "{:?}", found.accepted);
    assert!(!found.accepted.trivial);
}
