//! Embeddings of plain and structured tokens.
//!
//! A token of a plain vocabulary is one id. A structured token has an id for each of its fields, and its embedding is the sum of the
//! fields' embeddings, so that it needs no vocabulary of all combinations. Fields of one alphabet share one table, with one row for the
//! blank of all of them: a value that was looked up and the same value as an argument then have similar embeddings already at
//! initialisation. All fields of an alphabet except the first have a gain per channel, initially -1, because otherwise the embedding of
//! argument 3 and value 5 would equal that of argument 5 and value 3.

use rung_engine::{Ops, Parameter, Role, Scalar};
use rung_theory::task::Field;

use crate::error::ModelError;
use crate::param_builder::{Init, ParamBuilder};
use crate::position::Positions;

/// Vocabulary or fields of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputConfig {
    /// A token is one id below this number.
    Vocabulary(usize),
    /// A token has one id for each field.
    Fields(Vec<Field>),
}

impl InputConfig {
    /// Size of the smallest vocabulary; zero if there is no field.
    pub(super) fn min_vocabulary(&self) -> usize {
        match self {
            Self::Vocabulary(size) => *size,
            Self::Fields(fields) => fields.iter().map(|field| field.vocabulary as usize).min().unwrap_or(0),
        }
    }

    /// Number of ids of a token.
    pub fn field_count(&self) -> usize {
        match self {
            Self::Vocabulary(_) => 1,
            Self::Fields(fields) => fields.len(),
        }
    }

    /// Number of ids of a field without its blank; zero if there is no such field.
    pub(super) fn symbol_count(&self, name: &str) -> usize {
        let Self::Fields(fields) = self else { return 0 };
        fields.iter().find(|field| field.name == name).map_or(0, |field| field.symbol_count() as usize)
    }

    /// Whether two fields share a table.
    pub(super) fn has_shared_table(&self) -> bool {
        let Self::Fields(fields) = self else { return false };
        fields
            .iter()
            .enumerate()
            .any(|(index, field)| fields[..index].iter().any(|other| other.alphabet == field.alphabet))
    }

    /// The first name that two fields have in common, if any.
    pub(super) fn duplicate_name(&self) -> Option<String> {
        let Self::Fields(fields) = self else { return None };
        let mut names = std::collections::HashSet::new();
        fields.iter().find(|field| !names.insert(&field.name)).map(|field| field.name.clone())
    }
}

/// The embedding tables of a model.
#[derive(Clone, Debug)]
pub struct Embedding {
    fields: Vec<FieldEmbedding>,
    /// The table of learned positions and its length.
    positions: Option<(Parameter, usize)>,
    /// Factor on every embedding, if not one.
    scale: Option<f64>,
}

/// The embedding of one field of the tokens.
#[derive(Clone, Debug)]
struct FieldEmbedding {
    name: String,
    vocabulary: usize,
    /// The id of the blank and its row of the table, if the field has a blank.
    blank: Option<(usize, usize)>,
    weight: Parameter,
    /// A gain per channel, in all fields of a shared table but the first.
    gain: Option<Parameter>,
}

