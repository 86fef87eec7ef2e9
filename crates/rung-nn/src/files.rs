//! Names of the files of a network's folder, and of the metadata in its weights.

/// The config of a run.
pub const RUN_CONFIG: &str = "run.toml";
/// The weights of a finished run.
pub const RUN_WEIGHTS: &str = "weights.safetensors";
/// The description of a construction.
pub const CONSTRUCTION: &str = "construction.json";
/// The weights of a construction.
pub const CONSTRUCTION_WEIGHTS: &str = "model.safetensors";
/// The stack of a construction alone, with every number.
pub const CONSTRUCTION_STACK: &str = "stack.txt";
/// The layers and registers of a construction, for people.
pub const CONSTRUCTION_README: &str = "README.md";

/// The metadata key of a run's config, as TOML.
pub const RUN_KEY: &str = "rung.run";
/// The metadata key of the stack, with every number.
pub const STACK_KEY: &str = "rung.stack";
/// The metadata key of the width of the residual stream.
pub const WIDTH_KEY: &str = "rung.width";
