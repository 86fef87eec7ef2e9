//! Initial weights of a run.
//!
//! The model draws random weights. They are scaled and tied as the config says. With
//! [`Lookup`](super::config::InitializationName::Lookup), full attention layers start as approximate table look-ups instead.

use rung_engine::{Parameter, Parameters, Role};
use rung_nn::model::names;
use rung_nn::param_builder::normal;
use rung_nn::{InputConfig, Model};
use rung_theory::task::{Rng, seeded};

use super::config::{InitializationName, Run};
use super::error::RunError;
use rung_theory::task::splitmix64;

/// A model and its initial weights. Embeddings and the query and key projections of full layers are scaled as the config says. The
/// embedding of a blank is zero, since a blank field has no content.
///
/// # Errors
/// The model cannot be built.
pub fn initialize(run: &Run) -> Result<(Model, Parameters<f32>), RunError> {
    let mut weights = Parameters::new();
    let model = run.model.init(&run.plan, &mut weights, &mut seeded(splitmix64(run.config.seed)))?;
    let (config, init_std) = (&run.config.model, run.model.init_std);
    let query_key_factor = config.query_key_scale / (run.plan.width as f64).sqrt() / init_std;
    for id in full_queries_and_keys(run, &weights) {
        weights.get_mut(id).iter_mut().for_each(|weight| *weight *= query_key_factor as f32);
    }
    let embedding_factor = (config.embedding_scale / init_std) as f32;
    for id in embedding_tables(&weights) {
        weights.get_mut(id).iter_mut().for_each(|weight| *weight *= embedding_factor);
    }
    for id in tables_with_blank(run, &weights) {
        let values = weights.get_mut(id);
        let blank = values.len() - run.plan.width as usize..;
        values[blank].fill(0.0);
    }
    if config.tied_value_output {
        tie_values_and_outputs(run, &mut weights);
    }
    if config.initial == InitializationName::Lookup {
        initialize_lookups(run, &mut weights);
    }
    Ok((model, weights))
}

/// Initializes full layers as approximate look-ups; see [`InitializationName::Lookup`].
fn initialize_lookups(run: &Run, weights: &mut Parameters<f32>) {
    let mut rng = seeded(splitmix64(run.config.seed ^ splitmix64(1)));
    let width = run.plan.width as usize;
    for (layer, _) in run.plan.layers.iter().enumerate().filter(|(_, layer)| layer.is_full()) {
        let find = |role: Role| {
            let id = weights.find_role(&names::mixer(layer, 0, 1), role)?;
            (weights.entry(id).shape[1] == width || role == Role::Output).then_some(id)
        };
        let [Some(query), Some(key), Some(value), Some(output)] =
            [Role::Query, Role::Key, Role::Value, Role::Output].map(find)
        else {
            continue;
        };
        let rotation = orthogonal_rows(&mut rng, weights.get(query).len() / width, width);
        // Keys may have fewer heads than queries: `zip` then takes the first rows of the rotation.
        for (id, factor) in [(query, 2.0), (key, -2.0)] {
            let projection = weights.get_mut(id);
            projection.iter_mut().zip(&rotation).for_each(|(weight, value)| *weight = factor * value);
        }
        let rows = weights.get(value).len() / width;
        let rotation = orthogonal_rows(&mut rng, rows, width);
        weights.get_mut(value).copy_from_slice(&rotation);
        let heads = weights.get(output).len() / width / rows.max(1);
        for (index, weight) in weights.get_mut(output).iter_mut().enumerate() {
            let (row, column) = (index / (rows * heads), index % (rows * heads));
            *weight = rotation[column % rows * width + row];
        }
    }
    for layer in 0..run.plan.layers.len() {
        if let Some(down) = weights.find_role(&names::mlp(layer), Role::Output) {
            weights.get_mut(down).fill(0.0);
        }
    }
    for id in unshared_embeddings(run, weights) {
        weights.get_mut(id).iter_mut().for_each(|weight| *weight *= 0.5);
    }
    if let Some(gain) = weights.find_role(names::FINAL_NORM, Role::ResidualNorm) {
        weights.get_mut(gain).fill((2.0 / (width as f64).sqrt()) as f32);
    }
}

/// All embedding tables.
fn embedding_tables(weights: &Parameters<f32>) -> Vec<Parameter> {
    weights.entries().filter(|(_, entry)| entry.role == Role::Embedding).map(|(id, _)| id).collect()
}

/// The embedding tables that only one field uses. No look-up compares them with another field, so they are made smaller and
/// disturb the attention scores less.
fn unshared_embeddings(run: &Run, weights: &Parameters<f32>) -> Vec<Parameter> {
    let InputConfig::Fields(fields) = &run.model.input else { return Vec::new() };
    let field_count = |alphabet: &str| fields.iter().filter(|field| field.alphabet == alphabet).count();
    let unshared = fields.iter().filter(|field| field_count(&field.alphabet) == 1);
    unshared.filter_map(|field| weights.find(&names::embedding_table(&field.alphabet))).collect()
}

/// The embedding tables whose last row is the blank.
fn tables_with_blank(run: &Run, weights: &Parameters<f32>) -> Vec<Parameter> {
    let InputConfig::Fields(fields) = &run.model.input else { return Vec::new() };
    let with_blank = fields.iter().filter(|field| field.blank);
    with_blank.filter_map(|field| weights.find(&names::embedding_table(&field.alphabet))).collect()
}

