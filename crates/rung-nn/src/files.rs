//! Names of the files of a network's folder, and of the metadata in its weights.

/// The config of a run.
pub const RUN_CONFIG: &str = "run.toml";
/// The weights of a finished run.
pub const RUN_WEIGHTS: &str = "weights.safetensors";
/// The record of a finished run.
pub const RUN_RECORD: &str = "record.json";
/// The checkpoint from which a run is resumed; deleted when it is finished.
pub const RUN_CHECKPOINT: &str = "resume.safetensors";
/// The description of which layers of an external checkpoint were replaced.
pub const CONVERSION: &str = "conversion.json";
/// The weights of the mixers that replaced them.
pub const CONVERSION_WEIGHTS: &str = "mixers.safetensors";
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
/// The metadata key of the progress of a run, in its checkpoint.
pub const PROGRESS_KEY: &str = "rung.progress";
