//! Many audits as one table.

use std::fmt::Write;

use super::{format_bytes, with_commas};
use crate::{Audit, AuditError};

/// The columns that a table can be sorted by.
pub const SORT_COLUMNS: [&str; 7] = ["name", "rungs", "full", "layers", "cache", "per-token", "state"];

/// Sorts audits by a column; ties by name. Unknown numbers come last.
///
/// # Errors
/// There is no such column.
pub fn sort(audits: &mut [Audit], by: &str) -> Result<(), AuditError> {
    type Key = fn(&Audit) -> Option<u64>;
    let key: Key = match by {
        "name" => |_| Some(0),
        "rungs" => |audit| audit.capacity.as_ref().map(|capacity| capacity.rungs as u64),
        "full" => |audit| audit.full_layer_count().map(|full| full as u64),
        "layers" => |audit| Some(audit.layers.len() as u64),
        "cache" => |audit| audit.cache.map(|cache| cache.total),
        "per-token" => |audit| audit.cache.map(|cache| cache.per_token),
        "state" => |audit| audit.cache.map(|cache| cache.state),
        _ => {
            let why = format!("no such column to sort by; expected one of {}", SORT_COLUMNS.join(", "));
            return Err(AuditError::InvalidArgument { text: by.to_owned(), why });
        }
    };
    audits.sort_by_cached_key(|audit| (key(audit).map_or((1, 0), |value| (0, value)), audit.model.clone()));
    Ok(())
}

/// The table for the terminal.
pub fn text(audits: &[Audit]) -> String {
    let mut out = String::new();
    let name_width = audits.iter().map(|audit| audit.model.chars().count()).max().unwrap_or(0).max(5);
    let context = audits.first().map_or(0, |audit| audit.context);
    let _ = writeln!(
        out,
        "{:<name_width$} {:>6} {:>5} {:>4} {:>6} {:>12} {:>10} {:>10} {:>10} {:>8}  layers",
        "model", "layers", "full", "+hop", "rungs", "bytes/token", "state", "windows", "cache", "vs full"
    );
    for audit in audits {
        let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), with_commas);
        let size = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), format_bytes);
        let capacity = audit.capacity.as_ref();
        let fraction = audit
            .cache
            .zip(audit.all_full)
            .map(|(cache, all_full)| cache.total as f64 / all_full.cache.total.max(1) as f64);
        let _ = writeln!(
            out,
            "{:<name_width$} {:>6} {:>5} {:>4} {:>6} {:>12} {:>10} {:>10} {:>10} {:>8}  {}",
            audit.model,
            audit.layers.len(),
            number(capacity.map(|capacity| capacity.full_layers as u64)),
            capacity.map_or("?", |capacity| if capacity.extra_hop { "yes" } else { "no" }),
            number(capacity.map(|capacity| capacity.rungs as u64)),
            number(audit.cache.map(|cache| cache.per_token)),
            size(audit.cache.map(|cache| cache.state)),
            size(audit.cache.map(|cache| cache.window)),
            size(audit.cache.map(|cache| cache.total)),
            fraction.map_or_else(|| "?".to_owned(), |fraction| format!("{:.1}%", fraction * 100.0)),
            short_letters(&audit.layer_letters()),
        );
    }
    let _ = writeln!(
        out,
        "\n+hop: extra hop; cache: at {} tokens; vs full: relative to full attention in every layer with a mixer",
        with_commas(context)
    );
    out
}

/// The first 24 letters, which show the period.
fn short_letters(letters: &str) -> String {
    const MAX: usize = 24;
    if letters.len() <= MAX { letters.to_owned() } else { format!("{}..", &letters[..MAX]) }
}
