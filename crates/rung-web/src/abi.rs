//! The border to JavaScript: bytes in, bytes out, no generated code.
//!
//! ```text
//! input(n) -> address     room for n bytes, which JavaScript fills: a request, then optionally a zero byte and a file
//! run()    -> 0 or 1      answers it; 1 if the answer is an error message
//! output() -> address     the answer, and output_length() how long it is
//! ```
//!
//! Rust never follows a pointer from outside: it hands out the addresses of its own buffers and reads them as its own.

use std::cell::RefCell;

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Room for a request.
#[allow(unsafe_code, reason = "only the symbol's name is fixed; the function itself is safe")]
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(length, 0);
        input.as_mut_ptr()
    })
}

/// Answers the request.
#[allow(unsafe_code, reason = "only the symbol's name is fixed; the function itself is safe")]
#[unsafe(no_mangle)]
pub extern "C" fn run() -> u32 {
    let input = INPUT.take();
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let file = input.get(end + 1..).unwrap_or_default();
    let result = match std::str::from_utf8(&input[..end]) {
        Ok(request) => crate::answer(request, file),
        Err(_) => Err("the request is not UTF-8".to_owned()),
    };
    let (failed, text) = match result {
        Ok(text) => (0, text),
        Err(text) => (1, text),
    };
    OUTPUT.set(text);
    failed
}

/// Where the answer is.
#[allow(unsafe_code, reason = "only the symbol's name is fixed; the function itself is safe")]
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}

/// How long it is.
#[allow(unsafe_code, reason = "only the symbol's name is fixed; the function itself is safe")]
#[unsafe(no_mangle)]
pub extern "C" fn output_length() -> usize {
    OUTPUT.with_borrow(String::len)
}
