//! Falsify: find the pair of inputs that a model cannot tell apart.
//!
//! A bound says that a failure exists. This search finds one for a concrete model, trained or not, at a given precision: two prompts with
//! different answers for which the model computes exactly the same outputs, or otherwise a prompt that it answers wrongly. The result is a
//! witness, that is, a counterexample: shrunk, stored with the model's outputs, and checked by code that is independent of the search.
//!
//! # Methods
//! The stack decides which methods apply. They run at the same time, each on all cores, within one time budget.
//!
//! | stack | method | searches for |
//! |---|---|---|
//! | bounded state only | drowning | two prefixes that the state forgets after many repetitions of a token |
//! | bounded state only | state collision | two prefixes with the same state, by a birthday search |
//! | one layer of linear attention | integer relation | two multisets of tokens with the same sum of writes, by lattice reduction |
//! | block-sparse layers | summary collision | two contents of a block that the question does not select |
//! | full layers, few bits | border search | two last tables after which all later tokens have the same residual streams |
//! | any | every instance, or guided errors | a wrong answer |
//!
//! If several methods succeed, the first in this table counts, so that the result depends on the seed and not on timing: a success ends
//! the methods below it at once, and those above it after half of the time budget.
//!
//! An external checkpoint is given prompts in English instead: each prompt comes with variants in which the table entry of one look-up is
//! changed, so that the right answer is another. The same answer to both is a witness; otherwise a wrong answer is one.
//!
//! # What a witness says
//! That this model, with these weights at this precision, fails on these prompts: measured, to the bit. It says nothing about other
//! weights; the bounds do that. A search without success proves nothing, unless every instance was checked.
//!
//! # Example
//! ```
//! use rung_falsify::{RequestedPrecision, SearchBudget, Origin, TargetModel, check, falsify};
//! use rung_train::run::RunConfig;
//!
//! let mut config = RunConfig::new("linear{normaliser=no}", "funccomp{hops=1,m=6}");
//! (config.model.heads, config.model.head, config.model.embedding_scale) = (1, 2, 1.0);
//! let target = TargetModel::open(Origin::Untrained(Box::new(config)), None, RequestedPrecision::Bits(4, None))?;
//! let result = falsify(&target, &SearchBudget::default(), &|_, _| true)?;
//! let witness = result.witness.expect("a state of sixteen bits cannot store six entries of six values");
//! assert!(check::check(&witness, &target)?.is_ok());
//! # Ok::<(), rung_falsify::FalsifyError>(())
//! ```
//!
//! # Source
//! Birthday attacks in cryptanalysis; lattice reduction by Lenstra, Lenstra and Lovász (1982); shrinking as in property testing; the sets
//! of the border search as in Chen, Peng and Wu (2412.02975).

pub mod alphabet;
pub mod check;
pub mod decomposition;
pub mod guided_errors;
pub mod integer_relation;
pub mod lattice;
pub mod page;
pub mod residual_collision;
pub mod shrink;
pub mod state_collision;
pub mod target;
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

/// A search method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Method {
    /// Repeats a token until the state has forgotten the tokens before it.
    #[serde(rename = "drowning")]
    Drowning,
    /// Compares the states of many prefixes.
    #[serde(rename = "state collision")]
    StateCollision,
    /// Finds two multisets of tokens with the same sum of writes.
    #[serde(rename = "integer relation")]
    IntegerRelation,
    /// Varies a block that sparse attention does not select.
    #[serde(rename = "summary collision")]
    SummaryCollision,
    /// Compares the residual streams of all tokens after the last table.
    #[serde(rename = "border search")]
    BorderSearch,
    /// Checks every instance of the task.
    #[serde(rename = "every instance")]
    EveryInstance,
    /// Changes prompts that are answered rightly by a small margin.
    #[serde(rename = "guided errors")]
    GuidedErrors,
}

