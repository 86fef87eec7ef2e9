//! `rung ask`: how many hops a real language model takes in one forward pass.
//!
//! ```text
//! rung ask http://127.0.0.1:8080 --hops 0..4 --entries 4,8 --count 200 --out smollm2.jsonl --svg hops.svg
//! rung ask --compare a.jsonl b.jsonl --svg both.svg
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rung_ask::figure::{ModelAccuracies, draw_chart};
use rung_ask::grid::Grid;
use rung_ask::prompt::{ANSWER_SEPARATOR, PromptWriter, Style, TableOrder, Variant, numerals};
use rung_ask::record::{RecordFile, RecordHeader, read_record};
use rung_ask::run::{RequestPolicy, RunOutcome, run};
use rung_ask::score::{Answer, AnswerSource};
use rung_ask::server::{ModelServer, ServerProtocol};
use rung_ask::summary::{CellAccuracy, cell_accuracies, measured_hops};
use rung_ask::{AnsweringModel, symbols};
use rung_audit::report::text::next_hop_text;
use rung_audit::{AuditOptions, DEFAULT_CERTIFIED_HOPS, certify};
use rung_theory::stack::Plan;
use serde_json::{Value, json};

use super::checkpoint;
use super::local_model::LocalModel;
use super::memory::MemoryOption;
use crate::call;
use crate::output::{
    audit_named, check_destination, hops_text, print, print_json, progress_bar, remove_control, write_chart,
};
use crate::watch::Interrupt;

/// Maximum number of questions of one run.
const MAX_QUESTIONS: u64 = 1_000_000;

/// Measure how many hops a language model takes in one forward pass.
///
/// The prompts are look-up tables, and the next token is the answer: without chain of thought. The measurement is about
/// prompting in one pass; it says nothing about what other weights could do.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung ask http://127.0.0.1:8080 --hops 0..3 --count 100 --out smollm2.jsonl
  rung ask http://127.0.0.1:8000/v1 --model qwen3-8b --chain-of-thought --svg hops.svg
  rung ask --compare a.jsonl b.jsonl --svg both.svg

Answers are appended to --out as they arrive. The same command resumes an interrupted run and asks only what is missing.
A key is read from the environment variable RUNG_API_KEY and never written.
Exit codes: 0 all questions are answered, 1 some are still open, 2 bad input, 130 interrupted.")]
pub struct Ask {
    /// Address of a server (llama.cpp, vLLM, SGLang, Ollama, or another that speaks OpenAI's protocol), or a checkpoint that runs
    /// here: a Hugging Face directory or a GGUF file
    #[arg(required_unless_present = "compare")]
    target: Option<String>,
    /// Numbers of hops: a list such as 0,1,2 or a range such as 0..4, both ends included; 0 asks for the start value
    #[arg(long, value_name = "LIST", default_value = "0..3")]
    hops: String,
    /// Rows of each table: a list
    #[arg(long, value_name = "LIST", default_value = "8", value_delimiter = ',')]
    entries: Vec<usize>,
    /// Questions for each number of hops, table size and variant
    #[arg(long, default_value_t = 100)]
    count: u64,
    /// Seed of the questions
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Wording of the prompts; `tokens` are those of a construction, as `rung export` names them
    #[arg(long, value_enum, default_value_t = StyleName::Table)]
    style: StyleName,
    /// Worked examples before each question [default: 2; style tokens: 0]
    #[arg(long)]
    shots: Option<usize>,
    /// Also ask with this many filler tokens before the answer
    #[arg(long, value_name = "K")]
    filler: Option<usize>,
    /// Also ask with the question before the tables
    #[arg(long)]
    query_first: bool,
    /// Also ask with the tables in the order of use
    #[arg(long)]
    easy_order: bool,
    /// Also ask with chain of thought
    #[arg(long)]
    chain_of_thought: bool,
    /// Accuracy threshold: hops count as measured while the 95% confidence interval is above it
    #[arg(long, default_value_t = 0.5)]
    threshold: f64,
    /// Config, folder or preset of the model, to report also the hops that its layers allow
    #[arg(long, value_name = "CONFIG")]
    layers: Option<String>,
    /// Name of the model, where a server has several
    #[arg(long)]
    model: Option<String>,
    /// Protocol of the server [default: detected]
    #[arg(long, value_parser = parse_protocol)]
    protocol: Option<ServerProtocol>,
    /// Maximum number of concurrent requests
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Maximum number of requests per second
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Retries after a transient failure
    #[arg(long, default_value_t = 6)]
    retries: usize,
    /// Timeout of a request in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Record of all answers (JSON lines); an existing one is resumed
    #[arg(long, value_name = "FILE", default_value = "ask.jsonl")]
    out: PathBuf,
    /// Write the chart of accuracy against hops (.svg, .png or .csv)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Compare finished records instead of asking
    #[arg(long, value_name = "RECORD", num_args = 1.., conflicts_with = "target")]
    compare: Vec<PathBuf>,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Names of styles on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StyleName {
    Table,
    Sentences,
    Code,
    Tokens,
}

impl StyleName {
    /// Whether prompts consist of token names instead of English.
    pub fn is_tokens(self) -> bool {
        self == Self::Tokens
    }

