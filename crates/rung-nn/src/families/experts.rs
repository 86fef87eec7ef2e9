//! Experts as checkpoints store them: one by one, or stacked.

use rung_engine::{Role, Scalar};

use super::{FamilyError, Loader};
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
            return stacked(loader, count, [width, hidden], activation);
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

fn stacked<S: Scalar>(
    loader: &mut Loader<'_, S>,
    count: usize,
    [width, hidden]: [usize; 2],
    activation: Activation,
) -> Result<Vec<Dense>, FamilyError> {
    let size = width * hidden;
    let both = loader.values("gate_up_proj", &[count, 2 * hidden, width])?;
    let down = loader.values("down_proj", &[count, width, hidden])?;
    let expert = |number: usize| {
        let part = |values: &[S], at: usize| values[at * size..(at + 1) * size].to_vec();
        Dense {
            gate: Some(loader.add_linear(&format!("{number}.gate_proj"), width, part(&both, 2 * number))),
            up: loader.add_linear(&format!("{number}.up_proj"), width, part(&both, 2 * number + 1)),
            down: loader.role(Role::Output).add_linear(&format!("{number}.down_proj"), hidden, part(&down, number)),
            activation,
        }
    };
    Ok((0..count).map(expert).collect())
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
