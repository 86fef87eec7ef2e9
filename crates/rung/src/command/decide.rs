//! `rung decide STACK --hops L --m M --n N1,N2,..`: solved, impossible or unknown, for one instance.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use num_bigint::BigUint;
use rung_theory::bound::certificate;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::{Unknown, Verdict};
use serde_json::{Value, json};

use super::stack::SizeOptions;
use crate::output::{hops_text, print, print_json, with_spinner};
use rung_theory::report::format_large_integer;

/// Decide whether a stack can compose tables of given sizes.
///
/// The answer is solved, impossible or unknown, with its evidence.
#[derive(Debug, clap::Args)]
pub struct Decide {
    /// A stack such as `linear full full`, or a model: preset, config.json, directory or GGUF file.
    stack: String,
    /// Hops of function composition.
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    hops: usize,
    /// Entries of the first table.
    #[arg(long, value_name = "M")]
    m: String,
    /// Growth of each further table: n_1,..,n_{L-1}.
    #[arg(long, value_delimiter = ',', value_name = "N1,N2,..")]
    n: Vec<String>,
    #[command(flatten)]
    sizes: SizeOptions,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Decide {
    /// Runs the command.
    ///
    /// # Errors
    /// The stack or the sizes cannot be read.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let stack = self.sizes.resolve(&self.stack)?;
        let m = parse_size("--m", &self.m)?;
        let n = self.n.iter().map(|text| parse_size("--n", text)).collect::<Result<_, _>>()?;
        let tables = TableSizes::new(self.hops, m, n)?;
        let verdict = with_spinner("deciding", || StackBounds::new(&stack.plan, stack.convention).decide(&tables));
        let (mut construction, mut certificate, mut shortcuts) = (Value::Null, Value::Null, Value::Null);
        match &verdict {
            Verdict::Solved(solution) => construction = json!(solution.name),
            Verdict::Impossible(bound) => {
                certificate = certificate::write(&bound.certificate, &stack.text, &stack.conventions());
            }
            Verdict::Unknown(Unknown::NotExcludable(steps)) => {
                let names: Vec<&str> = steps.iter().filter_map(|step| step.shortcut).collect();
                shortcuts = json!(names);
            }
            Verdict::Unknown(Unknown::Open { .. }) => {}
        }
        if self.json {
            print_json(&json!({
                "verdict": verdict.name(),
                "reason": verdict.reason(),
                "stack": stack.text,
                "hops": self.hops,
                "tokens": tables.tokens().to_string(),
                "construction": construction,
                "certificate": certificate,
                "shortcuts": shortcuts,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let evidence = match &verdict {
            Verdict::Solved(_) => " (constructed)",
            Verdict::Impossible(_) => " (proved)",
            Verdict::Unknown(_) => "",
        };
        let mut text = String::new();
        writeln!(
            text,
            "{}, {} on {} tokens: {}{evidence}",
            self.stack,
            hops_text(self.hops),
            format_large_integer(&tables.tokens()),
            verdict.name()
        )?;
        writeln!(text, "  {}", verdict.reason())?;
        if let Verdict::Solved(solution) = &verdict {
            writeln!(text, "  `rung explain {}` describes the weights", solution.name)?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Parses a table size, which may be larger than any integer type.
fn parse_size(option: &str, text: &str) -> anyhow::Result<BigUint> {
    const MAX_DIGITS: usize = 300;
    let is_number = !text.is_empty() && text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    match is_number.then(|| BigUint::parse_bytes(text.as_bytes(), 10)).flatten() {
        Some(number) => Ok(number),
        None => bail!("{option}: found `{text:.40}`, expected a whole number of at most {MAX_DIGITS} digits"),
    }
}
