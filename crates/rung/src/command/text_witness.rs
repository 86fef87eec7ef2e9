//! A counterexample to an external checkpoint: prompts as text that it answers wrongly.
//!
//! ```json
//! {
//!   "text_format": 1,
//!   "model": "model.gguf", "fingerprint": "6c62..",
//!   "task": "funccomp{hops=2,m=4,..}", "writer": {"style": "table", "shots": 2, "named_tokens": false}, "seed": 0, "index": 3,
//!   "changed": 1,                        the look-up whose table differs in the second prompt; null if there is one prompt
//!   "prompts": ["..", ".."],             one that is answered wrongly, or two with different right answers and one given answer
//!   "symbols": ["A", "B", "C", "D"],     that may answer, each one token
//!   "answers": ["A", "C"],               by the task
//!   "outputs": ["B", "B"],               by the model: the likeliest symbol
//!   "log_probabilities": [[..], [..]]    of the symbols, among all tokens
//! }
//! ```
//!
//! The checker takes the model, the task, the writer, the seed, the index and the look-up from the file, writes the prompts again, runs each in one forward
//! pass, and rejects a file that differs from its own result.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rung_ask::prompt::{PromptWriter, Question, Variant, numerals, parse_task};
use rung_falsify::target::fingerprint;
use rung_nn::Network;
use rung_nn::families::decode::{CheckpointDecoder, log_softmax};
use rung_nn::file::read_text;
use rung_nn::memory::BatchShape;
use rung_theory::task::AnyTask;
use rung_train::difference::first_difference;
use serde::{Deserialize, Serialize};

use super::text_prompts::TokenizerModel;
use crate::output::spinner;

/// Version of the file format.
const FORMAT: u32 = 1;

/// Maximum size of a file in bytes.
const MAX_BYTES: u64 = 1 << 24;
/// Maximum number of worked examples in a prompt.
const MAX_SHOTS: usize = 1 << 10;
/// Maximum number of answers of a task.
const MAX_CLASSES: usize = 1 << 20;
/// Maximum number of tokens of the task in a prompt with its worked examples.
const MAX_PROMPT_TOKENS: usize = 1 << 20;

/// A counterexample to an external checkpoint; the field `text_format` distinguishes its file from other witnesses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextWitness {
    text_format: u32,
    /// Path of the checkpoint.
    pub model: PathBuf,
    fingerprint: String,
    task: String,
    writer: PromptWriter,
    seed: u64,
    index: u64,
    /// The look-up, from 0, whose table differs in the second prompt.
    #[serde(rename = "changed")]
    pub changed_lookup: Option<usize>,
    /// One prompt or two.
    pub prompts: Vec<String>,
    /// Symbols that may answer.
    pub symbols: Vec<String>,
    /// The correct answer to each prompt.
    pub answers: Vec<String>,
    /// The answer of the model to each prompt.
    pub outputs: Vec<String>,
    /// Log-probabilities of the symbols, for each prompt.
    pub log_probabilities: Vec<Vec<f32>>,
}

impl TextWitness {
    /// Reads a file, if it is of this kind.
    ///
    /// # Errors
    /// The file is of this kind and malformed.
    pub fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        // The reader of other witnesses reports files that cannot be read or are too large.
        let Ok(text) = read_text(path, MAX_BYTES) else { return Ok(None) };
        match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(value) if value.get("text_format").is_some() => {
                let witness: Self = serde_json::from_value(value).with_context(|| path.display().to_string())?;
                anyhow::ensure!(
                    witness.text_format == FORMAT,
                    "{}: text_format: found {}, expected {FORMAT}; search again with `rung falsify`",
                    path.display(),
                    witness.text_format
                );
                Ok(Some(witness))
            }
            _ => Ok(None),
        }
    }

    /// The failure in a sentence.
    pub fn verdict(&self) -> String {
        let Self { task, answers, outputs, changed_lookup, .. } = self;
        match (&answers[..], &outputs[..], changed_lookup) {
            ([first, second], [output, ..], Some(lookup)) => format!(
                "{} answers {output} to two prompts of {task} whose right answers are {first} and {second}: they differ only in what look-up {} reads.",
                self.model.display(),
                lookup + 1
            ),
            ([answer, ..], [output, ..], _) => {
                format!("{} answers {output} to a prompt of {task} where {answer} is right.", self.model.display())
            }
            _ => String::new(),
        }
    }

    /// The kind of failure.
    pub fn kind(&self) -> &'static str {
        if self.changed_lookup.is_some() { "the answer ignores a changed look-up" } else { "wrong answer" }
    }
}