    /// A writer of prompts in this style. Without `shots` it has `default_shots` worked examples, or none for token names.
    pub fn writer(self, shots: Option<usize>, default_shots: usize) -> PromptWriter {
        let named_tokens = self.is_tokens();
        let style = match self {
            Self::Table | Self::Tokens => Style::Table,
            Self::Sentences => Style::Sentences,
            Self::Code => Style::Code,
        };
        PromptWriter { style, shots: shots.unwrap_or(if named_tokens { 0 } else { default_shots }), named_tokens }
    }
}

/// Default number of worked examples.
pub const DEFAULT_SHOTS: usize = 2;

fn parse_protocol(text: &str) -> Result<ServerProtocol, String> {
    let names: Vec<&str> = ServerProtocol::ALL.iter().map(|(name, _)| *name).collect();
    let protocol = ServerProtocol::ALL.iter().find(|(name, _)| *name == text);
    protocol.map(|(_, protocol)| *protocol).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

/// A list such as `0,1,2` or a range such as `0..4`, both ends included.
pub fn parse_hops(text: &str) -> anyhow::Result<Vec<usize>> {
    let number = |part: &str| {
        part.trim()
            .parse::<usize>()
            .ok()
            .filter(|hops| *hops <= 64)
            .with_context(|| format!("--hops: found {part:?}, expected 0 to 64"))
    };
    if let Some((low, high)) = text.split_once("..") {
        let (low, high) = (number(low)?, number(high.trim_start_matches('='))?);
        if low > high {
            bail!("--hops: found {text}, expected the smaller number first");
        }
        return Ok((low..=high).collect());
    }
    text.split(',').map(number).collect()
}

impl Ask {
    /// Runs the command.
    ///
    /// # Errors
    /// The server cannot be reached, the record cannot be written, or an option makes no sense.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.svg {
            check_destination("--svg", path, &["svg", "png", "csv"])?;
        }
        if !(0.0..1.0).contains(&self.threshold) {
            bail!("--threshold: found {}, expected a fraction from 0 to below 1", self.threshold);
        }
        if !self.compare.is_empty() {
            return self.compare();
        }
        let target = self.target.as_deref().unwrap_or_default();
        if !target.contains("://") {
            self.memory.apply();
            let path = Path::new(target);
            let checkpoint = checkpoint::open(path)?;
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            return self.measure(&LocalModel::new(path, &checkpoint)?, name);
        }
        let timeout = Duration::from_secs(self.timeout);
        let server = ModelServer::connect(target, self.protocol, self.model.as_deref(), timeout)?;
        self.measure(&server, server.address().to_owned())
    }

