//! Reports: an audit as text, JSON, HTML, one row of a table, or one point of a plot.
//!
//! Their only input is the [`Audit`](crate::Audit). HTML and the plot are built with the feature `report` only.

#[cfg(feature = "report")]
pub mod html;
pub mod json;
pub mod layer_ratio;
pub mod plan;
#[cfg(feature = "report")]
pub mod plot;
pub mod table;
pub mod text;

/// A whole number with commas between thousands.
pub fn with_commas(number: impl std::fmt::Display) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count and its noun: `1 rung`, `2 rungs`.
pub fn count_noun(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", with_commas(count))
}

/// Bytes with three digits and a binary unit.
pub fn format_bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{number} B"),
        _ if value >= 100.0 => format!("{value:.0} {}", UNITS[unit]),
        _ if value >= 10.0 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.2} {}", UNITS[unit]),
    }
}

/// A count with three digits and an SI prefix.
pub fn format_si(number: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => number.to_string(),
        _ if value >= 100.0 => format!("{value:.0}{}", UNITS[unit]),
        _ if value >= 10.0 => format!("{value:.1}{}", UNITS[unit]),
        _ => format!("{value:.2}{}", UNITS[unit]),
    }
}

/// Bytes or counts of this model relative to the all-full model, such as `4.0x less`.
pub fn format_ratio(value: u64, all_full: u64) -> String {
    match (value, all_full) {
        (value, all_full) if value == all_full => "equal".to_owned(),
        (0, _) => "only in the all-full model".to_owned(),
        (_, 0) => "only in this model".to_owned(),
        (value, all_full) if value < all_full => format!("{:.1}x less", all_full as f64 / value as f64),
        (value, all_full) => format!("{:.1}x more", value as f64 / all_full as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_reports() {
        assert_eq!(with_commas(51_511_296_u64), "51,511,296");
        assert_eq!(with_commas(0_u64), "0");
        assert_eq!([count_noun(1, "rung"), count_noun(0, "rung")], ["1 rung", "0 rungs"]);
        assert_eq!(format_bytes(51_511_296), "49.1 MiB");
        assert_eq!(format_si(1_234_567), "1.23M");
        assert_eq!(format_ratio(1, 4), "4.0x less");
    }
}
