//! Asks a model the questions of a grid, from several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::grid::Grid;
use crate::prompt::{GridCell, Question};
use crate::record::RecordFile;
use crate::score::{Answer, AnswerSource, symbol_from_chain_of_thought, symbol_from_token};
use crate::{AnsweringModel, AskError};

/// The longest time between two requests, a day: a rate may be too small for the time to fit a duration.
const MAX_INTERVAL_SECONDS: f64 = 86_400.0;
/// Maximum number of tokens of a chain of thought.
const CHAIN_OF_THOUGHT_TOKENS: usize = 256;

/// Concurrency, rate limit and retries of requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestPolicy {
    /// Number of concurrent requests.
    pub concurrency: usize,
    /// Rate limit; none for no limit.
    pub max_requests_per_second: Option<f64>,
    /// Retries after a transient failure.
    pub retries: usize,
    /// The wait before the first retry; it doubles with every retry.
    pub initial_backoff: Duration,
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self { concurrency: 8, max_requests_per_second: None, retries: 6, initial_backoff: Duration::from_millis(500) }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// Number of questions answered in this run.
    pub answer_count: usize,
    /// Number of questions without an answer, because retries ran out or the run was stopped.
    pub unanswered_count: usize,
    /// The last transient failure.
    pub failure: Option<String>,
}

/// Asks every question that has no answer in the record. When `should_stop` returns true, no new request is sent and running requests are awaited.
/// `progress` is called after each answer with the number of answers so far.
///
/// # Errors
/// The record cannot be written, a cell has no valid question, or a request fails with an error that is not transient.
pub fn run(
    model: &dyn AnsweringModel,
    grid: &Grid,
    record: &mut RecordFile,
    policy: RequestPolicy,
    should_stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(usize) + Sync),
) -> Result<RunOutcome, AskError> {
    let questions = grid.questions()?;
    let total = questions.len();
    let unanswered: Vec<(GridCell, Question)> =
        questions.into_iter().filter(|(_, question)| !record.has_answer(&question.id)).collect();
    let answers_before = total - unanswered.len();
    let (next_index, limiter) = (AtomicUsize::new(0), RateLimiter::new(policy.max_requests_per_second));
    let shared = Mutex::new((record, RunOutcome::default(), None::<AskError>));
    let failed = AtomicBool::new(false);
    let should_stop = || failed.load(Ordering::Relaxed) || should_stop();
    let worker = || {
        while !should_stop() {
            let Some((cell, question)) = unanswered.get(next_index.fetch_add(1, Ordering::Relaxed)) else { return };
            let answer = ask_with_retries(model, cell, question, policy, &limiter, &should_stop);
            // The record stays valid if a thread panicked, because each answer is appended as a complete line.
            let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (record, outcome, fatal) = &mut *shared;
            match answer.and_then(|answer| record.add(answer)) {
                Ok(()) => {
                    outcome.answer_count += 1;
                    progress(answers_before + outcome.answer_count);
                }
                Err(error) if error.is_transient() => outcome.failure = Some(error.to_string()),
                Err(error) => {
                    *fatal = Some(error);
                    failed.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..policy.concurrency.clamp(1, 256) {
            scope.spawn(worker);
        }
    });
    let (record, mut outcome, fatal) = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(error) = fatal {
        return Err(error);
    }
    outcome.unanswered_count = unanswered.len() - outcome.answer_count;
    if outcome.unanswered_count == 0 {
        record.finish()?;
    }
    Ok(outcome)
}

/// Asks one question, with retries after transient failures.
fn ask_with_retries(
    model: &dyn AnsweringModel,
    cell: &GridCell,
    question: &Question,
    policy: RequestPolicy,
    limiter: &RateLimiter,
    should_stop: &dyn Fn() -> bool,
) -> Result<Answer, AskError> {
    let mut backoff = policy.initial_backoff;
    let mut retries_left = policy.retries;
    loop {
        limiter.wait(should_stop);
        match ask(model, cell, question) {
            Err(error) if error.is_transient() && retries_left > 0 && !should_stop() => {
                let retry_after_seconds =
                    if let AskError::Status { retry_after: Some(seconds), .. } = &error { *seconds } else { 0 };
                sleep(backoff.max(Duration::from_secs(retry_after_seconds.min(60))), should_stop);
                if should_stop() {
                    return Err(error);
                }
                backoff = (backoff * 2).min(Duration::from_secs(30));
                retries_left -= 1;
            }
            result => return result,
        }
    }
}

/// Asks one question once.
///
/// # Errors
/// As [`AnsweringModel::next_token`].
pub fn ask(model: &dyn AnsweringModel, cell: &GridCell, question: &Question) -> Result<Answer, AskError> {
    let (reply_symbol, source, symbol_mass, has_reasoning) = if cell.variant.chain_of_thought {
        let reply = model.generate(&question.text, CHAIN_OF_THOUGHT_TOKENS)?;
        (symbol_from_chain_of_thought(question, &reply), AnswerSource::ChainOfThought, None, false)
    } else {
        let reply = model.next_token(&question.text)?;
        let (reply_symbol, source, symbol_mass) = symbol_from_token(question, &reply);
        (reply_symbol, source, symbol_mass, reply.has_reasoning)
    };
    Ok(Answer {
        id: question.id.clone(),
        hops: cell.hops,
        entries_per_table: cell.entries_per_table,
        variant: cell.variant.label(),
        expected: question.answer.clone(),
        reply_symbol,
        source,
        symbol_mass,
        has_reasoning,
    })
}

/// Sleeps in steps of 20 milliseconds, and returns early when `should_stop` returns true.
fn sleep(duration: Duration, should_stop: &dyn Fn() -> bool) {
    let end = Instant::now() + duration;
    while Instant::now() < end && !should_stop() {
        std::thread::sleep(Duration::from_millis(20).min(end.saturating_duration_since(Instant::now())));
    }
}

/// Spaces requests evenly.
struct RateLimiter {
    interval: Duration,
    next_start: Mutex<Instant>,
}

impl RateLimiter {
    fn new(requests_per_second: Option<f64>) -> Self {
        let interval = requests_per_second
            .filter(|rate| *rate > 0.0)
            .map_or(Duration::ZERO, |rate| Duration::from_secs_f64((1.0 / rate).min(MAX_INTERVAL_SECONDS)));
        Self { interval, next_start: Mutex::new(Instant::now()) }
    }

    /// Waits until the next request may start.
    fn wait(&self, should_stop: &dyn Fn() -> bool) {
        if self.interval.is_zero() {
            return;
        }
        let start = {
            let mut next_start = self.next_start.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let start = (*next_start).max(Instant::now());
            *next_start = start + self.interval;
            start
        };
        sleep(start.saturating_duration_since(Instant::now()), should_stop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_requests_is_at_most_a_day() {
        for (rate, seconds) in
            [(None, 0.0), (Some(4.0), 0.25), (Some(1e-30), 86_400.0), (Some(f64::MIN_POSITIVE), 86_400.0)]
        {
            assert_eq!(RateLimiter::new(rate).interval, Duration::from_secs_f64(seconds), "{rate:?}");
        }
    }
}
