//! An audit for the terminal.

use std::fmt::Write;

use rung_theory::stack::{Capacity, Plan};

use super::{count_noun, format_bytes, format_ratio, format_si, with_commas};
use crate::placement::PlacementReport;
use crate::{AttentionScope, Audit, BoundSearchResult, MAX_CERTIFIED_HOPS, NextHopBound};

/// Layer letters in one line.
const LETTERS_PER_LINE: usize = 64;

/// Layer letters in lines of 64, coloured if `colour` is set.
pub fn colour_letters(letters: &str, colour: bool) -> String {
    let mut out = String::new();
    for (index, letter) in letters.chars().enumerate() {
        if index > 0 && index % LETTERS_PER_LINE == 0 {
            out.push('\n');
        }
        if colour {
            let code = match letter {
                'F' => "1;97;44",
                'S' => "1;97;45",
                'P' => "1;97;46",
                'W' => "30;43",
                'p' => "30;103",
                'r' => "30;42",
                '?' => "1;97;41",
                _ => "90;100",
            };
            let _ = write!(out, "\x1b[{code}m{letter}\x1b[0m");
        } else {
            out.push(letter);
        }
    }
    out
}

/// The meaning of the letters that occur.
pub fn legend(letters: &str) -> String {
    let meanings = [
        ('F', "full"),
        ('S', "sparse (counts as full)"),
        ('P', "full with a recurrence"),
        ('W', "window"),
        ('p', "window with a recurrence"),
        ('r', "recurrent"),
        ('.', "no token mixer"),
        ('?', "unknown"),
    ];
    let present = meanings.iter().filter(|(letter, _)| letters.contains(*letter));
    present.map(|(letter, meaning)| format!("{letter} {meaning}")).collect::<Vec<_>>().join(", ")
}

/// The number of layers of each kind, as a comma-separated list.
pub fn layer_counts(audit: &Audit) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for layer in &audit.layers {
        let kind = match (layer.attention, layer.recurrent) {
            (None, _) => "unknown".to_owned(),
            (Some(AttentionScope::NoAttention), None) => {
                format!("without a token mixer ({})", layer.feed_forward.name())
            }
            (Some(AttentionScope::NoAttention), Some(name)) => format!("recurrent ({name})"),
            (Some(scope), None) => scope.name().to_owned(),
            (Some(scope), Some(name)) => format!("{} with {name}", scope.name()),
        };
        match counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((kind, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

/// The config fields that decided the layers' kinds, each with its number of layers.
pub fn deciding_fields(audit: &Audit) -> Vec<(String, usize)> {
    let mut fields: Vec<(String, usize)> = Vec::new();
    for layer in &audit.layers {
        // Indices are dropped: `layer_types[7]` becomes `layer_types[]`, so that all its entries count as one field.
        let mut field = String::new();
        let mut in_brackets = false;
        for letter in layer.decided_by.chars() {
            match letter {
                '[' => in_brackets = true,
                ']' => {
                    in_brackets = false;
                    field.push_str("[]");
                }
                _ if !in_brackets => field.push(letter),
                _ => {}
            }
        }
        match fields.iter_mut().find(|(known, _)| *known == field) {
            Some((_, count)) => *count += 1,
            None => fields.push((field, 1)),
        }
    }
    fields
}

/// Explains why the stack has the extra hop or does not. Layers are numbered from 0, as in the config.
pub fn hop_reason(audit: &Audit) -> String {
    let Some(capacity) = &audit.capacity else { return String::new() };
    // Two layers of the plan may belong to one layer of the config.
    let config_indices: Vec<usize> = audit
        .layers
        .iter()
        .enumerate()
        .flat_map(|(index, layer)| layer.plan_layers.iter().map(move |_| index))
        .collect();
    let mut source_layers: Vec<usize> =
        capacity.extra_hop_layers.iter().filter_map(|&index| config_indices.get(index).copied()).collect();
    source_layers.dedup();
    if source_layers.is_empty() {
        let has_parallel_state = capacity.parallel_bits.iter().any(|&bits| bits > 0);
        let reason =
            if has_parallel_state { "; a recurrence in parallel with attention passes nothing on" } else { "" };
        return format!("no extra hop: no recurrent or window layer comes before the second full layer{reason}");
    }
    let layers = ranges(&source_layers);
    if capacity.full_layers == 0 {
        return format!("{layers} could pass a value on, but there is no full layer to look anything up");
    }
    let position = match (capacity.blocks[0].layers.is_empty(), capacity.full_layers) {
        (true, _) => "right after the first full layer",
        (false, 1) => "around the only full layer",
        (false, _) => "before the second full layer",
    };
    let verb = if capacity.constructed_hops < capacity.rungs { "may come" } else { "comes" };
    format!("the extra hop {verb} from the state of {layers}, {position}")
}

/// Layer indices as ranges, such as `layers 0 to 2 and 5`.
fn ranges(indices: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &index in indices {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => ranges.push((index, index)),
        }
    }
    let range_text =
        |&(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first} to {last}") };
    let text: Vec<String> = ranges.iter().take(4).map(range_text).collect();
    let ellipsis = if ranges.len() > 4 { ", .." } else { "" };
    format!("layer{} {}{ellipsis}", if indices.len() == 1 { "" } else { "s" }, text.join(" and "))
}

/// Writes a value of one or more lines beside its name.
fn write_row(out: &mut String, name: &str, value: &str) {
    let mut first = true;
    for line in value.lines() {
        let _ = writeln!(out, "  {:<12} {line}", if first { name } else { "" });
        first = false;
    }
}

/// Breaks a list of words into lines.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        if length > 0 && length + 1 + word.chars().count() > width {
            out.push('\n');
            length = 0;
        } else if length > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += word.chars().count();
    }
    out
}

