//! Constructions, run.

use rung_theory::task::{Prompt, seeded};

use super::*;

fn request(m: u32, n: &[u32]) -> ConstructionRequest {
    ConstructionRequest { hops: n.len() + 1, m, n: n.to_vec(), ..ConstructionRequest::default() }
}

/// All instances if there are few, else some.
fn check<S: Scalar>(built: &Network<S>, samples: u64) -> Verification {
    let few = built.task().unwrap().instances().is_some_and(|count| count <= 5_000);
    let which = if few { InstanceSet::All } else { InstanceSet::Samples { count: samples, seed: 7 } };
    verify(built, which, 2, &|_| {}).unwrap()
}

#[track_caller]
fn right<S: Scalar>(built: &Network<S>, samples: u64) {
    let found = check(built, samples);
    assert_eq!(found.correct, found.instances, "{} on {}: {:?}", built.name, built.task().unwrap(), found.wrong);
}

#[test]
fn u1_climbs_up_to_six_hops() {
    for (m, n) in
        [(2, &[][..]), (5, &[]), (2, &[2]), (3, &[3]), (5, &[2, 3]), (3, &[2, 2, 2]), (2, &[1; 4]), (2, &[2; 5])]
    {
        let built = build::<f32>("U1", &request(m, n)).unwrap();
        right(&built, 600);
        assert_eq!(built.plan.layers.len(), n.len() + 2);
        right(&build::<f64>("U1", &request(m, n)).unwrap(), 100);
    }
}

#[test]
fn every_carrier_carries() {
    let more =
        ["linear{map=relu}", "linear{map=identity}", "linear{normaliser=no}", "linear{map=relu,normaliser=no,key=3}"];
    let wider = [
        "deltanet{conv=0,negative=yes,heads=2,value=3}",
        "gdn{heads=1,value-heads=2,value=5}",
        "window{size=5,heads=4,kv=2,value=1}",
        "rwkv7{heads=2,head=3,rank=2}",
        "rwkv6{heads=2,head=5}",
        "fastmax{heads=3,key=2,value=2}",
        "deltaproduct{conv=0,negative=no,gate=no,steps=3,heads=2,value-heads=2,value=3}",
    ];
    for mixer in carry::names()
        .chain(more)
        .chain(wider)
        .chain(["mamba2{heads=3,head=2,groups=1,state=4}", "conv{taps=2,channels=9}"])
    {
        for construction in ["U2", "U2'"] {
            for n in [&[][..], &[2], &[2, 2]] {
                let request = ConstructionRequest { mixer: Some(mixer.to_owned()), ..request(3, n) };
                right(&build::<f32>(construction, &request).unwrap(), 300);
            }
        }
    }
}

/// Small enough to leave no instance out.
#[test]
fn not_one_instance_of_small_tables_goes_wrong() {
    let walks =
        [("U1", None), ("U2", Some("gdn")), ("U2", Some("rwkv7")), ("U2'", Some("linear")), ("U2'", Some("rwkv7"))];
    let sizes = [(4, &[][..], 1_024), (2, &[2], 4_096), (2, &[1, 1, 1], 512)];
    let small = walks.into_iter().flat_map(|walk| sizes.map(|size| (walk, size)));
    for ((name, mixer), (m, n, count)) in small.chain([(("U2'", Some("gdn")), (3, &[1, 1][..], 59_049))]) {
        let request = ConstructionRequest { mixer: mixer.map(str::to_owned), ..request(m, n) };
        let built = build::<f32>(name, &request).unwrap();
        let found = verify(&built, InstanceSet::All, 2, &|_| {}).unwrap();
        assert_eq!((found.instances, found.correct), (count, count), "{name} of {mixer:?}: {:?}", found.wrong);
    }
}

#[test]
fn shortcuts_of_the_evaluator_change_nothing() {
    for (name, n) in [("U1", &[3, 2][..]), ("U2", &[3, 2]), ("U2'", &[2])] {
        let built = build::<f32>(name, &request(4, n)).unwrap();
        let mut prompts = Vec::new();
        let (mut rng, mut prompt) = (seeded(3), Prompt::new());
        for _ in 0..40 {
            built.task().unwrap().prompt(&mut rng, &mut prompt);
            prompts.extend_from_slice(prompt.tokens());
        }
        // Random weights on top, so that answers are not all right and agreement means something.
        let mut shaken = built;
        for (index, value) in shaken.weights.flat_mut().iter_mut().enumerate() {
            if *value != 0.0 {
                *value *= 1.0 + 0.4 * ((index % 7) as f32 - 3.0) / 3.0;
            }
        }
        let fast = Answerer::new(&shaken).answer_last(&prompts, 40).unwrap();
        let slow = Answerer::without_shortcuts(&shaken).answer_last(&prompts, 40).unwrap();
        assert_eq!(fast, slow, "{name}");
    }
}

#[test]
fn only_what_must_run_on_all_tokens_does() {
    let front = |name: &str| {
        let built = build::<f32>(name, &request(4, &[2])).unwrap();
        Answerer::new(&built).layers_on_all_tokens()
    };
    assert_eq!([front("U1"), front("U2"), front("U2'")], [0, 0, 1]);
}

