//! Which mixers each hop needs: accuracy per hop without all mixers of a kind, and without one at a time.
//!
//! A mixer is ablated by adding zero to the residual stream instead of its output; the feed-forward network of its layer stays. If the accuracy
//! on questions of some number of hops does not fall, those questions do not need the mixer.
//!
//! # What it shows
//!
//! Accuracy for each number of hops: of the intact network, without all mixers of bounded state, without all full attention, without
//! each single mixer, and without all feed-forward networks. On text prompts also the loss: the mean negative log-probability of the right token.
//!
//! # Validation
//!
//! Construction U1 needs all of its layers for its L hops.
//!
//! # What it does not show
//!
//! Later layers were trained with the mixer's output as input. So a lower accuracy does not show that the mixer computes the answer; an
//! unchanged accuracy shows that it is not needed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rung_engine::{Native, Ops, Scalar, Tensor};
use rung_nn::{Hooks, MixerIndex};
use rung_theory::stack::{Layer, Mixer, MixerReach, Plan};
use serde::Serialize;

use super::questions::{QuestionLimits, Questions, accuracy_of, accuracy_text, group_name};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, reject_chain_of_thought};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Chart, HeatCell, HeatMap, LineChart, Point, Scale, Series};
use rung_nn::Network;
use rung_train::run::accuracy::AccuracyByGroup;

/// Limits of the sampled questions.
const LIMITS: QuestionLimits = QuestionLimits { questions: 600, tokens: 1 << 13 };

/// The accuracy of a network without some of its parts.
#[derive(Clone, Debug, Serialize)]
pub struct Ablations {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// The intact network first, then every ablation.
    pub variants: Vec<AblatedNetwork>,
    /// Whether the prompts were text. Then the losses are shown too.
    #[serde(skip)]
    pub is_text: bool,
}

/// A network without some of its parts.
#[derive(Clone, Debug, Serialize)]
pub struct AblatedNetwork {
    /// `as it is`, or `without` and the ablated parts.
    pub name: String,
    /// Correct answers for each number of hops.
    pub accuracy: AccuracyByGroup,
    /// Mean negative log-probability of the right answer, for each number of hops.
    pub loss: BTreeMap<u16, f64>,
}

/// Ablates parts of a forward pass.
#[derive(Clone, Debug, Default)]
pub struct AblationHooks {
    /// Mixers whose output is replaced by zero.
    pub mixers: Vec<MixerIndex>,
    /// Whether feed-forward networks are ablated too.
    pub feed_forward: bool,
}

impl<S: Scalar> Hooks<Native<S>> for AblationHooks {
    fn mixer_output(&mut self, ops: &Native<S>, mixer: MixerIndex, _: &Tensor<S>, output: Tensor<S>) -> Tensor<S> {
        if self.mixers.contains(&mixer) { ops.zeros(&ops.shape(&output)) } else { output }
    }

    fn runs_feed_forward(&self) -> bool {
        !self.feed_forward
    }
}

/// Every mixer of a plan with its index.
pub fn indexed_mixers(plan: &Plan) -> Vec<(MixerIndex, &Mixer)> {
    let mixers = |(index, layer): (usize, &Layer)| {
        (0..layer.mixers.len()).map(move |mixer| MixerIndex { layer: index, mixer }).collect::<Vec<_>>()
    };
    let indices = plan.layers.iter().enumerate().flat_map(mixers);
    indices.map(|index| (index, &plan.layers[index.layer].mixers[index.mixer])).collect()
}

/// Whether a mixer attends to all previous tokens, as opposed to a bounded state or window.
pub fn is_full(mixer: &Mixer) -> bool {
    matches!(mixer.facts().reach, MixerReach::Full(_))
}

/// The ablations of a stack, each with its name.
fn ablations(plan: &Plan, feed_forward: bool) -> Vec<(String, AblationHooks)> {
    let mixers = indexed_mixers(plan);
    let mut ablations = vec![("as it is".to_owned(), AblationHooks::default())];
    let mut add =
        |name: String, mixers: Vec<MixerIndex>| ablations.push((name, AblationHooks { mixers, feed_forward: false }));
    let mixers_of = |full: bool| {
        let indices = mixers.iter().filter(|(_, mixer)| is_full(mixer) == full).map(|(index, _)| *index);
        indices.collect::<Vec<_>>()
    };
    for (name, indices) in
        [("without all bounded state", mixers_of(false)), ("without all full attention", mixers_of(true))]
    {
        if !indices.is_empty() {
            add(name.to_owned(), indices);
        }
    }
    for (index, mixer) in &mixers {
        add(format!("without {}: {}", index.layer, mixer.name()), vec![*index]);
    }
    if feed_forward {
        ablations.push(("without feed-forward".to_owned(), AblationHooks { mixers: Vec::new(), feed_forward: true }));
    }
    ablations
}