impl Method {
    /// All methods, in the order in which their results count.
    pub const ALL: [Self; 7] = [
        Self::Drowning,
        Self::StateCollision,
        Self::IntegerRelation,
        Self::SummaryCollision,
        Self::BorderSearch,
        Self::EveryInstance,
        Self::GuidedErrors,
    ];

    /// The name in messages and JSON.
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

/// Why a search or a check cannot start.
#[derive(Debug, thiserror::Error)]
pub enum FalsifyError {
    /// The model cannot be opened.
    #[error(transparent)]
    Network(#[from] Box<NetworkError>),
    /// The config is invalid, or the task does not fit the model.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The task cannot be parsed.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The model cannot be run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The search needs more memory than its budget.
    #[error(transparent)]
    Memory(#[from] rung_nn::memory::TooLarge),
    /// A model that emits tokens before its answer.
    #[error("{name} emits a chain of thought before it answers; expected a model that answers in one forward pass")]
    ChainOfThought {
        /// The model.
        name: String,
    },
    /// The prompts of the task are too long.
    #[error("task: `{task}` has {found} tokens; expected at most {max}")]
    TooLong {
        /// The task.
        task: String,
        /// Tokens per prompt.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A method that does not apply to the stack.
    #[error("method: {} does not apply to {name}; expected {expected}", .method.name())]
    Method {
        /// The method.
        method: Method,
        /// The model.
        name: String,
        /// The methods that apply.
        expected: String,
    },
    /// A file cannot be read.
    #[error("{}: {reason}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
    /// A file is not a witness.
    #[error("{}: not a complete witness: {reason}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error of the JSON parser.
        reason: String,
    },
}

/// Limits of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchBudget {
    /// Time for all methods together.
    pub time: Duration,
    /// Bytes for the table of states.
    pub memory_bytes: u64,
    /// Seed of all sampled prompts.
    pub seed: u64,
    /// Run only this method.
    pub only_method: Option<Method>,
    /// The largest number of candidates per method. Unlike `time` it gives the same result on every machine.
    pub max_candidates: u64,
}

impl Default for SearchBudget {
    fn default() -> Self {
        Self {
            time: Duration::from_mins(1),
            memory_bytes: 1 << 30,
            seed: 0,
            only_method: None,
            max_candidates: u64::MAX,
        }
    }
}

/// Which of the methods that run at the same time have succeeded. A method's rank is its index in their order.
struct MethodRace {
    /// The lowest rank of a method that has found a witness; `usize::MAX` before any has.
    best_rank: AtomicUsize,
    /// From this time on a method stops if one of higher rank has found a witness.
    deadline: Instant,
}

impl MethodRace {
    fn new(deadline: Instant) -> Self {
        Self { best_rank: AtomicUsize::new(usize::MAX), deadline }
    }

    fn record_success(&self, rank: usize) {
        self.best_rank.fetch_min(rank, Ordering::Relaxed);
    }

    /// Whether the method of this rank should stop because of another's success.
    fn should_stop(&self, rank: usize) -> bool {
        match self.best_rank.load(Ordering::Relaxed) {
            usize::MAX => false,
            best => best < rank || (best > rank && Instant::now() >= self.deadline),
        }
    }
}

/// When a method stops: time, number of candidates, the caller, or the success of another method.
pub struct StopCondition<'a> {
    deadline: Instant,
    max_candidates: u64,
    method: Method,
    /// Called with the number of candidates so far; returns whether to continue.
    on_progress: &'a (dyn Fn(Method, u64) -> bool + Sync),
    stopped: std::cell::Cell<bool>,
    /// The other methods, and this one's rank.
    race: Option<(&'a MethodRace, usize)>,
}

impl StopCondition<'_> {
    /// Reports the number of candidates so far.
    pub fn report_progress(&self, candidates: u64) {
        if !(self.on_progress)(self.method, candidates) || candidates >= self.max_candidates {
            self.stopped.set(true);
        }
    }

