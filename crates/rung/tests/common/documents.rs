//! The project's documents, for the tests that hold them to the program.

use std::path::{Path, PathBuf};

/// The folder that holds README.md.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every document of the project, sorted: those beside README.md, all below docs/, and proof/README.md.
pub fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut found = vec![root.join("proof/README.md")];
    let mut folders = vec![root.join("docs")];
    found.extend(markdown(&root));
    while let Some(folder) = folders.pop() {
        found.extend(markdown(&folder));
        let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    found.sort();
    found
}

fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect()
}

/// A fenced block of a document.
pub struct Block {
    /// The word behind the fence: `console`, `sh`, `rust`, ..
    pub language: String,
    /// Number of its first line, from 1.
    pub line: usize,
    /// What it says.
    pub lines: Vec<String>,
}

/// The fenced blocks of a document, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(language) => {
                found.push(Block { language: language.to_owned(), line: number + 2, lines: Vec::new() });
                inside = true;
            }
            None if inside => found.last_mut().unwrap().lines.push(line.to_owned()),
            None => {}
        }
    }
    assert!(!inside, "a block is not closed");
    found
}
