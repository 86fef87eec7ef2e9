//! The log of a run's directory: when it started, by which version on what machine, and why it ended.
//!
//! ```text
//! 2026-01-31T09:12:07Z started by rung 0.2.0 on linux x86_64 with avx2, 2 threads
//! 2026-01-31T09:40:51Z stopped at step 3000, to be resumed
//! ```
//!
//! Lines are appended. A log that cannot be written does not stop the run, and the program never reads it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::config::Run;
use super::device::ComputeDevice;
use super::record::ProgramInfo;

/// The log's file name in a run's directory.
pub const LOG_FILE: &str = "log.txt";

/// The log of one run's directory.
pub(super) struct Log {
    directory: PathBuf,
    file: Option<File>,
}

impl Log {
    /// Opens the log. Lines are dropped if `log.txt` exists and is not a regular file.
    pub(super) fn open(directory: &Path) -> Self {
        let path = directory.join(LOG_FILE);
        let not_a_file = std::fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_file());
        let file = if not_a_file { None } else { OpenOptions::new().append(true).create(true).open(path).ok() };
        Self { directory: directory.to_owned(), file }
    }

    /// Writes the first line of a process, which starts or resumes the run at `step`.
    pub(super) fn write_start(&self, run: &Run, device: &ComputeDevice, step: usize) {
        let ProgramInfo { version, instructions } = ProgramInfo::current();
        let verb = if step == 0 { "started".to_owned() } else { format!("resumed at step {step}") };
        let (system, machine) = (std::env::consts::OS, std::env::consts::ARCH);
        let engine = match device {
            ComputeDevice::Native => format!("{} threads", run.config.train.threads),
            #[cfg(feature = "gpu")]
            ComputeDevice::Burn { name, .. } => format!("device {name}"),
        };
        self.write(&format!("{verb} by rung {version} on {system} {machine} with {instructions}, {engine}"));
    }

    /// A value that writes a line if it is dropped by a panic.
    pub(super) fn on_panic(&self) -> PanicLine<'_> {
        PanicLine(self)
    }

    /// Writes one line.
    pub(super) fn write(&self, text: &str) {
        log::info!("{}: {text}", self.directory.display());
        let Some(mut file) = self.file.as_ref() else { return };
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // One call per line, so that lines of two processes are not interleaved.
        let _ = file.write_all(format!("{} {}\n", format_utc(seconds), text.replace('\n', " ")).as_bytes());
    }
}

/// See [`Log::on_panic`].
pub(super) struct PanicLine<'a>(&'a Log);

impl Drop for PanicLine<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.write("failed: the program panicked; its message is on the standard error output");
        }
    }
}

/// A time in UTC, from seconds since 1970.
fn format_utc(seconds: u64) -> String {
    let (mut day, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let month_days = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= month_days[month] {
        day -= month_days[month];
        month += 1;
    }
    let (hour, minute) = (second_of_day / 3600, second_of_day / 60 % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{:02}Z", month + 1, day + 1, second_of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_utc_handles_leap_days_and_year_ends() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
        ] {
            assert_eq!(format_utc(seconds), expected);
        }
    }
}
