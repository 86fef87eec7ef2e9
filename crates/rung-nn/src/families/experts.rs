//! Experts as checkpoints store them: one by one, or stacked.

use rung_engine::{Role, Scalar};

use super::{FamilyError, Loader, decoder};
use crate::model::{Activation, Dense};

/// The usual names of an expert's gate, of what it multiplies, and of the way back.
pub const NAMES: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// Mixtral's names for the same.
pub const MIXTRAL_NAMES: [&str; 3] = ["w1", "w3", "w2"];

/// Reads `experts.0.gate_proj.weight` and so on; or, where there is such a tensor, `experts.gate_up_proj` of `[experts, 2 hidden, width]`
/// and `experts.down_proj` of `[experts, width, hidden]`.
///
/// # Errors
/// A tensor is missing or of another shape.
pub fn experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    count: usize,
    [width, hidden]: [usize; 2],
    names: [&str; 3],
    activation: Activation,
) -> Result<Vec<Dense>, FamilyError> {
    loader.within("experts", |loader| {
        if loader.has("gate_up_proj") {
            return gate_and_up_experts(loader, count, [width, hidden], activation);
        }
        let [gate, up, down] = names;
        let expert = |number: usize| {
            loader.within(&number.to_string(), |loader| {
                Ok(Dense {
                    gate: Some(loader.linear(gate, width, hidden, false)?),
                    up: loader.linear(up, width, hidden, false)?,
                    down: loader.role(Role::Output).linear(down, hidden, width, false)?,
                    activation,
                })
            })
        };
        (0..count).map(expert).collect()
    })
}

/// Experts that GGUF files store as one tensor for all gates, one for all other halves and one for all ways back.
///
/// # Errors
/// A tensor is missing or of another shape.
pub fn stacked_experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    count: usize,
    [width, hidden]: [usize; 2],
    activation: Activation,
) -> Result<Vec<Dense>, FamilyError> {
    let size = width * hidden;
    let gate = loader.values("gate_proj.weight", &[count, hidden, width])?;
    let up = loader.values("up_proj.weight", &[count, hidden, width])?;
    let down = loader.values("down_proj.weight", &[count, width, hidden])?;
    let parts = |number: usize| [&gate, &up, &down].map(|all| part(all, size, number));
    Ok(unstack(loader, count, [width, hidden], parts, activation))
}

/// The same with gates and other halves in one tensor, as transformers stores them.
fn gate_and_up_experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    count: usize,
    [width, hidden]: [usize; 2],
    activation: Activation,
) -> Result<Vec<Dense>, FamilyError> {
    let size = width * hidden;
    let both = loader.values("gate_up_proj", &[count, 2 * hidden, width])?;
    let down = loader.values("down_proj", &[count, width, hidden])?;
    let parts =
        |number: usize| [part(&both, size, 2 * number), part(&both, size, 2 * number + 1), part(&down, size, number)];
    Ok(unstack(loader, count, [width, hidden], parts, activation))
}

/// Matrix number `index` among matrices of `size` numbers.
fn part<S>(all: &[S], size: usize, index: usize) -> &[S] {
    &all[index * size..(index + 1) * size]
}

/// Adds every expert's gate, other half and way back, given by its number.
fn unstack<'v, S: Scalar>(
    loader: &mut Loader<'_, S>,
    count: usize,
    sizes: [usize; 2],
    parts: impl Fn(usize) -> [&'v [S]; 3],
    activation: Activation,
) -> Vec<Dense> {
    (0..count)
        .map(|number| decoder::gated_network_of(loader, &format!("{number}."), sizes, parts(number), activation))
        .collect()
}

/// How many experts a token goes through: what the config says under a name, and no more than there are.
///
/// # Errors
/// The field is missing or malformed.
pub fn chosen<S: Scalar>(loader: &Loader<'_, S>, name: &str, count: usize) -> Result<usize, FamilyError> {
    match loader.fields.required_size(name)? {
        chosen if chosen <= count => Ok(chosen),
        chosen => Err(loader.fields.wrong(name, chosen.to_string(), format!("at most {count}, the number of experts"))),
    }
}
