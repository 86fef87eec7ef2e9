//! Records grouped: one cell for each stack and task, at the learning rate that the rule picks, with its seeds.

use std::collections::BTreeMap;

use rung_theory::stack::Plan;

use rung_figure::Evidence;
use rung_figure::report::{Column, Prose, Table, TableCell};
use rung_train::run::RunRecord;
use rung_train::run::accuracy::AnswerCount;
pub use rung_train::run::config::outline;

/// Above this share of right answers a hop counts as learned.
pub const LEARNED: f64 = 0.99;

/// The runs of one stack on one task at one rate, one for each seed.
pub struct ResultCell<'a> {
    /// In order of seed.
    pub records: Vec<&'a RunRecord>,
    /// Rates that were tried.
    pub rates: Vec<f64>,
}

/// A mean over seeds and its extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeedSpread {
    /// Mean.
    pub mean: f64,
    /// The worst seed.
    pub low: f64,
    /// The best seed.
    pub high: f64,
    /// Seeds at [`LEARNED`] or above.
    pub learned: usize,
    /// Seeds.
    pub seeds: usize,
}

impl SeedSpread {
    /// Of some numbers; not a number if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::NAN, f64::min),
            high: values.iter().copied().fold(f64::NAN, f64::max),
            learned: values.iter().filter(|value| **value >= LEARNED).count(),
            seeds: values.len(),
        }
    }

    /// Whether at least two of three seeds learned it: how a prediction that something is learned is judged.
    pub fn mostly_learned(&self) -> bool {
        self.seeds > 0 && 3 * self.learned >= 2 * self.seeds
    }

    /// Whether a seed learned it: one is enough against a prediction that something is not learned.
    pub fn once_learned(&self) -> bool {
        self.learned > 0
    }

    /// "2 of 3".
    pub fn share(&self) -> String {
        format!("{} of {}", self.learned, self.seeds)
    }

    /// "99.8% (99.5 to 100.0)".
    pub fn percent(&self) -> String {
        let [mean, low, high] = [self.mean, self.low, self.high].map(|share| format!("{:.1}", 100.0 * share));
        if low == high { format!("{mean}%") } else { format!("{mean}% ({low} to {high})") }
    }
}

impl<'a> ResultCell<'a> {
    /// The first record, for what all of them share.
    pub fn first(&self) -> &'a RunRecord {
        self.records[0]
    }

    /// Its stack.
    pub fn plan(&self) -> Plan {
        self.first().config.plan().unwrap_or_else(|error| unreachable!("a recorded run was resolved: {error}"))
    }

    /// Hops of the task; 0 if it is another task.
    pub fn hops(&self) -> usize {
        self.first().facts.hops.unwrap_or(0)
    }

    /// Hops that the layout allows for large tables.
    pub fn rungs(&self) -> usize {
        self.first().facts.rungs
    }

    /// Accuracy at so many hops, over seeds.
    pub fn accuracy(&self, hops: usize) -> SeedSpread {
        SeedSpread::of(self.records.iter().map(|record| record.mean(hops as u16)))
    }

    /// Accuracy on another task that was asked at the end, over seeds.
    pub fn accuracy_on(&self, task: &str, group: u16) -> SeedSpread {
        let share = |record: &&RunRecord| record.also.get(task)?.get(&group).map(AnswerCount::mean);
        SeedSpread::of(self.records.iter().filter_map(share))
    }

    /// State bits of all blocks.
    pub fn state_bits(&self) -> f64 {
        self.first().facts.state_bits.iter().map(|bits| *bits as f64).sum()
    }

    /// The names of its mixers, without numbers.
    pub fn outline(&self) -> String {
        outline(&self.first().config.stack)
    }
}

/// Groups records and picks a rate for each group by the rule of [`super`], in the order in which stacks are met.
pub fn cells(records: &[RunRecord]) -> Vec<ResultCell<'_>> {
    let mut groups: Vec<(String, BTreeMap<u64, Vec<&RunRecord>>)> = Vec::new();
    for record in records {
        // Everything but seed and rate makes a group.
        let mut config = record.config.clone();
        (config.seed, config.train.rate) = (0, 0.0);
        let key = config.text();
        let at = groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            groups.push((key, BTreeMap::new()));
            groups.len() - 1
        });
        // Rates are positive, so their bits are in their order.
        groups[at].1.entry(record.config.train.rate.to_bits()).or_default().push(record);
    }
    groups.into_iter().filter_map(|(_, rates)| at_best_rate(rates)).collect()
}

