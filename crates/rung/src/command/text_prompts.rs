//! Prompts as text for external checkpoints: lines of a file, or built-in tasks.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context as _, bail};
use indicatif::ProgressBar;
use rung_ask::prompt::{ANSWER_SEPARATOR, PromptWriter, Variant, answer_symbols, parse_task};
use rung_ask::symbols;
use rung_ask::{AnsweringModel, AskError, ModelDescription, Reply};
use rung_engine::Scalar;
use rung_inspect::analysis::ProgressReporter;
use rung_inspect::analysis::text_prompts::{TextPrompt, TextPrompts};
use rung_nn::Network;
use rung_nn::memory::BatchShape;
use rung_nn::network::NetworkSource;
use rung_theory::task::AnyTask;
use rung_tokenizer::Tokenizer;

use super::checkpoint::tokenizer;
use crate::output::{with_commas, with_spinner};

/// Opens a network, with a spinner.
pub fn open_network<S: Scalar>(path: &Path) -> anyhow::Result<Network<S>> {
    with_spinner(format!("opening {}", path.display()), || Ok(Network::open(path)?))
}

/// Maximum number of tokens of a line.
const MAX_TOKENS: usize = 2048;
/// Maximum size of a file.
const MAX_BYTES: u64 = 64 << 20;
/// Default number of prompts of each task.
const DEFAULT_PROMPTS: usize = 64;

/// The value of `--prompts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptsArgument {
    /// A number of prompts of a task.
    Count(usize),
    /// The lines of a file.
    File(PathBuf),
}

impl FromStr for PromptsArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<usize>() {
            Ok(count @ 1..=0x0100_0000) => Ok(Self::Count(count)),
            Ok(count) => Err(format!("found {count}, expected 1 to {}", 1 << 24)),
            Err(_) => Ok(Self::File(PathBuf::from(text))),
        }
    }
}

impl PromptsArgument {
    /// The number of prompts, for a model whose prompts are drawn from its task.
    ///
    /// # Errors
    /// The argument is a file.
    pub fn count(argument: Option<&Self>, model: &Path) -> anyhow::Result<Option<usize>> {
        match argument {
            None => Ok(None),
            Some(Self::Count(count)) => Ok(Some(*count)),
            Some(Self::File(file)) => bail!(
                "--prompts: found {}, expected a number: the prompts of {} are drawn from its task (a file is for external checkpoints)",
                file.display(),
                model.display()
            ),
        }
    }
}

/// Whether a model is an external checkpoint, which takes text as its prompts.
pub fn is_external_checkpoint(model: &Path) -> bool {
    matches!(NetworkSource::detect(model), Ok(NetworkSource::Checkpoint))
}

/// The prompts for a checkpoint, as given on the command line.
pub struct CheckpointPromptOptions<'a> {
    /// `--prompts`.
    pub prompts: Option<&'a PromptsArgument>,
    /// `--task`.
    pub tasks: &'a [String],
    /// Worked examples before each question of a task.
    pub shots: usize,
    /// Seed of the questions.
    pub seed: u64,
}

