//! Full layers made linear, one by one: distilled where they stand, replaced in an order, as long as the answers stay good.
//!
//! A trained network with full attention is the teacher. For each of its full layers a counterpart of bounded state is trained alone:
//! it is fed what the teacher's layer is fed, and is to give what that gives. Then layers are replaced, one after another and
//! without any further training, while right answers on validation prompts stay above a threshold. Two networks come out of it:
//! the best on the way, and the most linear one above the threshold.
//!
//! # What it shows
//!
//! How well each layer can be imitated alone; right answers after every replacement; and the order in which layers are replaced
//! against others:
//!
//! - greedy: each time the layer whose replacement leaves the best score;
//! - rungs: the layer whose replacement leaves the most rungs by the theory, the first among equals. This is our prior: it looks
//!   at no data;
//! - uniform: every second layer, then the rest; random: the mean of three orders; sensitivity: by the score with that layer alone
//!   replaced.
//!
//! # How
//!
//! Counterparts start from the teacher's projections where names and shapes agree. The loss is the squared difference of outputs,
//! over the size of the teacher's. The score is the share of right answers, each number of hops counted equally. Every order is
//! followed to the end for the comparison, on prompts that no decision was made by.
//!
//! # Known answer
//!
//! With a threshold of minus infinity every full layer is replaced; with plus infinity the teacher comes back as it is.
//!
//! Checkpoints of other programs are converted on prompts as text, by perplexity instead of right answers ([`text`]).
//!
//! # What it does not show
//!
//! Nothing is trained after a replacement, so a bad score does not say that no weights of that layout could do better.
//!
//! # Source
//!
//! After *Distill-then-Replace* (arXiv 2601.11667), as far as its abstract tells.

mod distill;
mod show;
pub mod text;

use rung_engine::{Parameters, Scalar};
use rung_nn::{ModelConfig, ModelError, Network, NoHooks, Provenance};
use rung_theory::stack::mixer::DEFAULT_RECURRENCE;
use rung_theory::stack::{Defaults, Layer, Mixer, Plan};
use rung_theory::task::{self, seeded, shuffle};
use serde::Serialize;

use super::ablate::is_full;
use super::questions::Questions;
use super::{AnalysisError, InstrumentOptions, require_one_pass};
use rung_train::parallel;
use rung_train::run::accuracy::Accuracy;
use rung_train::run::error::RunError;

use distill::{DistilledMixer, distill};

/// Random orders that are averaged.
const RANDOM: u64 = 3;

/// Questions of a validation or test, and tokens that are too many.
const AMOUNT: (usize, usize) = (600, 1 << 14);

/// What a conversion is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvertOptions {
    /// The mixer that replaces full attention, such as `gdn` or `window{size=8}`.
    pub to: String,
    /// Task and seed.
    pub instrument: InstrumentOptions,
    /// Replacement stops where the best score would fall below this; by default two points below the teacher's.
    pub threshold: Option<f64>,
    /// Steps of distillation of each layer.
    pub steps: usize,
    /// Prompts of each step.
    pub batch: usize,
    /// Peak learning rate.
    pub rate: f64,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            to: DEFAULT_RECURRENCE.to_owned(),
            instrument: InstrumentOptions::default(),
            threshold: None,
            steps: 300,
            batch: 8,
            rate: 3e-3,
        }
    }
}

/// A conversion, and all that was seen on the way.
#[derive(Clone, Debug, Serialize)]
pub struct Conversion {
    /// The teacher.
    pub name: String,
    /// The task.
    pub task: String,
    /// The mixer that replaces full attention.
    pub to: String,
    /// The teacher's score on validation prompts.
    pub teacher: f64,
    /// The score below which nothing is replaced.
    pub threshold: f64,
    /// Every full layer that can be replaced, with how well it was imitated.
    pub layers: Vec<DistilledLayer>,
    /// The greedy path: layers in the order of replacement, as far as the threshold allowed.
    pub path: Vec<Replacement>,
    /// Layers replaced in the best network on the way.
    pub best: Vec<usize>,
    /// Layers replaced in the most linear one above the threshold.
    pub most_linear: Vec<usize>,
    /// Every order, followed to the end on test prompts.
    pub orders: Vec<ReplacementOrder>,
}

/// A layer and its counterpart.
#[derive(Clone, Debug, Serialize)]
pub struct DistilledLayer {
    /// The layer, from 0.
    pub layer: usize,
    /// Squared difference over squared size of the teacher's output, before training.
    pub before: f64,
    /// And after, mean over the last tenth of the steps.
    pub after: f64,
}

