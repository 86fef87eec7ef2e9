//! Converts full attention layers to bounded-state layers: distilled layer by layer, then replaced one by one while the accuracy stays high.
//!
//! A trained network with full attention is the teacher. For each of its full layers a student mixer of bounded state is distilled on the
//! inputs and outputs of the teacher's layer. Then layers are replaced one after another, without any further training, while the accuracy
//! on validation prompts stays above a threshold. Two networks come out of it: the one with the best accuracy, and the one with the most
//! layers replaced.
//!
//! # What it shows
//!
//! The error of each distilled layer; the accuracy after every replacement; and several orders of replacement compared:
//!
//! - greedy: each time the layer whose replacement gives the best accuracy;
//! - rungs: each time the layer whose replacement leaves the most rungs (hops that the stack can compute by the theory), the first of equal
//!   ones. This order uses no data;
//! - uniform: every second layer, then the others; random: the mean of three orders; sensitivity: by the accuracy with only that layer
//!   replaced.
//!
//! # How
//!
//! Students start from the teacher's projections where names and shapes agree. The loss is the squared difference of outputs, relative to
//! the teacher's squared output. The score is the accuracy, each number of hops counted equally. For the comparison every
//! order is followed until all layers are replaced, on test prompts that were not used for any decision.
//!
//! # Validation
//!
//! With a threshold of minus infinity every full layer is replaced; with plus infinity the result is the teacher, unchanged.
//!
//! External checkpoints are converted on text prompts, by perplexity instead of accuracy ([`text`]).
//!
//! # What it does not show
//!
//! Nothing is trained after a replacement, so a low score does not show that other weights of the same stack could not do better.
//!
//! # Source
//!
//! After the abstract of *Distill-then-Replace* (arXiv 2601.11667).

mod distill;
mod show;
pub mod text;

use rung_engine::{Parameters, Scalar};
use rung_nn::memory::BatchShape;
use rung_nn::{ModelConfig, ModelError, Network, NoHooks, Provenance};
use rung_theory::stack::mixer::DEFAULT_RECURRENCE;
use rung_theory::stack::{Defaults, Layer, Mixer, Plan};
use rung_theory::task::{self, seeded, shuffle};
use serde::Serialize;

use super::ablate::is_full;
use super::questions::{QuestionLimits, Questions};
use super::{AnalysisError, AnalysisOptions, reject_chain_of_thought};
use rung_train::parallel;
use rung_train::run::accuracy::AccuracyByGroup;
use rung_train::run::error::RunError;

use distill::{DistilledMixer, distill};

/// Number of random orders that are averaged.
const RANDOM_ORDERS: u64 = 3;

/// Limits of the sampled questions, for validation and for the test.
const LIMITS: QuestionLimits = QuestionLimits { questions: 600, tokens: 1 << 14 };

/// Options of a conversion.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// The mixer that replaces full attention, such as `gdn` or `window{size=8}`.
    pub to: String,
    /// Task and seed.
    pub analysis: AnalysisOptions,
    /// Replacement stops before the score falls below this; by default the teacher's score minus 0.02.
    pub threshold: Option<f64>,
    /// Distillation steps per layer.
    pub steps: usize,
    /// Prompts per step.
    pub batch: usize,
    /// Peak learning rate.
    pub rate: f64,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            to: DEFAULT_RECURRENCE.to_owned(),
            analysis: AnalysisOptions::default(),
            threshold: None,
            steps: 300,
            batch: 8,
            rate: 3e-3,
        }
    }
}

/// The measurements of a conversion.
#[derive(Clone, Debug, Serialize)]
pub struct Conversion {
    /// Name of the teacher.
    pub name: String,
    /// The task.
    pub task: String,
    /// The mixer that replaces full attention.
    pub to: String,
    /// The teacher's score on validation prompts.
    #[serde(rename = "teacher")]
    pub teacher_score: f64,
    /// The lowest score at which layers are replaced.
    pub threshold: f64,
    /// Every full layer that can be replaced, with the error of its student.
    pub layers: Vec<StudentError>,
    /// The greedy order of replacement, up to the threshold.
    pub path: Vec<Replacement>,
    /// Layers replaced in the network with the best score.
    pub best: Vec<usize>,
    /// Layers replaced in the network with the most replacements above the threshold.
    pub most_linear: Vec<usize>,
    /// Every order, measured on test prompts.
    pub orders: Vec<ReplacementOrder>,
}

