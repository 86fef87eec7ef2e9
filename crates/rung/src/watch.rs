//! Shows the progress of training runs, and handles Ctrl-C.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rung_theory::task;
use rung_train::run::{AccuracyByGroup, AnswerCount, RunConfig, RunRecord, StepReport};
use rung_train::sweep::{Event, Shard, Sweep};

use crate::call::{self, CallContext};
use crate::output::{print_note, remove_control};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Handles Ctrl-C and SIGTERM. The first sets a flag, so that work can be saved; the second ends the process. When the command runs inside
/// a call from the Python package, the caller requests the stop.
#[derive(Clone, Debug)]
pub struct Interrupt(Option<CallContext>);

impl Interrupt {
    /// Installs the handler, for a command that saves a checkpoint.
    pub fn install() -> Self {
        Self::with_message("saving a checkpoint; press again to quit at once")
    }

    /// Installs the handler, with the message printed on the first Ctrl-C.
    pub fn with_message(message: &'static str) -> Self {
        if let Some(context) = call::context() {
            context.set_saves_on_stop();
            return Self(Some(context));
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
        self.0.as_ref().map_or_else(|| INTERRUPTED.load(Ordering::Relaxed), CallContext::stop_requested)
    }
}

/// Shows the progress of one run: a bar on a terminal, otherwise a line per evaluation; a calling program gets the latest state.
pub struct RunWatcher {
    caller: Option<CallContext>,
    bar: Option<ProgressBar>,
    /// Whether each evaluation is printed as a line.
    prints_lines: bool,
    /// Whether the task has hops, by which accuracy is shown.
    has_hops: bool,
    last_accuracy: String,
    last_update: Instant,
}

impl RunWatcher {
    /// A watcher for a run. Only a calling program sees its progress unless `prints_progress`.
    pub fn new(config: &RunConfig, prints_progress: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (prints_progress && terminal).then(|| {
            let bar = ProgressBar::new(config.train.steps as u64);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let caller = call::context();
        Self {
            caller,
            bar,
            prints_lines: prints_progress && !terminal,
            has_hops: has_hops(&config.task),
            last_accuracy: String::new(),
            last_update: Instant::now(),
        }
    }

    /// Shows the state after a step.
    pub fn show(&mut self, report: &StepReport<'_>) {
        if let Some(evaluation) = report.evaluation {
            self.last_accuracy = accuracy_text(&evaluation.accuracy, self.has_hops);
        }
        let time_left = Duration::from_secs_f64(report.seconds_left.clamp(0.0, 1e9));
        let text = format!(
            "loss {:.3}  {}  {:.0} tokens/s  about {} left",
            report.loss,
            self.last_accuracy,
            report.tokens_per_second,
            indicatif::HumanDuration(time_left)
        );
        if let Some(caller) = &self.caller {
            caller.show_progress(format!("step {}/{}  {text}", report.step, report.steps));
        }
        match &self.bar {
            Some(bar) if self.last_update.elapsed() > Duration::from_millis(100) || report.evaluation.is_some() => {
                bar.set_position(report.step as u64);
                bar.set_message(text);
                self.last_update = Instant::now();
            }
            None if self.prints_lines && report.evaluation.is_some() => {
                print_note(&format!("step {}/{}  {text}", report.step, report.steps));
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

/// Accuracy by hops: "hop 1 99.8%, hop 2 31.2%"; for a task without hops only the percentage.
pub fn accuracy_text(accuracy: &AccuracyByGroup, has_hops: bool) -> String {
    let group_text = |(hops, answers): (&u16, &AnswerCount)| {
        let percent = format!("{:.1}%", 100.0 * answers.accuracy());
        if has_hops { format!("hop {hops} {percent}") } else { percent }
    };
    accuracy.iter().map(group_text).collect::<Vec<_>>().join(", ")
}

/// The accuracy of a finished run.
pub fn record_accuracy_text(record: &RunRecord) -> String {
    accuracy_text(&record.accuracy, has_hops(&record.config.task))
}

/// Whether the questions of a task are about hops, by its spec.
pub fn has_hops(task: &str) -> bool {
    task::parse(task).is_ok_and(|task| task.groups_by_hops())
}

/// Shows the progress of a sweep: a bar of the steps of all runs on a terminal, otherwise a line per finished run.
pub struct SweepWatcher {
    caller: Option<CallContext>,
    bar: Option<ProgressBar>,
    /// Whether each finished run is printed as a line.
    prints_lines: bool,
    /// Finished steps of each run.
    finished_steps: Mutex<Vec<u64>>,
    /// Maximum number of steps of each run.
    max_steps: Vec<u64>,
}

impl SweepWatcher {
    /// A watcher for the runs of a shard. Only a calling program sees its progress unless `prints_progress`.
    pub fn new(sweep: &Sweep, shard: Shard, prints_progress: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let max_steps: Vec<u64> = sweep.runs.iter().map(|run| run.config.train.steps as u64).collect();
        let shard_steps =
            max_steps.iter().enumerate().filter(|(run_index, _)| shard.contains(*run_index)).map(|(_, steps)| *steps);
        let bar = (prints_progress && terminal).then(|| crate::output::progress_bar(shard_steps.sum()));
        let caller = call::context();
        let finished_steps = Mutex::new(vec![0; max_steps.len()]);
        Self { caller, bar, prints_lines: prints_progress && !terminal, finished_steps, max_steps }
    }

    /// Shows an event.
    pub fn show(&self, event: &Event<'_>) {
        let advance = |run_index: usize, step: u64| {
            let mut finished_steps = self.finished_steps.lock().unwrap_or_else(PoisonError::into_inner);
            let added_steps = step.saturating_sub(finished_steps[run_index]);
            finished_steps[run_index] = step;
            if let Some(bar) = &self.bar {
                bar.inc(added_steps);
            }
            if let Some(caller) = &self.caller {
                caller.show_progress(format!(
                    "step {} of at most {}",
                    finished_steps.iter().sum::<u64>(),
                    self.max_steps.iter().sum::<u64>()
                ));
            }
        };
        match event {
            Event::Step { run, step, .. } => advance(*run, *step as u64),
            Event::Waiting { .. } => {}
            // A run that stopped early counts as its maximum number of steps, so that the bar is full at the end.
            Event::AlreadyRecorded { run, .. } => advance(*run, self.max_steps[*run]),
            Event::Recorded { run, record, seconds } => {
                advance(*run, self.max_steps[*run]);
                let text = format!("{}  {} steps  {}", record.config.stack, record.steps, record_accuracy_text(record));
                if let Some(bar) = &self.bar {
                    bar.set_message(remove_control(text));
                } else if self.prints_lines {
                    print_note(&format!("{}: {text}  {seconds:.0} s", record.id));
                }
            }
        }
    }

    /// Shows a message beside the bar, if there is a bar.
    pub fn set_message(&self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(remove_control(message));
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
pub fn duration_text(seconds: f64) -> String {
    indicatif::HumanDuration(Duration::from_secs_f64(seconds.clamp(0.0, 1e9))).to_string()
}
