//! A model with its plan, task and weights, opened from any supported source.
//!
//! [`Network::open`] reads a path, and [`NetworkSource::detect`] says what the path holds:
//!
//! | path | files |
//! |---|---|
//! | folder of a finished run (`rung train`) | `run.toml`, `weights.safetensors` |
//! | Hugging Face folder, or GGUF file | `config.json` and safetensors, or one `.gguf` |
//! | folder of a converted checkpoint (`rung convert --out`) | `conversion.json`, `mixers.safetensors` |
//! | folder of a construction (`rung construct --out`) | `construction.json`, `model.safetensors`, `stack.txt`, `README.md` |
//!
//! Analyses take a [`Network`] and work the same for every source. [`Network::save`] writes the kind of folder that it was opened from. To add a source: a variant of [`NetworkSource`], a file beside this one that opens it, a variant of [`Provenance`].
//!
//! ```
//! use rung_nn::Network;
//! use rung_nn::construct::{self, ConstructionRequest};
//!
//! let network = construct::build::<f32>("U1", &ConstructionRequest::default())?;
//! let folder = std::env::temp_dir().join(format!("rung-doc-network-{}", std::process::id()));
//! network.save(&folder)?;
//! let opened = Network::<f32>::open(&folder)?;
//! assert_eq!(opened.weights.flat(), network.weights.flat());
//! assert_eq!(opened.task()?.spec(), network.task()?.spec());
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod construction;
mod error;
mod run;

pub use construction::{ChainOfThought, ConstructionInfo};
pub use error::NetworkError;
pub use run::{FeedForwardName, InitializationName, ModelSection, NormName, PlacementName, PositionName};

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rung_engine::{Native, Parameters, Scalar};
use rung_theory::stack::Plan;
use rung_theory::task::{AnyTask, seeded};

use crate::checkpoint::{save, save_with_metadata};
use crate::error::ModelError;
use crate::families;
use crate::file::write_atomically;
pub use crate::files;
use crate::memory::{self, BatchShape, TooLarge};
use crate::model::{Model, ModelConfig};
use crate::precision::SimulatedPrecision;

/// A config or description is read up to this many bytes.
const MAX_TEXT_BYTES: u64 = 1 << 24;

/// A model with its plan, config, task and weights.
pub struct Network<S: Scalar> {
    /// The construction's name, the stack, or the checkpoint's file name.
    pub name: String,
    /// The task that it was built or trained for, if any.
    pub task: Option<Box<dyn AnyTask>>,
    /// The mixers of its layers, with every size.
    pub plan: Plan,
    /// Everything else about the model.
    pub config: ModelConfig,
    /// The layers, as handles into `weights`.
    pub model: Model,
    /// The weights.
    pub weights: Parameters<S>,
    /// Where the weights come from.
    pub provenance: Provenance,
}

/// Where the weights of a network come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Provenance {
    /// Computed by a construction.
    Construction(Box<ConstructionInfo>),
    /// Trained, or to be trained, by a run with this config, as TOML.
    Run(String),
    /// Read from an external checkpoint of this family; see [`families`].
    Checkpoint {
        /// The name of the family, such as `llama`.
        family: &'static str,
        /// The folder, or the GGUF file.
        path: PathBuf,
    },
    /// Built in memory, not read from a file.
    InMemory,
}

/// The kind of network that a path holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkSource {
    /// The folder of a construction.
    Construction,
    /// The folder of a run.
    Run,
    /// A Hugging Face folder or a GGUF file.
    Checkpoint,
}

impl NetworkSource {
    /// Determines by its files what a path holds.
    ///
    /// # Errors
    /// The path is not a network.
    pub fn detect(path: &Path) -> Result<Self, NetworkError> {
        match () {
            () if path.join(files::CONSTRUCTION).exists() => Ok(Self::Construction),
            () if path.join(files::RUN_CONFIG).exists() => Ok(Self::Run),
            () if families::is_checkpoint(path) => Ok(Self::Checkpoint),
            () => Err(NetworkError::NotANetwork(path.to_owned())),
        }
    }
}

impl<S: Scalar> Network<S> {
    /// Opens the folder of a construction or of a finished run, a Hugging Face folder, or a GGUF file.
    ///
    /// # Errors
    /// The path is not a network, or something in it cannot be read or does not fit.
    #[inline(never)]
    pub fn open(path: &Path) -> Result<Self, NetworkError> {
        let source = NetworkSource::detect(path)?;
        log::info!("{}: opening it as a {source:?}", path.display());
        match source {
            NetworkSource::Construction => construction::open(path),
            NetworkSource::Run => run::open(path),
            NetworkSource::Checkpoint => {
                let families::Checkpoint { family, plan, config, model, weights, .. } =
                    families::open(path).map_err(Box::new)?;
                let name =
                    path.file_stem().map_or_else(|| plan.mixer_names(), |name| name.to_string_lossy().into_owned());
                let path = path.to_owned();
                let provenance = Provenance::Checkpoint { family, path };
                Ok(Self { name, task: None, plan, config, model, weights, provenance })
            }
        }
    }

    /// Writes the folder of a construction or of a finished run, creating it if it does not exist.
    ///
    /// # Errors
    /// A file cannot be written, or the network is neither a construction nor of a run.
    pub fn save(&self, folder: &Path) -> Result<(), NetworkError> {
        fs::create_dir_all(folder).map_err(|source| NetworkError::System { path: folder.to_owned(), source })?;
        let write = |name: &str, text: &str| {
            write_atomically(&folder.join(name), text.as_bytes())
                .map_err(|error| NetworkError::System { path: error.path, source: error.source })
        };
        match &self.provenance {
            Provenance::Construction(info) => {
                save(&folder.join(files::CONSTRUCTION_WEIGHTS), &self.weights)?;
                construction::text_files(self, info).iter().try_for_each(|(name, text)| write(name, text))
            }
            Provenance::Run(config) => {
                let config = run::with_stack(config, &self.plan.to_stack().to_string()).unwrap_or_default();
                write(files::RUN_CONFIG, &config)?;
                Ok(save_with_metadata(&folder.join(files::RUN_WEIGHTS), &self.weights, &[(files::RUN_KEY, &config)])?)
            }
            Provenance::Checkpoint { .. } | Provenance::InMemory => {
                Err(NetworkError::NotSavable { path: folder.to_owned(), name: self.name.clone() })
            }
        }
    }

