//! `rung audit`: a model's layers, KV cache and rungs.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::ProgressBar;
use rung_audit::report::plot::CachePlot;
use rung_audit::report::{html, json, table, text};
use rung_audit::{
    Audit, AuditError, AuditOptions, DEFAULT_CERTIFIED_HOPS, Dtype, MAX_CERTIFIED_HOPS, audit_path, audit_preset,
    certify, find_configs, parse_tokens, presets, what_if,
};
use rung_figure::figure::{self, Chart as _};
use rung_theory::stack::Plan;
use serde_json::json;

use crate::output::{
    audit_named, check_destination, print, print_coloured, print_error, print_json, progress_bar, write_file,
};

/// Exit code: some layer is unknown.
const UNKNOWN: u8 = 3;
/// Exit code: the input is malformed.
const MALFORMED: u8 = 2;
/// Show a model's layers, KV cache and rungs from its config or GGUF
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung audit qwen3.5-9b
  rung audit ~/models/my-model --context 32768 --json
  rung audit - < config.json
  rung audit qwen3.5-9b llama-3.1-8b --compare
  rung audit gemma-3-27b --what-if every=4
  rung audit --all --sort rungs --plot rungs.svg

Exit codes: 0 everything is known, 2 the input is malformed, 3 some layer is unknown.")]
pub struct AuditCommand {
    /// config.json, directory with one or many, GGUF file, `-` for standard input, or preset
    #[arg(required_unless_present_any = ["all", "list"])]
    models: Vec<String>,
    /// Audit every preset as one table
    #[arg(long, conflicts_with_all = ["models", "what_if", "compare"])]
    all: bool,
    /// List the presets
    #[arg(long, conflicts_with_all = ["models", "all"])]
    list: bool,
    /// Compare the models side by side
    #[arg(long)]
    compare: bool,
    /// Change layers and show the difference: 7=full, 3-5=window, every=4, ratio=5:1, first=full
    #[arg(long, value_name = "EDIT", conflicts_with = "compare")]
    what_if: Option<String>,
    #[command(flatten)]
    cache: CacheOptions,
    /// Search lower bounds for stacks of up to 7 rungs, which takes seconds [default: up to 1 rung]
    #[arg(long)]
    certify: bool,
    /// Sort the table of --all: name, rungs, full, layers, cache, per-token, state
    #[arg(long, value_name = "COLUMN", default_value = "name")]
    sort: String,
    /// Write JSON instead of text; docs/audit.md describes it
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the plot of cache against rungs, as SVG or PNG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Options of `rung audit` and `rung place` about the cache.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct CacheOptions {
    /// Context length in tokens, such as 32768, 32k or 1M
    #[arg(long, value_name = "N", default_value_t = rung_audit::DEFAULT_CONTEXT, value_parser = parse_tokens)]
    pub context: u64,
    /// Number format of keys and values: bf16, fp16, fp32, fp8, int8, int4
    #[arg(long, value_name = "D", default_value = "bf16")]
    pub kv_dtype: Dtype,
    /// Number format of recurrent state [default: the config's, else fp32]
    #[arg(long, value_name = "D")]
    pub state_dtype: Option<Dtype>,
}

impl CacheOptions {
    /// These options for the audit, without a search for lower bounds.
    pub(super) fn options(self) -> AuditOptions<'static> {
        let Self { context, kv_dtype, state_dtype } = self;
        AuditOptions { context, kv_dtype, state_dtype, bound_searcher: None }
    }
}