impl Embedding {
    /// Adds its weights.
    pub fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, input: &InputConfig) -> Self {
        let (width, init) = (params.settings.width, Init::Normal(params.settings.init_std));
        let fields = match input {
            InputConfig::Vocabulary(count) => {
                let weight = params.role(Role::Embedding).weight("embeddings.weight", &[*count, width], init);
                vec![FieldEmbedding { name: "token".to_owned(), vocabulary: *count, blank: None, weight, gain: None }]
            }
            InputConfig::Fields(fields) => add_field_embeddings(params, fields, init),
        };
        let positions = match params.settings.positions {
            Positions::Learned { length } => {
                let table = params.role(Role::Position).weight("positions.weight", &[length, width], init);
                Some((table, length))
            }
            _ => None,
        };
        Self { fields, positions, scale: None }
    }

    /// The embedding of a plain vocabulary whose table exists.
    pub(crate) fn from_table(weight: Parameter, vocabulary: usize, scale: Option<f64>) -> Self {
        let field = FieldEmbedding { name: "token".to_owned(), vocabulary, blank: None, weight, gain: None };
        Self { fields: vec![field], positions: None, scale }
    }

    /// Number of ids of a token.
    pub(super) fn field_count(&self) -> usize {
        self.fields.len()
    }

    /// The table of a plain vocabulary; `None` for structured tokens.
    pub(super) fn vocabulary_table(&self) -> Option<Parameter> {
        match &self.fields[..] {
            [field] => Some(field.weight),
            _ => None,
        }
    }

    /// The table of a field and its gain.
    pub(super) fn field_table(&self, name: &str) -> Option<(Parameter, Option<Parameter>)> {
        self.fields.iter().find(|field| field.name == name).map(|field| (field.weight, field.gain))
    }

    /// The embeddings `[batch, time, width]` of `batch` rows of tokens, whose first token is at position `past_len`.
    ///
    /// # Errors
    /// Ids do not fit the tables, or the sequence is longer than the learned positions.
    #[inline(never)]
    pub fn apply<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        past_len: usize,
    ) -> Result<O::Tensor, ModelError> {
        let fields = self.field_count();
        if batch * fields == 0 || tokens.is_empty() || !tokens.len().is_multiple_of(batch * fields) {
            return Err(ModelError::UnevenRows { found: tokens.len(), rows: batch, fields });
        }
        let time = tokens.len() / (batch * fields);
        let embed_field = |index: usize| -> Result<O::Tensor, ModelError> {
            let field = &self.fields[index];
            let rows = ops.gather_rows(&ops.parameter(field.weight), &field.rows(&tokens[index..], fields)?);
            Ok(match field.gain {
                Some(gain) => ops.mul(&rows, &ops.parameter(gain)),
                None => rows,
            })
        };
        let mut x = embed_field(0)?;
        for index in 1..fields {
            x = ops.add(&x, &embed_field(index)?);
        }
        let mut x = ops.reshape(&x, &[batch, time, ops.shape(&x).width()]);
        if let Some(scale) = self.scale {
            x = ops.scale(&x, scale);
        }
        let Some((table, max_len)) = self.positions else { return Ok(x) };
        if past_len + time > max_len {
            return Err(ModelError::TooLong { found: past_len + time, max: max_len });
        }
        Ok(ops.add(&x, &ops.slice(&ops.parameter(table), 0, past_len..past_len + time)))
    }
}

/// Adds one table for each alphabet, in the order of the fields, and a gain for every field but the first of an alphabet.
fn add_field_embeddings<S: Scalar>(
    params: &mut ParamBuilder<'_, S>,
    fields: &[Field],
    init: Init<'_>,
) -> Vec<FieldEmbedding> {
    let width = params.settings.width;
    let mut tables: Vec<(&str, usize, Parameter)> = Vec::new();
    let mut embeddings = Vec::with_capacity(fields.len());
    for field in fields {
        let same_alphabet = || fields.iter().filter(|other| other.alphabet == field.alphabet);
        let existing = tables.iter().find(|(alphabet, ..)| *alphabet == field.alphabet);
        let is_shared = existing.is_some();
        let (_, rows, weight) = existing.copied().unwrap_or_else(|| {
            let symbols = same_alphabet().map(|other| other.symbol_count() as usize).max().unwrap_or(0);
            let rows = symbols + usize::from(same_alphabet().any(|other| other.blank));
            let name = super::names::embedding_table(&field.alphabet);
            let weight = params.role(Role::Embedding).weight(&name, &[rows, width], init);
            tables.push((&field.alphabet, rows, weight));
            (&field.alphabet, rows, weight)
        });
        let blank = field.blank.then(|| (field.vocabulary as usize - 1, rows - 1));
        let gain = is_shared
            .then(|| params.weight(&format!("embeddings.{}.gain", field.name), &[width], Init::Constant(-1.0)));
        let (name, vocabulary) = (field.name.clone(), field.vocabulary as usize);
        embeddings.push(FieldEmbedding { name, vocabulary, blank, weight, gain });
    }
    embeddings
}

impl FieldEmbedding {
    /// The table row of this field of every token.
    fn rows(&self, tokens: &[u32], fields: usize) -> Result<Vec<usize>, ModelError> {
        let ids = tokens.iter().step_by(fields).enumerate();
        ids.map(|(position, &found)| match (found as usize, self.blank) {
            (id, Some((blank, row))) if id == blank => Ok(row),
            (id, _) if id < self.vocabulary => Ok(id),
            _ => Err(ModelError::TokenOutOfRange {
                position,
                field: self.name.clone(),
                found,
                vocabulary: self.vocabulary,
            }),
        })
        .collect()
    }
}
