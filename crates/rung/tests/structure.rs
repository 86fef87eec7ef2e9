//! Checks the structure of the workspace: CONTRIBUTING.md says which crate uses which, and modules at the top of a crate form no cycle.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::documents::{root, rust_files};

/// Uses of one top-level module by another that are part of a cycle: crate, module, used module, and the reason.
const ALLOWED_CYCLES: [(&str, &str, &str, &str); 1] = [(
    "rung-engine",
    "scalar",
    "kernels",
    "a number type names the workspace of its matrix products and its vector transposition",
)];

/// The names of the workspace's crates.
fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = entries
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// The crates of the workspace that a crate uses, with `?` behind those that only a feature needs.
fn used_crates(name: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
    let lines =
        text.lines().skip_while(|line| *line != "[dependencies]").skip(1).take_while(|line| !line.starts_with('['));
    let dependency = |line: &str| {
        let used = line.split(['.', ' ', '=']).next().filter(|used| *used == "rung" || used.starts_with("rung-"))?;
        let optional = if line.contains("optional = true") { "?" } else { "" };
        Some(format!("{}{optional}", used.trim_start_matches("rung-")))
    };
    lines.filter_map(dependency).collect()
}

#[test]
fn contributing_says_which_crate_uses_which() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let mut listed: Vec<String> = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| `crates/")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[0].trim_matches('`').trim_start_matches("crates/");
        let uses: BTreeSet<String> =
            cells[2].split(", ").filter(|used| *used != "nothing of ours").map(str::to_owned).collect();
        assert_eq!(uses, used_crates(name), "the crates that {name} uses, in CONTRIBUTING.md and in its Cargo.toml");
        for dependency in &uses {
            let dependency = dependency.trim_end_matches('?');
            assert!(
                listed.iter().any(|above| above.trim_start_matches("rung-") == dependency),
                "{name} uses {dependency}, which stands below it"
            );
        }
        listed.push(name.to_owned());
    }
    listed.sort();
    assert_eq!(listed, crates(), "CONTRIBUTING.md lists every crate");
}

/// The code of a file without comments and without its module of tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The words that follow `path` in a text: `a` of `crate::a::b`, and `a` and `b` of `crate::{a, b::c}`.
fn names_after<'a>(text: &'a str, path: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (start, _) in text.match_indices(path) {
        // `$crate` is the crate in a macro, which others expand.
        let before = text[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &text[start + path.len()..];
        match rest.strip_prefix('{') {
            Some(group) => {
                let group = group.split(';').next().unwrap_or_default();
                names.extend(group.split(',').filter_map(|item| words(item).next()));
            }
            None => names.extend(words(rest).next()),
        }
    }
    names
}

/// The other top-level modules that each top-level module of a crate uses.
fn module_uses(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let source = root().join("crates").join(name).join("src");
    let Ok(root_text) = std::fs::read_to_string(source.join("lib.rs")) else { return BTreeMap::new() };
    let declared = root_text.lines().filter_map(|line| line.split_once("mod ").map(|(_, rest)| rest));
    let modules: BTreeSet<&str> = declared.filter_map(|rest| rest.strip_suffix(';')).collect();
    // Items that the root exports belong to the module that declares them.
    let mut owner: BTreeMap<&str, &str> = BTreeMap::new();
    for statement in root_text.split(';') {
        let Some((_, path)) = statement.rsplit_once("use ") else { continue };
        let Some((module, items)) = path.split_once("::").filter(|(module, _)| modules.contains(module)) else {
            continue;
        };
        owner.extend(words(items).map(|item| (item, module)));
    }
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in rust_files(&source) {
        let relative = path.strip_prefix(&source).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        let is_test = relative.to_str().unwrap().split(['/', '.']).any(|part| part == "tests");
        if is_test || !modules.contains(module) {
            continue;
        }
        let code = code(&path);
        let mut names = names_after(&code, "crate::");
        if path.parent() == Some(&*source) {
            names.extend(names_after(&code, "super::"));
        }
        let targets = names.into_iter().filter_map(|name| modules.get(name).or_else(|| owner.get(name)));
        let targets = targets.filter(|target| **target != module).map(|target| (*target).to_owned());
        uses.entry(module.to_owned()).or_default().extend(targets);
    }
    uses
}

/// Modules that a module uses, directly or through others.
fn reachable<'a>(uses: &'a BTreeMap<String, BTreeSet<String>>, module: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![module];
    while let Some(module) = open.pop() {
        for used in uses.get(module).into_iter().flatten() {
            if found.insert(used.as_str()) {
                open.push(used);
            }
        }
    }
    found
}

#[test]
fn top_level_modules_form_no_cycle() {
    let mut use_count = 0;
    for name in crates() {
        let mut uses = module_uses(&name);
        for (_, module, used, reason) in ALLOWED_CYCLES.iter().filter(|(krate, ..)| *krate == name) {
            let was_used = uses.get_mut(*module).is_some_and(|all| all.remove(*used));
            assert!(was_used, "{name}: {module} no longer uses {used} ({reason}); remove the exception");
        }
        use_count += uses.values().map(BTreeSet::len).sum::<usize>();
        for (module, used) in uses.iter().flat_map(|(module, all)| all.iter().map(move |used| (module, used))) {
            assert!(
                !reachable(&uses, used).contains(module.as_str()),
                "{name}: `{module}` uses `{used}`, which uses `{module}`, directly or through others"
            );
        }
    }
    assert!(use_count > 200, "only {use_count} uses were found: is the search for them broken?");
}
