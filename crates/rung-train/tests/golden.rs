//! Compares a run with its stored record: if the same config gives other numbers, `NUMERICS_VERSION` has to be raised.
//!
//! After raising it, `RUNG_STORE_GOLDEN=1 cargo test -p rung-train --test golden` stores the record again.

use std::path::Path;

use rung_train::run::record::{NUMERICS_VERSION, ProgramInfo};
use rung_train::run::{RunConfig, RunRecord, execute};

#[test]
fn numbers_change_only_with_the_numerics_version() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden.json");
    let run = RunConfig::read(include_str!("data/golden.toml")).and_then(|config| config.resolve()).unwrap();
    let record = execute(&run, None, &mut |_| true).unwrap().record.unwrap();
    if std::env::var_os("RUNG_STORE_GOLDEN").is_some() {
        std::fs::write(&path, record.to_json_line()).unwrap();
    }
    let stored = RunRecord::read(&path).unwrap();
    assert_eq!(stored.numerics_version, NUMERICS_VERSION, "the version was raised: store the golden run again");
    assert_eq!(stored.id, record.id, "the config of the golden run has another id than before");
    if stored.program.instructions != ProgramInfo::current().instructions {
        // Other vector instructions round sums differently, so only the loss is compared.
        assert!((stored.loss - record.loss).abs() < 1e-3, "{} against {}", stored.loss, record.loss);
        return;
    }
    let without_program = |record: &RunRecord| RunRecord { program: ProgramInfo::default(), ..record.clone() };
    assert_eq!(
        without_program(&stored),
        without_program(&record),
        "the same config gives other numbers: raise NUMERICS_VERSION in record.rs"
    );
}
