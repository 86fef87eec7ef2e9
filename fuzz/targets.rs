//! Fuzz targets: every parser of untrusted bytes as a function that must not panic or take much time or memory on any input.
//!
//! `cargo fuzz` runs one target at a time with coverage; `crates/rung/tests/corpora.rs` runs all of them on the stored corpora and on
//! mutated inputs, without a nightly toolchain.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rung_ask::prompt::{PromptWriter, Variant, numerals, parse_task};
use rung_audit::AuditOptions;
use rung_theory::stack::{Defaults, Plan};
use rung_train::run::{Run, RunConfig, Trainer, checkpoint};
use rung_web::server::Server;

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets; the folder of `fuzz/corpus` with the same name has its seed inputs.
pub const TARGETS: &[Target] = &[
    ("stack", stack),
    ("task", task),
    ("certificate", certificate),
    ("config", config),
    ("gguf", gguf),
    ("safetensors", safetensors),
    ("tokenizer", tokenizer),
    ("vocabulary", vocabulary),
    ("checkpoint", checkpoint),
    ("run", run),
    ("sweep", sweep),
    ("record", record),
    ("witness", witness),
    ("construction", construction),
    ("reply", reply),
    ("page", page),
    ("request", request),
    ("index", index),
    ("resume", resume),
    ("text-witness", text_witness),
    ("ask-record", ask_record),
    ("conversion", conversion),
];

