//! Outputs and gradients of every mixer are compared with a second implementation.
//!
//! `fixtures/make.py` has a PyTorch implementation of each mixer, written from its definition, and stores its weights, inputs, outputs and
//! gradients. The tests run the Rust mixer on the same weights and inputs, in both precisions, for every file in the folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rung_engine::{Native, Ops, Parameters, Scalar};
use rung_nn::{BuildSettings, Builtin, LayerDepth, ParamBuilder, Positions, SharedTensor, State, TokenMixer, mixer};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::seeded;
use safetensors::SafeTensors;

/// The fixture files, sorted by name.
fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "safetensors")).collect();
    files.sort();
    files
}

/// One fixture file.
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
        let integer = |name: &str, default: usize| metadata.get(name).map_or(default, |text| text.parse().unwrap());
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

    /// Compares with a stored tensor; the tolerance is relative to its largest number.
    fn check<S: Scalar>(&self, name: &str, actual: &[S], tolerance: f64) {
        let expected = self.values(name);
        assert_eq!(actual.len(), expected.len(), "{}: {name}", self.file);
        let largest = expected.iter().fold(1e-3_f64, |largest, value| largest.max(value.abs()));
        for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
            let actual = actual.to_f64();
            let is_close = (actual - expected).abs() <= tolerance * largest;
            assert!(is_close, "{}: {name}, number {index} is {actual}, expected {expected}", self.file);
        }
    }

    /// Runs the mixer on the stored weights and compares outputs and gradients.
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
        // The values that a layer shares with later ones are stored beside the weights, the same for every sequence of the batch.
        let reads_shared = self.tensors.names().contains(&"weight.first");
        let build = if reads_shared { Builtin::init_with_shared_tensor } else { Builtin::init };
        let mixer = build(mixer, &mut params).unwrap_or_else(|error| panic!("{}: {error}", self.file));
        let shared_values = reads_shared.then(|| {
            let shape = self.shape("weight.first");
            weights.add("first", &shape, vec![S::ZERO; shape.iter().product()]).id()
        });

        let built_names: BTreeSet<String> =
            weights.entries().map(|(_, entry)| format!("weight.{}", entry.name)).collect();
        let stored_names = self.tensors.names().into_iter().filter(|name| name.starts_with("weight."));
        assert_eq!(built_names, stored_names.map(str::to_owned).collect(), "{}: names of weights", self.file);
        let ids: Vec<_> = weights.entries().map(|(id, entry)| (id, entry.name.clone(), entry.shape.to_vec())).collect();
        for (id, name, extents) in &ids {
            assert_eq!(*extents, self.shape(&format!("weight.{name}")), "{}: {name}", self.file);
            weights.get_mut(*id).copy_from_slice(&cast(self.values(&format!("weight.{name}"))));
        }
        let input = weights.add("input", &shape, cast(self.values("input"))).id();

        let ops = Native::new();
        ops.bind(&weights);
        let shared = shared_values.map(|id| {
            let values = ops.parameter(id);
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
fn outputs_and_gradients_equal_those_of_pytorch() {
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
    let mut tested = BTreeSet::new();
    for path in fixtures() {
        let bytes = fs::read(&path).unwrap();
        tested.insert(Case::read(&path, &bytes).plan(10).layers[0].mixers[0].name());
    }
    let missing: Vec<_> = mixer::NAMES.iter().filter(|name| **name != "none" && !tested.contains(*name)).collect();
    assert!(missing.is_empty(), "no fixture for {missing:?}");
}