/// The error of a layer's student.
#[derive(Clone, Debug, Serialize)]
pub struct StudentError {
    /// The layer, from 0.
    pub layer: usize,
    /// Squared difference from the teacher's output, relative to its squared size, before training.
    #[serde(rename = "before")]
    pub initial_error: f64,
    /// The same after training, mean over the last tenth of the steps.
    #[serde(rename = "after")]
    pub final_error: f64,
}

/// One replacement of the greedy order.
#[derive(Clone, Debug, Serialize)]
pub struct Replacement {
    /// The layer, from 0.
    pub layer: usize,
    /// The score on validation prompts after this and all earlier replacements.
    pub score: f64,
}

/// An order of replacement.
#[derive(Clone, Debug, Serialize)]
pub struct ReplacementOrder {
    /// `greedy`, `rungs`, `uniform`, `sensitivity` or `random`.
    pub name: &'static str,
    /// Layers in the order of replacement; empty for the mean of random orders.
    pub layers: Vec<usize>,
    /// The score on test prompts after 0, 1, 2, .. replacements.
    pub scores: Vec<f64>,
}

/// A teacher and the student mixers of its full layers.
struct Converter<'a, S: Scalar> {
    network: &'a Network<S>,
    config: &'a ModelConfig,
    students: Vec<DistilledMixer<S>>,
}

impl<S: Scalar> Converter<'_, S> {
    /// The teacher with these layers replaced.
    fn convert_layers(&self, replaced: &[usize]) -> Result<Network<S>, ModelError> {
        let network = self.network;
        let mut plan = network.plan.clone();
        let replacements = || self.students.iter().filter(|student| replaced.contains(&student.layer));
        for student in replacements() {
            plan.layers[student.layer] = Layer::new(student.mixer.clone());
        }
        let mut weights = Parameters::new();
        let model = self.config.init(&plan, &mut weights, &mut seeded(0))?;
        let entries: Vec<_> = weights.entries().map(|(id, entry)| (id, entry.name.clone())).collect();
        for (id, name) in entries {
            let student_weight =
                replacements().find_map(|student| Some((&student.weights, student.weights.find(&name)?)));
            let teacher_weight = || Some((&network.weights, network.weights.find(&name)?));
            let Some((parameters, source)) = student_weight.or_else(teacher_weight) else {
                unreachable!("a weight is the teacher's or a student's: {name}")
            };
            let values = parameters.get(source).to_vec();
            weights.get_mut(id).copy_from_slice(&values);
        }
        let task = network.task.as_ref().and_then(|task| task::parse(&task.spec()).ok());
        let provenance = match &network.provenance {
            // The description of a construction does not hold for a converted network.
            Provenance::Construction(_) => Provenance::InMemory,
            provenance => provenance.clone(),
        };
        let (name, config) = (plan.mixer_names(), self.config.clone());
        Ok(Network { name, task, plan, config, model, weights, provenance })
    }

    fn score(&self, questions: &Questions, replaced: &[usize]) -> Result<f64, ModelError> {
        let converted = self.convert_layers(replaced)?;
        Ok(mean_accuracy(&questions.accuracy(&converted.model, &converted.weights, || NoHooks)?))
    }

    /// Scores after 0, 1, 2, .. replacements in an order.
    fn scores_of_order(&self, questions: &Questions, order: &[usize]) -> Result<Vec<f64>, ModelError> {
        (0..=order.len()).map(|count| self.score(questions, &order[..count])).collect()
    }

    /// Replaces each time the layer that gives the best score, until the score would fall below a threshold.
    fn replace_greedily(&self, questions: &Questions, threshold: f64) -> Result<Vec<Replacement>, ModelError> {
        let (mut path, mut replaced): (Vec<Replacement>, Vec<usize>) = (Vec::new(), Vec::new());
        loop {
            let mut best: Option<Replacement> = None;
            for layer in self.layers().filter(|layer| !replaced.contains(layer)) {
                let score = self.score(questions, &[&replaced[..], &[layer]].concat())?;
                if best.as_ref().is_none_or(|best| score > best.score) {
                    best = Some(Replacement { layer, score });
                }
            }
            let Some(best) = best.filter(|best| best.score >= threshold) else { return Ok(path) };
            replaced.push(best.layer);
            path.push(best);
        }
    }

    fn layers(&self) -> impl Iterator<Item = usize> {
        self.students.iter().map(|student| student.layer)
    }

    /// The order that the theory suggests: each time the layer whose replacement leaves the most rungs.
    fn order_by_rungs(&self) -> Vec<usize> {
        let mut plan = self.network.plan.clone();
        let mut order: Vec<usize> = Vec::new();
        while order.len() < self.students.len() {
            let rungs_after = |student: &DistilledMixer<S>| {
                let mut plan = plan.clone();
                plan.layers[student.layer] = Layer::new(student.mixer.clone());
                plan.capacity().rungs
            };
            let candidates = self.students.iter().filter(|student| !order.contains(&student.layer));
            let next = candidates.max_by_key(|student| (rungs_after(student), std::cmp::Reverse(student.layer)));
            let Some(next) = next else { break };
            order.push(next.layer);
            plan.layers[next.layer] = Layer::new(next.mixer.clone());
        }
        order
    }
}

