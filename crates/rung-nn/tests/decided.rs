//! The verdict and the weights: *solved* exactly where a construction can be built and is right.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use rung_engine::Parameters;
use rung_nn::ModelConfig;
use rung_nn::construct::{self, ConstructionRequest, InstanceSet, carry, verify};
use rung_nn::precision::Precision;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::Verdict;
use rung_theory::stack::mixer::KINDS;
use rung_theory::stack::{Convention, Defaults, Layer, Mixer, Plan};
use rung_theory::task::seeded;

use support::Draws;

/// Every request that could make a construction fit.
fn requests(name: &str, m: u32, n: &[u32]) -> Vec<ConstructionRequest> {
    let plain = ConstructionRequest { hops: n.len() + 1, m, n: n.to_vec(), ..ConstructionRequest::default() };
    let carried = ConstructionRequest { mixer: Some("linear".to_owned()), ..plain.clone() };
    match name {
        "S3" => (1..=n.len())
            .flat_map(|at| [&plain, &carried].map(|request| ConstructionRequest { at: Some(at), ..request.clone() }))
            .collect(),
        "S5" => [2, 4, 8].map(|candidates| ConstructionRequest { candidates, ..carried.clone() }).to_vec(),
        _ => vec![plain],
    }
}

#[test]
fn solved_exactly_where_weights_do_it() {
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
    let (mut solved, mut unsolved) = (0, 0);
    for head in [3, 8] {
        let defaults = Defaults { heads: 1, head_dim: head, bits: 32, ..Defaults::default() };
        for stack in stacks {
            let plan = Plan::parse(stack, &defaults).unwrap();
            for (m, n) in [(2, &[][..]), (5, &[]), (3, &[2]), (2, &[2, 2])] {
                let tables = TableSizes::new(n.len() + 1, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
                let verdict = StackBounds::new(&plan, Convention::Paper).decide(&tables);
                let built: Vec<_> = ["U1", "U2", "U2'", "S2", "S3", "S4", "S5"]
                    .into_iter()
                    .flat_map(|name| requests(name, m, n).into_iter().map(move |request| (name, request)))
                    .filter_map(|(name, request)| construct::build_on::<f32>(name, &request, &plan).ok())
                    .collect();
                let names: Vec<&str> = built.iter().map(|built| built.name.as_str()).collect();
                match &verdict {
                    Verdict::Solved(found) => {
                        assert!(
                            names.contains(&found.name),
                            "{stack}, {m} {n:?}: {} is not among {names:?}",
                            found.name
                        );
                        solved += 1;
                    }
                    other => {
                        let reason = other.reason();
                        assert!(names.is_empty(), "{stack} (heads {head} wide), {m} {n:?}: {names:?}, but {reason}");
                        unsolved += 1;
                    }
                }
                for built in &built {
                    let found = verify(built, InstanceSet::Samples { count: 40, seed: 1 }, 1, &|_| {}).unwrap();
                    assert_eq!(
                        found.correct, found.instances,
                        "{} on {stack}, {m} {n:?}: {:?}",
                        built.name, found.wrong
                    );
                }
            }
        }
    }
    assert!(solved > 50 && unsolved > 50, "{solved} and {unsolved}");
}

/// The stream of a construction is as wide as its registers, which need not be a width that every layer accepts.
#[test]
fn a_layer_that_shares_out_the_stream_takes_part_at_any_width() {
    let defaults = Defaults { heads: 1, head_dim: 8, bits: 32, ..Defaults::default() };
    let tables = TableSizes::new(2, 24_u32.into(), vec![2_u32.into()]).unwrap();
    let request = ConstructionRequest { hops: 2, m: 24, n: vec![2], ..ConstructionRequest::default() };
    for (stack, divisor) in [
        ("hgrn2 full full hgrn2", 8),
        ("hgrn2{expand=4} full full hgrn2", 8),
        ("inline{heads=5} full full full", 5),
        ("inline{heads=5} hgrn2 full full", 40),
    ] {
        let plan = Plan::parse(stack, &defaults).unwrap();
        let verdict = StackBounds::new(&plan, Convention::Paper).decide(&tables);
        let Verdict::Solved(found) = verdict else { panic!("{stack}: {}", verdict.reason()) };
        let built = construct::build_on::<f32>(found.name, &request, &plan).unwrap();
        assert!(built.plan.width.is_multiple_of(divisor), "{stack}: {}", built.plan.width);
        let found = verify(&built, InstanceSet::Samples { count: 60, seed: 1 }, 1, &|_| {}).unwrap();
        assert_eq!(found.correct, found.instances, "{stack}: {:?}", found.wrong);
    }
    let error = |stack: &str| {
        let plan = Plan::parse(stack, &defaults).unwrap();
        construct::build_on::<f32>("U1", &request, &plan).map(|built| built.plan.width).unwrap_err().to_string()
    };
    let wide = error("full full full hgrn2{expand=65521} hgrn2{expand=65519}");
    assert!(wide.contains("no width up to 16777216 is a multiple of 65519"), "{wide}");
}

#[test]
fn the_theory_counts_what_carriers_carry() {
    let defaults = Defaults { heads: 3, head_dim: 5, ..Defaults::default() };
    for kind in KINDS {
        assert_eq!(kind.carry.is_some(), carry::names().any(|name| name == kind.name), "{}", kind.name);
        let smallest = kind.carry.map(|sizes| (sizes.smallest)(4));
        for options in [Some(Vec::new()), smallest].into_iter().flatten() {
            let mixer = Mixer::new(kind.name, &options, &defaults).unwrap();
            assert_eq!(mixer.facts().carried_bits, carry::channels(&mixer) as u128, "{mixer}");
            assert_eq!(mixer.facts().table_slots, carry::slots(&mixer) as u128, "{mixer}");
        }
    }
}

/// What the theory says of networks is what the networks say: for random sizes, many of which do not fit each other.
#[test]
fn the_theory_knows_which_sizes_have_networks() {
    let mut draws = Draws(3);
    let (mut with, mut without) = (0, 0);
    for kind in KINDS {
        for _ in 0..60 {
            let defaults =
                Defaults { heads: 1 + draws.below(4), head_dim: 2 + 2 * draws.below(4), ..Defaults::default() };
            let options: Vec<_> = kind.options.iter().map(|option| (option.name, draws.option(option, 6))).collect();
            let mixer = Mixer::new(kind.name, &options, &defaults).unwrap();
            let plan = Plan { width: defaults.width(), layers: vec![Layer::new(mixer.clone())] };
            let model = ModelConfig::default().init(&plan, &mut Parameters::<f32>::new(), &mut seeded(0));
            // A layer whose size follows the stream fits a stream of another width.
            let follows = ["hgrn2", "conv", "inline"].contains(&kind.name);
            assert!(follows || model.is_ok() == mixer.facts().has_network, "{mixer}: {:?}", model.err());
            *if mixer.facts().has_network { &mut with } else { &mut without } += 1;
        }
    }
    assert!(with > 500 && without > 100, "{with} with, {without} without");
}

/// Layers of random stacks: every mixer with a network, some of them in several sizes.
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

/// Each mixer that hands values on does so with as few bits per number as it says, and with more, wherever the prompt ends.
#[test]
fn carriers_need_no_more_bits_than_they_say() {
    let mut carriers = 0;
    for layer in LAYERS {
        let plan = |bits| {
            let defaults = Defaults { heads: 2, head_dim: 12, bits, ..Defaults::default() };
            Plan::parse(&format!("{layer} full full"), &defaults).unwrap()
        };
        let facts = *plan(8).layers[0].mixers[0].facts();
        if facts.carried_bits == 0 {
            continue;
        }
        carriers += 1;
        for (m, n) in [(2, 1), (3, 2), (5, 1), (9, 3), (16, 2)] {
            let request = ConstructionRequest { hops: 2, m, n: vec![n], ..ConstructionRequest::default() };
            let tables = TableSizes::new(2, m.into(), vec![n.into()]).unwrap();
            let Ok(mut built) = construct::build_on::<f32>("U2", &request, &plan(8)) else { continue };
            let (range, fewest) = (built.range().unwrap(), facts.precision.bits(tables.tokens().bits()));
            assert!(
                matches!(StackBounds::new(&plan(fewest), Convention::Paper).decide(&tables), Verdict::Solved(_)),
                "{layer}"
            );
            for bits in fewest..fewest + 5 {
                built.set_precision(Precision::bits(bits as u32, range)).unwrap();
                let found = verify(&built, InstanceSet::Samples { count: 24, seed: 5 }, 2, &|_| {}).unwrap();
                assert_eq!(found.correct, found.instances, "{layer}, m = {m}, n = {n}, {bits} bits over {range}");
            }
        }
    }
    assert!(carriers > 20, "{carriers}");
}

/// If the verdict is *solved*: builds the weights in these layers, keeps states and messages in the stack's own bits per number,
/// and asks for right answers.
fn verify_solved(stack: &str, defaults: &Defaults, m: u32, n: &[u32]) -> Option<&'static str> {
    let plan = Plan::parse(stack, defaults).unwrap();
    let tables = TableSizes::new(n.len() + 1, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
    let Verdict::Solved(found) = StackBounds::new(&plan, Convention::Paper).decide(&tables) else { return None };
    let built = requests(found.name, m, n)
        .into_iter()
        .find_map(|request| construct::build_on::<f32>(found.name, &request, &plan).ok());
    let case = format!("{} on {stack}, {defaults:?}, m = {m}, n = {n:?}", found.name);
    let mut built = built.unwrap_or_else(|| panic!("{case}: said to be solved, not built"));
    if defaults.bits <= u64::from(construct::MOST_BITS) {
        let range = built.range().unwrap();
        built.set_precision(Precision::bits(defaults.bits as u32, range)).unwrap();
    }
    let verified = verify(&built, InstanceSet::Samples { count: 50, seed: 3 }, 2, &|_| {}).unwrap();
    assert_eq!(verified.correct, verified.instances, "{case}: {:?}", verified.wrong);
    Some(found.name)
}

#[test]
fn solved_means_verified_at_its_own_bits() {
    let bits = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32];
    let (mut solved, mut mixers, mut constructions) = (0, BTreeSet::new(), BTreeSet::new());
    let mut by_bits = BTreeMap::new();
    // Constructions that random stacks hardly ever need.
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
    let mut draws = Draws(7);
    for _ in 0..20_000 {
        if solved >= 220 && LAYERS.iter().all(|layer| mixers.contains(layer)) {
            break;
        }
        let layers: Vec<&str> = (0..=draws.below(5)).map(|_| draws.pick(LAYERS)).collect();
        let bits = bits[draws.below(bits.len() as u64) as usize];
        let (heads, head_dim) = (1 + draws.below(2), 12 + 2 * draws.below(7));
        let m = 2 + draws.below(10) as u32;
        let n: Vec<u32> = (0..draws.below(3)).map(|_| 1 + draws.below(3) as u32).collect();
        let defaults = Defaults { heads, head_dim, bits, ..Defaults::default() };
        // Plain stacks of softmax attention are easily drawn: a few of them are enough.
        if layers.iter().all(|layer| layer.starts_with("full")) && draws.below(8) > 0 {
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
