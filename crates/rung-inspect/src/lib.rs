//! Instruments that look inside of a network.
//!
//! * [`trace`] shows a forward pass: who reads whom, and what the registers hold; [`protocol`] counts the bits of one.
//! * [`analysis`] has one instrument per file, and [`analysis::convert`], which turns layers of one kind into another.

pub mod analysis;
pub mod protocol;
pub mod trace;
