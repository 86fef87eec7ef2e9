//! Outputs and gradients of every mixer against a second implementation.
//!
//! `fixtures/make.py` holds a second implementation of each mixer, written from its definition in another language, and stores
//! what it computes. Here the same weights and the same input go through the network, in both precisions. The folder is the
//! table: whatever file is there is checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rung_engine::{Native, Ops, Parameters, Scalar};
use rung_nn::{BuildSettings, Builtin, LayerDepth, ParamBuilder, Positions, SharedTensor, State, TokenMixer, mixer};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::seeded;
use safetensors::SafeTensors;

/// The files, by name.
fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "safetensors")).collect();
    files.sort();
    files
}

/// A stored case.
struct Case<'a> {
    file: String,
    tensors: SafeTensors<'a>,
    mixer: String,
    positions: Positions,
    causal: bool,
    depth: LayerDepth,
}

impl<'a> Case<'a> {
    fn read(path: &Path, bytes: &'a [u8]) -> Self {
        let metadata = SafeTensors::read_metadata(bytes).unwrap().1.metadata().clone().unwrap();
        let positions = match metadata["positions"].as_str() {
            "none" => Positions::None,
            "rotary" => Positions::Rotary { base: 100.0 },
            "alibi" => Positions::Alibi,
            other => panic!("{}: positions {other}", path.display()),
        };
        let integer = |name: &str, otherwise: usize| metadata.get(name).map_or(otherwise, |text| text.parse().unwrap());
        Self {
            file: path.file_stem().unwrap().to_string_lossy().into_owned(),
            tensors: SafeTensors::deserialize(bytes).unwrap(),
            mixer: metadata["mixer"].clone(),
            positions,
            causal: metadata["causal"] == "yes",
            depth: LayerDepth { layer: integer("layer", 0), layers: integer("layers", 1) },
        }
    }

    fn shape(&self, name: &str) -> Vec<usize> {
        self.tensors.tensor(name).unwrap().shape().to_vec()
    }

    fn values(&self, name: &str) -> Vec<f64> {
        let tensor = self.tensors.tensor(name).unwrap_or_else(|_| panic!("{}: no tensor {name}", self.file));
        assert_eq!(tensor.dtype(), safetensors::Dtype::F64);
        tensor.data().as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
    }

    fn plan(&self, width: usize) -> Plan {
        let defaults = Defaults { model_width: Some(width as u64), ..Defaults::default() };
        Plan::parse(&self.mixer, &defaults).unwrap_or_else(|error| panic!("{}: {error}", self.file))
    }

    /// Compares with a tolerance relative to the largest number expected.
    fn check<S: Scalar>(&self, name: &str, found: &[S], tolerance: f64) {
        let expected = self.values(name);
        assert_eq!(found.len(), expected.len(), "{}: {name}", self.file);
        let size = expected.iter().fold(1e-3_f64, |size, value| size.max(value.abs()));
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            let found = found.to_f64();
            let near = (found - expected).abs() <= tolerance * size;
            assert!(near, "{}: {name}, number {index} is {found}, expected {expected}", self.file);
        }
    }

    /// Runs the network on the stored weights and compares everything.
    fn run<S: Scalar>(&self, tolerance: f64) {
        let cast = |values: Vec<f64>| -> Vec<S> { values.into_iter().map(S::from_f64).collect() };
        let shape = self.shape("input");
        let width = shape[2];
        let settings = BuildSettings {
            width,
            chunk: 4,
            positions: self.positions,
            causal: self.causal,
            ..BuildSettings::default()
        };
        let mut weights = Parameters::<S>::new();
        let mixer = &self.plan(width).layers[0].mixers[0];
        let mut rng = seeded(0);
        let mut params = ParamBuilder::new(settings, &mut weights, &mut rng);
        params.depth = self.depth;
        // A layer that reads shared values has them stored beside its weights, the same for every row of the batch.
        let reads_shared = self.tensors.names().contains(&"weight.first");
        let build = if reads_shared { Builtin::init_reader } else { Builtin::init };
        let mixer = build(mixer, &mut params).unwrap_or_else(|error| panic!("{}: {error}", self.file));
        let first = reads_shared.then(|| {
            let shape = self.shape("weight.first");
            weights.add("first", &shape, vec![S::ZERO; shape.iter().product()]).id()
        });

        let ours: BTreeSet<String> = weights.entries().map(|(_, entry)| format!("weight.{}", entry.name)).collect();
        let stored = self.tensors.names().into_iter().filter(|name| name.starts_with("weight."));
        assert_eq!(ours, stored.map(str::to_owned).collect(), "{}: names of weights", self.file);
        let ids: Vec<_> = weights.entries().map(|(id, entry)| (id, entry.name.clone(), entry.shape.to_vec())).collect();
        for (id, name, extents) in &ids {
            assert_eq!(*extents, self.shape(&format!("weight.{name}")), "{}: {name}", self.file);
            weights.get_mut(*id).copy_from_slice(&cast(self.values(&format!("weight.{name}"))));
        }
        let input = weights.add("input", &shape, cast(self.values("input"))).id();

        let ops = Native::new();
        ops.bind(&weights);
        let shared = first.map(|first| {
            let values = ops.parameter(first);
            let extents = [&shape[..1], &ops.shape(&values)[..]].concat();
            SharedTensor::Values(ops.broadcast(&values, &extents))
        });
        let state = shared.map(|shared| State { shared: Some(shared), ..State::new(0, []) });
        let (output, _) = mixer.forward(&ops, &ops.parameter(input), state.as_ref());
        self.check("output", &ops.values(&output), tolerance);
        let probe = ops.constant(&shape, &cast(self.values("probe")));
        ops.backward(&ops.sum_all(&ops.mul(&output, &probe)));
        let gradient = ops.gradient();
        for (_, entry) in weights.entries() {
            self.check(&format!("gradient.{}", entry.name), &gradient[entry.range.clone()], tolerance);
        }
    }
}

#[test]
fn outputs_and_gradients_are_those_of_another_implementation() {
    for path in fixtures() {
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() < 60_000, "{} is large for a fixture", path.display());
        let case = Case::read(&path, &bytes);
        case.run::<f64>(1e-12);
        case.run::<f32>(2e-5);
    }
}

#[test]
fn every_mixer_that_has_weights_has_a_fixture() {
    let mut known = BTreeSet::new();
    for path in fixtures() {
        let bytes = fs::read(&path).unwrap();
        known.insert(Case::read(&path, &bytes).plan(10).layers[0].mixers[0].name());
    }
    let missing: Vec<_> = mixer::NAMES.iter().filter(|name| **name != "none" && !known.contains(*name)).collect();
    assert!(missing.is_empty(), "no fixture for {missing:?}");
}
