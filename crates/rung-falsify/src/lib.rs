//! Falsify: find the pair of inputs that a model cannot tell apart.
//!
//! A bound says that a failure exists. Here a concrete model, trained or not, at a given precision, is searched for one: two prompts with
//! different answers that the model takes for the same, or at least a prompt that it answers wrongly. What is found is a witness:
//! shrunk, written down with the model's own numbers, and checked by another way than it was found.
//!
//! # Methods
//! The stack decides which are tried. They run side by side, each on all cores, within one budget of time.
//!
//! | stack | method | what meets |
//! |---|---|---|
//! | bounded state only | drowning | two prefixes, forgotten under a token that is repeated |
//! | bounded state only | state collision | the states of many prefixes, on a birthday |
//! | one layer of linear attention | integer relation | sums of writes, by lattice reduction |
//! | block-sparse layers | summary collision | two contents of a block that the question does not open |
//! | full layers, few bits | border search | all that tokens after the last table hold, with the sets of the proof where they are small |
//! | any | every instance, or guided errors | nothing: a wrong answer |
//!
//! The order of the table settles which find counts, so that the seed alone decides and not the timing: a find ends the methods below it
//! at once. Those above it may still do better; they have until half of the budget is gone.
//!
//! # What a witness says
//! That this model, with these weights at this precision, fails on these prompts: measured, and exactly so. It says nothing about
//! other weights; the bounds do that. That none was found says nothing either, unless every instance was asked.
//!
//! # Example
//! ```
//! use rung_falsify::{RequestedPrecision, SearchBudget, Origin, TargetModel, check, falsify};
//! use rung_train::run::RunConfig;
//!
//! let mut config = RunConfig::new("linear{normaliser=no}", "funccomp{hops=1,m=6}");
//! (config.model.heads, config.model.head, config.model.embedding_scale) = (1, 2, 1.0);
//! let target = TargetModel::open(Origin::Fresh(Box::new(config)), None, RequestedPrecision::Bits(4, None))?;
//! let found = falsify(&target, &SearchBudget::default(), &|_, _| true)?;
//! let witness = found.witness.expect("sixteen bits of state do not hold six entries of six values for long");
//! assert!(check::check(&witness, &target)?.is_ok());
//! # Ok::<(), rung_falsify::FalsifyError>(())
//! ```
//!
//! # Source
//! Birthdays in cryptanalysis; lattice reduction by Lenstra, Lenstra and Lovász (1982); shrinking as in property testing; the sets of
//! the border search as in Chen, Peng and Wu (2412.02975).

pub mod alphabet;
pub mod check;
pub mod collide;
pub mod decomposition;
pub mod errors;
pub mod lattice;
pub mod page;
pub mod shrink;
pub mod sums;
pub mod target;
pub mod view;
pub mod witness;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rung_nn::ModelError;
use rung_theory::task::TaskError;
use serde::Serialize;

use rung_nn::NetworkError;
use rung_train::parallel;
use rung_train::run::RunError;

pub use target::{Origin, RequestedPrecision, StatePrecision, TargetModel};
pub use witness::Witness;

/// The page of `rung explain falsify`.
pub const PAGE: &str = include_str!("lib.rs");

/// How a witness was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Method {
    /// A token repeated until what stood before it is forgotten.
    #[serde(rename = "drowning")]
    Drowning,
    /// States of many prefixes.
    #[serde(rename = "state collision")]
    StateCollision,
    /// Sums of writes.
    #[serde(rename = "integer relation")]
    IntegerRelation,
    /// A block that is not opened.
    #[serde(rename = "summary collision")]
    SummaryCollision,
    /// What tokens after a border hold.
    #[serde(rename = "border search")]
    BorderSearch,
    /// Every instance of the task.
    #[serde(rename = "every instance")]
    EveryInstance,
    /// Prompts that are nearly answered wrongly.
    #[serde(rename = "guided errors")]
    GuidedErrors,
}

impl Method {
    /// All of them, in the order in which their finds count.
    pub const ALL: [Self; 7] = [
        Self::Drowning,
        Self::StateCollision,
        Self::IntegerRelation,
        Self::SummaryCollision,
        Self::BorderSearch,
        Self::EveryInstance,
        Self::GuidedErrors,
    ];

    /// The word users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drowning => "drowning",
            Self::StateCollision => "state collision",
            Self::IntegerRelation => "integer relation",
            Self::SummaryCollision => "summary collision",
            Self::BorderSearch => "border search",
            Self::EveryInstance => "every instance",
            Self::GuidedErrors => "guided errors",
        }
    }
}

