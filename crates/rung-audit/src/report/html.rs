//! Audits as one self-contained HTML page: no script, font or image is loaded.

use rung_figure::Evidence;
use rung_figure::figure::palette::{BACKGROUND, Colour, TEXT_COLOUR};
use rung_figure::report::{Chapter, Column, Figure, Prose, Report, ReportError, StripCell, Table, TableCell};
use rung_theory::stack::Plan;

use super::plot::CachePlot;
use super::{count_noun, format_bytes, format_ratio, format_si, text, with_commas};
use crate::{Audit, AuditLayer};

/// The largest number of deciding fields that are listed.
const MAX_FIELDS: usize = 12;

/// A page for several audits; with more than three, it starts with a table and the plot.
///
/// # Errors
/// None that an audit can cause: ids and table rows are generated here.
pub fn page(audits: &[Audit], title: &str) -> Result<String, ReportError> {
    let mut report = Report::new(title);
    if audits.len() > 3 {
        let mut chapter = Chapter::new("overview", "Overview");
        let caption = "Cache of each model against the hops that its layout allows.";
        chapter.figure(Figure::new(&CachePlot::new(audits), caption, "rung audit --all --plot plot.svg", "cache.csv"));
        chapter.table(overview(audits));
        report = report.chapter(chapter);
    }
    for (number, audit) in audits.iter().enumerate() {
        report = report.chapter(audit_chapter(number, audit));
    }
    report.html()
}

/// One table row per audit.
fn overview(audits: &[Audit]) -> Table {
    let columns = ["layers", "full", "rungs", "bytes per token", "state", "windows", "cache"].map(Column::number);
    let mut table = Table::new("All models", [Column::text("model")].into_iter().chain(columns));
    for audit in audits {
        let number = |value: Option<u64>| TableCell::from(value.map_or_else(|| "unknown".to_owned(), with_commas));
        let size = |value: Option<u64>| TableCell::from(value.map_or_else(|| "unknown".to_owned(), format_bytes));
        let capacity = audit.capacity.as_ref();
        table.row([
            TableCell::from(audit.model.clone()),
            TableCell::from(audit.layers.len().to_string()),
            number(capacity.map(|capacity| capacity.full_layers as u64)),
            number(capacity.map(|capacity| capacity.rungs as u64)),
            number(audit.cache.map(|cache| cache.per_token)),
            size(audit.cache.map(|cache| cache.state)),
            size(audit.cache.map(|cache| cache.window)),
            size(audit.cache.map(|cache| cache.total)),
        ]);
    }
    table
}

/// The colours of a layer's letter: background and text.
fn colours(letter: char) -> (Colour, Colour) {
    match letter {
        'F' => (Colour(0x24_56_a6), BACKGROUND),
        'S' => (Colour(0x7b_3f_a0), BACKGROUND),
        'P' => (Colour(0x0b_7a_75), BACKGROUND),
        'W' => (Colour(0xf0_b4_29), TEXT_COLOUR),
        'p' => (Colour(0xf7_d6_80), TEXT_COLOUR),
        'r' => (Colour(0x8f_d1_9e), TEXT_COLOUR),
        '?' => (Colour(0xc6_28_28), BACKGROUND),
        _ => (Colour(0xe6_e8_ee), TEXT_COLOUR),
    }
}

/// One cell per layer; its tooltip names the field that decided the layer's kind.
fn layer_cells(audit: &Audit) -> Vec<StripCell> {
    let cell = |(index, layer): (usize, &AuditLayer)| {
        let letter = layer.letter();
        let kind = match (layer.attention, layer.recurrent) {
            (None, _) => "unknown".to_owned(),
            (Some(attention), None) => format!("attention: {}", attention.name()),
            (Some(attention), Some(name)) => format!("attention: {}, recurrent: {name}", attention.name()),
        };
        let (background, text) = colours(letter);
        StripCell {
            letter,
            background,
            text_colour: text,
            tooltip: format!("layer {index}; {kind}; decided by {}", layer.decided_by),
        }
    };
    audit.layers.iter().enumerate().map(cell).collect()
}

