//! scratch
pub mod certificate;
pub mod checker;
mod convex;
mod estimate;
pub mod question;
mod relax;
pub mod search;
