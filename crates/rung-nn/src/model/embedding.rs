//! Tokens into vectors.
//!
//! A token of a plain vocabulary is one id. A structured token has an id for each of its fields, and its vector is the sum of the
//! fields' vectors, so that a table of entries needs no vocabulary of all possible entries.

use rung_engine::{Ops, Parameter, Scalar};
use rung_theory::task::Field;

use crate::error::ModelError;
use crate::position::Positions;
use crate::site::{Fill, Site};

/// What tokens are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// One id below this number.
    Vocabulary(usize),
    /// One id for each field.
    Fields(Vec<Field>),
}

impl Input {
    /// The smallest vocabulary; zero if there is no field at all.
    pub(super) fn smallest(&self) -> usize {
        match self {
            Self::Vocabulary(size) => *size,
            Self::Fields(fields) => fields.iter().map(|field| field.vocabulary as usize).min().unwrap_or(0),
        }
    }

    /// Ids of a token.
    pub fn fields(&self) -> usize {
        match self {
            Self::Vocabulary(_) => 1,
            Self::Fields(fields) => fields.len(),
        }
    }

    /// The first name that two fields share.
    pub(super) fn repeated(&self) -> Option<String> {
        let Self::Fields(fields) = self else { return None };
        let mut known = std::collections::HashSet::new();
        fields.iter().find(|field| !known.insert(&field.name)).map(|field| field.name.clone())
    }
}

/// The tables.
#[derive(Clone, Debug)]
pub struct Embedding {
    tables: Vec<Table>,
    positions: Option<(Parameter, usize)>,
}

#[derive(Clone, Debug)]
struct Table {
    field: String,
    vocabulary: usize,
    weight: Parameter,
}

impl Embedding {
    /// Adds its weights.
    pub fn init<S: Scalar>(site: &mut Site<'_, S>, input: &Input) -> Self {
        let (width, fill) = (site.settings.width, Fill::Normal(site.settings.deviation));
        let mut table = |name: String, field: &str, vocabulary: usize| Table {
            field: field.to_owned(),
            vocabulary,
            weight: site.weight(&name, &[vocabulary, width], fill),
        };
        let tables = match input {
            Input::Vocabulary(count) => vec![table("embeddings.weight".to_owned(), "token", *count)],
            Input::Fields(fields) => fields
                .iter()
                .map(|field| table(format!("embeddings.{}.weight", field.name), &field.name, field.vocabulary as usize))
                .collect(),
        };
        let positions = match site.settings.positions {
            Positions::Learned { length } => Some((site.weight("positions.weight", &[length, width], fill), length)),
            _ => None,
        };
        Self { tables, positions }
    }

    /// The table of a plain vocabulary.
    pub(super) fn single(&self) -> Option<Parameter> {
        match &self.tables[..] {
            [table] => Some(table.weight),
            _ => None,
        }
    }

    /// `[batch, time, width]` of `batch` rows of tokens, the first of which is the one after `seen` others.
    ///
    /// # Errors
    /// Ids do not fit the tables, or the text is longer than the learned positions.
    pub fn apply<O: Ops>(&self, ops: &O, tokens: &[u32], batch: usize, seen: usize) -> Result<O::Tensor, ModelError> {
        let fields = self.tables.len();
        if batch * fields == 0 || tokens.is_empty() || !tokens.len().is_multiple_of(batch * fields) {
            return Err(ModelError::Ragged { found: tokens.len(), rows: batch, fields });
        }
        let time = tokens.len() / (batch * fields);
        let vectors = |index: usize| -> Result<O::Tensor, ModelError> {
            let table = &self.tables[index];
            Ok(ops.gather_rows(&ops.parameter(table.weight), &table.rows(&tokens[index..], fields)?))
        };
        let mut x = vectors(0)?;
        for index in 1..fields {
            x = ops.add(&x, &vectors(index)?);
        }
        let x = ops.reshape(&x, &[batch, time, ops.shape(&x).width()]);
        let Some((table, most)) = self.positions else { return Ok(x) };
        if seen + time > most {
            return Err(ModelError::TooLong { found: seen + time, most });
        }
        Ok(ops.add(&x, &ops.slice(&ops.parameter(table), 0, seen..seen + time)))
    }
}

impl Table {
    /// This field's id of every token.
    fn rows(&self, tokens: &[u32], fields: usize) -> Result<Vec<usize>, ModelError> {
        let ids = tokens.iter().step_by(fields).enumerate();
        ids.map(|(position, &found)| {
            let id = found as usize;
            if id < self.vocabulary {
                return Ok(id);
            }
            Err(ModelError::Token { position, field: self.field.clone(), found, vocabulary: self.vocabulary })
        })
        .collect()
    }
}