/// The accuracy, each number of hops counted equally.
fn mean_accuracy(accuracy: &AccuracyByGroup) -> f64 {
    accuracy.values().map(rung_train::run::accuracy::AnswerCount::accuracy).sum::<f64>() / accuracy.len().max(1) as f64
}

/// Layers whose only mixer is full attention; none if layers share caches.
fn replaceable_layers(plan: &Plan) -> Vec<usize> {
    let is_only_full = |layer: &Layer| layer.mixers.len() == 1 && is_full(&layer.mixers[0]) && !layer.shares_cache;
    let any_shared = plan.layers.iter().any(|layer| layer.shares_cache);
    (0..plan.layers.len()).filter(|index| is_only_full(&plan.layers[*index]) && !any_shared).collect()
}

/// The mixer `to` as a replacement of a full one, with the same number of heads unless `to` gives another.
fn student_mixer(to: &str, plan: &Plan, full: &Mixer) -> Result<Mixer, AnalysisError> {
    let not_applicable = |found: String, expected: &str| AnalysisError::NotApplicable {
        analysis: "convert",
        found,
        expected: expected.to_owned(),
    };
    let heads = full.facts().attention.map_or(1, |heads| heads.query_heads);
    let head_dim = full.facts().attention.map_or(plan.width, |heads| heads.key_head_dim);
    let defaults = Defaults { heads, head_dim, kv_heads: None, model_width: Some(plan.width), bits: full.bits() };
    let parsed =
        Plan::parse(to, &defaults).map_err(|error| not_applicable(format!("--to {to}: {error}"), "a mixer"))?;
    let [layer] = &parsed.layers[..] else { return Err(not_applicable(format!("--to {to}"), "one mixer")) };
    let [mixer] = &layer.mixers[..] else { return Err(not_applicable(format!("--to {to}"), "one mixer")) };
    if is_full(mixer) {
        return Err(not_applicable(format!("--to {to}"), "a mixer of bounded state"));
    }
    if mixer.kind().shares_between_layers {
        return Err(not_applicable(
            format!("--to {to}"),
            "a mixer whose layers share no weights and no values with each other",
        ));
    }
    Ok(mixer.clone())
}