    fn measure(&self, model: &dyn AnsweringModel, target: String) -> anyhow::Result<ExitCode> {
        let grid = self.grid(model)?;
        let header = RecordHeader::new(target, model.describe(), grid.clone());
        let mut record = RecordFile::open(&self.out, header)?;
        let outcome = self.ask_questions(model, &grid, &mut record)?;
        let answers: Vec<Answer> = record.answers().cloned().collect();
        self.report(&MeasuredModel { name: describe(&model.describe()), grid, answers }, &outcome)
    }

    fn grid(&self, model: &dyn AnsweringModel) -> anyhow::Result<Grid> {
        let hops = parse_hops(&self.hops)?;
        let max_entries = self.entries.iter().copied().max().unwrap_or_default();
        if self.entries.iter().any(|entries| !(2..=64).contains(entries)) {
            bail!("--entries: found {:?}, expected 2 to 64 each", self.entries);
        }
        if self.shots.is_some_and(|shots| shots > 16) || self.filler.is_some_and(|filler| filler > 4096) {
            bail!("--shots and --filler: expected at most 16 worked examples and 4096 filler tokens");
        }
        let mut variants = vec![Variant::default()];
        let optional_variants = [
            self.filler.map(|filler| Variant { filler, ..Variant::default() }),
            self.query_first.then(|| Variant { query_first: true, ..Variant::default() }),
            self.easy_order.then(|| Variant { order: TableOrder::FirstTableFirst, ..Variant::default() }),
            self.chain_of_thought.then(|| Variant { chain_of_thought: true, ..Variant::default() }),
        ];
        variants.extend(optional_variants.into_iter().flatten());
        let total = self.count.saturating_mul((hops.len() * self.entries.len() * variants.len()) as u64);
        if total == 0 || total > MAX_QUESTIONS {
            bail!("--count: found {total} questions in all, expected 1 to {MAX_QUESTIONS}");
        }
        let writer = self.style.writer(self.shots, DEFAULT_SHOTS);
        let symbols = if self.style.is_tokens() {
            symbols::check(model, ANSWER_SEPARATOR, &numerals(max_entries))?
        } else {
            symbols::choose(model, ANSWER_SEPARATOR, max_entries)?
        };
        Ok(Grid {
            writer,
            hops,
            entries_per_table: self.entries.clone(),
            variants,
            questions_per_cell: self.count,
            seed: self.seed,
            symbols,
        })
    }

    fn ask_questions(
        &self,
        model: &dyn AnsweringModel,
        grid: &Grid,
        record: &mut RecordFile,
    ) -> anyhow::Result<RunOutcome> {
        let total =
            grid.questions_per_cell * (grid.hops.len() * grid.entries_per_table.len() * grid.variants.len()) as u64;
        let policy = RequestPolicy {
            concurrency: usize::from(self.concurrency),
            max_requests_per_second: self.rate,
            retries: self.retries,
            ..RequestPolicy::default()
        };
        let interrupt = Interrupt::with_message("finishing the requests in flight; press again to quit at once");
        let bar = progress_bar(total);
        bar.set_message(remove_control(describe(&model.describe())));
        let caller = call::context();
        let progress = |answer_count: usize| {
            bar.set_position(answer_count as u64);
            if let Some(caller) = &caller {
                caller.show_progress(format!("{answer_count} of {total} questions answered"));
            }
        };
        let outcome = run(model, grid, record, policy, &|| interrupt.requested(), &progress);
        bar.finish_and_clear();
        Ok(outcome?)
    }

