//! Distillation of one layer: a student mixer is trained on the inputs and outputs of the teacher's mixer.

use rung_engine::{AdamW, AdamWConfig, LearningRateDecay, Native, Ops, Parameters, Scalar, Schedule, Tensor};
use rung_nn::{Builtin, Hooks, LayerDepth, MixerIndex, ParamBuilder, TokenMixer};
use rung_theory::stack::Mixer;
use rung_theory::task::{self, seeded};

use super::ConvertOptions;
use crate::analysis::AnalysisError;
use rung_nn::Network;
use rung_train::run::error::RunError;
use rung_train::run::source::{Batch, PromptPurpose, PromptSource};

/// A student mixer that can replace the mixer of a full layer.
pub struct DistilledMixer<S: Scalar> {
    /// The layer, from 0.
    pub layer: usize,
    /// The mixer's kind and sizes.
    pub mixer: Mixer,
    /// Its weights, under the names they have in the network.
    pub weights: Parameters<S>,
}

/// Stores the input and output of one layer's mixer.
struct InputOutputRecorder<S: Scalar> {
    layer: usize,
    tensors: Option<(Tensor<S>, Tensor<S>)>,
}

impl<S: Scalar> Hooks<Native<S>> for InputOutputRecorder<S> {
    fn mixer_output(&mut self, _: &Native<S>, mixer: MixerIndex, input: &Tensor<S>, output: Tensor<S>) -> Tensor<S> {
        if mixer.layer == self.layer {
            self.tensors = Some((input.clone(), output.clone()));
        }
        output
    }
}

/// Trains a student mixer for a layer; returns it with its relative squared error before and after.
pub fn distill<S: Scalar>(
    network: &Network<S>,
    layer: usize,
    mixer: &Mixer,
    options: &ConvertOptions,
    on_step: &(dyn Fn() + Sync),
) -> Result<(DistilledMixer<S>, [f64; 2]), AnalysisError> {
    let network_task = network.task()?;
    let spec = options.analysis.task.clone().unwrap_or_else(|| network_task.spec());
    let task = task::parse(&spec).map_err(|error| RunError::invalid_task("--task", error))?;
    let mut source = PromptSource::new("--task", task, &network_task.fields(), network_task.classes())?;
    let mut weights = Parameters::new();
    let mut rng = seeded(options.analysis.seed ^ (layer as u64) << 32);
    let mut params = ParamBuilder::new(network.config.settings(network.model.width()), &mut weights, &mut rng);
    params.depth = LayerDepth { layer, layers: network.model.depth() };
    let student = params.with_prefix(&format!("layers.{layer}"), |params| {
        params.with_prefix("mixer", |params| Builtin::init(mixer, params))
    })?;
    copy_matching_weights(&mut weights, &network.weights, mixer.number("heads").unwrap_or(1) as usize);
    let mut trainer = StudentTrainer::new(student, weights, options.rate);
    let schedule =
        Schedule { warmup: options.steps / 20, steps: options.steps, decay: LearningRateDecay::Cosine { floor: 0.05 } };
    let teacher = Native::new();
    teacher.bind_frozen(&network.weights);
    let mut batch = Batch::default();
    for step in 0..options.steps {
        source.fill(options.analysis.seed, PromptPurpose::Training, step as u64, options.batch, &mut batch);
        let mut hooks = InputOutputRecorder { layer, tensors: None };
        network.model.forward_with_hooks(&teacher, &batch.tokens, options.batch, &mut hooks)?;
        let Some((input, target)) = hooks.tensors else { unreachable!("layer {layer} has a mixer") };
        let values = (&teacher.values(&input)[..], &teacher.values(&target)[..]);
        trainer.step(&teacher.shape(&input), values, schedule.factor(step));
        on_step();
    }
    let errors = trainer.errors();
    Ok((DistilledMixer { layer, mixer: mixer.clone(), weights: trainer.weights }, errors))
}

/// A student mixer in training, on inputs and outputs of a layer of the teacher.
pub(super) struct StudentTrainer<S: Scalar> {
    student: Builtin,
    pub(super) weights: Parameters<S>,
    optimizer: AdamW<S>,
    ops: Native<S>,
    losses: Vec<f64>,
}

