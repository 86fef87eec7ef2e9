//! The synthetic tasks: stacks are trained on them, and the bounds are about them.
//!
//! One task per file. Each file has the definition (its top comment is also the task's page in `rung explain`), the
//! sampler, the encoding into tokens, and an oracle. The oracle reads only the tokens, as a model does, and is
//! written by brute force from the definition, so that sampler and encoding are tested against code that they do
//! not share.
//!
//! ```text
//! text --parse--> task --sample(rng)--> instance --encode--> prompt: tokens, targets, groups
//!                  |                                           |
//!                  +--oracle(tokens)--> the same targets       +--render--> one sample in ASCII
//! ```
//!
//! - A **token** is a row of ids, one per [`Field`]. Most tasks have one field; structured ones have several.
//! - A **target** is the class to be predicted at a position, [`NO_TARGET`] at a position without a question. The **metric group**
//!   of a question, such as its number of hops, is the group that its accuracy is reported in.
//! - The **baseline** is the accuracy of the best guess that knows only the position and the metric group of a question. It is exact,
//!   not estimated.
//!
//! [`parse`] returns an [`AnyTask`]; code that needs the instances themselves, for example to enumerate them, uses a concrete
//! type, such as [`funccomp::FuncComp`], through [`Task`].
//!
//! ```
//! use rung_theory::task::{self, Prompt};
//!
//! let task = task::parse("funccomp{hops=2,m=3,n=[2]}")?;
//! let (mut rng, mut prompt) = (task::seeded(7), Prompt::new());
//! task.sample_prompt(&mut rng, &mut prompt);
//! assert_eq!(prompt.len(), 6 + 3 + 2);
//! assert_eq!(task.oracle(prompt.tokens())?, prompt.targets());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To add a task: write its file, then add it to the list of modules and to `registry!`.

use std::any::Any;
use std::fmt;

use crate::page::{ExplainPage, Subject};
use crate::spec;

mod options;
mod prompt;
mod random;
mod render;
#[cfg(test)]
mod tests;
mod token_names;

// Not inside of the registry macro, because rustfmt does not format modules that a macro declares.
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

pub use options::{MAX_IDS, MAX_TOKENS, TaskError};
pub use prompt::{Field, NO_TARGET, Prompt, SINGLE_GROUP};
pub use random::{
    DistinctSampler, Rng, fill_random, random_below, random_below_u64, random_bool, seeded, shuffle, splitmix64,
};
pub use token_names::TokenNames;

use options::Options;

/// What [`Task`] and [`AnyTask`] have in common: everything that does not depend on the type of instances.
///
/// [`Display`](fmt::Display) prints the name with every option; that text parses to the same task.
pub trait TaskBase: Any + fmt::Display + Send + Sync {
    /// The fields of a token.
    fn fields(&self) -> Vec<Field>;

    /// The number of classes: targets are below this.
    fn classes(&self) -> u32;

    /// Tokens in a prompt. All prompts of a task are equally long.
    fn length(&self) -> usize;

    /// The accuracy of the best guess that knows only position and metric group; by default all classes are equally likely.
    fn baseline(&self) -> f64 {
        1.0 / f64::from(self.classes())
    }

    /// Whether the metric group of a question is its number of hops. In other tasks every question is in group [`SINGLE_GROUP`].
    fn groups_by_hops(&self) -> bool {
        false
    }

    /// A prompt of this task in ASCII; long ones are shortened.
    fn render(&self, prompt: &Prompt) -> String;
}

/// A task of known type.
pub trait Task: TaskBase {
    /// The name in specs.
    const NAME: &'static str;

    /// The content of one prompt, before it is encoded as tokens.
    type Instance: Any + Default + Send;

    /// Samples an instance into `instance`, whose memory is reused and whose old content is ignored.
    fn sample(&self, rng: &mut Rng, instance: &mut Self::Instance);

    /// Writes an instance as tokens, targets and groups.
    fn encode(&self, instance: &Self::Instance, prompt: &mut Prompt);

    /// The number of instances; none if they cannot be enumerated or the number does not fit.
    fn instance_count(&self) -> Option<u128> {
        None
    }

    /// The instance of this number, from 0; none if there is no such instance or they cannot be enumerated.
    fn nth_instance(&self, index: u128) -> Option<Self::Instance> {
        let _ = index;
        None
    }

    /// The answers to an instance's questions, in prompt order.
    fn answer(&self, instance: &Self::Instance) -> Vec<u32> {
        let mut prompt = Prompt::new();
        self.encode(instance, &mut prompt);
        prompt.questions().map(|(_, target, _)| target).collect()
    }

