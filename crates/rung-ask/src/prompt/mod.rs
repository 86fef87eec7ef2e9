//! Writes tasks as text prompts.
//!
//! A [`Question`] is a prompt that ends right before its answer, and the answer is one of a few symbols, each a single token. The
//! text is built from a `PromptBody`: the facts, line by line, and the question. Worked examples (shots), the order of tables and question,
//! and filler tokens before the answer are added independently, so that each of these can be varied alone.
//!
//! Questions are balanced. Tables are permutations, keys have different values, and yes/no answers are equally likely, so that a constant
//! guess, the last value shown and the most frequent symbol are right no more often than chance (`tests/balance.rs` computes these
//! scores). A question is a function of the seed, its grid cell and its index: the tables of one index are the same for every number of
//! hops, so hops are compared on equal tables.

mod composition;
mod induction;
mod named_tokens;
mod recall;
mod tracking;
mod two_sum;

use std::any::Any;

use rung_theory::task::{self, AnyTask, Prompt, Rng, seeded, shuffle, splitmix64};
use rung_theory::task::{chain::Chain, funccomp::FuncComp, khop::KHop, mqar::Mqar, twosum::TwoSum, word::Word};

use crate::AskError;
use composition::Composition;
pub use named_tokens::numerals;

/// How facts are worded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// One table row per line.
    #[default]
    Table,
    /// One English sentence per fact.
    Sentences,
    /// Python dictionaries and an expression.
    Code,
}

/// The order of the look-up tables in the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TableOrder {
    /// The table of the last hop comes first, so nothing can be composed while reading. The lower bounds hold for this order.
    #[default]
    #[serde(rename = "hard")]
    LastTableFirst,
    /// In the order of use: a recurrence that knows the start symbol can follow the tables while reading.
    #[serde(rename = "easy")]
    FirstTableFirst,
}

/// A variation of the prompt that leaves the task unchanged: a known confounder whose effect can be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Variant {
    /// Tokens without content between question and answer.
    pub filler: usize,
    /// The question comes before the tables.
    pub query_first: bool,
    /// Order of the tables.
    pub order: TableOrder,
    /// The model is instructed to write its steps down before the answer.
    pub chain_of_thought: bool,
}

impl Variant {
    /// A short name for records and figures.
    pub fn label(&self) -> String {
        let mut parts = Vec::new();
        if self.chain_of_thought {
            parts.push("chain of thought".to_owned());
        }
        if self.query_first {
            parts.push("query first".to_owned());
        }
        if self.order == TableOrder::FirstTableFirst {
            parts.push("easy order".to_owned());
        }
        if self.filler > 0 {
            parts.push(format!("filler {}", self.filler));
        }
        if parts.is_empty() { "one pass".to_owned() } else { parts.join(", ") }
    }
}

/// One cell of a [`Grid`](crate::grid::Grid): a number of hops, a table size and a prompt variant, which vary independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GridCell {
    /// Number of look-ups; 0 asks for the start symbol itself.
    pub hops: usize,
    /// Number of entries (rows) of each table.
    #[serde(rename = "entries")]
    pub entries_per_table: usize,
    /// Number of tables in the prompt, at least one and at least `hops`; tables beyond `hops` are distractors.
    #[serde(rename = "tables")]
    pub table_count: usize,
    /// Prompt variant.
    pub variant: Variant,
}

impl Default for GridCell {
    fn default() -> Self {
        Self { hops: 1, entries_per_table: 8, table_count: 4, variant: Variant::default() }
    }
}

/// A prompt and its answer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Question {
    /// Identifies the question among those of one seed.
    pub id: String,
    /// The prompt. A correct continuation is a space and the answer.
    pub text: String,
    /// All possible answers.
    pub symbols: Vec<String>,
    /// The right answer, one of `symbols`.
    pub answer: String,
    /// Number of look-ups that the answer needs; 1 for tasks without a number of hops.
    pub hops: usize,
}

/// The instruction that follows a prompt for a chat model when one token is generated.
pub const CHAT_ENDING: &str = "\nReply with the symbol alone.";

/// White space between prompt and answer.
pub const ANSWER_SEPARATOR: &str = " ";

/// The parts of a prompt, before they are put in order.
struct PromptBody {
    /// An explanation of the facts; may be empty.
    intro: String,
    /// The facts, one per line.
    facts: Vec<String>,
    /// The question in words or code.
    question: String,
    /// The text right before the answer, such as `Answer:`.
    cue: &'static str,
    /// Index of the symbol that is the answer.
    answer_index: usize,
}

