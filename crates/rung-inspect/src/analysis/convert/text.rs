//! Conversion of an external checkpoint, on text prompts.
//!
//! Of every five prompts, three are for distillation, one for validation and one for the test. After a forward pass of the teacher over a
//! prompt, the student mixer of every layer takes a training step on the inputs and outputs of its layer. So only one prompt's activations
//! are stored, beside the weights, the students and their optimisers. Then layers are replaced greedily: each time the one that gives the
//! lowest perplexity on the validation prompts, up to a number of layers, and while the perplexity stays below a factor times the teacher's.
//!
//! A hook in the teacher's forward pass computes replaced layers, with weights that are appended to the teacher's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use rung_engine::{LearningRateDecay, Native, Ops, Parameters, Schedule, Tensor};
use rung_nn::families::replaced_mixers::{ReplacementMixer, add_mixer};
use rung_nn::memory;
use rung_nn::{Builtin, Hooks, MixerIndex, ModelError, Network, TokenMixer};
use rung_theory::stack::Mixer;
use rung_train::parallel;
use serde::Serialize;

use super::distill::{StudentTrainer, copy_matching_weights};
use super::{StudentError, replaceable_layers, student_mixer};
use crate::analysis::AnalysisError;
use crate::analysis::questions::{QuestionLimits, Questions, total_score};
use crate::analysis::text_prompts::TextPrompts;

/// Options of the conversion of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct TextConvertOptions {
    /// The mixer that replaces full attention.
    pub to: String,
    /// The layers that may be replaced; all full layers if empty.
    pub layers: Vec<usize>,
    /// The largest number of replaced layers.
    pub max_replaced: usize,
    /// The perplexity after a replacement is at most this many times the teacher's.
    pub max_perplexity_ratio: f64,
    /// Distillation steps, one prompt each.
    pub steps: usize,
    /// Peak learning rate.
    pub rate: f64,
    /// Seed of the students' initial weights.
    pub seed: u64,
}

/// The measurements of a conversion.
#[derive(Clone, Debug, Serialize)]
pub struct TextConversion {
    /// Name of the teacher.
    pub name: String,
    /// The file or the task of the prompts.
    pub prompts: String,
    /// The mixer that replaces full attention.
    pub to: String,
    /// Every layer with the error of its student.
    pub layers: Vec<StudentError>,
    /// The teacher's perplexity on validation prompts.
    #[serde(rename = "teacher")]
    pub teacher_perplexity: f64,
    /// Layers in the order of replacement, with the perplexity on validation prompts.
    pub path: Vec<TextReplacement>,
    /// Perplexity on test prompts, of the teacher and after all replacements.
    #[serde(rename = "test")]
    pub test_perplexity: [f64; 2],
    /// Number of predicted tokens in the test prompts.
    pub test_tokens: u64,
}

/// One replacement of the greedy order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextReplacement {
    /// The layer, from 0.
    pub layer: usize,
    /// Perplexity on validation prompts after this and all earlier replacements.
    pub perplexity: f64,
}

/// Stores the inputs and outputs of the mixers of some layers.
struct InputOutputRecorder<'a> {
    layers: &'a [usize],
    values: BTreeMap<usize, (Vec<f32>, Vec<f32>)>,
}

impl Hooks<Native<f32>> for InputOutputRecorder<'_> {
    fn mixer_output(
        &mut self,
        ops: &Native<f32>,
        mixer: MixerIndex,
        input: &Tensor<f32>,
        output: Tensor<f32>,
    ) -> Tensor<f32> {
        if self.layers.contains(&mixer.layer) {
            self.values.insert(mixer.layer, (ops.values(input), ops.values(&output)));
        }
        output
    }
}

/// The student of a layer.
struct LayerTrainer {
    layer: usize,
    student: StudentTrainer<f32>,
}

impl LayerTrainer {
    fn new(
        network: &Network<f32>,
        layer: usize,
        mixer: &Mixer,
        options: &TextConvertOptions,
    ) -> Result<Self, ModelError> {
        let mut weights = Parameters::new();
        let model = (&network.config, &network.model);
        let student = add_mixer(model, &mut weights, (layer, mixer), options.seed, &format!("layers.{layer}"))?;
        let heads = mixer.number("heads").unwrap_or(1) as usize;
        copy_matching_weights(&mut weights, &network.weights, heads);
        Ok(Self { layer, student: StudentTrainer::new(student, weights, options.rate) })
    }

    /// One step on the input and output of the teacher's layer. `factor` scales the learning rate.
    fn step(&mut self, (input, target): &(Vec<f32>, Vec<f32>), width: usize, factor: f64) {
        self.student.step(&[1, input.len() / width, width], (input, target), factor);
    }

    /// The errors of the first step and of the last tenth of the steps.
    fn errors(&self) -> StudentError {
        let [initial_error, final_error] = self.student.errors();
        StudentError { layer: self.layer, initial_error, final_error }
    }
}

/// The teacher's weights with those of all students appended.
struct Candidates {
    weights: Parameters<f32>,
    mixers: BTreeMap<usize, Builtin>,
}

