//! First weights of a run.
//!
//! Fresh weights come from the model. Here they are scaled and tied as the config says, and, where it asks for
//! [`Lookup`](super::config::InitialName::Lookup), full layers are replaced by noisy look-ups.

use rung_engine::Parameters;
use rung_nn::param_builder::normal;
use rung_nn::{InputConfig, Model};
use rung_theory::task::{Rng, seeded};

use super::config::{InitialName, Run};
use super::error::RunError;
use rung_theory::task::splitmix64;

/// A model and its first weights: fresh ones, with embeddings and the query and key projections of full layers scaled as the
/// config says, and blanks at zero: what says nothing adds nothing.
///
/// # Errors
/// The model cannot be built.
pub fn initialize(run: &Run) -> Result<(Model, Parameters<f32>), RunError> {
    let mut weights = Parameters::new();
    let model = run.model.init(&run.plan, &mut weights, &mut seeded(splitmix64(run.config.seed)))?;
    let (part, deviation) = (&run.config.model, run.model.deviation);
    let attention = part.query_key_scale / (run.plan.width as f64).sqrt() / deviation;
    let entries: Vec<_> = weights.entries().map(|(_, entry)| (entry.name.clone(), entry.range.clone())).collect();
    for (name, range) in entries {
        let factor = match name.as_str() {
            name if name.starts_with("embeddings.") && name.ends_with(".weight") => part.embedding_scale / deviation,
            name if of_attention(run, name) => attention,
            _ => continue,
        };
        weights.flat_mut()[range.clone()].iter_mut().for_each(|weight| *weight *= factor as f32);
        if has_blank(run, &name) {
            let blank = range.end - run.plan.width as usize..range.end;
            weights.flat_mut()[blank].fill(0.0);
        }
    }
    if part.tied_value_output {
        tie_values(&mut weights);
    }
    if part.initial == InitialName::Lookup {
        start_as_lookups(run, &mut weights);
    }
    Ok((model, weights))
}

/// Replaces full layers by noisy look-ups; see [`InitialName::Lookup`].
fn start_as_lookups(run: &Run, weights: &mut Parameters<f32>) {
    let mut rng = seeded(splitmix64(run.config.seed ^ splitmix64(1)));
    let width = run.plan.width as usize;
    for (number, _) in run.plan.layers.iter().enumerate().filter(|(_, layer)| layer.is_full()) {
        let find = |weights: &Parameters<f32>, name: &str| {
            let id = weights.find(&format!("layers.{number}.mixer.{name}_proj.weight"))?;
            (weights.entry(id).shape[1] == width || name == "o").then_some(id)
        };
        let Some(([query, key], [value, output])) = find(weights, "q")
            .zip(find(weights, "k"))
            .zip(find(weights, "v").zip(find(weights, "o")))
            .map(|((query, key), (value, output))| ([query, key], [value, output]))
        else {
            continue;
        };
        let rotation = orthogonal(&mut rng, weights.get(query).len() / width, width);
        // With fewer key heads than query heads, each takes the first rows that there are.
        for (id, factor) in [(query, 2.0), (key, -2.0)] {
            let target = weights.get_mut(id);
            target.iter_mut().zip(&rotation).for_each(|(weight, value)| *weight = factor * value);
        }
        let rows = weights.get(value).len() / width;
        let rotation = orthogonal(&mut rng, rows, width);
        weights.get_mut(value).copy_from_slice(&rotation);
        let heads = weights.get(output).len() / width / rows.max(1);
        for (at, weight) in weights.get_mut(output).iter_mut().enumerate() {
            let (row, column) = (at / (rows * heads), at % (rows * heads));
            *weight = rotation[column % rows * width + row];
        }
    }
    let alone = tables_of_one_field(run);
    let entries: Vec<_> = weights.entries().map(|(_, entry)| (entry.name.clone(), entry.range.clone())).collect();
    for (name, range) in entries {
        if name.ends_with(".mlp.down_proj.weight") {
            weights.flat_mut()[range].fill(0.0);
        } else if name.strip_prefix("embeddings.").is_some_and(|rest| alone.iter().any(|field| rest == *field)) {
            weights.flat_mut()[range].iter_mut().for_each(|weight| *weight *= 0.5);
        } else if name == "norm.weight" {
            weights.flat_mut()[range].fill((2.0 / (width as f64).sqrt()) as f32);
        }
    }
}

/// Names of tables that a single field uses. Nothing is looked up by them, and smaller they disturb less.
fn tables_of_one_field(run: &Run) -> Vec<String> {
    let InputConfig::Fields(fields) = &run.model.input else { return Vec::new() };
    let count = |alphabet: &str| fields.iter().filter(|field| field.alphabet == alphabet).count();
    let alone = fields.iter().filter(|field| count(&field.alphabet) == 1);
    alone.map(|field| format!("{}.weight", field.alphabet)).collect()
}

/// Random rows of unit length, those of each block of `width` orthogonal to each other: Gram and Schmidt on normal numbers.
fn orthogonal(rng: &mut Rng, rows: usize, width: usize) -> Vec<f32> {
    let mut matrix: Vec<f64> = Vec::with_capacity(rows * width);
    while matrix.len() < rows * width {
        let first = matrix.len() / width / width * width;
        let mut row: Vec<f64> = (0..width).map(|_| normal(rng)).collect();
        // Twice, so that rounding leaves nothing of the other rows.
        for other in matrix[first * width..].chunks_exact(width).chain(matrix[first * width..].chunks_exact(width)) {
            let along: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
            row.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
        }
        let length = row.iter().map(|a| a * a).sum::<f64>().sqrt();
        matrix.extend(row.iter().map(|a| a / length));
    }
    matrix.into_iter().map(|value| value as f32).collect()
}

