//! The loops.
//!
//! A kernel is a function of slices: no tensors, no tape, no pool. Forward and backward of one operation live in one file.
//! Loops are plain safe Rust over slices, which the compiler turns into vector code if it knows the machine; a binary of a
//! plain `cargo build --release` does not, so the `vectorised!` macro builds each leaf loop three times (AVX-512, AVX2 with
//! fused multiply-add, and the target's baseline, which on aarch64 already has both) and picks one at run time.
//! Matrix products are built in the same way, out of the same safe loops.
//!
//! `unsafe` is needed for the call into a function built for another instruction set, in [`vectorised`], and in [`transpose`], whose
//! loop the compiler does not find.

#![expect(
    clippy::inline_always,
    reason = "a kernel is compiled for an instruction set only with what is inlined into it"
)]

#[macro_use]
pub(crate) mod vectorised;
pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod convolution;
pub(crate) mod delta;
pub(crate) mod gated;
pub(crate) mod layout;
pub(crate) mod left_to_right;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod pointwise;
pub(crate) mod product;
pub(crate) mod recurrence;
pub(crate) mod rotary;
pub(crate) mod scan;
pub(crate) mod transpose;
pub(crate) mod update;
