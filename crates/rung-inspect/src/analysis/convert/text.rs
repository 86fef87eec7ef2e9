//! Conversion of a checkpoint of another program, on prompts as text.
//!
//! Of every five prompts, three are for distillation, one for validation and one for the test. One pass of the teacher over a prompt feeds all layers at once: each
//! counterpart takes a step on what its layer was fed and gave. So nothing but one prompt's activations is kept, and memory stays that of the
//! weights, the counterparts and their optimisers. Then layers are replaced greedily: each time the one that leaves the lowest perplexity on the
//! validation prompts, up to a number of layers, and while perplexity stays below a factor times the teacher's.
//!
//! A replaced layer is computed by a hook in the teacher's forward pass, from weights that stand beside the teacher's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use rung_engine::{AdamW, AdamWConfig, DecayCourse, Native, Ops, Parameters, Schedule, Tensor};
use rung_nn::families::converted::{ReplacedMixer, add_mixer};
use rung_nn::{Builtin, Hooks, MixerIndex, ModelError, Network, TokenMixer};
use rung_theory::stack::Mixer;
use rung_train::parallel;
use serde::Serialize;

use super::distill::borrow;
use super::{DistilledLayer, counterpart, replaceable};
use crate::analysis::AnalysisError;
use crate::analysis::questions::{Questions, total};
use crate::analysis::text_prompts::TextPrompts;

/// What the conversion of a checkpoint is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub struct TextConvertOptions {
    /// The mixer that replaces full attention.
    pub to: String,
    /// The layers that may be replaced; all full ones if empty.
    pub layers: Vec<usize>,
    /// The most layers that are replaced.
    pub most: usize,
    /// Perplexity stays below this times the teacher's.
    pub factor: f64,
    /// Steps of distillation, one prompt each.
    pub steps: usize,
    /// Peak learning rate.
    pub rate: f64,
    /// Seed of the counterparts' weights.
    pub seed: u64,
}

/// A conversion, and all that was seen on the way.
#[derive(Clone, Debug, Serialize)]
pub struct TextConversion {
    /// The teacher.
    pub name: String,
    /// Where the prompts come from.
    pub prompts: String,
    /// The mixer that replaces full attention.
    pub to: String,
    /// Every layer with how well it was imitated.
    pub layers: Vec<DistilledLayer>,
    /// The teacher's perplexity on validation prompts.
    pub teacher: f64,
    /// Layers in the order of replacement, with the perplexity on validation prompts.
    pub path: Vec<TextReplacement>,
    /// Perplexity on test prompts, before and after.
    pub test: [f64; 2],
    /// Tokens that are predicted in the test prompts.
    pub test_tokens: u64,
}

/// One replacement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextReplacement {
    /// The layer, from 0.
    pub layer: usize,
    /// Perplexity on validation prompts with it and all before it replaced.
    pub perplexity: f64,
}

/// Keeps what the mixers of some layers are fed and give.
struct LayerPairs<'a> {
    layers: &'a [usize],
    found: BTreeMap<usize, (Vec<f32>, Vec<f32>)>,
}

impl Hooks<Native<f32>> for LayerPairs<'_> {
    fn mixed(&mut self, ops: &Native<f32>, place: MixerIndex, input: &Tensor<f32>, output: Tensor<f32>) -> Tensor<f32> {
        if self.layers.contains(&place.layer) {
            self.found.insert(place.layer, (ops.values(input), ops.values(&output)));
        }
        output
    }
}

/// A counterpart in training.
struct LayerTrainer {
    layer: usize,
    built: Builtin,
    weights: Parameters<f32>,
    optimizer: AdamW<f32>,
    ops: Native<f32>,
    losses: Vec<f64>,
}

impl LayerTrainer {
    fn new(
        network: &Network<f32>,
        layer: usize,
        mixer: &Mixer,
        options: &TextConvertOptions,
    ) -> Result<Self, ModelError> {
        let mut weights = Parameters::new();
        let frame = (&network.config, &network.model);
        let built = add_mixer(frame, &mut weights, (layer, mixer), options.seed, &format!("layers.{layer}"))?;
        let heads = mixer.number("heads").unwrap_or(1) as usize;
        borrow(&mut weights, &network.weights, heads);
        let optimizer = AdamWConfig { rate: options.rate, clip: 1.0, decay: 0.0, ..AdamWConfig::default() }.init();
        Ok(Self { layer, built, weights, optimizer, ops: Native::new(), losses: Vec::new() })
    }

