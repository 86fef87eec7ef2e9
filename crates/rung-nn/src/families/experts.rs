//! Experts of a mixture, which checkpoints store one by one or stacked.

use rung_engine::{Role, Scalar};

use super::{FamilyError, Loader, decoder};
use crate::model::{Activation, Mlp};

/// The usual names of an expert's gate, up and down projections.
pub const NAMES: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// Mixtral's names of the gate, up and down projections.
pub const MIXTRAL_NAMES: [&str; 3] = ["w1", "w3", "w2"];

/// Reads `experts.0.gate_proj.weight` and so on; or, if that tensor exists, `experts.gate_up_proj` of `[experts, 2 hidden, width]`
/// and `experts.down_proj` of `[experts, width, hidden]`; or the tensors of a GGUF file.
///
/// # Errors
/// A tensor is missing or has another shape.
pub fn read_experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    expert_count: usize,
    [width, hidden]: [usize; 2],
    names: [&str; 3],
    activation: Activation,
) -> Result<Vec<Mlp>, FamilyError> {
    loader.with_prefix("experts", |loader| {
        if loader.has("gate_up_proj") {
            return read_gate_and_up_experts(loader, expert_count, [width, hidden], activation);
        }
        if loader.is_gguf() {
            return read_stacked_experts(loader, expert_count, [width, hidden], activation);
        }
        let [gate, up, down] = names;
        let expert = |index: usize| {
            loader.with_prefix(&index.to_string(), |loader| {
                Ok(Mlp {
                    gate: Some(loader.linear(gate, width, hidden, false)?),
                    up: loader.linear(up, width, hidden, false)?,
                    down: loader.with_role(Role::Output).linear(down, hidden, width, false)?,
                    activation,
                })
            })
        };
        (0..expert_count).map(expert).collect()
    })
}

/// Experts that GGUF files store as one tensor of all gate, one of all up and one of all down projections.
///
/// # Errors
/// A tensor is missing or has another shape.
pub fn read_stacked_experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    expert_count: usize,
    [width, hidden]: [usize; 2],
    activation: Activation,
) -> Result<Vec<Mlp>, FamilyError> {
    let size = width * hidden;
    let gate = loader.values("gate_proj.weight", &[expert_count, hidden, width])?;
    let up = loader.values("up_proj.weight", &[expert_count, hidden, width])?;
    let down = loader.values("down_proj.weight", &[expert_count, width, hidden])?;
    let matrices = |index: usize| [&gate, &up, &down].map(|stacked| matrix(stacked, size, index));
    Ok(add_experts(loader, expert_count, [width, hidden], matrices, activation))
}

/// As [`read_stacked_experts`], for experts without gates.
///
/// # Errors
/// A tensor is missing or has another shape.
pub fn read_stacked_experts_without_gates<S: Scalar>(
    loader: &mut Loader<'_, S>,
    expert_count: usize,
    [width, hidden]: [usize; 2],
    activation: Activation,
) -> Result<Vec<Mlp>, FamilyError> {
    let size = width * hidden;
    let up = loader.values("up_proj.weight", &[expert_count, hidden, width])?;
    let down = loader.values("down_proj.weight", &[expert_count, width, hidden])?;
    let mlp = |index: usize| Mlp {
        gate: None,
        up: loader.add_linear(&format!("{index}.up_proj"), width, matrix(&up, size, index).to_vec()),
        down: loader.with_role(Role::Output).add_linear(
            &format!("{index}.down_proj"),
            hidden,
            matrix(&down, size, index).to_vec(),
        ),
        activation,
    };
    Ok((0..expert_count).map(mlp).collect())
}

/// As [`read_stacked_experts`], with gate and up projections in one tensor, as transformers stores them.
fn read_gate_and_up_experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    expert_count: usize,
    [width, hidden]: [usize; 2],
    activation: Activation,
) -> Result<Vec<Mlp>, FamilyError> {
    let size = width * hidden;
    let gate_up = loader.values("gate_up_proj", &[expert_count, 2 * hidden, width])?;
    let down = loader.values("down_proj", &[expert_count, width, hidden])?;
    let matrices = |index: usize| {
        let (gate, up) = (matrix(&gate_up, size, 2 * index), matrix(&gate_up, size, 2 * index + 1));
        [gate, up, matrix(&down, size, index)]
    };
    Ok(add_experts(loader, expert_count, [width, hidden], matrices, activation))
}

/// The matrix at an index of a stack of matrices with `size` elements each.
fn matrix<S>(stacked: &[S], size: usize, index: usize) -> &[S] {
    &stacked[index * size..(index + 1) * size]
}

/// Adds every expert; `matrices` gives the gate, up and down matrices of an expert by its index.
fn add_experts<'v, S: Scalar>(
    loader: &mut Loader<'_, S>,
    expert_count: usize,
    sizes: [usize; 2],
    matrices: impl Fn(usize) -> [&'v [S]; 3],
    activation: Activation,
) -> Vec<Mlp> {
    (0..expert_count)
        .map(|index| decoder::add_gated_mlp(loader, &format!("{index}."), sizes, matrices(index), activation))
        .collect()
}

/// How many experts each token uses: the config's field `name`, at most `expert_count`.
///
/// # Errors
/// The field is missing or malformed.
pub fn top_k<S: Scalar>(loader: &Loader<'_, S>, name: &str, expert_count: usize) -> Result<usize, FamilyError> {
    match loader.fields.required_size(name)? {
        top_k if top_k <= expert_count => Ok(top_k),
        top_k => {
            Err(loader.fields.error(name, top_k.to_string(), format!("at most {expert_count}, the number of experts")))
        }
    }
}