/// Rejects prompts that would be longer than any context: a witness is a small file and can ask for any of them.
fn check_sizes(task: &dyn AnyTask, writer: PromptWriter) -> anyhow::Result<()> {
    let prompt_tokens = task.length().saturating_mul(writer.shots.saturating_add(1));
    for (name, found, max) in [
        ("writer.shots", writer.shots, MAX_SHOTS),
        ("task: answers", task.classes() as usize, MAX_CLASSES),
        ("task: tokens of the prompts of all shots", prompt_tokens, MAX_PROMPT_TOKENS),
    ] {
        anyhow::ensure!(found <= max, "{name}: found {found}, expected at most {max}");
    }
    Ok(())
}

/// A checkpoint and the task that it is tested on.
pub struct TextTarget {
    path: PathBuf,
    /// The network.
    pub network: Network<f32>,
    fingerprint: String,
    tokenizer: TokenizerModel,
    task: Box<dyn AnyTask>,
    writer: PromptWriter,
    symbols: Vec<String>,
    seed: u64,
}

/// A question and the answer of the model.
struct ModelAnswer {
    question: Question,
    output: String,
    log_probabilities: Vec<f32>,
}

impl TextTarget {
    /// Opens a checkpoint for a task as text.
    ///
    /// # Errors
    /// The checkpoint or its tokenizer cannot be read, or the task cannot be written with its tokens.
    pub fn open(path: &Path, task: &str, writer: PromptWriter, seed: u64) -> anyhow::Result<Self> {
        let task = parse_task(task)?;
        check_sizes(&*task, writer)?;
        let bar = spinner(format!("opening {}", path.display()));
        let network = Network::<f32>::open(path)?;
        let fingerprint = fingerprint(&network);
        bar.finish_and_clear();
        let tokenizer = TokenizerModel::open(path)?;
        let symbols =
            if writer.named_tokens { numerals(task.classes() as usize) } else { tokenizer.symbols(&*task)? };
        Ok(Self { path: path.to_owned(), network, fingerprint, tokenizer, task, writer, symbols, seed })
    }

    /// The checkpoint, task and seed of a witness, from `path` instead of the recorded path, if given.
    ///
    /// # Errors
    /// As [`TextTarget::open`].
    pub fn from_witness(witness: &TextWitness, path: Option<&Path>) -> anyhow::Result<Self> {
        Self::open(path.unwrap_or(&witness.model), &witness.task, witness.writer, witness.seed)
    }

    /// The task, with every option.
    pub fn spec(&self) -> String {
        self.task.spec()
    }

    /// Asks question number `index` and its variants with one changed look-up each, if there are any. Returns the first counterexample: the same answer
    /// although a look-up changed, otherwise a wrong answer.
    ///
    /// # Errors
    /// The prompt cannot be written or read.
    pub fn search(&self, index: u64) -> anyhow::Result<Option<TextWitness>> {
        let original = self.ask(index, None)?;
        let Some(original) = original else { return Ok(None) };
        for lookup in 0.. {
            let Some(changed_answer) = self.ask(index, Some(lookup))? else { break };
            if changed_answer.output == original.output {
                return Ok(Some(self.build_witness(index, Some(lookup), vec![original, changed_answer])));
            }
        }
        let wrong = original.output != original.question.answer;
        Ok(wrong.then(|| self.build_witness(index, None, vec![original])))
    }