    /// One step on what the teacher's layer was fed and gave.
    fn step(&mut self, (input, target): &(Vec<f32>, Vec<f32>), width: usize, factor: f64) {
        let Self { built, weights, optimizer, ops, .. } = self;
        let whole = target.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().max(f64::MIN_POSITIVE);
        ops.bind(weights);
        let shape = [1, input.len() / width, width];
        let output = built.forward(ops, &ops.constant(&shape, input), None).0;
        let apart = ops.sub(&output, &ops.constant(&shape, target));
        let loss = ops.scale(&ops.sum_all(&ops.mul(&apart, &apart)), 1.0 / whole);
        self.losses.push(f64::from(ops.values(&loss)[0]));
        ops.backward(&loss);
        let gradient = ops.gradient();
        drop((output, apart, loss));
        ops.release();
        optimizer.update(weights, &gradient, factor);
    }

    fn outcome(&self) -> DistilledLayer {
        let last = &self.losses[self.losses.len() - self.losses.len().div_ceil(10)..];
        let before = self.losses.first().copied().unwrap_or(f64::NAN);
        DistilledLayer { layer: self.layer, before, after: last.iter().sum::<f64>() / last.len().max(1) as f64 }
    }
}

/// The teacher's weights with those of all counterparts behind them.
struct Candidates {
    weights: Parameters<f32>,
    mixers: BTreeMap<usize, Builtin>,
}

/// Computes replaced layers with their counterparts.
struct ReplacingHooks<'a> {
    mixers: &'a BTreeMap<usize, Builtin>,
    replaced: &'a [usize],
}

impl Hooks<Native<f32>> for ReplacingHooks<'_> {
    fn mixed(&mut self, ops: &Native<f32>, place: MixerIndex, input: &Tensor<f32>, output: Tensor<f32>) -> Tensor<f32> {
        match self.mixers.get(&place.layer).filter(|_| self.replaced.contains(&place.layer)) {
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
        let mut all = Self { weights: network.weights.clone(), mixers: BTreeMap::new() };
        let frame = (&network.config, &network.model);
        for (trainer, (layer, mixer)) in trainers.iter().zip(mixers) {
            let start = all.weights.size();
            let built = add_mixer(frame, &mut all.weights, (*layer, mixer), seed, &format!("distilled.{layer}"))?;
            all.weights.flat_mut()[start..].copy_from_slice(trainer.weights.flat());
            all.mixers.insert(*layer, built);
        }
        Ok(all)
    }

    fn perplexity(&self, network: &Network<f32>, questions: &Questions, replaced: &[usize]) -> Result<f64, ModelError> {
        let hooks = || ReplacingHooks { mixers: &self.mixers, replaced };
        Ok(total(&questions.measure(&network.model, &self.weights, hooks)?).mean_loss().exp())
    }
}

