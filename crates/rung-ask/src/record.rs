//! The file of a run: a header, then one line per answer, written when it arrives.
//!
//! A run that is interrupted, even by a power cut, loses at most the line that was being written: on resuming, a torn last line is
//! cut off and its question is asked again. When all questions are answered the lines are sorted by question, so that the finished
//! file does not depend on the order in which answers arrived. No key and no time is ever in it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::AskError;
use crate::ServerDescription;
use crate::ladder::Grid;
use crate::score::Answer;

/// The format of these files.
const FORMAT: u32 = 1;

/// The largest file that is read: 10 million answers would fit.
const MOST_BYTES: u64 = 2 << 30;

/// The first line: what is asked, of whom.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordHeader {
    /// The format of the file.
    pub rung_ask: u32,
    /// Version of the program that began it.
    pub version: String,
    /// The address or path of the model, without credentials.
    pub target: String,
    /// What answers there.
    pub model: ServerDescription,
    /// The questions.
    pub grid: Grid,
}

impl RecordHeader {
    /// A header of this version.
    pub fn new(target: String, model: ServerDescription, grid: Grid) -> Self {
        Self { rung_ask: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned(), target, model, grid }
    }
}

/// A record that is open for writing. One process at a time.
pub struct AnswerRecord {
    path: PathBuf,
    file: File,
    header: RecordHeader,
    answers: BTreeMap<String, Answer>,
}

impl AnswerRecord {
    /// Opens or creates a record. An existing one must have the same questions.
    ///
    /// # Errors
    /// It cannot be read or written, is of other questions, or another process writes it.
    pub fn open(path: &Path, header: RecordHeader) -> Result<Self, AskError> {
        let error = |cause: std::io::Error| AskError::file(path, cause);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(error)?;
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
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let (found, answers) = parse(&text[..whole], path)?;
        if found.grid != header.grid {
            return Err(AskError::file(
                path,
                "found a record of other questions, expected the same options or another --out",
            ));
        }
        // Cut a torn last line off before anything is written behind it.
        file.set_len(whole as u64).map_err(error)?;
        file.seek(SeekFrom::End(0)).map_err(error)?;
        Ok(Self { path: path.to_owned(), file, header: found, answers })
    }

    /// What was answered before or since.
    pub fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.answers.values()
    }

    /// Whether a question has been answered.
    pub fn has(&self, id: &str) -> bool {
        self.answers.contains_key(id)
    }

    /// Appends an answer; it is in the file when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, answer: Answer) -> Result<(), AskError> {
        let line = to_line(&answer, &self.path)?;
        self.append(&line)?;
        self.answers.insert(answer.id.clone(), answer);
        Ok(())
    }

    /// Rewrites the file with its answers in the order of their questions. The old file stays until the new one is whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(&mut self) -> Result<(), AskError> {
        let error = |cause: std::io::Error| AskError::file(&self.path, cause);
        let mut text = to_line(&self.header, &self.path)?;
        for answer in self.answers.values() {
            text.push_str(&to_line(answer, &self.path)?);
        }
        let part = self.path.with_extension("part");
        let mut file = File::create(&part).map_err(error)?;
        file.try_lock().map_err(|_| AskError::file(&part, "another process writes this file"))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(error)?;
        std::fs::rename(&part, &self.path).map_err(error)?;
        self.file = file;
        Ok(())
    }

    fn append(&mut self, line: &str) -> Result<(), AskError> {
        let error = |cause: std::io::Error| AskError::file(&self.path, cause);
        self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()).map_err(error)
    }
}

/// Reads a record without writing it.
///
/// # Errors
/// It cannot be read, or is no record.
pub fn read(path: &Path) -> Result<(RecordHeader, Vec<Answer>), AskError> {
    let mut file = File::open(path).map_err(|cause| AskError::file(path, cause))?;
    let text = read_all(&mut file, path)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let (header, answers) = parse(&text[..whole], path)?;
    Ok((header, answers.into_values().collect()))
}

fn read_all(file: &mut File, path: &Path) -> Result<String, AskError> {
    let error = |cause: std::io::Error| AskError::file(path, cause);
    let bytes = file.metadata().map_err(error)?.len();
    if bytes > MOST_BYTES {
        return Err(AskError::file(path, format!("found {bytes} bytes, expected at most {MOST_BYTES}")));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(error)?;
    // A torn line may end inside a character; it is cut off by whoever calls.
    let valid = match std::str::from_utf8(&text) {
        Ok(_) => text.len(),
        Err(torn) if torn.error_len().is_none() => torn.valid_up_to(),
        Err(bad) => return Err(AskError::file(path, format!("byte {}: found no UTF-8", bad.valid_up_to()))),
    };
    text.truncate(valid);
    String::from_utf8(text).map_err(|cause| AskError::file(path, cause))
}

fn parse(text: &str, path: &Path) -> Result<(RecordHeader, BTreeMap<String, Answer>), AskError> {
    let error = |line: usize, cause: serde_json::Error| AskError::file(path, format!("line {}: {cause}", line + 1));
    let mut lines = text.lines().enumerate();
    let Some((_, first)) = lines.next() else {
        return Err(AskError::file(path, "found no whole line, expected a record of `rung ask`"));
    };
    let header: RecordHeader = serde_json::from_str(first).map_err(|cause| error(0, cause))?;
    if header.rung_ask != FORMAT {
        return Err(AskError::file(path, format!("found format {}, expected {FORMAT}", header.rung_ask)));
    }
    let mut answers = BTreeMap::new();
    for (number, line) in lines {
        let answer: Answer = serde_json::from_str(line).map_err(|cause| error(number, cause))?;
        answers.insert(answer.id.clone(), answer);
    }
    Ok((header, answers))
}

fn to_line(value: &impl serde::Serialize, path: &Path) -> Result<String, AskError> {
    let mut line = serde_json::to_string(value).map_err(|cause| AskError::file(path, cause))?;
    line.push('\n');
    Ok(line)
}
