//! Writes the web page as a folder of static files: `cargo run -p rung-web --example build_page -- FOLDER`.
//!
//! Needs the target wasm32-unknown-unknown (`rustup target add wasm32-unknown-unknown`). If `wasm-opt` of Binaryen is on
//! the path, or `WASM_OPT` names it, it shrinks the modules.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rung_web::files::FILES;

fn main() -> ExitCode {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("target/page"), PathBuf::from);
    match build(&folder) {
        Ok(bytes) => {
            println!(
                "{}: {} files, {bytes} bytes; serve it with any file server",
                folder.display(),
                FILES.len() + MODULES.len()
            );
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Writes all files into a folder and returns their total bytes.
fn build(folder: &Path) -> Result<usize, String> {
    let io_error = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(io_error)?;
    let mut bytes = 0;
    for file in FILES {
        std::fs::write(folder.join(file.name), file.bytes).map_err(io_error)?;
        bytes += file.bytes.len();
    }
    for (name, feature) in MODULES {
        let target = folder.join(name);
        std::fs::copy(compile(feature)?, &target).map_err(io_error)?;
        shrink(&target)?;
        bytes += std::fs::metadata(&target).map_err(io_error)?.len() as usize;
    }
    Ok(bytes)
}

/// The WebAssembly modules and the features they are built with; the second is loaded only when a forward pass is shown.
const MODULES: [(&str, &str); 2] = [("rung.wasm", "audit"), ("pass.wasm", "pass")];

/// Compiles a module and returns its path.
fn compile(feature: &str) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--package", "rung-web", "--lib", "--profile", "web", "--target", "wasm32-unknown-unknown"])
        .args(["--no-default-features", "--features", feature])
        .current_dir(&root)
        // Keeps the paths of this machine out of the module.
        .env("CARGO_ENCODED_RUSTFLAGS", remap_flags(&root))
        .status()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if !status.success() {
        return Err(
            "the module did not compile; is the target there? `rustup target add wasm32-unknown-unknown`".to_owned()
        );
    }
    Ok(target.join("wasm32-unknown-unknown/web/rung_web.wasm"))
}

/// Compiler flags that replace machine paths.
fn remap_flags(root: &Path) -> String {
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let mut flags: Vec<String> = home.iter().map(|home| format!("--remap-path-prefix={home}=cargo")).collect();
    if let Ok(root) = root.canonicalize() {
        flags.push(format!("--remap-path-prefix={}=rung", root.display()));
    }
    flags.join("\x1f")
}

/// Shrinks the module if Binaryen is installed.
fn shrink(module: &Path) -> Result<(), String> {
    let program = std::env::var_os("WASM_OPT").unwrap_or_else(|| "wasm-opt".into());
    let result = Command::new(&program).args(["-Os", "--all-features"]).arg(module).arg("-o").arg(module).status();
    match result {
        Ok(status) if !status.success() => Err("wasm-opt failed".to_owned()),
        // Without `wasm-opt` the module works as well and is larger.
        _ => Ok(()),
    }
}
