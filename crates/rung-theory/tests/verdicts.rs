//! Verdicts do not contradict each other: thousands of random questions, each compared with an easier one, and the hop map compared
//! with the verdicts on random tables.

use num_bigint::BigUint;
use rung_theory::bound::checker;
use rung_theory::bound::checker::TokenCounts;
use rung_theory::bound::construction::solves_all;
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::{Unknown, Verdict};
use rung_theory::stack::{Defaults, MessageSizeConvention, Plan};

/// A linear congruential generator, the same in every run.
struct Generator(u64);

impl Generator {
    fn random_below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// A random size below 2^`max_bits`, small ones more often.
    fn random_size(&mut self, max_bits: u64) -> u64 {
        let bits = 1 + self.random_below(max_bits);
        1 + self.random_below(1 << bits)
    }
}

const LAYERS: &[&str] = &[
    "full",
    "full",
    "full{heads=6,kv=6}",
    "full{conv=2}",
    "full+linear",
    "full+mamba2",
    "mla",
    "moba{block=4,top=2}",
    "dsa{top=4}",
    "compressed{window=0,ratio=4}",
    "compressed{window=3,ratio=2,top=2,index-heads=1,index-head=2}",
    "linear",
    "gdn",
    "mamba2{state=2}",
    "window{size=2}",
    "window{size=1}",
    "conv",
    "rwkv7",
    "retnet",
    "chunked{size=3}",
    "evicting{policy=prefix,size=3}",
    "evicting{policy=sinks,size=2}",
    "evicting{policy=stride,size=4}",
    "loglinear-gdn{levels=6}",
    "none",
];

#[derive(Clone, Debug)]
struct RandomQuestion {
    layers: Vec<&'static str>,
    defaults: Defaults,
    m: u64,
    n: Vec<u64>,
    convention: MessageSizeConvention,
}

impl RandomQuestion {
    fn random(generator: &mut Generator) -> Self {
        let layers = (0..=generator.random_below(4))
            .map(|_| LAYERS[generator.random_below(LAYERS.len() as u64) as usize])
            .collect();
        let (heads, head_dim) = (1 + generator.random_below(3), 1 + generator.random_below(24));
        let defaults = Defaults { heads, head_dim, bits: 1 + generator.random_below(8), ..Defaults::default() };
        let hops = 1 + generator.random_below(3);
        let n = (1..hops).map(|_| generator.random_size(9)).collect();
        let convention = [MessageSizeConvention::Paper, MessageSizeConvention::Register, MessageSizeConvention::Online]
            [generator.random_below(3) as usize];
        Self { layers, defaults, m: generator.random_size(13), n, convention }
    }

    fn plan(&self) -> Plan {
        Plan::parse(&self.layers.join(" "), &self.defaults).unwrap()
    }

    fn tables(&self) -> TableSizes {
        let n: Vec<BigUint> = self.n.iter().map(|&n| n.into()).collect();
        TableSizes::new(n.len() + 1, self.m.into(), n).unwrap()
    }

    fn verdict(&self) -> Verdict {
        StackBounds::new(&self.plan(), self.convention).decide(&self.tables())
    }

    /// An easier question: a smaller table, one hop less, more precision, or one more layer.
    fn easier(&self, generator: &mut Generator) -> Self {
        let mut easier = self.clone();
        match generator.random_below(5) {
            0 => easier.m = 1 + generator.random_below(self.m),
            1 if !self.n.is_empty() => {
                let index = generator.random_below(self.n.len() as u64) as usize;
                easier.n[index] = 1 + generator.random_below(self.n[index]);
            }
            2 if !self.n.is_empty() => {
                easier.n.pop();
            }
            3 => easier.defaults.bits += 1 + generator.random_below(8),
            _ => {
                let index = generator.random_below(self.layers.len() as u64 + 1) as usize;
                easier.layers.insert(index, LAYERS[generator.random_below(LAYERS.len() as u64) as usize]);
            }
        }
        easier
    }
}

#[test]
fn an_easier_question_than_a_solved_one_is_never_impossible() {
    let mut generator = Generator(11);
    let (mut solved, mut impossible, mut unknown) = (0, 0, 0);
    for _ in 0..3000 {
        let question = RandomQuestion::random(&mut generator);
        let easier = question.easier(&mut generator);
        match question.verdict() {
            Verdict::Solved(construction) => {
                solved += 1;
                let other = easier.verdict();
                // An additional layer without a network makes the verdict unknown, but never impossible.
                assert!(
                    !matches!(other, Verdict::Impossible(_)),
                    "{} solves {question:?}, {easier:?} is impossible",
                    construction.name
                );
            }
            Verdict::Impossible(certified) => {
                impossible += 1;
                assert!(checker::check(&certified.certificate).is_ok(), "{question:?}");
            }
            Verdict::Unknown(Unknown::NotExcludable(steps)) => {
                unknown += 1;
                assert!(!steps.is_empty(), "{question:?}");
            }
            Verdict::Unknown(Unknown::Open { .. }) => unknown += 1,
        }
    }
    assert!(solved > 150 && impossible > 300 && unknown > 300, "{solved}, {impossible}, {unknown}");
}

/// Random table sizes; none if a prompt has more than 2^`log2_tokens` tokens.
fn random_tables(generator: &mut Generator, hops: usize, log2_tokens: u64) -> Option<TableSizes> {
    let budget = BigUint::from(1_u8) << log2_tokens;
    let random_size = |generator: &mut Generator, max_exponent: u64| {
        let exponent = generator.random_below(max_exponent + 1);
        (BigUint::from(1_u8) << exponent) + generator.random_below(1 + (1 << exponent.min(20)))
    };
    let m = random_size(generator, log2_tokens);
    let n = (1..hops)
        .map(|_| if generator.random_below(2) == 0 { 1_u8.into() } else { random_size(generator, log2_tokens) })
        .collect();
    TableSizes::new(hops, m, n).ok().filter(|tables| tables.tokens() <= budget)
}