#[test]
fn thoughts_lead_to_the_answer() {
    for n in [&[][..], &[2], &[3, 2], &[1, 2, 3], &[2, 1, 1, 2]] {
        let built = build::<f32>("U3", &request(3, n)).unwrap();
        right(&built, 150);
        assert_eq!((built.model.depth(), built.chain_of_thought().unwrap().count), (1, n.len() + 2));
        for mixer in carry::names() {
            let built =
                build::<f32>("U6", &ConstructionRequest { mixer: Some(mixer.to_owned()), ..request(3, n) }).unwrap();
            right(&built, 60);
            assert_eq!((built.model.depth(), built.chain_of_thought().unwrap().count), (2, n.len() + 1));
        }
    }
}

#[test]
fn pointers_double() {
    for hops in 1..=16 {
        let n: Vec<u32> = (1..hops).map(|e| if e % 5 == 2 { 2 } else { 1 }).collect();
        for name in ["U4", "U4-causal"] {
            let built = build::<f32>(name, &request(2 + hops % 2, &n)).unwrap();
            assert_eq!(built.model.depth(), hops.ilog2() as usize + 2);
            right(&built, 60);
        }
    }
}

#[test]
fn two_sum_at_the_last_token_and_at_every_token() {
    for (length, modulus) in [(2, 2), (3, 5), (4, 6), (50, 64), (200, 4096)] {
        let request = ConstructionRequest { length, modulus, ..ConstructionRequest::default() };
        right(&build::<f32>("U5", &request).unwrap(), 300);
        if modulus > 2 * length as u32 {
            right(&build::<f32>("U5-all", &request).unwrap(), 50);
        }
    }
}

#[test]
fn recurrences_count_and_hybrids_retrieve() {
    for length in [1, 2, 9, 300] {
        let request = ConstructionRequest { length, ..ConstructionRequest::default() };
        right(&build::<f32>("parity", &request).unwrap(), 100);
        right(&build::<f32>("parity-retrieval", &request).unwrap(), 100);
    }
}

#[test]
fn small_tables_save_layers() {
    for n in [&[][..], &[2], &[2, 3]] {
        for mixer in [
            "linear",
            "linear{map=relu,normaliser=no}",
            "linear{map=identity}",
            "gla",
            "mamba2",
            "deltanet",
            "gdn",
            "rwkv6",
            "rwkv7",
            "deltaproduct",
            "loglinear-mamba2",
            "loglinear-gdn",
        ] {
            let request = ConstructionRequest { mixer: Some(mixer.to_owned()), ..request(5, n) };
            let built = build::<f32>("S2", &request).unwrap();
            assert_eq!(built.plan.full_layers(), n.len());
            right(&built, 150);
            if !n.is_empty() {
                let built = build::<f32>("S5", &ConstructionRequest { candidates: 4, ..request }).unwrap();
                assert_eq!(built.plan.full_layers(), n.len());
                right(&built, 150);
            }
        }
        let built = build::<f32>("S4", &request(5, n)).unwrap();
        assert_eq!(built.plan.full_layers(), n.len() + 1);
        right(&built, 300);
    }
    for (n, at) in [(&[2][..], 1), (&[3, 2], 1), (&[3, 2], 2), (&[2, 2, 3], 3)] {
        let request = ConstructionRequest { at: Some(at), ..request(3, n) };
        let built = build::<f32>("S3", &request).unwrap();
        assert_eq!(built.plan.full_layers(), n.len() + 1);
        right(&built, 200);
        if at > 1 {
            let built = build::<f32>("S3", &ConstructionRequest { mixer: Some("gdn".to_owned()), ..request }).unwrap();
            assert_eq!(built.plan.full_layers(), n.len());
            right(&built, 200);
        }
    }
}

#[test]
fn norms_are_borne() {
    for norm in [NormConfig::Rms, NormConfig::Layer] {
        for kind in KINDS {
            let request = ConstructionRequest { norm, ..request(4, &[2, 2]) };
            let built = build::<f32>(kind.name, &request).unwrap();
            assert_eq!(built.config.norm, norm);
            right(&built, 60);
        }
    }
}

#[test]
fn few_bits_suffice_and_fewer_do_not() {
    for name in ["U1", "U2", "U3", "U4", "U5", "parity"] {
        let mut built = build::<f32>(name, &request(4, &[2])).unwrap();
        let range = built.range().unwrap();
        let which = InstanceSet::Samples { count: 60, seed: 2 };
        let (bits, found) = built.fewest_bits(which, range, 2, &|_| {}).unwrap().expect("some number of bits");
        assert_eq!(found.correct, 60);
        assert!((2..=12).contains(&bits), "{name}: {bits} bits over {range}");
        built.set_precision(crate::precision::Precision::bits(bits - 1, range)).unwrap();
        assert!(verify(&built, which, 2, &|_| {}).unwrap().correct < 60, "{name}");
    }
}