impl<S: Scalar> StudentTrainer<S> {
    pub(super) fn new(student: Builtin, weights: Parameters<S>, rate: f64) -> Self {
        let optimizer = AdamWConfig { rate, clip: 1.0, decay: 0.0, ..AdamWConfig::default() }.init();
        Self { student, weights, optimizer, ops: Native::new(), losses: Vec::new() }
    }

    /// One step on an input and output of the teacher's layer, of this shape. `factor` scales the learning rate.
    pub(super) fn step(&mut self, shape: &[usize], (input, target): (&[S], &[S]), factor: f64) {
        let Self { student, weights, optimizer, ops, .. } = self;
        let target_norm = target.iter().map(|value| value.to_f64().powi(2)).sum::<f64>().max(f64::MIN_POSITIVE);
        ops.bind(weights);
        let output = student.forward(ops, &ops.constant(shape, input), None).0;
        let difference = ops.sub(&output, &ops.constant(shape, target));
        let loss = ops.scale(&ops.sum_all(&ops.mul(&difference, &difference)), 1.0 / target_norm);
        self.losses.push(ops.values(&loss)[0].to_f64());
        ops.backward(&loss);
        let gradient = ops.gradient();
        drop((output, difference, loss));
        ops.release();
        optimizer.update(weights, &gradient, factor);
    }

    /// The relative squared errors of the first step, and of the last tenth of the steps.
    pub(super) fn errors(&self) -> [f64; 2] {
        let last_tenth = &self.losses[self.losses.len() - self.losses.len().div_ceil(10)..];
        let final_error = last_tenth.iter().sum::<f64>() / last_tenth.len().max(1) as f64;
        [self.losses.first().copied().unwrap_or(f64::NAN), final_error]
    }
}

/// Copies the teacher's weights of the same name and shape. Where the teacher has fewer heads in a projection (grouped-query attention),
/// each head's rows are copied to all of the student's `heads` in its group.
pub(super) fn copy_matching_weights<S: Scalar>(weights: &mut Parameters<S>, teacher: &Parameters<S>, heads: usize) {
    let entries: Vec<_> = weights.entries().map(|(id, entry)| (id, entry.name.clone(), entry.shape)).collect();
    for (id, name, shape) in entries {
        let Some(source) = teacher.find(&name) else { continue };
        let (values, target) = (teacher.get(source), weights.get_mut(id));
        let teacher_shape = teacher.entry(source).shape;
        if teacher_shape == shape {
            target.copy_from_slice(values);
        } else if teacher_shape.len() == 2
            && shape.len() == 2
            && teacher_shape[1] == shape[1]
            && shape[0].is_multiple_of(heads)
            && teacher_shape[0].is_multiple_of(shape[0] / heads)
            && heads.is_multiple_of(teacher_shape[0] / (shape[0] / heads))
        {
            let head_size = shape[0] / heads * shape[1];
            let heads_per_group = heads / (teacher_shape[0] / (shape[0] / heads));
            let copies = values.chunks_exact(head_size).flat_map(|head| std::iter::repeat_n(head, heads_per_group));
            target.chunks_exact_mut(head_size).zip(copies).for_each(|(target, head)| target.copy_from_slice(head));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{AnalysisOptions, random_network};

    #[test]
    fn an_equivalent_mixer_starts_without_error_and_the_error_of_others_falls() {
        let network = random_network::<f32>("full full");
        let options = ConvertOptions {
            steps: 60,
            batch: 4,
            rate: 1e-2,
            analysis: AnalysisOptions::default(),
            ..ConvertOptions::default()
        };
        // A window longer than the prompt is full attention, and starts from the teacher's weights.
        let mixer =
            |text: &str| super::super::student_mixer(text, &network.plan, &network.plan.layers[1].mixers[0]).unwrap();
        let (_, [before, _]) =
            distill(&network, 1, &mixer("window{size=64}"), &ConvertOptions { steps: 1, ..options.clone() }, &|| {})
                .unwrap();
        assert!(before < 1e-9, "{before}");
        let (student, [before, after]) = distill(&network, 1, &mixer("gdn"), &options, &|| {}).unwrap();
        assert!(after < 0.8 * before, "{before} -> {after}");
        assert!(student.weights.entries().all(|(_, entry)| entry.name.starts_with("layers.1.mixer.")));
    }
}
