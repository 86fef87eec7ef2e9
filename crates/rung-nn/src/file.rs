//! Atomic writing of files: a file is written completely or not at all.
//!
//! The bytes go to a new file in the same directory, are flushed to the disk, and the file is renamed over its
//! destination. Renaming within one directory is atomic, so a reader sees the old file or the new one. On an error before
//! that, the new file is removed and the old one is unchanged.
//!
//! Only regular files are replaced. A symbolic link is followed to its target, which keeps its permissions; a device or a pipe is
//! written to directly.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A temporary file that was not written for so long belongs to a process that was killed.
pub const STALE_AGE: Duration = Duration::from_hours(6);

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", .path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Writes `bytes` to `path`, replacing an existing file atomically. The directory must exist.
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
    if existing.as_ref().is_some_and(|info| !info.is_file() && !info.is_dir()) {
        return OpenOptions::new().write(true).open(&destination).and_then(|mut file| file.write_all(bytes));
    }
    if existing.as_ref().is_some_and(|info| info.permissions().readonly()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only"));
    }
    let (file, temporary) = create_temporary_file(&destination)?;
    let permissions = existing.map_or(Ok(()), |info| fs::set_permissions(&temporary, info.permissions()));
    let result =
        permissions.and_then(|()| write_and_sync(file, bytes)).and_then(|()| fs::rename(&temporary, &destination));
    result.inspect_err(|_| {
        // The first error is returned, even if the temporary file cannot be removed.
        let _ = fs::remove_file(&temporary);
    })
}

/// Removes the temporary files that killed processes left in a directory. Call it only while no other process writes there.
pub fn remove_temporary_files(directory: &Path) {
    for path in temporary_files(directory) {
        // A file that cannot be removed is left in place.
        let _ = fs::remove_file(path);
    }
}

/// As [`remove_temporary_files`], while other processes may write to the directory, some of them on other machines: removes only files
/// that were not written for [`STALE_AGE`]. Writing one takes seconds.
pub fn remove_old_temporary_files(directory: &Path) {
    for path in temporary_files(directory) {
        let modified = fs::metadata(&path).and_then(|info| info.modified());
        if modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > STALE_AGE)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// The regular files of a directory whose names are those of temporary files.
fn temporary_files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let temporary_files = entries.filter(|entry| {
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(".part"));
        let number = stem.and_then(|stem| stem.rsplit_once('.')).map(|(_, number)| number);
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        number
            .and_then(|number| number.split_once('-'))
            .is_some_and(|(process, count)| digits(process) && digits(count))
    });
    temporary_files.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path())
}

/// Reads a text file of at most so many bytes. Devices and pipes, which may never end, are errors.
///
/// # Errors
/// The file cannot be read. The kind of the error is [`InvalidData`](io::ErrorKind::InvalidData) if it is longer, not a regular file, or
/// not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    if !fs::metadata(path)?.is_file() {
        return Err(invalid("found no regular file, expected a text file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(invalid(format!("found more than {max_bytes} bytes, expected at most that")));
    }
    String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))
}

/// Creates a new file in the directory of `path`, named after it.
fn create_temporary_file(path: &Path) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name =
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?;
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(format!(".{}-{count}.part", std::process::id()));
        let temporary = path.with_file_name(temporary_name);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            // Left over from a run that was killed and had the same process id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn write_and_sync(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty directory that is removed at the end of the test.
    struct TemporaryDirectory(PathBuf);

    impl TemporaryDirectory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rung-file-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a temporary directory");
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("the temporary directory");
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
        }
    }

    impl Drop for TemporaryDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn write_atomically_replaces_a_file_and_leaves_no_temporary_file() {
        let directory = TemporaryDirectory::new("replace");
        let path = directory.0.join("report.html");
        write_atomically(&path, b"a long first version").unwrap();
        write_atomically(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(directory.names(), ["report.html"]);
    }

    #[test]
    fn remove_temporary_files_removes_no_other_files() {
        let directory = TemporaryDirectory::new("parts");
        let others = ["record.json", ".record.json.part", "a.12-0.part", ".a.12.part", ".a.x-0.part", ".lock"];
        for name in others.iter().chain(&[".record.json.123-0.part", ".a.b.9-17.part"]) {
            fs::write(directory.0.join(name), b"half").unwrap();
        }
        remove_temporary_files(&directory.0);
        let (mut names, mut expected) = (directory.names(), others.map(str::to_owned).to_vec());
        names.sort();
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn old_temporary_files_are_removed_while_others_write() {
        let directory = TemporaryDirectory::new("old-parts");
        for (name, age) in [(".record.json.123-0.part", 7), (".record.json.124-0.part", 0), ("record.json", 7)] {
            let path = directory.0.join(name);
            fs::write(&path, b"half").unwrap();
            let time = std::time::SystemTime::now() - Duration::from_hours(age);
            OpenOptions::new().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        remove_old_temporary_files(&directory.0);
        let mut names = directory.names();
        names.sort();
        assert_eq!(names, [".record.json.124-0.part", "record.json"]);
    }

    #[cfg(unix)]
    #[test]
    fn read_text_refuses_devices_and_long_files() {
        let directory = TemporaryDirectory::new("read");
        let (link, long) = (directory.0.join("zero"), directory.0.join("long"));
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        fs::write(&long, "12345").unwrap();
        assert_eq!(read_text(&long, 5).unwrap(), "12345");
        for (path, words) in [(&link, "no regular file"), (&long, "more than 4 bytes")] {
            let error = read_text(path, 4).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn write_error_names_the_file() {
        let error = write_atomically(Path::new("/nowhere/at/all/report.html"), b"").unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/at/all/report.html"), "{error}");
    }

    #[test]
    fn failed_write_leaves_no_temporary_file() {
        let directory = TemporaryDirectory::new("failure");
        let path = directory.0.join("report.html");
        // A directory that is not empty cannot be replaced by a file.
        fs::create_dir_all(path.join("inside")).unwrap();
        assert!(write_atomically(&path, b"text").is_err());
        assert_eq!(directory.names(), ["report.html"]);
        assert!(path.join("inside").is_dir());
    }

    #[test]
    fn concurrent_writers_leave_one_complete_file() {
        let directory = TemporaryDirectory::new("many");
        let path = directory.0.join("report.html");
        std::thread::scope(|scope| {
            for letter in b'a'..=b'h' {
                let path = &path;
                scope.spawn(move || write_atomically(path, &vec![letter; 100_000]).unwrap());
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() == 100_000 && bytes.iter().all(|byte| *byte == bytes[0]));
        assert_eq!(directory.names(), ["report.html"]);
    }

    #[cfg(unix)]
    #[test]
    fn write_atomically_keeps_links_devices_and_permissions() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let directory = TemporaryDirectory::new("links");
        let (file, link) = (directory.0.join("file"), directory.0.join("link"));
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