/// Converts a network. `on_step` is called after every step of distillation of a layer.
///
/// # Errors
/// There is no full layer to replace, the mixer does not fit, or the task does not.
pub fn convert<S: Scalar>(
    network: &Network<S>,
    options: &ConvertOptions,
    on_step: &(dyn Fn() + Sync),
) -> Result<(Conversion, [Network<S>; 2]), AnalysisError> {
    reject_chain_of_thought("convert", network)?;
    let layers = replaceable_layers(&network.plan);
    if layers.is_empty() {
        let expected = "a network with full layers that have no other mixer and share no cache".to_owned();
        return Err(AnalysisError::NotApplicable { analysis: "convert", found: network.name.clone(), expected });
    }
    let mut jobs = Vec::new();
    for layer in layers {
        jobs.push((layer, student_mixer(&options.to, &network.plan, &network.plan.layers[layer].mixers[0])?));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let tokens = match &options.analysis.task {
        Some(text) => task::parse(text).map_err(|error| RunError::invalid_task("--task", error))?.length(),
        None => network.task()?.length(),
    };
    let concurrent_prompts = cores.saturating_mul(options.batch);
    network
        .check_training_memory("distillation", BatchShape { prompts: concurrent_prompts, tokens })
        .map_err(ModelError::Memory)?;
    let distilled = parallel::map(&jobs, |(layer, mixer)| distill(network, *layer, mixer, options, on_step));
    let distilled = distilled.into_iter().collect::<Result<Vec<_>, _>>()?;
    let errors = distilled.iter().map(|(student, [initial_error, final_error])| StudentError {
        layer: student.layer,
        initial_error: *initial_error,
        final_error: *final_error,
    });
    let errors: Vec<StudentError> = errors.collect();
    let students = distilled.into_iter().map(|(student, _)| student).collect();
    let converter = Converter { network, config: &network.config, students };
    let draw_questions = |seed: u64| {
        Questions::sample(
            network,
            &AnalysisOptions { seed: options.analysis.seed ^ seed, ..options.analysis.clone() },
            LIMITS,
        )
    };
    let (validation, test) = (draw_questions(0x5eed)?, draw_questions(0x7e57)?);
    let teacher_score = converter.score(&validation, &[])?;
    let threshold = options.threshold.unwrap_or(teacher_score - 0.02);
    let path = converter.replace_greedily(&validation, threshold)?;
    let best = best_replacements(teacher_score, &path);
    let most_linear: Vec<usize> = path.iter().map(|step| step.layer).collect();
    let orders = measure_orders(&converter, &validation, &test, options.analysis.seed)?;
    let networks = [converter.convert_layers(&best)?, converter.convert_layers(&most_linear)?];
    let conversion = Conversion {
        name: network.name.clone(),
        task: test.task,
        to: jobs[0].1.to_string(),
        teacher_score,
        threshold,
        layers: errors,
        path,
        best,
        most_linear,
        orders,
    };
    Ok((conversion, networks))
}

/// The replaced layers with the best score; with equal scores, the larger number of layers.
fn best_replacements(teacher_score: f64, path: &[Replacement]) -> Vec<usize> {
    let (mut best, mut count) = (teacher_score, 0);
    for (index, step) in path.iter().enumerate() {
        if step.score >= best {
            (best, count) = (step.score, index + 1);
        }
    }
    path[..count].iter().map(|step| step.layer).collect()
}

/// Every order of replacement with its scores on the test prompts.
fn measure_orders<S: Scalar>(
    converter: &Converter<'_, S>,
    validation: &Questions,
    test: &Questions,
    seed: u64,
) -> Result<Vec<ReplacementOrder>, ModelError> {
    let layers: Vec<usize> = converter.layers().collect();
    let greedy: Vec<usize> =
        converter.replace_greedily(validation, f64::NEG_INFINITY)?.iter().map(|step| step.layer).collect();
    let uniform = layers.iter().skip(1).step_by(2).chain(layers.iter().step_by(2)).copied().collect();
    let mut single_scores = Vec::new();
    for layer in &layers {
        single_scores.push((converter.score(validation, &[*layer])?, *layer));
    }
    single_scores.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let sensitivity = single_scores.into_iter().map(|(_, layer)| layer).collect();
    let named_orders =
        [("greedy", greedy), ("rungs", converter.order_by_rungs()), ("uniform", uniform), ("sensitivity", sensitivity)];
    let mut orders = Vec::new();
    for (name, layers) in named_orders {
        orders.push(ReplacementOrder { name, scores: converter.scores_of_order(test, &layers)?, layers });
    }
    let mut means = vec![0.0; layers.len() + 1];
    for number in 0..RANDOM_ORDERS {
        let mut order = layers.clone();
        shuffle(&mut seeded(seed.wrapping_add(number)), &mut order);
        let scores = converter.scores_of_order(test, &order)?;
        means.iter_mut().zip(scores).for_each(|(mean, score)| *mean += score / RANDOM_ORDERS as f64);
    }
    orders.push(ReplacementOrder { name: "random", layers: Vec::new(), scores: means });
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::random_network;

    fn options(threshold: f64) -> ConvertOptions {
        let options = AnalysisOptions { prompts: Some(8), ..AnalysisOptions::default() };
        ConvertOptions {
            to: "linear".to_owned(),
            analysis: options,
            threshold: Some(threshold),
            steps: 4,
            batch: 2,
            ..ConvertOptions::default()
        }
    }

    #[test]
    fn thresholds_at_infinity_replace_all_or_nothing() {
        let network = random_network::<f32>("full gdn full full");
        let (all, [_, linear]) = convert(&network, &options(f64::NEG_INFINITY), &|| {}).unwrap();
        let mut replaced = all.most_linear.clone();
        replaced.sort_unstable();
        assert_eq!(replaced, [0, 2, 3]);
        assert_eq!((linear.plan.full_layers(), linear.plan.mixer_names()), (0, "linear gdn linear*2".to_owned()));
        let (none, networks) = convert(&network, &options(f64::INFINITY), &|| {}).unwrap();
        assert!(none.path.is_empty() && none.best.is_empty() && none.most_linear.is_empty());
        for unchanged in networks {
            assert_eq!(unchanged.weights.flat(), network.weights.flat());
            assert_eq!(unchanged.plan, network.plan);
        }
        for order in &all.orders {
            assert_eq!(order.scores.len(), 4);
            assert!((order.scores[0] - all.orders[0].scores[0]).abs() < 1e-12, "all start from the teacher");
        }
    }

    #[test]
    fn the_order_by_rungs_replaces_a_layer_that_costs_no_rung_first() {
        let network = random_network::<f32>("full full full");
        let mut options = options(f64::NEG_INFINITY);
        options.steps = 1;
        let (conversion, _) = convert(&network, &options, &|| {}).unwrap();
        let rungs = conversion.orders.iter().find(|order| order.name == "rungs").unwrap();
        // Three full layers have two rungs, and so have a recurrent layer and two full ones.
        assert_eq!(rungs.layers[0], 0);
    }

    #[test]
    fn best_replacements_are_the_most_of_equal_scores() {
        let path = |scores: &[f64]| {
            scores.iter().enumerate().map(|(layer, score)| Replacement { layer, score: *score }).collect::<Vec<_>>()
        };
        assert_eq!(best_replacements(0.9, &path(&[0.9, 0.95, 0.95, 0.8])), [0, 1, 2]);
        assert!(best_replacements(0.9, &path(&[0.8])).is_empty());
    }

    #[test]
    fn stacks_and_mixers_that_cannot_be_converted_are_rejected() {
        let assert_rejected = |stack: &str, to: &str, expected: &str| {
            let options = ConvertOptions { to: to.to_owned(), ..options(0.0) };
            let error = convert(&random_network::<f32>(stack), &options, &|| {}).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        };
        assert_rejected("gdn linear", "gdn", "expected a network with full layers");
        assert_rejected("full", "full", "expected a mixer of bounded state");
        assert_rejected("full", "gdn gdn", "expected one mixer");
        assert_rejected("full", "gnd", "--to gnd");
        assert_rejected("full", "rwkv7", "share no weights");
    }
}
