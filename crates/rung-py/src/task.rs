//! Tasks: prompts as arrays.

use pyo3::prelude::*;
use rung_theory::task::{self, AnyTask, NO_TARGET, Prompt};

use crate::array::{Array, ids};
use crate::error::{input_error, without_lock};

/// The most ids of one batch: 8 GiB.
const MAX_IDS: usize = 1 << 31;

/// A task.
#[pyclass(frozen, module = "rung._native")]
pub struct Task {
    task: Box<dyn AnyTask>,
}

/// Prompts one after another. The memory becomes that of the arrays.
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

/// Tokens, targets, mask and hops.
type Arrays = (Array, Array, Array, Array);

impl Task {
    fn width(&self) -> usize {
        self.task.fields().len()
    }

    fn arrays(&self, batch: Batch) -> Arrays {
        let (length, width) = (self.task.length(), self.width());
        let shape = vec![batch.targets.len() / length.max(1), length];
        let tokens = if width == 1 { shape.clone() } else { [shape.clone(), vec![width]].concat() };
        (
            Array::new(batch.tokens, tokens),
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
        Ok(Self { task: without_lock(py, || task::parse(spec))? })
    }

    /// Name and every option.
    #[getter]
    fn spec(&self) -> String {
        self.task.spec()
    }

    /// Tokens of a prompt.
    #[getter]
    fn length(&self) -> usize {
        self.task.length()
    }

    /// Targets are below this.
    #[getter]
    fn classes(&self) -> u32 {
        self.task.classes()
    }

    /// What the best guess scores.
    #[getter]
    fn baseline(&self) -> f64 {
        self.task.baseline()
    }

    /// Of each id of a token: its name, its vocabulary, and whether the last one means "nothing".
    #[getter]
    fn fields(&self) -> Vec<(String, u32, bool)> {
        self.task.fields().into_iter().map(|field| (field.name, field.vocabulary, field.blank)).collect()
    }

    /// How many instances there are, if they can be counted off.
    #[getter]
    fn instances(&self) -> Option<u128> {
        self.task.instances()
    }

    /// Prompts of a seed. Streams of one seed have no prompt's random numbers in common.
    fn sample(&self, py: Python<'_>, count: usize, seed: u64, stream: u64) -> PyResult<Arrays> {
        let (length, width) = (self.task.length(), self.width());
        let total = count.checked_mul(length).and_then(|tokens| tokens.checked_mul(width));
        if total.is_none_or(|ids| ids > MAX_IDS) {
            return Err(input_error(format!(
                "n: found {count} prompts of {length} tokens of {width} ids, expected at most {MAX_IDS} ids"
            )));
        }
        let batch = without_lock(py, || {
            let (mut rng, mut prompt) = (task::seeded(seed), Prompt::new());
            rng.set_stream(stream);
            let mut batch = Batch::with_capacity(count, length, width);
            for _ in 0..count {
                self.task.prompt(&mut rng, &mut prompt);
                batch.push(&prompt);
            }
            Ok::<_, String>(batch)
        })?;
        Ok(self.arrays(batch))
    }

    /// The instance of a number, from 0, as a batch of one.
    fn instance(&self, py: Python<'_>, index: u128) -> PyResult<Arrays> {
        let batch = without_lock(py, || {
            let (mut prompt, mut batch) = (Prompt::new(), Batch::default());
            if self.task.nth_prompt(index, &mut prompt) {
                batch.push(&prompt);
                return Ok(batch);
            }
            Err(match self.task.instances() {
                Some(count) => format!("index: found {index}, expected less than {count}"),
                None => format!("instances of {} cannot be counted off; draw them with a seed", self.task),
            })
        })?;
        Ok(self.arrays(batch))
    }

    /// The targets of a prompt, by brute force from the bytes of its ids.
    fn answer(&self, py: Python<'_>, tokens: &[u8]) -> PyResult<Array> {
        let targets = without_lock(py, || self.task.oracle(&ids(tokens)))?;
        let length = targets.len();
        Ok(Array::new(targets, vec![length]))
    }

    /// A prompt in ASCII.
    fn draw(&self, py: Python<'_>, seed: u64) -> PyResult<String> {
        without_lock(py, || {
            let mut prompt = Prompt::new();
            self.task.prompt(&mut task::seeded(seed), &mut prompt);
            Ok::<_, String>(self.task.draw(&prompt))
        })
    }
}
