//! A grid of questions, put to a model by several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::prompt::{Cell, PromptWriter, Question, Variant};
use crate::record::AnswerRecord;
use crate::score::{Answer, ReadBy, read_chain_of_thought, read_token};
use crate::symbols::Symbols;
use crate::{AnsweringModel, AskError};

/// Tokens that a chain of thought may have.
const CHAIN_OF_THOUGHT_TOKENS: usize = 256;

/// Which questions are asked. Equal grids ask equal questions.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Wording of all prompts.
    pub writer: PromptWriter,
    /// Numbers of hops.
    pub hops: Vec<usize>,
    /// Table sizes.
    pub entries: Vec<usize>,
    /// Ways to put each question.
    pub variants: Vec<Variant>,
    /// Questions per cell.
    pub count: u64,
    /// Where the questions come from.
    pub seed: u64,
    /// What may answer.
    pub symbols: Symbols,
}

impl Grid {
    /// Every question with its cell, in a fixed order: index by index, so that an interrupted run has some of every cell.
    ///
    /// # Errors
    /// A cell cannot be asked.
    pub fn questions(&self) -> Result<Vec<(Cell, Question)>, AskError> {
        let tables = self.hops.iter().copied().max().unwrap_or(1).max(1);
        let mut questions = Vec::new();
        for index in 0..self.count {
            for variant in &self.variants {
                for entries in &self.entries {
                    for hops in &self.hops {
                        let cell = Cell { hops: *hops, entries: *entries, tables, variant: *variant };
                        let question = self.writer.ladder_question(&cell, &self.symbols.symbols, self.seed, index)?;
                        questions.push((cell, question));
                    }
                }
            }
        }
        Ok(questions)
    }
}

/// How hard a server is pressed.
#[derive(Clone, Copy, Debug)]
pub struct RequestPolicy {
    /// Requests under way at once.
    pub concurrency: usize,
    /// Requests a second at most; none for no limit.
    pub rate: Option<f64>,
    /// Further attempts after a failure that may pass.
    pub retries: usize,
    /// The wait before the first further attempt; it doubles every time.
    pub first_wait: Duration,
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self { concurrency: 8, rate: None, retries: 6, first_wait: Duration::from_millis(500) }
    }
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct LadderOutcome {
    /// Questions answered in this run.
    pub answered: usize,
    /// Questions that are still open, because attempts ran out or the run was stopped.
    pub open: usize,
    /// The last failure.
    pub failure: Option<String>,
}

/// Puts every question that the record does not have yet, until `stop` says so: then only requests under way are waited for.
/// `progress` is called after each answer with how many there are.
///
/// # Errors
/// The record cannot be written, a cell cannot be asked, or a request is refused for good.
pub fn run(
    model: &dyn AnsweringModel,
    grid: &Grid,
    record: &mut AnswerRecord,
    pace: RequestPolicy,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(usize) + Sync),
) -> Result<LadderOutcome, AskError> {
    let all = grid.questions()?;
    let total = all.len();
    let open: Vec<(Cell, Question)> = all.into_iter().filter(|(_, question)| !record.has(&question.id)).collect();
    let start = total - open.len();
    let (next, limiter) = (AtomicUsize::new(0), RateLimiter::new(pace.rate));
    let shared = Mutex::new((record, LadderOutcome::default(), None::<AskError>));
    let refused = AtomicBool::new(false);
    let stop = || refused.load(Ordering::Relaxed) || stop();
    let worker = || {
        while !stop() {
            let Some((cell, question)) = open.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            let answer = attempt(model, cell, question, pace, &limiter, &stop);
            // A thread that panicked leaves a whole record behind: lines are added one by one.
            let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (record, outcome, fatal) = &mut *shared;
            match answer.and_then(|answer| record.add(answer)) {
                Ok(()) => {
                    outcome.answered += 1;
                    progress(start + outcome.answered);
                }
                Err(error) if error.is_transient() => outcome.failure = Some(error.to_string()),
                Err(error) => {
                    *fatal = Some(error);
                    refused.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..pace.concurrency.clamp(1, 256) {
            scope.spawn(worker);
        }
    });
    let (record, mut outcome, fatal) = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(error) = fatal {
        return Err(error);
    }
    outcome.open = open.len() - outcome.answered;
    if outcome.open == 0 {
        record.finish()?;
    }
    Ok(outcome)
}

/// Asks one question, again after failures that may pass.
fn attempt(
    model: &dyn AnsweringModel,
    cell: &Cell,
    question: &Question,
    pace: RequestPolicy,
    limiter: &RateLimiter,
    stop: &dyn Fn() -> bool,
) -> Result<Answer, AskError> {
    let mut wait = pace.first_wait;
    let mut left = pace.retries;
    loop {
        limiter.wait(stop);
        match ask(model, cell, question) {
            Err(error) if error.is_transient() && left > 0 && !stop() => {
                let advised =
                    if let AskError::Status { retry_after: Some(seconds), .. } = &error { *seconds } else { 0 };
                sleep(wait.max(Duration::from_secs(advised.min(60))), stop);
                if stop() {
                    return Err(error);
                }
                wait = (wait * 2).min(Duration::from_secs(30));
                left -= 1;
            }
            other => return other,
        }
    }
}

/// Asks one question once.
///
/// # Errors
/// As [`AnsweringModel::next_token`].
pub fn ask(model: &dyn AnsweringModel, cell: &Cell, question: &Question) -> Result<Answer, AskError> {
    let (found, read_by, mass, reasoned) = if cell.variant.chain_of_thought {
        let reply = model.write(&question.text, CHAIN_OF_THOUGHT_TOKENS)?;
        (read_chain_of_thought(question, &reply), ReadBy::ChainOfThought, None, false)
    } else {
        let reply = model.next_token(&question.text)?;
        let (found, read_by, mass) = read_token(question, &reply);
        (found, read_by, mass, reply.reasoned)
    };
    Ok(Answer {
        id: question.id.clone(),
        hops: cell.hops,
        entries: cell.entries,
        variant: cell.variant.label(),
        expected: question.answer.clone(),
        found,
        read_by,
        mass,
        reasoned,
    })
}

/// Sleeps in small pieces, so that a stop is noticed.
fn sleep(time: Duration, stop: &dyn Fn() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end && !stop() {
        std::thread::sleep(Duration::from_millis(20).min(end.saturating_duration_since(Instant::now())));
    }
}

/// Spaces requests evenly.
struct RateLimiter {
    gap: Duration,
    next: Mutex<Instant>,
}

impl RateLimiter {
    fn new(rate: Option<f64>) -> Self {
        let gap = rate.filter(|rate| *rate > 0.0).map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        Self { gap, next: Mutex::new(Instant::now()) }
    }

    fn wait(&self, stop: &dyn Fn() -> bool) {
        if self.gap.is_zero() {
            return;
        }
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let turn = (*next).max(Instant::now());
            *next = turn + self.gap;
            turn
        };
        sleep(turn.saturating_duration_since(Instant::now()), stop);
    }
}
