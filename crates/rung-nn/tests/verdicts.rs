//! The theory's verdict is *solved* exactly for the stacks in which a construction can be built and answers right.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use rung_engine::Parameters;
use rung_nn::ModelConfig;
use rung_nn::construct::{self, ConstructionRequest, InstanceSet, forwarding, verify};
use rung_nn::precision::SimulatedPrecision;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::Verdict;
use rung_theory::stack::mixer::KINDS;
use rung_theory::stack::{Defaults, Layer, MessageSizeConvention, Mixer, Plan};
use rung_theory::task::seeded;

use support::TestRng;

/// Every request with which a construction might fit a stack.
fn requests(name: &str, m: u32, n: &[u32]) -> Vec<ConstructionRequest> {
    let without_mixer = ConstructionRequest {
        hops: n.len() + 1,
        first_table_entries: m,
        growth_factors: n.to_vec(),
        ..ConstructionRequest::default()
    };
    let with_mixer = ConstructionRequest { mixer: Some("linear".to_owned()), ..without_mixer.clone() };
    match name {
        "S3" => (1..=n.len())
            .flat_map(|hop| {
                [&without_mixer, &with_mixer]
                    .map(|request| ConstructionRequest { prefetch_hop: Some(hop), ..request.clone() })
            })
            .collect(),
        "S5" => [2, 4, 8].map(|candidates| ConstructionRequest { candidates, ..with_mixer.clone() }).to_vec(),
        _ => vec![without_mixer],
    }
}