/// Writes a table of numbers of this model and, where given, of the all-full model.
fn write_comparison(out: &mut String, title: &str, format: fn(u64) -> String, rows: &[(&str, u64, Option<u64>)]) {
    let all_full_title = if rows.iter().any(|(_, _, all_full)| all_full.is_some()) { "all full" } else { "" };
    let _ = writeln!(out, "\n  {title:<34} {:>18}  {all_full_title:>18}", "this");
    for (name, value, all_full) in rows {
        let _ = write!(out, "    {name:<32} {:>18}", format(*value));
        if let Some(all_full) = all_full {
            let _ = write!(out, "  {:>18}  {}", format(*all_full), format_ratio(*value, *all_full));
        }
        out.push('\n');
    }
}

/// The report of one audit.
pub fn audit(audit: &Audit, colour: bool) -> String {
    let mut out = String::new();
    let (bold, reset) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let _ = writeln!(out, "{bold}{}{reset}", audit.model);
    write_row(&mut out, "source", &wrap(&audit.source, 96));
    let letters = audit.layer_letters();
    if !letters.is_empty() {
        write_row(&mut out, "layers", &colour_letters(&letters, colour));
        write_row(&mut out, "", &legend(&letters));
        write_row(&mut out, "", &format!("{} in all: {}", audit.layers.len(), layer_counts(audit)));
        let fields = deciding_fields(audit);
        let fields: Vec<String> = fields.iter().take(6).map(|(field, count)| format!("{field} ({count})")).collect();
        write_row(&mut out, "decided by", &wrap(&fields.join(", "), 96));
    }
    if let Some(mixer_names) = audit.plan.as_ref().map(Plan::mixer_names).filter(|text| text.len() < 200) {
        write_row(&mut out, "stack", &mixer_names);
    }
    for reason in &audit.unknown_reasons {
        write_row(&mut out, "unknown", &wrap(reason, 96));
    }
    write_rungs(&mut out, audit);
    if let Some(cache) = audit.cache {
        let all_full_cache = audit.all_full.map(|all_full| all_full.cache);
        let title = format!("context of {} tokens", with_commas(audit.context));
        let rows = [
            ("KV cache, bytes per token", cache.per_token, all_full_cache.map(|cache| cache.per_token)),
            ("recurrent state, bytes", cache.state, all_full_cache.map(|cache| cache.state)),
            ("window KV cache, bytes", cache.window, all_full_cache.map(|cache| cache.window)),
            ("all caches, bytes", cache.total, all_full_cache.map(|cache| cache.total)),
        ];
        write_comparison(&mut out, &title, with_commas, &rows);
    }
    if let Some(cost) = audit.mixer_cost {
        let all_full_cost = audit.all_full.and_then(|all_full| all_full.mixer_cost);
        let rows = [
            ("weights", cost.parameters, all_full_cost.map(|cost| cost.parameters)),
            ("FLOPs per token, prefill", cost.prefill_flops, all_full_cost.map(|cost| cost.prefill_flops)),
            ("FLOPs per token, decode", cost.decode_flops, all_full_cost.map(|cost| cost.decode_flops)),
        ];
        write_comparison(&mut out, "mixers only", format_si, &rows);
    }
    out.push('\n');
    for assumption in &audit.assumptions {
        write_row(&mut out, "assumed", &wrap(assumption, 96));
    }
    out
}

