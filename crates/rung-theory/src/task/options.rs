//! Reading a task's options, and what can be wrong with them.
//!
//! A task asks [`Options`] for each of its options by name, with a default and the values that make sense; what was
//! typed but never asked for is unknown, and the error can list what would have been known. All sizes are checked
//! here, before anything is allocated.

use std::ops::RangeInclusive;

use crate::spec::{Spec, SpecValue, SyntaxError, nearest};

/// The most tokens a prompt may have.
pub const MAX_TOKENS: u64 = 1 << 24;

/// The most ids (tokens times fields) a prompt may have: 256 MiB of them.
pub const MAX_CELLS: u64 = 1 << 26;

/// A task that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The text is not `name{option=value,..}`.
    #[error("task: {0}")]
    Syntax(#[from] SyntaxError),
    /// No task has this name.
    #[error("there is no task `{found}`{}; the tasks are {known}", did_you_mean(.suggestion.as_deref()))]
    UnknownTask {
        /// What was typed.
        found: String,
        /// The nearest name, if one is near.
        suggestion: Option<String>,
        /// All names.
        known: String,
    },
    /// The task has no such option.
    #[error("task `{task}` has no option `{found}`{}; its options are {known}", did_you_mean(.suggestion.as_deref()))]
    UnknownOption {
        /// The task.
        task: &'static str,
        /// What was typed.
        found: String,
        /// The nearest option, if one is near.
        suggestion: Option<String>,
        /// All options of the task.
        known: String,
    },
    /// An option has a value that it cannot have.
    #[error("task `{task}`: option `{option}` is {found}, expected {expected}")]
    BadValue {
        /// The task.
        task: &'static str,
        /// The option.
        option: &'static str,
        /// The value it has.
        found: String,
        /// The values it can have.
        expected: String,
    },
    /// The options are fine one by one, but not together.
    #[error("task `{task}`: {found}, expected {expected}")]
    BadSize {
        /// The task.
        task: &'static str,
        /// What they come to.
        found: String,
        /// What it would have to be.
        expected: String,
    },
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// Names as users read them in an error.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The options of one task, as typed, handed out by name.
#[derive(Debug)]
pub(crate) struct Options {
    task: &'static str,
    given: Vec<(String, SpecValue)>,
    /// Every option asked for so far.
    known: Vec<&'static str>,
}

impl Options {
    pub(crate) fn new(task: &'static str, spec: Spec) -> Self {
        Self { task, given: spec.options, known: Vec::new() }
    }

    /// What was typed for `option`, if anything.
    pub(crate) fn take(&mut self, option: &'static str) -> Option<SpecValue> {
        self.known.push(option);
        let at = self.given.iter().position(|(name, _)| name == option)?;
        Some(self.given.remove(at).1)
    }

    /// A whole number in a range.
    pub(crate) fn number(
        &mut self,
        option: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, TaskError> {
        match self.take(option) {
            None => Ok(default),
            Some(SpecValue::Number(number)) if range.contains(&number) => Ok(number),
            Some(other) => {
                let expected = format!("a whole number from {} to {}", range.start(), range.end());
                Err(self.bad(option, &other, expected))
            }
        }
    }

    /// [`number`](Self::number) for ids.
    pub(crate) fn small(
        &mut self,
        option: &'static str,
        default: u32,
        range: RangeInclusive<u32>,
    ) -> Result<u32, TaskError> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        Ok(self.number(option, u64::from(default), range)? as u32)
    }

    /// One of a few words; the first is the default.
    pub(crate) fn word<T: Copy>(
        &mut self,
        option: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<T, TaskError> {
        let Some(typed) = self.take(option) else { return Ok(choices[0].1) };
        let chosen = choices.iter().find(|(word, _)| matches!(&typed, SpecValue::Word(found) if found == word));
        chosen.map(|(_, value)| *value).ok_or_else(|| {
            let expected = format!("one of {}", listed(choices.iter().map(|(word, _)| *word)));
            self.bad(option, &typed, expected)
        })
    }

    /// `yes` or `no`; `no` unless typed.
    pub(crate) fn flag(&mut self, option: &'static str) -> Result<bool, TaskError> {
        self.word(option, &[("no", false), ("yes", true)])
    }

    /// The error that `option` has the wrong value.
    pub(crate) fn bad(&self, option: &'static str, found: &SpecValue, expected: impl Into<String>) -> TaskError {
        TaskError::BadValue { task: self.task, option, found: shown(found), expected: expected.into() }
    }

    /// The error that the options do not fit together.
    pub(crate) fn sizes_error(&self, found: impl Into<String>, expected: impl Into<String>) -> TaskError {
        TaskError::BadSize { task: self.task, found: found.into(), expected: expected.into() }
    }

    /// Every option typed must have been asked for.
    pub(crate) fn finish(self) -> Result<(), TaskError> {
        let Some((found, _)) = self.given.first() else { return Ok(()) };
        let suggestion = nearest(found, self.known.iter().copied()).map(str::to_owned);
        let known = listed(self.known.iter().copied());
        Err(TaskError::UnknownOption { task: self.task, found: found.clone(), suggestion, known })
    }
}

/// A value as errors show it: a list may be as long as the user likes, the message may not.
fn shown(value: &SpecValue) -> String {
    let text = value.to_string();
    if text.len() <= 48 { format!("`{text}`") } else { format!("`{}..`", text.chars().take(45).collect::<String>()) }
}

/// `yes` or `no`, as specs write it.
pub(crate) fn yes_no(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}
