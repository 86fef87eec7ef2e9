//! Writing a file whole or not at all.
//!
//! The bytes go to a new file in the same directory, are flushed to the disk, and the file is renamed over its
//! destination. Renaming within one directory happens at once, so a reader sees the old file or the new one. Whatever
//! goes wrong before that removes the new file and leaves the old one as it was.
//!
//! Only plain files are replaced. A link is followed to the file it names, which keeps its permissions; a device or a pipe is
//! written to as it stands.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", .path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Writes `bytes` to `path`, replacing what is there in one step. The directory must exist.
///
/// # Errors
/// When the directory cannot be written to, the disk is full, or `path` is a directory. The error names the file.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    log::debug!("{}: writing {} bytes", path.display(), bytes.len());
    replace(path, bytes).map_err(|source| WriteError { path: path.to_owned(), source })
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A path that does not exist yet is its own destination.
    let destination = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let existing = fs::metadata(&destination).ok();
    if existing.as_ref().is_some_and(|known| !known.is_file() && !known.is_dir()) {
        return OpenOptions::new().write(true).open(&destination).and_then(|mut file| file.write_all(bytes));
    }
    if existing.as_ref().is_some_and(|known| known.permissions().readonly()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only"));
    }
    let (file, beside) = create_beside(&destination)?;
    let kept = existing.map_or(Ok(()), |known| fs::set_permissions(&beside, known.permissions()));
    let written = kept.and_then(|()| fill(file, bytes)).and_then(|()| fs::rename(&beside, &destination));
    written.inspect_err(|_| {
        // The first failure is the one to tell; a leftover file is the lesser evil.
        let _ = fs::remove_file(&beside);
    })
}

/// Removes what processes that were killed while writing left behind in a directory. Call it only where no other process
/// writes there now.
pub fn remove_parts(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let part = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(".part"));
        let number = part.and_then(|part| part.rsplit_once('.')).map(|(_, number)| number);
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        number
            .and_then(|number| number.split_once('-'))
            .is_some_and(|(process, count)| digits(process) && digits(count))
    });
    for entry in ours.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())) {
        // A leftover is the lesser evil.
        let _ = fs::remove_file(entry.path());
    }
}

/// Opens a file next to `path` that did not exist before.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name =
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?;
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut beside_name = std::ffi::OsString::from(".");
        beside_name.push(name);
        beside_name.push(format!(".{}-{count}.part", std::process::id()));
        let beside = path.with_file_name(beside_name);
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Ok(file) => return Ok((file, beside)),
            // Left over from a run that was killed and had the same process id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn fill(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty directory that goes away with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rung-file-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a scratch directory");
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("the scratch directory");
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_over() {
        let scratch = Scratch::new("replace");
        let path = scratch.0.join("report.html");
        write_atomically(&path, b"a long first version").unwrap();
        write_atomically(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(scratch.names(), ["report.html"]);
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed_and_nothing_else() {
        let scratch = Scratch::new("parts");
        let others = ["record.json", ".record.json.part", "a.12-0.part", ".a.12.part", ".a.x-0.part", ".lock"];
        for name in others.iter().chain(&[".record.json.123-0.part", ".a.b.9-17.part"]) {
            fs::write(scratch.0.join(name), b"half").unwrap();
        }
        remove_parts(&scratch.0);
        let (mut names, mut expected) = (scratch.names(), others.map(str::to_owned).to_vec());
        names.sort();
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = write_atomically(Path::new("/nowhere/at/all/report.html"), b"").unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all/report.html"), "{error}");
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let scratch = Scratch::new("failure");
        let path = scratch.0.join("report.html");
        // A directory that is not empty cannot be replaced by a file.
        fs::create_dir_all(path.join("inside")).unwrap();
        assert!(write_atomically(&path, b"text").is_err());
        assert_eq!(scratch.names(), ["report.html"]);
        assert!(path.join("inside").is_dir());
    }

    #[test]
    fn many_writers_leave_one_whole_file() {
        let scratch = Scratch::new("many");
        let path = scratch.0.join("report.html");
        std::thread::scope(|scope| {
            for letter in b'a'..=b'h' {
                let path = &path;
                scope.spawn(move || write_atomically(path, &vec![letter; 100_000]).unwrap());
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() == 100_000 && bytes.iter().all(|byte| *byte == bytes[0]));
        assert_eq!(scratch.names(), ["report.html"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_devices_and_permissions_stay_what_they_are() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let scratch = Scratch::new("links");
        let (file, link) = (scratch.0.join("file"), scratch.0.join("link"));
        fs::write(&file, "old").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
        symlink(&file, &link).expect("a link");
        write_atomically(&link, b"new").expect("written through the link");
        assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
        assert_eq!(fs::read(&file).expect("the file"), b"new");
        assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).expect("its mode");
        assert!(write_atomically(&file, b"newer").is_err());
        write_atomically(Path::new("/dev/null"), b"gone").expect("a device is written to");
        assert!(!fs::metadata("/dev/null").expect("the device").is_file());
    }
}
