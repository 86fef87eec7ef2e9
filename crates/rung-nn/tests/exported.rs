//! Constructions as folders: written, read back, broken, and run by PyTorch.

use std::path::PathBuf;
use std::process::Command;

use rung_nn::Network;
use rung_nn::construct::{self, ConstructionRequest, InstanceSet, verify};
use rung_nn::network::files::CONSTRUCTION;

/// An empty folder of its own for each test.
fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn share(built: &Network<f32>) -> (u64, u64) {
    share_of(built, 200)
}

fn share_of(built: &Network<f32>, count: u64) -> (u64, u64) {
    let found = verify(built, InstanceSet::Samples { count, seed: 5 }, 2, &|_| {}).unwrap();
    (found.correct, found.instances)
}

#[test]
fn what_is_read_back_is_what_was_written() {
    let folder = scratch("round-trip");
    for kind in construct::KINDS {
        let request = ConstructionRequest { hops: 3, m: 4, n: vec![2, 2], ..ConstructionRequest::default() };
        let built = construct::build::<f32>(kind.name, &request).unwrap();
        built.save(&folder).unwrap();
        let read = Network::<f32>::open(&folder).unwrap();
        assert_eq!(
            (&read.provenance, &read.plan, &read.config),
            (&built.provenance, &built.plan, &built.config),
            "{}",
            kind.name
        );
        assert_eq!(read.weights.flat(), built.weights.flat());
        assert_eq!(share(&read), (200, 200), "{}", kind.name);
        let wide = Network::<f64>::open(&folder).unwrap();
        let found = verify(&wide, InstanceSet::Samples { count: 50, seed: 5 }, 1, &|_| {}).unwrap();
        assert_eq!(found.correct, 50, "{} in double precision", kind.name);
    }
}

#[test]
fn breaking_any_one_weight_breaks_the_answers() {
    for name in ["U1", "U3", "U4", "U5", "S4"] {
        let request = ConstructionRequest {
            hops: 2,
            m: 5,
            n: vec![3],
            length: 20,
            modulus: 32,
            ..ConstructionRequest::default()
        };
        let entries: Vec<String> = {
            let built = construct::build::<f32>(name, &request).unwrap();
            assert_eq!(share(&built), (200, 200));
            built.weights.entries().map(|(_, entry)| entry.name.clone()).collect()
        };
        for weight in entries {
            let mut built = construct::build::<f32>(name, &request).unwrap();
            let id = built.weights.find(&weight).unwrap();
            // The first field's ids that the prompt does not use may be all there is to break in it; this breaks all.
            built.weights.get_mut(id).fill(0.0);
            let (right, all) = share(&built);
            assert!(right < all, "{name}: without {weight} all {all} answers are still right");
        }
    }
}

/// A norm may undo the loss of a factor, two signs may undo each other, and a positive feature map hardly sees one: so it is asked
/// only that answers go wrong without a carrier's matrix, with it turned over, or with it turned over and large. A matrix of zeros
/// has nothing to break.
#[test]
fn breaking_any_one_matrix_of_a_carrier_breaks_the_answers() {
    for mixer in construct::carry::names() {
        for name in ["U2", "U2'"] {
            let request = ConstructionRequest {
                mixer: Some(mixer.to_owned()),
                hops: 2,
                m: 5,
                n: vec![3],
                ..ConstructionRequest::default()
            };
            let mut built = construct::build::<f32>(name, &request).unwrap();
            let whole = built.weights.flat().to_vec();
            let entries: Vec<_> = built.weights.entries().map(|(_, entry)| entry.clone()).collect();
            // Without floors set low, states are smaller: that matters at few bits per number only.
            let matrices = entries.iter().filter(|entry| entry.name != "lower_bounds").filter(|entry| {
                entry.shape.len() > 1 && whole[entry.range.clone()].iter().any(|number| *number != 0.0)
            });
            let mut broken = 0;
            for entry in matrices {
                let survives = [0.0, -1.0, -100.0].into_iter().all(|factor| {
                    built.weights.flat_mut().copy_from_slice(&whole);
                    built.weights.flat_mut()[entry.range.clone()].iter_mut().for_each(|number| *number *= factor);
                    let (right, all) = share_of(&built, 50);
                    right == all
                });
                assert!(!survives, "{name} of {mixer}: {} does not matter", entry.name);
                broken += usize::from(entry.name.contains(".mixer."));
            }
            // Four of each full layer's, and two of the carrier's at least.
            assert!(broken >= 4 * (built.plan.full_layers()) + 2, "{name} of {mixer}: {broken} matrices");
        }
    }
}

#[test]
fn hostile_descriptions_are_refused() {
    let folder = scratch("hostile");
    let request = ConstructionRequest { hops: 2, m: 3, n: vec![2], ..ConstructionRequest::default() };
    construct::build::<f32>("U3", &request).unwrap().save(&folder).unwrap();
    let path = folder.join(CONSTRUCTION);
    let good: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for (pointer, value, expected) in [
        ("/format", "2", "`format` is 2"),
        ("/task", "\"funccomp{hops=99}\"", "99"),
        ("/stack", "\"full*3000000000\"", "layers"),
        ("/stack", "\"compressed\"", "no network"),
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
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = serde_json::from_str(value).unwrap();
        std::fs::write(&path, bad.to_string()).unwrap();
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
    let request = ConstructionRequest { hops: 3, m: 4, n: vec![3, 2], ..ConstructionRequest::default() };
    let built = construct::build::<f32>("U1", &request).unwrap();
    built.save(&folder).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/verify_construction.py");
    let run = || Command::new(&python).arg(script).arg(&folder).arg("100").output().unwrap();
    let output = run();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("100 of 100 right"), "{text}");
    // It can fail.
    let mut broken = built;
    let id = broken.weights.find("layers.1.mixer.k_proj.weight").unwrap();
    broken.weights.get_mut(id).fill(0.0);
    broken.save(&folder).unwrap();
    assert!(!run().status.success());
}
