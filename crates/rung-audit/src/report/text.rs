//! An audit for the terminal.

use std::fmt::Write;

use rung_theory::stack::{Capacity, Plan};

use super::{bytes, commas, counted, ratio, si_prefix};
use crate::placement::PlacementReport;
use crate::{AttentionScope, Audit, BoundSearch, MOST_CERTIFIED_HOPS, NextHopBound};

/// Layer letters in one line.
const LETTERS_PER_LINE: usize = 64;

/// One letter per layer, coloured on request.
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

/// What the letters mean, for those that occur.
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

/// How many layers of each kind, as a sentence.
pub fn layer_counts(audit: &Audit) -> String {
    let mut found: Vec<(String, usize)> = Vec::new();
    for layer in &audit.layers {
        let word = match (layer.attention, layer.recurrent) {
            (None, _) => "unknown".to_owned(),
            (Some(AttentionScope::None), None) => format!("without a token mixer ({})", layer.feed_forward.word()),
            (Some(AttentionScope::None), Some(name)) => format!("recurrent ({name})"),
            (Some(kind), None) => kind.word().to_owned(),
            (Some(kind), Some(name)) => format!("{} with {name}", kind.word()),
        };
        match found.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => found.push((word, 1)),
        }
    }
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    found.into_iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

/// The fields that decided, with the number of layers that each decided.
pub fn deciding_fields(audit: &Audit) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for layer in &audit.layers {
        // `layer_types[7]` and its neighbours are one field; a number inside `block_configs[7].attention` is not shown.
        let mut field = String::new();
        let mut inside = false;
        for letter in layer.decided_by.chars() {
            match letter {
                '[' => inside = true,
                ']' => {
                    inside = false;
                    field.push_str("[]");
                }
                _ if !inside => field.push(letter),
                _ => {}
            }
        }
        match found.iter_mut().find(|(known, _)| *known == field) {
            Some((_, count)) => *count += 1,
            None => found.push((field, 1)),
        }
    }
    found
}

/// Why the stack has, or has not, the extra hop. Layers are numbered from 0, as in the config.
pub fn hop_reason(audit: &Audit) -> String {
    let Some(capacity) = &audit.capacity else { return String::new() };
    // Two layers of the plan may belong to one of the config.
    let owners: Vec<usize> = audit
        .layers
        .iter()
        .enumerate()
        .flat_map(|(index, layer)| layer.plan_layers.iter().map(move |_| index))
        .collect();
    let mut passing: Vec<usize> = capacity.earned_by.iter().filter_map(|&index| owners.get(index).copied()).collect();
    passing.dedup();
    if passing.is_empty() {
        let beside = capacity.parallel_bits.iter().any(|&bits| bits > 0);
        let but = if beside { "; a recurrence in parallel with attention passes nothing on" } else { "" };
        return format!("no extra hop: no recurrent or window layer comes before the second full layer{but}");
    }
    let layers = ranges(&passing);
    if capacity.full == 0 {
        return format!("{layers} could pass a value on, but there is no full layer to look anything up");
    }
    let position = match (capacity.blocks[0].layers.is_empty(), capacity.full) {
        (true, _) => "right after the first full layer",
        (false, 1) => "around the only full layer",
        (false, _) => "before the second full layer",
    };
    let verb = if capacity.at_least < capacity.rungs { "may come" } else { "comes" };
    format!("the extra hop {verb} from the state of {layers}, {position}")
}

/// Indices as ranges, for people.
fn ranges(indices: &[usize]) -> String {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for &index in indices {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => found.push((index, index)),
        }
    }
    let one =
        |&(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first} to {last}") };
    let text: Vec<String> = found.iter().take(4).map(one).collect();
    let more = if found.len() > 4 { ", .." } else { "" };
    format!("layer{} {}{more}", if indices.len() == 1 { "" } else { "s" }, text.join(" and "))
}

