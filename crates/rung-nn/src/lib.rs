//! Token mixers and models: builds and runs the network of a plan.
//!
//! A [`Plan`](rung_theory::stack::Plan) has the mixers of a stack and their sizes. [`ModelConfig::init`] checks that every layer can be
//! built and counts the weights before it allocates any, then adds them to a [`Parameters`](rung_engine::Parameters) store under names
//! that a PyTorch user recognises, and returns a [`Model`] of handles.
//! The model is generic over [`Ops`](rung_engine::Ops), so that training in `f32`, gradient checks in `f64` and other
//! executors run the same code.
//!
//! ```
//! use rung_engine::{Native, Ops, Parameters};
//! use rung_nn::{InputConfig, ModelConfig};
//! use rung_theory::stack::{Defaults, Plan};
//! use rung_theory::task::seeded;
//!
//! let defaults = Defaults { heads: 2, head_dim: 8, ..Defaults::default() };
//! let plan = Plan::parse("linear full+gdn", &defaults)?;
//! let mut weights = Parameters::<f32>::new();
//! let config = ModelConfig { input: InputConfig::Vocabulary(10), classes: 10, ..ModelConfig::default() };
//! let model = config.init(&plan, &mut weights, &mut seeded(0))?;
//!
//! let ops = Native::new();
//! ops.bind_frozen(&weights);
//! let tokens = [3, 1, 4, 1, 5];
//! let (hidden, state) = model.forward(&ops, &tokens, 1, None)?; // one row of five tokens
//! let (next, _) = model.forward(&ops, &[9], 1, Some(&state))?; // one more, from the state
//! assert_eq!(ops.shape(&model.logits(&ops, &next))[..], [1, 1, 10]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`mixer`]: the token mixers, one file each, and the trait for more;
//! - [`model`]: embeddings, layers, unembedding (`lm_head`);
//! - [`param_builder`]: adds weights; [`submodules`]: projections, norms and recurrences that mixers share;
//! - [`position`]: rotary positions and ALiBi;
//! - [`precision`]: rounding of states and messages to few bits, as the theory counts them;
//! - [`files`]: names of the files of a network's folder;
//! - [`checkpoint`]: safetensors files, [`tensor_file`]: their bytes, with a [`hash`] as checksum, [`inventory`]: the tensors of a file,
//!   from its header only; [`mod@file`]: atomic writing of files;
//! - [`families`]: external checkpoints as networks, and [`weight_files`]: their tensors;
//! - [`export`]: constructions and runs as checkpoints that external programs run;
//! - [`network`]: a model with its plan, task and weights, opened from a folder and saved to one;
//! - [`construct`]: explicit weights for the tasks of the theory;
//! - [`observer`]: an executor with an interceptor; [`trace`]: a recorded forward pass; [`protocol`]: a forward pass as a communication
//!   protocol whose bits are counted;
//! - [`linearized`]: an executor that freezes gates, so that a forward pass is one linear operator.

pub mod checkpoint;
pub mod construct;
pub mod error;
pub mod export;
pub mod families;
pub mod file;
pub mod files;
mod forwarding_weights;
pub mod hash;
mod instances;
pub mod inventory;
pub mod linearized;
pub mod memory;
pub mod mixer;
pub mod model;
pub mod network;
#[cfg(test)]
mod no_fused_kernels;
mod norm;
pub mod observer;
pub mod param_builder;
pub mod position;
pub mod precision;
pub mod protocol;
mod register;
mod state;
pub mod submodules;
pub mod tensor_file;
pub mod trace;
pub mod weight_files;

pub use checkpoint::{CheckpointError, load, save, save_plan};
pub use error::ModelError;
pub use inventory::{Inventory, inspect};
pub use mixer::{Builtin, MixerConfig, SharedTensor, State, TokenMixer};
pub use model::{
    FeedForwardConfig, Gelu, Hooks, InputConfig, MixerIndex, Model, ModelConfig, ModelState, NoHooks, NormConfig,
    NormPlacement,
};
pub use network::{Network, NetworkError, Provenance};
pub use param_builder::{BuildSettings, Init, LayerDepth, ParamBuilder, ParamShape};
pub use position::Positions;
pub use precision::SimulatedPrecision;
