//! The documents name files and folders: each of them exists.

use std::path::Path;

/// Words of a document that look like paths of this repository.
fn paths(text: &str) -> Vec<&str> {
    let roots = ["crates/", "docs/", "proof/", ".ci/"];
    let is_path = |word: &&str| roots.iter().any(|root| word.starts_with(root));
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let words = text.split(|c: char| !plain(c)).filter(is_path);
    words.map(|word| word.trim_end_matches(['.', '/'])).collect()
}

#[test]
fn paths_named_in_the_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents: Vec<_> = ["README.md", "GUIDE.md", "CONTRIBUTING.md"].map(|name| root.join(name)).into();
    let entries = std::fs::read_dir(root.join("docs")).unwrap();
    documents
        .extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md")));
    let mut count = 0;
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        for path in paths(&text) {
            assert!(root.join(path).exists(), "{} names {path}, which does not exist", document.display());
            count += 1;
        }
    }
    assert!(count > 40, "only {count} paths were found: is the search for them broken?");
}

#[test]
fn recipes_are_all_there() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CONTRIBUTING.md")).unwrap();
    for recipe in [
        "A mixer.",
        "A task.",
        "A config dialect.",
        "A figure of the report.",
        "A command.",
        "A field of the record.",
        "An inference engine.",
    ] {
        assert!(text.contains(&format!("**{recipe}**")), "{recipe}");
    }
}
