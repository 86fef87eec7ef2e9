//! Groups records by setting, which is the whole config except seed and learning rate. Of each setting the runs of all seeds at the best
//! learning rate are used.

use std::collections::BTreeMap;

use rung_theory::stack::Plan;

use rung_figure::Evidence;
use rung_figure::report::{Column, Prose, Table, TableCell};
use rung_train::run::RunRecord;
use rung_train::run::accuracy::AnswerCount;
pub use rung_train::run::config::strip_mixer_options;

/// From this accuracy on, questions count as learned.
pub const LEARNED_ACCURACY: f64 = 0.99;

/// The runs of one setting at one learning rate, one run for each seed.
pub struct SeedRuns<'a> {
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
    /// Number of seeds at [`LEARNED_ACCURACY`] or above.
    pub learned_seeds: usize,
    /// Number of seeds.
    pub seed_count: usize,
}

impl SeedSpread {
    /// The spread of one value per seed; NaN without values.
    pub fn new(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::NAN, f64::min),
            high: values.iter().copied().fold(f64::NAN, f64::max),
            learned_seeds: values.iter().filter(|value| **value >= LEARNED_ACCURACY).count(),
            seed_count: values.len(),
        }
    }

    /// Whether at least two of three seeds learned it, which confirms a prediction that a task is learned.
    pub fn most_seeds_learned(&self) -> bool {
        self.seed_count > 0 && 3 * self.learned_seeds >= 2 * self.seed_count
    }

    /// Whether at least one seed learned it, which refutes a prediction that a task is not learned.
    pub fn any_seed_learned(&self) -> bool {
        self.learned_seeds > 0
    }

    /// How many seeds learned it: "2 of 3".
    pub fn learned_text(&self) -> String {
        format!("{} of {}", self.learned_seeds, self.seed_count)
    }

    /// Mean, minimum and maximum: "99.8% (99.5 to 100.0)".
    pub fn percent(&self) -> String {
        let [mean, low, high] = [self.mean, self.low, self.high].map(|value| format!("{:.1}", 100.0 * value));
        if low == high { format!("{mean}%") } else { format!("{mean}% ({low} to {high})") }
    }
}

impl<'a> SeedRuns<'a> {
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

    /// Accuracy on questions of `hops` hops, over seeds.
    pub fn accuracy(&self, hops: usize) -> SeedSpread {
        SeedSpread::new(self.records.iter().map(|record| record.group_accuracy(hops as u16)))
    }

    /// Accuracy on one of the additional evaluation tasks, over seeds.
    pub fn accuracy_on(&self, task: &str, group: u16) -> SeedSpread {
        let accuracy = |record: &&RunRecord| record.other_accuracy.get(task)?.get(&group).map(AnswerCount::accuracy);
        SeedSpread::new(self.records.iter().filter_map(accuracy))
    }

    /// Bits of recurrent state, summed over all layers.
    pub fn state_bits(&self) -> f64 {
        self.first().facts.state_bits.iter().map(|bits| *bits as f64).sum()
    }

    /// The stack without the options of its mixers.
    pub fn stack_without_options(&self) -> String {
        strip_mixer_options(&self.first().config.stack)
    }
}

/// Groups records and selects a learning rate for each group by the rule of [`super`]. The result is in the order of the first records.
pub fn group_by_setting(records: &[RunRecord]) -> Vec<SeedRuns<'_>> {
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
    groups.into_iter().filter_map(|(_, rates)| select_best_learning_rate(rates)).collect()
}