/// Computes replaced layers with their students.
struct ReplacingHooks<'a> {
    mixers: &'a BTreeMap<usize, Builtin>,
    replaced: &'a [usize],
}

impl Hooks<Native<f32>> for ReplacingHooks<'_> {
    fn mixer_output(
        &mut self,
        ops: &Native<f32>,
        index: MixerIndex,
        input: &Tensor<f32>,
        output: Tensor<f32>,
    ) -> Tensor<f32> {
        match self.mixers.get(&index.layer).filter(|_| self.replaced.contains(&index.layer)) {
            Some(mixer) => mixer.forward(ops, input, None).0,
            None => output,
        }
    }
}

impl Candidates {
    fn new(
        network: &Network<f32>,
        trainers: &[LayerTrainer],
        mixers: &[(usize, Mixer)],
        seed: u64,
    ) -> Result<Self, ModelError> {
        let mut candidates = Self { weights: network.weights.clone(), mixers: BTreeMap::new() };
        let model = (&network.config, &network.model);
        for (trainer, (layer, mixer)) in trainers.iter().zip(mixers) {
            let start = candidates.weights.size();
            let name = format!("distilled.{layer}");
            let student = add_mixer(model, &mut candidates.weights, (*layer, mixer), seed, &name)?;
            candidates.weights.flat_mut()[start..].copy_from_slice(trainer.student.weights.flat());
            candidates.mixers.insert(*layer, student);
        }
        Ok(candidates)
    }

    fn perplexity(&self, network: &Network<f32>, questions: &Questions, replaced: &[usize]) -> Result<f64, ModelError> {
        let hooks = || ReplacingHooks { mixers: &self.mixers, replaced };
        Ok(total_score(&questions.measure(&network.model, &self.weights, hooks)?).mean_loss().exp())
    }
}

/// Converts a checkpoint. `on_progress` is called after every distillation step and every perplexity, for a progress display. Returns the
/// measurements and the mixers that replace layers, in layer order.
///
/// # Errors
/// There is no full layer to replace, the mixer does not fit, or there are too few prompts.
pub fn convert_text(
    network: &Network<f32>,
    prompts: &TextPrompts,
    options: &TextConvertOptions,
    on_progress: &(dyn Fn() + Sync),
) -> Result<(TextConversion, Vec<ReplacementMixer>), AnalysisError> {
    let not_applicable = |found: String, expected: &str| AnalysisError::NotApplicable {
        analysis: "convert",
        found,
        expected: expected.to_owned(),
    };
    let replaceable = replaceable_layers(&network.plan);
    let layers = if options.layers.is_empty() { replaceable.clone() } else { options.layers.clone() };
    if let Some(layer) = layers.iter().find(|layer| !replaceable.contains(layer)) {
        return Err(not_applicable(
            format!("--layers {layer}"),
            "full attention layers that have no other mixer and share no cache",
        ));
    }
    let [training, validation, test] = split_prompts(prompts);
    if layers.is_empty() || test.prompts.is_empty() {
        let found = format!("{} full layers and {} prompts", layers.len(), prompts.prompts.len());
        return Err(not_applicable(found, "at least one full layer and five prompts"));
    }
    let mut jobs = Vec::new();
    for layer in &layers {
        jobs.push((*layer, student_mixer(&options.to, &network.plan, &network.plan.layers[*layer].mixers[0])?));
    }
    check_memory(network, &training, &jobs)?;
    let trainers = distill_all(network, &training, &jobs, options, on_progress)?;
    let errors: Vec<StudentError> = trainers.iter().map(LayerTrainer::errors).collect();
    let candidates = Candidates::new(network, &trainers, &jobs, options.seed)?;
    let questions = |prompts: &TextPrompts| prompts.questions(Some(prompts.prompts.len()), QuestionLimits::NONE);
    let (validation, test) = (questions(&validation), questions(&test));
    for questions in [&validation, &test] {
        questions.check_memory(network)?;
    }
    let teacher_perplexity = candidates.perplexity(network, &validation, &[])?;
    let (mut path, mut replaced): (Vec<TextReplacement>, Vec<usize>) = (Vec::new(), Vec::new());
    while path.len() < options.max_replaced {
        let mut best: Option<TextReplacement> = None;
        for layer in layers.iter().filter(|layer| !replaced.contains(*layer)) {
            let perplexity = candidates.perplexity(network, &validation, &[&replaced[..], &[*layer]].concat())?;
            on_progress();
            if best.as_ref().is_none_or(|best| perplexity < best.perplexity) {
                best = Some(TextReplacement { layer: *layer, perplexity });
            }
        }
        let Some(best) = best.filter(|best| best.perplexity <= options.max_perplexity_ratio * teacher_perplexity)
        else {
            break;
        };
        replaced.push(best.layer);
        path.push(best);
    }
    let before = candidates.perplexity(network, &test, &[])?;
    let after = candidates.perplexity(network, &test, &replaced)?;
    let test_tokens = test.batches.iter().map(|question_batch| question_batch.questions.len() as u64).sum();
    let to = jobs[0].1.to_string();
    let mixers = trainers.into_iter().zip(jobs).filter(|(trainer, _)| replaced.contains(&trainer.layer));
    let mixers =
        mixers.map(|(trainer, (layer, mixer))| ReplacementMixer { layer, mixer, weights: trainer.student.weights });
    let mixers: Vec<ReplacementMixer> = mixers.collect();
    let conversion = TextConversion {
        name: network.name.clone(),
        prompts: prompts.name.clone(),
        to,
        layers: errors,
        teacher_perplexity,
        path,
        test_perplexity: [before, after],
        test_tokens,
    };
    Ok((conversion, mixers))
}

