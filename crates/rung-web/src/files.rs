//! The files of the page, embedded in the program.

/// One file of the page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Its path relative to the page's address.
    pub name: &'static str,
    /// Its media type, such as `text/css`.
    pub media_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! files {
    ($($media_type:ident $name:literal),* $(,)?) => {
        /// Every file of the page but the WebAssembly module.
        pub static FILES: &[PageFile] =
            &[$(PageFile { name: $name, media_type: $media_type, bytes: include_bytes!(concat!("../page/", $name)) }),*];
    };
}

files! {
    HTML "index.html",
    STYLE "style.css",
    IMAGE "icon.svg",
    SCRIPT "main.js",
    SCRIPT "dom.js",
    SCRIPT "format.js",
    SCRIPT "request.js",
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

/// Finds a file by its name; an empty name finds `index.html`.
pub fn find_file(name: &str) -> Option<&'static PageFile> {
    let name = if name.is_empty() { "index.html" } else { name };
    FILES.iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let mut on_disk: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut embedded: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        on_disk.sort();
        embedded.sort_unstable();
        assert_eq!(on_disk, embedded);
    }

    #[test]
    fn scripts_do_not_use_functions_that_parse_html_or_code() {
        for file in FILES.iter().filter(|file| file.media_type == SCRIPT) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!text.contains(word), "{}: {word}", file.name);
            }
        }
    }
}
