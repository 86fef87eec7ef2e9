//! Tensors for training small attention models on a CPU.
//!
//! A model is written once, against the trait [`Ops`]: a few primitive operations, and the fused operations that attention models
//! spend their time in, each also written as a function of primitives. The executor [`Native`] runs them on this machine's CPU, with
//! hand-written kernels and their gradients; a [`DataParallel`] has one executor per core and adds up the gradients.
//!
//! ```
//! use rung_engine::{AdamWConfig, Native, Ops, Parameters, DataParallel};
//!
//! // Fit y = 2 x with one weight.
//! let mut weights = Parameters::<f32>::new();
//! let weight = weights.add("weight", &[1, 1], vec![0.0]).id();
//! let data: Vec<f32> = (0..8).map(|item| item as f32 / 8.0).collect();
//! let mut trainer = DataParallel::new(2, 4);
//! let mut optimizer = AdamWConfig { rate: 0.1, decay: 0.0, ..AdamWConfig::default() }.init();
//! for _ in 0..200 {
//!     trainer.compute_gradient(&weights, data.len(), |ops: &Native<f32>, items| {
//!         let x = ops.constant(&[items.len(), 1], &data[items.clone()]);
//!         let error = ops.sub(&ops.linear(&x, &ops.parameter(weight), None), &ops.scale(&x, 2.0));
//!         ops.scale(&ops.sum_all(&ops.mul(&error, &error)), 1.0 / data.len() as f64)
//!     })?;
//!     optimizer.update(&mut weights, trainer.gradient(), 1.0);
//! }
//! assert!((weights.get(weight)[0] - 2.0).abs() < 0.01);
//! # Ok::<(), rung_engine::StepError>(())
//! ```
//!
//! - [`ops`]: the trait and its conventions;
//! - [`composed`]: every fused operation as a function of primitives, the reference for its kernel;
//! - [`Parameters`]: the weights, by name, in one flat array;
//! - [`AdamW`] and [`Schedule`]: the optimiser and its learning rate.

mod choice;
pub mod composed;
mod kernels;
mod native;
pub mod ops;
mod optimizer;
mod parameters;
mod repulsion;
mod scalar;
mod schedule;
mod shape;

pub use choice::BlockChoice;
pub use kernels::top_k::top_k;
pub use kernels::vectorised::vector_instructions;
pub use native::{DataParallel, Native, NonFinite, OperationProfile, StepError, StepOutcome, Tensor};
pub use ops::{
    AccumulatorRounding, AttentionInputs, AttentionMask, Binary, BlockAttention, Decay, GatedScan, GeneralDelta,
    Indexer, Ops, Recurrence, Rounding, Unary, rotary_angles, rotary_frequencies,
};
pub use optimizer::{AdamW, AdamWConfig};
pub use parameters::{NewParameter, Parameter, ParameterEntry, Parameters, Role};
pub use repulsion::Repulsion;
pub use scalar::Scalar;
pub use schedule::{LearningRateDecay, Schedule};
pub use shape::{MAX_RANK, Shape};