/// Finds a target by name.
///
/// # Panics
/// There is no such target.
pub fn find(name: &str) -> fn(&[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    target.unwrap_or_else(|| panic!("no target {name}")).1
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// The stack grammar: a parsed stack can be written and parsed again with the same rungs.
fn stack(bytes: &[u8]) {
    let Ok(plan) = Plan::parse(text(bytes), &Defaults::default()) else { return };
    let written = plan.to_stack().to_string();
    let sizes = Defaults { model_width: Some(plan.width), ..Defaults::default() };
    let reparsed = Plan::parse(&written, &sizes).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(reparsed.capacity().rungs, plan.capacity().rungs, "{written}");
}

/// Task specs: a parsed spec can be written and parsed again.
fn task(bytes: &[u8]) {
    let Ok(task) = rung_theory::task::parse(text(bytes)) else { return };
    let reparsed = rung_theory::task::parse(&task.spec()).unwrap_or_else(|error| panic!("{}: {error}", task.spec()));
    assert_eq!(reparsed.spec(), task.spec());
}

fn certificate(bytes: &[u8]) {
    let check = rung_theory::report::check_certificate(text(bytes));
    let explained = check.explained_json();
    if let Some(inequalities) = explained["inequalities"].as_array()
        && check.json()["accepted"] == true
    {
        assert_eq!(inequalities.last().map(|last| &last["holds"]), Some(&true.into()));
    }
}

fn config(bytes: &[u8]) {
    let _ = rung_audit::audit_text(text(bytes), "fuzz", &AuditOptions::default());
    let _ = rung_audit::lint::lint(text(bytes));
}

fn gguf(bytes: &[u8]) {
    let _ = rung_audit::audit_bytes(bytes, "fuzz", &AuditOptions::default());
}

fn safetensors(bytes: &[u8]) {
    let _ = rung_nn::tensor_file::Checksum::verify(bytes);
    let _ = rung_nn::checkpoint::read_metadata(bytes);
    let file = TempFile::write("model.safetensors", bytes);
    let _ = rung_nn::inspect(&file.0);
}

fn tokenizer(bytes: &[u8]) {
    let file = TempFile::write("tokenizer.json", bytes);
    if let Ok(Some(tokenizer)) = rung_tokenizer::Tokenizer::open(file.folder())
        && let Ok(tokens) = tokenizer.encode("one two, 3")
    {
        let _ = tokenizer.decode(&tokens);
    }
}

/// The vocabulary of a GGUF file.
fn vocabulary(bytes: &[u8]) {
    let file = TempFile::write("model.gguf", bytes);
    if let Ok(Some(tokenizer)) = rung_tokenizer::Tokenizer::open(&file.0)
        && let Ok(tokens) = tokenizer.encode("one two, 3")
    {
        let _ = tokenizer.decode(&tokens);
    }
}

/// A GGUF file whose weights are read into a network; those that are longer than any seed are left out, so that memory stays small.
fn checkpoint(bytes: &[u8]) {
    if bytes.len() > 1 << 18 {
        return;
    }
    let file = TempFile::write("model.gguf", bytes);
    if let Ok(checkpoint) = rung_nn::families::open::<f32>(&file.0) {
        let ops = rung_engine::Native::new();
        ops.bind_frozen(&checkpoint.weights);
        let _ = checkpoint.model.forward(&ops, &[0], 1, None);
    }
}

fn run(bytes: &[u8]) {
    let Ok(run) = RunConfig::read(text(bytes)).and_then(|config| config.resolve()) else { return };
    let reparsed = RunConfig::read(&run.config.to_toml()).and_then(|config| config.resolve());
    assert_eq!(reparsed.map(|run| run.config).ok(), Some(run.config));
}

fn sweep(bytes: &[u8]) {
    let _ = rung_train::sweep::SweepConfig::read(text(bytes)).and_then(|sweep| sweep.resolve());
}

fn record(bytes: &[u8]) {
    let file = TempFile::write("record.json", bytes);
    let _ = rung_train::run::RunRecord::read(&file.0);
}

fn witness(bytes: &[u8]) {
    let file = TempFile::write("witness.json", bytes);
    if let Ok(witness) = rung_falsify::Witness::read(&file.0) {
        // The memory that the model needs is checked before anything is built.
        let _ = witness.model.origin.check_memory(1 << 24);
    }
}

fn construction(bytes: &[u8]) {
    let file = TempFile::write("construction.json", bytes);
    let folder = file.folder();
    // A file without tensors, large enough for half a million weights of two bytes, so that a network of that size is built.
    let weights = std::fs::File::create(folder.join("model.safetensors")).and_then(|file| file.set_len(1 << 20));
    weights.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let _ = rung_nn::Network::<f32>::open(folder);
}

fn reply(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    let _ = rung_ask::server::reply::parse_llama_cpp("fuzz", &value);
    let _ = rung_ask::server::reply::parse_completions("fuzz", &value);
    let _ = rung_ask::server::reply::parse_chat("fuzz", &value);
}

/// Requests of the page, with a file after a zero byte.
fn page(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let request = text(&bytes[..end]);
    // Searches and forward passes are skipped, because their time is not bounded.
    if !["bound", "map", "rung", "pass", "certify"].iter().any(|slow| request.contains(slow)) {
        let _ = rung_web::answer(request, bytes.get(end + 1..).unwrap_or_default());
    }
}

/// HTTP requests to `rung serve` with a folder of runs: answers contain nothing from outside the folder, and requests for other hosts
/// are rejected.
fn request(bytes: &[u8]) {
    const SECRET: &str = "outside-of-the-folder";
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("rung-fuzz-serve-{}", std::process::id()));
        let (run, outside) = (folder.join("runs/first"), folder.join("outside"));
        let record =
            |id: &str| format!("{{\"id\": \"{id}\", \"config\": {{\"stack\": \"full\", \"task\": \"parity\"}}}}");
        let write = |folder: &Path, id: &str| {
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(folder.join("record.json"), record(id)))
        };
        let result = write(&run, "first").and_then(|()| write(&outside, SECRET));
        let server = result.and_then(|()| Server::listen(([127, 0, 0, 1], 0).into(), Some(folder.join("runs"))));
        server.unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    });
    // Seed inputs have `HOST` where the server's address belongs.
    let host = server.address().to_string();
    let bytes = String::from_utf8_lossy(bytes).replace("HOST", &host);
    let Some((status, body)) = server.respond(bytes.as_bytes()) else { return };
    assert!(!String::from_utf8_lossy(&body).contains(SECRET), "{bytes}");
    assert!(status != 200 || bytes.contains(&host) || bytes.contains("localhost"), "{bytes}");
}

