//! Tasks as text.
//!
//! A [`Question`] is a prompt that ends right before its answer, and the answer is one of a few symbols, each a single token. The
//! text is built from a `PromptBody`: what is given, line by line, and what is asked. Around it stand worked examples (shots), the order
//! of tables and question, and filler before the answer, so that each of these can be varied alone.
//!
//! Questions are balanced. Tables are permutations, keys have different values, and labels are fair coins, so that a constant
//! guess, the last value shown and the most frequent symbol are right no more often than chance (`tests/balance.rs` computes these
//! scores). A question is a function of the seed, its cell and its index: the tables of one index are the same for every number of
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
    /// One row per line.
    #[default]
    Table,
    /// One plain sentence per fact.
    Sentences,
    /// Python dictionaries and an expression.
    Code,
}

/// In which order look-up tables stand in the prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableOrder {
    /// The table of the last hop first: nothing can be composed while reading. This is the order that the bounds speak about.
    #[default]
    Hard,
    /// In the order of use: a recurrence could walk along if it knew the start.
    Easy,
}

/// What is done to a prompt beside its task: known confounders, each of which can be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Variant {
    /// Tokens without content between question and answer.
    pub filler: usize,
    /// The question stands before the tables.
    pub query_first: bool,
    /// Order of the tables.
    pub order: TableOrder,
    /// The model may write its steps down.
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
        if self.order == TableOrder::Easy {
            parts.push("easy order".to_owned());
        }
        if self.filler > 0 {
            parts.push(format!("filler {}", self.filler));
        }
        if parts.is_empty() { "one pass".to_owned() } else { parts.join(", ") }
    }
}

/// One cell of the ladder: hops and table size vary independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cell {
    /// Look-ups asked for; 0 asks for the start symbol itself.
    pub hops: usize,
    /// Rows of each table.
    pub entries: usize,
    /// Tables in the prompt, at least one and at least `hops`; the others are distractors.
    pub tables: usize,
    /// How the prompt is put.
    pub variant: Variant,
}

impl Default for Cell {
    fn default() -> Self {
        Self { hops: 1, entries: 8, tables: 4, variant: Variant::default() }
    }
}

/// A prompt and its answer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Question {
    /// Names it within its seed.
    pub id: String,
    /// The prompt. A correct continuation is a space and the answer.
    pub text: String,
    /// All symbols that may answer.
    pub symbols: Vec<String>,
    /// The right one.
    pub answer: String,
    /// Look-ups that the answer needs, where the task counts them.
    pub hops: usize,
}

/// The instruction that a chat model gets behind a prompt of which one token is read.
pub const CHAT_ENDING: &str = "\nReply with the symbol alone.";

/// White space before every answer.
pub const LEAD: &str = " ";

/// What is given and asked, before it is put in order.
struct PromptBody {
    /// What the facts are about.
    intro: String,
    /// The facts, one per line.
    facts: Vec<String>,
    /// What is asked.
    question: String,
    /// What stands right before the answer.
    cue: &'static str,
    /// The index of the right symbol.
    answer: usize,
}

/// How prompts are worded, for all questions alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PromptWriter {
    /// Wording of facts.
    pub style: Style,
    /// Worked examples before the question.
    pub shots: usize,
    /// Prompts are the names of a task's own tokens, as exported networks have them, and no words. Style, shots and variants play no role.
    #[serde(default)]
    pub named_tokens: bool,
}

impl PromptWriter {
    /// A question of the ladder: `cell.tables` look-up tables of `cell.entries` rows, `cell.hops` of which are followed.
    ///
    /// # Errors
    /// Fewer symbols than rows, or more hops than tables.
    pub fn ladder_question(
        &self,
        cell: &Cell,
        symbols: &[String],
        seed: u64,
        index: u64,
    ) -> Result<Question, AskError> {
        if cell.entries < 2 || cell.tables == 0 || cell.hops > cell.tables {
            return Err(AskError::Unsupported(format!(
                "ladder: found {} hops through {} tables of {} rows, expected at least 2 rows and as many tables as hops",
                cell.hops, cell.tables, cell.entries
            )));
        }
        let id = format!("{}/hops={}/entries={}/{index}", cell.variant.label(), cell.hops, cell.entries);
        let rng = |example: u64| stream(seed, &[cell.entries as u64, cell.tables as u64, index, example]);
        if self.named_tokens {
            self.check_named_tokens(&cell.variant)?;
            return named_tokens::ladder_question(cell, id, &mut rng(0));
        }
        let symbols = first(symbols, cell.entries)?;
        let body = |example: u64| {
            let mut rng = rng(example);
            let names = shuffled(&mut rng, symbols);
            let instance = Composition::draw(&mut rng, cell.entries as u32, &vec![1; cell.tables - 1]);
            let body = instance.body(self.style, cell.variant.order, cell.hops, &names);
            (body, names)
        };
        Ok(self.assemble(id, &cell.variant, cell.hops, body))
    }

