//! Contradictions and likely mistakes in a config: each with its field, the reason and what to do.
//!
//! An error is a config that libraries reject or interpret differently; a warning is a value that is probably a mistake.
//! Adding a check: write a function of the config and the audit, and add it to `CHECKS`.

use rung_theory::stack::mixer;

use crate::config::Config;
use crate::layout::AttentionScope;
use crate::{Audit, AuditError, AuditOptions, json};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Probably a mistake.
    Warning,
    /// Libraries reject it, or interpret it differently.
    Error,
}

impl Severity {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A mistake in a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintFinding {
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// The field that is wrong.
    pub field: String,
    /// The field's line in the file, from 1, if it could be located.
    pub line: Option<usize>,
    /// Why it is wrong.
    pub reason: String,
    /// How to correct it.
    pub fix: String,
}

/// A check of a config that could be audited; configs that cannot be audited are reported by [`finding_of_error`].
type Check = fn(&Config, &Audit, &mut Vec<LintFinding>);

static CHECKS: &[Check] = &[
    check_heads,
    check_periods,
    check_layer_counts,
    check_windows,
    check_shared_caches,
    check_state_format,
    check_experts,
];

/// Checks the text of a `config.json`.
///
/// # Errors
/// The text is not a JSON object.
pub fn lint(text: &str) -> Result<Vec<LintFinding>, AuditError> {
    let root = json::parse(text)?;
    let (value, path) = crate::config::find_language_model(&root)?;
    let config = Config::new(&root, value, &path, false);
    let mut findings = Vec::new();
    match crate::audit::audit(&config, "config", "config.json", &AuditOptions::default()) {
        Ok(audit) => {
            add_unknown_reasons(&audit, &mut findings);
            for check in CHECKS {
                check(&config, &audit, &mut findings);
            }
        }
        Err(error) => findings.push(finding_of_error(&error)),
    }
    for finding in &mut findings {
        finding.line = line_of(text, &finding.field);
    }
    findings.sort_by(|first, second| second.severity.cmp(&first.severity).then(first.line.cmp(&second.line)));
    findings.dedup();
    Ok(findings)
}

fn finding(
    severity: Severity,
    field: impl Into<String>,
    reason: impl Into<String>,
    fix: impl Into<String>,
) -> LintFinding {
    LintFinding { severity, field: field.into(), line: None, reason: reason.into(), fix: fix.into() }
}

/// The line on which a field's name first occurs as a key.
fn line_of(text: &str, field: &str) -> Option<usize> {
    let name = field.rsplit('.').next()?.split('[').next().filter(|name| !name.is_empty())?;
    let offset = text.find(&format!("\"{name}\""))?;
    Some(text[..offset].matches('\n').count() + 1)
}

/// The finding for a config that cannot be audited.
fn finding_of_error(error: &AuditError) -> LintFinding {
    match error {
        AuditError::Field { path, found, expected } => {
            finding(Severity::Error, path, format!("found {found}"), format!("write {expected}"))
        }
        AuditError::Contradiction { first, second, why } => finding(
            Severity::Error,
            first,
            format!("contradicts `{second}`: {why}"),
            format!("make `{first}` and `{second}` agree"),
        ),
        other => finding(Severity::Error, "", other.to_string(), "correct the file"),
    }
}

/// Adds a finding for each reason why the audit is incomplete.
fn add_unknown_reasons(audit: &Audit, findings: &mut Vec<LintFinding>) {
    for reason in &audit.unknown_reasons {
        // Missing sizes are named after "looked for"; other reasons name the field in quotes.
        let fields = reason.split_once("looked for ").map(|(_, fields)| fields);
        let first_field = fields.and_then(|fields| fields.split([',', ' ', ';']).next()).unwrap_or_default();
        let quoted_field = reason.split('`').nth(1).unwrap_or_default();
        let (field, fix) = match fields {
            Some(fields) => (first_field, format!("add {fields}")),
            None => (quoted_field, "use a field and a value that libraries read".to_owned()),
        };
        let lacks_window = reason.contains("sizes of attention") && first_field.contains("window");
        let severity = if lacks_window { Severity::Error } else { Severity::Warning };
        findings.push(finding(severity, field, reason, fix));
    }
}

fn check_heads(config: &Config, _: &Audit, findings: &mut Vec<LintFinding>) {
    let positive = |name: &str| config.get(name).and_then(crate::config::as_u64).filter(|number| *number > 0);
    let (heads, kv_heads) = (positive("num_attention_heads"), positive("num_key_value_heads"));
    if let (Some(heads), Some(kv_heads)) = (heads, kv_heads)
        && heads % kv_heads != 0
    {
        let reason = format!("{heads} query heads cannot share {kv_heads} key/value heads evenly");
        let fix = format!("choose a divisor of {heads}");
        findings.push(finding(Severity::Error, config.path_of("num_key_value_heads"), reason, fix));
    }
    let width_fields = ["head_dim", "attention_head_dim", "kv_channels", "kv_lora_rank", "attention_hidden_size"];
    if let (Some(heads), Some(width), false) =
        (heads, config.width().unwrap_or(None), width_fields.iter().any(|name| config.has(name)))
        && width % heads != 0
    {
        let reason = format!("a width of {width} is not a multiple of {heads} heads");
        let fix = "add `head_dim`, or choose a divisor of the width";
        findings.push(finding(Severity::Error, config.path_of("num_attention_heads"), reason, fix));
    }
}

/// Finds periods longer than the stack.
fn check_periods(config: &Config, _: &Audit, findings: &mut Vec<LintFinding>) {
    let Some(num_layers) = config.num_layers().unwrap_or(None) else { return };
    let num_layers = num_layers as u64;
    // Where the layers are listed one by one, these fields are not used.
    if config.has("layer_types") || config.has("layers_block_type") {
        return;
    }
    let names = ["full_attention_interval", "global_attn_every_n_layers", "sliding_window_pattern", "layer_group_size"];
    for name in names {
        let Some(period) = config.get(name).and_then(crate::config::as_u64).filter(|&period| period > num_layers)
        else {
            continue;
        };
        let reason = format!("the period is {period} layers, but there are only {num_layers}");
        findings.push(finding(Severity::Error, config.path_of(name), reason, format!("choose 1 to {num_layers}")));
    }
    let (has_period, offset) =
        (config.has("attn_layer_period"), config.count("attn_layer_offset").unwrap_or(None).unwrap_or(0));
    if has_period && offset >= num_layers {
        let reason = format!("the first full layer would be {offset}, but there are {num_layers} layers");
        findings.push(finding(
            Severity::Error,
            config.path_of("attn_layer_offset"),
            reason,
            format!("choose 0 to {}", num_layers - 1),
        ));
    }
}

/// Finds two different numbers of layers.
fn check_layer_counts(config: &Config, _: &Audit, findings: &mut Vec<LintFinding>) {
    let names = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
    let counts: Vec<(&str, u64)> =
        names.into_iter().filter_map(|name| Some((name, config.get(name).and_then(crate::config::as_u64)?))).collect();
    if let [(first, count), others @ ..] = counts.as_slice()
        && let Some((second, other)) = others.iter().find(|(_, other)| other != count)
    {
        let reason = format!("says {count} layers, `{second}` says {other}");
        findings.push(finding(
            Severity::Error,
            config.path_of(first),
            reason,
            format!("remove `{second}` or make them agree"),
        ));
    }
}

fn check_windows(config: &Config, audit: &Audit, findings: &mut Vec<LintFinding>) {
    let window = config.get("sliding_window").and_then(crate::config::as_u64);
    let (Some(window), Some(context)) = (window, audit.max_context) else { return };
    let has_window_layer = audit.layers.iter().any(|layer| layer.attention == Some(AttentionScope::Window));
    if has_window_layer && window >= context {
        let reason = format!("a window of {window} tokens has no effect in a context of {context}");
        let fix = "use full attention, or a smaller window";
        findings.push(finding(Severity::Warning, config.path_of("sliding_window"), reason, fix));
    }
}

/// A layer that reads another's cache needs an earlier layer of the same kind that has a cache.
fn check_shared_caches(config: &Config, audit: &Audit, findings: &mut Vec<LintFinding>) {
    for (index, layer) in audit.layers.iter().enumerate().filter(|(_, layer)| layer.shares_cache) {
        let is_source = |other: &crate::AuditLayer| !other.shares_cache && other.attention == layer.attention;
        if !audit.layers[..index].iter().any(is_source) {
            let reason = format!("layer {index} shares a cache, but no earlier layer of its kind has one");
            let fix = "share fewer layers, so that each kind has a layer with its own cache";
            findings.push(finding(Severity::Error, config.path_of("num_kv_shared_layers"), reason, fix));
            break;
        }
    }
}

/// Recurrent state sums over the whole sequence: in 16 bits, late additions are rounded away.
fn check_state_format(config: &Config, audit: &Audit, findings: &mut Vec<LintFinding>) {
    let is_convolution = |name: &str| mixer::find(name).is_some_and(|mixer| mixer.is_convolution);
    let is_recurrent = audit.layers.iter().any(|layer| layer.recurrent.is_some_and(|name| !is_convolution(name)));
    let Some(dtype) = audit.declared_state_dtype.filter(|dtype| is_recurrent && dtype.bits < 32) else { return };
    let name = if config.has("mamba_ssm_cache_dtype") { "mamba_ssm_cache_dtype" } else { "mamba_ssm_dtype" };
    let reason = format!("recurrent state in {} loses small updates of long sequences", dtype.name);
    findings.push(finding(Severity::Warning, config.path_of(name), reason, "write \"float32\""));
}

fn check_experts(config: &Config, _: &Audit, findings: &mut Vec<LintFinding>) {
    let number = |name: &str| config.get(name).and_then(crate::config::as_u64).filter(|&count| count > 0);
    let names = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"];
    let (experts, per_token) = (names.into_iter().find_map(number), number("num_experts_per_tok"));
    if let (Some(experts), Some(per_token)) = (experts, per_token)
        && per_token > experts
    {
        let reason = format!("a token chooses {per_token} of {experts} experts");
        findings.push(finding(
            Severity::Error,
            config.path_of("num_experts_per_tok"),
            reason,
            format!("choose 1 to {experts}"),
        ));
    }
}
