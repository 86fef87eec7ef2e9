//! Groups records by setting, which is all of the configuration except seed and learning rate. A group is called a cell: it has all seeds at the best learning rate.

use std::collections::BTreeMap;

use rung_theory::stack::Plan;

use rung_figure::Evidence;
use rung_figure::report::{Column, Prose, Table, TableCell};
use rung_train::run::RunRecord;
use rung_train::run::accuracy::AnswerCount;
pub use rung_train::run::config::outline;

/// From this accuracy on, questions count as learned.
pub const LEARNED: f64 = 0.99;

/// A cell: the group of runs of one stack on one task at one learning rate, one run for each seed.
pub struct ResultCell<'a> {
    /// The records, ordered by seed.
    pub records: Vec<&'a RunRecord>,
    /// Learning rates that were tried.
    pub rates: Vec<f64>,
}

/// Mean, minimum and maximum over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeedSpread {
    /// Mean over seeds.
    pub mean: f64,
    /// The worst seed.
    pub low: f64,
    /// The best seed.
    pub high: f64,
    /// Number of seeds at [`LEARNED`] or above.
    pub learned: usize,
    /// Number of seeds.
    pub seeds: usize,
}

impl SeedSpread {
    /// The spread of one value per seed; NaN without values.
    pub fn new(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::NAN, f64::min),
            high: values.iter().copied().fold(f64::NAN, f64::max),
            learned: values.iter().filter(|value| **value >= LEARNED).count(),
            seeds: values.len(),
        }
    }

    /// Whether at least two of three seeds learned it, which confirms a prediction that a task is learned.
    pub fn mostly_learned(&self) -> bool {
        self.seeds > 0 && 3 * self.learned >= 2 * self.seeds
    }

    /// Whether at least one seed learned it, which refutes a prediction that a task is not learned.
    pub fn once_learned(&self) -> bool {
        self.learned > 0
    }

    /// How many seeds learned it: "2 of 3".
    pub fn learned_text(&self) -> String {
        format!("{} of {}", self.learned, self.seeds)
    }

    /// Mean, minimum and maximum: "99.8% (99.5 to 100.0)".
    pub fn percent(&self) -> String {
        let [mean, low, high] = [self.mean, self.low, self.high].map(|value| format!("{:.1}", 100.0 * value));
        if low == high { format!("{mean}%") } else { format!("{mean}% ({low} to {high})") }
    }
}

impl<'a> ResultCell<'a> {
    /// The first record, for properties that all records share.
    pub fn first(&self) -> &'a RunRecord {
        self.records[0]
    }

    /// The stack.
    pub fn plan(&self) -> Plan {
        self.first().config.plan().unwrap_or_else(|error| unreachable!("a recorded run was resolved: {error}"))
    }

    /// Hops of the task; 0 if the task is not function composition.
    pub fn hops(&self) -> usize {
        self.first().facts.hops.unwrap_or(0)
    }

    /// Hops that the layout allows for large tables.
    pub fn rungs(&self) -> usize {
        self.first().facts.rungs
    }

    /// Accuracy on questions of so many hops, over seeds.
    pub fn accuracy(&self, hops: usize) -> SeedSpread {
        SeedSpread::new(self.records.iter().map(|record| record.mean(hops as u16)))
    }

    /// Accuracy on one of the additional evaluation tasks, over seeds.
    pub fn accuracy_on(&self, task: &str, group: u16) -> SeedSpread {
        let accuracy = |record: &&RunRecord| record.also.get(task)?.get(&group).map(AnswerCount::mean);
        SeedSpread::new(self.records.iter().filter_map(accuracy))
    }

    /// Bits of recurrent state, summed over all layers.
    pub fn state_bits(&self) -> f64 {
        self.first().facts.state_bits.iter().map(|bits| *bits as f64).sum()
    }

    /// The names of its mixers, without numbers.
    pub fn outline(&self) -> String {
        outline(&self.first().config.stack)
    }
}

/// Groups records and selects a learning rate for each group by the rule of [`super`]. Cells are in the order of their first records.
pub fn group_by_setting(records: &[RunRecord]) -> Vec<ResultCell<'_>> {
    let mut groups: Vec<(String, BTreeMap<u64, Vec<&RunRecord>>)> = Vec::new();
    for record in records {
        // Records of a group differ in seed and learning rate only.
        let mut config = record.config.clone();
        (config.seed, config.train.rate) = (0, 0.0);
        let key = config.to_toml();
        let index = groups.iter().position(|(group_key, _)| *group_key == key).unwrap_or_else(|| {
            groups.push((key, BTreeMap::new()));
            groups.len() - 1
        });
        // Positive floats are ordered like their bits.
        groups[index].1.entry(record.config.train.rate.to_bits()).or_default().push(record);
    }
    groups.into_iter().filter_map(|(_, rates)| at_best_rate(rates)).collect()
}

