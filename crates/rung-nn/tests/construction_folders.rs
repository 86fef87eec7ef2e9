//! Folders of constructions: saved, opened, opened with invalid content, and run by PyTorch.

use std::path::PathBuf;
use std::process::Command;

use rung_nn::Network;
use rung_nn::construct::{self, ConstructionRequest, InstanceSet, verify};
use rung_nn::network::files::CONSTRUCTION;

/// An empty folder for one test.
fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn count_right(network: &Network<f32>) -> (u64, u64) {
    count_right_of(network, 200)
}

fn count_right_of(network: &Network<f32>, count: u64) -> (u64, u64) {
    let verification = verify(network, InstanceSet::Samples { count, seed: 5 }, 2, &|_| {}).unwrap();
    (verification.correct, verification.instances)
}

#[test]
fn saved_constructions_open_unchanged_and_answer_right() {
    let folder = scratch("round-trip");
    for kind in construct::KINDS {
        let request = ConstructionRequest {
            hops: 3,
            first_table_entries: 4,
            growth_factors: vec![2, 2],
            ..ConstructionRequest::default()
        };
        let network = construct::build::<f32>(kind.name, &request).unwrap();
        network.save(&folder).unwrap();
        let opened = Network::<f32>::open(&folder).unwrap();
        assert_eq!(
            (&opened.provenance, &opened.plan, &opened.config),
            (&network.provenance, &network.plan, &network.config),
            "{}",
            kind.name
        );
        assert_eq!(opened.weights.flat(), network.weights.flat());
        assert_eq!(count_right(&opened), (200, 200), "{}", kind.name);
        let double = Network::<f64>::open(&folder).unwrap();
        let verification = verify(&double, InstanceSet::Samples { count: 50, seed: 5 }, 1, &|_| {}).unwrap();
        assert_eq!(verification.correct, 50, "{} in double precision", kind.name);
    }
}

#[test]
fn zeroing_any_one_weight_gives_wrong_answers() {
    for name in ["U1", "U3", "U4", "U5", "S4"] {
        let request = ConstructionRequest {
            hops: 2,
            first_table_entries: 5,
            growth_factors: vec![3],
            length: 20,
            modulus: 32,
            ..ConstructionRequest::default()
        };
        let entries: Vec<String> = {
            let network = construct::build::<f32>(name, &request).unwrap();
            assert_eq!(count_right(&network), (200, 200));
            network.weights.entries().map(|(_, entry)| entry.name.clone()).collect()
        };
        for weight in entries {
            let mut network = construct::build::<f32>(name, &request).unwrap();
            let id = network.weights.find(&weight).unwrap();
            // Zero all rows: some rows belong to ids that no prompt uses.
            network.weights.get_mut(id).fill(0.0);
            let (right, total) = count_right(&network);
            assert!(right < total, "{name}: without {weight} all {total} answers are still right");
        }
    }
}

/// A norm may undo a change of scale, two changes of sign may cancel, and a positive feature map is nearly insensitive to sign. So each
/// matrix of a forwarding layer is zeroed, negated, and negated and enlarged: at least one of these must give wrong answers. Matrices of
/// zeros are left out.
#[test]
fn changing_any_one_matrix_of_a_forwarding_layer_gives_wrong_answers() {
    for mixer in construct::forwarding::names() {
        for name in ["U2", "U2'"] {
            let request = ConstructionRequest {
                mixer: Some(mixer.to_owned()),
                hops: 2,
                first_table_entries: 5,
                growth_factors: vec![3],
                ..ConstructionRequest::default()
            };
            let mut network = construct::build::<f32>(name, &request).unwrap();
            let original = network.weights.flat().to_vec();
            let entries: Vec<_> = network.weights.entries().map(|(_, entry)| entry.clone()).collect();
            // HGRN2's lower bounds only change how large the state is, which matters at few bits per element only.
            let matrices = entries.iter().filter(|entry| entry.name != "lower_bounds").filter(|entry| {
                entry.shape.len() > 1 && original[entry.range.clone()].iter().any(|number| *number != 0.0)
            });
            let mut mixer_matrices = 0;
            for entry in matrices {
                let all_right = [0.0, -1.0, -100.0].into_iter().all(|factor| {
                    network.weights.flat_mut().copy_from_slice(&original);
                    network.weights.flat_mut()[entry.range.clone()].iter_mut().for_each(|number| *number *= factor);
                    let (right, total) = count_right_of(&network, 50);
                    right == total
                });
                assert!(!all_right, "{name} of {mixer}: {} does not matter", entry.name);
                mixer_matrices += usize::from(entry.name.contains(".mixer."));
            }
            // Four for each full-attention layer, and at least two for the forwarding layer.
            assert!(
                mixer_matrices >= 4 * network.plan.full_layers() + 2,
                "{name} of {mixer}: {mixer_matrices} matrices"
            );
        }
    }
}