/// Why there is nothing to search, or no witness to check.
#[derive(Debug, thiserror::Error)]
pub enum FalsifyError {
    /// The model cannot be opened.
    #[error(transparent)]
    Network(#[from] Box<NetworkError>),
    /// Its config makes no sense, or the task does not fit it.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The task cannot be read.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The model cannot be run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It does not fit the memory given.
    #[error(transparent)]
    Memory(#[from] rung_nn::memory::TooLarge),
    /// A model that emits tokens before its answer.
    #[error("{name} emits a chain of thought before it answers; expected a model that answers in one forward pass")]
    Thinks {
        /// The model.
        name: String,
    },
    /// Too long to be searched.
    #[error("task: `{task}` has {found} tokens; expected at most {most}")]
    TooLong {
        /// The task.
        task: String,
        /// Its tokens.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// A method that does not apply to the stack.
    #[error("method: {} does not apply to {name}; expected {expected}", .method.name())]
    Method {
        /// The method.
        method: Method,
        /// The model.
        name: String,
        /// What does.
        expected: String,
    },
    /// The system refused.
    #[error("{}: {reason}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A file that is no witness.
    #[error("{}: no whole witness: {reason}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the reader met.
        reason: String,
    },
}

/// How much may be spent.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchBudget {
    /// Time for all methods together.
    pub time: Duration,
    /// Bytes for the table of states.
    pub memory: u64,
    /// Fixes every prompt that is drawn.
    pub seed: u64,
    /// This method alone.
    pub only: Option<Method>,
    /// Candidates for each method, so that a result does not depend on the machine's speed.
    pub most: u64,
}

impl Default for SearchBudget {
    fn default() -> Self {
        Self { time: Duration::from_mins(1), memory: 1 << 30, seed: 0, only: None, most: u64::MAX }
    }
}

/// Methods that run side by side, and the first in their order that has found something.
struct MethodRace {
    first: AtomicUsize,
    /// From here on a method makes way for a find of one below it.
    half: Instant,
}

impl MethodRace {
    fn new(half: Instant) -> Self {
        Self { first: AtomicUsize::new(usize::MAX), half }
    }

    fn won_by(&self, place: usize) {
        self.first.fetch_min(place, Ordering::Relaxed);
    }

    /// Whether the method at this place need not go on.
    fn lost_for(&self, place: usize) -> bool {
        match self.first.load(Ordering::Relaxed) {
            usize::MAX => false,
            first => first < place || (first > place && Instant::now() >= self.half),
        }
    }
}

/// What tells a method to stop.
pub struct Clock<'a> {
    end: Instant,
    most: u64,
    method: Method,
    /// Hears how many candidates were tried; says whether to go on.
    watch: &'a (dyn Fn(Method, u64) -> bool + Sync),
    stopped: std::cell::Cell<bool>,
    /// The other methods, and this one's place among them.
    race: Option<(&'a MethodRace, usize)>,
}

impl Clock<'_> {
    /// Reports how far the search is.
    pub fn report_progress(&self, candidates: u64) {
        if !(self.watch)(self.method, candidates) || candidates >= self.most {
            self.stopped.set(true);
        }
    }

    /// Whether the time is over.
    pub fn over(&self) -> bool {
        let lost = || self.race.is_some_and(|(race, place)| race.lost_for(place));
        self.stopped.get() || Instant::now() >= self.end || lost()
    }
}

/// What one method did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodReport {
    /// The method.
    pub method: Method,
    /// How much it went through.
    pub candidates: u64,
    /// Of what.
    pub what: &'static str,
    /// How much there was, where that is known.
    pub total: Option<u64>,
    /// Whether that was all there is.
    pub complete: bool,
    /// Finds that the checker did not confirm.
    pub misled: u64,
    /// What else there is to say.
    pub note: String,
}

impl MethodReport {
    fn new(method: Method, what: &'static str) -> Self {
        Self { method, candidates: 0, what, total: None, complete: false, misled: 0, note: String::new() }
    }
}

/// What a search came to.
pub struct SearchResult {
    /// The witness, if there is one.
    pub witness: Option<Witness>,
    /// The task of the witness, where it is a smaller one than was asked about.
    pub smaller: Option<TargetModel>,
    /// What was tried, in order, up to the method that found the witness.
    pub tried: Vec<MethodReport>,
}

impl SearchResult {
    /// The method that found the witness, if there is one.
    pub fn method(&self) -> Option<Method> {
        self.witness.as_ref().and(self.tried.last()).map(|tried| tried.method)
    }
}

/// The methods for a target, in order.
fn methods(target: &TargetModel) -> Vec<Method> {
    let plan = &target.network.plan;
    let mut methods = Vec::new();
    if target.bounded() {
        methods.extend([Method::Drowning, Method::StateCollision]);
    }
    if sums::applies(target) {
        methods.push(Method::IntegerRelation);
    }
    if plan.layers.iter().flat_map(|layer| layer.mixers.iter()).any(|mixer| mixer.facts().block_selection().is_some()) {
        methods.push(Method::SummaryCollision);
    }
    if plan.full_layers() > 0 && target.few_bits() {
        methods.push(Method::BorderSearch);
    }
    let few = target.task().instances().is_some_and(|count| count <= errors::FEW);
    methods.push(if few { Method::EveryInstance } else { Method::GuidedErrors });
    methods
}

