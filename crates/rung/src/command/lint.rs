//! `rung lint`: contradictions and likely mistakes in a config.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use rung_audit::lint::{LintFinding, Severity, lint};
use rung_audit::preset_config;
use rung_audit::report::json;

use crate::call;
use crate::output::{print, print_error};

/// Errors were found.
const FOUND: u8 = 1;
/// The file is no config.
const MALFORMED: u8 = 2;

/// How findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
    Github,
}

/// Check configs for contradictions and likely mistakes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung lint config.json
  rung lint models/*/config.json --format github

Exit codes: 0 nothing wrong (or only warnings), 1 errors found (with --strict also warnings), 2 not a config.")]
pub struct Lint {
    /// Files, directories that hold a config.json, presets, or `-` for standard input
    #[arg(required = true)]
    configs: Vec<String>,
    /// Output format: text, json, or annotations of GitHub workflows
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write JSON: the same as --format json
    #[arg(long)]
    json: bool,
    /// Count warnings as errors
    #[arg(long)]
    strict: bool,
}

impl Lint {
    /// Runs the command.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut found: Vec<(String, LintFinding)> = Vec::new();
        let mut malformed = false;
        for name in &self.configs {
            match read(name).and_then(|(path, text)| Ok((path, lint(&text)?))) {
                Ok((path, findings)) => found.extend(findings.into_iter().map(|finding| (path.clone(), finding))),
                Err(error) => {
                    malformed = true;
                    print_error(&format!("{name}: {error:#}"));
                }
            }
        }
        print(&self.render(&found))?;
        let counts = |finding: &LintFinding| self.strict || finding.severity == Severity::Error;
        Ok(match (malformed, found.iter().any(|(_, finding)| counts(finding))) {
            (true, _) => ExitCode::from(MALFORMED),
            (false, true) => ExitCode::from(FOUND),
            (false, false) => ExitCode::SUCCESS,
        })
    }

    fn render(&self, found: &[(String, LintFinding)]) -> String {
        match (self.json, self.format) {
            (true, _) | (false, Format::Json) => {
                format!("{:#}\n", json::findings(found.iter().map(|(path, finding)| (path.as_str(), finding))))
            }
            (false, Format::Text) => found.iter().map(|(path, finding)| line(path, finding)).collect(),
            (false, Format::Github) => found.iter().map(|(path, finding)| annotation(path, finding)).collect(),
        }
    }
}

fn read(name: &str) -> anyhow::Result<(String, String)> {
    // No config is larger than this; the reader of JSON has the same limit.
    const MAX_BYTES: u64 = 64 << 20;
    if name == "-" {
        let mut text = String::new();
        call::input().take(MAX_BYTES + 1).read_to_string(&mut text).context("standard input cannot be read as text")?;
        anyhow::ensure!(text.len() as u64 <= MAX_BYTES, "larger than any config");
        return Ok((call::input_name(), text));
    }
    let path = Path::new(name);
    if !path.exists()
        && let Some(text) = preset_config(name)
    {
        return Ok((name.to_owned(), text));
    }
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let length = std::fs::metadata(&file).with_context(|| "cannot be read")?.len();
    anyhow::ensure!(length <= MAX_BYTES, "larger than any config");
    let text = std::fs::read_to_string(&file).with_context(|| "cannot be read as text")?;
    Ok((file.display().to_string(), text))
}

fn line(path: &str, finding: &LintFinding) -> String {
    let location = finding.line.map_or_else(|| path.to_owned(), |line| format!("{path}:{line}"));
    let LintFinding { field, reason, fix, .. } = finding;
    format!("{location}: {}: `{field}`: {reason}; fix: {fix}\n", finding.severity.word())
}

/// A workflow command; percent signs and line ends are escaped as GitHub asks.
fn annotation(path: &str, finding: &LintFinding) -> String {
    let escape = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    let line = finding.line.map_or_else(String::new, |line| format!(",line={line}"));
    let message = escape(&format!("{}; fix: {}", finding.reason, finding.fix));
    let title = property(&finding.field);
    format!("::{} file={}{line},title={title}::{message}\n", finding.severity.word(), property(path))
}
