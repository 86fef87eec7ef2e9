//! Checks that files, headings, commands and options that the documents name exist.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::command;
use common::documents::{blocks, documents, root, rust_files};

/// Words of a document that look like paths of this repository.
fn paths(text: &str) -> Vec<&str> {
    let roots = ["crates/", "docs/", "examples/", "fuzz/", "proof/", ".ci/"];
    let is_path = |word: &&str| roots.iter().any(|root| word.starts_with(root));
    let is_path_character = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let words = text.split(|c: char| !is_path_character(c)).filter(is_path);
    words.map(|word| word.trim_end_matches(['.', '/'])).collect()
}

/// How many paths a text names; each must exist below the root, or below the folder of its crate.
fn check_paths(file: &Path, text: &str) -> usize {
    let root = root();
    let package = file.ancestors().find(|folder| folder.join("Cargo.toml").exists()).unwrap_or(&root);
    let paths = paths(text);
    for path in &paths {
        let is_build_output = path.starts_with("proof/build"); // written by `make`
        assert!(
            is_build_output || root.join(path).exists() || package.join(path).exists(),
            "{} names {path}, which does not exist",
            file.display()
        );
    }
    paths.len()
}

#[test]
fn paths_named_in_the_documents_exist() {
    let mut documents = documents();
    documents.push(root().join("fuzz/README.md"));
    let count: usize =
        documents.iter().map(|document| check_paths(document, &std::fs::read_to_string(document).unwrap())).sum();
    assert!(count > 40, "only {count} paths were found: is the search for them broken?");
}

#[test]
fn paths_named_on_top_of_modules_exist() {
    let mut count = 0;
    for folder in ["crates", "fuzz"] {
        for file in rust_files(&root().join(folder)) {
            let text = std::fs::read_to_string(&file).unwrap();
            let module_doc: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("//!")).collect();
            count += check_paths(&file, &module_doc.join("\n"));
        }
    }
    assert!(count > 10, "only {count} paths were found: is the search for them broken?");
}

/// Targets of links and pictures, `](target)`, outside of fenced blocks.
fn links(text: &str) -> Vec<String> {
    let mut inside_fence = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        inside_fence ^= is_fence;
        !inside_fence && !is_fence
    });
    let lines: Vec<&str> = prose.collect();
    let text = lines.join("\n");
    let targets = text.split("](").skip(1).filter_map(|link| link.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a document's headings, as GitHub writes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let is_anchor_character = |c: &char| c.is_alphanumeric() || *c == '-' || *c == '_' || *c == ' ';
    headings
        .map(|title| title.to_lowercase().chars().filter(is_anchor_character).collect::<String>().replace(' ', "-"))
        .collect()
}

#[test]
fn link_targets_and_anchors_exist() {
    let mut count = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let name = document.display();
            assert!(target.exists(), "{name} links to {link}, which does not exist");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                assert!(anchors(&text).contains(anchor), "{name} links to {link}, which has no such heading");
            }
            count += 1;
        }
    }
    assert!(count > 20, "only {count} links were found: is the search for them broken?");
}

#[test]
fn every_document_is_linked_from_another() {
    let documents = documents();
    let mut linked = BTreeSet::new();
    for document in &documents {
        let text = std::fs::read_to_string(document).unwrap();
        for link in links(&text) {
            let path = document.parent().unwrap().join(link.split('#').next().unwrap_or_default());
            linked.extend(path.canonicalize().ok().filter(|path| path != document));
        }
    }
    for document in documents.iter().filter(|path| path.starts_with(root().join("docs"))) {
        assert!(linked.contains(document), "no document links to {}", document.display());
    }
}

/// The calls of `rung` in a document's `console` and `sh` blocks, as words. In `console` blocks commands start with `$ `.
fn rung_calls(text: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    for block in blocks(text).iter().filter(|block| ["console", "sh"].contains(&block.language.as_str())) {
        for line in &block.lines {
            let line = match (block.language.as_str(), line.strip_prefix("$ ")) {
                ("sh", None) => line,
                (_, Some(line)) => line,
                _ => continue,
            };
            let line = line.split(" #").next().unwrap_or_default();
            let words: Vec<String> =
                line.split_whitespace().map(|word| word.trim_matches(['"', '\'']).to_owned()).collect();
            if words.first().is_some_and(|word| word == "rung") {
                calls.push(words[1..].to_vec());
            }
        }
    }
    calls
}

#[test]
fn commands_and_options_in_the_documents_exist() {
    let mut pages: BTreeMap<Vec<String>, String> = BTreeMap::new();
    let mut help = |words: &[String]| -> String {
        let page = pages.entry(words.to_vec()).or_insert_with(|| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = command(&[&words[..], &["--help"]].concat()).output().unwrap();
            assert!(output.status.success(), "rung {} is not a command", words.join(" "));
            String::from_utf8(output.stdout).unwrap()
        });
        page.clone()
    };
    let mut count = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for words in rung_calls(&text) {
            let has_subcommand =
                words.len() > 1 && help(&words[..1]).contains("Usage: rung") && help(&words[..1]).contains("<COMMAND>");
            let page = help(&words[..if has_subcommand { 2 } else { 1 }]);
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap_or_default();
                let is_known =
                    page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == option);
                assert!(is_known, "{}: rung {} has no option {option}", document.display(), words.join(" "));
            }
            count += 1;
        }
    }
    assert!(count > 40, "only {count} commands were found: is the search for them broken?");
}

#[test]
fn every_command_is_on_the_page_of_its_group() {
    let help = String::from_utf8(command(&["--help"]).output().unwrap().stdout).unwrap();
    let mut group = None;
    let mut count = 0;
    for line in help.lines() {
        if let Some(title) = line.strip_suffix(':').filter(|title| !title.starts_with(' ')) {
            let file = title.split(' ').next().unwrap_or_default().to_lowercase();
            group = std::fs::read_to_string(root().join("docs/commands").join(file + ".md")).ok();
        } else if let (Some(page), Some(name)) =
            (&group, line.strip_prefix("  ").and_then(|line| line.split(' ').next()))
        {
            let name = name.trim();
            assert!(page.contains(&format!("`rung {name}")), "the page of its group does not show `rung {name}`");
            count += 1;
        }
    }
    assert!(count > 25, "only {count} commands were found: is the search for them broken?");
}

#[test]
fn rust_example_of_the_readme_is_a_doc_test() {
    let example = std::fs::read_to_string(root().join("crates/rung-theory/src/lib.rs")).unwrap();
    let page = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks: Vec<_> = blocks(&page).into_iter().filter(|block| block.language == "rust").collect();
    assert_eq!(blocks.len(), 1);
    for line in &blocks[0].lines {
        assert!(example.contains(format!("//! {line}").trim_end()), "not in the example of rung-theory: {line}");
    }
}

#[test]
fn contributing_has_a_recipe_for_every_kind_of_addition() {
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