fn row(out: &mut String, name: &str, value: &str) {
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

/// A table of figures of this model and, if there are any, of the all-full model.
fn figures(out: &mut String, title: &str, show: fn(u64) -> String, rows: &[(&str, u64, Option<u64>)]) {
    let other = if rows.iter().any(|(_, _, other)| other.is_some()) { "all full" } else { "" };
    let _ = writeln!(out, "\n  {title:<34} {:>18}  {other:>18}", "this");
    for (name, this, other) in rows {
        let _ = write!(out, "    {name:<32} {:>18}", show(*this));
        if let Some(other) = other {
            let _ = write!(out, "  {:>18}  {}", show(*other), ratio(*this, *other));
        }
        out.push('\n');
    }
}

/// The report of one audit.
pub fn audit(audit: &Audit, colour: bool) -> String {
    let mut out = String::new();
    let (bold, plain) = if colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let _ = writeln!(out, "{bold}{}{plain}", audit.model);
    row(&mut out, "source", &wrap(&audit.source, 96));
    let letters = audit.layer_letters();
    if !letters.is_empty() {
        row(&mut out, "layers", &colour_letters(&letters, colour));
        row(&mut out, "", &legend(&letters));
        row(&mut out, "", &format!("{} in all: {}", audit.layers.len(), layer_counts(audit)));
        let fields = deciding_fields(audit);
        let fields: Vec<String> = fields.iter().take(6).map(|(field, count)| format!("{field} ({count})")).collect();
        row(&mut out, "decided by", &wrap(&fields.join(", "), 96));
    }
    if let Some(outline) = audit.plan.as_ref().map(Plan::outline).filter(|text| text.len() < 200) {
        row(&mut out, "stack", &outline);
    }
    for reason in &audit.unknown {
        row(&mut out, "unknown", &wrap(reason, 96));
    }
    rungs(&mut out, audit);
    if let Some(this) = audit.cache {
        let other = audit.all_full.map(|other| other.cache);
        let title = format!("context of {} tokens", commas(audit.context));
        let rows = [
            ("KV cache, bytes per token", this.per_token, other.map(|other| other.per_token)),
            ("recurrent state, bytes", this.state, other.map(|other| other.state)),
            ("window KV cache, bytes", this.window, other.map(|other| other.window)),
            ("all caches, bytes", this.total, other.map(|other| other.total)),
        ];
        figures(&mut out, &title, commas, &rows);
    }
    if let Some(this) = audit.mixer_cost {
        let other = audit.all_full.and_then(|other| other.mixer_cost);
        let rows = [
            ("weights", this.parameters, other.map(|other| other.parameters)),
            ("FLOPs per token, prefill", this.prefill_flops, other.map(|other| other.prefill_flops)),
            ("FLOPs per token, decode", this.decode_flops, other.map(|other| other.decode_flops)),
        ];
        figures(&mut out, "mixers only", si_prefix, &rows);
    }
    out.push('\n');
    for what in &audit.assumed {
        row(&mut out, "assumed", &wrap(what, 96));
    }
    out
}

fn rungs(out: &mut String, audit: &Audit) {
    let Some(capacity) = &audit.capacity else { return };
    let sum = format!("{} {}: {}", capacity.relation(), capacity.rungs, rungs_terms(capacity));
    row(out, "rungs", &wrap(&sum, 96));
    row(out, "", &hop_reason(audit));
    if capacity.at_least < capacity.rungs {
        let known = match capacity.at_least {
            0 => "for none".to_owned(),
            count => format!("for {count}"),
        };
        row(out, "", &format!("weights of these layer types are known {known} of them; see `rung explain capacity`"));
    }
    let depth = audit.mixing_layers();
    row(out, "", &format!("with full attention in all {depth} layers: {}", depth.saturating_sub(1)));
    let occupied = capacity.blocks.iter().filter(|block| !block.layers.is_empty()).count();
    row(
        out,
        "blocks",
        &format!("{} before, between and after the full layers, {occupied} with state", capacity.blocks.len()),
    );
    if let Some(bound) = audit.next_hop_bound {
        row(out, "lower bound", &next_hop_text(audit, bound));
    }
    if let Some(sparse) = audit.block_sparse {
        let required = match sparse.required_bits {
            Some(bits) => format!("2-Sum at this context requires {}", commas(bits)),
            None => "the 2-Sum bound does not apply at this context".to_owned(),
        };
        let selection = format!(
            "{} {} blocks of {} tokens",
            if sparse.layers == 1 { "1 layer selects".to_owned() } else { format!("{} layers select", sparse.layers) },
            sparse.selected_blocks,
            sparse.block_tokens
        );
        row(
            out,
            "block-sparse",
            &format!("{selection}; a summary has {} bits, {required}", commas(sparse.summary_bits)),
        );
    }
}

/// Where the number of rungs comes from: a hop for each full layer, and whether one of them must first find the start value.
pub fn rungs_terms(capacity: &Capacity) -> String {
    let layers = counted(capacity.full, "full layer");
    match (capacity.full, capacity.extra_hop) {
        (0, _) => "there is no full layer".to_owned(),
        (_, false) => format!("{layers}, less the one that must first find the start value"),
        (_, true) => {
            let verb = if capacity.at_least == capacity.rungs { "passes" } else { "may pass" };
            format!("{layers}; a {} layer {verb} the start value on, so no full layer is spent on it", capacity.carrier)
        }
    }
}

/// What the lower bounds say about one hop more.
pub fn next_hop_text(audit: &Audit, bound: NextHopBound) -> String {
    let hops = counted(bound.hops, "hop");
    let (verb, context) = (if bound.hops == 1 { "is" } else { "are" }, commas(audit.context));
    match bound.search {
        BoundSearch::From { log2_tokens } if bound.reached => {
            format!("{hops} {verb} proved impossible from 2^{log2_tokens:.1} tokens on")
        }
        BoundSearch::From { log2_tokens } => format!(
            "none that applies at {context} tokens ({hops} {verb} proved impossible from 2^{log2_tokens:.1} tokens on)"
        ),
        BoundSearch::NotFound => format!("no proof found that {hops} {verb} impossible, at any length"),
        BoundSearch::Skipped if bound.hops <= MOST_CERTIFIED_HOPS => {
            format!("not searched for {hops}; `rung audit --certify` searches up to {MOST_CERTIFIED_HOPS}")
        }
        BoundSearch::Skipped => format!("unknown for {hops}: proofs are searched up to {MOST_CERTIFIED_HOPS} hops"),
    }
}

/// One figure of an audit.
type AuditFigure = fn(&Audit) -> Option<u64>;

/// Two audits side by side, and what differs.
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
    let rows: [(&str, AuditFigure); 12] = [
        ("layers with a mixer", |audit| Some(audit.mixing_layers() as u64)),
        ("full layers", |audit| audit.capacity.as_ref().map(|capacity| capacity.full as u64)),
        ("extra hop", |audit| audit.capacity.as_ref().map(|capacity| u64::from(capacity.extra_hop))),
        ("rungs", |audit| audit.capacity.as_ref().map(|capacity| capacity.rungs as u64)),
        ("KV cache, bytes per token", |audit| audit.cache.map(|cache| cache.per_token)),
        ("recurrent state, bytes", |audit| audit.cache.map(|cache| cache.state)),
        ("window KV cache, bytes", |audit| audit.cache.map(|cache| cache.window)),
        ("all caches at the context, bytes", |audit| audit.cache.map(|cache| cache.total)),
        ("context, tokens", |audit| Some(audit.context)),
        ("mixer weights", |audit| audit.mixer_cost.map(|work| work.parameters)),
        ("FLOPs per token, prefill", |audit| audit.mixer_cost.map(|work| work.prefill_flops)),
        ("FLOPs per token, decode", |audit| audit.mixer_cost.map(|work| work.decode_flops)),
    ];
    for (name, get) in rows {
        let _ = write!(out, "{name:<32}");
        for audit in audits {
            let _ = write!(out, " {:>18}", get(audit).map_or_else(|| "unknown".to_owned(), commas));
        }
        if let [a, b] = audits
            && let (Some(a), Some(b)) = (get(a), get(b))
        {
            let _ = write!(out, "  {}", difference(a, b));
        }
        out.push('\n');
    }
    for audit in audits {
        for reason in &audit.unknown {
            row(&mut out, "unknown", &wrap(&format!("{}: {reason}", audit.model), 96));
        }
    }
    out
}

