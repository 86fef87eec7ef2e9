//! Verdicts do not contradict each other: thousands of random questions, each beside an easier one, and the marks of the hop map
//! beside the shapes of tables below them.

use num_bigint::BigUint;
use rung_theory::bound::checker;
use rung_theory::bound::checker::TokensPer;
use rung_theory::bound::construction::solves_all;
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::{Unknown, Verdict};
use rung_theory::stack::{Convention, Defaults, Plan};

/// Numbers that look random, the same in every run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Small numbers more often than large ones.
    fn size(&mut self, log2: u64) -> u64 {
        let bits = 1 + self.below(log2);
        1 + self.below(1 << bits)
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
struct Asked {
    layers: Vec<&'static str>,
    defaults: Defaults,
    m: u64,
    n: Vec<u64>,
    convention: Convention,
}

impl Asked {
    fn draw(draws: &mut Draws) -> Self {
        let layers = (0..=draws.below(4)).map(|_| LAYERS[draws.below(LAYERS.len() as u64) as usize]).collect();
        let (heads, head_dim) = (1 + draws.below(3), 1 + draws.below(24));
        let defaults = Defaults { heads, head_dim, bits: 1 + draws.below(8), ..Defaults::default() };
        let hops = 1 + draws.below(3);
        let n = (1..hops).map(|_| draws.size(9)).collect();
        let convention = [Convention::Paper, Convention::Register, Convention::Online][draws.below(3) as usize];
        Self { layers, defaults, m: draws.size(13), n, convention }
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

    /// The same question with a smaller table, one hop less, more precision, or one more layer: never harder.
    fn easier(&self, draws: &mut Draws) -> Self {
        let mut easier = self.clone();
        match draws.below(5) {
            0 => easier.m = 1 + draws.below(self.m),
            1 if !self.n.is_empty() => {
                let at = draws.below(self.n.len() as u64) as usize;
                easier.n[at] = 1 + draws.below(self.n[at]);
            }
            2 if !self.n.is_empty() => {
                easier.n.pop();
            }
            3 => easier.defaults.bits += 1 + draws.below(8),
            _ => {
                let at = draws.below(self.layers.len() as u64 + 1) as usize;
                easier.layers.insert(at, LAYERS[draws.below(LAYERS.len() as u64) as usize]);
            }
        }
        easier
    }
}

#[test]
fn what_is_solved_is_not_impossible_when_it_is_easier() {
    let mut draws = Draws(11);
    let (mut solved, mut impossible, mut unknown) = (0, 0, 0);
    for _ in 0..3000 {
        let asked = Asked::draw(&mut draws);
        let easier = asked.easier(&mut draws);
        match asked.verdict() {
            Verdict::Solved(found) => {
                solved += 1;
                let other = easier.verdict();
                // A layer without a network in front of known weights is unknown; it is never impossible.
                assert!(
                    !matches!(other, Verdict::Impossible(_)),
                    "{} solves {asked:?}, {easier:?} is impossible",
                    found.name
                );
            }
            Verdict::Impossible(certified) => {
                impossible += 1;
                assert!(checker::check(&certified.certificate).is_ok(), "{asked:?}");
            }
            Verdict::Unknown(Unknown::NotExcludable(steps)) => {
                unknown += 1;
                assert!(!steps.is_empty(), "{asked:?}");
            }
            Verdict::Unknown(Unknown::Open { .. }) => unknown += 1,
        }
    }
    assert!(solved > 150 && impossible > 300 && unknown > 300, "{solved}, {impossible}, {unknown}");
}

/// A random shape of tables with at most so many tokens.
fn shape(draws: &mut Draws, hops: usize, log2_tokens: u64) -> Option<TableSizes> {
    let budget = BigUint::from(1_u8) << log2_tokens;
    let power = |draws: &mut Draws, most: u64| {
        let exponent = draws.below(most + 1);
        (BigUint::from(1_u8) << exponent) + draws.below(1 + (1 << exponent.min(20)))
    };
    let m = power(draws, log2_tokens);
    let n = (1..hops).map(|_| if draws.below(2) == 0 { 1_u8.into() } else { power(draws, log2_tokens) }).collect();
    TableSizes::new(hops, m, n).ok().filter(|tables| tables.tokens() <= budget)
}

#[test]
fn all_shapes_below_the_mark_of_the_map_are_solved() {
    let small = Defaults { heads: 4, head_dim: 16, bits: 8, ..Defaults::default() };
    let mut draws = Draws(5);
    let mut asked = 0;
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
            let mark = (1..200).take_while(|&log2| solves_all(&plan, &capacity, hops, log2).is_some()).last();
            let Some(mark) = mark else { continue };
            for _ in 0..20_000 {
                let near = mark - draws.below(3).min(mark - 1);
                let Some(tables) = shape(&mut draws, hops, near) else { continue };
                let verdict = StackBounds::new(&plan, Convention::Paper).decide(&tables);
                assert!(
                    matches!(verdict, Verdict::Solved(_)),
                    "{stack}, {tables:?} below 2^{mark}: {}",
                    verdict.reason()
                );
                asked += 1;
                if asked % 170 == 0 {
                    break;
                }
            }
        }
    }
    assert!(asked >= 2000, "{asked}");
}

