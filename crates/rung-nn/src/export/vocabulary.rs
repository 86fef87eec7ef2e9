//! A vocabulary of named tokens for tasks whose tokens are tuples of fields.
//!
//! Every tuple that prompts of a task can have becomes one token, whose embedding is the sum of its fields' embeddings and whose name
//! describes it: `z2(0,1)=3`. Classes become tokens too, named by their numbers, so that an answer is the next token:
//!
//! ```text
//! z2(0,0)=1 z2(0,1)=3 .. z1(0)=1 z1(1)=0 z0=1 w=(0)   3
//! ```

use std::any::Any;

use rung_theory::task::funccomp::FuncComp;
use rung_theory::task::{AnyTask, TaskBase as _, TokenNames};

use super::ExportError;

/// The most tokens that a vocabulary may have.
const MAX_TOKENS: u128 = 1 << 18;

/// What a token represents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenMeaning {
    /// Any word that is not in the vocabulary.
    Unknown,
    /// The end of a sequence; exported networks never predict it.
    End,
    /// A class, which is an answer.
    Answer(u32),
    /// A token of a prompt: an id for each field.
    Prompt(Vec<u32>),
    /// An entry of a table that the network does not look up: an id for each field but the first.
    ExtraTableEntry(Vec<u32>),
}

/// A token of the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name, without spaces.
    pub name: String,
    /// What it represents.
    pub meaning: TokenMeaning,
}

/// All tokens, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// The tokens; the index is the id.
    pub tokens: Vec<Token>,
}

impl Vocabulary {
    /// The id of unknown words.
    pub const UNKNOWN: u32 = 0;
    /// The id of the end of a sequence.
    pub const END: u32 = 1;

    /// The vocabulary of a task. With `extra_tables`, it also has the entries of that many extra tables of function composition, each as large as
    /// the last one, for questions that need more hops than the network makes.
    ///
    /// # Errors
    /// There are too many tokens, or `extra_tables` is not 0 for another task.
    pub fn new(task: &dyn AnyTask, extra_tables: usize) -> Result<Self, ExportError> {
        let composition = (task as &dyn Any).downcast_ref::<FuncComp>();
        let mut tokens = vec![
            Token { name: "<unk>".to_owned(), meaning: TokenMeaning::Unknown },
            Token { name: "</s>".to_owned(), meaning: TokenMeaning::End },
        ];
        tokens.extend(
            (0..task.classes()).map(|class| Token { name: class.to_string(), meaning: TokenMeaning::Answer(class) }),
        );
        match (composition, extra_tables) {
            (Some(task), 1..) => tokens.extend(tokens_with_extra_tables(task, extra_tables)?),
            (None, 1..) => {
                return Err(ExportError::unsupported(
                    "--beyond",
                    extra_tables,
                    "0 for tasks other than function composition",
                ));
            }
            (_, 0) => {
                let token_names = TokenNames::new(task);
                tokens.extend(all_tuples(task, composition)?.into_iter().map(|fields| Token {
                    name: token_names.name(&fields).replace(' ', ","),
                    meaning: TokenMeaning::Prompt(fields),
                }));
            }
        }
        Ok(Self { tokens })
    }

    /// The id of the token that represents a class.
    pub fn answer_id(class: u32) -> u32 {
        class + 2
    }

    /// The class that a token represents, if it is an answer.
    pub fn class(&self, id: u32) -> Option<u32> {
        match self.tokens.get(id as usize)?.meaning {
            TokenMeaning::Answer(class) => Some(class),
            _ => None,
        }
    }

    /// The ids of a prompt's tokens.
    pub fn ids(&self, tokens: &[u32], fields: usize) -> Option<Vec<u32>> {
        let id_of_fields: std::collections::HashMap<&[u32], u32> = (0..)
            .zip(&self.tokens)
            .filter_map(|(id, token)| match &token.meaning {
                TokenMeaning::Prompt(fields) => Some((&fields[..], id)),
                _ => None,
            })
            .collect();
        tokens.chunks_exact(fields).map(|token| id_of_fields.get(token).copied()).collect()
    }
}

fn check_token_count(count: u128) -> Result<(), ExportError> {
    if count <= MAX_TOKENS {
        return Ok(());
    }
    Err(ExportError::unsupported(
        "tokens of the vocabulary",
        count,
        format!("at most {MAX_TOKENS}; use smaller tables"),
    ))
}

/// Every tuple of ids that prompts of a task can have, and perhaps more.
fn all_tuples(task: &dyn AnyTask, composition: Option<&FuncComp>) -> Result<Vec<Vec<u32>>, ExportError> {
    if let Some(task) = composition {
        check_token_count(task.token_count())?;
        return Ok(task.tokens());
    }
    let sizes: Vec<u32> = task.fields().iter().map(|field| field.vocabulary).collect();
    check_token_count(sizes.iter().fold(1, |product: u128, size| product.saturating_mul(u128::from(*size))))?;
    let mut tuples = vec![Vec::new()];
    for size in sizes {
        let extended = tuples.iter().flat_map(|tuple: &Vec<u32>| {
            (0..size).map(move |id| tuple.iter().copied().chain([id]).collect::<Vec<u32>>())
        });
        tuples = extended.collect();
    }
    Ok(tuples)
}

/// The tokens of a task with `extra_tables` extra tables, in the fields of the original task.
fn tokens_with_extra_tables(task: &FuncComp, extra_tables: usize) -> Result<Vec<Token>, ExportError> {
    let (hops, fields) = (task.hops(), task.fields());
    let row_groups_per_table: Vec<u32> =
        task.row_groups_per_table().iter().copied().chain(std::iter::repeat_n(1, extra_tables)).collect();
    let extended_task =
        FuncComp::new(task.sizes()[0], &row_groups_per_table, task.order(), task.query_count(), task.mixed_hops())
            .map(|longer| longer.with_entry_order(task.entry_order()))
            .map_err(|error| ExportError::unsupported("--beyond", extra_tables, error))?;
    if task.mixed_hops() || fields.len() != 3 + hops {
        return Err(ExportError::unsupported(
            "--beyond",
            extra_tables,
            "0 for tasks with mixed hops or names of levels",
        ));
    }
    check_token_count(extended_task.token_count())?;
    let (token_names, extended_fields) = (TokenNames::new(&extended_task), extended_task.fields());
    let token = |ids: Vec<u32>| {
        let kind = ids[0] as usize;
        // A blank is the last id of its field, and fields of the extended task may be larger.
        let original_ids = ids
            .iter()
            .zip(&fields)
            .zip(&extended_fields)
            .skip(1)
            .map(|((id, field), longer)| if id + 1 == longer.vocabulary { field.vocabulary - 1 } else { *id });
        let original_ids: Vec<u32> = original_ids.collect();
        let prompt_token = |kind: usize| {
            TokenMeaning::Prompt(std::iter::once(kind as u32).chain(original_ids.iter().copied()).collect())
        };
        let meaning = match kind {
            kind if kind < hops => prompt_token(kind),
            kind if kind < hops + extra_tables => TokenMeaning::ExtraTableEntry(original_ids),
            kind => prompt_token(kind - extra_tables),
        };
        Token { name: token_names.name(&ids), meaning }
    };
    Ok(extended_task.tokens().into_iter().map(token).collect())
}
