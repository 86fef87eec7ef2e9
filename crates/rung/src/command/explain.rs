//! `rung explain [NAME]`: the doc page of any task, mixer, bound, construction, analysis or method.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use rung_theory::page::{ExplainPage, Subject};
use rung_theory::pages;
use rung_theory::stack::mixer::OptionKind;
use rung_theory::{bound, spec, stack};
use serde_json::json;

use crate::output::{print, print_json};

/// Print the page of a task, mixer, bound, construction or method.
///
/// Without a name, list all pages, also those of the analyses.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// A name from the list.
    name: Option<String>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Explain {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no page of that name.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut pages = [pages(), rung_inspect::analysis::pages()].concat();
        pages.push(ExplainPage { name: "falsify", subject: Subject::Method, source: rung_falsify::PAGE });
        let Some(name) = &self.name else {
            self.list(&pages)?;
            return Ok(ExitCode::SUCCESS);
        };
        // An alias of a mixer leads to the page of the mixer.
        let page_name = stack::mixer::find(name).map_or(name.as_str(), |kind| kind.name);
        let Some(page) = pages.iter().find(|page| page.name.eq_ignore_ascii_case(page_name)) else {
            let nearest = spec::nearest(name, pages.iter().map(|page| page.name));
            let hint = nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            bail!("there is no page `{name}`{hint} (`rung explain` lists them)");
        };
        if self.json {
            print_json(&json!({"name": page.name, "subject": page.subject.name(), "text": page.text()}))?;
        } else {
            let tables = if page.name == "reach" { bound::reach::text() } else { options_text(page) };
            print(&format!("{} ({})\n\n{}{tables}", page.name, page.subject.name(), page.text()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn list(&self, pages: &[ExplainPage]) -> anyhow::Result<()> {
        if self.json {
            let entry = |page: &ExplainPage| json!({"name": page.name, "subject": page.subject.name(), "summary": page.summary()});
            return print_json(&json!(pages.iter().map(entry).collect::<Vec<_>>()));
        }
        let mut text = String::new();
        let subjects =
            [Subject::Task, Subject::Mixer, Subject::Bound, Subject::Construction, Subject::Analysis, Subject::Method];
        for subject in subjects {
            writeln!(text, "{}", subject.plural())?;
            for page in pages.iter().filter(|page| page.subject == subject) {
                writeln!(text, "  {:<18} {}", page.name, page.summary())?;
            }
        }
        print(&text)
    }
}

/// A mixer's options with their defaults; empty for other pages.
fn options_text(page: &ExplainPage) -> String {
    let Some(kind) = stack::mixer::find(page.name).filter(|_| page.subject == Subject::Mixer) else {
        return String::new();
    };
    let mut text = "\n# Options\n".to_owned();
    let defaults = stack::Defaults::default();
    let default_mixer = stack::Mixer::new::<u64>(kind.name, &[], &defaults).ok();
    for option in kind.options {
        let value = default_mixer.as_ref().and_then(|mixer| mixer.options().find(option.name));
        let default = value.map_or_else(String::new, |value| format!("; {value} by default"));
        let choices = match option.kind {
            OptionKind::Integer { .. } => String::new(),
            OptionKind::Flag { .. } => " (yes, no)".to_owned(),
            OptionKind::Choice(names) => format!(" ({})", names.join(", ")),
        };
        let _ = writeln!(text, "  {:<14} {}{choices}{default}", option.name, option.help);
    }
    let (heads, head_dim, width) = (defaults.heads, defaults.head_dim, defaults.width());
    let _ = writeln!(text, "  {:<14} bits per number\n", "bits");
    let _ = writeln!(text, "Defaults are for {heads} heads of {head_dim}, width {width}.");
    if !kind.aliases.is_empty() {
        let _ = writeln!(text, "Also read as: {}.", kind.aliases.join(", "));
    }
    text
}
