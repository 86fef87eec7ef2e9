//! The record of a run: a file with a header line and one line per answer, appended when the answer arrives.
//!
//! A run that is interrupted, even by a power cut, loses at most the line that was being written: on resuming, an incomplete last line
//! is cut off and its question is asked again. When all questions are answered the lines are sorted by question id, so that the finished
//! file does not depend on the order in which answers arrived. The file never contains an API key or a time.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::AskError;
use crate::ModelDescription;
use crate::grid::Grid;
use crate::score::Answer;

/// Version of the file format.
const FORMAT_VERSION: u32 = 1;

/// Maximum size of a file that is read; 10 million answers fit.
const MAX_BYTES: u64 = 2 << 30;

/// The first line: the questions and the model that is asked.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordHeader {
    /// Version of the file format.
    #[serde(rename = "rung_ask")]
    pub format_version: u32,
    /// Version of the program that created the file.
    pub version: String,
    /// The address or path of the model, without credentials.
    pub target: String,
    /// Protocol and name of the model.
    pub model: ModelDescription,
    /// The questions.
    pub grid: Grid,
}

impl RecordHeader {
    /// A header with the version of this program.
    pub fn new(target: String, model: ModelDescription, grid: Grid) -> Self {
        Self { format_version: FORMAT_VERSION, version: env!("CARGO_PKG_VERSION").to_owned(), target, model, grid }
    }
}

/// A record that is open for writing, by one process at a time.
pub struct RecordFile {
    path: PathBuf,
    file: File,
    header: RecordHeader,
    answers: BTreeMap<String, Answer>,
}

impl RecordFile {
    /// Opens or creates a record. An existing record must have the same questions.
    ///
    /// # Errors
    /// It cannot be read or written, belongs to other questions, or another process writes it.
    pub fn open(path: &Path, header: RecordHeader) -> Result<Self, AskError> {
        let file_error = |cause: std::io::Error| AskError::file(path, cause);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(file_error)?;
        if file.try_lock().is_err() {
            return Err(AskError::file(path, "another process writes this record"));
        }
        let text = read_all(&mut file, path)?;
        if text.is_empty() {
            let mut record = Self { path: path.to_owned(), file, header, answers: BTreeMap::new() };
            let line = to_line(&record.header, path)?;
            record.append(&line)?;
            return Ok(record);
        }
        let complete_bytes = text.rfind('\n').map_or(0, |end| end + 1);
        let (stored_header, answers) = parse(&text[..complete_bytes], path)?;
        if stored_header.grid != header.grid {
            return Err(AskError::file(
                path,
                "found a record of other questions, expected the same options or another --out",
            ));
        }
        // Cut an incomplete last line off before anything is appended.
        file.set_len(complete_bytes as u64).map_err(file_error)?;
        file.seek(SeekFrom::End(0)).map_err(file_error)?;
        Ok(Self { path: path.to_owned(), file, header: stored_header, answers })
    }

    /// All answers of the record, old and new.
    pub fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.answers.values()
    }

    /// Whether a question has been answered.
    pub fn has_answer(&self, id: &str) -> bool {
        self.answers.contains_key(id)
    }

    /// Appends an answer and flushes it to the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, answer: Answer) -> Result<(), AskError> {
        let line = to_line(&answer, &self.path)?;
        self.append(&line)?;
        self.answers.insert(answer.id.clone(), answer);
        Ok(())
    }

    /// Rewrites the file with its answers in the order of their question ids. The old file stays until the new one is complete.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(&mut self) -> Result<(), AskError> {
        let file_error = |cause: std::io::Error| AskError::file(&self.path, cause);
        let mut text = to_line(&self.header, &self.path)?;
        for answer in self.answers.values() {
            text.push_str(&to_line(answer, &self.path)?);
        }
        let temporary_path = self.path.with_extension("part");
        // An existing temporary file is deleted, not opened: it is left over from a killed process, or it is a symlink whose target must not
        // be overwritten. No other process uses it, because the record is locked.
        match std::fs::remove_file(&temporary_path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(AskError::file(&temporary_path, error));
            }
            _ => {}
        }
        let created = OpenOptions::new().write(true).create_new(true).open(&temporary_path);
        let mut file = created.map_err(|error| AskError::file(&temporary_path, error))?;
        file.try_lock().map_err(|_| AskError::file(&temporary_path, "another process writes this file"))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(file_error)?;
        std::fs::rename(&temporary_path, &self.path).map_err(file_error)?;
        self.file = file;
        Ok(())
    }

    fn append(&mut self, line: &str) -> Result<(), AskError> {
        let file_error = |cause: std::io::Error| AskError::file(&self.path, cause);
        self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()).map_err(file_error)
    }
}

/// Reads the header and the answers of a record.
///
/// # Errors
/// The file cannot be read, or is not a record.
pub fn read_record(path: &Path) -> Result<(RecordHeader, Vec<Answer>), AskError> {
    let mut file = File::open(path).map_err(|cause| AskError::file(path, cause))?;
    let text = read_all(&mut file, path)?;
    let complete_bytes = text.rfind('\n').map_or(0, |end| end + 1);
    let (header, answers) = parse(&text[..complete_bytes], path)?;
    Ok((header, answers.into_values().collect()))
}

fn read_all(file: &mut File, path: &Path) -> Result<String, AskError> {
    let file_error = |cause: std::io::Error| AskError::file(path, cause);
    let bytes = file.metadata().map_err(file_error)?.len();
    if bytes > MAX_BYTES {
        return Err(AskError::file(path, format!("found {bytes} bytes, expected at most {MAX_BYTES}")));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(file_error)?;
    // An incomplete last line may end inside a character; the callers cut it off.
    let valid_bytes = match std::str::from_utf8(&text) {
        Ok(_) => text.len(),
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(error) => {
            return Err(AskError::file(path, format!("byte {}: found bytes that are not UTF-8", error.valid_up_to())));
        }
    };
    text.truncate(valid_bytes);
    String::from_utf8(text).map_err(|cause| AskError::file(path, cause))
}

fn parse(text: &str, path: &Path) -> Result<(RecordHeader, BTreeMap<String, Answer>), AskError> {
    let line_error =
        |line: usize, cause: serde_json::Error| AskError::file(path, format!("line {}: {cause}", line + 1));
    let mut lines = text.lines().enumerate();
    let Some((_, first)) = lines.next() else {
        return Err(AskError::file(path, "found no complete line, expected a record of `rung ask`"));
    };
    let header: RecordHeader = serde_json::from_str(first).map_err(|cause| line_error(0, cause))?;
    if header.format_version != FORMAT_VERSION {
        return Err(AskError::file(path, format!("found format {}, expected {FORMAT_VERSION}", header.format_version)));
    }
    let mut answers = BTreeMap::new();
    for (line_index, line) in lines {
        let answer: Answer = serde_json::from_str(line).map_err(|cause| line_error(line_index, cause))?;
        answers.insert(answer.id.clone(), answer);
    }
    Ok((header, answers))
}

fn to_line(value: &impl serde::Serialize, path: &Path) -> Result<String, AskError> {
    let mut line = serde_json::to_string(value).map_err(|cause| AskError::file(path, cause))?;
    line.push('\n');
    Ok(line)
}
