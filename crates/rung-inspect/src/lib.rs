//! Instruments that look inside of a network.
//!
//! * [`trace`] shows a forward pass: who reads whom, and what the registers hold; [`protocol`] counts the bits of one.
//! * [`analysis`] has one instrument per file, and [`analysis::convert`], which turns layers of one kind into another.
//!
//! ```
//! use rung_inspect::trace::{TraceLimits, Picture};
//! use rung_nn::construct::{ConstructionRequest, build};
//! use rung_theory::task::{Prompt, seeded};
//!
//! let network = build::<f32>("U2", &ConstructionRequest { hops: 2, m: 3, n: vec![2], ..ConstructionRequest::default() })?;
//! let mut prompt = Prompt::new();
//! network.task()?.prompt(&mut seeded(0), &mut prompt);
//! let picture = Picture::take("U2", &network, prompt.tokens(), None, TraceLimits::default())?;
//! assert_eq!(Some(picture.answer), picture.expected); // the oracle agrees
//! assert_eq!(picture.layers.len(), 3); // a carrier and two look-ups
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod analysis;
pub mod protocol;
pub mod trace;
