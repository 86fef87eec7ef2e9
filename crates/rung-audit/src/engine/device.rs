//! Memory sizes of common GPUs, for `--on h100x2`.
//!
//! Sizes are the vendors' nominal ones in GiB; what a driver reports is a little less.

use crate::AuditError;

const GIB: u64 = 1 << 30;

/// Name and nominal memory in GiB.
pub static DEVICES: &[(&str, u64)] = &[
    ("t4", 16),
    ("v100", 32),
    ("rtx3060", 12),
    ("rtx3090", 24),
    ("rtx4060ti", 16),
    ("rtx4090", 24),
    ("rtx5060ti", 16),
    ("rtx5090", 32),
    ("rtx6000ada", 48),
    ("rtxpro6000", 96),
    ("a10", 24),
    ("a6000", 48),
    ("l4", 24),
    ("l40s", 48),
    ("a100-40gb", 40),
    ("a100", 80),
    ("h100", 80),
    ("h200", 141),
    ("b200", 180),
    ("b300", 288),
    ("gb10", 128),
    ("mi250x", 128),
    ("mi300x", 192),
    ("mi325x", 256),
    ("mi355x", 288),
];

/// Parses `h100` or `h100x2` into bytes of one device and the number of devices.
///
/// # Errors
/// No such device, or a count that is not 1 to 1024.
pub fn parse_devices(text: &str) -> Result<(u64, u64), AuditError> {
    let normalize = |name: &str| name.to_lowercase().replace([' ', '_'], "");
    let lookup = |name: &str| DEVICES.iter().find(|(known, _)| *known == normalize(name)).map(|(_, size)| size * GIB);
    if let Some(bytes) = lookup(text) {
        return Ok((bytes, 1));
    }
    let names: Vec<&str> = DEVICES.iter().map(|(name, _)| *name).collect();
    let unknown =
        || AuditError::invalid_argument(text, format!("no such GPU; known are {}; or give --memory", names.join(", ")));
    let (name, count) = text.rsplit_once(['x', 'X', '*']).ok_or_else(unknown)?;
    let bytes = lookup(name).ok_or_else(unknown)?;
    let count = count.trim().parse().ok().filter(|count| (1..=1024).contains(count));
    let count = count.ok_or_else(|| AuditError::invalid_argument(text, "expected 1 to 1024 devices after `x`"))?;
    Ok((bytes, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_devices_reads_names_and_counts() {
        assert_eq!(parse_devices("h100").unwrap(), (80 * GIB, 1));
        assert_eq!(parse_devices("H100x2").unwrap(), (80 * GIB, 2));
        assert_eq!(parse_devices("rtx4090").unwrap(), (24 * GIB, 1));
        for text in ["", "h100x0", "h100x-1", "h1000", "x2", "h100xx"] {
            assert!(parse_devices(text).is_err(), "{text}");
        }
    }
}