impl AuditCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// A file cannot be written. Malformed input is reported with an exit code and is not an error here.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if self.list {
            return self.list();
        }
        if let Some(path) = &self.plot {
            check_destination("--plot", path, &["svg", "png"])?;
        }
        let max_hops = if self.certify { MAX_CERTIFIED_HOPS } else { DEFAULT_CERTIFIED_HOPS };
        let search_bound = |plan: &Plan, hops: usize| certify(plan, hops, max_hops);
        let options = AuditOptions { bound_searcher: Some(&search_bound), ..self.cache.options() };
        if let [folder] = self.models.as_slice()
            && let Some(files) = find_configs(Path::new(folder))
        {
            return self.audit_folder(&files);
        }
        let audits = match self.audits(&options) {
            Ok(audits) => audits,
            Err((name, error)) => return Ok(report_malformed(&name, &error)),
        };
        let edited_audits = match self.edited_audits(&audits, &options) {
            Ok(edited_audits) => edited_audits,
            Err((name, error)) => return Ok(report_malformed(&name, &error)),
        };
        let output = self.report(&audits, &edited_audits);
        let all_audits: Vec<Audit> = audits.iter().chain(&edited_audits).cloned().collect();
        if let Some(path) = &self.html {
            let title = if self.all { "Public models, audited".to_owned() } else { self.models.join(", ") };
            write_file(path, html::page(&all_audits, &title)?)?;
        }
        if let Some(path) = &self.plot {
            write_svg_or_png(path, &CachePlot::new(&all_audits).svg())?;
        }
        print_coloured(&output)?;
        let unknown = audits.iter().any(|audit| !audit.unknown_reasons.is_empty());
        Ok(if unknown { ExitCode::from(UNKNOWN) } else { ExitCode::SUCCESS })
    }

    fn list(&self) -> anyhow::Result<ExitCode> {
        if self.json {
            print_json(&presets().map(|name| json!({"name": name})).collect())?;
        } else {
            print(&format!("{}\n", presets().collect::<Vec<_>>().join("\n")))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn audits(&self, options: &AuditOptions) -> Result<Vec<Audit>, (String, AuditError)> {
        let mut audits = Vec::new();
        if self.all {
            for name in presets() {
                audits.push(audit_preset(name, options).map_err(|error| (name.to_owned(), error))?);
            }
            table::sort(&mut audits, &self.sort).map_err(|error| ("--sort".to_owned(), error))?;
        }
        for name in &self.models {
            audits.push(audit_named(name, options).map_err(|error| (name.clone(), error))?);
        }
        Ok(audits)
    }

    /// Audits many files as one table, without a search for lower bounds. A file that cannot be read is reported and left out.
    fn audit_folder(&self, files: &[PathBuf]) -> anyhow::Result<ExitCode> {
        let options = self.cache.options();
        let bar = progress_bar(files.len() as u64);
        let (mut audits, mut malformed) = (Vec::new(), 0);
        for (path, result) in files.iter().zip(audit_all(files, &options, &bar)) {
            match result {
                Ok(mut audit) => {
                    audit.model = path.display().to_string();
                    audits.push(audit);
                }
                Err(error) => {
                    malformed += 1;
                    bar.suspend(|| report_malformed(&path.display().to_string(), &error));
                }
            }
        }
        bar.finish_and_clear();
        if let Err(error) = table::sort(&mut audits, &self.sort) {
            return Ok(report_malformed("--sort", &error));
        }
        let output = if self.json { format!("{:#}\n", json::audits(&audits)) } else { table::text(&audits) };
        print(&output)?;
        let unknown = audits.iter().any(|audit| !audit.unknown_reasons.is_empty());
        Ok(match (malformed, unknown) {
            (0, false) => ExitCode::SUCCESS,
            (0, true) => ExitCode::from(UNKNOWN),
            _ => ExitCode::from(MALFORMED),
        })
    }

    /// The audits after `--what-if`; empty without it.
    fn edited_audits(&self, audits: &[Audit], options: &AuditOptions) -> Result<Vec<Audit>, (String, AuditError)> {
        let Some(edit) = &self.what_if else { return Ok(Vec::new()) };
        let apply = |audit: &Audit| what_if::apply(audit, edit, options).map_err(|error| (audit.model.clone(), error));
        audits.iter().map(apply).collect()
    }

    fn report(&self, audits: &[Audit], edited: &[Audit]) -> String {
        if self.json {
            let value = match (audits, edited) {
                ([audit], []) if !self.all => json::audit(audit),
                (_, []) => json::audits(audits),
                _ => json::what_ifs(audits, edited),
            };
            return format!("{value:#}\n");
        }
        let colour = is_output_coloured();
        if self.all {
            return table::text(audits);
        }
        if self.compare {
            return text::compare(audits, colour);
        }
        let mut out = String::new();
        for (index, audit) in audits.iter().enumerate() {
            match edited.get(index) {
                None => out.push_str(&text::audit(audit, colour)),
                Some(edited) => {
                    out.push_str(&text::audit(edited, colour));
                    out.push('\n');
                    out.push_str(&text::compare(&[audit.clone(), edited.clone()], colour));
                }
            }
            if index + 1 < audits.len() {
                out.push('\n');
            }
        }
        out
    }
}

/// Audits files on all cores, in the order of the files.
fn audit_all(files: &[PathBuf], options: &AuditOptions, bar: &ProgressBar) -> Vec<Result<Audit, AuditError>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(files.len().max(1));
    let chunk_size = files.len().div_ceil(threads).max(1);
    // The function that searches bounds cannot be shared between threads, so each thread builds its options without it.
    let (context, kv_dtype, state_dtype) = (options.context, options.kv_dtype, options.state_dtype);
    std::thread::scope(|scope| {
        let audit_chunk = |chunk: &[PathBuf]| {
            let options = AuditOptions { context, kv_dtype, state_dtype, bound_searcher: None };
            let audit = |path: &PathBuf| {
                let result = audit_path(path, &options);
                bar.inc(1);
                result
            };
            chunk.iter().map(audit).collect::<Vec<_>>()
        };
        let threads: Vec<_> = files.chunks(chunk_size).map(|chunk| scope.spawn(move || audit_chunk(chunk))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// Whether output is coloured: only on a terminal, and not with `NO_COLOR`.
pub(super) fn is_output_coloured() -> bool {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !no_colour && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Prints an error about `name`. Returns the exit code of malformed input.
pub(super) fn report_malformed(name: &str, error: &AuditError) -> ExitCode {
    let text = error.to_string();
    // Some errors already contain the name.
    if text.contains(name) {
        print_error(&text);
    } else {
        print_error(&format!("{name}: {text}"));
    }
    ExitCode::from(MALFORMED)
}

/// Writes an SVG as SVG or as PNG, by the file's extension.
fn write_svg_or_png(path: &Path, svg: &str) -> anyhow::Result<()> {
    let bytes = match path.extension().and_then(|ending| ending.to_str()) {
        Some("png") => figure::render_png(svg)?,
        _ => svg.as_bytes().to_vec(),
    };
    write_file(path, bytes)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct AuditLine {
        #[command(flatten)]
        audit: AuditCommand,
    }

    /// The exit code of `rung audit` with these arguments.
    fn exit_code(arguments: &[&str]) -> String {
        let line = AuditLine::parse_from(std::iter::once("audit").chain(arguments.iter().copied()));
        format!("{:?}", line.audit.run().unwrap())
    }

    #[test]
    fn exit_codes_distinguish_known_unknown_and_malformed() {
        let folder = std::env::temp_dir().join(format!("rung-command-audit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write_config = |text: &str| std::fs::write(folder.join("config.json"), text).unwrap();
        let path = folder.to_str().unwrap();
        let success = format!("{:?}", ExitCode::SUCCESS);
        assert_eq!(exit_code(&["lfm2-1.2b", "--json"]), success);
        write_config(
            r#"{"num_hidden_layers": 2, "layer_types": ["full_attention", "odd"], "hidden_size": 8, "num_attention_heads": 2}"#,
        );
        assert_eq!(exit_code(&[path]), format!("{:?}", ExitCode::from(UNKNOWN)));
        write_config(r#"{"num_hidden_layers": -2}"#);
        assert_eq!(exit_code(&[path]), format!("{:?}", ExitCode::from(MALFORMED)));
        assert_eq!(exit_code(&["no-such-model"]), format!("{:?}", ExitCode::from(MALFORMED)));
        assert_eq!(exit_code(&["lfm2-1.2b", "--what-if", "99=full"]), format!("{:?}", ExitCode::from(MALFORMED)));
        let page = folder.join("page.html");
        assert_eq!(exit_code(&["lfm2-1.2b", "--what-if", "every=4", "--html", page.to_str().unwrap()]), success);
        assert!(std::fs::read_to_string(&page).unwrap().contains("with every=4"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
