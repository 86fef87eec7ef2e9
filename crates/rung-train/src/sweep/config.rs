//! Parses the TOML of a sweep and expands it into runs.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Deserialize;

use crate::run::config;
use crate::run::{Run, RunConfig, RunError, record};

/// A sweep with more runs is rejected, since it is most likely a mistake.
pub const MAX_RUNS: usize = 100_000;

/// A sweep as it is written in TOML.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// Every run is repeated with each of these seeds; 0 if empty.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// The keys of a run's config that all runs share.
    #[serde(default)]
    pub base: toml::Table,
    /// Named groups of config keys. `use = "NAME"` or `use = ["NAME", ..]` in a run merges them over the base.
    #[serde(default)]
    pub fragments: BTreeMap<String, toml::Table>,
    /// Dotted keys, each with the values it takes; every combination is a run.
    #[serde(default)]
    pub grid: BTreeMap<String, Vec<toml::Value>>,
    /// Single runs: the keys that each merges over the base. An entry with its own `grid` gives a run for every combination.
    #[serde(default)]
    pub runs: Vec<toml::Table>,
}

/// An entry of a sweep before its grid is expanded into runs.
struct Entry {
    fragments: Vec<String>,
    overrides: toml::Table,
    grid: Vec<(String, Vec<toml::Value>)>,
}

impl Entry {
    fn parse(table: &toml::Table) -> Result<Self, RunError> {
        let mut overrides = table.clone();
        let fragments = overrides.remove(USE).map_or_else(|| Ok(Vec::new()), |value| fragment_names(&value))?;
        let invalid_grid = || RunError::invalid_value("grid", "something else", "a table of keys with lists of values");
        let grid = match overrides.remove("grid") {
            None => Vec::new(),
            Some(toml::Value::Table(grid)) => {
                let values = |(key, value): (String, toml::Value)| match value {
                    toml::Value::Array(values) => Ok((key, values)),
                    _ => Err(invalid_grid()),
                };
                grid.into_iter().map(values).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(invalid_grid()),
        };
        Ok(Self { fragments, overrides, grid })
    }

    /// The number of grid combinations: runs per seed.
    fn combination_count(&self) -> usize {
        self.grid.iter().fold(1_usize, |product, (_, values)| product.saturating_mul(values.len()))
    }

    /// The run config of grid combination `combination`, from 0. The last key of the grid varies fastest.
    fn run_table(&self, sweep: &SweepConfig, combination: usize) -> Result<toml::Table, RunError> {
        let mut quotient = combination;
        let mut settings: Vec<(&str, &toml::Value)> = Vec::new();
        for (key, values) in self.grid.iter().rev() {
            settings.push((key, &values[quotient % values.len()]));
            quotient /= values.len();
        }
        let mut fragments = self.fragments.clone();
        for (_, value) in settings.iter().filter(|(key, _)| *key == USE) {
            fragments.extend(fragment_names(value)?);
        }
        let mut table = sweep.base.clone();
        for name in fragments {
            merge(&mut table, sweep.fragment(&name)?);
        }
        merge(&mut table, &self.overrides);
        for (key, value) in settings.into_iter().filter(|(key, _)| *key != USE) {
            set_dotted_key(&mut table, key, value.clone())?;
        }
        Ok(table)
    }
}

/// The key whose value is the fragments to merge.
const USE: &str = "use";

/// Parses the value of `use`: a string or a list of strings.
fn fragment_names(value: &toml::Value) -> Result<Vec<String>, RunError> {
    let invalid_use = || RunError::invalid_value(USE, value, "the name of a fragment or a list of names");
    let name = |value: &toml::Value| value.as_str().map(str::to_owned).ok_or_else(invalid_use);
    match value {
        toml::Value::Array(values) => values.iter().map(name).collect(),
        single => Ok(vec![name(single)?]),
    }
}

/// The runs of a sweep. Runs with the same id are listed once.
pub struct Sweep {
    /// In the order of the TOML; seeds vary fastest.
    pub runs: Vec<Run>,
}

/// A shard of a sweep: the runs whose number modulo `count` is `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Shard {
    /// The shard that has every run.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// Whether the run of this number, from 0, is in this shard.
    pub fn contains(self, number: usize) -> bool {
        number % self.count == self.index
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index, count)) if (1..=count).contains(&index) && count <= MAX_RUNS => {
                Ok(Self { index: index - 1, count })
            }
            _ => Err(format!("found `{text:.40}`, expected i/k with i from 1 to k, such as 2/4")),
        }
    }
}

