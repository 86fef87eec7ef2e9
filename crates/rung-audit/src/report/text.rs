//! An audit for the terminal.

use std::fmt::Write;

use rung_theory::stack::Plan;

use super::{against, bytes, commas, counts};
use crate::place::Advice;
use crate::{Attention, Audit, Cache};

/// Cells of the strip in one line.
const LINE: usize = 64;

/// The strip, one cell per layer, in colour if asked for.
pub fn strip(letters: &str, colour: bool) -> String {
    let mut out = String::new();
    for (index, letter) in letters.chars().enumerate() {
        if index > 0 && index % LINE == 0 {
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

/// How many layers of each kind, in words.
pub fn kinds(audit: &Audit) -> String {
    let mut found: Vec<(String, usize)> = Vec::new();
    for layer in &audit.layers {
        let word = match (layer.attention, layer.recurrent) {
            (None, _) => "unknown".to_owned(),
            (Some(Attention::None), None) => format!("without a token mixer ({})", layer.channel.word()),
            (Some(Attention::None), Some(name)) => format!("recurrent ({name})"),
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

/// The fields that decided, with how many layers each.
pub fn deciders(audit: &Audit) -> Vec<(String, usize)> {
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

/// Why the stack has, or has not, the extra hop: with layers counted from 0, as in the config.
pub fn hop_reason(audit: &Audit) -> String {
    let Some(capacity) = &audit.capacity else { return String::new() };
    // Two layers of the plan may belong to one of the config.
    let owners: Vec<usize> =
        audit.layers.iter().enumerate().flat_map(|(index, layer)| layer.parts.iter().map(move |_| index)).collect();
    let mut earned: Vec<usize> = capacity.earned_by.iter().filter_map(|&index| owners.get(index).copied()).collect();
    earned.dedup();
    if earned.is_empty() {
        let beside = capacity.beside_bits.iter().any(|&bits| bits > 0);
        let but = if beside { "; state beside attention hands nothing on" } else { "" };
        return format!("no extra hop: nothing with state stands before the second full layer{but}");
    }
    let layers = ranges(&earned);
    if capacity.full == 0 {
        return format!("{layers} could hand a value on, but no full layer looks anything up");
    }
    let place = match (capacity.blocks[0].layers.is_empty(), capacity.full) {
        (true, _) => "right after the first full layer",
        (false, 1) => "around the only full layer",
        (false, _) => "before the second full layer",
    };
    let verb = if capacity.at_least < capacity.rungs { "may be" } else { "is" };
    format!("the extra hop {verb} earned by state in {layers} (from 0), {place}")
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

fn cache_rows(out: &mut String, title: &str, this: Cache, other: Option<Cache>, other_name: &str) {
    let _ = writeln!(out, "\n  {title:<34} {:>18}  {:>18}", "this", if other.is_some() { other_name } else { "" });
    let rows = [
        ("KV cache, bytes per token", this.per_token, other.map(|other| other.per_token)),
        ("recurrent state, bytes", this.state, other.map(|other| other.state)),
        ("window KV cache, bytes", this.window, other.map(|other| other.window)),
        ("all caches, bytes", this.total, other.map(|other| other.total)),
    ];
    for (name, this, other) in rows {
        let _ = write!(out, "    {name:<32} {:>18}", commas(this));
        if let Some(other) = other {
            let _ = write!(out, "  {:>18}  {}", commas(other), against(this, other));
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
    let letters = audit.strip();
    if !letters.is_empty() {
        row(&mut out, "layers", &strip(&letters, colour));
        row(&mut out, "", &legend(&letters));
        row(&mut out, "", &format!("{} in all: {}", audit.layers.len(), kinds(audit)));
        let deciders = deciders(audit);
        let deciders: Vec<String> =
            deciders.iter().take(6).map(|(field, count)| format!("{field} ({count})")).collect();
        row(&mut out, "decided by", &wrap(&deciders.join(", "), 96));
    }
    if let Some(outline) = audit.plan.as_ref().map(Plan::outline).filter(|text| text.len() < 200) {
        row(&mut out, "stack", &outline);
    }
    for reason in &audit.unknown {
        row(&mut out, "unknown", &wrap(reason, 96));
    }
    rungs(&mut out, audit);
    if let Some(this) = audit.cache {
        let title = format!("context of {} tokens", commas(audit.context));
        cache_rows(&mut out, &title, this, audit.all_full.map(|other| other.cache), "all full");
    }
    if let Some(this) = audit.work {
        let other = audit.all_full.and_then(|other| other.work);
        let _ = writeln!(
            out,
            "\n  {:<34} {:>18}  {:>18}",
            "mixers only",
            "this",
            if other.is_some() { "all full" } else { "" }
        );
        let rows = [
            ("weights", this.parameters, other.map(|other| other.parameters)),
            ("FLOPs per token, prefill", this.prefill, other.map(|other| other.prefill)),
            ("FLOPs per token, decode", this.decode, other.map(|other| other.decode)),
        ];
        for (name, this, other) in rows {
            let _ = write!(out, "    {name:<32} {:>18}", counts(this));
            if let Some(other) = other {
                let _ = write!(out, "  {:>18}  {}", counts(other), against(this, other));
            }
            out.push('\n');
        }
    }
    out.push('\n');
    for what in &audit.assumed {
        row(&mut out, "assumed", &wrap(what, 96));
    }
    out
}

fn rungs(out: &mut String, audit: &Audit) {
    let Some(capacity) = &audit.capacity else { return };
    let bound = |flag| if flag { "1 extra hop" } else { "0" };
    let (relation, rungs) = (capacity.relation(), capacity.rungs);
    let sum = format!("{relation} {rungs} = {} full + {} - 1", capacity.full, bound(capacity.extra_hop));
    let sum = if capacity.full == 0 { "exactly 0: no layer sees the whole past".to_owned() } else { sum };
    let depth = audit.mixing_layers();
    row(out, "rungs", &format!("{sum}; all {depth} full would have {}", depth.saturating_sub(1)));
    row(out, "", &hop_reason(audit));
    if capacity.at_least < capacity.rungs {
        let known = match capacity.at_least {
            0 => "for none".to_owned(),
            least => format!("for {least}"),
        };
        row(out, "", &format!("weights of these layer types are known {known} of them; see `rung explain capacity`"));
    }
    let held = capacity.blocks.iter().filter(|block| !block.layers.is_empty()).count();
    row(out, "blocks", &format!("{} around the full layers, {held} of them with state", capacity.blocks.len()));
    if let Some(certified) = audit.certified {
        row(out, "certified", &certified_text(audit, certified));
    }
    if let Some(sparse) = audit.block_sparse {
        let needed = match sparse.needed {
            Some(bits) => format!("2-Sum at this context needs {}", commas(bits)),
            None => "the 2-Sum bound does not apply at this context".to_owned(),
        };
        let picks = format!("{} layers pick {} blocks of {} tokens", sparse.layers, sparse.picked, sparse.block);
        row(out, "block-sparse", &format!("{picks}; a summary has {} bits, {needed}", commas(sparse.had)));
    }
}

/// What the lower bounds say, in words.
pub fn certified_text(audit: &Audit, certified: crate::Certified) -> String {
    let hops = if certified.hops == 1 { "1 hop".to_owned() } else { format!("{} hops", certified.hops) };
    match certified.log2_tokens {
        Some(log2) if certified.reached => format!("{hops} out of reach from 2^{log2:.1} tokens on"),
        Some(log2) => format!(
            "{hops}: not certified at this context (certified from 2^{log2:.1} tokens, context 2^{:.1})",
            (audit.context as f64).log2()
        ),
        None => format!("{hops}: not certified at this context"),
    }
}

/// One figure of an audit.
type Get = fn(&Audit) -> Option<u64>;

/// Two audits side by side, and what differs.
pub fn compare(audits: &[Audit], colour: bool) -> String {
    let mut out = String::new();
    for (index, audit) in audits.iter().enumerate() {
        let _ = writeln!(out, "{} {}", (b'A' + (index % 26) as u8) as char, audit.model);
        let _ = writeln!(out, "{}", strip(&audit.strip(), colour));
    }
    let letters: String = audits.iter().map(Audit::strip).collect();
    let _ = writeln!(out, "{}\n", legend(&letters));
    let _ = write!(out, "{:<32}", "");
    for index in 0..audits.len() {
        let _ = write!(out, " {:>18}", (b'A' + (index % 26) as u8) as char);
    }
    let _ = writeln!(out, "{}", if audits.len() == 2 { "  B against A" } else { "" });
    let rows: [(&str, Get); 12] = [
        ("layers that mix", |audit| Some(audit.mixing_layers() as u64)),
        ("full layers", |audit| audit.capacity.as_ref().map(|capacity| capacity.full as u64)),
        ("extra hop", |audit| audit.capacity.as_ref().map(|capacity| u64::from(capacity.extra_hop))),
        ("rungs", |audit| audit.capacity.as_ref().map(|capacity| capacity.rungs as u64)),
        ("KV cache, bytes per token", |audit| audit.cache.map(|cache| cache.per_token)),
        ("recurrent state, bytes", |audit| audit.cache.map(|cache| cache.state)),
        ("window KV cache, bytes", |audit| audit.cache.map(|cache| cache.window)),
        ("all caches at the context, bytes", |audit| audit.cache.map(|cache| cache.total)),
        ("context, tokens", |audit| Some(audit.context)),
        ("mixer weights", |audit| audit.work.map(|work| work.parameters)),
        ("FLOPs per token, prefill", |audit| audit.work.map(|work| work.prefill)),
        ("FLOPs per token, decode", |audit| audit.work.map(|work| work.decode)),
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
        std::cmp::Ordering::Equal => return "the same".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", commas(to - from)),
        std::cmp::Ordering::Less => format!("-{}", commas(from - to)),
    };
    if from == 0 || to == 0 { signed } else { format!("{signed} ({:+.1}%)", (to as f64 / from as f64 - 1.0) * 100.0) }
}

/// What placing full layers gives.
pub fn advice(advice: &Advice, colour: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} within {} at {} tokens", advice.model, bytes(advice.budget), commas(advice.context));
    row(&mut out, "a full layer", &bytes(advice.full_bytes));
    row(&mut out, "another", &format!("{} ({})", bytes(advice.other_bytes), advice.other));
    let (full, rungs, total) = advice.now;
    let over = if total > advice.budget { ", over the budget" } else { "" };
    row(
        &mut out,
        "now",
        &format!("{full} full of {} layers that mix, {rungs} rungs, {}{over}", advice.depth, bytes(total)),
    );
    let Some(best) = advice.rungs else {
        let least = advice.other_bytes.min(advice.full_bytes).saturating_mul(advice.depth as u64);
        row(&mut out, "best", &format!("nothing fits: the cheapest stack of this depth takes {}", bytes(least)));
        return out;
    };
    row(&mut out, "best", &format!("{best} rungs"));
    for tie in &advice.ties {
        let count = match tie.count {
            Some(count) if count < 1_000_000_000_000 => commas(count as u64),
            _ => format!("about 10^{:.0}", tie.log10_count),
        };
        let _ = writeln!(out, "\n  {} full layers, {}, placements that do it: {count}", tie.full, bytes(tie.bytes));
        for one in &tie.examples {
            row(&mut out, "", &format!("{}\n{}", one.why, strip(&one.strip, colour)));
        }
    }
    out.push('\n');
    if advice.ties.iter().any(|tie| tie.full > 1 && tie.full < advice.depth) {
        row(&mut out, "rule", "any placement that leaves one of the first two mixing layers not full");
    }
    for what in &advice.assumed {
        row(&mut out, "assumed", &wrap(what, 96));
    }
    out
}