fn write_rungs(out: &mut String, audit: &Audit) {
    let Some(capacity) = &audit.capacity else { return };
    let rungs_text = format!("{} {}: {}", capacity.relation(), capacity.rungs, rungs_terms(capacity));
    write_row(out, "rungs", &wrap(&rungs_text, 96));
    write_row(out, "", &hop_reason(audit));
    if capacity.constructed_hops < capacity.rungs {
        let known_count = match capacity.constructed_hops {
            0 => "for none".to_owned(),
            count => format!("for {count}"),
        };
        write_row(
            out,
            "",
            &format!("weights of these layer types are known {known_count} of them; see `rung explain capacity`"),
        );
    }
    let depth = audit.mixing_layer_count();
    write_row(out, "", &format!("with full attention in all {depth} layers: {}", depth.saturating_sub(1)));
    let with_state = capacity.blocks.iter().filter(|block| !block.layers.is_empty()).count();
    write_row(
        out,
        "blocks",
        &format!("{} before, between and after the full layers, {with_state} with state", capacity.blocks.len()),
    );
    if let Some(bound) = audit.next_hop_bound {
        write_row(out, "lower bound", &next_hop_text(audit, bound));
    }
    if let Some(sparse) = audit.block_sparse {
        let required = match sparse.required_bits {
            Some(bits) => format!("2-Sum at this context requires {}", with_commas(bits)),
            None => "the 2-Sum bound does not apply at this context".to_owned(),
        };
        let selection = format!(
            "{} {} blocks of {} tokens",
            if sparse.layers == 1 { "1 layer selects".to_owned() } else { format!("{} layers select", sparse.layers) },
            sparse.selected_blocks,
            sparse.block_tokens
        );
        write_row(
            out,
            "block-sparse",
            &format!("{selection}; a summary has {} bits, {required}", with_commas(sparse.summary_bits)),
        );
    }
}

/// The terms of the number of rungs: a hop for each full layer, less one if a full layer must first find the start value.
pub fn rungs_terms(capacity: &Capacity) -> String {
    let layers = count_noun(capacity.full_layers, "full layer");
    match (capacity.full_layers, capacity.extra_hop) {
        (0, _) => "there is no full layer".to_owned(),
        (_, false) => format!("{layers}, less the one that must first find the start value"),
        (_, true) => {
            let verb = if capacity.constructed_hops == capacity.rungs { "passes" } else { "may pass" };
            format!(
                "{layers}; a {} layer {verb} the start value on, so no full layer is spent on it",
                capacity.extra_hop_kind
            )
        }
    }
}

/// The lower bound on one hop more, as a sentence.
pub fn next_hop_text(audit: &Audit, bound: NextHopBound) -> String {
    let hops = count_noun(bound.hops, "hop");
    let (verb, context) = (if bound.hops == 1 { "is" } else { "are" }, with_commas(audit.context));
    match bound.search {
        BoundSearchResult::Certified { log2_tokens } if bound.applies => {
            format!("{hops} {verb} proved impossible from 2^{log2_tokens:.1} tokens on")
        }
        BoundSearchResult::Certified { log2_tokens } => format!(
            "none that applies at {context} tokens ({hops} {verb} proved impossible from 2^{log2_tokens:.1} tokens on)"
        ),
        BoundSearchResult::NotFound => format!("no proof found that {hops} {verb} impossible, at any length"),
        BoundSearchResult::Skipped if bound.hops <= MAX_CERTIFIED_HOPS => {
            format!("not searched for {hops}; `rung audit --certify` searches up to {MAX_CERTIFIED_HOPS}")
        }
        BoundSearchResult::Skipped => {
            format!("unknown for {hops}: proofs are searched up to {MAX_CERTIFIED_HOPS} hops")
        }
    }
}

/// Reads one number of an audit.
type AuditMetric = fn(&Audit) -> Option<u64>;

