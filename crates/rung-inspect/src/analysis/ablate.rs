//! Which mixers each hop needs: accuracy per hop without all mixers of a kind, and without one at a time.
//!
//! A mixer is removed by adding zero to the stream in its place; the channel mixer of its layer stays. If the answers to questions
//! of so many hops are as good without it, those questions do not need it.
//!
//! # What it shows
//!
//! Right answers for each number of hops: as it is, without all mixers of bounded state, without all full attention, without each
//! mixer alone, and without all channel mixers. On prompts as text also the loss: the mean negative log-probability of the right token.
//!
//! # Known answer
//!
//! Construction U1 needs all of its layers for its L hops.
//!
//! # What it does not show
//!
//! Removing a mixer also takes away what later layers were trained to expect. That questions fail without it does not say that it
//! moves what they ask for; that they do not fail says that it was not needed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rung_engine::{Native, Ops, Scalar, Tensor};
use rung_nn::{Hooks, MixerIndex};
use rung_theory::stack::{Layer, Mixer, MixerReach, Plan};
use serde::Serialize;

use super::questions::{Questions, accuracy_of, group_name, shares};
use super::{AnalysisError, Finding, InstrumentOptions, require_one_pass};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Chart, HeatCell, HeatMap, LineChart, Point, Scale, Series};
use rung_nn::Network;
use rung_train::run::accuracy::Accuracy;

/// Questions that are enough, and tokens that are too many.
const AMOUNT: (usize, usize) = (600, 1 << 13);

/// What is left of a network without some of its parts.
#[derive(Clone, Debug, Serialize)]
pub struct Ablations {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Every variant.
    pub variants: Vec<AblatedNetwork>,
    /// Whether prompts were text: then losses say more than right answers.
    #[serde(skip)]
    pub text: bool,
}

/// A network without some of its parts.
#[derive(Clone, Debug, Serialize)]
pub struct AblatedNetwork {
    /// What it is without.
    pub name: String,
    /// Right answers for each number of hops.
    pub accuracy: Accuracy,
    /// Mean negative log-probability of the right answer, for each number of hops.
    pub loss: BTreeMap<u16, f64>,
}

/// Takes parts out of a forward pass.
#[derive(Clone, Debug, Default)]
pub struct AblationHooks {
    /// Mixers that add nothing.
    pub mixers: Vec<MixerIndex>,
    /// Whether channel mixers go too.
    pub channels: bool,
}

impl<S: Scalar> Hooks<Native<S>> for AblationHooks {
    fn mixed(&mut self, ops: &Native<S>, place: MixerIndex, _: &Tensor<S>, output: Tensor<S>) -> Tensor<S> {
        if self.mixers.contains(&place) { ops.zeros(&ops.shape(&output)) } else { output }
    }

    fn channels(&self) -> bool {
        !self.channels
    }
}

/// Every mixer of a plan with its place.
pub fn places(plan: &Plan) -> Vec<(MixerIndex, &Mixer)> {
    let layer = |(layer, found): (usize, &Layer)| {
        (0..found.mixers.len()).map(move |mixer| MixerIndex { layer, mixer }).collect::<Vec<_>>()
    };
    let all = plan.layers.iter().enumerate().flat_map(layer);
    all.map(|place| (place, &plan.layers[place.layer].mixers[place.mixer])).collect()
}

/// Whether a mixer reads the whole prefix.
pub fn is_full(mixer: &Mixer) -> bool {
    matches!(mixer.facts().reach, MixerReach::Full(_))
}

/// What is tried: a name, and what is taken out.
fn cuts(plan: &Plan, channels: bool) -> Vec<(String, AblationHooks)> {
    let all = places(plan);
    let mut cuts = vec![("as it is".to_owned(), AblationHooks::default())];
    let mut without =
        |name: String, mixers: Vec<MixerIndex>| cuts.push((name, AblationHooks { mixers, channels: false }));
    let of = |full: bool| {
        let kind = all.iter().filter(|(_, mixer)| is_full(mixer) == full).map(|(place, _)| *place);
        kind.collect::<Vec<_>>()
    };
    for (name, mixers) in [("without all bounded state", of(false)), ("without all full attention", of(true))] {
        if !mixers.is_empty() {
            without(name.to_owned(), mixers);
        }
    }
    for (place, mixer) in &all {
        without(format!("without {}: {}", place.layer, mixer.name()), vec![*place]);
    }
    if channels {
        cuts.push(("without channel mixers".to_owned(), AblationHooks { mixers: Vec::new(), channels: true }));
    }
    cuts
}

