//! Where configs come from: a file, a directory that holds one, standard input, a preset, a GGUF file.
//!
//! The format is recognised by the first bytes, never by the file's name.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::json::{JsonValue, MAX_BYTES};
use crate::{Audit, AuditError, AuditOptions, audit, audit_preset, audit_text, gguf, preset_text};

/// Audits the model that a user names: `-` for standard input, a file, a directory that holds `config.json`, or a preset.
///
/// # Errors
/// There is no such file, directory or preset, or the config is malformed.
pub fn audit_named(name: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    if name == "-" {
        return audit_reader(std::io::stdin().lock(), "stdin", options);
    }
    let path = Path::new(name);
    if path.exists() { audit_path(path, options) } else { audit_named_preset(name, options) }
}

fn audit_named_preset(name: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    // A name with a path separator or a file extension is meant as a path.
    let looks_like_path = name.contains(['/', '\\'])
        || Path::new(name).extension().is_some_and(|extension| extension == "json" || extension == "gguf");
    if looks_like_path && preset_text(name).is_none() {
        return Err(AuditError::NotFound { name: name.to_owned(), hint: String::new() });
    }
    audit_preset(name, options)
}

/// Audits a file, or the `config.json` of a directory.
///
/// # Errors
/// It cannot be read, or is malformed.
pub fn audit_path(path: &Path, options: &AuditOptions) -> Result<Audit, AuditError> {
    let config_path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let io_error =
        |error: std::io::Error| AuditError::Io { path: config_path.display().to_string(), why: error.to_string() };
    let file = std::fs::File::open(&config_path).map_err(io_error)?;
    let mut audit =
        audit_reader(std::io::BufReader::with_capacity(1 << 16, file), &config_path.display().to_string(), options)?;
    audit.source = config_path.display().to_string();
    Ok(audit)
}

/// The most directory entries that [`find_configs`] looks at.
const MAX_FILES: usize = 1 << 20;

/// The configs in a folder that has no `config.json` itself: its `.json` and `.gguf` files and the `config.json` of its
/// subfolders, in alphabetical order; nothing if there are none.
pub fn find_configs(folder: &Path) -> Option<Vec<PathBuf>> {
    if !folder.is_dir() || folder.join("config.json").exists() {
        return None;
    }
    let mut configs: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).ok()?.flatten().take(MAX_FILES) {
        let path = entry.path();
        let is_config = path.extension().is_some_and(|extension| extension == "json" || extension == "gguf");
        if path.is_dir() && path.join("config.json").is_file() {
            configs.push(path.join("config.json"));
        } else if is_config && path.is_file() {
            configs.push(path);
        }
    }
    configs.sort();
    Some(configs).filter(|configs| !configs.is_empty())
}

/// Audits what a reader returns: the text of a config, or a GGUF file of which only the header is read.
///
/// # Errors
/// It cannot be read, is longer than any config, or is malformed.
pub fn audit_reader(mut reader: impl Read, model: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    let io_error = |error: std::io::Error| AuditError::Io { path: model.to_owned(), why: error.to_string() };
    let mut bytes = Vec::with_capacity(4);
    reader.by_ref().take(4).read_to_end(&mut bytes).map_err(io_error)?;
    if bytes == gguf::MAGIC {
        let (value, name) = gguf::read(bytes.as_slice().chain(reader))?;
        let architecture = match value.get("model_type") {
            Some(JsonValue::String(architecture)) => architecture.as_str(),
            _ => "",
        };
        let config = Config::new(&value, &value, architecture, true);
        return audit::audit(&config, name.as_deref().unwrap_or(model), model, options);
    }
    reader.take(MAX_BYTES + 1 - bytes.len() as u64).read_to_end(&mut bytes).map_err(io_error)?;
    audit_bytes(&bytes, model, options)
}

/// Audits bytes that may be a GGUF file or the text of a config.
///
/// # Errors
/// They are malformed.
pub fn audit_bytes(bytes: &[u8], model: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    if bytes.starts_with(gguf::MAGIC) {
        return audit_reader(bytes, model, options);
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(AuditError::TooLong { limit: MAX_BYTES });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| AuditError::NotUtf8 { offset: error.valid_up_to() })?;
    audit_text(text, model, options)
}