/// Writes prompts: the wording that all questions of a grid share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PromptWriter {
    /// Wording of facts.
    pub style: Style,
    /// Worked examples before the question.
    pub shots: usize,
    /// Whether prompts consist of the task's token names, which are the vocabulary of exported networks, instead of English. The style
    /// then has no effect, and shots or a variant other than the default are an error.
    #[serde(default)]
    pub named_tokens: bool,
}

impl PromptWriter {
    /// A question of one grid cell: `cell.table_count` look-up tables of `cell.entries_per_table` rows, of which the first `cell.hops` are looked up.
    ///
    /// # Errors
    /// Fewer symbols than rows, or more hops than tables.
    pub fn grid_question(
        &self,
        cell: &GridCell,
        symbols: &[String],
        seed: u64,
        index: u64,
    ) -> Result<Question, AskError> {
        if cell.entries_per_table < 2 || cell.table_count == 0 || cell.hops > cell.table_count {
            return Err(AskError::Unsupported(format!(
                "grid cell: found {} hops through {} tables of {} rows, expected at least 2 rows and as many tables as hops",
                cell.hops, cell.table_count, cell.entries_per_table
            )));
        }
        let id = format!("{}/hops={}/entries={}/{index}", cell.variant.label(), cell.hops, cell.entries_per_table);
        let rng =
            |example: u64| derived_rng(seed, &[cell.entries_per_table as u64, cell.table_count as u64, index, example]);
        if self.named_tokens {
            self.check_named_tokens(&cell.variant)?;
            return named_tokens::grid_question(cell, id, &mut rng(0));
        }
        let symbols = first_symbols(symbols, cell.entries_per_table)?;
        let body = |example: u64| {
            let mut rng = rng(example);
            let shuffled_symbols = shuffled(&mut rng, symbols);
            // Every table has one row group: a look-up depends on the result of the previous table only.
            let row_groups_per_table = vec![1; cell.table_count - 1];
            let instance = Composition::sample(&mut rng, cell.entries_per_table as u32, &row_groups_per_table);
            let body = instance.body(self.style, cell.variant.order, cell.hops, &shuffled_symbols);
            (body, shuffled_symbols)
        };
        Ok(self.assemble(id, &cell.variant, cell.hops, body))
    }

    /// A question of a task.
    ///
    /// # Errors
    /// The task has no prompt, or has more answers than there are symbols.
    pub fn task_question(
        &self,
        task: &dyn AnyTask,
        variant: &Variant,
        symbols: &[String],
        seed: u64,
        index: u64,
    ) -> Result<Question, AskError> {
        let question = self.question(task, variant, symbols, [seed, index], None)?;
        question.ok_or_else(|| AskError::Unsupported(format!("task `{}` has no question", task.name())))
    }

    /// The question of the same seed and index in which only the table entry that one look-up reads is changed, so that the answer is another. None if there is
    /// no such question. `lookup` is the index of a look-up, from 0.
    ///
    /// # Errors
    /// As [`PromptWriter::task_question`].
    pub fn changed_question(
        &self,
        task: &dyn AnyTask,
        variant: &Variant,
        symbols: &[String],
        [seed, index]: [u64; 2],
        lookup: usize,
    ) -> Result<Option<Question>, AskError> {
        match PromptTask::from_task(task) {
            Ok(PromptTask::Composition(composition)) if lookup < composition.hops() => {
                self.question(task, variant, symbols, [seed, index], Some(lookup))
            }
            _ => Ok(None),
        }
    }