impl SweepConfig {
    /// Parses the TOML of a sweep.
    ///
    /// # Errors
    /// The text is not TOML or has keys that a sweep does not have.
    pub fn read(text: &str) -> Result<Self, RunError> {
        toml::from_str(text).map_err(|error| RunError::InvalidToml {
            origin: "sweep".to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })
    }

    fn fragment(&self, name: &str) -> Result<&toml::Table, RunError> {
        self.fragments.get(name).ok_or_else(|| {
            let fragment_names: Vec<&str> = self.fragments.keys().map(String::as_str).collect();
            let expected = if fragment_names.is_empty() {
                "a table [fragments.NAME]".to_owned()
            } else {
                fragment_names.join(", ")
            };
            RunError::invalid_value(USE, format!("`{name}`"), expected)
        })
    }

    /// Expands the grids and resolves every run.
    ///
    /// # Errors
    /// The config of a run is invalid; the message says which run.
    pub fn resolve(&self) -> Result<Sweep, RunError> {
        let seeds = if self.seeds.is_empty() { &[0][..] } else { &self.seeds };
        let mut entries = Vec::with_capacity(self.runs.len() + 1);
        if !self.grid.is_empty() || self.runs.is_empty() {
            let grid = self.grid.iter().map(|(key, values)| (key.clone(), values.clone())).collect();
            entries.push(Entry { fragments: Vec::new(), overrides: toml::Table::new(), grid });
        }
        for (index, run) in self.runs.iter().enumerate() {
            entries.push(Entry::parse(run).map_err(|error| sweep_error(&format!("runs[{index}]"), &error))?);
        }
        let runs_per_seed = entries.iter().fold(0_usize, |sum, entry| sum.saturating_add(entry.combination_count()));
        let count = runs_per_seed.saturating_mul(seeds.len());
        if count == 0 || count > MAX_RUNS {
            let expected = format!("1 to {MAX_RUNS}, from seeds, [grid] and [[runs]]");
            return Err(RunError::invalid_value("sweep", format!("{count} runs"), expected));
        }
        let tables = entries
            .iter()
            .flat_map(|entry| (0..entry.combination_count()).map(|combination| entry.run_table(self, combination)));
        let mut sweep = Sweep { runs: Vec::with_capacity(count) };
        let mut ids = std::collections::HashSet::new();
        let mut last_plan = None;
        for (number, table) in tables.enumerate() {
            let run_name = || format!("run {} of the sweep", number + 1);
            let table = table.map_err(|error| sweep_error(&run_name(), &error))?;
            let mut push_run = |seed: &u64| -> Result<(), RunError> {
                let mut table = table.clone();
                set_dotted_key(&mut table, "seed", toml::Value::Integer(i64::try_from(*seed).unwrap_or(i64::MAX)))?;
                let config: RunConfig = table.try_into().map_err(|error: toml::de::Error| RunError::InvalidToml {
                    origin: "run".to_owned(),
                    reason: error.to_string(),
                })?;
                let run = config.resolve_sharing(&mut last_plan)?;
                if ids.insert(record::id(&run)) {
                    sweep.runs.push(run);
                }
                Ok(())
            };
            let result = seeds.iter().try_for_each(&mut push_run);
            result.map_err(|error| sweep_error(&run_name(), &error))?;
        }
        Ok(sweep)
    }
}

/// The error of one run as an error of the sweep.
fn sweep_error(run: &str, error: &RunError) -> RunError {
    RunError::InSweep { run: run.to_owned(), reason: error.to_string().trim_end().to_owned() }
}