#[test]
fn invalid_descriptions_are_rejected_by_field() {
    let folder = scratch("invalid");
    let request = ConstructionRequest {
        hops: 2,
        first_table_entries: 3,
        growth_factors: vec![2],
        ..ConstructionRequest::default()
    };
    construct::build::<f32>("U3", &request).unwrap().save(&folder).unwrap();
    let path = folder.join(CONSTRUCTION);
    let valid: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for (pointer, value, expected) in [
        ("/format", "2", "`format` is 2"),
        ("/task", "\"funccomp{hops=99}\"", "99"),
        ("/stack", "\"full*3000000000\"", "layers"),
        ("/stack", "\"compressed\"", "not implemented"),
        ("/layers", "[]", "`layers`"),
        ("/model/width", "3", "`registers`"),
        ("/model/width", "9999999999", "width"),
        ("/model/classes", "1", "`model.classes`"),
        ("/model/norm", "\"batch\"", "`model.norm`"),
        ("/model/hidden", "0", "hidden"),
        ("/model/chunk", "0", "chunk"),
        ("/model/fields", "[]", "`model.fields`"),
        ("/model/hidden", "1", "shape"),
        ("/thoughts/count", "99999999", "`model.classes`"),
        ("/thoughts/fields", "[0,5,4,3,2]", "`model.classes`"),
        ("/registers/0/start", "7", "`registers`"),
        ("/registers", "7", "construction.json"),
    ] {
        let mut changed = valid.clone();
        *changed.pointer_mut(pointer).unwrap() = serde_json::from_str(value).unwrap();
        std::fs::write(&path, changed.to_string()).unwrap();
        let error = Network::<f32>::open(&folder).err().unwrap_or_else(|| panic!("{pointer} = {value} was read"));
        assert!(error.to_string().contains(expected), "{pointer} = {value}: {error}");
    }
    std::fs::write(&path, "{").unwrap();
    assert!(Network::<f32>::open(&folder).is_err());
    assert!(Network::<f32>::open(&folder.join("nowhere")).is_err());
}

#[test]
fn pytorch_gives_the_same_answers() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let torch = Command::new(&python).args(["-c", "import torch"]).output();
    if !torch.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no torch; set PYTHON to one that has");
        return;
    }
    let folder = scratch("pytorch");
    let request = ConstructionRequest {
        hops: 3,
        first_table_entries: 4,
        growth_factors: vec![3, 2],
        ..ConstructionRequest::default()
    };
    let network = construct::build::<f32>("U1", &request).unwrap();
    network.save(&folder).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/verify_construction.py");
    let run = || Command::new(&python).arg(script).arg(&folder).arg("100").output().unwrap();
    let output = run();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("100 of 100 right"), "{text}");
    // The script reports wrong answers as a failure.
    let mut broken = network;
    let id = broken.weights.find("layers.1.mixer.k_proj.weight").unwrap();
    broken.weights.get_mut(id).fill(0.0);
    broken.save(&folder).unwrap();
    assert!(!run().status.success());
}
