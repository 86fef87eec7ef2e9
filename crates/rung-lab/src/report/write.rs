//! Writing a report whole or not at all.

use std::path::Path;

use super::ReportError;

/// Writes `bytes` to `path`, replacing what is there in one step, as [`rung_nn::file::write_atomically`] does.
///
/// # Errors
/// When the directory cannot be written to, the disk is full, or `path` is a directory. The error names the file.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    rung_nn::file::write_atomically(path, bytes).map_err(|source| ReportError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = write_atomically(Path::new("/nowhere/at/all/report.html"), b"").unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all/report.html"), "{error}");
    }
}