    /// Recomputes a witness. Returns the recomputed one if it shows a failure and equals the file; otherwise the field and the reason.
    ///
    /// # Errors
    /// A prompt cannot be written or read.
    pub fn check(&self, witness: &TextWitness) -> anyhow::Result<Result<TextWitness, (String, String)>> {
        let reject = |field: &str, reason: String| Ok(Err((field.to_owned(), reason)));
        // Before any prompt is written: a witness against another checkpoint is rejected at once.
        if witness.fingerprint != self.fingerprint {
            return reject("fingerprint", format!("found {:?}, computed {:?}", witness.fingerprint, self.fingerprint));
        }
        let changes = std::iter::once(None).chain(witness.changed_lookup.map(Some));
        let mut model_answers = Vec::new();
        for changed_lookup in changes {
            let Some(model_answer) = self.ask(witness.index, changed_lookup)? else {
                return reject("changed", format!("found {changed_lookup:?}, expected a look-up of the task"));
            };
            model_answers.push(model_answer);
        }
        let is_failure = match &model_answers[..] {
            [only] => only.output != only.question.answer,
            [first, second] => first.output == second.output && first.question.answer != second.question.answer,
            _ => false,
        };
        if !is_failure {
            return reject("outputs", "the model's answers show no failure".to_owned());
        }
        let mut computed = self.build_witness(witness.index, witness.changed_lookup, model_answers);
        // The checkpoint may have moved; the fingerprint identifies it.
        computed.model.clone_from(&witness.model);
        let [found, expected] = [witness, &computed].map(serde_json::to_value);
        Ok(match first_difference(&found?, &expected?) {
            None => Ok(computed),
            Some(difference) => {
                Err((difference.path, format!("found {}, computed {}", difference.found, difference.expected)))
            }
        })
    }

    /// Runs the model on one prompt in a forward pass of its own; nothing if there is no such look-up.
    fn ask(&self, index: u64, changed_lookup: Option<usize>) -> anyhow::Result<Option<ModelAnswer>> {
        let variant = Variant::default();
        let question = match changed_lookup {
            None => Some(self.writer.task_question(&*self.task, &variant, &self.symbols, self.seed, index)?),
            Some(lookup) => {
                self.writer.changed_question(&*self.task, &variant, &self.symbols, [self.seed, index], lookup)?
            }
        };
        let Some(question) = question else { return Ok(None) };
        let tokens = self.tokenizer.0.encode(&question.text)?;
        self.network.check_inference_memory("the question", BatchShape { prompts: 1, tokens: tokens.len() })?;
        if self.writer.named_tokens {
            self.check_named_tokens(&question.text, &tokens)?;
        }
        let mut decoder = CheckpointDecoder::new(&self.network.model, &self.network.weights, 1);
        let all_log_probabilities = log_softmax(&decoder.next_logits(&tokens)?);
        let mut log_probabilities = Vec::new();
        for symbol in &question.symbols {
            let token = self.tokenizer.answer_token(&question.text, &tokens, symbol)?;
            log_probabilities.push(all_log_probabilities[token as usize] as f32);
        }
        let best = (0..log_probabilities.len())
            .fold(0, |best, index| if log_probabilities[index] > log_probabilities[best] { index } else { best });
        let output = question.symbols[best].clone();
        Ok(Some(ModelAnswer { question, output, log_probabilities }))
    }

    /// Rejects a prompt of token names that are not all in the vocabulary.
    fn check_named_tokens(&self, prompt: &str, tokens: &[u32]) -> anyhow::Result<()> {
        let mut tokens = tokens.iter();
        for word in prompt.split(' ') {
            let token = tokens.next().map(|token| self.tokenizer.0.decode(&[*token])).transpose()?;
            if token.as_deref().map(str::trim) != Some(word) {
                bail!(
                    "{}: token `{word}` is not in the vocabulary; expected a network exported for {}",
                    self.path.display(),
                    self.spec()
                );
            }
        }
        Ok(())
    }

    fn build_witness(&self, index: u64, changed_lookup: Option<usize>, model_answers: Vec<ModelAnswer>) -> TextWitness {
        let mut witness = TextWitness {
            text_format: FORMAT,
            model: self.path.clone(),
            fingerprint: self.fingerprint.clone(),
            task: self.spec(),
            writer: self.writer,
            seed: self.seed,
            index,
            changed_lookup,
            prompts: Vec::new(),
            symbols: Vec::new(),
            answers: Vec::new(),
            outputs: Vec::new(),
            log_probabilities: Vec::new(),
        };
        for ModelAnswer { question, output, log_probabilities } in model_answers {
            witness.prompts.push(question.text);
            witness.symbols = question.symbols;
            witness.answers.push(question.answer);
            witness.outputs.push(output);
            witness.log_probabilities.push(log_probabilities);
        }
        witness
    }
}