#[test]
fn verdict_is_solved_exactly_if_a_construction_can_be_built() {
    let stacks = [
        "full",
        "full full",
        "full full full",
        "linear full",
        "full linear",
        "linear linear",
        "full gdn full",
        "gdn gdn full",
        "mamba2{state=8,head=8,heads=1} linear full",
        "full{heads=6,kv=6}",
        "full{heads=6,kv=6} full",
        "none full full",
        "linear full{heads=4,kv=4} full{value=2}",
        "full{heads=4,kv=2} full",
        "full{key=2} full",
        "window{size=2} full full",
        "conv full",
        "conv{gated=no} full",
        "retnet{key=4} retnet{key=2} full",
        "full+linear full",
        "linear linear full{heads=3,kv=3}",
        "full{value=1} full{value=1}",
        "deltanet{value=3,heads=2} full full",
        "full{heads=4,kv=4} full{value=16} full",
        "gla{key=9} gla{key=9}",
        "lightning full",
        "full lightning{heads=2} full",
        "rglru{heads=2,inner=12} full",
        "full rglru full",
        "hgrn2 full full hgrn2",
        "inline full full",
        "conv{gated=no} full full",
    ];
    let (mut solved_count, mut unsolved_count) = (0, 0);
    for head_dim in [3, 8] {
        let defaults = Defaults { heads: 1, head_dim, bits: 32, ..Defaults::default() };
        for stack in stacks {
            let plan = Plan::parse(stack, &defaults).unwrap();
            for (m, n) in [(2, &[][..]), (5, &[]), (3, &[2]), (2, &[2, 2])] {
                let tables = TableSizes::new(n.len() + 1, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
                let verdict = StackBounds::new(&plan, MessageSizeConvention::Paper).decide(&tables);
                let networks: Vec<_> = ["U1", "U2", "U2'", "S2", "S3", "S4", "S5"]
                    .into_iter()
                    .flat_map(|name| requests(name, m, n).into_iter().map(move |request| (name, request)))
                    .filter_map(|(name, request)| construct::build_on::<f32>(name, &request, &plan).ok())
                    .collect();
                let names: Vec<&str> = networks.iter().map(|network| network.name.as_str()).collect();
                match &verdict {
                    Verdict::Solved(construction) => {
                        assert!(
                            names.contains(&construction.name),
                            "{stack}, {m} {n:?}: {} is not among {names:?}",
                            construction.name
                        );
                        solved_count += 1;
                    }
                    other => {
                        let reason = other.reason();
                        assert!(
                            names.is_empty(),
                            "{stack} (heads {head_dim} wide), {m} {n:?}: {names:?}, but {reason}"
                        );
                        unsolved_count += 1;
                    }
                }
                for network in &networks {
                    let verification =
                        verify(network, InstanceSet::Samples { count: 40, seed: 1 }, 1, &|_| {}).unwrap();
                    assert_eq!(
                        verification.correct, verification.instances,
                        "{} on {stack}, {m} {n:?}: {:?}",
                        network.name, verification.wrong
                    );
                }
            }
        }
    }
    assert!(solved_count > 50 && unsolved_count > 50, "{solved_count} and {unsolved_count}");
}

/// The registers of a construction need not have a width that every layer accepts; then the residual stream is widened.
#[test]
fn residuals_are_widened_to_a_multiple_that_every_layer_accepts() {
    let defaults = Defaults { heads: 1, head_dim: 8, bits: 32, ..Defaults::default() };
    let tables = TableSizes::new(2, 24_u32.into(), vec![2_u32.into()]).unwrap();
    let request = ConstructionRequest {
        hops: 2,
        first_table_entries: 24,
        growth_factors: vec![2],
        ..ConstructionRequest::default()
    };
    for (stack, divisor) in [
        ("hgrn2 full full hgrn2", 8),
        ("hgrn2{expand=4} full full hgrn2", 8),
        ("inline{heads=5} full full full", 5),
        ("inline{heads=5} hgrn2 full full", 40),
    ] {
        let plan = Plan::parse(stack, &defaults).unwrap();
        let verdict = StackBounds::new(&plan, MessageSizeConvention::Paper).decide(&tables);
        let Verdict::Solved(construction) = verdict else { panic!("{stack}: {}", verdict.reason()) };
        let network = construct::build_on::<f32>(construction.name, &request, &plan).unwrap();
        assert!(network.plan.width.is_multiple_of(divisor), "{stack}: {}", network.plan.width);
        let verification = verify(&network, InstanceSet::Samples { count: 60, seed: 1 }, 1, &|_| {}).unwrap();
        assert_eq!(verification.correct, verification.instances, "{stack}: {:?}", verification.wrong);
    }
    let plan = Plan::parse("full full full hgrn2{expand=65521} hgrn2{expand=65519}", &defaults).unwrap();
    let error = construct::build_on::<f32>("U1", &request, &plan).err().unwrap().to_string();
    assert!(error.contains("no width up to 16777216 is a multiple of 65519"), "{error}");
}

#[test]
fn the_theory_counts_the_bits_and_rows_that_known_weights_use() {
    let defaults = Defaults { heads: 3, head_dim: 5, ..Defaults::default() };
    for kind in KINDS {
        assert_eq!(kind.forwarding_sizes.is_some(), forwarding::names().any(|name| name == kind.name), "{}", kind.name);
        let smallest = kind.forwarding_sizes.map(|sizes| (sizes.options_for_bits)(4));
        for options in [Some(Vec::new()), smallest].into_iter().flatten() {
            let mixer = Mixer::new(kind.name, &options, &defaults).unwrap();
            assert_eq!(mixer.facts().forwarded_bits, forwarding::max_bits(&mixer) as u128, "{mixer}");
            assert_eq!(mixer.facts().table_rows, forwarding::max_table_rows(&mixer) as u128, "{mixer}");
        }
    }
}

/// Random sizes, many of which are invalid.
#[test]
fn is_implemented_is_true_exactly_if_the_network_can_be_built() {
    let mut rng = TestRng(3);
    let (mut valid_count, mut invalid_count) = (0, 0);
    for kind in KINDS {
        for _ in 0..60 {
            let defaults = Defaults {
                heads: 1 + rng.random_below(4),
                head_dim: 2 + 2 * rng.random_below(4),
                ..Defaults::default()
            };
            let options: Vec<_> = kind.options.iter().map(|option| (option.name, rng.option(option, 6))).collect();
            let mixer = Mixer::new(kind.name, &options, &defaults).unwrap();
            let plan = Plan { width: defaults.width(), layers: vec![Layer::new(mixer.clone())] };
            let model = ModelConfig::default().init(&plan, &mut Parameters::<f32>::new(), &mut seeded(0));
            // Whether these can be built also depends on the width of the residual stream, which `is_implemented` does not know.
            let depends_on_width = ["hgrn2", "conv", "inline"].contains(&kind.name);
            assert!(depends_on_width || model.is_ok() == mixer.facts().is_implemented, "{mixer}: {:?}", model.err());
            *if mixer.facts().is_implemented { &mut valid_count } else { &mut invalid_count } += 1;
        }
    }
    assert!(valid_count > 500 && invalid_count > 100, "{valid_count} valid, {invalid_count} invalid");
}

/// Layers of random stacks: every implemented mixer, some of them in several sizes.
const LAYERS: &[&str] = &[
    "full",
    "full",
    "full",
    "full{heads=5,kv=5}",
    "full{heads=12,kv=12}",
    "full{heads=4,kv=2}",
    "full{value=3}",
    "full{conv=2}",
    "mla",
    "compositional",
    "window{size=2}",
    "window{size=5,sinks=1}",
    "evicting{policy=last,size=2}",
    "evicting{policy=sinks,size=5}",
    "evicting{policy=prefix,size=3}",
    "linear",
    "linear{heads=1,key=12,value=2}",
    "linear{normaliser=no,map=relu}",
    "linear{map=identity}",
    "retnet",
    "retnet{key=2,value=8}",
    "gla",
    "gla{key=8}",
    "rwkv6",
    "rwkv7",
    "mamba1",
    "mamba2{state=8,head=16,heads=1}",
    "mamba2",
    "deltanet",
    "deltanet{negative=yes}",
    "gdn",
    "gdn{heads=1,value-heads=2}",
    "kda",
    "deltaproduct",
    "loglinear-mamba2{levels=12}",
    "loglinear-gdn{levels=12}",
    "fastmax{order=1}",
    "fastmax",
    "inline",
    "conv",
    "conv{gated=no}",
    "lightning",
    "gated",
    "gated{channels=3}",
    "rglru",
    "hgrn2",
    "hgrn2{expand=8}",
    "moba{block=2,top=2}",
    "none",
];

/// Each forwarding mixer works with as few bits per element as its facts require, and with more.
#[test]
fn forwarding_mixers_need_no_more_bits_than_their_facts_require() {
    let mut tested_mixers = 0;
    for layer in LAYERS {
        let plan = |bits| {
            let defaults = Defaults { heads: 2, head_dim: 12, bits, ..Defaults::default() };
            Plan::parse(&format!("{layer} full full"), &defaults).unwrap()
        };
        let facts = *plan(8).layers[0].mixers[0].facts();
        if facts.forwarded_bits == 0 {
            continue;
        }
        tested_mixers += 1;
        for (m, n) in [(2, 1), (3, 2), (5, 1), (9, 3), (16, 2)] {
            let request = ConstructionRequest {
                hops: 2,
                first_table_entries: m,
                growth_factors: vec![n],
                ..ConstructionRequest::default()
            };
            let tables = TableSizes::new(2, m.into(), vec![n.into()]).unwrap();
            let Ok(mut network) = construct::build_on::<f32>("U2", &request, &plan(8)) else { continue };
            let (range, fewest_bits) = (network.number_range().unwrap(), facts.precision.bits(tables.tokens().bits()));
            assert!(
                matches!(
                    StackBounds::new(&plan(fewest_bits), MessageSizeConvention::Paper).decide(&tables),
                    Verdict::Solved(_)
                ),
                "{layer}"
            );
            for bits in fewest_bits..fewest_bits + 5 {
                network.set_precision(SimulatedPrecision::bits(bits as u32, range)).unwrap();
                let verification = verify(&network, InstanceSet::Samples { count: 24, seed: 5 }, 2, &|_| {}).unwrap();
                assert_eq!(
                    verification.correct, verification.instances,
                    "{layer}, m = {m}, n = {n}, {bits} bits over {range}"
                );
            }
        }
    }
    assert!(tested_mixers > 20, "{tested_mixers}");
}

/// If the verdict is *solved*: builds the weights in these layers, rounds states and messages to the stack's bits per element, and checks
/// that the answers are right. Returns the construction's name.
fn verify_solved(stack: &str, defaults: &Defaults, m: u32, n: &[u32]) -> Option<&'static str> {
    let plan = Plan::parse(stack, defaults).unwrap();
    let tables = TableSizes::new(n.len() + 1, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
    let Verdict::Solved(construction) = StackBounds::new(&plan, MessageSizeConvention::Paper).decide(&tables) else {
        return None;
    };
    let network = requests(construction.name, m, n)
        .into_iter()
        .find_map(|request| construct::build_on::<f32>(construction.name, &request, &plan).ok());
    let case = format!("{} on {stack}, {defaults:?}, m = {m}, n = {n:?}", construction.name);
    let mut network = network.unwrap_or_else(|| panic!("{case}: the verdict is solved, but no construction fits"));
    if defaults.bits <= u64::from(construct::MAX_BITS) {
        let range = network.number_range().unwrap();
        network.set_precision(SimulatedPrecision::bits(defaults.bits as u32, range)).unwrap();
    }
    let verification = verify(&network, InstanceSet::Samples { count: 50, seed: 3 }, 2, &|_| {}).unwrap();
    assert_eq!(verification.correct, verification.instances, "{case}: {:?}", verification.wrong);
    Some(construction.name)
}

#[test]
fn every_solved_stack_answers_right_at_its_bits_per_number() {
    let bits = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32];
    let (mut solved, mut mixers, mut constructions) = (0, BTreeSet::new(), BTreeSet::new());
    let mut by_bits = BTreeMap::new();
    // Stacks for the constructions that random stacks rarely use.
    for bits in bits {
        let defaults = Defaults { heads: 1, head_dim: 12, bits, ..Defaults::default() };
        for (stack, m, n) in [
            ("full{heads=12,kv=12}", 9, &[][..]),
            ("full{heads=12,kv=12} full", 7, &[2]),
            ("linear linear{heads=1,key=12,value=2} full{heads=5,kv=5}", 10, &[2]),
            ("gdn gdn{value=4} full{heads=9,kv=9}", 12, &[2]),
        ] {
            constructions.extend(verify_solved(stack, &defaults, m, n));
        }
    }
    let mut rng = TestRng(7);
    for _ in 0..20_000 {
        if solved >= 220 && LAYERS.iter().all(|layer| mixers.contains(layer)) {
            break;
        }
        let layers: Vec<&str> = (0..=rng.random_below(5)).map(|_| rng.pick(LAYERS)).collect();
        let bits = bits[rng.random_below(bits.len() as u64) as usize];
        let (heads, head_dim) = (1 + rng.random_below(2), 12 + 2 * rng.random_below(7));
        let m = 2 + rng.random_below(10) as u32;
        let n: Vec<u32> = (0..rng.random_below(3)).map(|_| 1 + rng.random_below(3) as u32).collect();
        let defaults = Defaults { heads, head_dim, bits, ..Defaults::default() };
        // Stacks of full attention alone are drawn often: a few of them are enough.
        if layers.iter().all(|layer| layer.starts_with("full")) && rng.random_below(8) > 0 {
            continue;
        }
        let Some(name) = verify_solved(&layers.join(" "), &defaults, m, &n) else { continue };
        solved += 1;
        mixers.extend(layers);
        constructions.insert(name);
        *by_bits.entry(bits).or_insert(0) += 1;
    }
    assert!(solved >= 200, "{solved} solved, by bits {by_bits:?}");
    assert!(LAYERS.iter().all(|layer| mixers.contains(layer)), "only {mixers:?}");
    assert_eq!(constructions.into_iter().collect::<Vec<_>>(), ["S2", "S3", "S4", "S5", "U1", "U2", "U2'"]);
    assert!(by_bits.len() >= 9 && !by_bits.contains_key(&1), "{by_bits:?}");
}