/// One replacement.
#[derive(Clone, Debug, Serialize)]
pub struct Replacement {
    /// The layer, from 0.
    pub layer: usize,
    /// The score on validation prompts with it and all before it replaced.
    pub score: f64,
}

/// An order of replacement.
#[derive(Clone, Debug, Serialize)]
pub struct ReplacementOrder {
    /// What it is called.
    pub name: &'static str,
    /// Its layers; empty for the mean of random ones.
    pub layers: Vec<usize>,
    /// The score on test prompts after 0, 1, 2, .. replacements.
    pub scores: Vec<f64>,
}

/// A teacher and the counterparts of its full layers.
struct Conversions<'a, S: Scalar> {
    network: &'a Network<S>,
    config: &'a ModelConfig,
    counterparts: Vec<DistilledMixer<S>>,
}

impl<S: Scalar> Conversions<'_, S> {
    /// The teacher with these layers replaced.
    fn student(&self, replaced: &[usize]) -> Result<Network<S>, ModelError> {
        let network = self.network;
        let mut plan = network.plan.clone();
        let chosen = || self.counterparts.iter().filter(|one| replaced.contains(&one.layer));
        for one in chosen() {
            plan.layers[one.layer] = Layer::new(one.mixer.clone());
        }
        let mut weights = Parameters::new();
        let model = self.config.init(&plan, &mut weights, &mut seeded(0))?;
        let entries: Vec<_> = weights.entries().map(|(id, entry)| (id, entry.name.clone())).collect();
        for (id, name) in entries {
            let own = chosen().find_map(|one| Some((&one.weights, one.weights.find(&name)?)));
            let Some((store, source)) = own.or_else(|| Some((&network.weights, network.weights.find(&name)?))) else {
                unreachable!("a weight is the teacher's or a counterpart's: {name}")
            };
            let values = store.get(source).to_vec();
            weights.get_mut(id).copy_from_slice(&values);
        }
        let task = network.task.as_ref().and_then(|task| task::parse(&task.spec()).ok());
        let provenance = match &network.provenance {
            // What a construction says of itself is not true of its students.
            Provenance::Construction(_) => Provenance::Program,
            trained => trained.clone(),
        };
        let (name, config) = (plan.outline(), self.config.clone());
        Ok(Network { name, task, plan, config, model, weights, provenance })
    }

    fn score(&self, questions: &Questions, replaced: &[usize]) -> Result<f64, ModelError> {
        let student = self.student(replaced)?;
        Ok(score(&questions.accuracy(&student.model, &student.weights, || NoHooks)?))
    }

    /// Scores after 0, 1, 2, .. replacements in an order.
    fn follow(&self, questions: &Questions, order: &[usize]) -> Result<Vec<f64>, ModelError> {
        (0..=order.len()).map(|count| self.score(questions, &order[..count])).collect()
    }

    /// Replaces, each time, the layer that leaves the best score, until that falls below a threshold.
    fn greedy(&self, questions: &Questions, threshold: f64) -> Result<Vec<Replacement>, ModelError> {
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
        self.counterparts.iter().map(|one| one.layer)
    }

    /// The order that the theory predicts: each time the layer whose replacement leaves the most rungs.
    fn by_rungs(&self) -> Vec<usize> {
        let mut plan = self.network.plan.clone();
        let mut order: Vec<usize> = Vec::new();
        while order.len() < self.counterparts.len() {
            let left = |one: &DistilledMixer<S>| {
                let mut plan = plan.clone();
                plan.layers[one.layer] = Layer::new(one.mixer.clone());
                plan.capacity().rungs
            };
            let candidates = self.counterparts.iter().filter(|one| !order.contains(&one.layer));
            let next = candidates.max_by_key(|one| (left(one), std::cmp::Reverse(one.layer)));
            let Some(next) = next else { break };
            order.push(next.layer);
            plan.layers[next.layer] = Layer::new(next.mixer.clone());
        }
        order
    }
}

/// Right answers, each number of hops counted equally.
fn score(accuracy: &Accuracy) -> f64 {
    accuracy.values().map(rung_train::run::accuracy::AnswerCount::mean).sum::<f64>() / accuracy.len().max(1) as f64
}

/// Layers that are full attention and nothing else, that lend nothing and borrow nothing.
fn replaceable(plan: &Plan) -> Vec<usize> {
    let alone = |layer: &Layer| layer.mixers.len() == 1 && is_full(&layer.mixers[0]) && !layer.shares_cache;
    let lends = plan.layers.iter().any(|layer| layer.shares_cache);
    (0..plan.layers.len()).filter(|at| alone(&plan.layers[*at]) && !lends).collect()
}