/// Audits side by side; for two, with their differences.
pub fn compare(audits: &[Audit], colour: bool) -> String {
    let mut out = String::new();
    for (index, audit) in audits.iter().enumerate() {
        let _ = writeln!(out, "{} {}", (b'A' + (index % 26) as u8) as char, audit.model);
        let _ = writeln!(out, "{}", colour_letters(&audit.layer_letters(), colour));
    }
    let letters: String = audits.iter().map(Audit::layer_letters).collect();
    let _ = writeln!(out, "{}\n", legend(&letters));
    let _ = write!(out, "{:<32}", "");
    for index in 0..audits.len() {
        let _ = write!(out, " {:>18}", (b'A' + (index % 26) as u8) as char);
    }
    let _ = writeln!(out, "{}", if audits.len() == 2 { "  B relative to A" } else { "" });
    let rows: [(&str, AuditMetric); 12] = [
        ("layers with a mixer", |audit| Some(audit.mixing_layer_count() as u64)),
        ("full layers", |audit| audit.capacity.as_ref().map(|capacity| capacity.full_layers as u64)),
        ("extra hop", |audit| audit.capacity.as_ref().map(|capacity| u64::from(capacity.extra_hop))),
        ("rungs", |audit| audit.capacity.as_ref().map(|capacity| capacity.rungs as u64)),
        ("KV cache, bytes per token", |audit| audit.cache.map(|cache| cache.per_token)),
        ("recurrent state, bytes", |audit| audit.cache.map(|cache| cache.state)),
        ("window KV cache, bytes", |audit| audit.cache.map(|cache| cache.window)),
        ("all caches at the context, bytes", |audit| audit.cache.map(|cache| cache.total)),
        ("context, tokens", |audit| Some(audit.context)),
        ("mixer weights", |audit| audit.mixer_cost.map(|cost| cost.parameters)),
        ("FLOPs per token, prefill", |audit| audit.mixer_cost.map(|cost| cost.prefill_flops)),
        ("FLOPs per token, decode", |audit| audit.mixer_cost.map(|cost| cost.decode_flops)),
    ];
    for (name, get) in rows {
        let _ = write!(out, "{name:<32}");
        for audit in audits {
            let _ = write!(out, " {:>18}", get(audit).map_or_else(|| "unknown".to_owned(), with_commas));
        }
        if let [first, second] = audits
            && let (Some(first), Some(second)) = (get(first), get(second))
        {
            let _ = write!(out, "  {}", difference(first, second));
        }
        out.push('\n');
    }
    for audit in audits {
        for reason in &audit.unknown_reasons {
            write_row(&mut out, "unknown", &wrap(&format!("{}: {reason}", audit.model), 96));
        }
    }
    out
}

fn difference(from: u64, to: u64) -> String {
    let signed = match to.cmp(&from) {
        std::cmp::Ordering::Equal => return "equal".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", with_commas(to - from)),
        std::cmp::Ordering::Less => format!("-{}", with_commas(from - to)),
    };
    if from == 0 || to == 0 { signed } else { format!("{signed} ({:+.1}%)", (to as f64 / from as f64 - 1.0) * 100.0) }
}

/// The best placements of full layers.
pub fn placements(report: &PlacementReport, colour: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} within {} at {} tokens",
        report.model,
        format_bytes(report.budget),
        with_commas(report.context)
    );
    write_row(&mut out, "full layer", &format_bytes(report.full_bytes));
    write_row(&mut out, "other layer", &format!("{} ({})", format_bytes(report.other_bytes), report.other_mixer));
    let current = report.current;
    let excess = if current.cache_bytes > report.budget { ", over the budget" } else { "" };
    write_row(
        &mut out,
        "now",
        &format!(
            "{} full of {} layers with a mixer, {}, {}{excess}",
            current.full_layer_count,
            report.mixing_layer_count,
            count_noun(current.rungs, "rung"),
            format_bytes(current.cache_bytes)
        ),
    );
    let Some(best) = report.rungs else {
        let cheapest = report.other_bytes.min(report.full_bytes).saturating_mul(report.mixing_layer_count as u64);
        write_row(
            &mut out,
            "best",
            &format!("nothing fits: the cheapest stack of this depth takes {}", format_bytes(cheapest)),
        );
        return out;
    };
    write_row(&mut out, "best", &count_noun(best, "rung"));
    for group in &report.groups {
        let count = match group.count {
            Some(count) if count < 1_000_000_000_000 => with_commas(count as u64),
            _ => format!("about 10^{:.0}", group.log10_count),
        };
        let _ = writeln!(
            out,
            "\n  {}, {}, placements: {count}",
            count_noun(group.full_layer_count, "full layer"),
            format_bytes(group.cache_bytes)
        );
        for example in &group.examples {
            write_row(&mut out, "", &format!("{}\n{}", example.description, colour_letters(&example.letters, colour)));
        }
    }
    out.push('\n');
    if report
        .groups
        .iter()
        .any(|group| group.full_layer_count > 1 && group.full_layer_count < report.mixing_layer_count)
    {
        write_row(&mut out, "rule", "any placement in which one of the first two layers with a mixer is not full");
    }
    for assumption in &report.assumptions {
        write_row(&mut out, "assumed", &wrap(assumption, 96));
    }
    out
}