    fn report(&self, measured: &MeasuredModel, outcome: &RunOutcome) -> anyhow::Result<ExitCode> {
        let accuracies = cell_accuracies(&measured.answers);
        let limits = self.layers.as_deref().map(ConfigLimits::new).transpose()?;
        if let Some(path) = &self.svg {
            write_chart(
                path,
                &draw_chart(
                    &[ModelAccuracies { name: measured.name.clone(), accuracies: &accuracies }],
                    self.threshold,
                ),
            )?;
        }
        if self.json {
            let mut value = measured.json(&accuracies, self.threshold);
            value["record"] = json!(self.out);
            value["open"] = json!(outcome.unanswered_count);
            value["failure"] = json!(outcome.failure);
            value["layers_allow"] = json!(limits.as_ref().map(|limits| limits.json(self.layers.as_deref())));
            print_json(&value)?;
        } else {
            let mut text = measured.text(&accuracies, self.threshold);
            if let Some(limits) = &limits {
                writeln!(text, "  layers     {}", limits.text)?;
            }
            writeln!(text, "  record     {}", self.out.display())?;
            if outcome.unanswered_count > 0 {
                let cause = outcome.failure.as_deref().unwrap_or("the run was stopped");
                writeln!(
                    text,
                    "  open       {} questions are not answered yet ({cause}); the same command asks them",
                    outcome.unanswered_count
                )?;
            }
            print(&text)?;
        }
        Ok(match (outcome.unanswered_count, &outcome.failure) {
            (0, _) => ExitCode::SUCCESS,
            (_, Some(_)) => ExitCode::from(1),
            (_, None) => ExitCode::from(130),
        })
    }