    /// The target of every position, computed from the tokens alone. Tokens have the right number and ids in range.
    ///
    /// # Errors
    /// The tokens are not a prompt of this task.
    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError>;

    /// [`brute_force`](Self::brute_force) after a check of the number of tokens and the range of every id.
    ///
    /// # Errors
    /// The tokens are not a prompt of this task.
    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError>
    where
        Self: Sized,
    {
        OracleError::check(self, tokens)?;
        self.brute_force(tokens)
    }
}

/// A task whose type is not known at compile time. It can be downcast, as [`Any`].
pub trait AnyTask: TaskBase {
    /// The name in specs.
    fn name(&self) -> &'static str;

    /// The name with every option; it parses to the same task.
    fn spec(&self) -> String {
        self.to_string()
    }

    /// Samples an instance and encodes it into `prompt`. Allocates nothing if `prompt` was filled by this task before.
    fn sample_prompt(&self, rng: &mut Rng, prompt: &mut Prompt);

    /// See [`Task::instance_count`].
    fn instance_count(&self) -> Option<u128>;

    /// Encodes the instance of this number into `prompt`; false if there is none.
    fn nth_prompt(&self, index: u128, prompt: &mut Prompt) -> bool;

    /// See [`Task::oracle`].
    ///
    /// # Errors
    /// The tokens are not a prompt of this task.
    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError>;
}

impl<T: Task> AnyTask for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn sample_prompt(&self, rng: &mut Rng, prompt: &mut Prompt) {
        let mut instance: Box<T::Instance> = prompt.take_reused_instance().unwrap_or_default();
        self.sample(rng, &mut instance);
        self.encode(&instance, prompt);
        prompt.keep_reused_instance(instance);
    }

    fn instance_count(&self) -> Option<u128> {
        Task::instance_count(self)
    }

    fn nth_prompt(&self, index: u128, prompt: &mut Prompt) -> bool {
        let instance = self.nth_instance(index);
        if let Some(instance) = &instance {
            self.encode(instance, prompt);
        }
        instance.is_some()
    }

    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        Task::oracle(self, tokens)
    }
}

/// Tokens that are not a prompt of the task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task `{task}`, position {position}: found {found}, expected {expected}")]
pub struct OracleError {
    /// The task's name.
    pub task: &'static str,
    /// The position, from 0.
    pub position: usize,
    /// What the tokens have there.
    pub found: String,
    /// What the task allows there.
    pub expected: String,
}

impl OracleError {
    /// An error of task `T`.
    pub fn new<T: Task>(position: usize, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { task: T::NAME, position, found: found.into(), expected: expected.into() }
    }

    /// Checks the number of tokens and the range of every id.
    fn check<T: Task>(task: &T, tokens: &[u32]) -> Result<(), Self> {
        let fields = task.fields();
        let length = tokens.len() / fields.len();
        if !tokens.len().is_multiple_of(fields.len()) || length != task.length() {
            let expected = format!("{} tokens of {} ids", task.length(), fields.len());
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

/// One task of the registry.
struct RegistryEntry {
    name: &'static str,
    /// The source file, whose top comment is the task's page.
    source: &'static str,
    parse: fn(&mut Options) -> Result<Box<dyn AnyTask>, TaskError>,
}

macro_rules! registry {
    ($($file:ident :: $task:ident,)*) => {
        const REGISTRY: &[RegistryEntry] = &[$(RegistryEntry {
            name: $file::$task::NAME,
            source: include_str!(concat!(stringify!($file), ".rs")),
            parse: |options| Ok(Box::new($file::$task::parse(options)?)),
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

/// Parses a spec such as `funccomp{hops=3,m=8,n=[4,4]}`. Options that are not given have their defaults.
///
/// # Errors
/// The text is malformed, names an unknown task or option, or gives a size that is out of range.
pub fn parse(text: &str) -> Result<Box<dyn AnyTask>, TaskError> {
    let spec = spec::parse_spec(text)?;
    let Some(entry) = REGISTRY.iter().find(|entry| entry.name == spec.name) else {
        let suggestion = spec::nearest(&spec.name, names()).map(str::to_owned);
        return Err(TaskError::UnknownTask { found: spec.name, suggestion, known: options::quoted_list(names()) });
    };
    let mut options = Options::new(entry.name, spec);
    let task = (entry.parse)(&mut options)?;
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

/// The `length` digits of a number in a base, the lowest first; none if it has more digits.
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

/// Numbers separated by commas, as in the list of a spec.
fn join_numbers(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