    /// A question of a task named by its spec.
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
        let id = format!("{}/{}/{index}", task.spec(), variant.label());
        if self.named_tokens {
            self.check_named_tokens(variant)?;
            let mut prompt = Prompt::new();
            task.prompt(&mut stream(seed, &[index, 0]), &mut prompt);
            return named_tokens::question(task, &prompt, id, hops_of(task));
        }
        let kind = PromptTask::of(task)?;
        let symbols = first(symbols, kind.answers())?;
        // The first failure of an example is reported; bodies themselves cannot fail once one was drawn.
        let mut failure = None;
        let mut bodies = Vec::new();
        for example in 0..=self.shots as u64 {
            let mut rng = stream(seed, &[index, example]);
            let names = if kind.has_fixed_symbols() { symbols.to_vec() } else { shuffled(&mut rng, symbols) };
            match kind.body(task, self.style, variant.order, &names, &mut rng) {
                Ok(body) => bodies.push(Some((body, names))),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let body = |example: u64| bodies[example as usize].take().unwrap_or_else(|| unreachable!("each is taken once"));
        Ok(self.assemble(id, variant, kind.hops(), body))
    }

    /// The question of a task's instance of this number, in the task's own tokens; none beyond the last.
    ///
    /// # Errors
    /// The task asks nothing.
    pub fn instance_question(task: &dyn AnyTask, index: u128) -> Result<Option<Question>, AskError> {
        let mut prompt = Prompt::new();
        if !task.nth_prompt(index, &mut prompt) {
            return Ok(None);
        }
        let id = format!("{}/instance/{index}", task.spec());
        named_tokens::question(task, &prompt, id, hops_of(task)).map(Some)
    }

    /// Refuses what prompts without words cannot have.
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

    /// Puts worked examples and the question together. Example 0 is the question itself.
    fn assemble(
        &self,
        id: String,
        variant: &Variant,
        hops: usize,
        mut body: impl FnMut(u64) -> (PromptBody, Vec<String>),
    ) -> Question {
        let mut text = String::new();
        for example in 1..=self.shots as u64 {
            let (body, names) = body(example);
            text.push_str(&body.text(variant));
            text.push_str(LEAD);
            text.push_str(&names[body.answer]);
            text.push_str("\n\n");
        }
        let (body, names) = body(0);
        text.push_str(&body.text(variant));
        let answer = names[body.answer].clone();
        let mut symbols = names;
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

/// A task that has prompts.
enum PromptTask<'a> {
    Composition(&'a FuncComp),
    Induction(&'a KHop),
    Recall(&'a Mqar),
    TwoSum,
    Tracking(&'a Word),
}

impl<'a> PromptTask<'a> {
    fn of(task: &'a dyn AnyTask) -> Result<Self, AskError> {
        let any = task as &dyn Any;
        let kind = any
            .downcast_ref::<FuncComp>()
            .or_else(|| any.downcast_ref::<Chain>().map(Chain::walk))
            .map(PromptTask::Composition)
            .or_else(|| any.downcast_ref().map(PromptTask::Induction))
            .or_else(|| any.downcast_ref().map(PromptTask::Recall))
            .or_else(|| any.downcast_ref::<TwoSum>().map(|_| PromptTask::TwoSum))
            .or_else(|| any.downcast_ref().map(PromptTask::Tracking));
        kind.ok_or_else(|| {
            AskError::Unsupported(format!(
                "task `{}` has no prompt, expected funccomp, chain, khop, mqar, twosum or word",
                task.name()
            ))
        })
    }

    /// How many symbols may answer.
    fn answers(&self) -> usize {
        match self {
            Self::Composition(task) => task.sizes().last().map_or(1, |size| *size as usize),
            Self::Induction(task) => task.alphabet() as usize,
            Self::Recall(task) => task.pairs(),
            Self::TwoSum => 2,
            Self::Tracking(task) => tracking::points(task),
        }
    }

    /// Whether the answers are words of the question itself.
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

    fn body(
        &self,
        task: &dyn AnyTask,
        style: Style,
        order: TableOrder,
        names: &[String],
        rng: &mut Rng,
    ) -> Result<PromptBody, AskError> {
        match self {
            Self::Composition(task) => {
                let instance = Composition::draw(rng, task.sizes()[0], task.branches());
                Ok(instance.body(style, order, task.hops(), names))
            }
            Self::Induction(_) => induction::body(task, style, names, rng),
            Self::Recall(_) => Ok(recall::body(task, style, names, rng)),
            Self::TwoSum => Ok(two_sum::body(task, style, rng)),
            Self::Tracking(word) => tracking::body(word, task, style, names, rng),
        }
    }
}

/// Look-ups that a task's answers need, where it counts them.
fn hops_of(task: &dyn AnyTask) -> usize {
    PromptTask::of(task).map_or(1, |kind| kind.hops())
}

/// The symbols that answer a task, if the task itself prescribes them; else how many it needs.
///
/// # Errors
/// The task has no prompt.
pub fn answer_symbols(task: &dyn AnyTask) -> Result<Result<Vec<String>, usize>, AskError> {
    let kind = PromptTask::of(task)?;
    Ok(if kind.has_fixed_symbols() { Ok(two_sum::SYMBOLS.map(String::from).to_vec()) } else { Err(kind.answers()) })
}

/// Parses a task spec.
///
/// # Errors
/// It is malformed.
pub fn parse_task(spec: &str) -> Result<Box<dyn AnyTask>, AskError> {
    task::parse(spec).map_err(|error| AskError::Unsupported(error.to_string()))
}

fn first(symbols: &[String], count: usize) -> Result<&[String], AskError> {
    symbols.get(..count).ok_or(AskError::TooFewSymbols { found: symbols.len(), expected: count })
}

fn shuffled(rng: &mut Rng, symbols: &[String]) -> Vec<String> {
    let mut names = symbols.to_vec();
    shuffle(rng, &mut names);
    names
}

/// The random stream of a seed and some numbers: SplitMix64 over all of them.
fn stream(seed: u64, numbers: &[u64]) -> Rng {
    seeded(numbers.iter().fold(seed, |state, number| splitmix64(state.wrapping_add(*number))))
}
