//! Networks: a forward pass and weights as arrays.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::thread;

use pyo3::prelude::*;
use rung_engine::{Native, Ops as _, Parameters};
use rung_nn::model::InputConfig;
use rung_nn::network::Provenance;
use rung_nn::{Network as RungNetwork, checkpoint};

use crate::array::{Array, ids, weights};
use crate::error::without_lock;

/// A network that was opened.
#[pyclass(frozen, module = "rung._native")]
pub struct Network {
    network: RwLock<RungNetwork<f32>>,
}

impl Network {
    fn with<T>(&self, read: impl FnOnce(&RungNetwork<f32>) -> T) -> T {
        read(&self.network.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn fields(network: &RungNetwork<f32>) -> Vec<(String, u32)> {
    match &network.config.input {
        InputConfig::Vocabulary(size) => vec![("token".to_owned(), *size as u32)],
        InputConfig::Fields(fields) => fields.iter().map(|field| (field.name.clone(), field.vocabulary)).collect(),
    }
}

#[pymethods]
impl Network {
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let network = without_lock(py, || RungNetwork::open(&path))?;
        Ok(Self { network: RwLock::new(network) })
    }

    /// What it is called.
    #[getter]
    fn name(&self) -> String {
        self.with(|network| network.name.clone())
    }

    /// construction, run or checkpoint.
    #[getter]
    fn source(&self) -> &'static str {
        self.with(|network| match network.provenance {
            Provenance::Construction(_) => "construction",
            Provenance::Run(_) => "run",
            Provenance::Checkpoint { .. } => "checkpoint",
            Provenance::Program => "program",
        })
    }

    /// Its layers in the stack grammar, with every number.
    #[getter]
    fn stack(&self) -> String {
        self.with(|network| network.plan.to_stack().to_string())
    }

    /// Its task, if it is for one.
    #[getter]
    fn task(&self) -> Option<String> {
        self.with(|network| network.task.as_ref().map(|task| task.spec()))
    }

    /// Width of a row of logits.
    #[getter]
    fn classes(&self) -> usize {
        self.with(|network| network.model.classes())
    }

    /// Names and vocabularies of the ids of a token.
    #[getter]
    fn fields(&self) -> Vec<(String, u32)> {
        self.with(fields)
    }

    /// Logits after every token of `batch` sequences that lie one after another.
    fn forward(&self, py: Python<'_>, tokens: &[u8], batch: usize) -> PyResult<Array> {
        let tokens = ids(tokens);
        let (logits, classes) = without_lock(py, || {
            self.with(|network| {
                let width = fields(network).len();
                if batch == 0 || tokens.is_empty() || !tokens.len().is_multiple_of(batch * width) {
                    let found = tokens.len();
                    return Err(format!("ids: found {found}, expected {batch} sequences of tokens of {width} ids"));
                }
                let ops = Native::with_threads(thread::available_parallelism().map_or(1, usize::from));
                ops.bind_frozen(&network.weights);
                let pass = network.model.forward(&ops, &tokens, batch, None);
                let (hidden, _) = pass.map_err(|error| error.to_string())?;
                Ok((ops.values(&network.model.logits(&ops, &hidden)), network.model.classes()))
            })
        })?;
        let length = logits.len() / (batch * classes.max(1));
        Ok(Array::new(logits, vec![batch, length, classes]))
    }

    /// Every weight, by the name that checkpoints use.
    fn weights(&self, py: Python<'_>) -> PyResult<Vec<(String, Array)>> {
        // The store is shared until it is changed, so only the arrays themselves are copies.
        let store: Parameters<f32> = self.with(|network| network.weights.clone());
        let array = |(id, entry): (_, &rung_engine::ParameterEntry)| {
            (entry.name.clone(), Array::new(store.get(id).to_vec(), entry.shape.to_vec()))
        };
        without_lock(py, || Ok::<_, String>(store.entries().map(array).collect()))
    }

    /// Replaces weights, each given as its name, shape and bytes.
    fn set_weights(&self, py: Python<'_>, given: Vec<(String, Vec<usize>, Vec<u8>)>) -> PyResult<()> {
        without_lock(py, || {
            let mut network = self.network.write().unwrap_or_else(PoisonError::into_inner);
            let mut checked = Vec::with_capacity(given.len());
            for (name, found, bytes) in &given {
                let Some(id) = network.weights.find(name) else {
                    return Err(format!("there is no weight `{name}`"));
                };
                let expected = network.weights.entry(id).shape.to_vec();
                let values = weights(bytes);
                if *found != expected || values.len() != expected.iter().product::<usize>() {
                    return Err(format!("`{name}`: found shape {found:?}, expected {expected:?}"));
                }
                checked.push((id, values));
            }
            // Only now, so that an error leaves the network as it was.
            for (id, values) in checked {
                network.weights.get_mut(id).copy_from_slice(&values);
            }
            Ok(())
        })
    }

    /// Writes a folder of the kind that it was opened from.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        without_lock(py, || self.with(|network| network.save(&folder)))
    }

    /// Writes the weights alone.
    fn save_weights(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        without_lock(py, || self.with(|network| checkpoint::save(&path, &network.weights)))
    }

    /// Reads weights of the same names and shapes.
    fn load_weights(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        without_lock(py, || {
            let mut network = self.network.write().unwrap_or_else(PoisonError::into_inner);
            checkpoint::load(&path, &mut network.weights)
        })
    }
}
