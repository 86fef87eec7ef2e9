//! Networks for Python: forward passes and weights as arrays.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::thread;

use pyo3::prelude::*;
use rung_engine::{Native, Ops as _, Parameters};
use rung_nn::model::InputConfig;
use rung_nn::network::Provenance;
use rung_nn::{Network as RungNetwork, checkpoint};

use crate::array::{Array, ids_from_bytes, weights_from_bytes};
use crate::error::without_gil;

/// An opened network.
#[pyclass(frozen, module = "rung._native")]
pub struct Network {
    network: RwLock<RungNetwork<f32>>,
}

impl Network {
    /// Calls `read` with the locked network.
    fn read_network<T>(&self, read: impl FnOnce(&RungNetwork<f32>) -> T) -> T {
        read(&self.network.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Names and vocabulary sizes of the ids of a token.
fn token_fields(network: &RungNetwork<f32>) -> Vec<(String, u32)> {
    match &network.config.input {
        InputConfig::Vocabulary(size) => vec![("token".to_owned(), *size as u32)],
        InputConfig::Fields(fields) => fields.iter().map(|field| (field.name.clone(), field.vocabulary)).collect(),
    }
}

#[pymethods]
impl Network {
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let network = without_gil(py, || RungNetwork::open(&path))?;
        Ok(Self { network: RwLock::new(network) })
    }

    /// The network's name.
    #[getter]
    fn name(&self) -> String {
        self.read_network(|network| network.name.clone())
    }

    /// Where the network comes from: construction, run, checkpoint, or program (built in memory).
    #[getter]
    fn source(&self) -> &'static str {
        self.read_network(|network| match network.provenance {
            Provenance::Construction(_) => "construction",
            Provenance::Run(_) => "run",
            Provenance::Checkpoint { .. } => "checkpoint",
            Provenance::InMemory => "program",
        })
    }

    /// Its layers in the stack grammar, with all sizes.
    #[getter]
    fn stack(&self) -> String {
        self.read_network(|network| network.plan.to_stack().to_string())
    }

    /// The spec of its task, if it has one.
    #[getter]
    fn task(&self) -> Option<String> {
        self.read_network(|network| network.task.as_ref().map(|task| task.spec()))
    }

    /// Number of classes: the width of the logits.
    #[getter]
    fn classes(&self) -> usize {
        self.read_network(|network| network.model.classes())
    }

    /// Names and vocabulary sizes of the ids of a token.
    #[getter]
    fn fields(&self) -> Vec<(String, u32)> {
        self.read_network(token_fields)
    }

    /// Logits after every token of `batch` concatenated sequences.
    fn forward(&self, py: Python<'_>, id_bytes: &[u8], batch: usize) -> PyResult<Array> {
        let ids = ids_from_bytes(id_bytes);
        let (logits, classes) = without_gil(py, || {
            self.read_network(|network| {
                let ids_per_token = token_fields(network).len();
                if batch == 0 || ids.is_empty() || !ids.len().is_multiple_of(batch * ids_per_token) {
                    let found = ids.len();
                    return Err(format!(
                        "ids: found {found}, expected {batch} sequences of tokens of {ids_per_token} ids"
                    ));
                }
                let ops = Native::with_threads(thread::available_parallelism().map_or(1, usize::from));
                ops.bind_frozen(&network.weights);
                let pass = network.model.forward(&ops, &ids, batch, None);
                let (hidden, _) = pass.map_err(|error| error.to_string())?;
                Ok((ops.values(&network.model.logits(&ops, &hidden)), network.model.classes()))
            })
        })?;
        let length = logits.len() / (batch * classes.max(1));
        Ok(Array::new(logits, vec![batch, length, classes]))
    }

    /// Every weight array with its name in checkpoints.
    fn weights(&self, py: Python<'_>) -> PyResult<Vec<(String, Array)>> {
        // Cloning the parameters is cheap (copy on write); only the arrays below are real copies.
        let parameters: Parameters<f32> = self.read_network(|network| network.weights.clone());
        let array = |(id, entry): (_, &rung_engine::ParameterEntry)| {
            (entry.name.clone(), Array::new(parameters.get(id).to_vec(), entry.shape.to_vec()))
        };
        without_gil(py, || Ok::<_, String>(parameters.entries().map(array).collect()))
    }

    /// Replaces weights, each given as name, shape and bytes.
    fn set_weights(&self, py: Python<'_>, new_weights: Vec<(String, Vec<usize>, Vec<u8>)>) -> PyResult<()> {
        without_gil(py, || {
            let mut network = self.network.write().unwrap_or_else(PoisonError::into_inner);
            let mut checked_values = Vec::with_capacity(new_weights.len());
            for (name, shape, bytes) in &new_weights {
                let Some(id) = network.weights.find(name) else {
                    return Err(format!("there is no weight `{name}`"));
                };
                let expected = network.weights.entry(id).shape.to_vec();
                let values = weights_from_bytes(bytes);
                if *shape != expected || values.len() != expected.iter().product::<usize>() {
                    return Err(format!("`{name}`: found shape {shape:?}, expected {expected:?}"));
                }
                checked_values.push((id, values));
            }
            // Weights are written only after all were checked, so that an error changes nothing.
            for (id, values) in checked_values {
                network.weights.get_mut(id).copy_from_slice(&values);
            }
            Ok(())
        })
    }

    /// Writes a folder in the format of a construction or of a run, whichever the network is. External checkpoints and networks built in
    /// memory cannot be saved.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        without_gil(py, || self.read_network(|network| network.save(&folder)))
    }

    /// Writes only the weights, as safetensors.
    fn save_weights(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        without_gil(py, || self.read_network(|network| checkpoint::save(&path, &network.weights)))
    }

    /// Replaces all weights by those of a file with the same names and shapes.
    fn load_weights(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        without_gil(py, || {
            let mut network = self.network.write().unwrap_or_else(PoisonError::into_inner);
            checkpoint::load(&path, &mut network.weights)
        })
    }
}
