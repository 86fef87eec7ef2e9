//! Every construction is built and its answers are compared with the oracle's.

use rung_theory::task::{Prompt, seeded};

use super::*;

fn request(m: u32, n: &[u32]) -> ConstructionRequest {
    ConstructionRequest {
        hops: n.len() + 1,
        first_table_entries: m,
        growth_factors: n.to_vec(),
        ..ConstructionRequest::default()
    }
}

/// Verifies all instances if there are at most 5,000, else `samples` random ones.
fn verify_some<S: Scalar>(network: &Network<S>, samples: u64) -> Verification {
    let few = network.task().unwrap().instance_count().is_some_and(|count| count <= 5_000);
    let instances = if few { InstanceSet::All } else { InstanceSet::Samples { count: samples, seed: 7 } };
    verify(network, instances, 2, &|_| {}).unwrap()
}

#[track_caller]
fn assert_all_correct<S: Scalar>(network: &Network<S>, samples: u64) {
    let verification = verify_some(network, samples);
    assert_eq!(
        verification.correct,
        verification.instances,
        "{} on {}: {:?}",
        network.name,
        network.task().unwrap(),
        verification.wrong
    );
}

#[test]
fn u1_composes_up_to_six_tables() {
    for (m, n) in
        [(2, &[][..]), (5, &[]), (2, &[2]), (3, &[3]), (5, &[2, 3]), (3, &[2, 2, 2]), (2, &[1; 4]), (2, &[2; 5])]
    {
        let network = build::<f32>("U1", &request(m, n)).unwrap();
        assert_all_correct(&network, 600);
        assert_eq!(network.plan.layers.len(), n.len() + 2);
        assert_all_correct(&build::<f64>("U1", &request(m, n)).unwrap(), 100);
    }
}

#[test]
fn every_forwarding_mixer_copies_z_0_in_u2_and_u2_prime() {
    let linear_variants =
        ["linear{map=relu}", "linear{map=identity}", "linear{normaliser=no}", "linear{map=relu,normaliser=no,key=3}"];
    let with_sizes = [
        "deltanet{conv=0,negative=yes,heads=2,value=3}",
        "gdn{heads=1,value-heads=2,value=5}",
        "window{size=5,heads=4,kv=2,value=1}",
        "rwkv7{heads=2,head=3,rank=2}",
        "rwkv6{heads=2,head=5}",
        "fastmax{heads=3,key=2,value=2}",
        "deltaproduct{conv=0,negative=no,gate=no,steps=3,heads=2,value-heads=2,value=3}",
    ];
    for mixer in forwarding::names()
        .chain(linear_variants)
        .chain(with_sizes)
        .chain(["mamba2{heads=3,head=2,groups=1,state=4}", "conv{taps=2,channels=9}"])
    {
        for construction in ["U2", "U2'"] {
            for n in [&[][..], &[2], &[2, 2]] {
                let request = ConstructionRequest { mixer: Some(mixer.to_owned()), ..request(3, n) };
                assert_all_correct(&build::<f32>(construction, &request).unwrap(), 300);
            }
        }
    }
}

/// The tables are so small that every instance can be run.
#[test]
fn every_instance_of_small_tables_is_answered_right() {
    let constructions =
        [("U1", None), ("U2", Some("gdn")), ("U2", Some("rwkv7")), ("U2'", Some("linear")), ("U2'", Some("rwkv7"))];
    let sizes = [(4, &[][..], 1_024), (2, &[2], 4_096), (2, &[1, 1, 1], 512)];
    let cases = constructions.into_iter().flat_map(|construction| sizes.map(|size| (construction, size)));
    for ((name, mixer), (m, n, count)) in cases.chain([(("U2'", Some("gdn")), (3, &[1, 1][..], 59_049))]) {
        let request = ConstructionRequest { mixer: mixer.map(str::to_owned), ..request(m, n) };
        let network = build::<f32>(name, &request).unwrap();
        let verification = verify(&network, InstanceSet::All, 2, &|_| {}).unwrap();
        assert_eq!(
            (verification.instances, verification.correct),
            (count, count),
            "{name} of {mixer:?}: {:?}",
            verification.wrong
        );
    }
}

#[test]
fn answers_are_the_same_with_and_without_shortcuts() {
    for (name, n) in [("U1", &[3, 2][..]), ("U2", &[3, 2]), ("U2'", &[2])] {
        let network = build::<f32>(name, &request(4, n)).unwrap();
        let mut prompts = Vec::new();
        let (mut rng, mut prompt) = (seeded(3), Prompt::new());
        for _ in 0..40 {
            network.task().unwrap().sample_prompt(&mut rng, &mut prompt);
            prompts.extend_from_slice(prompt.tokens());
        }
        // Perturbed weights, so that some answers are wrong and the comparison can fail.
        let mut perturbed = network;
        for (index, value) in perturbed.weights.flat_mut().iter_mut().enumerate() {
            if *value != 0.0 {
                *value *= 1.0 + 0.4 * ((index % 7) as f32 - 3.0) / 3.0;
            }
        }
        let fast = Answerer::new(&perturbed).answer_last(&prompts, 40).unwrap();
        let slow = Answerer::with_full_forward_pass(&perturbed).answer_last(&prompts, 40).unwrap();
        assert_eq!(fast, slow, "{name}");
    }
}