    /// A network that was built in memory.
    pub fn new(
        name: String,
        task: Box<dyn AnyTask>,
        plan: Plan,
        config: ModelConfig,
        model: Model,
        weights: Parameters<S>,
    ) -> Self {
        Self { name, task: Some(task), plan, config, model, weights, provenance: Provenance::InMemory }
    }

    /// The task that it was built or trained for.
    ///
    /// # Errors
    /// It has no task.
    pub fn task(&self) -> Result<&dyn AnyTask, ModelError> {
        self.task.as_deref().ok_or_else(|| ModelError::NoTask { name: self.name.clone() })
    }

    /// The description of a construction; `None` for other networks.
    pub fn construction(&self) -> Option<&ConstructionInfo> {
        match &self.provenance {
            Provenance::Construction(info) => Some(info),
            _ => None,
        }
    }

    /// The tokens that it emits, if it is a construction that emits a chain of thought and then its answer.
    pub fn chain_of_thought(&self) -> Option<&ChainOfThought> {
        self.construction().and_then(|info| info.chain_of_thought.as_ref())
    }

    /// An executor on these weights, without gradients.
    pub fn executor(&self) -> Native<S> {
        let ops = Native::new();
        ops.bind_frozen(&self.weights);
        ops
    }

    /// Checks that a forward pass on a batch fits in memory. `what` names the work in the error.
    ///
    /// # Errors
    /// It does not fit.
    pub fn check_inference_memory(&self, what: &str, batch: BatchShape) -> Result<(), TooLarge> {
        let prompt_bytes = self.config.memory_estimate(&self.plan).inference_bytes(batch.tokens);
        self.check_memory(what, batch, prompt_bytes, 0)
    }

    /// As [`check_inference_memory`](Self::check_inference_memory), for `concurrent` batches. Of each batch, logits of at most `logit_rows`
    /// tokens are in memory at once; all batches share the weights.
    ///
    /// # Errors
    /// They do not fit.
    pub fn check_evaluation_memory(
        &self,
        what: &str,
        concurrent: usize,
        batch: BatchShape,
        logit_rows: usize,
    ) -> Result<(), TooLarge> {
        // A prompt of the batch has its share of the rows of logits.
        let BatchShape { prompts, tokens } = batch;
        let prompt_bytes =
            self.config.memory_estimate(&self.plan).evaluation_bytes(tokens, logit_rows.div_ceil(prompts.max(1)));
        self.check_memory(what, BatchShape { prompts: concurrent * prompts, tokens }, prompt_bytes, 0)
    }

    /// As [`check_inference_memory`](Self::check_inference_memory), for a forward and a backward pass.
    ///
    /// # Errors
    /// They do not fit.
    pub fn check_training_memory(&self, what: &str, batch: BatchShape) -> Result<(), TooLarge> {
        let prompt_bytes = self.config.memory_estimate(&self.plan).training_bytes(batch.tokens);
        // Every core has a copy of the weights and their gradient.
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(batch.prompts);
        self.check_memory(what, batch, prompt_bytes, (2 * cores * self.weights.size()) as u128)
    }

    /// `prompt_bytes` are the bytes of one prompt in single precision; `extra_weights` counts the elements of copied weights.
    fn check_memory(
        &self,
        what: &str,
        BatchShape { prompts, tokens }: BatchShape,
        prompt_bytes: u128,
        extra_weights: u128,
    ) -> Result<(), TooLarge> {
        let element_bytes = size_of::<S>() as u128;
        let single_precision_bytes = size_of::<f32>() as u128;
        let bytes = prompt_bytes.saturating_mul(prompts as u128).saturating_mul(element_bytes) / single_precision_bytes;
        let what = format!("{what}: {prompts} prompts of {tokens} tokens at once by `{}`", self.name);
        memory::check(what, bytes.saturating_add(extra_weights.saturating_mul(element_bytes)), None)
    }

    /// Calls a function with the name and values of every weight, which it may change.
    pub fn change_weights(&mut self, mut change: impl FnMut(&str, &mut [S])) {
        let entries: Vec<_> = self.weights.entries().map(|(id, entry)| (id, entry.name.clone())).collect();
        for (id, name) in entries {
            change(&name, self.weights.get_mut(id));
        }
    }

    /// Rounds states and messages to few bits, with the same weights.
    ///
    /// # Errors
    /// The precision is invalid, or the network is an external checkpoint.
    pub fn set_precision(&mut self, precision: SimulatedPrecision) -> Result<(), ModelError> {
        if matches!(self.provenance, Provenance::Checkpoint { .. }) {
            return Err(ModelError::ExternalCheckpoint { name: self.name.clone() });
        }
        self.config.precision = precision;
        // A newly initialised model has the same handles, so that it works with the existing weights.
        self.model = self.config.init(&self.plan, &mut Parameters::<S>::new(), &mut seeded(0))?;
        Ok(())
    }
}

fn read_text(path: &Path) -> Result<String, NetworkError> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_TEXT_BYTES).read_to_string(&mut text));
    read.map(|_| text).map_err(|source| NetworkError::System { path: path.to_owned(), source })
}
