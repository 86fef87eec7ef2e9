//! Functions that the WebAssembly module exports to JavaScript: bytes in, bytes out, no generated code.
//!
//! ```text
//! input(n) -> address     a buffer of n bytes for JavaScript to fill: a request, then optionally a zero byte and a file
//! run()    -> 0 or 1      answers the request; 1 if the answer is an error message
//! output() -> address     the answer; output_length() is its length in bytes
//! ```
//!
//! Rust never dereferences a pointer from JavaScript: it only returns the addresses of its own buffers.

use std::cell::RefCell;

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A buffer of `length` bytes for a request.
#[allow(unsafe_code, reason = "only the symbol's name is fixed; the function itself is safe")]
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(length, 0);
        input.as_mut_ptr()
    })
}

/// Answers the request in the input buffer; 1 if the answer is an error message.
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
    let (status, text) = match result {
        Ok(text) => (0, text),
        Err(text) => (1, text),
    };
    OUTPUT.set(text);
    status
}

/// The address of the answer.
#[allow(unsafe_code, reason = "only the symbol's name is fixed; the function itself is safe")]
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}

/// The length of the answer in bytes.
#[allow(unsafe_code, reason = "only the symbol's name is fixed; the function itself is safe")]
#[unsafe(no_mangle)]
pub extern "C" fn output_length() -> usize {
    OUTPUT.with_borrow(String::len)
}
