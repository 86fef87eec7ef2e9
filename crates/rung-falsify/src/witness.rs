//! The file format of a witness (a counterexample), so that anyone can check a failure.
//!
//! ```json
//! {
//!   "format": 2,
//!   "model": {"name": "linear", "origin": {"fresh": {"stack": "linear", "seed": 0, ..}}, "kept": {"bits": 4, "state": 2.0, "message": null},
//!             "fingerprint": "6c62.."},
//!   "task": "funccomp{hops=1,m=8,..}",
//!   "inputs": [[0, 8, ..], [0, 8, ..]],      two prompts with different answers, or one that is answered wrongly
//!   "question": 9,                           the position of the question
//!   "answers": [3, 5],                       by the oracle of the task
//!   "outputs": [1, 1],                       by the model
//!   "scores": [[..], [..]],                  logits at the question, to the bit
//!   "border": 8,                             from this token on the inputs are the same, and the state too, if there is one
//!   "state": [..],                           the state of both prompts before the border, if the stack has only a bounded state
//!   "blind": [8, 9],                         positions whose residual streams are the same after every layer
//!   "decomposition": null,                   the sets of the lower bound's proof, if they were built
//!   "digest": ".."                           hash of all of the above
//! }
//! ```
//!
//! The checker takes the model's origin and precision, the task, the prompts, the question and the first tables of the sets from the file,
//! and computes everything else. The search method is not in the file, since it cannot be computed from the prompts.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rung_nn::hash::Hash;
use serde::{Deserialize, Serialize};

use super::FalsifyError;
use super::target::{Origin, StatePrecision};
use rung_train::strict;

/// The format that is written and read. Format 1 also had the search method.
pub const FORMAT: u32 = 2;

/// Larger files are rejected.
const MAX_BYTES: u64 = 1 << 26;

/// The model that the witness is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDescription {
    /// Name of the network.
    pub name: String,
    /// How to get the model.
    pub origin: Origin,
    /// The requested rounding; null for the model's own precision.
    #[serde(rename = "kept", deserialize_with = "strict::optional_object")]
    pub precision: Option<StatePrecision>,
    /// A hash of the stack, the config and the weights.
    pub fingerprint: String,
}

/// Two prompts that a model cannot tell apart, or one that it answers wrongly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// See [`FORMAT`].
    pub format: u32,
    /// The model.
    #[serde(deserialize_with = "strict::object")]
    pub model: ModelDescription,
    /// The task, with every option.
    pub task: String,
    /// One prompt or two, in the ids of the task.
    pub inputs: Vec<Vec<u32>>,
    /// The position of the question.
    pub question: usize,
    /// The right answer for each input, by the task's oracle.
    pub answers: Vec<u32>,
    /// The model's answer for each input.
    pub outputs: Vec<u32>,
    /// The model's logits at the question, for each input.
    #[serde(rename = "scores")]
    pub logits: Vec<Vec<f32>>,
    /// From this position on the inputs are the same.
    #[serde(deserialize_with = "strict::required_option")]
    pub border: Option<usize>,
    /// The state of both inputs before the border.
    #[serde(deserialize_with = "strict::required_option")]
    pub state: Option<Vec<f32>>,
    /// Positions whose residual streams are the same after every layer.
    #[serde(rename = "blind")]
    pub equal_positions: Vec<usize>,
    /// The sets of the lower bound's proof, if they were built.
    #[serde(deserialize_with = "strict::optional_object")]
    pub decomposition: Option<Decomposition>,
    /// A hash of everything else.
    pub digest: String,
}

/// The sets of the lower bound's proof, built by [`decomposition`](crate::decomposition).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decomposition {
    /// Z_0: all starts.
    pub starts: Vec<u32>,
    /// All values of the query w.
    pub queries: Vec<u32>,
    /// Z_1: first tables, in increasing order.
    #[serde(rename = "first")]
    pub first_tables: Vec<Vec<u32>>,
    /// R: all second tables with the same residual streams of later tokens, in the order of their numbers.
    #[serde(rename = "alike")]
    pub indistinguishable: Vec<Vec<u32>>,
    /// Number of all second tables.
    #[serde(rename = "of")]
    pub second_table_count: u64,
}

impl Witness {
    /// The witness with the right digest.
    #[must_use]
    pub fn with_digest(mut self) -> Self {
        self.digest = self.compute_digest();
        self
    }

    /// The hash of all fields but the digest.
    pub fn compute_digest(&self) -> String {
        let without_digest = Self { digest: String::new(), ..self.clone() };
        Hash::new().with(without_digest.to_json().as_bytes()).to_hex()
    }

    /// The kind of failure.
    pub fn kind(&self) -> &'static str {
        match (self.inputs.len(), &self.state) {
            (1, _) => "wrong answer",
            (_, Some(_)) => "equal states",
            (_, None) => "equal residual streams",
        }
    }

    /// The witness as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("a witness is plain data: {error}"))
    }

    /// Reads the file of a witness.
    ///
    /// # Errors
    /// The file cannot be read or is not a witness.
    pub fn read(path: &Path) -> Result<Self, FalsifyError> {
        let system_error = |reason| FalsifyError::System { path: path.to_owned(), reason };
        let malformed_error = |reason: String| FalsifyError::Malformed { path: path.to_owned(), reason };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(system_error)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(system_error)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(malformed_error(format!("found more than {MAX_BYTES} bytes, expected a witness")));
        }
        parse(&bytes).map_err(|error| malformed_error(format_error(&bytes).unwrap_or_else(|| error.to_string())))
    }
}

/// Parses a witness and rejects further bytes after it.
fn parse(bytes: &[u8]) -> Result<Witness, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let witness = strict::object(&mut reader)?;
    reader.end().map(|()| witness)
}

/// The error message for a file of another format.
fn format_error(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let Version { format } = serde_json::from_slice(bytes).ok()?;
    let message = format!("format: found {format}, expected {FORMAT}; search again with `rung falsify`");
    (format != FORMAT).then_some(message)
}
