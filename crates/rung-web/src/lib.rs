//! The web page: shows in the browser what a stack can compose and what it costs.
//!
//! Everything the page shows is an answer to a [`Request`]: JSON in, JSON out, the same text that the program prints with
//! `--json`. The page sends requests in one of two ways, with the same answers:
//!
//! ```text
//! static files    page --> rung.wasm (this crate, compiled for wasm32-unknown-unknown) --> answer
//! rung serve      page --> POST /api on loopback --> the same function in the program   --> answer
//! ```
//!
//! So an ordinary `cargo build` needs neither Node nor the WebAssembly target, and the page of `rung serve` is never older than
//! the program. `cargo run -p rung-web --example build_page -- FOLDER` writes the static files.
//!
//! - [`answer`]: the only entry point; [`request`] has the types, `answers` and `pass` the calls into the other crates;
//! - [`files`]: the page's files, embedded; [`server`]: `rung serve`;
//! - `abi`: four exported functions for WebAssembly, without generated code.
//!
//! ```
//! # #[cfg(feature = "audit")] {
//! let request = r#"{"ask": "audit", "model": {"preset": "qwen3.5-9b"}, "context": 131072}"#;
//! let answer = rung_web::answer(request, &[])?;
//! assert!(answer.contains(r#""rungs": 8"#));
//!
//! let error = rung_web::answer(r#"{"ask": "weather"}"#, &[]).unwrap_err();
//! assert!(error.starts_with("the request: unknown variant `weather`"));
//! # }
//! # Ok::<(), String>(())
//! ```

#[cfg(target_arch = "wasm32")]
mod abi;
#[cfg(feature = "audit")]
mod answers;
#[cfg(feature = "audit")]
mod design;
pub mod files;
#[cfg(feature = "audit")]
mod model;
#[cfg(feature = "pass")]
mod pass;
pub mod request;
#[cfg(all(feature = "audit", feature = "pass", not(target_arch = "wasm32")))]
pub mod server;

pub use request::Request;

/// Answers a request with the text that the program prints. `file` is the file that was sent with it, empty if there is none.
///
/// # Errors
/// A message for users that says what is wrong with the request or the model.
pub fn answer(request: &str, file: &[u8]) -> Result<String, String> {
    let request: Request = serde_json::from_str(request).map_err(|error| format!("the request: {error}"))?;
    let value = match &request {
        #[cfg(feature = "pass")]
        Request::Pass(request) => pass::pass(request)?,
        #[cfg(feature = "audit")]
        other => answers::answer(other, file)?,
        #[cfg(not(feature = "audit"))]
        _ => {
            let _ = file;
            return Err("this module answers forward passes only".to_owned());
        }
    };
    Ok(format!("{value:#}\n"))
}

/// An error's message.
fn error_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
