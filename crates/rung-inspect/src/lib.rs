//! Interpretability tools for networks.
//!
//! * [`trace`] shows a forward pass: which token attends to which, and what is stored in the residual stream. [`protocol`] counts the
//!   bits that a forward pass moves between parts of the prompt.
//! * [`analysis`] has one analysis per file, and [`analysis::convert`], which replaces full attention layers by recurrent ones.
//!
//! ```
//! use rung_inspect::trace::{TraceLimits, AnswerTrace};
//! use rung_nn::construct::{ConstructionRequest, build};
//! use rung_theory::task::{Prompt, seeded};
//!
//! let network = build::<f32>("U2", &ConstructionRequest { hops: 2, first_table_entries: 3, growth_factors: vec![2], ..ConstructionRequest::default() })?;
//! let mut prompt = Prompt::new();
//! network.task()?.sample_prompt(&mut seeded(0), &mut prompt);
//! let trace = AnswerTrace::record("U2", &network, prompt.tokens(), None, TraceLimits::default())?;
//! assert_eq!(Some(trace.answer), trace.expected); // the oracle agrees
//! assert_eq!(trace.layers.len(), 3); // one bounded-state layer and two look-ups
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod analysis;
pub mod protocol;
pub mod trace;
