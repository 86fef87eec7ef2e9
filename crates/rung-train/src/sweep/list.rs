//! From a sweep's text to its runs.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Deserialize;

use crate::run::config::set;
use crate::run::{Run, RunConfig, RunError, record};

/// More runs than this are a mistake.
pub const MOST_RUNS: usize = 100_000;

/// A sweep as typed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepConfig {
    /// The seeds of every run; 0 alone if not given.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// What all runs share.
    #[serde(default)]
    pub base: toml::Table,
    /// Parts of runs by name. `use = "NAME"` or `use = ["NAME", ..]` in a run lays them over the base.
    #[serde(default)]
    pub fragments: BTreeMap<String, toml::Table>,
    /// Dotted keys, each with the values it takes; every combination is a run.
    #[serde(default)]
    pub grid: BTreeMap<String, Vec<toml::Value>>,
    /// Runs by themselves: what each has besides the base. One with a `grid` of its own stands for every combination.
    #[serde(default)]
    pub runs: Vec<toml::Table>,
}

/// A run of a sweep before its grid is multiplied out.
struct Entry {
    fragments: Vec<String>,
    own: toml::Table,
    grid: Vec<(String, Vec<toml::Value>)>,
}

impl Entry {
    fn read(table: &toml::Table) -> Result<Self, RunError> {
        let mut own = table.clone();
        let fragments = own.remove(USE).map_or_else(|| Ok(Vec::new()), |value| names(&value))?;
        let wrong = || RunError::value("grid", "something else", "a table of keys with lists of values");
        let grid = match own.remove("grid") {
            None => Vec::new(),
            Some(toml::Value::Table(grid)) => {
                let values = |(key, value): (String, toml::Value)| match value {
                    toml::Value::Array(values) => Ok((key, values)),
                    _ => Err(wrong()),
                };
                grid.into_iter().map(values).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(wrong()),
        };
        Ok(Self { fragments, own, grid })
    }

    /// How many runs it stands for, with one seed.
    fn count(&self) -> usize {
        self.grid.iter().fold(1_usize, |product, (_, values)| product.saturating_mul(values.len()))
    }

    /// The run of this number: the last key varies fastest, as nested loops would have it.
    fn table(&self, sweep: &SweepConfig, number: usize) -> Result<toml::Table, RunError> {
        let mut rest = number;
        let mut picks: Vec<(&str, &toml::Value)> = Vec::new();
        for (key, values) in self.grid.iter().rev() {
            picks.push((key, &values[rest % values.len()]));
            rest /= values.len();
        }
        let mut fragments = self.fragments.clone();
        for (_, value) in picks.iter().filter(|(key, _)| *key == USE) {
            fragments.extend(names(value)?);
        }
        let mut table = sweep.base.clone();
        for name in fragments {
            merge(&mut table, sweep.fragment(&name)?);
        }
        merge(&mut table, &self.own);
        for (key, value) in picks.into_iter().filter(|(key, _)| *key != USE) {
            put(&mut table, key, value.clone())?;
        }
        Ok(table)
    }
}

/// The key that names fragments.
const USE: &str = "use";

/// The names of fragments: a text, or a list of them.
fn names(value: &toml::Value) -> Result<Vec<String>, RunError> {
    let wrong = || RunError::value(USE, value, "the name of a fragment or a list of names");
    let name = |value: &toml::Value| value.as_str().map(str::to_owned).ok_or_else(wrong);
    match value {
        toml::Value::Array(values) => values.iter().map(name).collect(),
        one => Ok(vec![name(one)?]),
    }
}

/// The runs of a sweep, without repetition.
pub struct Sweep {
    /// In the order of the text; seeds innermost.
    pub runs: Vec<Run>,
}

/// A part of a sweep: the runs whose number leaves `index` when divided by `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Shard {
    /// All runs.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Whether a run of this number belongs to it.
    pub fn has(self, number: usize) -> bool {
        number % self.count == self.index
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(i, k)| Some((i.parse().ok()?, k.parse().ok()?)));
        match numbers {
            Some((index, count)) if (1..=count).contains(&index) && count <= MOST_RUNS => {
                Ok(Self { index: index - 1, count })
            }
            _ => Err(format!("found `{text:.40}`, expected i/k with i from 1 to k, such as 2/4")),
        }
    }
}

impl SweepConfig {
    /// Reads a sweep.
    ///
    /// # Errors
    /// The text is no TOML or has keys that a sweep does not have.
    pub fn read(text: &str) -> Result<Self, RunError> {
        toml::from_str(text).map_err(|error| RunError::Text {
            place: "sweep".to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })
    }