/// Searches a model for a failure. `watch` hears of progress and says whether to go on.
///
/// # Errors
/// The model refuses its own task, or the method asked for does not apply.
pub fn falsify(
    target: &TargetModel,
    budget: &SearchBudget,
    watch: &(dyn Fn(Method, u64) -> bool + Sync),
) -> Result<SearchResult, FalsifyError> {
    let mut methods = methods(target);
    if let Some(method) = budget.only {
        if !methods.contains(&method) {
            let expected = methods.iter().map(|method| method.name()).collect::<Vec<_>>().join(", ");
            return Err(FalsifyError::Method { method, name: target.network.name.clone(), expected });
        }
        methods = vec![method];
    }
    let needed = target.bytes_per_prompt().saturating_mul(u128::from(target::AT_ONCE));
    let what = format!("the states of `{}`, {} at once,", target.network.name, target::AT_ONCE);
    rung_nn::memory::check(what, needed, Some(budget.memory))?;
    let started = Instant::now();
    let clock = |method, end| Clock { end, most: budget.most, method, watch, stopped: false.into(), race: None };
    let race = MethodRace::new(started + budget.time / 2);
    let run = |(place, method): (usize, Method)| {
        let clock = Clock { race: Some((&race, place)), ..clock(method, started + budget.time) };
        let outcome = attempt(target, method, budget, &clock);
        if matches!(outcome, Ok((Some(_), _))) {
            race.won_by(place);
        }
        outcome
    };
    let outcomes = parallel::all_at_once(methods.iter().copied().enumerate(), run);
    let mut tried = Vec::new();
    for outcome in outcomes {
        let (found, done) = outcome?;
        let method = done.method;
        tried.push(done);
        if let Some(witness) = found {
            let left = budget.time.saturating_sub(started.elapsed()).max(budget.time / 4);
            let (witness, smaller) =
                simplest_witness(target, witness, budget, &|| clock(method, Instant::now() + left / 4))?;
            return Ok(SearchResult { witness: Some(witness), smaller, tried });
        }
    }
    Ok(SearchResult { witness: None, smaller: None, tried })
}

fn attempt(
    target: &TargetModel,
    method: Method,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    match method {
        Method::Drowning => collide::drown(target, budget, clock),
        Method::StateCollision => collide::birthday(target, budget, clock),
        Method::IntegerRelation => sums::relations(target, budget, clock),
        Method::SummaryCollision => view::summaries(target, budget, clock),
        Method::BorderSearch if decomposition::small_enough(target) => {
            let (found, tried) = decomposition::decompose(target, clock)?;
            if found.is_some() || clock.over() {
                return Ok((found, tried));
            }
            view::border(target, budget, clock, false)
        }
        Method::BorderSearch => view::border(target, budget, clock, false),
        Method::EveryInstance | Method::GuidedErrors => errors::errors(target, budget, clock),
    }
}

/// The witness, shrunk: for a wrong answer, in the smallest task that has one.
fn simplest_witness<'a>(
    target: &TargetModel,
    witness: Witness,
    budget: &SearchBudget,
    clock: &dyn Fn() -> Clock<'a>,
) -> Result<(Witness, Option<TargetModel>), FalsifyError> {
    if witness.decomposition.is_some() {
        return Ok((witness, None));
    }
    if witness.inputs.len() == 1 {
        let whole = clock();
        for spec in shrink::smaller_tasks(target.task()) {
            if whole.over() {
                break;
            }
            let asked = target.kept.map_or(RequestedPrecision::Own, RequestedPrecision::Exactly);
            let Ok(smaller) = TargetModel::open(target.origin.clone(), Some(&spec), asked) else { continue };
            let brief = Clock { end: Instant::now() + budget.time / 16, ..clock() };
            let (found, _) = errors::errors(&smaller, budget, &brief)?;
            if let Some(witness) = found {
                return Ok((shrink::shrink(&smaller, witness, budget, &clock())?, Some(smaller)));
            }
        }
    }
    Ok((shrink::shrink(target, witness, budget, &clock())?, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_find_ends_what_stands_below_and_later_what_stands_above() {
        let now = Instant::now();
        let race = MethodRace::new(now + Duration::from_hours(1));
        assert!((0..3).all(|place| !race.lost_for(place)));
        race.won_by(1);
        assert_eq!([0, 1, 2].map(|place| race.lost_for(place)), [false, false, true]);
        race.won_by(2);
        assert_eq!([0, 1, 2].map(|place| race.lost_for(place)), [false, false, true]);
        race.won_by(0);
        assert_eq!([0, 1, 2].map(|place| race.lost_for(place)), [false, true, true]);
        let late = MethodRace::new(now);
        late.won_by(1);
        assert_eq!([0, 1, 2].map(|place| late.lost_for(place)), [true, false, true]);
    }
}