/// The chapter of one audit.
fn audit_chapter(number: usize, audit: &Audit) -> Chapter {
    let mut chapter = Chapter::new(format!("model-{}", number + 1), audit.model.clone());
    chapter.paragraph(audit.source.clone());
    let letters = audit.layer_letters();
    if !letters.is_empty() {
        chapter.strip(layer_cells(audit));
        let (depth, counts) = (audit.layers.len(), text::layer_counts(audit));
        chapter.paragraph(format!("{depth} in all: {counts}. {}", text::legend(&letters)));
        let mut prose = Prose::new().text("Decided by ");
        for (index, (field, count)) in text::deciding_fields(audit).iter().take(MAX_FIELDS).enumerate() {
            prose = prose.text(if index == 0 { "" } else { ", " }).code(field.clone()).text(format!(" ({count})"));
        }
        chapter.paragraph(prose.text("."));
    }
    if let Some(mixer_names) = audit.plan.as_ref().map(Plan::mixer_names) {
        chapter.paragraph(Prose::new().text("Stack: ").code(mixer_names));
    }
    for reason in &audit.unknown_reasons {
        chapter.note(format!("Unknown: {reason}"));
    }
    if let Some(capacity) = &audit.capacity {
        let (depth, full, reason) = (audit.mixing_layer_count(), capacity.full_layers, text::hop_reason(audit));
        let rungs = format!("{} {}", capacity.relation(), count_noun(capacity.rungs, "rung"));
        chapter.paragraph(Prose::new().number(rungs, Evidence::Proved).text(format!(
            ": {}, {reason}. All {depth} full would have {}.",
            count_noun(full, "full layer"),
            depth.saturating_sub(1)
        )));
    }
    if let Some(bound) = audit.next_hop_bound {
        chapter.paragraph(format!("Lower bound: {}.", text::next_hop_text(audit, bound)));
    }
    if let Some(sparse) = audit.block_sparse {
        let required = sparse.required_bits.map_or_else(|| "not bounded".to_owned(), with_commas);
        let (block, bits) = (sparse.block_tokens, with_commas(sparse.summary_bits));
        chapter.paragraph(format!(
            "Block-sparse: a summary of {block} tokens has {bits} bits; 2-Sum requires {required}."
        ));
    }
    if let Some(table) = size_table(audit) {
        chapter.table(table);
    }
    for assumption in &audit.assumptions {
        chapter.note(assumption.clone());
    }
    chapter
}

/// Cache and mixer cost beside those of the model with full attention in every layer.
fn size_table(audit: &Audit) -> Option<Table> {
    let cache = audit.cache?;
    let all_full_cache = audit.all_full.map(|all_full| all_full.cache);
    let caption = format!("Cache at {} tokens, and cost of the mixers", with_commas(audit.context));
    let columns = [Column::text(""), Column::number("this"), Column::number("all full"), Column::number("")];
    let mut table = Table::new(caption, columns);
    let mut add_row = |name: &str, value: u64, all_full: Option<u64>, format: fn(u64) -> String| {
        let (all_full_text, ratio) =
            all_full.map_or_else(Default::default, |all_full| (format(all_full), format_ratio(value, all_full)));
        table.row([
            TableCell::from(name),
            TableCell::from(format(value)),
            TableCell::from(all_full_text),
            TableCell::from(ratio),
        ]);
    };
    add_row("KV cache, bytes per token", cache.per_token, all_full_cache.map(|cache| cache.per_token), with_commas);
    add_row("recurrent state, bytes", cache.state, all_full_cache.map(|cache| cache.state), with_commas);
    add_row("window KV cache, bytes", cache.window, all_full_cache.map(|cache| cache.window), with_commas);
    add_row("all caches", cache.total, all_full_cache.map(|cache| cache.total), format_bytes);
    if let Some(cost) = audit.mixer_cost {
        let all_full_cost = audit.all_full.and_then(|all_full| all_full.mixer_cost);
        add_row("mixer weights", cost.parameters, all_full_cost.map(|cost| cost.parameters), format_si);
        add_row(
            "FLOPs per token, prefill",
            cost.prefill_flops,
            all_full_cost.map(|cost| cost.prefill_flops),
            format_si,
        );
        add_row("FLOPs per token, decode", cost.decode_flops, all_full_cost.map(|cost| cost.decode_flops), format_si);
    }
    Some(table)
}