    /// A question of a task. With `changed_lookup`, the table entry that this look-up reads is changed.
    fn question(
        &self,
        task: &dyn AnyTask,
        variant: &Variant,
        symbols: &[String],
        [seed, index]: [u64; 2],
        changed_lookup: Option<usize>,
    ) -> Result<Option<Question>, AskError> {
        let id = format!("{}/{}/{index}", task.spec(), variant.label());
        if self.named_tokens {
            self.check_named_tokens(variant)?;
            let mut rng = derived_rng(seed, &[index, 0]);
            if let Some(lookup) = changed_lookup {
                let Some(task) = (task as &dyn Any).downcast_ref() else { return Ok(None) };
                return named_tokens::changed_question(task, &mut rng, lookup, id);
            }
            let mut prompt = Prompt::new();
            task.sample_prompt(&mut rng, &mut prompt);
            return named_tokens::question(task, &prompt, id, task_hops(task)).map(Some);
        }
        let prompt_task = PromptTask::from_task(task)?;
        let symbols = first_symbols(symbols, prompt_task.answer_count())?;
        let mut bodies = Vec::new();
        for example in 0..=self.shots as u64 {
            let mut rng = derived_rng(seed, &[index, example]);
            let shuffled_symbols =
                if prompt_task.has_fixed_symbols() { symbols.to_vec() } else { shuffled(&mut rng, symbols) };
            let changed_lookup = changed_lookup.filter(|_| example == 0);
            let body = prompt_task.sample_body(
                task,
                (self.style, variant.order),
                &shuffled_symbols,
                &mut rng,
                changed_lookup,
            )?;
            bodies.push(Some((body, shuffled_symbols)));
        }
        let body = |example: u64| bodies[example as usize].take().unwrap_or_else(|| unreachable!("each is taken once"));
        Ok(Some(self.assemble(id, variant, prompt_task.hops(), body)))
    }

    /// The question of the task instance with this index, written in the task's token names; none beyond the last instance.
    ///
    /// # Errors
    /// The instance has no question.
    pub fn instance_question(task: &dyn AnyTask, index: u128) -> Result<Option<Question>, AskError> {
        let mut prompt = Prompt::new();
        if !task.nth_prompt(index, &mut prompt) {
            return Ok(None);
        }
        let id = format!("{}/instance/{index}", task.spec());
        named_tokens::question(task, &prompt, id, task_hops(task)).map(Some)
    }

    /// Rejects shots and variants, which prompts of token names do not support.
    fn check_named_tokens(&self, variant: &Variant) -> Result<(), AskError> {
        if self.shots == 0 && *variant == Variant::default() {
            return Ok(());
        }
        Err(AskError::Unsupported(format!(
            "style `tokens`: found {} worked examples and variant `{}`, expected none and `{}`",
            self.shots,
            variant.label(),
            Variant::default().label()
        )))
    }

    /// Joins the worked examples and the question. Example 0 is the question itself.
    fn assemble(
        &self,
        id: String,
        variant: &Variant,
        hops: usize,
        mut body: impl FnMut(u64) -> (PromptBody, Vec<String>),
    ) -> Question {
        let mut text = String::new();
        for example in 1..=self.shots as u64 {
            let (body, shuffled_symbols) = body(example);
            text.push_str(&body.text(variant));
            text.push_str(ANSWER_SEPARATOR);
            text.push_str(&shuffled_symbols[body.answer_index]);
            text.push_str("\n\n");
        }
        let (body, shuffled_symbols) = body(0);
        text.push_str(&body.text(variant));
        let answer = shuffled_symbols[body.answer_index].clone();
        let mut symbols = shuffled_symbols;
        symbols.sort();
        Question { id, text, symbols, answer, hops }
    }
}

impl PromptBody {
    fn text(&self, variant: &Variant) -> String {
        let facts = self.facts.join("\n");
        let mut parts = if variant.query_first {
            vec![self.intro.as_str(), self.question.as_str(), facts.as_str()]
        } else {
            vec![self.intro.as_str(), facts.as_str(), self.question.as_str()]
        };
        let filler = " .".repeat(variant.filler);
        if variant.filler > 0 {
            parts.push(filler.trim_start());
        }
        parts.push(if variant.chain_of_thought {
            "Write down every step on a line of its own. End with the line \"Answer: X\", where X is the symbol asked for.\nSteps:"
        } else {
            self.cue
        });
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }
}

