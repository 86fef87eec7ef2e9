//! Marks a file with the version of the program, the command and the seed that made it, where the file's format allows it.
//!
//! The mark has no date, machine or path, so the same command writes the same bytes.
//!
//! ```
//! use rung_figure::FileProvenance;
//!
//! let made_by = FileProvenance::new("rung map full --hops 2", None);
//! let csv = made_by.mark("map.csv", b"hops,kind\n".to_vec());
//! assert!(csv.starts_with(b"# made by rung ") && csv.ends_with(b": rung map full --hops 2\nhops,kind\n"));
//! ```

use std::string::FromUtf8Error;

use crate::markup::escape;

/// The generator tag of every HTML page, which [`FileProvenance::mark`] replaces.
pub(crate) const GENERATOR: &str = "<meta name=\"generator\" content=\"rung\"/>";

/// The program, a command and a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileProvenance {
    command: String,
    seed: Option<u64>,
}

impl FileProvenance {
    /// A command as it is typed, and the seed that it uses if it uses one.
    pub fn new(command: impl Into<String>, seed: Option<u64>) -> Self {
        Self { command: command.into(), seed }
    }

    /// The mark in one line, such as `rung 0.2.0: rung map full --hops 2`.
    pub fn line(&self) -> String {
        let seed = self.seed.map_or_else(String::new, |seed| format!(" (seed {seed})"));
        let command = self.command.replace(['\n', '\r'], " ");
        format!("rung {}: {command}{seed}", env!("CARGO_PKG_VERSION"))
    }

    /// The content of a file with this line in it, by the ending of the file's name: as metadata of SVG and PNG, as the generator
    /// of an HTML page, as the field `made_by` of a JSON object, as the first comment of CSV and TOML. Others are left as they are.
    pub fn mark(&self, name: &str, bytes: Vec<u8>) -> Vec<u8> {
        match name.rsplit('.').next() {
            Some("svg") => {
                insert_after(bytes, b"<svg", b">", format!("\n<metadata>made by {}</metadata>", escape(&self.line())))
            }
            Some("html") => {
                let head = format!("<meta name=\"generator\" content=\"{}\"/>", escape(&self.line()));
                String::from_utf8(bytes)
                    .map_or_else(FromUtf8Error::into_bytes, |page| page.replacen(GENERATOR, &head, 1).into_bytes())
            }
            Some("csv" | "toml") => [format!("# made by {}\n", self.line()).as_bytes(), &bytes].concat(),
            Some("json") if bytes.starts_with(b"{") && bytes.len() > 2 && bytes[1] != b'}' => {
                let gap = if bytes[1] == b'\n' { "\n  " } else { "" };
                insert_after(bytes, b"{", b"", format!("{gap}\"made_by\": {},", quote(&self.line())))
            }
            Some("png") if bytes.starts_with(b"\x89PNG") => self.mark_png(bytes),
            _ => bytes,
        }
    }

    /// Inserts a text chunk after the signature and the header chunk, 8 + 25 bytes.
    fn mark_png(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        const HEADER: usize = 33;
        let latin1 = self.line().chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect::<Vec<u8>>();
        let text = [b"tEXtSoftware\0", &latin1[..]].concat();
        let length = u32::try_from(text.len() - 4).unwrap_or_default();
        let chunk = [&length.to_be_bytes()[..], &text, &crc32(&text).to_be_bytes()].concat();
        if bytes.len() > HEADER {
            bytes.splice(HEADER..HEADER, chunk);
        }
        bytes
    }
}

/// Inserts text after the first `end` that follows `start`; the bytes are unchanged if they do not occur.
fn insert_after(mut bytes: Vec<u8>, start: &[u8], end: &[u8], text: String) -> Vec<u8> {
    let end_of_match = |from: usize, pattern: &[u8]| {
        if pattern.is_empty() {
            return Some(from);
        }
        let offset = bytes[from..].windows(pattern.len()).position(|window| window == pattern)?;
        Some(from + offset + pattern.len())
    };
    if let Some(position) = end_of_match(0, start).and_then(|position| end_of_match(position, end)) {
        bytes.splice(position..position, text.into_bytes());
    }
    bytes
}

/// A text as a JSON string.
fn quote(text: &str) -> String {
    let escaped = text.chars().map(|letter| match letter {
        '"' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// The checksum of PNG chunks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 * (sum & 1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(name: &str, text: &str) -> String {
        let made_by = FileProvenance::new("rung map \"a\" --hops 2", Some(7));
        String::from_utf8(made_by.mark(name, text.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn every_format_is_marked_in_its_own_way() {
        let line = format!("rung {}: rung map \"a\" --hops 2 (seed 7)", env!("CARGO_PKG_VERSION"));
        assert_eq!(marked("a.csv", "x\n"), format!("# made by {line}\nx\n"));
        let quoted = line.replace('"', "\\\"");
        assert_eq!(marked("a.json", "{\n  \"x\": 1\n}"), format!("{{\n  \"made_by\": \"{quoted}\",\n  \"x\": 1\n}}"));
        assert_eq!(marked("a.json", "{}"), "{}");
        assert_eq!(marked("a.jsonl", "{\"x\": 1}"), "{\"x\": 1}");
        let escaped = line.replace('"', "&quot;");
        assert_eq!(
            marked("a.svg", "<svg w=\"1\"><g/></svg>"),
            format!("<svg w=\"1\">\n<metadata>made by {escaped}</metadata><g/></svg>")
        );
        assert_eq!(marked("a.html", GENERATOR), format!("<meta name=\"generator\" content=\"{escaped}\"/>"));
    }

    #[test]
    fn crc32_agrees_with_the_checksum_of_a_known_png_chunk() {
        // The chunk that ends every PNG file.
        assert_eq!(crc32(b"IEND"), 0xAE42_6082);
    }

    #[cfg(feature = "png")]
    #[test]
    fn a_marked_png_has_the_same_pixels() {
        let svg =
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"4\" height=\"4\"><rect width=\"4\" height=\"4\"/></svg>";
        let unmarked = crate::figure::render_png(svg).unwrap();
        let marked = FileProvenance::new("rung map full", None).mark("a.png", unmarked.clone());
        assert!(marked.len() > unmarked.len());
        let decode = |bytes: &[u8]| resvg::tiny_skia::Pixmap::decode_png(bytes).unwrap();
        assert_eq!(decode(&marked), decode(&unmarked));
    }
}