    fn compare(&self) -> anyhow::Result<ExitCode> {
        let mut models = Vec::new();
        for path in &self.compare {
            let (header, answers) = read_record(path)?;
            models.push(MeasuredModel { name: record_name(path, &header), grid: header.grid, answers });
        }
        let accuracies: Vec<Vec<CellAccuracy>> = models.iter().map(|model| cell_accuracies(&model.answers)).collect();
        if let Some(path) = &self.svg {
            let accuracies_by_model: Vec<ModelAccuracies<'_>> = models
                .iter()
                .zip(&accuracies)
                .map(|(model, accuracies)| ModelAccuracies { name: model.name.clone(), accuracies })
                .collect();
            write_chart(path, &draw_chart(&accuracies_by_model, self.threshold))?;
        }
        let reports = models.iter().zip(&accuracies);
        if self.json {
            let values: Vec<Value> = reports.map(|(model, cells)| model.json(cells, self.threshold)).collect();
            print_json(&json!(values))?;
        } else {
            let texts: Vec<String> = reports.map(|(model, cells)| model.text(cells, self.threshold)).collect();
            print(&texts.join("\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(model: &rung_ask::ModelDescription) -> String {
    format!("{} ({})", model.model, model.protocol)
}

/// The name of a record in a comparison: its file name, and the model's name if it is known.
fn record_name(path: &Path, header: &RecordHeader) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if header.model.model == "default" { stem } else { format!("{stem} ({})", header.model.model) }
}

/// The number of hops that the layers of a config allow.
struct ConfigLimits {
    /// Hops in one forward pass over large tables; none if some layers are unknown.
    rungs: Option<usize>,
    /// One hop more than `rungs`, and the base-2 logarithm of the number of tokens from which on it is proved impossible; none without a certificate.
    certified: Option<(usize, f64)>,
    /// The limits as a sentence.
    text: String,
}

impl ConfigLimits {
    fn new(config: &str) -> anyhow::Result<Self> {
        let search_bound = |plan: &Plan, hops: usize| certify(plan, hops, DEFAULT_CERTIFIED_HOPS);
        let audit =
            audit_named(config, &AuditOptions { bound_searcher: Some(&search_bound), ..AuditOptions::default() })?;
        let Some(capacity) = &audit.capacity else {
            let text = format!("{}: some layers are unknown, so their hops are not counted", audit.model);
            return Ok(Self { rungs: None, certified: None, text });
        };
        let certified = audit.next_hop_bound.and_then(|bound| Some((bound.hops, bound.log2_tokens()?)));
        let limit = audit.next_hop_bound.map(|bound| next_hop_text(&audit, bound)).unwrap_or_default();
        let text = format!(
            "{} full layers, at most {} in one pass for large tables; lower bound: {limit} ({})",
            audit.full_layer_count().unwrap_or_default(),
            hops_text(capacity.rungs),
            audit.model
        );
        Ok(Self { rungs: Some(capacity.rungs), certified, text })
    }

    fn json(&self, config: Option<&str>) -> Value {
        let certified = self.certified.map(|(hops, log2)| json!({"hops": hops, "impossible_from_log2_tokens": log2}));
        json!({"config": config, "rungs": self.rungs, "certified": certified, "text": self.text})
    }
}

/// The answers of one record.
struct MeasuredModel {
    name: String,
    grid: Grid,
    answers: Vec<Answer>,
}

impl MeasuredModel {
    fn json(&self, accuracies: &[CellAccuracy], threshold: f64) -> Value {
        let hops: Vec<Value> = self
            .variants_and_sizes()
            .map(|(variant, entries)| {
                json!({"variant": variant, "entries": entries, "measured_hops": measured_hops(accuracies, &variant, entries, threshold)})
            })
            .collect();
        json!({"model": self.name, "grid": self.grid, "threshold": threshold, "rates": accuracies, "hops": hops})
    }

    /// Every variant's label with every table size.
    fn variants_and_sizes(&self) -> impl Iterator<Item = (String, usize)> + '_ {
        self.grid
            .variants
            .iter()
            .flat_map(|variant| self.grid.entries_per_table.iter().map(|entries| (variant.label(), *entries)))
    }

    fn text(&self, accuracies: &[CellAccuracy], threshold: f64) -> String {
        let mut text = format!("{}: hops in one forward pass (measured by prompting)\n", self.name);
        for (variant, entries) in self.variants_and_sizes() {
            let _ = writeln!(text, "  {variant}, tables of {entries} rows, chance {:.1}%", 100.0 / entries as f64);
            for cell in accuracies.iter().filter(|cell| cell.variant == variant && cell.entries_per_table == entries) {
                let mass = cell
                    .symbol_mass
                    .map_or_else(String::new, |mass| format!(", {:.0}% of the probability on symbols", 100.0 * mass));
                let reasoned = if cell.reasoned_count > 0 {
                    format!(", {} reasoned and are left out", cell.reasoned_count)
                } else {
                    String::new()
                };
                let without_symbol = if cell.without_symbol_count > 0 {
                    format!(", {} replies without an answer", cell.without_symbol_count)
                } else {
                    String::new()
                };
                let _ = writeln!(
                    text,
                    "    {:6}  {:5.1}%  ({:.1} to {:.1}%, {} questions{mass}{reasoned}{without_symbol})",
                    hops_text(cell.hops),
                    100.0 * cell.accuracy,
                    100.0 * cell.interval.0,
                    100.0 * cell.interval.1,
                    cell.answer_count
                );
            }
            let measured = match measured_hops(accuracies, &variant, entries, threshold) {
                Some(hops) => {
                    format!("{hops} (accuracy above {:.0}% up to there, at 95% confidence)", 100.0 * threshold)
                }
                None => format!(
                    "none: not even the control of 0 hops is above {:.0}%, at 95% confidence",
                    100.0 * threshold
                ),
            };
            let _ = writeln!(text, "    measured hops: {measured}");
        }
        if accuracies.iter().any(|cell| cell.source == AnswerSource::Text) {
            text.push_str("  note       the server gives no log-probabilities: answers are the generated token, compared exactly\n");
        }
        if !self.grid.symbols.checked {
            text.push_str("  note       the server has no tokenizer endpoint: whether answer symbols are single tokens was not checked\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_ask::server::API_KEY_VARIABLE;

    #[test]
    fn hops_are_lists_or_ranges() {
        assert_eq!(parse_hops("0..3").unwrap(), [0, 1, 2, 3]);
        assert_eq!(parse_hops("1,4").unwrap(), [1, 4]);
        for bad in ["3..1", "a", "", "99", "1,,2"] {
            assert!(parse_hops(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn help_names_the_variable_of_the_api_key() {
        let mut command = <Ask as clap::Args>::augment_args(clap::Command::new("ask"));
        assert!(command.render_long_help().to_string().contains(API_KEY_VARIABLE));
    }
}
