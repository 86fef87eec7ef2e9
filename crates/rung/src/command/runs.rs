//! `rung runs`: the records of training runs.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use rung_figure::figure::csv::{Csv, field};
use rung_train::run::RunRecord;
use rung_train::sweep::{find_record_by_id, read_records};
use serde_json::{Value, json};

use super::sweep::record_line;
use crate::output::{print, print_json};

/// List, filter, compare or export recorded runs.
#[derive(Debug, clap::Args)]
pub struct Runs {
    /// Directory of the runs.
    #[arg(default_value = "runs")]
    directory: PathBuf,
    /// Show only runs whose key has this value, such as `stack=gdn full` or `train.rate=0.004`; may be given several times.
    #[arg(long = "where", value_name = "KEY=VALUE")]
    filters: Vec<String>,
    /// Show the differences between two runs, by id or its prefix.
    #[arg(long, num_args = 2, value_names = ["RUN", "RUN"])]
    diff: Option<Vec<String>>,
    /// Write CSV, one line per run and metric group (number of hops).
    #[arg(long, conflicts_with_all = ["diff", "json"])]
    csv: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Runs {
    /// Runs the command.
    ///
    /// # Errors
    /// The directory cannot be read, or there is no such run or key.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut runs = read_records(&self.directory)?;
        for filter in &self.filters {
            let Some((key, value)) = filter.split_once('=') else {
                bail!("--where: found `{filter}`, expected key=value");
            };
            if let Some((_, record)) = runs.first()
                && record_value(&json!(record), key).is_none()
            {
                bail!(
                    "--where: found key `{key}`, expected one of a record or its config, such as stack or facts.rungs"
                );
            }
            runs.retain(|(_, record)| {
                record_value(&json!(record), key).is_some_and(|found| equals_text(&found, value))
            });
        }
        if let Some(names) = &self.diff {
            let (first, second) = (&find_record_by_id(&runs, &names[0])?.1, &find_record_by_id(&runs, &names[1])?.1);
            return self.print_difference(first, second);
        }
        if self.csv {
            print(&to_csv(runs.iter().map(|(_, record)| record)))?;
        } else if self.json {
            print_json(&Value::Array(runs.iter().map(|(_, record)| json!(record)).collect()))?;
        } else {
            let mut text = String::new();
            for (_, record) in &runs {
                writeln!(text, "{}", record_line(record))?;
            }
            writeln!(text, "{} runs", runs.len())?;
            print(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print_difference(&self, first: &RunRecord, second: &RunRecord) -> anyhow::Result<ExitCode> {
        let mut differences = Vec::new();
        add_differences("", &without_evaluations(first), &without_evaluations(second), &mut differences);
        if self.json {
            let lines = differences.iter().map(|(key, a, b)| json!({"key": key, "first": a, "second": b}));
            print_json(&Value::Array(lines.collect()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        for (key, a, b) in &differences {
            writeln!(text, "{key}: {a} | {b}")?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A record without its evaluations during training.
fn without_evaluations(record: &RunRecord) -> Value {
    let mut value = json!(record);
    if let Some(fields) = value.as_object_mut() {
        fields.remove("looks");
    }
    value
}

/// The value of a dotted key of the record, or else of its config.
fn record_value(record: &Value, key: &str) -> Option<Value> {
    let lookup = |from: &Value| key.split('.').try_fold(from.clone(), |value, part| value.get(part).cloned());
    lookup(record).or_else(|| lookup(&record["config"]))
}

/// Whether a value equals a text from the command line. Numbers are compared as numbers.
fn equals_text(value: &Value, typed: &str) -> bool {
    match value {
        Value::String(text) => text == typed,
        Value::Number(number) => typed.parse::<f64>().is_ok_and(|typed| number.as_f64() == Some(typed)),
        other => serde_json::from_str::<Value>(typed).is_ok_and(|typed| typed == *other),
    }
}

/// Adds every leaf in which two values differ, with its dotted key.
fn add_differences(key: &str, first: &Value, second: &Value, differences: &mut Vec<(String, Value, Value)>) {
    let nested_key = |part: &str| if key.is_empty() { part.to_owned() } else { format!("{key}.{part}") };
    match (first, second) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                let (left, right) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                add_differences(&nested_key(name), left, right, differences);
            }
        }
        _ if first != second => differences.push((key.to_owned(), first.clone(), second.clone())),
        _ => {}
    }
}

/// Records as CSV, one line per run and metric group.
pub fn to_csv<'a>(records: impl Iterator<Item = &'a RunRecord>) -> String {
    let header = [
        "id",
        "stack",
        "task",
        "seed",
        "rate",
        "steps",
        "over",
        "loss",
        "weights",
        "full_layers",
        "rungs",
        "state_bits",
        "table_bits",
        "tokens",
        "group",
        "mean",
        "low",
        "high",
        "count",
    ];
    let mut csv = Csv::new(header);
    for record in records {
        let (config, facts) = (&record.config, &record.facts);
        let state_bits: u64 = facts.state_bits.iter().sum();
        for (group, answers) in &record.accuracy {
            let (low, high) = answers.interval();
            csv.row([
                record.id.clone(),
                config.stack.clone(),
                config.task.clone(),
                config.seed.to_string(),
                field(config.train.rate),
                record.steps.to_string(),
                format!("{:?}", record.stop_reason).to_lowercase(),
                field(record.loss),
                facts.weights.to_string(),
                facts.full_layers.to_string(),
                facts.rungs.to_string(),
                state_bits.to_string(),
                facts.table_bits.map(field).unwrap_or_default(),
                facts.tokens.to_string(),
                group.to_string(),
                field(answers.accuracy()),
                field(low),
                field(high),
                answers.count.to_string(),
            ]);
        }
    }
    csv.finish()
}