/// Takes parts out and counts right answers.
///
/// # Errors
/// The network or the task does not fit.
pub fn ablate<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Ablations, AnalysisError> {
    require_one_pass("ablate", network)?;
    let questions = Questions::draw(network, options, AMOUNT)?;
    let channels = network.config.feed_forward != rung_nn::FeedForwardConfig::None;
    let mut variants = Vec::new();
    for (name, without) in cuts(&network.plan, channels) {
        let scores = questions.measure(&network.model, &network.weights, || without.clone())?;
        let loss = scores.iter().map(|(group, score)| (*group, score.mean_loss())).collect();
        variants.push(AblatedNetwork { name, accuracy: accuracy_of(&scores), loss });
    }
    let text = options.text.is_some();
    Ok(Ablations { name: network.name.clone(), task: questions.task, variants, text })
}

impl Ablations {
    fn text(&self) -> String {
        let widest = self.variants.iter().map(|variant| variant.name.len()).max().unwrap_or(0);
        let mut text = format!("{} on {}: right answers (measured)\n\n", self.name, self.task);
        for variant in &self.variants {
            let _ = write!(text, "  {:widest$}  {}", variant.name, shares(&variant.accuracy));
            for (group, loss) in variant.loss.iter().filter(|_| self.text) {
                let added = loss - self.variants[0].loss[group];
                let _ = write!(text, "; loss {} {loss:.3} ({added:+.3})", group_name(*group));
            }
            text += "\n";
        }
        text
    }

    /// The loss that comes with the removal of each layer's mixers alone.
    pub fn loss_chart(&self) -> LineChart {
        let mut chart = LineChart::new(
            format!("Loss added without the mixer of one layer: {}", self.name),
            AxisSpec::new("layer whose mixer is removed", Scale::Whole),
            AxisSpec::new("loss added, in nats", Scale::Linear),
        );
        let alone = |variant: &&AblatedNetwork| {
            variant.name.strip_prefix("without ").and_then(|rest| rest.split_once(':')?.0.parse::<usize>().ok())
        };
        for (group, own) in &self.variants[0].loss {
            let point = |variant: &AblatedNetwork| Some(Point::new(alone(&variant)? as f64, variant.loss[group] - own));
            let points = self.variants.iter().filter_map(point).collect();
            let name = format!("{} ({})", group_name(*group), Evidence::Measured);
            chart = chart.series(Series::line_and_points(name, points));
        }
        chart
    }

    /// The picture.
    pub fn chart(&self) -> HeatMap {
        let groups: Vec<u16> = self.variants[0].accuracy.keys().copied().collect();
        let names: Vec<String> =
            groups.iter().map(|group| if *group == 0 { "all".to_owned() } else { format!("{group}-hop") }).collect();
        let row = |variant: &AblatedNetwork| {
            let cell = |group: &u16| {
                variant.accuracy.get(group).map_or_else(HeatCell::default, |tally| HeatCell::new(tally.mean()))
            };
            groups.iter().map(cell).collect()
        };
        let rows: Vec<&str> = self.variants.iter().map(|variant| &variant.name[..]).collect();
        HeatMap::new(
            format!("What each hop needs: {}", self.name),
            ("network", &rows),
            ("questions", &names),
            self.variants.iter().map(row).collect(),
        )
        .known(Evidence::Measured)
        .noted(format!("Right answers on {}, with zero added to the stream in place of what was removed.", self.task))
    }
}

/// Runs it.
///
/// # Errors
/// The network or the task does not fit.
pub fn find(network: &Network<f32>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = ablate(network, options)?;
    let mut charts: Vec<Box<dyn Chart>> = vec![Box::new(found.chart())];
    if found.text {
        charts.insert(0, Box::new(found.loss_chart()));
    }
    Ok(Finding::of(&found, found.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::construct::{ConstructionRequest, build, build_on};
    use rung_theory::stack::Defaults;

    #[test]
    fn u1_needs_every_layer_and_idle_layers_are_not_needed() {
        let options = InstrumentOptions { prompts: Some(64), ..InstrumentOptions::default() };
        let request = ConstructionRequest { m: 16, ..ConstructionRequest::default() };
        let network = build::<f32>("U1", &request).unwrap();
        let found = ablate(&network, &options).unwrap();
        let share = |found: &Ablations, name: &str| {
            found.variants.iter().find(|one| one.name == name).unwrap().accuracy[&2].mean()
        };
        assert!(share(&found, "as it is") > 0.999);
        for layer in 0..3 {
            let left = share(&found, &format!("without {layer}: full"));
            assert!(left < 0.5, "without layer {layer}: {left}");
        }
        // The same in a stack with a layer that it has no use for: that one can go, and nothing changes.
        let defaults = Defaults { heads: 1, head_dim: 16, ..Defaults::default() };
        let plan = Plan::parse("full full linear full", &defaults).unwrap();
        let network = build_on::<f32>("U1", &request, &plan).unwrap();
        let found = ablate(&network, &options).unwrap();
        assert!(share(&found, "as it is") > 0.999);
        assert!(share(&found, "without all bounded state") > 0.999);
        assert!(share(&found, "without all full attention") < 0.5);
    }
}