/// Rejects a distillation that does not fit the memory.
fn check_memory(network: &Network<f32>, training: &TextPrompts, jobs: &[(usize, Mixer)]) -> Result<(), ModelError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let tokens = training.prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
    let (layers, width) = (jobs.len() as u128, network.model.width() as u128);
    // Students of one kind are of about one size.
    let mut student = Parameters::<f32>::new();
    if let Some((layer, mixer)) = jobs.first() {
        add_mixer((&network.config, &network.model), &mut student, (*layer, mixer), 0, "student")?;
    }
    // Of each student: weights, gradient, two moments, and the copy that is put beside the teacher's weights, which are copied too.
    let weights = network.weights.size() as u128 + 5 * layers * student.size() as u128;
    // Of each layer, an input and an output; of the students that train at a time, about thirty activations of the residual stream's size.
    let activations =
        (2 * layers + 30 * layers.min(cores as u128)).saturating_mul(width).saturating_mul(tokens as u128);
    let teacher = network.config.memory_estimate(&network.plan).evaluation_bytes(tokens, 0);
    let bytes = weights.saturating_add(activations).saturating_mul(size_of::<f32>() as u128).saturating_add(teacher);
    let what = format!("distilling {layers} layers of `{}` on prompts of up to {tokens} tokens", network.name);
    memory::check(what, bytes, None).map_err(ModelError::Memory)
}

/// Prompts for distillation, validation and the test.
fn split_prompts(prompts: &TextPrompts) -> [TextPrompts; 3] {
    [0..3, 3..4, 4..5].map(|remainders: std::ops::Range<usize>| {
        let selected = prompts.prompts.iter().enumerate().filter(|(index, _)| remainders.contains(&(index % 5)));
        TextPrompts { prompts: selected.map(|(_, prompt)| prompt.clone()).collect(), ..prompts.clone() }
    })
}

/// Trains the students of all layers in parallel.
fn distill_all(
    network: &Network<f32>,
    training: &TextPrompts,
    jobs: &[(usize, Mixer)],
    options: &TextConvertOptions,
    on_progress: &(dyn Fn() + Sync),
) -> Result<Vec<LayerTrainer>, AnalysisError> {
    let layers: Vec<usize> = jobs.iter().map(|(layer, _)| *layer).collect();
    let mut trainers = Vec::new();
    for (layer, mixer) in jobs {
        trainers.push(Mutex::new(LayerTrainer::new(network, *layer, mixer, options)?));
    }
    let decay = LearningRateDecay::Cosine { floor: 0.05 };
    let schedule = Schedule { warmup: options.steps / 20, steps: options.steps, decay };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let teacher = Native::with_threads(cores);
    teacher.bind_frozen(&network.weights);
    for step in 0..options.steps {
        let prompt = &training.prompts[step % training.prompts.len()];
        let mut hooks = InputOutputRecorder { layers: &layers, values: BTreeMap::new() };
        network.model.forward_with_hooks(&teacher, &prompt.tokens, 1, &mut hooks)?;
        parallel::map(&trainers, |trainer| {
            let mut trainer = trainer.lock().unwrap_or_else(PoisonError::into_inner);
            let layer = trainer.layer;
            trainer.step(&hooks.values[&layer], network.model.width(), schedule.factor(step));
        });
        on_progress();
    }
    Ok(trainers.into_iter().map(|trainer| trainer.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
}

impl TextConversion {
    /// The conversion for a terminal.
    pub fn text(&self) -> String {
        let Self { name, prompts, to, teacher_perplexity, test_perplexity: [before, after], .. } = self;
        let mut text = format!("{name} on {prompts}: full layers to {to} (measured)\n\n");
        text += "  layer   squared error of its student, before and after distillation\n";
        for distilled in &self.layers {
            let _ = writeln!(
                text,
                "  {:>5}   {:.3} -> {:.3}",
                distilled.layer, distilled.initial_error, distilled.final_error
            );
        }
        let _ = writeln!(text, "\n  perplexity on validation prompts: {teacher_perplexity:.3}");
        for step in &self.path {
            let _ = writeln!(text, "    layer {} replaced: {:.3}", step.layer, step.perplexity);
        }
        let (count, tokens) = (self.path.len(), self.test_tokens);
        let _ = writeln!(
            text,
            "\n  perplexity on test prompts ({tokens} tokens): {before:.3} before, {after:.3} with {count} layers replaced"
        );
        text
    }
}
