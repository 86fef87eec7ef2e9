//! Tasks, stacks and bounds: what is known about an attention stack without running it.
//!
//! Three main modules, none of which uses tensors:
//!
//! - [`task`]: the synthetic tasks, one per file: definition, sampler, brute-force oracle, encoding.
//! - [`stack`]: the stack grammar (`linear*3 (full gdn*3)*12`) and the resolved [`stack::Plan`] that every other
//!   crate reads.
//! - [`bound`]: what a stack provably can and cannot do. Its [`bound::checker`] is the trusted core;
//!   [`bound::search`] proposes certificates, and returns only those that the checker accepts.
//!
//! And four small ones:
//!
//! - [`page`]: the pages of `rung explain`.
//! - [`report`]: results as JSON.
//! - [`spec`]: the syntax `name{key=value}` that stacks and tasks share.
//! - [`statistics`]: a confidence interval for accuracies.
//!
//! ```
//! use rung_theory::stack::{Defaults, Plan};
//!
//! let plan = Plan::parse("(gdn*3 full)*12", &Defaults::default())?;
//! assert_eq!(plan.capacity().rungs, 12);
//! # Ok::<(), rung_theory::stack::StackError>(())
//! ```

pub mod bound;
pub mod page;
pub mod report;
pub mod spec;
pub mod stack;
pub mod statistics;
pub mod task;

/// Every page of this crate.
pub fn pages() -> Vec<page::ExplainPage> {
    [task::pages(), stack::pages(), bound::pages()].concat()
}