/// The index of a checkpoint in several files, none of which exists.
fn index(bytes: &[u8]) {
    let file = TempFile::write("model.safetensors.index.json", bytes);
    let _ = rung_nn::weight_files::WeightFiles::open(file.folder());
}

/// The progress in a checkpoint of a run that is otherwise valid, with a valid checksum.
fn resume(bytes: &[u8]) {
    const CONFIG: &str =
        "stack = 'full'\ntask = 'parity{length=3}'\n[model]\nheads = 1\nhead = 2\n[train]\nsteps = 4\nbatch = 1\n";
    static RUN: OnceLock<Run> = OnceLock::new();
    let run = RUN.get_or_init(|| {
        RunConfig::read(CONFIG).and_then(|config| config.resolve()).unwrap_or_else(|error| panic!("{error}"))
    });
    let Ok(mut trainer) = Trainer::new(run) else { return };
    let file = TempFile::write("resume.safetensors", b"");
    // After a step the optimizer has moments, which a checkpoint with steps of the optimizer must have too.
    if trainer.step().is_err() || checkpoint::save(&file.0, &trainer, 0.0).is_err() {
        return;
    }
    let stored = std::fs::read(&file.0).unwrap_or_default();
    let metadata = rung_nn::checkpoint::read_metadata(&stored);
    let config = metadata.get("rung.run").map_or("", String::as_str);
    let Ok(tensors) = safetensors::SafeTensors::deserialize(&stored) else { return };
    let entries = [("rung.run", config), ("rung.progress", text(bytes))];
    let Ok(forged) = rung_nn::tensor_file::encode(tensors.iter(), &entries) else { return };
    let written = std::fs::write(&file.0, forged);
    written.unwrap_or_else(|error| panic!("{}: {error}", file.0.display()));
    if checkpoint::load(&file.0, &mut trainer).is_ok() && trainer.progress().stop_reason.is_none() {
        let _ = trainer.step();
    }
}

/// A counterexample to an external checkpoint: the file, without the checkpoint.
fn text_witness(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let Ok(writer) = serde_json::from_value::<PromptWriter>(value["writer"].clone()) else { return };
    let Ok(task) = parse_task(value["task"].as_str().unwrap_or_default()) else { return };
    // The limits of `rung witness check`, smaller: the time of a prompt is not bounded otherwise.
    if writer.shots > 8 || task.classes() > 64 || task.length() > 1 << 10 {
        return;
    }
    let symbols = numerals(task.classes() as usize);
    let (seed, index) = (value["seed"].as_u64().unwrap_or_default(), value["index"].as_u64().unwrap_or_default());
    let _ = writer.task_question(&*task, &Variant::default(), &symbols, seed, index);
    if let Some(lookup) = value["changed"].as_u64() {
        let _ = writer.changed_question(&*task, &Variant::default(), &symbols, [seed, index], lookup as usize);
    }
}

fn ask_record(bytes: &[u8]) {
    let file = TempFile::write("ask.jsonl", bytes);
    let _ = rung_ask::record::read_record(&file.0);
}

/// The description of a converted checkpoint, whose original has a config and no weights.
fn conversion(bytes: &[u8]) {
    let file = TempFile::write("conversion.json", bytes);
    let base = file.folder().join("base");
    let config = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}"#;
    let written = std::fs::create_dir_all(&base).and_then(|()| std::fs::write(base.join("config.json"), config));
    written.unwrap_or_else(|error| panic!("{}: {error}", base.display()));
    let _ = rung_nn::families::open::<f32>(file.folder());
}

/// A file in a temporary folder that is removed on drop.
struct TempFile(PathBuf);

impl TempFile {
    fn write(name: &str, bytes: &[u8]) -> Self {
        let thread = format!("{:?}", std::thread::current().id());
        let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
        let folder = std::env::temp_dir().join(format!("rung-fuzz-{}-{thread}", std::process::id()));
        let path = folder.join(name);
        let result = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, bytes));
        result.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    fn folder(&self) -> &Path {
        self.0.parent().unwrap_or_else(|| Path::new("."))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(folder) = self.0.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