    /// Whether the method should stop.
    pub fn is_reached(&self) -> bool {
        let outranked = || self.race.is_some_and(|(race, rank)| race.should_stop(rank));
        self.stopped.get() || Instant::now() >= self.deadline || outranked()
    }
}

/// What one method searched, and how much.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodReport {
    /// The method.
    pub method: Method,
    /// Number of candidates tried.
    pub candidates: u64,
    /// The unit of candidates, such as `prefixes`.
    #[serde(rename = "what")]
    pub unit: &'static str,
    /// Number of all candidates, where it is known.
    pub total: Option<u64>,
    /// Whether all candidates were tried.
    pub complete: bool,
    /// Number of candidates that the search took for a witness and the checker did not confirm.
    #[serde(rename = "misled")]
    pub unconfirmed: u64,
    /// Further information for the user.
    pub note: String,
}

impl MethodReport {
    fn new(method: Method, unit: &'static str) -> Self {
        Self { method, candidates: 0, unit, total: None, complete: false, unconfirmed: 0, note: String::new() }
    }
}

/// The result of a search.
pub struct SearchResult {
    /// The witness, if one was found.
    pub witness: Option<Witness>,
    /// The model with the witness's task, if that is a smaller task than the one searched.
    pub target_with_shrunk_task: Option<TargetModel>,
    /// Reports of the methods, in order, up to the one that found the witness.
    pub reports: Vec<MethodReport>,
}

impl SearchResult {
    /// The method that found the witness.
    pub fn method(&self) -> Option<Method> {
        self.witness.as_ref().and(self.reports.last()).map(|report| report.method)
    }
}

/// The methods that apply to a target, in order.
fn applicable_methods(target: &TargetModel) -> Vec<Method> {
    let plan = &target.network.plan;
    let mut methods = Vec::new();
    if target.has_only_bounded_state() {
        methods.extend([Method::Drowning, Method::StateCollision]);
    }
    if integer_relation::applies(target) {
        methods.push(Method::IntegerRelation);
    }
    if plan.layers.iter().flat_map(|layer| layer.mixers.iter()).any(|mixer| mixer.facts().block_selection().is_some()) {
        methods.push(Method::SummaryCollision);
    }
    if plan.full_layers() > 0 && target.is_rounded() {
        methods.push(Method::BorderSearch);
    }
    let is_enumerable = target.task().instance_count().is_some_and(|count| count <= guided_errors::MAX_ENUMERATED);
    methods.push(if is_enumerable { Method::EveryInstance } else { Method::GuidedErrors });
    methods
}

/// Searches a model for a failure. `on_progress` is called with the progress and returns whether to continue.
///
/// # Errors
/// The model cannot run on its task, or the requested method does not apply.
pub fn falsify(
    target: &TargetModel,
    budget: &SearchBudget,
    on_progress: &(dyn Fn(Method, u64) -> bool + Sync),
) -> Result<SearchResult, FalsifyError> {
    let mut methods = applicable_methods(target);
    if let Some(method) = budget.only_method {
        if !methods.contains(&method) {
            let expected = methods.iter().map(|method| method.name()).collect::<Vec<_>>().join(", ");
            return Err(FalsifyError::Method { method, name: target.network.name.clone(), expected });
        }
        methods = vec![method];
    }
    let needed_bytes = target.bytes_per_prompt().saturating_mul(u128::from(target::CONCURRENT_BATCHES));
    let subject = format!("the states of `{}`, {} at once,", target.network.name, target::CONCURRENT_BATCHES);
    rung_nn::memory::check(subject, needed_bytes, Some(budget.memory_bytes))?;
    let started = Instant::now();
    let stop_condition = |method, deadline| StopCondition {
        deadline,
        max_candidates: budget.max_candidates,
        method,
        on_progress,
        stopped: false.into(),
        race: None,
    };
    let race = MethodRace::new(started + budget.time / 2);
    let run = |(rank, method): (usize, Method)| {
        let stop = StopCondition { race: Some((&race, rank)), ..stop_condition(method, started + budget.time) };
        let outcome = run_method(target, method, budget, &stop);
        if matches!(outcome, Ok((Some(_), _))) {
            race.record_success(rank);
        }
        outcome
    };
    let outcomes = parallel::map_thread_per_item(methods.iter().copied().enumerate(), run);
    let mut reports = Vec::new();
    for outcome in outcomes {
        let (witness, report) = outcome?;
        let method = report.method;
        reports.push(report);
        if let Some(witness) = witness {
            let time_left = budget.time.saturating_sub(started.elapsed()).max(budget.time / 4);
            let (witness, target_with_shrunk_task) =
                shrink_witness(target, witness, budget, &|| stop_condition(method, Instant::now() + time_left / 4))?;
            return Ok(SearchResult { witness: Some(witness), target_with_shrunk_task, reports });
        }
    }
    Ok(SearchResult { witness: None, target_with_shrunk_task: None, reports })
}