/// Random unit rows; the rows of each block of `width` rows are orthogonal (Gram-Schmidt on normal numbers).
fn orthogonal_rows(rng: &mut Rng, rows: usize, width: usize) -> Vec<f32> {
    let mut matrix: Vec<f64> = Vec::with_capacity(rows * width);
    while matrix.len() < rows * width {
        let block_start = matrix.len() / width / width * width;
        let mut row: Vec<f64> = (0..width).map(|_| normal(rng)).collect();
        let earlier_rows = || matrix[block_start * width..].chunks_exact(width);
        // Twice, because rounding leaves a small component along the earlier rows the first time.
        for earlier in earlier_rows().chain(earlier_rows()) {
            let projection: f64 = row.iter().zip(earlier).map(|(a, b)| a * b).sum();
            row.iter_mut().zip(earlier).for_each(|(a, b)| *a -= projection * b);
        }
        let norm = row.iter().map(|a| a * a).sum::<f64>().sqrt();
        matrix.extend(row.iter().map(|a| a / norm));
    }
    matrix.into_iter().map(|value| value as f32).collect()
}

/// Initializes each output projection as the transpose of its mixer's value projection, where the shapes allow it. A mixer then adds
/// approximately the residual stream of the token it attends to, and the next layer can look that up.
fn tie_values_and_outputs(run: &Run, weights: &mut Parameters<f32>) {
    let layers = run.plan.layers.iter().enumerate();
    let mixers = layers.flat_map(|(layer, sizes)| {
        (0..sizes.mixers.len()).map(move |index| names::mixer(layer, index, sizes.mixers.len()))
    });
    for mixer in mixers {
        let find = |role: Role| weights.find_role(&mixer, role);
        let [Some(value), Some(output)] = [Role::Value, Role::Output].map(find) else { continue };
        let [rows, columns] = weights.entry(value).shape[..] else { continue };
        if weights.entry(output).shape[..] != [columns, rows] {
            continue;
        }
        let values = weights.get(value).to_vec();
        for (index, weight) in weights.get_mut(output).iter_mut().enumerate() {
            *weight = values[index % rows * columns + index / rows];
        }
    }
}

/// The query and key projections of full attention layers.
fn full_queries_and_keys(run: &Run, weights: &Parameters<f32>) -> Vec<Parameter> {
    let layers = run.plan.layers.iter().enumerate().filter(|(_, layer)| layer.is_full());
    let ids = layers.flat_map(|(layer, _)| {
        [Role::Query, Role::Key].map(|role| weights.find_role(&names::mixer(layer, 0, 1), role))
    });
    ids.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunConfig;
    use crate::run::source::{Batch, PromptPurpose};
    use rung_engine::{Native, Ops as _};

    fn run(initial: InitializationName, stack: &str) -> Run {
        let mut config = RunConfig::new(stack, "funccomp{hops=1,m=16,queries=16,names=levels}");
        (config.model.heads, config.model.head, config.model.initial) = (1, 64, initial);
        (config.model.embedding_scale, config.model.scale) = (1.0, 1.0);
        config.model.unembedding_field = Some("value".to_owned());
        config.resolve().unwrap()
    }

    #[test]
    fn lookup_layers_start_with_orthogonal_projections() {
        let run = run(InitializationName::Lookup, "gated{bits=2} full");
        let (_, weights) = initialize(&run).unwrap();
        let get = |name: &str| weights.get(weights.find(&format!("layers.1.mixer.{name}_proj.weight")).unwrap());
        let (query, key, value, output) = (get("q"), get("k"), get("v"), get("o"));
        assert!(query.iter().zip(key).all(|(q, k)| (q + k).abs() < 1e-9));
        for (i, j) in (0..64).flat_map(|i| (0..64).map(move |j| (i, j))) {
            let identity = f32::from(u8::from(i == j));
            let score: f32 = (0..64).map(|c| query[c * 64 + i] * key[c * 64 + j]).sum();
            let copied: f32 = (0..64).map(|c| output[i * 64 + c] * value[c * 64 + j]).sum();
            assert!(
                (score + 4.0 * identity).abs() < 1e-4 && (copied - identity).abs() < 1e-4,
                "{i}, {j}: {score}, {copied}"
            );
        }
        let gated = |name: &str| weights.get(weights.find(&format!("layers.0.mixer.{name}_proj.weight")).unwrap());
        let (input, output) = (gated("in"), gated("out"));
        assert!(
            (0..64).all(|channel| (output[channel * 8 + 3] - 8.0 * input[3 * 64 + channel]).abs() < 1e-6),
            "the output projection is 8 times the transpose of the input projection"
        );
        let down = weights.get(weights.find("layers.1.mlp.down_proj.weight").unwrap());
        assert!(down.iter().all(|weight| weight.abs() < 1e-9));
    }

    /// Before any training step, the token with the start of a query attends to the table entry of the same name and reads its value.
    #[test]
    fn an_untrained_lookup_layer_answers_one_hop() {
        let right_answers = |initial: InitializationName| {
            let run = run(initial, "full");
            let (model, weights) = initialize(&run).unwrap();
            let (mut source, mut batch) = (run.source(0), Batch::default());
            source.fill(5, PromptPurpose::Training, 0, 8, &mut batch);
            let ops = Native::new();
            ops.bind_frozen(&weights);
            let residuals = model.residuals(&ops, &batch.tokens, 8).unwrap();
            let logits = ops.values(&model.logits_from_residual(&ops, residuals.last().unwrap()));
            let questions =
                (0..batch.targets.len()).filter(|position| batch.targets[*position] != rung_theory::task::NO_TARGET);
            let right = questions.filter(|position| {
                // The token with the start is right before that of the question.
                let logits = &logits[(position - 1) * model.classes()..position * model.classes()];
                let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
                best == Some(batch.targets[*position] as usize)
            });
            right.count()
        };
        let (lookup, random) = (right_answers(InitializationName::Lookup), right_answers(InitializationName::Random));
        assert!(lookup > 64 && random < 32, "{lookup} and {random} of 128");
    }
}