/// A task for which prompts exist.
enum PromptTask<'a> {
    Composition(&'a FuncComp),
    Induction(&'a KHop),
    Recall(&'a Mqar),
    TwoSum,
    Tracking(&'a Word),
}

impl<'a> PromptTask<'a> {
    fn from_task(task: &'a dyn AnyTask) -> Result<Self, AskError> {
        let any_task = task as &dyn Any;
        // `Chain` is function composition with other names, value distributions or a chain of thought; `Chain::composition` is the `FuncComp` without those.
        let prompt_task = any_task
            .downcast_ref::<FuncComp>()
            .or_else(|| any_task.downcast_ref::<Chain>().map(Chain::composition))
            .map(PromptTask::Composition)
            .or_else(|| any_task.downcast_ref().map(PromptTask::Induction))
            .or_else(|| any_task.downcast_ref().map(PromptTask::Recall))
            .or_else(|| any_task.downcast_ref::<TwoSum>().map(|_| PromptTask::TwoSum))
            .or_else(|| any_task.downcast_ref().map(PromptTask::Tracking));
        prompt_task.ok_or_else(|| {
            AskError::Unsupported(format!(
                "task `{}` has no prompt, expected funccomp, chain, khop, mqar, twosum or word",
                task.name()
            ))
        })
    }

    /// Number of possible answers.
    fn answer_count(&self) -> usize {
        match self {
            Self::Composition(task) => task.sizes().last().map_or(1, |size| *size as usize),
            Self::Induction(task) => task.alphabet_size() as usize,
            Self::Recall(task) => task.pair_count(),
            Self::TwoSum => 2,
            Self::Tracking(task) => tracking::cup_count(task),
        }
    }

    /// Whether the question prescribes the answer words, such as yes and no.
    fn has_fixed_symbols(&self) -> bool {
        matches!(self, Self::TwoSum)
    }

    fn hops(&self) -> usize {
        match self {
            Self::Composition(task) => task.hops(),
            Self::Induction(task) => task.hops() as usize,
            _ => 1,
        }
    }

    /// Draws an instance and writes the parts of its prompt. With `changed_lookup`, which only composed tables support, the table entry that this look-up reads is changed.
    fn sample_body(
        &self,
        task: &dyn AnyTask,
        (style, order): (Style, TableOrder),
        shuffled_symbols: &[String],
        rng: &mut Rng,
        changed_lookup: Option<usize>,
    ) -> Result<PromptBody, AskError> {
        match self {
            Self::Composition(task) => {
                let mut instance = Composition::sample(rng, task.sizes()[0], task.row_groups_per_table());
                if let Some(lookup) = changed_lookup {
                    instance = instance.with_changed_lookup(lookup);
                }
                Ok(instance.body(style, order, task.hops(), shuffled_symbols))
            }
            Self::Induction(_) => induction::sample_body(task, style, shuffled_symbols, rng),
            Self::Recall(_) => Ok(recall::sample_body(task, style, shuffled_symbols, rng)),
            Self::TwoSum => Ok(two_sum::sample_body(task, style, rng)),
            Self::Tracking(word_problem) => tracking::sample_body(word_problem, task, style, shuffled_symbols, rng),
        }
    }
}

/// Number of look-ups that a task's answers need; 1 for tasks without a number of hops.
fn task_hops(task: &dyn AnyTask) -> usize {
    PromptTask::from_task(task).map_or(1, |prompt_task| prompt_task.hops())
}

/// The answer symbols of a task if the task prescribes them (`Ok`), otherwise the number of symbols that it needs (`Err`).
///
/// # Errors
/// The task has no prompt.
pub fn answer_symbols(task: &dyn AnyTask) -> Result<Result<Vec<String>, usize>, AskError> {
    let prompt_task = PromptTask::from_task(task)?;
    Ok(if prompt_task.has_fixed_symbols() {
        Ok(two_sum::SYMBOLS.map(String::from).to_vec())
    } else {
        Err(prompt_task.answer_count())
    })
}

/// Parses a task spec.
///
/// # Errors
/// The spec is malformed.
pub fn parse_task(spec: &str) -> Result<Box<dyn AnyTask>, AskError> {
    task::parse(spec).map_err(|error| AskError::Unsupported(error.to_string()))
}

/// The first `count` symbols, or an error if there are fewer.
fn first_symbols(symbols: &[String], count: usize) -> Result<&[String], AskError> {
    symbols.get(..count).ok_or(AskError::TooFewSymbols { found: symbols.len(), expected: count })
}

fn shuffled(rng: &mut Rng, symbols: &[String]) -> Vec<String> {
    let mut shuffled_symbols = symbols.to_vec();
    shuffle(rng, &mut shuffled_symbols);
    shuffled_symbols
}

/// A generator whose seed is derived from `seed` and `numbers` by SplitMix64.
fn derived_rng(seed: u64, numbers: &[u64]) -> Rng {
    seeded(numbers.iter().fold(seed, |state, number| splitmix64(state.wrapping_add(*number))))
}