fn run_method(
    target: &TargetModel,
    method: Method,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    match method {
        Method::Drowning => state_collision::search_repetitions(target, budget, stop),
        Method::StateCollision => state_collision::search_state_collision(target, budget, stop),
        Method::IntegerRelation => integer_relation::search_relation(target, budget, stop),
        Method::SummaryCollision => residual_collision::search_summary_collision(target, budget, stop),
        Method::BorderSearch if decomposition::is_small_enough(target) => {
            let (witness, report) = decomposition::decompose(target, stop)?;
            if witness.is_some() || stop.is_reached() {
                return Ok((witness, report));
            }
            residual_collision::search_border(target, budget, stop)
        }
        Method::BorderSearch => residual_collision::search_border(target, budget, stop),
        Method::EveryInstance | Method::GuidedErrors => guided_errors::search_wrong_answers(target, budget, stop),
    }
}

/// Shrinks a witness. A wrong answer is first searched for in smaller tasks.
fn shrink_witness<'a>(
    target: &TargetModel,
    witness: Witness,
    budget: &SearchBudget,
    new_stop_condition: &dyn Fn() -> StopCondition<'a>,
) -> Result<(Witness, Option<TargetModel>), FalsifyError> {
    if witness.decomposition.is_some() {
        return Ok((witness, None));
    }
    if witness.inputs.len() == 1 {
        let total_stop = new_stop_condition();
        for spec in shrink::smaller_tasks(target.task()) {
            if total_stop.is_reached() {
                break;
            }
            let precision = target.precision.map_or(RequestedPrecision::AsTrained, RequestedPrecision::Exactly);
            let Ok(smaller) = TargetModel::open(target.origin.clone(), Some(&spec), precision) else { continue };
            let task_stop = StopCondition { deadline: Instant::now() + budget.time / 16, ..new_stop_condition() };
            let (witness, _) = guided_errors::search_wrong_answers(&smaller, budget, &task_stop)?;
            if let Some(witness) = witness {
                return Ok((shrink::shrink(&smaller, witness, budget, &new_stop_condition())?, Some(smaller)));
            }
        }
    }
    Ok((shrink::shrink(target, witness, budget, &new_stop_condition())?, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_stops_methods_after_it_at_once_and_those_before_it_at_the_deadline() {
        let now = Instant::now();
        let race = MethodRace::new(now + Duration::from_hours(1));
        assert!((0..3).all(|rank| !race.should_stop(rank)));
        race.record_success(1);
        assert_eq!([0, 1, 2].map(|rank| race.should_stop(rank)), [false, false, true]);
        race.record_success(2);
        assert_eq!([0, 1, 2].map(|rank| race.should_stop(rank)), [false, false, true]);
        race.record_success(0);
        assert_eq!([0, 1, 2].map(|rank| race.should_stop(rank)), [false, true, true]);
        let after_deadline = MethodRace::new(now);
        after_deadline.record_success(1);
        assert_eq!([0, 1, 2].map(|rank| after_deadline.should_stop(rank)), [true, false, true]);
    }
}