fn at_best_rate(rates: BTreeMap<u64, Vec<&RunRecord>>) -> Option<ResultCell<'_>> {
    let tried = rates.keys().map(|bits| f64::from_bits(*bits)).collect();
    let score = |records: &[&RunRecord]| {
        let top = records[0].accuracy.keys().next_back().copied().unwrap_or(0);
        let mean = SeedSpread::of(records.iter().map(|record| record.mean(top))).mean;
        (mean, -SeedSpread::of(records.iter().map(|record| record.loss)).mean)
    };
    // Later ones win ties, so the smaller rate comes last.
    let best = rates.into_values().rev().max_by(|a, b| {
        let (a, b) = (score(a), score(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let mut records = best?;
    records.sort_by_key(|record| record.config.seed);
    Some(ResultCell { records, rates: tried })
}

/// Every cell with its prediction, for the report.
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
        let steps = SeedSpread::of(cell.records.iter().map(|record| record.steps as f64));
        for hops in record.accuracy.keys().map(|hops| usize::from(*hops)) {
            let within = hops <= cell.rungs();
            // The verdict is about all hops of the task.
            let verdict = record.facts.verdict.as_ref().filter(|_| Some(hops) == record.facts.hops);
            let known = verdict.map_or_else(String::new, |[word, _]| format!("; {word}"));
            table.row([
                TableCell::code(record.config.stack.clone()),
                TableCell::code(record.config.task.clone()),
                TableCell::from(cell.rungs().to_string()).known(Evidence::Proved),
                TableCell::from(format!("{ratio:.2}")),
                TableCell::from(hops.to_string()),
                TableCell::from(format!("{}{known}", if within { "within" } else { "beyond" })),
                TableCell::from(Prose::from(cell.accuracy(hops).percent())).known(Evidence::Measured),
                TableCell::from(cell.records.len().to_string()),
                TableCell::from(format!("{:.0}", steps.mean)),
                TableCell::from(format!("{} ({})", record.config.train.rate, cell.rates.len())),
            ]);
        }
    }
    table
}

/// What a guess that knows the question scores at so many hops: one over the size of the last table it passes.
pub(super) fn guess(cell: &ResultCell<'_>, hops: usize) -> f64 {
    let task = rung_theory::task::parse(&cell.first().config.task);
    let sizes = task.ok().and_then(|task| rung_train::run::record::table_sizes(&*task));
    sizes.and_then(|sizes| sizes.get(hops - 1).copied()).map_or(f64::NAN, |size| 1.0 / f64::from(size))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rung_train::run::trainer::StopReason;
    use rung_train::run::{RunConfig, RunFacts, record};

    /// A record as if a run had ended with these shares of right answers, per thousand.
    pub(crate) fn record(stack: &str, task: &str, seed: u64, rate: f64, right: &[u64]) -> RunRecord {
        let mut config = RunConfig::new(stack, task);
        (config.seed, config.train.rate) = (seed, rate);
        let run = config.resolve().unwrap();
        let counts = right.iter().map(|right| AnswerCount { right: *right, count: 1000 });
        RunRecord {
            id: record::id(&run),
            schema: rung_train::run::record::SCHEMA,
            program: rung_train::run::record::ProgramInfo::default(),
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
    fn the_rate_is_chosen_at_the_deepest_hop_and_ties_go_to_the_smaller() {
        let task = "funccomp{hops=2,m=8,n=[3],mixed=yes}";
        let records = [
            record("gdn full", task, 1, 1e-3, &[900, 100]),
            record("gdn full", task, 0, 1e-3, &[900, 300]),
            record("gdn full", task, 0, 4e-3, &[999, 150]),
            record("gdn full", task, 1, 4e-3, &[999, 150]),
            record("full full", task, 0, 4e-3, &[500, 100]),
            record("full full", task, 0, 2e-3, &[500, 100]),
        ];
        let cells = cells(&records);
        assert_eq!(cells.len(), 2);
        let rates: Vec<_> = cells.iter().map(|cell| (cell.first().config.train.rate, cell.records.len())).collect();
        assert_eq!(rates, [(1e-3, 2), (2e-3, 1)]);
        let spread = cells[0].accuracy(2);
        assert!((spread.mean - 0.2).abs() < 1e-9 && (spread.low, spread.high) == (0.1, 0.3));
        assert_eq!(cells[0].records[0].config.seed, 0);
    }
}
