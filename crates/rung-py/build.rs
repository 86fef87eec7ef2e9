//! Lets the linker fold functions of the same code, where it can: generic kernels make the module a third smaller that way.

use std::env;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const FOLD: &str = "-Wl,--icf=all";

/// Whether an empty library can be linked with it. Only LLD and gold know it.
fn linker_folds() -> bool {
    let variable = |name| env::var(name).unwrap_or_default();
    let link = format!("link-arg={FOLD}");
    let library = Path::new(&variable("OUT_DIR")).join("probe.so");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args([
        "-",
        "--crate-name=probe",
        "--crate-type=cdylib",
        "--target",
        &variable("TARGET"),
        "-C",
        &link,
        "-o",
    ]);
    compiler.arg(library).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = compiler.spawn() else { return false };
    let written = child.stdin.take().is_some_and(|mut input| input.write_all(b"\n").is_ok());
    child.wait().is_ok_and(|status| written && status.success())
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") && linker_folds() {
        println!("cargo:rustc-link-arg-cdylib={FOLD}");
    }
}