/// The mixer that stands for a full layer, with its heads unless the text says otherwise.
fn counterpart(to: &str, plan: &Plan, full: &Mixer) -> Result<Mixer, AnalysisError> {
    let unfit = |found: String, expected: &str| AnalysisError::Unfit {
        instrument: "convert",
        found,
        expected: expected.to_owned(),
    };
    let heads = full.facts().attention.map_or(1, |heads| heads.query);
    let head_dim = full.facts().attention.map_or(plan.width, |heads| heads.key);
    let defaults = Defaults { heads, head_dim, kv_heads: None, model_width: Some(plan.width), bits: full.bits() };
    let read = Plan::parse(to, &defaults).map_err(|error| unfit(format!("--to {to}: {error}"), "a mixer"))?;
    let [layer] = &read.layers[..] else { return Err(unfit(format!("--to {to}"), "one mixer")) };
    let [mixer] = &layer.mixers[..] else { return Err(unfit(format!("--to {to}"), "one mixer")) };
    if is_full(mixer) {
        return Err(unfit(format!("--to {to}"), "a mixer of bounded state"));
    }
    if mixer.kind().shares_between_layers {
        return Err(unfit(format!("--to {to}"), "a mixer whose layers share no weights and no values with each other"));
    }
    Ok(mixer.clone())
}

