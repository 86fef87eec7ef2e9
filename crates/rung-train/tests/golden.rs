//! A stored run: if the same config gives other numbers, the edition of the numerics has to be raised.
//!
//! After raising it, `RUNG_STORE_GOLDEN=1 cargo test -p rung-train --test golden` stores the run again.

use std::path::Path;

use rung_train::run::record::{EDITION, ProgramInfo};
use rung_train::run::{RunConfig, RunRecord, execute};

#[test]
fn numbers_change_only_with_the_edition() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden.json");
    let run = RunConfig::read(include_str!("data/golden.toml")).and_then(|config| config.resolve()).unwrap();
    let record = execute(&run, None, &mut |_| true).unwrap().record.unwrap();
    if std::env::var_os("RUNG_STORE_GOLDEN").is_some() {
        std::fs::write(&path, record.line()).unwrap();
    }
    let stored = RunRecord::read(&path).unwrap();
    assert_eq!(stored.edition, EDITION, "the edition was raised: store the golden run again");
    assert_eq!(stored.id, record.id, "the config of the golden run has another id than before");
    if stored.program.instructions != ProgramInfo::current().instructions {
        // Other vector instructions round sums differently: the same run, but not the same bits.
        assert!((stored.loss - record.loss).abs() < 1e-3, "{} against {}", stored.loss, record.loss);
        return;
    }
    let numbers = |record: &RunRecord| RunRecord { program: ProgramInfo::default(), ..record.clone() };
    assert_eq!(numbers(&stored), numbers(&record), "the same config gives other numbers: raise EDITION in record.rs");
}