fn difference(from: u64, to: u64) -> String {
    let signed = match to.cmp(&from) {
        std::cmp::Ordering::Equal => return "equal".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", commas(to - from)),
        std::cmp::Ordering::Less => format!("-{}", commas(from - to)),
    };
    if from == 0 || to == 0 { signed } else { format!("{signed} ({:+.1}%)", (to as f64 / from as f64 - 1.0) * 100.0) }
}

/// The best placements of full layers.
pub fn placements(report: &PlacementReport, colour: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} within {} at {} tokens", report.model, bytes(report.budget), commas(report.context));
    row(&mut out, "full layer", &bytes(report.full_bytes));
    row(&mut out, "other layer", &format!("{} ({})", bytes(report.other_bytes), report.other));
    let current = report.current;
    let over = if current.bytes > report.budget { ", over the budget" } else { "" };
    row(
        &mut out,
        "now",
        &format!(
            "{} full of {} layers with a mixer, {}, {}{over}",
            current.full,
            report.mixing_layers,
            counted(current.rungs, "rung"),
            bytes(current.bytes)
        ),
    );
    let Some(best) = report.rungs else {
        let cheapest = report.other_bytes.min(report.full_bytes).saturating_mul(report.mixing_layers as u64);
        row(&mut out, "best", &format!("nothing fits: the cheapest stack of this depth takes {}", bytes(cheapest)));
        return out;
    };
    row(&mut out, "best", &counted(best, "rung"));
    for group in &report.groups {
        let count = match group.count {
            Some(count) if count < 1_000_000_000_000 => commas(count as u64),
            _ => format!("about 10^{:.0}", group.log10_count),
        };
        let _ = writeln!(out, "\n  {}, {}, placements: {count}", counted(group.full, "full layer"), bytes(group.bytes));
        for one in &group.examples {
            row(&mut out, "", &format!("{}\n{}", one.why, colour_letters(&one.letters, colour)));
        }
    }
    out.push('\n');
    if report.groups.iter().any(|group| group.full > 1 && group.full < report.mixing_layers) {
        row(&mut out, "rule", "any placement in which one of the first two layers with a mixer is not full");
    }
    for what in &report.assumed {
        row(&mut out, "assumed", &wrap(what, 96));
    }
    out
}
