//! The verdict and the weights: *solved* exactly where a construction can be built and is right.

use rung_nn::construct::{self, Request, Which, carry, verify};
use rung_theory::bound::construction::{CARRIERS, carried_bits, table_slots};
use rung_theory::bound::tables::Tables;
use rung_theory::bound::verdict::{Verdict, decide};
use rung_theory::stack::mixer::KINDS;
use rung_theory::stack::{Convention, Defaults, Mixer, Plan};

/// Every request that could make a construction fit.
fn requests(name: &str, m: u32, n: &[u32]) -> Vec<Request> {
    let plain = Request { hops: n.len() + 1, m, n: n.to_vec(), ..Request::default() };
    let carried = Request { mixer: Some("linear".to_owned()), ..plain.clone() };
    match name {
        "S3" => (1..=n.len())
            .flat_map(|at| [&plain, &carried].map(|request| Request { at: Some(at), ..request.clone() }))
            .collect(),
        "S5" => [2, 4, 8].map(|candidates| Request { candidates, ..carried.clone() }).to_vec(),
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
                let tables = Tables::new(n.len() + 1, m.into(), n.iter().map(|&n| n.into()).collect()).unwrap();
                let verdict = decide(&plan, Convention::Paper, &tables);
                let built: Vec<_> = ["U1", "U2", "U2'", "S2", "S3", "S4", "S5"]
                    .into_iter()
                    .flat_map(|name| requests(name, m, n).into_iter().map(move |request| (name, request)))
                    .filter_map(|(name, request)| construct::build_on::<f32>(name, &request, &plan).ok())
                    .collect();
                let names: Vec<&str> = built.iter().map(|built| built.sheet.name.as_str()).collect();
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
                    let found = verify(built, Which::Samples { count: 40, seed: 1 }, 1, &|_| {}).unwrap();
                    assert_eq!(
                        found.correct, found.instances,
                        "{} on {stack}, {m} {n:?}: {:?}",
                        built.sheet.name, found.wrong
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
    let tables = Tables::new(2, 24_u32.into(), vec![2_u32.into()]).unwrap();
    let request = Request { hops: 2, m: 24, n: vec![2], ..Request::default() };
    for (stack, divisor) in [
        ("hgrn2 full full hgrn2", 8),
        ("hgrn2{expand=4} full full hgrn2", 8),
        ("inline{heads=5} full full full", 5),
        ("inline{heads=5} hgrn2 full full", 40),
    ] {
        let plan = Plan::parse(stack, &defaults).unwrap();
        let verdict = decide(&plan, Convention::Paper, &tables);
        let Verdict::Solved(found) = verdict else { panic!("{stack}: {}", verdict.reason()) };
        let built = construct::build_on::<f32>(found.name, &request, &plan).unwrap();
        assert!(built.plan.width.is_multiple_of(divisor), "{stack}: {}", built.plan.width);
        let found = verify(&built, Which::Samples { count: 60, seed: 1 }, 1, &|_| {}).unwrap();
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
    assert_eq!(carry::names().collect::<Vec<_>>(), CARRIERS);
    let defaults = Defaults { heads: 3, head_dim: 5, ..Defaults::default() };
    for kind in KINDS {
        let mixer = Mixer::new(kind.name, &[], &defaults).unwrap();
        assert_eq!(carried_bits(&mixer), carry::channels(&mixer) as u64, "{}", kind.name);
        assert_eq!(table_slots(&mixer), carry::slots(&mixer) as u64, "{}", kind.name);
    }
}