impl CheckpointPromptOptions<'_> {
    /// The prompts as tokens of a checkpoint.
    ///
    /// # Errors
    /// There is no tokenizer, a file or a task cannot be read, or there are no prompts.
    pub fn read(&self, model: &Path) -> anyhow::Result<TextPrompts> {
        let TokenizerModel(tokenizer) = TokenizerModel::open(model)?;
        match (self.prompts, self.tasks) {
            (Some(PromptsArgument::File(file)), []) => read_lines(file, &tokenizer),
            (Some(PromptsArgument::File(_)), _) => bail!("--prompts and --task: expected a file or a task, not both"),
            (_, []) => bail!(
                "{} is an external checkpoint and has no task: give --prompts FILE, with a prompt on each line, or --task SPEC",
                model.display()
            ),
            (count, tasks) => {
                let count = if let Some(PromptsArgument::Count(count)) = count { *count } else { DEFAULT_PROMPTS };
                self.task_prompts(tasks, count, tokenizer)
            }
        }
    }

    /// Questions of tasks: the first of each task, then the second of each, and so on.
    fn task_prompts(&self, tasks: &[String], count: usize, tokenizer: Tokenizer) -> anyhow::Result<TextPrompts> {
        let tokenizer_model = TokenizerModel(tokenizer);
        let writer = PromptWriter { shots: self.shots, ..PromptWriter::default() };
        let tasks = tasks.iter().map(|spec| parse_task(spec)).collect::<Result<Vec<_>, _>>()?;
        let symbols = tasks.iter().map(|task| tokenizer_model.symbols(&**task)).collect::<anyhow::Result<Vec<_>>>()?;
        let (mut prompts, mut answer_tokens) = (Vec::new(), Vec::new());
        for index in 0..count as u64 {
            for (task, symbols) in tasks.iter().zip(&symbols) {
                let question = writer.task_question(&**task, &Variant::default(), symbols, self.seed, index)?;
                let tokens = tokenizer_model.0.encode(&question.text)?;
                for symbol in &question.symbols {
                    let token = tokenizer_model.answer_token(&question.text, &tokens, symbol)?;
                    if !answer_tokens.contains(&token) {
                        answer_tokens.push(token);
                    }
                }
                let answer = Some(tokenizer_model.answer_token(&question.text, &tokens, &question.answer)?);
                let hops = u16::try_from(question.hops).unwrap_or(u16::MAX);
                prompts.push(TextPrompt {
                    token_texts: token_texts(&tokenizer_model.0, &tokens)?,
                    tokens,
                    answer,
                    hops,
                });
            }
        }
        let name = tasks.iter().map(|task| task.spec()).collect::<Vec<_>>().join(" and ");
        Ok(TextPrompts { name: format!("{name} as text"), prompts, symbols: answer_tokens })
    }
}

/// Reads the lines of a file as prompts, without empty lines.
fn read_lines(file: &Path, tokenizer: &Tokenizer) -> anyhow::Result<TextPrompts> {
    let length = std::fs::metadata(file).with_context(|| format!("reading {}", file.display()))?.len();
    if length > MAX_BYTES {
        bail!("{}: found {length} bytes, expected at most {MAX_BYTES}", file.display());
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let mut prompts = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let tokens = tokenizer.encode(line)?;
        if !(2..=MAX_TOKENS).contains(&tokens.len()) {
            let (file, number, found) = (file.display(), number + 1, tokens.len());
            bail!("{file}: line {number} has {found} tokens, expected 2 to {MAX_TOKENS}");
        }
        prompts.push(TextPrompt { token_texts: token_texts(tokenizer, &tokens)?, tokens, ..TextPrompt::default() });
    }
    if prompts.is_empty() {
        bail!("{}: found no prompts, expected one on each line", file.display());
    }
    Ok(TextPrompts { name: file.display().to_string(), prompts, symbols: Vec::new() })
}

/// The text of each token.
fn token_texts(tokenizer: &Tokenizer, tokens: &[u32]) -> anyhow::Result<Vec<String>> {
    let text = |token: &u32| Ok(tokenizer.decode(&[*token])?.replace('\n', "\\n"));
    tokens.iter().map(text).collect()
}

/// Implements the model trait of `rung_ask` by a tokenizer alone, which suffices to choose answers that are one token.
pub struct TokenizerModel(pub Tokenizer);

impl TokenizerModel {
    /// The tokenizer of a checkpoint.
    ///
    /// # Errors
    /// It has none, or one that cannot be read.
    pub fn open(model: &Path) -> anyhow::Result<Self> {
        let tokenizer = tokenizer(model)?.with_context(|| {
            format!(
                "{}: found no tokenizer, expected tokenizer.json or a vocabulary, to read prompts with",
                model.display()
            )
        })?;
        Ok(Self(tokenizer))
    }

