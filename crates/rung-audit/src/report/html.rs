//! Audits as one self-contained page: no script, no font, no picture from elsewhere.

use std::fmt::Write;

use rung_theory::stack::Plan;

use super::{against, bytes, commas, counts, plot, text};
use crate::{Audit, AuditLayer};

const STYLE: &str = "
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1c2230;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid #d8dce4;padding-top:1rem}
table{border-collapse:collapse;margin:.8rem 0}td,th{padding:.15rem .8rem .15rem 0;text-align:right;font-variant-numeric:tabular-nums}
td:first-child,th:first-child{text-align:left}th{font-weight:600;border-bottom:1px solid #d8dce4}
.strip{display:flex;flex-wrap:wrap;gap:2px;margin:.6rem 0}
.strip span{width:1.25rem;height:1.6rem;line-height:1.6rem;text-align:center;font-size:.75rem;border-radius:3px}
.F{background:#2456a6;color:#fff}.S{background:#7b3fa0;color:#fff}.P{background:#0b7a75;color:#fff}
.W{background:#f0b429}.p{background:#f7d680}.r{background:#8fd19e}.n{background:#e6e8ee;color:#666}.u{background:#c62828;color:#fff}
.note{color:#555}.unknown{color:#c62828}code{font-size:.9em}svg{max-width:100%;height:auto}
@media(prefers-color-scheme:dark){body{background:#14171f;color:#e4e7ee}th,h2{border-color:#3a4050}.note{color:#a9b0bf}.n{background:#333a48;color:#aaa}.W,.p,.r{color:#111}figure{background:#fff}}
";

/// Text that cannot become markup.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(letter),
        }
    }
    out
}

/// A page for some audits; with more than three, a table and the plot come first.
pub fn page(audits: &[Audit], title: &str) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{0}</title><style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n",
        escape(title)
    );
    if audits.len() > 3 {
        let _ = writeln!(out, "<figure>{}</figure>", plot::cache_against_rungs(audits));
        overview(&mut out, audits);
    }
    for audit in audits {
        section(&mut out, audit);
    }
    out.push_str("</body></html>\n");
    out
}

/// One table row per audit.
pub fn overview(out: &mut String, audits: &[Audit]) {
    out.push_str("<table><tr><th>model</th><th>layers</th><th>full</th><th>rungs</th><th>bytes per token</th><th>state</th><th>windows</th><th>cache</th></tr>\n");
    for audit in audits {
        let number = |found: Option<u64>| found.map_or_else(|| "unknown".to_owned(), commas);
        let size = |found: Option<u64>| found.map_or_else(|| "unknown".to_owned(), bytes);
        let capacity = audit.capacity.as_ref();
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&audit.model),
            audit.layers.len(),
            number(capacity.map(|capacity| capacity.full as u64)),
            number(capacity.map(|capacity| capacity.rungs as u64)),
            number(audit.cache.map(|cache| cache.per_token)),
            size(audit.cache.map(|cache| cache.state)),
            size(audit.cache.map(|cache| cache.window)),
            size(audit.cache.map(|cache| cache.total)),
        );
    }
    out.push_str("</table>\n");
}

/// The strip as cells that say what decided them.
pub fn strip(audit: &Audit) -> String {
    let cell = |(index, layer): (usize, &AuditLayer)| {
        let letter = layer.letter();
        let class = match letter {
            '.' => 'n',
            '?' => 'u',
            other => other,
        };
        let kind = match (layer.attention, layer.recurrent) {
            (None, _) => "unknown".to_owned(),
            (Some(attention), None) => format!("attention: {}", attention.word()),
            (Some(attention), Some(name)) => format!("attention: {}, recurrent: {name}", attention.word()),
        };
        let title = escape(&format!("layer {index}; {kind}; decided by {}", layer.decided_by));
        format!("<span class=\"{class}\" title=\"{title}\">{letter}</span>")
    };
    let cells: String = audit.layers.iter().enumerate().map(cell).collect();
    format!("<div class=\"strip\">{cells}</div>")
}

