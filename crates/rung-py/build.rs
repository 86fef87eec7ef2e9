//! Asks the linker to merge identical functions (identical code folding), if it can. Monomorphised generic kernels have many identical
//! copies; merging them makes the module a third smaller.

use std::env;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const FOLDING_FLAG: &str = "-Wl,--icf=all";

/// Whether the linker accepts the flag, tested by linking an empty library. Only LLD and gold do.
fn linker_supports_folding() -> bool {
    let variable = |name| env::var(name).unwrap_or_default();
    let link_argument = format!("link-arg={FOLDING_FLAG}");
    let library = Path::new(&variable("OUT_DIR")).join("probe.so");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args([
        "-",
        "--crate-name=probe",
        "--crate-type=cdylib",
        "--target",
        &variable("TARGET"),
        "-C",
        &link_argument,
        "-o",
    ]);
    compiler.arg(library).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = compiler.spawn() else { return false };
    let is_written = child.stdin.take().is_some_and(|mut input| input.write_all(b"\n").is_ok());
    child.wait().is_ok_and(|status| is_written && status.success())
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") && linker_supports_folding() {
        println!("cargo:rustc-link-arg-cdylib={FOLDING_FLAG}");
    }
}
