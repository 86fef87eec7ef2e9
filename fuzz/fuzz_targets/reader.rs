#![no_main]

#[path = "../targets.rs"]
mod targets;

use std::sync::OnceLock;

/// The target that `RUNG_FUZZ_TARGET` names: one program runs any target.
static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var("RUNG_FUZZ_TARGET").expect("RUNG_FUZZ_TARGET names a folder of fuzz/corpus");
        TARGET.get_or_init(|| targets::find(&name));
    },
    |bytes: &[u8]| {
        if let Some(target) = TARGET.get() {
            target(bytes);
        }
    }
);
