//! Tokens into vectors.
//!
//! A token of a plain vocabulary is one id. A structured token has an id for each of its fields, and its vector is the sum of the
//! fields' vectors, so that a table of entries needs no vocabulary of all possible entries. Fields of one alphabet share one table of
//! vectors, with one row for the blank of all of them: a value that was looked up and the argument it becomes then look alike
//! from the first step on. All fields of an alphabet but the first have a gain for each channel, which starts at -1, because the sum
//! of argument 3 and value 5 would otherwise be that of argument 5 and value 3.

use rung_engine::{Ops, Parameter, Role, Scalar};
use rung_theory::task::Field;

use crate::error::ModelError;
use crate::param_builder::{Init, ParamBuilder};
use crate::position::Positions;

/// What tokens are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputConfig {
    /// One id below this number.
    Vocabulary(usize),
    /// One id for each field.
    Fields(Vec<Field>),
}

impl InputConfig {
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

    /// Ids of a field that are not its blank; none if there is no such field.
    pub(super) fn symbols(&self, name: &str) -> usize {
        let Self::Fields(fields) = self else { return 0 };
        fields.iter().find(|field| field.name == name).map_or(0, |field| field.symbols() as usize)
    }

    /// Whether two fields have one table.
    pub(super) fn shares_a_table(&self) -> bool {
        let Self::Fields(fields) = self else { return false };
        fields.iter().enumerate().any(|(at, field)| fields[..at].iter().any(|other| other.alphabet == field.alphabet))
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
    columns: Vec<Column>,
    positions: Option<(Parameter, usize)>,
    /// Factor on every vector, if not one.
    scale: Option<f64>,
}

/// One id of each token: what it may be, and where its vectors are.
#[derive(Clone, Debug)]
struct Column {
    field: String,
    vocabulary: usize,
    /// The id and the row of the blank, where they differ.
    blank: Option<(usize, usize)>,
    weight: Parameter,
    /// What sets it apart from the first field with this table.
    gain: Option<Parameter>,
}

impl Embedding {
    /// Adds its weights.
    pub fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, input: &InputConfig) -> Self {
        let (width, init) = (params.settings.width, Init::Normal(params.settings.deviation));
        let columns = match input {
            InputConfig::Vocabulary(count) => {
                let weight = params.role(Role::Embedding).weight("embeddings.weight", &[*count, width], init);
                vec![Column { field: "token".to_owned(), vocabulary: *count, blank: None, weight, gain: None }]
            }
            InputConfig::Fields(fields) => shared_tables(params, fields, init),
        };
        let positions = match params.settings.positions {
            Positions::Learned { length } => {
                let table = params.role(Role::Position).weight("positions.weight", &[length, width], init);
                Some((table, length))
            }
            _ => None,
        };
        Self { columns, positions, scale: None }
    }

    /// A plain vocabulary whose table exists.
    pub(crate) fn of_table(weight: Parameter, vocabulary: usize, scale: Option<f64>) -> Self {
        let column = Column { field: "token".to_owned(), vocabulary, blank: None, weight, gain: None };
        Self { columns: vec![column], positions: None, scale }
    }

    /// Ids of a token.
    pub(super) fn fields(&self) -> usize {
        self.columns.len()
    }

    /// The table of a plain vocabulary.
    pub(super) fn single(&self) -> Option<Parameter> {
        match &self.columns[..] {
            [column] => Some(column.weight),
            _ => None,
        }
    }

    /// The table of a field and its gain.
    pub(super) fn field(&self, name: &str) -> Option<(Parameter, Option<Parameter>)> {
        self.columns.iter().find(|column| column.field == name).map(|column| (column.weight, column.gain))
    }

    /// `[batch, time, width]` of `batch` rows of tokens, the first of which is the one after `seen` others.
    ///
    /// # Errors
    /// Ids do not fit the tables, or the text is longer than the learned positions.
    #[inline(never)]
    pub fn apply<O: Ops>(&self, ops: &O, tokens: &[u32], batch: usize, seen: usize) -> Result<O::Tensor, ModelError> {
        let fields = self.fields();
        if batch * fields == 0 || tokens.is_empty() || !tokens.len().is_multiple_of(batch * fields) {
            return Err(ModelError::Ragged { found: tokens.len(), rows: batch, fields });
        }
        let time = tokens.len() / (batch * fields);
        let vectors = |index: usize| -> Result<O::Tensor, ModelError> {
            let column = &self.columns[index];
            let rows = ops.gather_rows(&ops.parameter(column.weight), &column.rows(&tokens[index..], fields)?);
            Ok(match column.gain {
                Some(gain) => ops.mul(&rows, &ops.parameter(gain)),
                None => rows,
            })
        };
        let mut x = vectors(0)?;
        for index in 1..fields {
            x = ops.add(&x, &vectors(index)?);
        }
        let mut x = ops.reshape(&x, &[batch, time, ops.shape(&x).width()]);
        if let Some(scale) = self.scale {
            x = ops.scale(&x, scale);
        }
        let Some((table, most)) = self.positions else { return Ok(x) };
        if seen + time > most {
            return Err(ModelError::TooLong { found: seen + time, most });
        }
        Ok(ops.add(&x, &ops.slice(&ops.parameter(table), 0, seen..seen + time)))
    }
}

/// One table for each alphabet, in the order in which alphabets are met.
fn shared_tables<S: Scalar>(params: &mut ParamBuilder<'_, S>, fields: &[Field], init: Init<'_>) -> Vec<Column> {
    let width = params.settings.width;
    let mut known: Vec<(&str, usize, Parameter)> = Vec::new();
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        let sharing = || fields.iter().filter(|other| other.alphabet == field.alphabet);
        let found = known.iter().find(|(alphabet, ..)| *alphabet == field.alphabet);
        let later = found.is_some();
        let (_, rows, weight) = found.copied().unwrap_or_else(|| {
            let symbols = sharing().map(|other| other.symbols() as usize).max().unwrap_or(0);
            let rows = symbols + usize::from(sharing().any(|other| other.blank));
            let name = format!("embeddings.{}.weight", field.alphabet);
            let weight = params.role(Role::Embedding).weight(&name, &[rows, width], init);
            known.push((&field.alphabet, rows, weight));
            (&field.alphabet, rows, weight)
        });
        let blank = field.blank.then(|| (field.vocabulary as usize - 1, rows - 1));
        let gain =
            later.then(|| params.weight(&format!("embeddings.{}.gain", field.name), &[width], Init::Constant(-1.0)));
        let (field, vocabulary) = (field.name.clone(), field.vocabulary as usize);
        columns.push(Column { field, vocabulary, blank, weight, gain });
    }
    columns
}

impl Column {
    /// This field's row of every token.
    fn rows(&self, tokens: &[u32], fields: usize) -> Result<Vec<usize>, ModelError> {
        let ids = tokens.iter().step_by(fields).enumerate();
        ids.map(|(position, &found)| match (found as usize, self.blank) {
            (id, Some((blank, row))) if id == blank => Ok(row),
            (id, _) if id < self.vocabulary => Ok(id),
            _ => Err(ModelError::Token { position, field: self.field.clone(), found, vocabulary: self.vocabulary }),
        })
        .collect()
    }
}
