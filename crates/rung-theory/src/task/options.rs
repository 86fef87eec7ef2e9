//! Parsing of a task's options, and its errors.
//!
//! A task takes each of its options from [`Options`] by name, with a default and a range. A typed option that the task did not take
//! is unknown; the error lists the options that it did take. All sizes are checked here, before memory is allocated.

use std::ops::RangeInclusive;

use crate::spec::{Spec, SpecValue, SyntaxError, nearest};

/// The largest number of tokens in a prompt.
pub const MAX_TOKENS: u64 = 1 << 24;

/// The largest number of ids (tokens times fields) in a prompt: 256 MiB.
pub const MAX_IDS: u64 = 1 << 26;

/// Why a spec does not describe a task.
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
        /// The most similar name, if any.
        suggestion: Option<String>,
        /// The names of all tasks.
        known: String,
    },
    /// The task has no such option.
    #[error("task `{task}` has no option `{found}`{}; its options are {known}", did_you_mean(.suggestion.as_deref()))]
    UnknownOption {
        /// The task's name.
        task: &'static str,
        /// What was typed.
        found: String,
        /// The most similar option, if any.
        suggestion: Option<String>,
        /// All options of the task.
        known: String,
    },
    /// An option has a value that is not allowed.
    #[error("task `{task}`: option `{option}` is {found}, expected {expected}")]
    BadValue {
        /// The task's name.
        task: &'static str,
        /// The option's name.
        option: &'static str,
        /// The typed value.
        found: String,
        /// The allowed values.
        expected: String,
    },
    /// Each option is valid alone, but not together with the others.
    #[error("task `{task}`: {found}, expected {expected}")]
    BadSize {
        /// The task's name.
        task: &'static str,
        /// The conflict.
        found: String,
        /// The requirement.
        expected: String,
    },
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// Names in backquotes, separated by commas.
pub(crate) fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The typed options of one task, taken one by one by name.
#[derive(Debug)]
pub(crate) struct Options {
    task: &'static str,
    /// Options that were typed and not yet taken.
    remaining: Vec<(String, SpecValue)>,
    /// The names of all options that the task has taken.
    known: Vec<&'static str>,
}

impl Options {
    pub(crate) fn new(task: &'static str, spec: Spec) -> Self {
        Self { task, remaining: spec.options, known: Vec::new() }
    }

    /// The typed value of `option`, if any.
    pub(crate) fn take(&mut self, option: &'static str) -> Option<SpecValue> {
        self.known.push(option);
        let index = self.remaining.iter().position(|(name, _)| name == option)?;
        Some(self.remaining.remove(index).1)
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
                Err(self.bad_value(option, &other, expected))
            }
        }
    }

    /// [`number`](Self::number) as `u32`, for ids.
    pub(crate) fn number_u32(
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
            let expected = format!("one of {}", quoted_list(choices.iter().map(|(word, _)| *word)));
            self.bad_value(option, &typed, expected)
        })
    }

    /// `yes` or `no`; `no` unless typed.
    pub(crate) fn flag(&mut self, option: &'static str) -> Result<bool, TaskError> {
        self.word(option, &[("no", false), ("yes", true)])
    }

    /// The error that `option` has a value that is not allowed.
    pub(crate) fn bad_value(&self, option: &'static str, found: &SpecValue, expected: impl Into<String>) -> TaskError {
        TaskError::BadValue { task: self.task, option, found: quote_shortened(found), expected: expected.into() }
    }

    /// The error that the options do not fit together.
    pub(crate) fn sizes_error(&self, found: impl Into<String>, expected: impl Into<String>) -> TaskError {
        TaskError::BadSize { task: self.task, found: found.into(), expected: expected.into() }
    }

    /// Checks that every typed option was taken.
    pub(crate) fn finish(self) -> Result<(), TaskError> {
        let Some((found, _)) = self.remaining.first() else { return Ok(()) };
        let suggestion = nearest(found, self.known.iter().copied()).map(str::to_owned);
        let known = quoted_list(self.known.iter().copied());
        Err(TaskError::UnknownOption { task: self.task, found: found.clone(), suggestion, known })
    }
}

/// A value in backquotes, shortened if it is long, for error messages.
fn quote_shortened(value: &SpecValue) -> String {
    let text = value.to_string();
    if text.len() <= 48 { format!("`{text}`") } else { format!("`{}..`", text.chars().take(45).collect::<String>()) }
}

/// The word for a value of a choice, as in specs.
pub(crate) fn word_of<T: Copy + PartialEq>(choices: &[(&'static str, T)], value: T) -> &'static str {
    choices.iter().find(|(_, choice)| *choice == value).map_or("", |(word, _)| word)
}

/// `yes` or `no`, as in specs.
pub(crate) fn yes_no(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}
