//! A network and its task, from a folder: what `rung construct --out` wrote, or a finished run of `rung train`.
//!
//! Tracing and protocols do not care where weights come from. A trained model that was made for larger tables than it was
//! trained on (`model.largest`) is shown on that task, whose tokens are the model's own.

use std::path::{Path, PathBuf};

use rung_engine::{Parameters, Scalar};
use rung_nn::checkpoint::{CheckpointError, load_with};
use rung_nn::construct::{self, Construction, Sheet};
use rung_nn::trace::Subject;
use rung_nn::{Model, ModelConfig, ModelError, Precision};
use rung_theory::stack::Plan;
use rung_theory::task::{self, AnyTask, seeded};

use crate::run::place::{CONFIG, WEIGHTS};
use crate::run::provenance::{self, Remedy};
use crate::run::{Run, RunConfig, RunError, initial};

/// Why a folder is no network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A construction that cannot be read.
    #[error(transparent)]
    Construction(#[from] Box<construct::FolderError>),
    /// A run that cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run's weights cannot be read.
    #[error(transparent)]
    Weights(#[from] CheckpointError),
    /// A run that is not over.
    #[error(
        "{}: found no {}, expected a run that is over; go on with `rung train --resume {}`",
        .0.display(), WEIGHTS, .0.display()
    )]
    Unfinished(PathBuf),
    /// Neither.
    #[error(
        "{}: found neither {} nor {}, expected a folder of `rung construct --out` or of `rung train`",
        .0.display(), construct::SHEET, CONFIG
    )]
    Neither(PathBuf),
}

/// Reads the weights of a run that is over. Files without a note of their config (from PyTorch, or from earlier versions) are taken
/// as they are.
///
/// # Errors
/// They cannot be read, are damaged, or were trained under another config than that of the run.
pub fn load_weights<S: Scalar>(folder: &Path, run: &Run, weights: &mut Parameters<S>) -> Result<(), NetworkError> {
    let path = folder.join(WEIGHTS);
    let notes = load_with(&path, weights)?;
    match notes.get(provenance::NOTE) {
        Some(config) => Ok(provenance::check(&path, config, run, Remedy::RestoreOrTrain)?),
        None => Ok(()),
    }
}

/// A network with all that belongs to it.
pub struct Network<S: Scalar> {
    /// What it is called: the construction's name, or the run's stack.
    pub name: String,
    /// What it is for.
    pub task: Box<dyn AnyTask>,
    /// Its layers.
    pub plan: Plan,
    /// Everything else about the model.
    pub config: ModelConfig,
    model: Model,
    weights: Parameters<S>,
    sheet: Option<Sheet>,
}

impl<S: Scalar> Network<S> {
    /// Reads a folder.
    ///
    /// # Errors
    /// It holds neither a construction nor a finished run, or one that cannot be read.
    pub fn open(folder: &Path) -> Result<Self, NetworkError> {
        if folder.join(construct::SHEET).exists() {
            return Ok(construct::load(folder).map_err(Box::new)?.into());
        }
        let path = folder.join(CONFIG);
        if !path.exists() {
            return Err(NetworkError::Neither(folder.to_owned()));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| RunError::file(&path, error))?;
        let run = RunConfig::read(&text).and_then(|config| config.resolve());
        let run = run.map_err(|error| RunError::file(&path, error))?;
        if !folder.join(WEIGHTS).exists() {
            return Err(NetworkError::Unfinished(folder.to_owned()));
        }
        let text = run.config.model.largest.as_ref().unwrap_or(&run.config.task);
        let task = task::parse(text).map_err(|error| RunError::task("task", error))?;
        let mut weights = Parameters::new();
        let model = run.model.init(&run.plan, &mut weights, &mut seeded(0)).map_err(RunError::from)?;
        load_weights(folder, &run, &mut weights)?;
        let name = run.plan.outline();
        Ok(Self::new(name, task, run.plan, run.model, model, weights))
    }

    /// A network from its parts, without a sheet that says what it does.
    pub fn new(
        name: String,
        task: Box<dyn AnyTask>,
        plan: Plan,
        config: ModelConfig,
        model: Model,
        weights: Parameters<S>,
    ) -> Self {
        Self { name, task, plan, config, model, weights, sheet: None }
    }

    /// Changes weights, each with its name.
    pub fn change_weights(&mut self, mut change: impl FnMut(&str, &mut [S])) {
        let entries: Vec<_> = self.weights.entries().map(|(id, entry)| (id, entry.name.clone())).collect();
        for (id, name) in entries {
            change(&name, self.weights.get_mut(id));
        }
    }

    /// The same weights in a network that keeps states and messages in few bits.
    ///
    /// # Errors
    /// There is no such precision.
    pub fn keep_in(&mut self, precision: Precision) -> Result<(), ModelError> {
        self.config.precision = precision;
        // Fresh weights have the same places; the old ones stay.
        self.model = self.config.init(&self.plan, &mut Parameters::<S>::new(), &mut seeded(0))?;
        Ok(())
    }

    /// The network, to be watched.
    pub fn subject(&self) -> Subject<'_, S> {
        let Self { task, plan, config, model, weights, sheet, .. } = self;
        Subject { task: &**task, plan, config, model, weights, sheet: sheet.as_ref() }
    }
}

impl Network<f32> {
    /// A run before its first step.
    ///
    /// # Errors
    /// The model cannot be built.
    pub fn fresh(run: &Run) -> Result<Self, RunError> {
        let text = run.config.model.largest.as_ref().unwrap_or(&run.config.task);
        let task = task::parse(text).map_err(|error| RunError::task("task", error))?;
        let (model, weights) = initial::fresh(run)?;
        let (name, plan, config) = (run.plan.outline(), run.plan.clone(), run.model.clone());
        Ok(Self { name, task, plan, config, model, weights, sheet: None })
    }
}

impl<S: Scalar> From<Construction<S>> for Network<S> {
    fn from(built: Construction<S>) -> Self {
        let Construction { sheet, task, plan, config, model, weights } = built;
        Self { name: sheet.name.clone(), task, plan, config, model, weights, sheet: Some(sheet) }
    }
}