#[test]
fn layers_on_all_tokens_are_those_whose_state_reads_earlier_layers() {
    let layer_count = |name: &str| {
        let network = build::<f32>(name, &request(4, &[2])).unwrap();
        Answerer::new(&network).layers_on_all_tokens()
    };
    assert_eq!([layer_count("U1"), layer_count("U2"), layer_count("U2'")], [0, 0, 1]);
}

#[test]
fn u3_and_u6_answer_after_their_chain_of_thought() {
    for n in [&[][..], &[2], &[3, 2], &[1, 2, 3], &[2, 1, 1, 2]] {
        let network = build::<f32>("U3", &request(3, n)).unwrap();
        assert_all_correct(&network, 150);
        assert_eq!((network.model.depth(), network.chain_of_thought().unwrap().emitted_tokens), (1, n.len() + 2));
        for mixer in forwarding::names() {
            let network =
                build::<f32>("U6", &ConstructionRequest { mixer: Some(mixer.to_owned()), ..request(3, n) }).unwrap();
            assert_all_correct(&network, 60);
            assert_eq!((network.model.depth(), network.chain_of_thought().unwrap().emitted_tokens), (2, n.len() + 1));
        }
    }
}

#[test]
fn u4_needs_a_logarithmic_number_of_layers() {
    for hops in 1..=16 {
        let n: Vec<u32> = (1..hops).map(|e| if e % 5 == 2 { 2 } else { 1 }).collect();
        for name in ["U4", "U4-causal"] {
            let network = build::<f32>(name, &request(2 + hops % 2, &n)).unwrap();
            assert_eq!(network.model.depth(), hops.ilog2() as usize + 2);
            assert_all_correct(&network, 60);
        }
    }
}

#[test]
fn u5_solves_two_sum_at_the_last_token_and_at_every_token() {
    for (length, modulus) in [(2, 2), (3, 5), (4, 6), (50, 64), (200, 4096)] {
        let request = ConstructionRequest { length, modulus, ..ConstructionRequest::default() };
        assert_all_correct(&build::<f32>("U5", &request).unwrap(), 300);
        if modulus > 2 * length as u32 {
            assert_all_correct(&build::<f32>("U5-all", &request).unwrap(), 50);
        }
    }
}

#[test]
fn parity_and_parity_retrieval_are_solved_at_every_length() {
    for length in [1, 2, 9, 300] {
        let request = ConstructionRequest { length, ..ConstructionRequest::default() };
        assert_all_correct(&build::<f32>("parity", &request).unwrap(), 100);
        assert_all_correct(&build::<f32>("parity-retrieval", &request).unwrap(), 100);
    }
}

#[test]
fn s2_to_s5_save_layers_on_small_tables() {
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
            let network = build::<f32>("S2", &request).unwrap();
            assert_eq!(network.plan.full_layers(), n.len());
            assert_all_correct(&network, 150);
            if !n.is_empty() {
                let network = build::<f32>("S5", &ConstructionRequest { candidates: 4, ..request }).unwrap();
                assert_eq!(network.plan.full_layers(), n.len());
                assert_all_correct(&network, 150);
            }
        }
        let network = build::<f32>("S4", &request(5, n)).unwrap();
        assert_eq!(network.plan.full_layers(), n.len() + 1);
        assert_all_correct(&network, 300);
    }
    for (n, prefetch_hop) in [(&[2][..], 1), (&[3, 2], 1), (&[3, 2], 2), (&[2, 2, 3], 3)] {
        let request = ConstructionRequest { prefetch_hop: Some(prefetch_hop), ..request(3, n) };
        let network = build::<f32>("S3", &request).unwrap();
        assert_eq!(network.plan.full_layers(), n.len() + 1);
        assert_all_correct(&network, 200);
        if prefetch_hop > 1 {
            let network =
                build::<f32>("S3", &ConstructionRequest { mixer: Some("gdn".to_owned()), ..request }).unwrap();
            assert_eq!(network.plan.full_layers(), n.len());
            assert_all_correct(&network, 200);
        }
    }
}

#[test]
fn every_construction_works_with_norms() {
    for norm in [NormConfig::Rms, NormConfig::Layer] {
        for kind in KINDS {
            let request = ConstructionRequest { norm, ..request(4, &[2, 2]) };
            let network = build::<f32>(kind.name, &request).unwrap();
            assert_eq!(network.config.norm, norm);
            assert_all_correct(&network, 60);
        }
    }
}

#[test]
fn fewest_bits_are_at_most_twelve_and_one_fewer_fails() {
    for name in ["U1", "U2", "U3", "U4", "U5", "parity"] {
        let mut network = build::<f32>(name, &request(4, &[2])).unwrap();
        let range = network.number_range().unwrap();
        let instances = InstanceSet::Samples { count: 60, seed: 2 };
        let (bits, verification) =
            network.find_fewest_bits(instances, range, 2, &|_| {}).unwrap().expect("some number of bits");
        assert_eq!(verification.correct, 60);
        assert!((2..=12).contains(&bits), "{name}: {bits} bits over {range}");
        network.set_precision(crate::precision::SimulatedPrecision::bits(bits - 1, range)).unwrap();
        assert!(verify(&network, instances, 2, &|_| {}).unwrap().correct < 60, "{name}");
    }
}