/// The cell of one group at its best learning rate.
fn at_best_rate(rates: BTreeMap<u64, Vec<&RunRecord>>) -> Option<ResultCell<'_>> {
    let tried_rates = rates.keys().map(|bits| f64::from_bits(*bits)).collect();
    let score = |records: &[&RunRecord]| {
        let max_hops = records[0].accuracy.keys().next_back().copied().unwrap_or(0);
        let mean = SeedSpread::new(records.iter().map(|record| record.mean(max_hops))).mean;
        (mean, -SeedSpread::new(records.iter().map(|record| record.loss)).mean)
    };
    // `max_by` returns the last maximum, so the smaller rate comes last.
    let best = rates.into_values().rev().max_by(|a, b| {
        let (a, b) = (score(a), score(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let mut records = best?;
    records.sort_by_key(|record| record.config.seed);
    Some(ResultCell { records, rates: tried_rates })
}

/// A table of every cell with its verdict.
pub fn results_table(caption: &str, cells: &[ResultCell<'_>]) -> Table {
    let columns = [
        Column::text("stack"),
        Column::text("task"),
        Column::number("rungs"),
        Column::number("state bits / m log m"),
        Column::number("hops"),
        Column::text("rungs; verdict at this size"),
        Column::number("accuracy, mean over seeds (worst to best)"),
        Column::number("seeds"),
        Column::number("steps"),
        Column::number("rate (of)"),
    ];
    let mut table = Table::new(caption, columns);
    for cell in cells {
        let record = cell.first();
        let ratio = record.facts.table_bits.map_or(f64::NAN, |bits| cell.state_bits() / bits);
        let steps = SeedSpread::new(cell.records.iter().map(|record| record.steps as f64));
        for hops in record.accuracy.keys().map(|hops| usize::from(*hops)) {
            let within = hops <= cell.rungs();
            // The verdict is about all hops of the task.
            let verdict = record.facts.verdict.as_ref().filter(|_| Some(hops) == record.facts.hops);
            let verdict_text = verdict.map_or_else(String::new, |[word, _]| format!("; {word}"));
            table.row([
                TableCell::code(record.config.stack.clone()),
                TableCell::code(record.config.task.clone()),
                TableCell::from(cell.rungs().to_string()).known(Evidence::Proved),
                TableCell::from(format!("{ratio:.2}")),
                TableCell::from(hops.to_string()),
                TableCell::from(format!("{}{verdict_text}", if within { "within" } else { "beyond" })),
                TableCell::from(Prose::from(cell.accuracy(hops).percent())).known(Evidence::Measured),
                TableCell::from(cell.records.len().to_string()),
                TableCell::from(format!("{:.0}", steps.mean)),
                TableCell::from(format!("{} ({})", record.config.train.rate, cell.rates.len())),
            ]);
        }
    }
    table
}

/// Accuracy of guessing on questions of so many hops: one over the size of the last table looked up.
pub(super) fn guess_accuracy(cell: &ResultCell<'_>, hops: usize) -> f64 {
    let task = rung_theory::task::parse(&cell.first().config.task);
    let sizes = task.ok().and_then(|task| rung_train::run::record::table_sizes(&*task));
    sizes.and_then(|sizes| sizes.get(hops - 1).copied()).map_or(f64::NAN, |size| 1.0 / f64::from(size))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rung_train::run::trainer::StopReason;
    use rung_train::run::{RunConfig, RunFacts, record};

    /// A record of a run with these accuracies, in right answers per thousand.
    pub(crate) fn record(stack: &str, task: &str, seed: u64, rate: f64, right: &[u64]) -> RunRecord {
        let mut config = RunConfig::new(stack, task);
        (config.seed, config.train.rate) = (seed, rate);
        let run = config.resolve().unwrap();
        let counts = right.iter().map(|right| AnswerCount { right: *right, count: 1000 });
        RunRecord {
            id: record::id(&run),
            schema: rung_train::run::record::SCHEMA,
            program: rung_train::run::record::ProgramInfo::default(),
            device: rung_train::run::device::NATIVE.to_owned(),
            device_steps: std::collections::BTreeMap::new(),
            edition: record::EDITION,
            facts: RunFacts::of(&run),
            config: run.config,
            stop_reason: StopReason::Finished,
            steps: 100,
            loss: 1.0,
            losses: std::collections::BTreeMap::new(),
            accuracy: (1..).zip(counts).collect(),
            also: std::collections::BTreeMap::new(),
            evaluations: Vec::new(),
        }
    }

    #[test]
    fn the_rate_is_best_at_most_hops_and_the_smaller_of_equal_ones() {
        let task = "funccomp{hops=2,m=8,n=[3],mixed=yes}";
        let records = [
            record("gdn full", task, 1, 1e-3, &[900, 100]),
            record("gdn full", task, 0, 1e-3, &[900, 300]),
            record("gdn full", task, 0, 4e-3, &[999, 150]),
            record("gdn full", task, 1, 4e-3, &[999, 150]),
            record("full full", task, 0, 4e-3, &[500, 100]),
            record("full full", task, 0, 2e-3, &[500, 100]),
        ];
        let cells = group_by_setting(&records);
        assert_eq!(cells.len(), 2);
        let rates: Vec<_> = cells.iter().map(|cell| (cell.first().config.train.rate, cell.records.len())).collect();
        assert_eq!(rates, [(1e-3, 2), (2e-3, 1)]);
        let spread = cells[0].accuracy(2);
        assert!((spread.mean - 0.2).abs() < 1e-9 && (spread.low, spread.high) == (0.1, 0.3));
        assert_eq!(cells[0].records[0].config.seed, 0);
    }
}