/// Converts a network. `tick` is called after every step of distillation of a layer.
///
/// # Errors
/// There is no full layer to replace, the mixer does not fit, or the task does not.
pub fn convert<S: Scalar>(
    network: &Network<S>,
    options: &ConvertOptions,
    tick: &(dyn Fn() + Sync),
) -> Result<(Conversion, [Network<S>; 2]), AnalysisError> {
    require_one_pass("convert", network)?;
    let layers = replaceable(&network.plan);
    if layers.is_empty() {
        let expected = "a network with full layers that neither share a cache nor stand beside other mixers".to_owned();
        return Err(AnalysisError::Unfit { instrument: "convert", found: network.name.clone(), expected });
    }
    let mut jobs = Vec::new();
    for layer in layers {
        jobs.push((layer, counterpart(&options.to, &network.plan, &network.plan.layers[layer].mixers[0])?));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let tokens = match &options.instrument.task {
        Some(text) => task::parse(text).map_err(|error| RunError::task("--task", error))?.length(),
        None => network.task()?.length(),
    };
    let at_once = (cores.saturating_mul(options.batch), tokens);
    network.check_memory("distillation", at_once, true).map_err(ModelError::Memory)?;
    let made = parallel::map(&jobs, |(layer, mixer)| distill(network, *layer, mixer, options, tick));
    let made = made.into_iter().collect::<Result<Vec<_>, _>>()?;
    let imitated =
        made.iter().map(|(one, [before, after])| DistilledLayer { layer: one.layer, before: *before, after: *after });
    let imitated: Vec<DistilledLayer> = imitated.collect();
    let counterparts = made.into_iter().map(|(one, _)| one).collect();
    let workshop = Conversions { network, config: &network.config, counterparts };
    let drawn = |seed: u64| {
        Questions::draw(
            network,
            &InstrumentOptions { seed: options.instrument.seed ^ seed, ..options.instrument.clone() },
            AMOUNT,
        )
    };
    let (validation, test) = (drawn(0x5eed)?, drawn(0x7e57)?);
    let teacher = workshop.score(&validation, &[])?;
    let threshold = options.threshold.unwrap_or(teacher - 0.02);
    let path = workshop.greedy(&validation, threshold)?;
    let best = best(teacher, &path);
    let most_linear: Vec<usize> = path.iter().map(|step| step.layer).collect();
    let orders = orders(&workshop, &validation, &test, options.instrument.seed)?;
    let students = [workshop.student(&best)?, workshop.student(&most_linear)?];
    let conversion = Conversion {
        name: network.name.clone(),
        task: test.task,
        to: jobs[0].1.to_string(),
        teacher,
        threshold,
        layers: imitated,
        path,
        best,
        most_linear,
        orders,
    };
    Ok((conversion, students))
}

/// The layers replaced where the score was best; the more of them among equals.
fn best(teacher: f64, path: &[Replacement]) -> Vec<usize> {
    let (mut best, mut count) = (teacher, 0);
    for (at, step) in path.iter().enumerate() {
        if step.score >= best {
            (best, count) = (step.score, at + 1);
        }
    }
    path[..count].iter().map(|step| step.layer).collect()
}

/// Every order, followed to the end.
fn orders<S: Scalar>(
    workshop: &Conversions<'_, S>,
    validation: &Questions,
    test: &Questions,
    seed: u64,
) -> Result<Vec<ReplacementOrder>, ModelError> {
    let layers: Vec<usize> = workshop.layers().collect();
    let greedy: Vec<usize> = workshop.greedy(validation, f64::NEG_INFINITY)?.iter().map(|step| step.layer).collect();
    let uniform = layers.iter().skip(1).step_by(2).chain(layers.iter().step_by(2)).copied().collect();
    let mut alone = Vec::new();
    for layer in &layers {
        alone.push((workshop.score(validation, &[*layer])?, *layer));
    }
    alone.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let sensitivity = alone.into_iter().map(|(_, layer)| layer).collect();
    let named =
        [("greedy", greedy), ("rungs", workshop.by_rungs()), ("uniform", uniform), ("sensitivity", sensitivity)];
    let mut orders = Vec::new();
    for (name, layers) in named {
        orders.push(ReplacementOrder { name, scores: workshop.follow(test, &layers)?, layers });
    }
    let mut means = vec![0.0; layers.len() + 1];
    for number in 0..RANDOM {
        let mut order = layers.clone();
        shuffle(&mut seeded(seed.wrapping_add(number)), &mut order);
        let scores = workshop.follow(test, &order)?;
        means.iter_mut().zip(scores).for_each(|(mean, score)| *mean += score / RANDOM as f64);
    }
    orders.push(ReplacementOrder { name: "random", layers: Vec::new(), scores: means });
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sample;

    fn options(threshold: f64) -> ConvertOptions {
        let options = InstrumentOptions { prompts: Some(8), ..InstrumentOptions::default() };
        ConvertOptions {
            to: "linear".to_owned(),
            instrument: options,
            threshold: Some(threshold),
            steps: 4,
            batch: 2,
            ..ConvertOptions::default()
        }
    }

    #[test]
    fn thresholds_at_infinity_replace_all_or_nothing() {
        let network = sample::<f32>("full gdn full full");
        let (all, [_, linear]) = convert(&network, &options(f64::NEG_INFINITY), &|| {}).unwrap();
        let mut replaced = all.most_linear.clone();
        replaced.sort_unstable();
        assert_eq!(replaced, [0, 2, 3]);
        assert_eq!((linear.plan.full_layers(), linear.plan.outline()), (0, "linear gdn linear*2".to_owned()));
        let (none, students) = convert(&network, &options(f64::INFINITY), &|| {}).unwrap();
        assert!(none.path.is_empty() && none.best.is_empty() && none.most_linear.is_empty());
        for student in students {
            assert_eq!(student.weights.flat(), network.weights.flat());
            assert_eq!(student.plan, network.plan);
        }
        for order in &all.orders {
            assert_eq!(order.scores.len(), 4);
            assert!((order.scores[0] - all.orders[0].scores[0]).abs() < 1e-12, "all start from the teacher");
        }
    }

    #[test]
    fn the_prior_keeps_rungs_as_long_as_it_can() {
        let network = sample::<f32>("full full full");
        let mut options = options(f64::NEG_INFINITY);
        options.steps = 1;
        let (found, _) = convert(&network, &options, &|| {}).unwrap();
        let rungs = found.orders.iter().find(|order| order.name == "rungs").unwrap();
        // Three full layers are two rungs; with a state in front of two they still are.
        assert_eq!(rungs.layers[0], 0);
    }

    #[test]
    fn the_best_is_the_last_of_equals() {
        let path = |scores: &[f64]| {
            scores.iter().enumerate().map(|(layer, score)| Replacement { layer, score: *score }).collect::<Vec<_>>()
        };
        assert_eq!(best(0.9, &path(&[0.9, 0.95, 0.95, 0.8])), [0, 1, 2]);
        assert!(best(0.9, &path(&[0.8])).is_empty());
    }

    #[test]
    fn what_cannot_be_converted_is_named() {
        let fails = |stack: &str, to: &str, expected: &str| {
            let options = ConvertOptions { to: to.to_owned(), ..options(0.0) };
            let error = convert(&sample::<f32>(stack), &options, &|| {}).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        };
        fails("gdn linear", "gdn", "expected a network with full layers");
        fails("full", "full", "expected a mixer of bounded state");
        fails("full", "gdn gdn", "expected one mixer");
        fails("full", "gnd", "--to gnd");
        fails("full", "rwkv7", "share no weights");
    }
}