/// Shapes for which the map once said solved and the verdict unknown.
#[test]
fn the_map_does_not_vouch_for_shapes_that_are_unknown() {
    let small = Defaults { heads: 4, head_dim: 16, bits: 8, ..Defaults::default() };
    for (stack, defaults, m, n) in [
        ("gdn full gdn full", Defaults::default(), 1024_u32, [1024_u32, 1024]),
        ("gdn full gdn full", Defaults::default(), 173, [2, 19]),
        ("linear full full", small, 4, [1, 7]),
    ] {
        let plan = Plan::parse(stack, &defaults).unwrap();
        let tables = TableSizes::new(3, m.into(), n.map(BigUint::from).to_vec()).unwrap();
        assert!(matches!(StackBounds::new(&plan, Convention::Paper).decide(&tables), Verdict::Unknown(_)), "{stack}");
        let log2 = tables.tokens().bits();
        assert!(solves_all(&plan, &plan.capacity(), 3, log2).is_none(), "{stack}, {log2}");
    }
}

/// A cache that keeps only the first tokens never holds the start value, so that two full layers behind it have one rung.
#[test]
fn caches_that_drop_the_start_are_certified() {
    let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
    let smallest = |stack: &str| {
        let plan = Plan::parse(stack, &defaults).unwrap();
        let question = BoundInput::for_stack(&plan.capacity(), 2, &TokensPer::default())?;
        let point = search::smallest(&question)?.certificate;
        let tables = TableSizes::new(2, point.m, point.n).unwrap();
        let verdict = StackBounds::new(&plan, Convention::Paper).decide(&tables);
        assert!(matches!(verdict, Verdict::Impossible(_)), "{stack}, {tables:?}: {}", verdict.reason());
        Some(tables)
    };
    let plain = smallest("full full").unwrap();
    for stack in ["evicting{policy=prefix,size=2} full full", "full evicting{policy=sinks,size=2} full"] {
        let tables = smallest(stack).unwrap();
        assert!(tables.tokens() >= plain.tokens(), "{stack}: its cache has bits too");
    }
    for stack in ["evicting{policy=last,size=2} full full", "evicting{policy=stride,size=2} full full"] {
        assert!(smallest(stack).is_none(), "{stack}");
    }
    // Where the cache holds the whole table z_L and more, nothing is dropped, however few bits that takes.
    let tiny = Defaults { heads: 1, head_dim: 1, bits: 1, ..Defaults::default() };
    let cached = Plan::parse("evicting{policy=prefix,size=64} full", &tiny).unwrap();
    let impossible = |m: u32| {
        let tables = TableSizes::new(1, m.into(), Vec::new()).unwrap();
        matches!(StackBounds::new(&cached, Convention::Paper).decide(&tables), Verdict::Impossible(_))
    };
    assert!(!impossible(63) && impossible(64) && impossible(1000));
}

/// The entry that is being pooled crosses from token to token too.
#[test]
fn a_partly_pooled_entry_is_counted() {
    let defaults = Defaults { heads: 1, head_dim: 8, bits: 4, ..Defaults::default() };
    let plan = Plan::parse("compressed{window=0,ratio=4}", &defaults).unwrap();
    let capacity = plan.capacity_with(Convention::Register);
    // Three tokens wait, each with a vector of 8 numbers and as many weights, 4 bits each.
    assert_eq!(capacity.parallel_bits, [3 * 16 * 4]);
    let tables = TableSizes::new(1, 16_u8.into(), Vec::new()).unwrap();
    assert!(!matches!(StackBounds::new(&plan, Convention::Register).decide(&tables), Verdict::Impossible(_)));
}
