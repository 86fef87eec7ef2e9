//! The inner loops of all operations.
//!
//! A kernel is a function of slices: no tensors, no tape, no pool. Forward and backward pass of one operation are in one file.
//! Loops are safe Rust over slices, which the compiler turns into vector code. An ordinary `cargo build --release` may not assume
//! AVX, so the `vectorised!` macro compiles each inner loop three times (AVX-512, AVX2 with fused multiply-add, and the target's
//! baseline, which on aarch64 has vectors and fused multiply-add) and picks one at run time. Matrix products use the same macro.
//!
//! `unsafe` is needed to call a function compiled for another instruction set, in [`vectorised`], for the intrinsics in
//! [`transpose`], and for the AMX instructions of large products, in `product/amx.rs`.

#![expect(
    clippy::inline_always,
    reason = "only code that is inlined into a kernel is compiled for its instruction set"
)]

#[macro_use]
pub(crate) mod vectorised;
pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod convolution;
pub(crate) mod delta;
pub(crate) mod gated;
pub(crate) mod heads;
pub(crate) mod indexer;
pub(crate) mod layout;
pub(crate) mod left_to_right;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod pointwise;
pub(crate) mod product;
pub(crate) mod recurrence;
pub(crate) mod rotary;
pub(crate) mod scan;
pub(crate) mod softmax;
pub(crate) mod tokens;
pub(crate) mod top_k;
pub(crate) mod transpose;
pub(crate) mod update;
