//! `rung ask`: how many hops a real language model takes in one forward pass.
//!
//! ```text
//! rung ask http://127.0.0.1:8080 --hops 0..4 --entries 4,8 --count 200 --out smollm2.jsonl --svg ladder.svg
//! rung ask --compare a.jsonl b.jsonl --svg both.svg
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rung_ask::figure::{ModelLadder, chart};
use rung_ask::ladder::{Grid, LadderOutcome, RequestPolicy, run};
use rung_ask::prompt::{LEAD, PromptWriter, Style, TableOrder, Variant, numerals};
use rung_ask::record::{AnswerRecord, RecordHeader, read};
use rung_ask::score::{Answer, ReadBy};
use rung_ask::server::{ModelServer, ServerProtocol};
use rung_ask::summary::{AccuracyRow, measured_hops, rates};
use rung_ask::{AnsweringModel, symbols};
use rung_audit::report::text::next_hop_text;
use rung_audit::{AuditOptions, QUICK_CERTIFIED_HOPS, certify};
use rung_theory::stack::Plan;
use serde_json::{Value, json};

use super::checkpoint;
use super::local_model::LocalModel;
use crate::call;
use crate::output::{audit_named, check_destination, hops, print, print_json, steps, write_chart};
use crate::watch::Interrupt;

/// The most questions of one run.
const MAX_QUESTIONS: u64 = 1_000_000;

/// Measure how many hops a language model takes in one forward pass.
///
/// Look-up tables are put to the model as prompts and one token is read: nothing may be written down. The measurement is about
/// prompting in one pass; it says nothing about what weights could do.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung ask http://127.0.0.1:8080 --hops 0..3 --count 100 --out smollm2.jsonl
  rung ask http://127.0.0.1:8000/v1 --model qwen3-8b --chain-of-thought --svg ladder.svg
  rung ask --compare a.jsonl b.jsonl --svg both.svg

Answers are appended to --out as they arrive. The same command resumes an interrupted run and asks only what is missing.
A key is read from the environment variable RUNG_API_KEY and never written.
Exit codes: 0 all questions are answered, 1 some are still open, 2 bad input, 130 interrupted.")]
pub struct Ask {
    /// Address of a server (llama.cpp, vLLM, SGLang, Ollama, or another that speaks OpenAI's protocol), or a checkpoint that runs
    /// here: a Hugging Face directory or a GGUF file
    #[arg(required_unless_present = "compare")]
    target: Option<String>,
    /// Numbers of hops: a list such as 0,1,2 or a range such as 0..4, both ends included; 0 asks for the start itself
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
    /// Also ask with the question in front of the tables
    #[arg(long)]
    query_first: bool,
    /// Also ask with the tables in the order of use
    #[arg(long)]
    easy_order: bool,
    /// Also ask with room to write the steps down
    #[arg(long)]
    chain_of_thought: bool,
    /// Hops count as measured while the 95% interval of their accuracy lies above this
    #[arg(long, default_value_t = 0.5)]
    threshold: f64,
    /// Config, folder or preset of the model asked, for the hops that its layers allow
    #[arg(long, value_name = "CONFIG")]
    layers: Option<String>,
    /// Name of the model, where a server has several
    #[arg(long)]
    model: Option<String>,
    /// How to speak to the server; found out by asking it if not given
    #[arg(long, value_parser = parse_protocol)]
    protocol: Option<ServerProtocol>,
    /// Requests under way at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Requests per second at most
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Further attempts after a failure that may pass
    #[arg(long, default_value_t = 6)]
    retries: usize,
    /// Seconds until a request is given up
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Record of all answers (JSON lines); an existing one is resumed
    #[arg(long, value_name = "FILE", default_value = "ask.jsonl")]
    out: PathBuf,
    /// Draw the ladder (.svg, .png or .csv)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Compare finished records instead of asking
    #[arg(long, value_name = "RECORD", num_args = 1.., conflicts_with = "target")]
    compare: Vec<PathBuf>,
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
    /// Whether prompts are tokens without words.
    pub fn is_tokens(self) -> bool {
        self == Self::Tokens
    }

