//! The problems that a stack is asked to solve.
//!
//! One task per file. Each file has the definition (its top comment is also the task's page in `rung explain`), the
//! sampler, the encoding into tokens, and an oracle. The oracle reads only the tokens, as a model does, and is
//! written by brute force from the definition, so that sampler and encoding are tested against something that
//! shares no code with them.
//!
//! ```text
//! text --parse--> task --sample(rng)--> instance --encode--> prompt: tokens, targets, groups
//!                  |                                           |
//!                  +--oracle(tokens) --> targets again         +--draw--> one sample in ASCII
//! ```
//!
//! - A **token** is a row of ids, one per [`Field`]. Most tasks have one field; structured ones have several.
//! - A **target** is the class to be predicted at a position, [`NO_TARGET`] where nothing is asked. A **group**
//!   tells sorts of questions apart.
//! - The **baseline** is what the best guess scores that knows the position and the group of a question and nothing
//!   else of the prompt. It is exact, not estimated.
//!
//! A task that users name in text is an [`AnyTask`]; code that wants the instances themselves (to enumerate them,
//! say) takes the concrete type, such as [`funccomp::FuncComp`], through [`Task`].
//!
//! ```
//! use rung_theory::task::{self, Prompt};
//!
//! let task = task::parse("funccomp{hops=2,m=3,n=[2]}")?;
//! let (mut rng, mut prompt) = (task::seeded(7), Prompt::new());
//! task.prompt(&mut rng, &mut prompt);
//! assert_eq!(prompt.len(), 6 + 3 + 2);
//! assert_eq!(task.oracle(prompt.tokens())?, prompt.targets());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To add a task: write its file, then name it in the two lists below.

use std::any::Any;
use std::fmt;

use crate::page::{ExplainPage, Subject};
use crate::spec;

mod draw;
mod options;
mod prompt;
mod random;
#[cfg(test)]
mod tests;
mod token_names;

// Plain lines, not part of the registry macro: the formatter does not look for files inside macros.
pub mod chain;
pub mod copying;
pub mod funccomp;
pub mod induction;
pub mod khop;
pub mod match2;
pub mod mqar;
pub mod parity;
pub mod parity_retrieval;
pub mod recall;
pub mod twosum;
pub mod word;

pub use options::{MAX_CELLS, MAX_TOKENS, TaskError};
pub use prompt::{Field, NO_TARGET, Prompt};
pub use random::{Distinct, Rng, below, below_wide, coin, fill, seeded, shuffle, splitmix64};
pub use token_names::TokenNames;

use options::Options;

/// A task of known type.
pub trait Task: fmt::Display + Send + Sync + 'static {
    /// What users type. [`Display`](fmt::Display) prints it with every option; that text parses to the same task.
    const NAME: &'static str;

    /// One problem, before it becomes tokens.
    type Instance: Any + Default + Send;

    /// The parts of a token.
    fn fields(&self) -> Vec<Field>;

    /// Targets are below this.
    fn classes(&self) -> u32;

    /// Tokens in a prompt. All prompts of a task are equally long.
    fn length(&self) -> usize;

    /// The share of questions that the best guess answers knowing position and group only: one over the classes where all are alike.
    fn baseline(&self) -> f64 {
        1.0 / f64::from(self.classes())
    }

    /// Draws an instance into `instance`, whose memory is reused and whose former content does not matter.
    fn sample(&self, rng: &mut Rng, instance: &mut Self::Instance);

    /// Writes an instance as tokens, targets and groups.
    fn encode(&self, instance: &Self::Instance, prompt: &mut Prompt);

    /// How many instances there are, if they can be counted off and the number fits.
    fn instances(&self) -> Option<u128> {
        None
    }

    /// The instance of this number, from 0, where they can be counted off.
    fn nth(&self, index: u128) -> Option<Self::Instance> {
        let _ = index;
        None
    }

    /// The answers to an instance's questions, in the order asked.
    fn answer(&self, instance: &Self::Instance) -> Vec<u32> {
        let mut prompt = Prompt::new();
        self.encode(instance, &mut prompt);
        prompt.questions().map(|(_, target, _)| target).collect()
    }

    /// The target of every position, found by brute force from the tokens alone.
    ///
    /// # Errors
    /// The tokens are not a prompt of this task.
    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError>;

    /// A prompt of this task in ASCII; long ones are shortened.
    fn draw(&self, prompt: &Prompt) -> String;
}

/// A task whose type is not known: what the command line and the trainers hold. As [`Any`] it can be asked for its type.
pub trait AnyTask: Any + fmt::Display + Send + Sync {
    /// What users type.
    fn name(&self) -> &'static str;

    /// Name and every option: parses to the same task.
    fn spec(&self) -> String {
        self.to_string()
    }

    /// See [`Task::fields`].
    fn fields(&self) -> Vec<Field>;

    /// See [`Task::classes`].
    fn classes(&self) -> u32;

    /// See [`Task::length`].
    fn length(&self) -> usize;

    /// See [`Task::baseline`].
    fn baseline(&self) -> f64;

    /// Draws an instance and writes it into `prompt`. Allocates nothing once `prompt` has held one of this task.
    fn prompt(&self, rng: &mut Rng, prompt: &mut Prompt);

    /// See [`Task::instances`].
    fn instances(&self) -> Option<u128>;

