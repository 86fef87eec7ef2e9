//! `rung runs`: what has been recorded.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use rung_figure::figure::csv::{Csv, field};
use rung_train::run::RunRecord;
use rung_train::sweep::{find, records};
use serde_json::{Value, json};

use super::sweep::line;
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
    /// Write CSV, one line per run and group of questions.
    #[arg(long, conflicts_with_all = ["diff", "json"])]
    csv: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Runs {
    /// Runs it.
    ///
    /// # Errors
    /// The directory cannot be read, or there is no such run or key.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut all = records(&self.directory)?;
        for filter in &self.filters {
            let Some((key, value)) = filter.split_once('=') else {
                bail!("--where: found `{filter}`, expected key=value");
            };
            if let Some((_, record)) = all.first()
                && leaf(&json!(record), key).is_none()
            {
                bail!(
                    "--where: found key `{key}`, expected one of a record or its config, such as stack or facts.rungs"
                );
            }
            all.retain(|(_, record)| leaf(&json!(record), key).is_some_and(|found| same(&found, value)));
        }
        if let Some(names) = &self.diff {
            let (first, second) = (&find(&all, &names[0])?.1, &find(&all, &names[1])?.1);
            return self.difference(first, second);
        }
        if self.csv {
            print(&table(all.iter().map(|(_, record)| record)))?;
        } else if self.json {
            print_json(&Value::Array(all.iter().map(|(_, record)| json!(record)).collect()))?;
        } else {
            let mut text = String::new();
            for (_, record) in &all {
                writeln!(text, "{}", line(record))?;
            }
            writeln!(text, "{} runs", all.len())?;
            print(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn difference(&self, first: &RunRecord, second: &RunRecord) -> anyhow::Result<ExitCode> {
        let mut found = Vec::new();
        compare("", &without_evaluations(first), &without_evaluations(second), &mut found);
        if self.json {
            let lines = found.iter().map(|(key, a, b)| json!({"key": key, "first": a, "second": b}));
            print_json(&Value::Array(lines.collect()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        for (key, a, b) in &found {
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

/// The value of a dotted key, of the record or else of its config.
fn leaf(record: &Value, key: &str) -> Option<Value> {
    let down = |from: &Value| key.split('.').try_fold(from.clone(), |value, part| value.get(part).cloned());
    down(record).or_else(|| down(&record["config"]))
}

/// Whether a value is what was typed; numbers by value, however they are written.
fn same(found: &Value, typed: &str) -> bool {
    match found {
        Value::String(text) => text == typed,
        Value::Number(number) => typed.parse::<f64>().is_ok_and(|typed| number.as_f64() == Some(typed)),
        other => serde_json::from_str::<Value>(typed).is_ok_and(|typed| typed == *other),
    }
}

fn compare(key: &str, first: &Value, second: &Value, found: &mut Vec<(String, Value, Value)>) {
    let inside = |part: &str| if key.is_empty() { part.to_owned() } else { format!("{key}.{part}") };
    match (first, second) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                let (left, right) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                compare(&inside(name), left, right, found);
            }
        }
        _ if first != second => found.push((key.to_owned(), first.clone(), second.clone())),
        _ => {}
    }
}

/// Records as CSV.
pub fn table<'a>(records: impl Iterator<Item = &'a RunRecord>) -> String {
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
        let state: u64 = facts.state_bits.iter().sum();
        for (group, tally) in &record.accuracy {
            let (low, high) = tally.interval();
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
                state.to_string(),
                facts.table_bits.map(field).unwrap_or_default(),
                facts.tokens.to_string(),
                group.to_string(),
                field(tally.mean()),
                field(low),
                field(high),
                tally.count.to_string(),
            ]);
        }
    }
    csv.finish()
}