/// Converts a checkpoint. `tick` is called after every step of distillation and every score. With the conversion come the mixers that replaced
/// layers, in layer order.
///
/// # Errors
/// There is no full layer to replace, the mixer does not fit, or there are too few prompts.
pub fn convert_text(
    network: &Network<f32>,
    prompts: &TextPrompts,
    options: &TextConvertOptions,
    tick: &(dyn Fn() + Sync),
) -> Result<(TextConversion, Vec<ReplacedMixer>), AnalysisError> {
    let unfit = |found: String, expected: &str| AnalysisError::Unfit {
        instrument: "convert",
        found,
        expected: expected.to_owned(),
    };
    let known = replaceable(&network.plan);
    let layers = if options.layers.is_empty() { known.clone() } else { options.layers.clone() };
    if let Some(layer) = layers.iter().find(|layer| !known.contains(layer)) {
        return Err(unfit(format!("--layers {layer}"), "layers of full attention that stand alone and share nothing"));
    }
    let [training, validation, test] = split(prompts);
    if layers.is_empty() || test.prompts.is_empty() {
        let found = format!("{} full layers and {} prompts", layers.len(), prompts.prompts.len());
        return Err(unfit(found, "at least one full layer and five prompts"));
    }
    let mut jobs = Vec::new();
    for layer in &layers {
        jobs.push((*layer, counterpart(&options.to, &network.plan, &network.plan.layers[*layer].mixers[0])?));
    }
    let trainers = distill_all(network, &training, &jobs, options, tick)?;
    let outcomes: Vec<DistilledLayer> = trainers.iter().map(LayerTrainer::outcome).collect();
    let candidates = Candidates::new(network, &trainers, &jobs, options.seed)?;
    let asked = |prompts: &TextPrompts| prompts.questions(Some(prompts.prompts.len()), (usize::MAX, usize::MAX));
    let (validation, test) = (asked(&validation), asked(&test));
    let teacher = candidates.perplexity(network, &validation, &[])?;
    let (mut path, mut replaced): (Vec<TextReplacement>, Vec<usize>) = (Vec::new(), Vec::new());
    while path.len() < options.most {
        let mut best: Option<TextReplacement> = None;
        for layer in layers.iter().filter(|layer| !replaced.contains(*layer)) {
            let perplexity = candidates.perplexity(network, &validation, &[&replaced[..], &[*layer]].concat())?;
            tick();
            if best.as_ref().is_none_or(|best| perplexity < best.perplexity) {
                best = Some(TextReplacement { layer: *layer, perplexity });
            }
        }
        let Some(best) = best.filter(|best| best.perplexity <= options.factor * teacher) else { break };
        replaced.push(best.layer);
        path.push(best);
    }
    let before = candidates.perplexity(network, &test, &[])?;
    let after = candidates.perplexity(network, &test, &replaced)?;
    let test_tokens = test.batches.iter().map(|asked| asked.questions.len() as u64).sum();
    let to = jobs[0].1.to_string();
    let mixers = trainers.into_iter().zip(jobs).filter(|(trainer, _)| replaced.contains(&trainer.layer));
    let mixers = mixers.map(|(trainer, (layer, mixer))| ReplacedMixer { layer, mixer, weights: trainer.weights });
    let mixers: Vec<ReplacedMixer> = mixers.collect();
    let conversion = TextConversion {
        name: network.name.clone(),
        prompts: prompts.name.clone(),
        to,
        layers: outcomes,
        teacher,
        path,
        test: [before, after],
        test_tokens,
    };
    Ok((conversion, mixers))
}

/// Prompts for distillation, validation and the test.
fn split(prompts: &TextPrompts) -> [TextPrompts; 3] {
    [0..3, 3..4, 4..5].map(|places: std::ops::Range<usize>| {
        let chosen = prompts.prompts.iter().enumerate().filter(|(at, _)| places.contains(&(at % 5)));
        TextPrompts { prompts: chosen.map(|(_, prompt)| prompt.clone()).collect(), ..prompts.clone() }
    })
}

/// Trains all counterparts beside each other.
fn distill_all(
    network: &Network<f32>,
    training: &TextPrompts,
    jobs: &[(usize, Mixer)],
    options: &TextConvertOptions,
    tick: &(dyn Fn() + Sync),
) -> Result<Vec<LayerTrainer>, AnalysisError> {
    let layers: Vec<usize> = jobs.iter().map(|(layer, _)| *layer).collect();
    let mut trainers = Vec::new();
    for (layer, mixer) in jobs {
        trainers.push(Mutex::new(LayerTrainer::new(network, *layer, mixer, options)?));
    }
    let course = DecayCourse::Cosine { floor: 0.05 };
    let schedule = Schedule { warmup: options.steps / 20, steps: options.steps, course };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let teacher = Native::with_threads(cores);
    teacher.bind_frozen(&network.weights);
    for step in 0..options.steps {
        let prompt = &training.prompts[step % training.prompts.len()];
        let mut pairs = LayerPairs { layers: &layers, found: BTreeMap::new() };
        network.model.forward_with_hooks(&teacher, &prompt.tokens, 1, &mut pairs)?;
        parallel::map(&trainers, |trainer| {
            let mut trainer = trainer.lock().unwrap_or_else(PoisonError::into_inner);
            let layer = trainer.layer;
            trainer.step(&pairs.found[&layer], network.model.width(), schedule.factor(step));
        });
        tick();
    }
    Ok(trainers.into_iter().map(|trainer| trainer.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
}

impl TextConversion {
    /// For a terminal.
    pub fn text(&self) -> String {
        let Self { name, prompts, to, teacher, test: [before, after], .. } = self;
        let mut text = format!("{name} on {prompts}: full layers to {to} (measured)\n\n");
        text += "  layer   squared error of its counterpart, before and after distillation\n";
        for one in &self.layers {
            let _ = writeln!(text, "  {:>5}   {:.3} -> {:.3}", one.layer, one.before, one.after);
        }
        let _ = writeln!(text, "\n  perplexity on validation prompts: {teacher:.3}");
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
