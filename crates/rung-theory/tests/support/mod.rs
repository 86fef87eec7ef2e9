//! Shared by several tests: the stored certificates and a random generator.
#![allow(dead_code, reason = "each test uses only some of it")]

use rung_theory::bound::certificate;
use rung_theory::bound::checker::Certificate;
use serde_json::Value;

/// The stored certificates, each with whether it must be accepted and its JSON.
///
/// # Panics
/// The file is damaged.
pub fn stored_certificates() -> Vec<(Certificate, bool, Value)> {
    let text = include_str!("../data/points.json");
    let Value::Array(items) = serde_json::from_str(text).unwrap() else { panic!("expected a list") };
    let parse = |item: Value| (certificate::read(&item.to_string()).unwrap(), item["accept"].as_bool().unwrap(), item);
    items.into_iter().map(parse).collect()
}

/// A generator that is the same on every machine (SplitMix64).
pub struct Generator(pub u64);

impl Generator {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `end`.
    pub fn random_below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
