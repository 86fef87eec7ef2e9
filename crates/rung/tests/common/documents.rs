//! The project's documents, for tests that compare them with the program.

use std::path::{Path, PathBuf};

/// The root directory of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every document of the project, sorted: those beside README.md, all below docs/, and proof/README.md.
pub fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut documents = vec![root.join("proof/README.md")];
    let mut folders = vec![root.join("docs")];
    documents.extend(markdown_files(&root));
    while let Some(folder) = folders.pop() {
        documents.extend(markdown_files(&folder));
        let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    documents.sort();
    documents
}

fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// A fenced block of a document.
pub struct Block {
    /// The word after the opening fence: `console`, `sh`, `rust`, ..
    pub language: String,
    /// Number of its first line, from 1.
    pub line: usize,
    /// The lines between the fences.
    pub lines: Vec<String>,
}

/// The fenced blocks of a document, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(language) => {
                blocks.push(Block { language: language.to_owned(), line: number + 2, lines: Vec::new() });
                inside = true;
            }
            None if inside => blocks.last_mut().unwrap().lines.push(line.to_owned()),
            None => {}
        }
    }
    assert!(!inside, "a block is not closed");
    blocks
}

/// The Rust files below a folder, without those that a build writes.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.ends_with("target") {
            continue;
        }
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
