//! One layer's counterpart, trained alone on what the teacher's layer is fed.

use rung_engine::{AdamWConfig, DecayCourse, Native, Ops, Parameters, Scalar, Schedule, Tensor};
use rung_nn::{Builtin, Hooks, LayerDepth, MixerIndex, ParamBuilder, TokenMixer};
use rung_theory::stack::Mixer;
use rung_theory::task::{self, seeded};

use super::ConvertOptions;
use crate::analysis::AnalysisError;
use rung_nn::Network;
use rung_train::run::error::RunError;
use rung_train::run::source::{Batch, PromptPurpose, PromptSource};

/// A mixer that stands for a full layer.
pub struct DistilledMixer<S: Scalar> {
    /// The layer, from 0.
    pub layer: usize,
    /// Its sizes.
    pub mixer: Mixer,
    /// Its weights, under the names they have in the network.
    pub weights: Parameters<S>,
}

/// Keeps what one layer's mixer is fed and gives.
struct Pair<S: Scalar> {
    layer: usize,
    found: Option<(Tensor<S>, Tensor<S>)>,
}

impl<S: Scalar> Hooks<Native<S>> for Pair<S> {
    fn mixed(&mut self, _: &Native<S>, place: MixerIndex, input: &Tensor<S>, output: Tensor<S>) -> Tensor<S> {
        if place.layer == self.layer {
            self.found = Some((input.clone(), output.clone()));
        }
        output
    }
}

/// Trains a counterpart; returns it with its relative squared error before and after.
pub fn distill<S: Scalar>(
    network: &Network<S>,
    layer: usize,
    mixer: &Mixer,
    options: &ConvertOptions,
    tick: &(dyn Fn() + Sync),
) -> Result<(DistilledMixer<S>, [f64; 2]), AnalysisError> {
    let own_task = network.task()?;
    let text = options.instrument.task.clone().unwrap_or_else(|| own_task.spec());
    let parsed = task::parse(&text).map_err(|error| RunError::task("--task", error))?;
    let mut source = PromptSource::new("--task", parsed, &own_task.fields(), own_task.classes())?;
    let mut weights = Parameters::new();
    let mut rng = seeded(options.instrument.seed ^ (layer as u64) << 32);
    let mut params = ParamBuilder::new(network.config.settings(network.model.width()), &mut weights, &mut rng);
    params.depth = LayerDepth { layer, layers: network.model.depth() };
    let built = params
        .within(&format!("layers.{layer}"), |params| params.within("mixer", |params| Builtin::init(mixer, params)))?;
    borrow(&mut weights, &network.weights, mixer.number("heads").unwrap_or(1) as usize);
    let mut optimizer = AdamWConfig { rate: options.rate, clip: 1.0, decay: 0.0, ..AdamWConfig::default() }.init();
    let schedule =
        Schedule { warmup: options.steps / 20, steps: options.steps, course: DecayCourse::Cosine { floor: 0.05 } };
    let (teacher, ops) = (Native::new(), Native::new());
    teacher.bind_frozen(&network.weights);
    let (mut batch, mut losses) = (Batch::default(), Vec::with_capacity(options.steps));
    for step in 0..options.steps {
        source.fill(options.instrument.seed, PromptPurpose::Training, step as u64, options.batch, &mut batch);
        let mut pair = Pair { layer, found: None };
        network.model.forward_with_hooks(&teacher, &batch.tokens, options.batch, &mut pair)?;
        let Some((input, target)) = pair.found else { unreachable!("layer {layer} has a mixer") };
        let target = teacher.values(&target);
        let whole = target.iter().map(|value| value.to_f64().powi(2)).sum::<f64>().max(f64::MIN_POSITIVE);
        ops.bind(&weights);
        let shape = teacher.shape(&input);
        let input = ops.constant(&shape, &teacher.values(&input));
        let apart = ops.sub(&built.forward(&ops, &input, None).0, &ops.constant(&shape, &target));
        let loss = ops.scale(&ops.sum_all(&ops.mul(&apart, &apart)), 1.0 / whole);
        losses.push(ops.values(&loss)[0].to_f64());
        ops.backward(&loss);
        let gradient = ops.gradient();
        drop((input, apart, loss));
        ops.release();
        optimizer.update(&mut weights, &gradient, schedule.factor(step));
        tick();
    }
    let last = &losses[losses.len() - losses.len().div_ceil(10)..];
    let after = last.iter().sum::<f64>() / last.len().max(1) as f64;
    let before = losses.first().copied().unwrap_or(f64::NAN);
    Ok((DistilledMixer { layer, mixer: mixer.clone(), weights }, [before, after]))
}

/// Starts from the teacher's weights of the same name and shape. Where heads of the teacher share a projection, each of the counterpart's `heads` gets
/// a copy.
pub(super) fn borrow<S: Scalar>(weights: &mut Parameters<S>, teacher: &Parameters<S>, heads: usize) {
    let entries: Vec<_> = weights.entries().map(|(id, entry)| (id, entry.name.clone(), entry.shape)).collect();
    for (id, name, shape) in entries {
        let Some(source) = teacher.find(&name) else { continue };
        let (values, target) = (teacher.get(source), weights.get_mut(id));
        let shared = teacher.entry(source).shape;
        if shared == shape {
            target.copy_from_slice(values);
        } else if shared.len() == 2
            && shape.len() == 2
            && shared[1] == shape[1]
            && shape[0].is_multiple_of(heads)
            && shared[0].is_multiple_of(shape[0] / heads)
            && heads.is_multiple_of(shared[0] / (shape[0] / heads))
        {
            let (head, groups) = (shape[0] / heads * shape[1], heads / (shared[0] / (shape[0] / heads)));
            let copies = values.chunks_exact(head).flat_map(|one| std::iter::repeat_n(one, groups));
            target.chunks_exact_mut(head).zip(copies).for_each(|(target, values)| target.copy_from_slice(values));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{InstrumentOptions, sample};

    #[test]
    fn attention_learns_to_be_itself_at_once_and_others_come_closer() {
        let network = sample::<f32>("full full");
        let options = ConvertOptions {
            steps: 60,
            batch: 4,
            rate: 1e-2,
            instrument: InstrumentOptions::default(),
            ..ConvertOptions::default()
        };
        // A window longer than the text is full attention, and starts from its weights.
        let mixer =
            |text: &str| super::super::counterpart(text, &network.plan, &network.plan.layers[1].mixers[0]).unwrap();
        let (_, [before, _]) =
            distill(&network, 1, &mixer("window{size=64}"), &ConvertOptions { steps: 1, ..options.clone() }, &|| {})
                .unwrap();
        assert!(before < 1e-9, "{before}");
        let (one, [before, after]) = distill(&network, 1, &mixer("gdn"), &options, &|| {}).unwrap();
        assert!(after < 0.8 * before, "{before} -> {after}");
        assert!(one.weights.entries().all(|(_, entry)| entry.name.starts_with("layers.1.mixer.")));
    }
}