    fn fragment(&self, name: &str) -> Result<&toml::Table, RunError> {
        self.fragments.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.fragments.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "a table [fragments.NAME]".to_owned() } else { known.join(", ") };
            RunError::value(USE, format!("`{name}`"), known)
        })
    }

    /// Writes every run out and resolves it.
    ///
    /// # Errors
    /// A run makes no sense; the message says which.
    pub fn resolve(&self) -> Result<Sweep, RunError> {
        let seeds = if self.seeds.is_empty() { &[0][..] } else { &self.seeds };
        let mut entries = Vec::with_capacity(self.runs.len() + 1);
        if !self.grid.is_empty() || self.runs.is_empty() {
            let grid = self.grid.iter().map(|(key, values)| (key.clone(), values.clone())).collect();
            entries.push(Entry { fragments: Vec::new(), own: toml::Table::new(), grid });
        }
        for (index, run) in self.runs.iter().enumerate() {
            entries.push(Entry::read(run).map_err(|error| within(&format!("runs[{index}]"), &error))?);
        }
        let runs = entries.iter().fold(0_usize, |sum, entry| sum.saturating_add(entry.count()));
        let count = runs.saturating_mul(seeds.len());
        if count == 0 || count > MOST_RUNS {
            let expected = format!("1 to {MOST_RUNS}, from seeds, [grid] and [[runs]]");
            return Err(RunError::value("sweep", format!("{count} runs"), expected));
        }
        let tables = entries.iter().flat_map(|entry| (0..entry.count()).map(|number| entry.table(self, number)));
        let mut sweep = Sweep { runs: Vec::with_capacity(count) };
        let mut known = std::collections::HashSet::new();
        for (number, table) in tables.enumerate() {
            let place = || format!("run {} of the sweep", number + 1);
            let table = table.map_err(|error| within(&place(), &error))?;
            let mut run_of = |seed: &u64| -> Result<(), RunError> {
                let mut table = table.clone();
                put(&mut table, "seed", toml::Value::Integer(i64::try_from(*seed).unwrap_or(i64::MAX)))?;
                let config: RunConfig = table.try_into().map_err(|error: toml::de::Error| RunError::Text {
                    place: "run".to_owned(),
                    reason: error.to_string(),
                })?;
                let run = config.resolve()?;
                if known.insert(record::id(&run)) {
                    sweep.runs.push(run);
                }
                Ok(())
            };
            let outcome = seeds.iter().try_for_each(&mut run_of);
            outcome.map_err(|error| within(&place(), &error))?;
        }
        Ok(sweep)
    }
}

fn within(place: &str, error: &RunError) -> RunError {
    RunError::Text { place: place.to_owned(), reason: error.to_string().trim_end().to_owned() }
}

fn put(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<(), RunError> {
    set(table, key, value).map_err(|reason| RunError::Text { place: format!("key `{key}`"), reason })
}

/// Lays one table over another, tables inside them included.
fn merge(table: &mut toml::Table, more: &toml::Table) {
    for (key, value) in more {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => merge(below, above),
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
    fn grids_are_multiplied_and_lists_added() {
        let text = format!(
            "seeds = [4, 5]\n{BASE}[grid]\nstack = ['full', 'gdn full']\n'train.rate' = [1e-3, 2e-3]\n[[runs]]\nstack = 'linear full'\ntrain = {{ batch = 2 }}\n"
        );
        let runs = runs(&text);
        let found: Vec<_> =
            runs.iter().map(|run| (run.config.stack.as_str(), run.config.train.rate, run.config.seed)).collect();
        assert_eq!(found.len(), 10);
        assert_eq!(found[..3], [("full", 1e-3, 4), ("full", 1e-3, 5), ("full", 2e-3, 4)]);
        assert_eq!(found[9], ("linear full", 4e-3, 5));
        assert_eq!((runs[9].config.train.batch, runs[9].config.train.steps), (2, 3));
    }

    #[test]
    fn fragments_say_once_what_runs_share() {
        let short = format!(
            "{BASE}[fragments.long]\ntrain = {{ steps = 9 }}\n[fragments.wide]\nmodel = {{ heads = 4 }}\n\
             [[runs]]\nuse = 'long'\ngrid = {{ stack = ['full', 'gdn full'] }}\n\
             [[runs]]\nstack = 'linear full'\ngrid = {{ use = [[], ['long', 'wide']] }}\n"
        );
        let long = format!(
            "{BASE}[[runs]]\nstack = 'full'\ntrain = {{ steps = 9 }}\n[[runs]]\nstack = 'gdn full'\ntrain = {{ steps = 9 }}\n\
             [[runs]]\nstack = 'linear full'\n\
             [[runs]]\nstack = 'linear full'\ntrain = {{ steps = 9 }}\nmodel = {{ heads = 4 }}\n"
        );
        let ids = |text: &str| runs(text).iter().map(record::id).collect::<Vec<_>>();
        assert_eq!(ids(&short), ids(&long));
        assert_eq!(ids(&short).len(), 4);
    }

    #[test]
    fn shards_share_out_every_run_once() {
        let shards: Vec<Shard> = ["1/3", "2/3", "3/3"].iter().map(|text| text.parse().unwrap()).collect();
        for number in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.has(number)).count(), 1);
        }
        for bad in ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", ""] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bad_sweeps_are_named() {
        let fails = |text: &str, expected: &str| {
            let message = SweepConfig::read(text).and_then(|sweep| sweep.resolve()).err().expect(text).to_string();
            assert!(message.contains(expected), "{text}: {message}");
        };
        fails(&format!("{BASE}[gird]\n"), "unknown field `gird`");
        fails(&format!("{BASE}[grid]\n'train.rat' = [1]\n"), "unknown field `rat`");
        fails(
            &format!("{BASE}[grid]\nstack = ['full', 'fulll']\n"),
            "run 2 of the sweep: stack: there is no mixer `fulll`",
        );
        fails(&format!("{BASE}[grid]\nstack = []\n"), "0 runs");
        fails(&format!("{BASE}[grid]\n'stack.x' = [1]\n"), "`stack` is not a table");
        fails("[base]\nstack = 'full'\n", "missing field `task`");
        let run = |line: &str| format!("{BASE}[fragments.long]\ntrain = {{ steps = 9 }}\n[[runs]]\n{line}\n");
        fails(&run("use = 'lnog'"), "run 1 of the sweep: use: found `lnog`, expected long");
        fails(&run("use = 3"), "expected the name of a fragment");
        fails(&run("grid = 3"), "expected a table of keys with lists of values");
        fails(&run("grid = { seed = 3 }"), "expected a table of keys with lists of values");
        let many = format!("{BASE}[grid]\nseed = [{}]\n'train.batch' = [{}]\n", "1,".repeat(400), "1,".repeat(400));
        fails(&many, "160000 runs");
    }
}
