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

/// Exit code: there are errors.
const ERRORS_FOUND: u8 = 1;
/// Exit code: a file is no config.
const MALFORMED: u8 = 2;

/// Output format of findings.
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
        let mut all_findings: Vec<(String, LintFinding)> = Vec::new();
        let mut malformed = false;
        for name in &self.configs {
            match read_config(name).and_then(|(path, text)| Ok((path, lint(&text)?))) {
                Ok((path, findings)) => {
                    all_findings.extend(findings.into_iter().map(|finding| (path.clone(), finding)));
                }
                Err(error) => {
                    malformed = true;
                    print_error(&format!("{name}: {error:#}"));
                }
            }
        }
        print(&self.render(&all_findings))?;
        let is_error = |finding: &LintFinding| self.strict || finding.severity == Severity::Error;
        Ok(match (malformed, all_findings.iter().any(|(_, finding)| is_error(finding))) {
            (true, _) => ExitCode::from(MALFORMED),
            (false, true) => ExitCode::from(ERRORS_FOUND),
            (false, false) => ExitCode::SUCCESS,
        })
    }

    fn render(&self, findings: &[(String, LintFinding)]) -> String {
        match (self.json, self.format) {
            (true, _) | (false, Format::Json) => {
                format!("{:#}\n", json::findings(findings.iter().map(|(path, finding)| (path.as_str(), finding))))
            }
            (false, Format::Text) => findings.iter().map(|(path, finding)| finding_line(path, finding)).collect(),
            (false, Format::Github) => findings.iter().map(|(path, finding)| annotation(path, finding)).collect(),
        }
    }
}

/// The path and the text of a config.
fn read_config(name: &str) -> anyhow::Result<(String, String)> {
    // The JSON parser of the audit has the same limit.
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
    let text = rung_nn::file::read_text(&file, MAX_BYTES).with_context(|| "cannot be read as text")?;
    Ok((file.display().to_string(), text))
}

fn finding_line(path: &str, finding: &LintFinding) -> String {
    let location = finding.line.map_or_else(|| path.to_owned(), |line| format!("{path}:{line}"));
    let LintFinding { field, reason, fix, .. } = finding;
    format!("{location}: {}: `{field}`: {reason}; fix: {fix}\n", finding.severity.name())
}

/// A workflow command; percent signs and line ends are escaped as GitHub asks.
fn annotation(path: &str, finding: &LintFinding) -> String {
    let escape = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let escape_property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    let line = finding.line.map_or_else(String::new, |line| format!(",line={line}"));
    let message = escape(&format!("{}; fix: {}", finding.reason, finding.fix));
    let title = escape_property(&finding.field);
    format!("::{} file={}{line},title={title}::{message}\n", finding.severity.name(), escape_property(path))
}
