//! The log of `-v` on standard error: one line for each step of a command, with the seconds since its start.
//!
//! ```text
//! [   0.0s] runs/a: started by rung 0.1.0 on linux x86_64 with avx2, 2 threads
//! [   4.1s] runs/a/resume.safetensors: writing 81304 bytes
//! ```
//!
//! Off by default. `-v` shows the steps of a command, `-vv` every file too; the variable `RUNG_LOG` (`info`, `debug`, `off`) does the same where
//! the command line cannot be changed; `-v` overrides it. Log messages of dependencies are not shown.

use std::sync::OnceLock;
use std::time::Instant;

use log::{LevelFilter, Log, Metadata, Record};

use crate::output::without_control;

/// The logger, with its start time.
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

/// Installs the logger with the level of the number of `-v`, or of the variable `RUNG_LOG`.
///
/// # Errors
/// The variable is no log level.
pub fn install(verbosity: u8) -> anyhow::Result<()> {
    let level = match (verbosity, std::env::var("RUNG_LOG")) {
        (0, Ok(text)) if !text.is_empty() => text.parse().map_err(|_| {
            anyhow::anyhow!("RUNG_LOG: found {text:?}, expected off, error, warn, info, debug or trace")
        })?,
        (0, _) => LevelFilter::Off,
        (1, _) => LevelFilter::Info,
        (_, _) => LevelFilter::Debug,
    };
    if level > LevelFilter::Off {
        // This fails if a calling program has installed its own logger, which then gets the messages.
        let _ = log::set_logger(LOGGER.get_or_init(|| Logger(Instant::now())));
        log::set_max_level(level);
    }
    Ok(())
}
