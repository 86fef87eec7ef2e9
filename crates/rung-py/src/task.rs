//! Tasks for Python: prompts as arrays.

use pyo3::prelude::*;
use rung_theory::task::{self, AnyTask, NO_TARGET, Prompt};

use crate::array::{Array, ids_from_bytes};
use crate::error::{input_error, without_gil};

/// Maximum number of ids of one batch, which take 8 GiB.
const MAX_IDS: usize = 1 << 31;

/// A task.
#[pyclass(frozen, module = "rung._native")]
pub struct Task {
    task: Box<dyn AnyTask>,
}

/// Concatenated prompts, whose vectors become the arrays without a copy.
#[derive(Default)]
struct Batch {
    tokens: Vec<u32>,
    targets: Vec<u32>,
    mask: Vec<bool>,
    groups: Vec<u16>,
}

impl Batch {
    fn with_capacity(prompts: usize, length: usize, fields: usize) -> Self {
        let tokens = prompts * length;
        Self {
            tokens: Vec::with_capacity(tokens * fields),
            targets: Vec::with_capacity(tokens),
            mask: Vec::with_capacity(tokens),
            groups: Vec::with_capacity(tokens),
        }
    }

    fn push(&mut self, prompt: &Prompt) {
        self.tokens.extend_from_slice(prompt.tokens());
        self.targets.extend_from_slice(prompt.targets());
        self.mask.extend(prompt.targets().iter().map(|target| *target != NO_TARGET));
        self.groups.extend_from_slice(prompt.groups());
    }
}

/// Tokens, targets, mask and the number of hops (or another group) of each target.
type Arrays = (Array, Array, Array, Array);

impl Task {
    fn ids_per_token(&self) -> usize {
        self.task.fields().len()
    }

    fn arrays(&self, batch: Batch) -> Arrays {
        let (length, ids_per_token) = (self.task.length(), self.ids_per_token());
        let shape = vec![batch.targets.len() / length.max(1), length];
        let token_shape =
            if ids_per_token == 1 { shape.clone() } else { [shape.clone(), vec![ids_per_token]].concat() };
        (
            Array::new(batch.tokens, token_shape),
            Array::new(batch.targets, shape.clone()),
            Array::new(batch.mask, shape.clone()),
            Array::new(batch.groups, shape),
        )
    }
}

#[pymethods]
impl Task {
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<Self> {
        Ok(Self { task: without_gil(py, || task::parse(spec))? })
    }

    /// The task's name with all options.
    #[getter]
    fn spec(&self) -> String {
        self.task.spec()
    }

    /// Number of tokens in a prompt.
    #[getter]
    fn length(&self) -> usize {
        self.task.length()
    }

    /// Number of classes; targets are below it.
    #[getter]
    fn classes(&self) -> u32 {
        self.task.classes()
    }

    /// Accuracy of the best constant guess.
    #[getter]
    fn baseline(&self) -> f64 {
        self.task.baseline()
    }

    /// For each id of a token: its name, its vocabulary size, and whether the last id is its blank.
    #[getter]
    fn fields(&self) -> Vec<(String, u32, bool)> {
        self.task.fields().into_iter().map(|field| (field.name, field.vocabulary, field.blank)).collect()
    }

    /// Number of instances, if they can be enumerated.
    #[getter]
    fn instances(&self) -> Option<u128> {
        self.task.instance_count()
    }

    /// Random prompts; streams of one seed use independent random numbers.
    fn sample(&self, py: Python<'_>, count: usize, seed: u64, stream: u64) -> PyResult<Arrays> {
        let (length, ids_per_token) = (self.task.length(), self.ids_per_token());
        let total = count.checked_mul(length).and_then(|tokens| tokens.checked_mul(ids_per_token));
        if total.is_none_or(|ids| ids > MAX_IDS) {
            return Err(input_error(format!(
                "n: found {count} prompts of {length} tokens of {ids_per_token} ids, expected at most {MAX_IDS} ids"
            )));
        }
        let batch = without_gil(py, || {
            let (mut rng, mut prompt) = (task::seeded(seed), Prompt::new());
            rng.set_stream(stream);
            let mut batch = Batch::with_capacity(count, length, ids_per_token);
            for _ in 0..count {
                self.task.sample_prompt(&mut rng, &mut prompt);
                batch.push(&prompt);
            }
            Ok::<_, String>(batch)
        })?;
        Ok(self.arrays(batch))
    }

    /// The instance of an index, from 0, as a batch of one prompt.
    fn instance(&self, py: Python<'_>, index: u128) -> PyResult<Arrays> {
        let batch = without_gil(py, || {
            let (mut prompt, mut batch) = (Prompt::new(), Batch::default());
            if self.task.nth_prompt(index, &mut prompt) {
                batch.push(&prompt);
                return Ok(batch);
            }
            Err(match self.task.instance_count() {
                Some(count) => format!("index: found {index}, expected less than {count}"),
                None => format!("instances of {} cannot be enumerated; sample them with a seed", self.task),
            })
        })?;
        Ok(self.arrays(batch))
    }

    /// The targets of a prompt, computed by brute force; `tokens` are the bytes of its ids.
    fn answer(&self, py: Python<'_>, tokens: &[u8]) -> PyResult<Array> {
        let targets = without_gil(py, || self.task.oracle(&ids_from_bytes(tokens)))?;
        let length = targets.len();
        Ok(Array::new(targets, vec![length]))
    }

    /// A random prompt as an ASCII drawing.
    fn draw(&self, py: Python<'_>, seed: u64) -> PyResult<String> {
        without_gil(py, || {
            let mut prompt = Prompt::new();
            self.task.sample_prompt(&mut task::seeded(seed), &mut prompt);
            Ok::<_, String>(self.task.render(&prompt))
        })
    }
}