#[test]
fn all_tables_below_the_solved_length_of_the_map_are_solved() {
    let small = Defaults { heads: 4, head_dim: 16, bits: 8, ..Defaults::default() };
    let mut generator = Generator(5);
    let mut tested = 0;
    for (stack, defaults) in [
        ("gdn full gdn full", Defaults::default()),
        ("(gdn*3 full)*2", Defaults { heads: 16, head_dim: 128, ..Defaults::default() }),
        ("linear full full", small),
        ("linear linear full{heads=20,kv=20}", small),
        ("full{heads=40,kv=40} full full", small),
        ("fastmax{order=1} full", small),
    ] {
        let plan = Plan::parse(stack, &defaults).unwrap();
        let capacity = plan.capacity();
        for hops in 1..=3 {
            let solved_length = (1..200).take_while(|&log2| solves_all(&plan, &capacity, hops, log2).is_some()).last();
            let Some(solved_length) = solved_length else { continue };
            for _ in 0..20_000 {
                let log2_tokens = solved_length - generator.random_below(3).min(solved_length - 1);
                let Some(tables) = random_tables(&mut generator, hops, log2_tokens) else { continue };
                let verdict = StackBounds::new(&plan, MessageSizeConvention::Paper).decide(&tables);
                assert!(
                    matches!(verdict, Verdict::Solved(_)),
                    "{stack}, {tables:?} below 2^{solved_length}: {}",
                    verdict.reason()
                );
                tested += 1;
                if tested % 170 == 0 {
                    break;
                }
            }
        }
    }
    assert!(tested >= 2000, "{tested}");
}

/// Regression test: tables that the map once counted as solved although the verdict was unknown.
#[test]
fn solves_all_does_not_cover_tables_with_an_unknown_verdict() {
    let small = Defaults { heads: 4, head_dim: 16, bits: 8, ..Defaults::default() };
    for (stack, defaults, m, n) in [
        ("gdn full gdn full", Defaults::default(), 1024_u32, [1024_u32, 1024]),
        ("gdn full gdn full", Defaults::default(), 173, [2, 19]),
        ("linear full full", small, 4, [1, 7]),
    ] {
        let plan = Plan::parse(stack, &defaults).unwrap();
        let tables = TableSizes::new(3, m.into(), n.map(BigUint::from).to_vec()).unwrap();
        assert!(
            matches!(StackBounds::new(&plan, MessageSizeConvention::Paper).decide(&tables), Verdict::Unknown(_)),
            "{stack}"
        );
        let log2 = tables.tokens().bits();
        assert!(solves_all(&plan, &plan.capacity(), 3, log2).is_none(), "{stack}, {log2}");
    }
}

/// A cache that keeps only the first tokens never holds the start value, so that two full layers after it have one rung.
#[test]
fn stacks_with_caches_of_first_tokens_are_certified() {
    let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
    let smallest = |stack: &str| {
        let plan = Plan::parse(stack, &defaults).unwrap();
        let input = BoundInput::for_stack(&plan.capacity(), 2, &TokenCounts::default())?;
        let certificate = search::smallest_certificate(&input)?.certificate;
        let tables = TableSizes::new(2, certificate.m, certificate.n).unwrap();
        let verdict = StackBounds::new(&plan, MessageSizeConvention::Paper).decide(&tables);
        assert!(matches!(verdict, Verdict::Impossible(_)), "{stack}, {tables:?}: {}", verdict.reason());
        Some(tables)
    };
    let without_cache = smallest("full full").unwrap();
    for stack in ["evicting{policy=prefix,size=2} full full", "full evicting{policy=sinks,size=2} full"] {
        let tables = smallest(stack).unwrap();
        assert!(tables.tokens() >= without_cache.tokens(), "{stack}: its cache has bits too");
    }
    for stack in ["evicting{policy=last,size=2} full full", "evicting{policy=stride,size=2} full full"] {
        assert!(smallest(stack).is_none(), "{stack}");
    }
    // If the cache can hold all of the table z_L and more, no token is dropped.
    let tiny = Defaults { heads: 1, head_dim: 1, bits: 1, ..Defaults::default() };
    let cached = Plan::parse("evicting{policy=prefix,size=64} full", &tiny).unwrap();
    let impossible = |m: u32| {
        let tables = TableSizes::new(1, m.into(), Vec::new()).unwrap();
        matches!(StackBounds::new(&cached, MessageSizeConvention::Paper).decide(&tables), Verdict::Impossible(_))
    };
    assert!(!impossible(63) && impossible(64) && impossible(1000));
}

/// The buffer of an entry that is not complete is passed from token to token, so it counts as state.
#[test]
fn compressed_attention_counts_its_incomplete_entry() {
    let defaults = Defaults { heads: 1, head_dim: 8, bits: 4, ..Defaults::default() };
    let plan = Plan::parse("compressed{window=0,ratio=4}", &defaults).unwrap();
    let capacity = plan.capacity_with(MessageSizeConvention::Register);
    // The buffer has three tokens, each with a vector of 8 numbers and as many weights, of 4 bits each.
    assert_eq!(capacity.parallel_bits, [3 * 16 * 4]);
    let tables = TableSizes::new(1, 16_u8.into(), Vec::new()).unwrap();
    assert!(!matches!(
        StackBounds::new(&plan, MessageSizeConvention::Register).decide(&tables),
        Verdict::Impossible(_)
    ));
}