    /// Writes the instance of this number into `prompt`; false if there is none.
    fn nth_prompt(&self, index: u128, prompt: &mut Prompt) -> bool;

    /// See [`Task::oracle`].
    ///
    /// # Errors
    /// The tokens are not a prompt of this task.
    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError>;

    /// See [`Task::draw`].
    fn draw(&self, prompt: &Prompt) -> String;
}

impl<T: Task> AnyTask for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn fields(&self) -> Vec<Field> {
        Task::fields(self)
    }

    fn classes(&self) -> u32 {
        Task::classes(self)
    }

    fn length(&self) -> usize {
        Task::length(self)
    }

    fn baseline(&self) -> f64 {
        Task::baseline(self)
    }

    fn prompt(&self, rng: &mut Rng, prompt: &mut Prompt) {
        let mut instance: Box<T::Instance> = prompt.take_scratch().unwrap_or_default();
        self.sample(rng, &mut instance);
        self.encode(&instance, prompt);
        prompt.keep_scratch(instance);
    }

    fn instances(&self) -> Option<u128> {
        Task::instances(self)
    }

    fn nth_prompt(&self, index: u128, prompt: &mut Prompt) -> bool {
        let instance = self.nth(index);
        if let Some(instance) = &instance {
            self.encode(instance, prompt);
        }
        instance.is_some()
    }

    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        Task::oracle(self, tokens)
    }

    fn draw(&self, prompt: &Prompt) -> String {
        Task::draw(self, prompt)
    }
}

/// Tokens that are not a prompt of the task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task `{task}`, position {position}: found {found}, expected {expected}")]
pub struct OracleError {
    /// The task.
    pub task: &'static str,
    /// The position, from 0.
    pub position: usize,
    /// What stands there.
    pub found: String,
    /// What could have stood there.
    pub expected: String,
}

impl OracleError {
    /// An error of task `T`.
    pub fn new<T: Task>(position: usize, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { task: T::NAME, position, found: found.into(), expected: expected.into() }
    }

    /// Checks the number of tokens and the range of every id: what each oracle does first.
    ///
    /// # Errors
    /// The tokens are not of this task's shape.
    pub fn check<T: Task>(task: &T, tokens: &[u32]) -> Result<(), Self> {
        let fields = Task::fields(task);
        let length = tokens.len() / fields.len();
        if !tokens.len().is_multiple_of(fields.len()) || length != Task::length(task) {
            let expected = format!("{} tokens of {} ids", Task::length(task), fields.len());
            return Err(Self::new::<T>(length, format!("the end after {} ids", tokens.len()), expected));
        }
        for (position, token) in tokens.chunks_exact(fields.len()).enumerate() {
            if let Some((id, field)) = token.iter().zip(&fields).find(|(id, field)| **id >= field.vocabulary) {
                let expected = format!("`{}` below {}", field.name, field.vocabulary);
                return Err(Self::new::<T>(position, format!("id {id}"), expected));
            }
        }
        Ok(())
    }
}

/// One line of the registry.
struct Entry {
    name: &'static str,
    source: &'static str,
    read: fn(&mut Options) -> Result<Box<dyn AnyTask>, TaskError>,
}

macro_rules! registry {
    ($($file:ident :: $task:ident,)*) => {
        const REGISTRY: &[Entry] = &[$(Entry {
            name: $file::$task::NAME,
            source: include_str!(concat!(stringify!($file), ".rs")),
            read: |options| Ok(Box::new($file::$task::read(options)?)),
        }),*];
    };
}

registry! {
    funccomp::FuncComp,
    chain::Chain,
    twosum::TwoSum,
    match2::Match2,
    mqar::Mqar,
    induction::Induction,
    khop::KHop,
    copying::Copying,
    recall::Recall,
    parity::Parity,
    word::Word,
    parity_retrieval::ParityRetrieval,
}

/// The task that a text such as `funccomp{hops=3,m=8,n=[4,4]}` names. Options left out have their defaults.
///
/// # Errors
/// The text is malformed, or names a task or an option that does not exist, or a size that makes no sense.
pub fn parse(text: &str) -> Result<Box<dyn AnyTask>, TaskError> {
    let spec = spec::parse_spec(text)?;
    let Some(entry) = REGISTRY.iter().find(|entry| entry.name == spec.name) else {
        let suggestion = spec::nearest(&spec.name, names()).map(str::to_owned);
        return Err(TaskError::UnknownTask { found: spec.name, suggestion, known: options::listed(names()) });
    };
    let mut options = Options::new(entry.name, spec);
    let task = (entry.read)(&mut options)?;
    options.finish()?;
    Ok(task)
}

/// The names of all tasks.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.name)
}

/// The page of every task.
pub fn pages() -> Vec<ExplainPage> {
    REGISTRY
        .iter()
        .map(|entry| ExplainPage { name: entry.name, subject: Subject::Task, source: entry.source })
        .collect()
}

/// `length` digits in some base that a number has, the lowest first; none if it has more.
fn digits(mut number: u128, base: u32, length: usize) -> Option<Vec<u32>> {
    let base = u128::from(base);
    let mut next = || {
        let digit = number % base;
        number /= base;
        digit as u32
    };
    let digits = (0..length).map(|_| next()).collect();
    (number == 0).then_some(digits)
}

/// Numbers as a list in a spec has them, without the brackets.
fn listed_numbers(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