    /// How prompts are written, with so many worked examples; tokens have none unless some are asked for.
    pub fn writer(self, shots: Option<usize>, usual_shots: usize) -> PromptWriter {
        let named_tokens = self.is_tokens();
        let style = match self {
            Self::Table | Self::Tokens => Style::Table,
            Self::Sentences => Style::Sentences,
            Self::Code => Style::Code,
        };
        PromptWriter { style, shots: shots.unwrap_or(if named_tokens { 0 } else { usual_shots }), named_tokens }
    }
}

/// Worked examples where nothing else is said.
const USUAL_SHOTS: usize = 2;

fn parse_protocol(text: &str) -> Result<ServerProtocol, String> {
    let names: Vec<&str> = ServerProtocol::ALL.iter().map(|(name, _)| *name).collect();
    let known = ServerProtocol::ALL.iter().find(|(name, _)| *name == text);
    known.map(|(_, protocol)| *protocol).ok_or_else(|| format!("expected one of {}", names.join(", ")))
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
    /// Runs it.
    ///
    /// # Errors
    /// The server cannot be reached, the record cannot be written, or an option makes no sense.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.svg {
            check_destination("--svg", path, &["svg", "png", "csv"])?;
        }
        if !(0.0..1.0).contains(&self.threshold) {
            bail!("--threshold: found {}, expected a share from 0 to below 1", self.threshold);
        }
        if !self.compare.is_empty() {
            return self.compare();
        }
        let target = self.target.as_deref().unwrap_or_default();
        if !target.contains("://") {
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
        let mut record = AnswerRecord::open(&self.out, header)?;
        let outcome = self.put(model, &grid, &mut record)?;
        let answers: Vec<Answer> = record.answers().cloned().collect();
        self.show(&MeasuredModel { name: describe(&model.describe()), grid, answers }, &outcome)
    }

    fn grid(&self, model: &dyn AnsweringModel) -> anyhow::Result<Grid> {
        let hops = parse_hops(&self.hops)?;
        let most = self.entries.iter().copied().max().unwrap_or_default();
        if self.entries.iter().any(|entries| !(2..=64).contains(entries)) {
            bail!("--entries: found {:?}, expected 2 to 64 each", self.entries);
        }
        if self.shots.is_some_and(|shots| shots > 16) || self.filler.is_some_and(|filler| filler > 4096) {
            bail!("--shots and --filler: expected at most 16 worked examples and 4096 filler tokens");
        }
        let mut variants = vec![Variant::default()];
        let more = [
            self.filler.map(|filler| Variant { filler, ..Variant::default() }),
            self.query_first.then(|| Variant { query_first: true, ..Variant::default() }),
            self.easy_order.then(|| Variant { order: TableOrder::Easy, ..Variant::default() }),
            self.chain_of_thought.then(|| Variant { chain_of_thought: true, ..Variant::default() }),
        ];
        variants.extend(more.into_iter().flatten());
        let total = self.count.saturating_mul((hops.len() * self.entries.len() * variants.len()) as u64);
        if total == 0 || total > MAX_QUESTIONS {
            bail!("--count: found {total} questions in all, expected 1 to {MAX_QUESTIONS}");
        }
        let writer = self.style.writer(self.shots, USUAL_SHOTS);
        let symbols = if self.style.is_tokens() {
            symbols::check(model, LEAD, &numerals(most))?
        } else {
            symbols::choose(model, LEAD, most)?
        };
        Ok(Grid { writer, hops, entries: self.entries.clone(), variants, count: self.count, seed: self.seed, symbols })
    }

    fn put(&self, model: &dyn AnsweringModel, grid: &Grid, record: &mut AnswerRecord) -> anyhow::Result<LadderOutcome> {
        let total = grid.count * (grid.hops.len() * grid.entries.len() * grid.variants.len()) as u64;
        let pace = RequestPolicy {
            concurrency: usize::from(self.concurrency),
            rate: self.rate,
            retries: self.retries,
            ..RequestPolicy::default()
        };
        let interrupt = Interrupt::with_message("finishing what is under way; once more to leave at once");
        let bar = steps(total);
        bar.set_message(describe(&model.describe()));
        let caller = call::link();
        let progress = |answered: usize| {
            bar.set_position(answered as u64);
            if let Some(caller) = &caller {
                caller.show_progress(format!("{answered} of {total} questions answered"));
            }
        };
        let outcome = run(model, grid, record, pace, &|| interrupt.requested(), &progress);
        bar.finish_and_clear();
        Ok(outcome?)
    }

    fn show(&self, measured: &MeasuredModel, outcome: &LadderOutcome) -> anyhow::Result<ExitCode> {
        let rates = rates(&measured.answers);
        let allowed = self.layers.as_deref().map(ConfigLimits::by).transpose()?;
        if let Some(path) = &self.svg {
            write_chart(path, &chart(&[ModelLadder { name: measured.name.clone(), rates: &rates }], self.threshold))?;
        }
        if self.json {
            let mut value = measured.json(&rates, self.threshold);
            value["record"] = json!(self.out);
            value["open"] = json!(outcome.open);
            value["failure"] = json!(outcome.failure);
            value["layers_allow"] = json!(allowed.as_ref().map(|allowed| allowed.json(self.layers.as_deref())));
            print_json(&value)?;
        } else {
            let mut text = measured.text(&rates, self.threshold);
            if let Some(allowed) = &allowed {
                writeln!(text, "  layers     {}", allowed.text)?;
            }
            writeln!(text, "  record     {}", self.out.display())?;
            if outcome.open > 0 {
                let cause = outcome.failure.as_deref().unwrap_or("the run was stopped");
                writeln!(
                    text,
                    "  open       {} questions are not answered yet ({cause}); the same command asks them",
                    outcome.open
                )?;
            }
            print(&text)?;
        }
        Ok(match (outcome.open, &outcome.failure) {
            (0, _) => ExitCode::SUCCESS,
            (_, Some(_)) => ExitCode::from(1),
            (_, None) => ExitCode::from(130),
        })
    }

    fn compare(&self) -> anyhow::Result<ExitCode> {
        let mut all = Vec::new();
        for path in &self.compare {
            let (header, answers) = read(path)?;
            all.push(MeasuredModel { name: name_of(path, &header), grid: header.grid, answers });
        }
        let rated: Vec<Vec<AccuracyRow>> = all.iter().map(|measured| rates(&measured.answers)).collect();
        if let Some(path) = &self.svg {
            let ladder =
                |(measured, rates): (&MeasuredModel, &'_ Vec<AccuracyRow>)| (measured.name.clone(), rates.clone());
            let named: Vec<(String, Vec<AccuracyRow>)> = all.iter().zip(&rated).map(ladder).collect();
            let ladders: Vec<ModelLadder<'_>> =
                named.iter().map(|(name, rates)| ModelLadder { name: name.clone(), rates }).collect();
            write_chart(path, &chart(&ladders, self.threshold))?;
        }
        if self.json {
            let values: Vec<Value> =
                all.iter().zip(&rated).map(|(measured, rates)| measured.json(rates, self.threshold)).collect();
            print_json(&json!(values))?;
        } else {
            let texts: Vec<String> =
                all.iter().zip(&rated).map(|(measured, rates)| measured.text(rates, self.threshold)).collect();
            print(&texts.join("\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(model: &rung_ask::ServerDescription) -> String {
    format!("{} ({})", model.model, model.protocol)
}

fn name_of(path: &Path, header: &RecordHeader) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if header.model.model == "default" { stem } else { format!("{stem} ({})", header.model.model) }
}

/// What the layers of a config allow.
struct ConfigLimits {
    /// Nothing where some layers are unknown.
    rungs: Option<usize>,
    /// One hop more, and the base-2 logarithm of the tokens from which on it is proved impossible, where a certificate was found.
    certified: Option<(usize, f64)>,
    /// The sentence that says so.
    text: String,
}

impl ConfigLimits {
    fn by(config: &str) -> anyhow::Result<Self> {
        let oracle = |plan: &Plan, hops: usize| certify(plan, hops, QUICK_CERTIFIED_HOPS);
        let audit = audit_named(config, &AuditOptions { bound_oracle: Some(&oracle), ..AuditOptions::default() })?;
        let Some(capacity) = &audit.capacity else {
            let text = format!("{}: some layers are unknown, so their hops are not counted", audit.model);
            return Ok(Self { rungs: None, certified: None, text });
        };
        let certified = audit.next_hop_bound.and_then(|bound| Some((bound.hops, bound.log2_tokens()?)));
        let limit = audit.next_hop_bound.map(|bound| next_hop_text(&audit, bound)).unwrap_or_default();
        let text = format!(
            "{} full layers, at most {} in one pass for large tables; lower bound: {limit} ({})",
            audit.full_layers().unwrap_or_default(),
            hops(capacity.rungs),
            audit.model
        );
        Ok(Self { rungs: Some(capacity.rungs), certified, text })
    }

    fn json(&self, config: Option<&str>) -> Value {
        let certified = self.certified.map(|(hops, log2)| json!({"hops": hops, "impossible_from_log2_tokens": log2}));
        json!({"config": config, "rungs": self.rungs, "certified": certified, "text": self.text})
    }
}

/// A record, ready to be shown.
struct MeasuredModel {
    name: String,
    grid: Grid,
    answers: Vec<Answer>,
}

impl MeasuredModel {
    fn json(&self, rates: &[AccuracyRow], threshold: f64) -> Value {
        let hops: Vec<Value> = self
            .lines()
            .map(|(variant, entries)| {
                json!({"variant": variant, "entries": entries, "measured_hops": measured_hops(rates, &variant, entries, threshold)})
            })
            .collect();
        json!({"model": self.name, "grid": self.grid, "threshold": threshold, "rates": rates, "hops": hops})
    }

    fn lines(&self) -> impl Iterator<Item = (String, usize)> + '_ {
        self.grid
            .variants
            .iter()
            .flat_map(|variant| self.grid.entries.iter().map(|entries| (variant.label(), *entries)))
    }

    fn text(&self, rates: &[AccuracyRow], threshold: f64) -> String {
        let mut text = format!("{}: hops in one forward pass (measured by prompting)\n", self.name);
        for (variant, entries) in self.lines() {
            let _ = writeln!(text, "  {variant}, tables of {entries} rows, chance {:.1}%", 100.0 / entries as f64);
            for rate in rates.iter().filter(|rate| rate.variant == variant && rate.entries == entries) {
                let mass = rate
                    .mass
                    .map_or_else(String::new, |mass| format!(", {:.0}% of the probability on symbols", 100.0 * mass));
                let reasoned = if rate.reasoned > 0 {
                    format!(", {} reasoned and are left out", rate.reasoned)
                } else {
                    String::new()
                };
                let silent = if rate.without_symbol > 0 {
                    format!(", {} replies without an answer", rate.without_symbol)
                } else {
                    String::new()
                };
                let _ = writeln!(
                    text,
                    "    {:6}  {:5.1}%  ({:.1} to {:.1}%, {} questions{mass}{reasoned}{silent})",
                    hops(rate.hops),
                    100.0 * rate.accuracy,
                    100.0 * rate.interval.0,
                    100.0 * rate.interval.1,
                    rate.answers
                );
            }
            let measured = match measured_hops(rates, &variant, entries, threshold) {
                Some(hops) => format!("{hops} (accuracy surely above {:.0}% up to there)", 100.0 * threshold),
                None => format!("none: not even the control is surely above {:.0}%", 100.0 * threshold),
            };
            let _ = writeln!(text, "    measured hops: {measured}");
        }
        if rates.iter().any(|rate| rate.read_by == ReadBy::Text) {
            text.push_str("  note       the server gives no log-probabilities: answers are the generated token, compared exactly\n");
        }
        if !self.grid.symbols.checked {
            text.push_str("  note       the server has no tokenizer to ask: whether answer symbols are single tokens was not checked\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_ask::server::KEY_VARIABLE;

    #[test]
    fn hops_are_lists_or_ranges() {
        assert_eq!(parse_hops("0..3").unwrap(), [0, 1, 2, 3]);
        assert_eq!(parse_hops("1,4").unwrap(), [1, 4]);
        for bad in ["3..1", "a", "", "99", "1,,2"] {
            assert!(parse_hops(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_help_names_the_variable_of_the_key() {
        let mut command = <Ask as clap::Args>::augment_args(clap::Command::new("ask"));
        assert!(command.render_long_help().to_string().contains(KEY_VARIABLE));
    }
}