    /// Symbols that answer a task, each one token.
    ///
    /// # Errors
    /// The task has no prompt as text, or the vocabulary has too few such tokens.
    pub fn symbols(&self, task: &dyn AnyTask) -> anyhow::Result<Vec<String>> {
        Ok(match answer_symbols(task)? {
            Ok(fixed) => symbols::check(self, ANSWER_SEPARATOR, &fixed)?.symbols,
            Err(count) => symbols::choose(self, ANSWER_SEPARATOR, count)?.symbols,
        })
    }

    /// The one token that a symbol adds to a prompt.
    ///
    /// # Errors
    /// It adds more, or changes the tokens before it.
    pub fn answer_token(&self, prompt: &str, tokens: &[u32], symbol: &str) -> anyhow::Result<u32> {
        let with_answer = self.0.encode(&format!("{prompt}{ANSWER_SEPARATOR}{symbol}"))?;
        match with_answer.strip_prefix(tokens) {
            Some([token]) => Ok(*token),
            _ => bail!("the answer `{symbol}` is not one token after the prompt, expected one"),
        }
    }
}

fn unsupported() -> AskError {
    AskError::Unsupported("a tokenizer cannot generate".to_owned())
}

impl AnsweringModel for TokenizerModel {
    fn describe(&self) -> ModelDescription {
        ModelDescription::default()
    }

    fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError> {
        self.0.encode(text).map(Some).map_err(|error| AskError::Unsupported(error.to_string()))
    }

    fn next_token(&self, _: &str) -> Result<Reply, AskError> {
        Err(unsupported())
    }

    fn generate(&self, _: &str, _: usize) -> Result<Reply, AskError> {
        Err(unsupported())
    }
}

/// The forward passes of a command over its prompts.
#[derive(Clone, Copy, Debug)]
pub struct ForwardPasses {
    /// Only so many of the prompts are run; all if there is no maximum.
    pub max_prompts: Option<usize>,
    /// Number of passes over each prompt.
    pub passes_per_prompt: usize,
}

impl ForwardPasses {
    /// One pass over every prompt.
    pub const ONE: Self = Self { max_prompts: None, passes_per_prompt: 1 };
}

/// Prints on standard error the number of prompts, tokens and passes, and a time estimate from the speed of the first prompt.
///
/// # Errors
/// The model cannot run on the first prompt, or not within memory.
pub fn print_estimate<S: Scalar>(
    command: &str,
    network: &Network<S>,
    prompts: &TextPrompts,
    ForwardPasses { max_prompts, passes_per_prompt: passes }: ForwardPasses,
) -> anyhow::Result<()> {
    let used_prompts = || prompts.prompts.iter().take(max_prompts.unwrap_or(usize::MAX));
    let tokens: usize = used_prompts().map(|prompt| prompt.tokens.len()).sum();
    let Some(first) = prompts.prompts.first() else { return Ok(()) };
    network.check_evaluation_memory("text prompts", 1, BatchShape { prompts: 1, tokens: first.tokens.len() }, 0)?;
    let start = Instant::now();
    network.model.forward(&network.executor(), &first.tokens, 1, None)?;
    let seconds_per_token = start.elapsed().as_secs_f64() / first.tokens.len() as f64;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let seconds = seconds_per_token * (tokens * passes) as f64 / cores as f64;
    eprintln!(
        "{command}: {} prompts, {} tokens, {passes} {} over them with {}M weights: about {seconds:.0} s on {cores} cores",
        used_prompts().count(),
        with_commas(tokens),
        if passes == 1 { "pass" } else { "passes" },
        network.weights.size() / 1_000_000,
    );
    Ok(())
}

/// Advances a progress bar of prompts.
pub fn prompt_progress(bar: &ProgressBar) -> ProgressReporter {
    let bar = bar.clone();
    ProgressReporter::new(move |prompts| bar.inc(prompts as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_a_number_or_a_file() {
        assert_eq!("12".parse(), Ok(PromptsArgument::Count(12)));
        assert_eq!("lines.txt".parse(), Ok(PromptsArgument::File("lines.txt".into())));
        assert!("0".parse::<PromptsArgument>().is_err());
    }
}
