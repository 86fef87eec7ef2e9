//! What `-v` shows on standard error: one line for each thing that a command does, with the seconds since it began.
//!
//! ```text
//! [   0.0s] runs/a: started by rung 0.1.0 on linux x86_64 with avx2, 2 threads
//! [   4.1s] runs/a/resume.safetensors: writing 81304 bytes
//! ```
//!
//! Off by default. `-v` shows the steps of a command, `-vv` every file too; the variable `RUNG_LOG` (`info`, `debug`, `off`) does the same where
//! a command line cannot be changed, and yields to `-v`. Dependencies speak through the same crate and are left out.

use std::sync::OnceLock;
use std::time::Instant;

use log::{LevelFilter, Log, Metadata, Record};

use crate::output::without_control;

struct Logger(Instant);

static LOGGER: OnceLock<Logger> = OnceLock::new();

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("rung") && metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = record.args().to_string();
            eprintln!("[{:6.1}s] {}", self.0.elapsed().as_secs_f64(), without_control(&line));
        }
    }

    fn flush(&self) {}
}

/// Shows as much as was asked for, by a count of `-v` or by the variable.
///
/// # Errors
/// The variable says something else than a level.
pub fn install(count: u8) -> anyhow::Result<()> {
    let level = match (count, std::env::var("RUNG_LOG")) {
        (0, Ok(text)) if !text.is_empty() => text.parse().map_err(|_| {
            anyhow::anyhow!("RUNG_LOG: found {text:?}, expected off, error, warn, info, debug or trace")
        })?,
        (0, _) => LevelFilter::Off,
        (1, _) => LevelFilter::Info,
        (_, _) => LevelFilter::Debug,
    };
    if level > LevelFilter::Off {
        // A program that calls this one may have a logger of its own, which then hears everything.
        let _ = log::set_logger(LOGGER.get_or_init(|| Logger(Instant::now())));
        log::set_max_level(level);
    }
    Ok(())
}