/// Measures the accuracy of every ablation.
///
/// # Errors
/// The network or the task does not fit.
pub fn ablate<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<Ablations, AnalysisError> {
    reject_chain_of_thought("ablate", network)?;
    let questions = Questions::sample(network, options, LIMITS)?;
    let feed_forward = network.config.feed_forward != rung_nn::FeedForwardConfig::None;
    let mut variants = Vec::new();
    for (name, hooks) in ablations(&network.plan, feed_forward) {
        let scores = questions.measure(&network.model, &network.weights, || hooks.clone())?;
        let loss = scores.iter().map(|(group, score)| (*group, score.mean_loss())).collect();
        variants.push(AblatedNetwork { name, accuracy: accuracy_of(&scores), loss });
    }
    let is_text = options.text.is_some();
    Ok(Ablations { name: network.name.clone(), task: questions.task, variants, is_text })
}

impl Ablations {
    fn text(&self) -> String {
        let widest = self.variants.iter().map(|variant| variant.name.len()).max().unwrap_or(0);
        let mut text = format!("{} on {}: accuracy (measured)\n\n", self.name, self.task);
        for variant in &self.variants {
            let _ = write!(text, "  {:widest$}  {}", variant.name, accuracy_text(&variant.accuracy));
            for (group, loss) in variant.loss.iter().filter(|_| self.is_text) {
                let added = loss - self.variants[0].loss[group];
                let _ = write!(text, "; loss {} {loss:.3} ({added:+.3})", group_name(*group));
            }
            text += "\n";
        }
        text
    }

    /// The increase of the loss by the ablation of each single mixer.
    pub fn loss_chart(&self) -> LineChart {
        let mut chart = LineChart::new(
            format!("Loss added without the mixer of one layer: {}", self.name),
            AxisSpec::new("layer whose mixer is removed", Scale::Integer),
            AxisSpec::new("loss added, in nats", Scale::Linear),
        );
        let ablated_layer = |variant: &AblatedNetwork| {
            variant.name.strip_prefix("without ").and_then(|part| part.split_once(':')?.0.parse::<usize>().ok())
        };
        for (group, intact) in &self.variants[0].loss {
            let point = |variant: &AblatedNetwork| {
                Some(Point::new(ablated_layer(variant)? as f64, variant.loss[group] - intact))
            };
            let points = self.variants.iter().filter_map(point).collect();
            let name = format!("{} ({})", group_name(*group), Evidence::Measured);
            chart = chart.series(Series::line_and_points(name, points));
        }
        chart
    }

    /// A heat map of the accuracy, a row for each ablation and a column for each number of hops.
    pub fn chart(&self) -> HeatMap {
        let groups: Vec<u16> = self.variants[0].accuracy.keys().copied().collect();
        let names: Vec<String> = groups.iter().map(|group| group_name(*group)).collect();
        let row = |variant: &AblatedNetwork| {
            let cell = |group: &u16| {
                variant.accuracy.get(group).map_or_else(HeatCell::default, |answers| HeatCell::new(answers.accuracy()))
            };
            groups.iter().map(cell).collect()
        };
        let rows: Vec<&str> = self.variants.iter().map(|variant| &variant.name[..]).collect();
        HeatMap::new(
            format!("Mixers that each hop needs: {}", self.name),
            ("network", &rows),
            ("questions", &names),
            self.variants.iter().map(row).collect(),
        )
        .with_evidence(Evidence::Measured)
        .with_note(format!(
            "Accuracy on {}, with zero added to the residual stream in place of the removed parts.",
            self.task
        ))
    }
}

/// Runs the analysis.
///
/// # Errors
/// The network or the task does not fit.
pub fn run(network: &Network<f32>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let ablations = ablate(network, options)?;
    let mut charts: Vec<Box<dyn Chart>> = vec![Box::new(ablations.chart())];
    if ablations.is_text {
        charts.insert(0, Box::new(ablations.loss_chart()));
    }
    Ok(AnalysisOutput::new(&ablations, ablations.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::construct::{ConstructionRequest, build, build_on};
    use rung_theory::stack::Defaults;

    #[test]
    fn u1_needs_every_layer_and_does_not_need_an_additional_one() {
        let options = AnalysisOptions { prompts: Some(64), ..AnalysisOptions::default() };
        let request = ConstructionRequest { first_table_entries: 16, ..ConstructionRequest::default() };
        let network = build::<f32>("U1", &request).unwrap();
        let ablations = ablate(&network, &options).unwrap();
        let accuracy = |ablations: &Ablations, name: &str| {
            ablations.variants.iter().find(|variant| variant.name == name).unwrap().accuracy[&2].accuracy()
        };
        assert!(accuracy(&ablations, "as it is") > 0.999);
        for layer in 0..3 {
            let without = accuracy(&ablations, &format!("without {layer}: full"));
            assert!(without < 0.5, "without layer {layer}: {without}");
        }
        // In a stack with an additional layer that the construction does not use, that layer can be ablated.
        let defaults = Defaults { heads: 1, head_dim: 16, ..Defaults::default() };
        let plan = Plan::parse("full full linear full", &defaults).unwrap();
        let network = build_on::<f32>("U1", &request, &plan).unwrap();
        let ablations = ablate(&network, &options).unwrap();
        assert!(accuracy(&ablations, "as it is") > 0.999);
        assert!(accuracy(&ablations, "without all bounded state") > 0.999);
        assert!(accuracy(&ablations, "without all full attention") < 0.5);
    }
}