/// The runs of one setting at its best learning rate.
fn select_best_learning_rate(rates: BTreeMap<u64, Vec<&RunRecord>>) -> Option<SeedRuns<'_>> {
    let tried_rates = rates.keys().map(|bits| f64::from_bits(*bits)).collect();
    let accuracy_and_negative_loss = |records: &[&RunRecord]| {
        let max_hops = records[0].accuracy.keys().next_back().copied().unwrap_or(0);
        let mean = SeedSpread::new(records.iter().map(|record| record.group_accuracy(max_hops))).mean;
        (mean, -SeedSpread::new(records.iter().map(|record| record.loss)).mean)
    };
    // `max_by` returns the last maximum, so the smaller rate comes last.
    let best = rates.into_values().rev().max_by(|a, b| {
        let (a, b) = (accuracy_and_negative_loss(a), accuracy_and_negative_loss(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let mut records = best?;
    records.sort_by_key(|record| record.config.seed);
    Some(SeedRuns { records, rates: tried_rates })
}

/// A table of every setting with its verdict.
pub fn results_table(caption: &str, settings: &[SeedRuns<'_>]) -> Table {
    let columns = [
        Column::text("stack"),
        Column::text("task"),
        Column::number("rungs"),
        Column::number("state bits / table bits"),
        Column::number("hops"),
        Column::text("hops within the rungs; verdict for these tables"),
        Column::number("accuracy, mean over seeds (worst to best)"),
        Column::number("seeds"),
        Column::number("steps"),
        Column::number("learning rate (number tried)"),
    ];
    let caption = format!("{caption}. Table bits: m log2 m, for m entries of the first table");
    let mut table = Table::new(caption, columns);
    for runs in settings {
        let record = runs.first();
        let ratio = record.facts.table_bits.map_or(f64::NAN, |bits| runs.state_bits() / bits);
        let steps = SeedSpread::new(runs.records.iter().map(|record| record.steps as f64));
        for hops in record.accuracy.keys().map(|hops| usize::from(*hops)) {
            let is_within_rungs = hops <= runs.rungs();
            // The verdict is about all hops of the task.
            let verdict = record.facts.verdict.as_ref().filter(|_| Some(hops) == record.facts.hops);
            let verdict_text = verdict.map_or_else(String::new, |[verdict, _]| format!("; {verdict}"));
            table.row([
                TableCell::code(record.config.stack.clone()),
                TableCell::code(record.config.task.clone()),
                TableCell::from(runs.rungs().to_string()).with_evidence(Evidence::Proved),
                TableCell::from(format!("{ratio:.2}")),
                TableCell::from(hops.to_string()),
                TableCell::from(format!("{}{verdict_text}", if is_within_rungs { "within" } else { "beyond" })),
                TableCell::from(Prose::from(runs.accuracy(hops).percent())).with_evidence(Evidence::Measured),
                TableCell::from(runs.records.len().to_string()),
                TableCell::from(format!("{:.0}", steps.mean)),
                TableCell::from(format!("{} ({})", record.config.train.rate, runs.rates.len())),
            ]);
        }
    }
    table
}

/// Accuracy of chance on questions of `hops` hops: one over the size of the last table looked up.
pub(super) fn chance_accuracy(runs: &SeedRuns<'_>, hops: usize) -> f64 {
    let task = rung_theory::task::parse(&runs.first().config.task);
    let sizes = task.ok().and_then(|task| rung_train::run::record::table_sizes(&*task));
    sizes.and_then(|sizes| sizes.get(hops - 1).copied()).map_or(f64::NAN, |size| 1.0 / f64::from(size))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rung_train::run::trainer::StopReason;
    use rung_train::run::{RunConfig, RunFacts, record};

    /// A record of a run with these accuracies, in correct answers per thousand.
    pub(crate) fn record(stack: &str, task: &str, seed: u64, rate: f64, correct_per_thousand: &[u64]) -> RunRecord {
        let mut config = RunConfig::new(stack, task);
        (config.seed, config.train.rate) = (seed, rate);
        let run = config.resolve().unwrap();
        let counts = correct_per_thousand.iter().map(|correct| AnswerCount { correct: *correct, count: 1000 });
        RunRecord {
            id: record::id(&run),
            schema: rung_train::run::record::SCHEMA,
            program: rung_train::run::record::ProgramInfo::default(),
            device: rung_train::run::device::NATIVE.to_owned(),
            device_steps: std::collections::BTreeMap::new(),
            numerics_version: record::NUMERICS_VERSION,
            facts: RunFacts::of(&run),
            config: run.config,
            stop_reason: StopReason::Finished,
            steps: 100,
            loss: 1.0,
            losses: std::collections::BTreeMap::new(),
            accuracy: (1..).zip(counts).collect(),
            other_accuracy: std::collections::BTreeMap::new(),
            evaluations: Vec::new(),
        }
    }

    #[test]
    fn the_selected_rate_has_the_best_accuracy_at_the_largest_hop_count_and_ties_go_to_the_smaller() {
        let task = "funccomp{hops=2,m=8,n=[3],mixed=yes}";
        let records = [
            record("gdn full", task, 1, 1e-3, &[900, 100]),
            record("gdn full", task, 0, 1e-3, &[900, 300]),
            record("gdn full", task, 0, 4e-3, &[999, 150]),
            record("gdn full", task, 1, 4e-3, &[999, 150]),
            record("full full", task, 0, 4e-3, &[500, 100]),
            record("full full", task, 0, 2e-3, &[500, 100]),
        ];
        let settings = group_by_setting(&records);
        assert_eq!(settings.len(), 2);
        let rates: Vec<_> = settings.iter().map(|runs| (runs.first().config.train.rate, runs.records.len())).collect();
        assert_eq!(rates, [(1e-3, 2), (2e-3, 1)]);
        let spread = settings[0].accuracy(2);
        assert!((spread.mean - 0.2).abs() < 1e-9 && (spread.low, spread.high) == (0.1, 0.3));
        assert_eq!(settings[0].records[0].config.seed, 0);
    }
}