/// The report of one audit.
pub fn section(out: &mut String, audit: &Audit) {
    let _ = writeln!(out, "<h2>{}</h2>\n<p class=\"note\">{}</p>", escape(&audit.model), escape(&audit.source));
    let letters = audit.strip();
    if !letters.is_empty() {
        let _ = writeln!(
            out,
            "{}<p>{} in all: {}. <span class=\"note\">{}</span></p>",
            strip(audit),
            audit.layers.len(),
            escape(&text::kinds(audit)),
            text::legend(&letters)
        );
        let deciders: Vec<String> = text::deciders(audit)
            .iter()
            .take(12)
            .map(|(field, count)| format!("<code>{}</code> ({count})", escape(field)))
            .collect();
        let _ = writeln!(out, "<p>Decided by {}.</p>", deciders.join(", "));
    }
    if let Some(outline) = audit.plan.as_ref().map(Plan::outline) {
        let _ = writeln!(out, "<p>Stack: <code>{}</code></p>", escape(&outline));
    }
    for reason in &audit.unknown {
        let _ = writeln!(out, "<p class=\"unknown\">Unknown: {}</p>", escape(reason));
    }
    if let Some(capacity) = &audit.capacity {
        let depth = audit.mixing_layers();
        let _ = writeln!(
            out,
            "<p><b>{} {} rungs</b>: {} full layers, {}. All {depth} full would have {}.</p>",
            capacity.relation(),
            capacity.rungs,
            capacity.full,
            escape(&text::hop_reason(audit)),
            depth.saturating_sub(1)
        );
    }
    if let Some(certified) = audit.certified {
        let _ = writeln!(out, "<p>{}</p>", escape(&text::certified_text(audit, certified)));
    }
    if let Some(sparse) = audit.block_sparse {
        let needed = sparse.needed.map_or_else(|| "not bounded".to_owned(), commas);
        let _ = writeln!(
            out,
            "<p>Block-sparse: a summary of {} tokens has {} bits; 2-Sum needs {needed}.</p>",
            sparse.block,
            commas(sparse.had)
        );
    }
    figures(out, audit);
    out.push_str("<ul class=\"note\">");
    for what in &audit.assumed {
        let _ = write!(out, "<li>{}</li>", escape(what));
    }
    out.push_str("</ul>\n");
}

fn figures(out: &mut String, audit: &Audit) {
    let Some(this) = audit.cache else { return };
    let other = audit.all_full.map(|other| other.cache);
    let _ = writeln!(
        out,
        "<table><tr><th>cache at {} tokens</th><th>this</th><th>all full</th><th></th></tr>",
        commas(audit.context)
    );
    let line = |out: &mut String, name: &str, this: u64, other: Option<u64>, show: fn(u64) -> String| {
        let (shown, ratio) = other.map_or_else(Default::default, |other| (show(other), against(this, other)));
        let _ = writeln!(out, "<tr><td>{name}</td><td>{}</td><td>{shown}</td><td>{ratio}</td></tr>", show(this));
    };
    line(out, "KV cache, bytes per token", this.per_token, other.map(|other| other.per_token), commas);
    line(out, "recurrent state, bytes", this.state, other.map(|other| other.state), commas);
    line(out, "window KV cache, bytes", this.window, other.map(|other| other.window), commas);
    line(out, "all of it", this.total, other.map(|other| other.total), bytes);
    if let Some(work) = audit.work {
        let other = audit.all_full.and_then(|other| other.work);
        line(out, "mixer weights", work.parameters, other.map(|other| other.parameters), counts);
        line(out, "FLOPs per token, prefill", work.prefill, other.map(|other| other.prefill), counts);
        line(out, "FLOPs per token, decode", work.decode, other.map(|other| other.decode), counts);
    }
    out.push_str("</table>\n");
}
