//! A failure that can be held in the hand: the file that says it, so that anyone can check.
//!
//! ```json
//! {
//!   "format": 2,
//!   "model": {"name": "linear", "origin": {"fresh": {"stack": "linear", "seed": 0, ..}}, "kept": {"bits": 4, "state": 2.0, "message": null},
//!             "fingerprint": "6c62.."},
//!   "task": "funccomp{hops=1,m=8,..}",
//!   "inputs": [[0, 8, ..], [0, 8, ..]],      two prompts with different answers, or one that is answered wrongly
//!   "question": 9,                           the token whose answer is meant
//!   "answers": [3, 5],                       by the oracle of the task
//!   "outputs": [1, 1],                       by the model
//!   "scores": [[..], [..]],                  at the question, to the bit
//!   "border": 8,                             from this token on the inputs are the same, and the state too, if there is one
//!   "state": [..],                           what both prompts leave behind there, if that is a state of fixed size
//!   "blind": [8, 9],                         tokens whose streams are the same after every layer
//!   "decomposition": null,                   the sets of the lower bound, where they were built
//!   "digest": ".."                           of all of the above
//! }
//! ```
//!
//! The checker is given where the model comes from, its bits, the task, the prompts, the question and the first tables of the sets, and
//! computes the rest. How a witness was found is not in it: that cannot be computed from the prompts.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rung_nn::hash::Hash;
use serde::{Deserialize, Serialize};

use super::FalsifyError;
use super::decomposition::Decomposition;
use super::target::{Origin, StatePrecision};
use rung_train::strict;

/// The format that is written and read. Format 1 also named the search that had found the witness.
pub const FORMAT: u32 = 2;

/// More bytes than a witness has.
const MOST_BYTES: u64 = 1 << 26;

/// The model that a witness is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDescription {
    /// What it is called.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Bits that were asked for.
    #[serde(deserialize_with = "strict::optional_object")]
    pub kept: Option<StatePrecision>,
    /// A hash of its stack, its config and its weights.
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
    /// The position whose answer is meant.
    pub question: usize,
    /// What the oracle says, for each input.
    pub answers: Vec<u32>,
    /// What the model says.
    pub outputs: Vec<u32>,
    /// The model's scores there.
    pub scores: Vec<Vec<f32>>,
    /// From this position on the inputs are the same.
    #[serde(deserialize_with = "strict::required")]
    pub border: Option<usize>,
    /// The state that both leave behind at the border.
    #[serde(deserialize_with = "strict::required")]
    pub state: Option<Vec<f32>>,
    /// Positions whose streams are the same after every layer.
    pub blind: Vec<usize>,
    /// The sets of the lower bound, where they were built.
    #[serde(deserialize_with = "strict::optional_object")]
    pub decomposition: Option<Decomposition>,
    /// A hash of everything else.
    pub digest: String,
}

impl Witness {
    /// The same witness with the digest that belongs to it.
    #[must_use]
    pub fn with_digest(mut self) -> Self {
        self.digest = self.compute_digest();
        self
    }

    /// The digest that it should have.
    pub fn compute_digest(&self) -> String {
        let bare = Self { digest: String::new(), ..self.clone() };
        Hash::new().with(bare.text().as_bytes()).text()
    }

    /// What kind of failure it shows.
    pub fn kind(&self) -> &'static str {
        match (self.inputs.len(), &self.state) {
            (1, _) => "wrong answer",
            (_, Some(_)) => "equal states",
            (_, None) => "equal streams",
        }
    }

    /// As JSON.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("a witness is plain data: {error}"))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is no whole witness.
    pub fn read(path: &Path) -> Result<Self, FalsifyError> {
        let system = |reason| FalsifyError::System { path: path.to_owned(), reason };
        let malformed = |reason: String| FalsifyError::Malformed { path: path.to_owned(), reason };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(system)?;
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(system)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(malformed(format!("found more than {MOST_BYTES} bytes, expected a witness")));
        }
        parse(&bytes).map_err(|error| malformed(other_format(&bytes).unwrap_or_else(|| error.to_string())))
    }
}

/// A witness and nothing after it.
fn parse(bytes: &[u8]) -> Result<Witness, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let witness = strict::object(&mut reader)?;
    reader.end().map(|()| witness)
}

/// What to say of a file whose keys are those of another format.
fn other_format(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let Version { format } = serde_json::from_slice(bytes).ok()?;
    let message = format!("format: found {format}, expected {FORMAT}; search again with `rung falsify`");
    (format != FORMAT).then_some(message)
}