fn set_dotted_key(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<(), RunError> {
    config::set_dotted_key(table, key, value)
        .map_err(|reason| RunError::InvalidToml { origin: format!("key `{key}`"), reason })
}

/// Merges `overrides` into `table`, nested tables key by key.
fn merge(table: &mut toml::Table, overrides: &toml::Table) {
    for (key, value) in overrides {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(overrides)) => merge(inner, overrides),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "[base]\ntask = 'funccomp{hops=1,m=4}'\nstack = 'full'\n[base.train]\nsteps = 3\n";

    fn runs(text: &str) -> Vec<Run> {
        SweepConfig::read(text).and_then(|sweep| sweep.resolve()).unwrap().runs
    }

    #[test]
    fn seeds_share_one_plan() {
        let text = "seeds = [1, 2, 3]\n[base]\nstack = 'full*1000'\ntask = 'parity'\n";
        let runs = SweepConfig::read(text).and_then(|sweep| sweep.resolve()).unwrap().runs;
        assert!(runs.len() == 3 && runs.iter().all(|run| std::sync::Arc::ptr_eq(&run.plan, &runs[0].plan)));
    }

    #[test]
    fn a_sweep_has_every_grid_combination_and_every_listed_run() {
        let text = format!(
            "seeds = [4, 5]\n{BASE}[grid]\nstack = ['full', 'gdn full']\n'train.rate' = [1e-3, 2e-3]\n[[runs]]\nstack = 'linear full'\ntrain = {{ batch = 2 }}\n"
        );
        let runs = runs(&text);
        let settings: Vec<_> =
            runs.iter().map(|run| (run.config.stack.as_str(), run.config.train.rate, run.config.seed)).collect();
        assert_eq!(settings.len(), 10);
        assert_eq!(settings[..3], [("full", 1e-3, 4), ("full", 1e-3, 5), ("full", 2e-3, 4)]);
        assert_eq!(settings[9], ("linear full", 4e-3, 5));
        assert_eq!((runs[9].config.train.batch, runs[9].config.train.steps), (2, 3));
    }

    #[test]
    fn fragments_give_the_same_runs_as_repeated_keys() {
        let with_fragments = format!(
            "{BASE}[fragments.long]\ntrain = {{ steps = 9 }}\n[fragments.wide]\nmodel = {{ heads = 4 }}\n\
             [[runs]]\nuse = 'long'\ngrid = {{ stack = ['full', 'gdn full'] }}\n\
             [[runs]]\nstack = 'linear full'\ngrid = {{ use = [[], ['long', 'wide']] }}\n"
        );
        let without_fragments = format!(
            "{BASE}[[runs]]\nstack = 'full'\ntrain = {{ steps = 9 }}\n[[runs]]\nstack = 'gdn full'\ntrain = {{ steps = 9 }}\n\
             [[runs]]\nstack = 'linear full'\n\
             [[runs]]\nstack = 'linear full'\ntrain = {{ steps = 9 }}\nmodel = {{ heads = 4 }}\n"
        );
        let ids = |text: &str| runs(text).iter().map(record::id).collect::<Vec<_>>();
        assert_eq!(ids(&with_fragments), ids(&without_fragments));
        assert_eq!(ids(&with_fragments).len(), 4);
    }

    #[test]
    fn every_run_is_in_exactly_one_shard() {
        let shards: Vec<Shard> = ["1/3", "2/3", "3/3"].iter().map(|text| text.parse().unwrap()).collect();
        for number in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.contains(number)).count(), 1);
        }
        for invalid in ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", ""] {
            assert!(invalid.parse::<Shard>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn invalid_sweeps_are_rejected_with_the_reason() {
        let assert_rejected = |text: &str, expected: &str| {
            let message = SweepConfig::read(text).and_then(|sweep| sweep.resolve()).err().expect(text).to_string();
            assert!(message.contains(expected), "{text}: {message}");
        };
        assert_rejected(&format!("{BASE}[gird]\n"), "unknown field `gird`");
        assert_rejected(&format!("{BASE}[grid]\n'train.rat' = [1]\n"), "unknown field `rat`");
        assert_rejected(
            &format!("{BASE}[grid]\nstack = ['full', 'fulll']\n"),
            "run 2 of the sweep: stack: there is no mixer `fulll`",
        );
        assert_rejected(&format!("{BASE}[grid]\nstack = []\n"), "0 runs");
        assert_rejected(&format!("{BASE}[grid]\n'stack.x' = [1]\n"), "`stack` is not a table");
        assert_rejected("[base]\nstack = 'full'\n", "missing field `task`");
        let sweep_with_run =
            |line: &str| format!("{BASE}[fragments.long]\ntrain = {{ steps = 9 }}\n[[runs]]\n{line}\n");
        assert_rejected(&sweep_with_run("use = 'lnog'"), "run 1 of the sweep: use: found `lnog`, expected long");
        assert_rejected(&sweep_with_run("use = 3"), "expected the name of a fragment");
        assert_rejected(&sweep_with_run("grid = 3"), "expected a table of keys with lists of values");
        assert_rejected(&sweep_with_run("grid = { seed = 3 }"), "expected a table of keys with lists of values");
        let too_many = format!("{BASE}[grid]\nseed = [{}]\n'train.batch' = [{}]\n", "1,".repeat(400), "1,".repeat(400));
        assert_rejected(&too_many, "160000 runs");
    }
}