/// Starts each output projection as the transpose of its mixer's value projection, where the shapes allow it: what is read is then
/// close to what was there, and the next layer can look for it.
fn tie_values(weights: &mut Parameters<f32>) {
    let names: Vec<String> = weights.entries().map(|(_, entry)| entry.name.clone()).collect();
    for name in names {
        let Some(mixer) = name.strip_suffix("v_proj.weight") else { continue };
        let ids = weights.find(&name).zip(weights.find(&format!("{mixer}o_proj.weight")));
        let Some((value, output)) = ids else { continue };
        let [rows, columns] = weights.entry(value).shape[..] else { continue };
        if weights.entry(output).shape[..] != [columns, rows] {
            continue;
        }
        let values = weights.get(value).to_vec();
        for (at, weight) in weights.get_mut(output).iter_mut().enumerate() {
            *weight = values[at % rows * columns + at / rows];
        }
    }
}

/// Whether a weight projects the queries or keys of a layer that is nothing but full attention.
fn of_attention(run: &Run, name: &str) -> bool {
    let projection = name.ends_with(".mixer.q_proj.weight") || name.ends_with(".mixer.k_proj.weight");
    let number = name.strip_prefix("layers.").and_then(|rest| rest.split('.').next());
    let layer = number.and_then(|number| run.plan.layers.get(number.parse::<usize>().ok()?));
    projection && layer.is_some_and(rung_theory::stack::Layer::is_full)
}

/// Whether the last row of a weight is the vector of a blank.
fn has_blank(run: &Run, name: &str) -> bool {
    let InputConfig::Fields(fields) = &run.model.input else { return false };
    fields.iter().any(|field| field.blank && name == format!("embeddings.{}.weight", field.alphabet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunConfig;
    use crate::run::source::{Batch, PromptPurpose};
    use rung_engine::{Native, Ops as _};

    fn run(initial: InitialName, stack: &str) -> Run {
        let mut config = RunConfig::new(stack, "funccomp{hops=1,m=16,queries=16,names=levels}");
        (config.model.heads, config.model.head, config.model.initial) = (1, 64, initial);
        (config.model.embedding_scale, config.model.scale) = (1.0, 1.0);
        config.model.read_out = Some("value".to_owned());
        config.resolve().unwrap()
    }

    #[test]
    fn full_layers_start_as_rotations() {
        let run = run(InitialName::Lookup, "gated{bits=2} full");
        let (_, weights) = initialize(&run).unwrap();
        let get = |name: &str| weights.get(weights.find(&format!("layers.1.mixer.{name}_proj.weight")).unwrap());
        let (query, key, value, output) = (get("q"), get("k"), get("v"), get("o"));
        assert!(query.iter().zip(key).all(|(q, k)| (q + k).abs() < 1e-9));
        for (i, j) in (0..64).flat_map(|i| (0..64).map(move |j| (i, j))) {
            let same = f32::from(u8::from(i == j));
            let scores: f32 = (0..64).map(|c| query[c * 64 + i] * key[c * 64 + j]).sum();
            let copied: f32 = (0..64).map(|c| output[i * 64 + c] * value[c * 64 + j]).sum();
            assert!((scores + 4.0 * same).abs() < 1e-4 && (copied - same).abs() < 1e-4, "{i}, {j}: {scores}, {copied}");
        }
        let front = |name: &str| weights.get(weights.find(&format!("layers.0.mixer.{name}_proj.weight")).unwrap());
        let (into, out) = (front("in"), front("out"));
        assert!(
            (0..64).all(|at| (out[at * 8 + 3] - 8.0 * into[3 * 64 + at]).abs() < 1e-6),
            "a read enlarges what was written"
        );
        let down = weights.get(weights.find("layers.1.mlp.down_proj.weight").unwrap());
        assert!(down.iter().all(|weight| weight.abs() < 1e-9));
    }

    /// Before any step, a token that holds the name of an argument reads its entry: the start of each query finds `z_1` of itself.
    #[test]
    fn a_fresh_full_layer_looks_up() {
        let right = |initial: InitialName| {
            let run = run(initial, "full");
            let (model, weights) = initialize(&run).unwrap();
            let (mut source, mut batch) = (run.source(0), Batch::default());
            source.fill(5, PromptPurpose::Training, 0, 8, &mut batch);
            let ops = Native::new();
            ops.bind_frozen(&weights);
            let streams = model.streams(&ops, &batch.tokens, 8).unwrap();
            let scores = ops.values(&model.read_out(&ops, streams.last().unwrap()));
            let asked = (0..batch.targets.len()).filter(|at| batch.targets[*at] != rung_theory::task::NO_TARGET);
            let found = asked.filter(|at| {
                // The start stands right before its query.
                let scores = &scores[(at - 1) * model.classes()..at * model.classes()];
                let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
                best == Some(batch.targets[*at] as usize)
            });
            found.count()
        };
        let (lookup, random) = (right(InitialName::Lookup), right(InitialName::Random));
        assert!(lookup > 64 && random < 32, "{lookup} and {random} of 128");
    }
}
