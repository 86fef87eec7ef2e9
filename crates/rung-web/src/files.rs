//! The files of the page, inside the program.

/// One file: its name, its media type, its bytes.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Its path below the page's address.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// What it holds.
    pub bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! files {
    ($($kind:ident $name:literal),* $(,)?) => {
        /// Every file of the page but the WebAssembly module.
        pub static FILES: &[PageFile] =
            &[$(PageFile { name: $name, kind: $kind, bytes: include_bytes!(concat!("../page/", $name)) }),*];
    };
}

files! {
    HTML "index.html",
    STYLE "style.css",
    PICTURE "icon.svg",
    SCRIPT "main.js",
    SCRIPT "dom.js",
    SCRIPT "format.js",
    SCRIPT "engine.js",
    SCRIPT "worker.js",
    SCRIPT "state.js",
    SCRIPT "command.js",
    SCRIPT "strip.js",
    SCRIPT "chart.js",
    SCRIPT "model.js",
    SCRIPT "gallery.js",
    SCRIPT "designer.js",
    SCRIPT "edits.js",
    SCRIPT "panels.js",
    SCRIPT "planner.js",
    SCRIPT "compare.js",
    SCRIPT "certificate.js",
    SCRIPT "pass.js",
    SCRIPT "learn.js",
    SCRIPT "runs.js",
}

/// The file of a name; the page itself for an empty one.
pub fn file(name: &str) -> Option<&'static PageFile> {
    let name = if name.is_empty() { "index.html" } else { name };
    FILES.iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let mut there: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut listed: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        there.sort();
        listed.sort_unstable();
        assert_eq!(there, listed);
    }

    #[test]
    fn no_script_makes_markup_or_code_from_text() {
        for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!text.contains(word), "{}: {word}", file.name);
            }
        }
    }
}
