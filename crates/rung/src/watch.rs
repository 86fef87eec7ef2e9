//! Progress of training runs, and Ctrl-C.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rung_train::run::{Accuracy, StepReport};
use rung_train::sweep::{Event, Shard, Sweep};

use crate::call::{self, CallerLink};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Ctrl-C, or a request to terminate. The first is noted, so that work can be saved; the second ends the process.
/// In a call from another program it is the caller who asks.
#[derive(Clone, Debug)]
pub struct Interrupt(Option<CallerLink>);

impl Interrupt {
    /// Installs the handler. Without signals on this system it does nothing.
    pub fn install() -> Self {
        Self::with_message("saving a checkpoint; press again to quit at once")
    }

    /// Installs the handler, with the message printed on the first Ctrl-C.
    pub fn with_message(message: &'static str) -> Self {
        if let Some(link) = call::link() {
            link.set_saves();
            return Self(Some(link));
        }
        let _ = ctrlc::set_handler(move || {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            eprintln!("\n{message}");
        });
        Self(None)
    }

    /// Whether the user has asked to stop.
    pub fn requested(&self) -> bool {
        self.0.as_ref().map_or_else(|| INTERRUPTED.load(Ordering::Relaxed), CallerLink::stop_requested)
    }
}

/// A bar on a terminal, a line per look elsewhere; the latest state for a caller.
pub struct Watcher {
    caller: Option<CallerLink>,
    bar: Option<ProgressBar>,
    lines: bool,
    last: String,
    drawn: Instant,
}

impl Watcher {
    /// For a run of this many steps; silent unless `verbose`.
    pub fn new(steps: usize, verbose: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (verbose && terminal).then(|| {
            let bar = ProgressBar::new(steps as u64);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let caller = call::link();
        Self { caller, bar, lines: verbose && !terminal, last: String::new(), drawn: Instant::now() }
    }

    /// Shows the state after a step.
    pub fn show(&mut self, report: &StepReport<'_>) {
        if let Some(evaluation) = report.evaluation {
            self.last = accuracy_text(&evaluation.accuracy);
        }
        let left = Duration::from_secs_f64(report.seconds_left.clamp(0.0, 1e9));
        let text = format!(
            "loss {:.3}  {}  {:.0} tokens/s  about {} left",
            report.loss,
            self.last,
            report.tokens_per_second,
            indicatif::HumanDuration(left)
        );
        if let Some(caller) = &self.caller {
            caller.show_progress(format!("step {}/{}  {text}", report.step, report.steps));
        }
        match &self.bar {
            Some(bar) if self.drawn.elapsed() > Duration::from_millis(100) || report.evaluation.is_some() => {
                bar.set_position(report.step as u64);
                bar.set_message(text);
                self.drawn = Instant::now();
            }
            None if self.lines && report.evaluation.is_some() => {
                eprintln!("step {}/{}  {text}", report.step, report.steps);
            }
            _ => {}
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// "hop 1: 99.8%, hop 2: 31.2%"; without hops, the share alone.
pub fn accuracy_text(accuracy: &Accuracy) -> String {
    let share = |mean: f64| format!("{:.1}%", 100.0 * mean);
    match accuracy.iter().next() {
        Some((0, tally)) if accuracy.len() == 1 => share(tally.mean()),
        _ => {
            let each = accuracy.iter().map(|(hops, tally)| format!("hop {hops} {}", share(tally.mean())));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A bar of steps over all runs on a terminal, a line per finished run elsewhere.
pub struct SweepWatcher {
    caller: Option<CallerLink>,
    bar: Option<ProgressBar>,
    lines: bool,
    /// Steps of each run that were counted.
    done: Mutex<Vec<u64>>,
    steps: Vec<u64>,
}

impl SweepWatcher {
    /// For the runs of a shard; silent unless `verbose`.
    pub fn new(sweep: &Sweep, shard: Shard, verbose: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let steps: Vec<u64> = sweep.runs.iter().map(|run| run.config.train.steps as u64).collect();
        let shard_steps = steps.iter().enumerate().filter(|(number, _)| shard.has(*number)).map(|(_, steps)| *steps);
        let bar = (verbose && terminal).then(|| crate::output::steps(shard_steps.sum()));
        let caller = call::link();
        Self { caller, bar, lines: verbose && !terminal, done: Mutex::new(vec![0; steps.len()]), steps }
    }

    /// Shows an event.
    pub fn show(&self, event: &Event<'_>) {
        let advance = |number: usize, to: u64| {
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            let more = to.saturating_sub(done[number]);
            done[number] = to;
            if let Some(bar) = &self.bar {
                bar.inc(more);
            }
            if let Some(caller) = &self.caller {
                caller.show_progress(format!(
                    "step {} of at most {}",
                    done.iter().sum::<u64>(),
                    self.steps.iter().sum::<u64>()
                ));
            }
        };
        match event {
            Event::Step(number, step, _) => advance(*number, *step as u64),
            // A run that stopped early counts whole, or the bar would never fill.
            Event::Waiting(_) => {}
            Event::AlreadyRecorded(number, _) => advance(*number, self.steps[*number]),
            Event::Recorded(number, record, seconds) => {
                advance(*number, self.steps[*number]);
                let text =
                    format!("{}  {} steps  {}", record.config.stack, record.steps, accuracy_text(&record.accuracy));
                if let Some(bar) = &self.bar {
                    bar.set_message(text);
                } else if self.lines {
                    eprintln!("{}: {text}  {seconds:.0} s", record.id);
                }
            }
        }
    }

    /// Shows a state beside the bar, if there is one.
    pub fn set_message(&self, state: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(state);
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A duration in words.
pub fn duration(seconds: f64) -> String {
    indicatif::HumanDuration(Duration::from_secs_f64(seconds.clamp(0.0, 1e9))).to_string()
}
