//! One vocabulary of named tokens for tokens that are tuples of fields.
//!
//! Every tuple that prompts of a task can have becomes one token, whose vector is the sum of its fields' vectors and whose name says
//! what it means: `z2(0,1)=3`. Classes become tokens too, named by their numbers, so that an answer is the next token:
//!
//! ```text
//! z2(0,0)=1 z2(0,1)=3 .. z1(0)=1 z1(1)=0 z0=1 w=(0)   3
//! ```

use std::any::Any;

use rung_theory::task::funccomp::FuncComp;
use rung_theory::task::{AnyTask, TokenNames};

use super::ExportError;

/// More tokens than this are refused.
const MOST_TOKENS: u128 = 1 << 18;

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenMeaning {
    /// Anything that is not in the vocabulary.
    Unknown,
    /// The end of a sequence; no network here ever gives it.
    End,
    /// A class.
    Answer(u32),
    /// A token of a prompt: an id for each field.
    Prompt(Vec<u32>),
    /// An entry of a table that the network does not look up: an id for each field but the first.
    FurtherEntry(Vec<u32>),
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name, without spaces.
    pub name: String,
    /// What it stands for.
    pub meaning: TokenMeaning,
}

/// All tokens, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// The tokens.
    pub tokens: Vec<Token>,
}

impl Vocabulary {
    /// The id of unknown tokens.
    pub const UNKNOWN: u32 = 0;
    /// The id of the end.
    pub const END: u32 = 1;

    /// The vocabulary of a task. With `beyond`, also the entries of so many further tables of function composition, each as large as
    /// the last one, so that questions can be put that need more hops than the network takes.
    ///
    /// # Errors
    /// There are too many tokens, or further tables are asked for of another task.
    pub fn new(task: &dyn AnyTask, beyond: usize) -> Result<Self, ExportError> {
        let composition = (task as &dyn Any).downcast_ref::<FuncComp>();
        let mut tokens = vec![
            Token { name: "<unk>".to_owned(), meaning: TokenMeaning::Unknown },
            Token { name: "</s>".to_owned(), meaning: TokenMeaning::End },
        ];
        tokens.extend(
            (0..task.classes()).map(|class| Token { name: class.to_string(), meaning: TokenMeaning::Answer(class) }),
        );
        match (composition, beyond) {
            (Some(task), 1..) => tokens.extend(further(task, beyond)?),
            (None, 1..) => {
                return Err(ExportError::unfit("--beyond", beyond, "0 for tasks other than function composition"));
            }
            (_, 0) => {
                let token_names = TokenNames::new(task);
                tokens.extend(tuples(task, composition)?.into_iter().map(|fields| Token {
                    name: token_names.name(&fields).replace(' ', ","),
                    meaning: TokenMeaning::Prompt(fields),
                }));
            }
        }
        Ok(Self { tokens })
    }

    /// The id of the token that stands for a class.
    pub fn answer(class: u32) -> u32 {
        class + 2
    }

    /// The class that a token stands for.
    pub fn class(&self, id: u32) -> Option<u32> {
        match self.tokens.get(id as usize)?.meaning {
            TokenMeaning::Answer(class) => Some(class),
            _ => None,
        }
    }

    /// The ids of a prompt's tokens.
    pub fn ids(&self, tokens: &[u32], fields: usize) -> Option<Vec<u32>> {
        let known: std::collections::HashMap<&[u32], u32> = (0..)
            .zip(&self.tokens)
            .filter_map(|(id, token)| match &token.meaning {
                TokenMeaning::Prompt(fields) => Some((&fields[..], id)),
                _ => None,
            })
            .collect();
        tokens.chunks_exact(fields).map(|token| known.get(token).copied()).collect()
    }
}

fn check(count: u128) -> Result<(), ExportError> {
    if count <= MOST_TOKENS {
        return Ok(());
    }
    Err(ExportError::unfit("tokens of the vocabulary", count, format!("at most {MOST_TOKENS}; take smaller tables")))
}

/// Every tuple of ids that prompts of a task can have, and perhaps more.
fn tuples(task: &dyn AnyTask, composition: Option<&FuncComp>) -> Result<Vec<Vec<u32>>, ExportError> {
    if let Some(task) = composition {
        check(task.token_count())?;
        return Ok(task.tokens());
    }
    let sizes: Vec<u32> = task.fields().iter().map(|field| field.vocabulary).collect();
    check(sizes.iter().fold(1, |product: u128, size| product.saturating_mul(u128::from(*size))))?;
    let mut tuples = vec![Vec::new()];
    for size in sizes {
        let extended = tuples.iter().flat_map(|tuple: &Vec<u32>| {
            (0..size).map(move |id| tuple.iter().copied().chain([id]).collect::<Vec<u32>>())
        });
        tuples = extended.collect();
    }
    Ok(tuples)
}

/// Tokens of the same tables with more on top, in the fields that the network has.
fn further(task: &FuncComp, beyond: usize) -> Result<Vec<Token>, ExportError> {
    let (hops, own) = (task.hops(), AnyTask::fields(task));
    let branches: Vec<u32> = task.branches().iter().copied().chain(std::iter::repeat_n(1, beyond)).collect();
    let longer = FuncComp::new(task.sizes()[0], &branches, task.order(), task.queries(), task.mixed())
        .map(|longer| longer.with_listing(task.listing()))
        .map_err(|error| ExportError::unfit("--beyond", beyond, error))?;
    if task.mixed() || own.len() != 3 + hops {
        return Err(ExportError::unfit("--beyond", beyond, "0 for tasks with mixed hops or names of levels"));
    }
    check(longer.token_count())?;
    let (token_names, wide) = (TokenNames::new(&longer), AnyTask::fields(&longer));
    let token = |fields: Vec<u32>| {
        let kind = fields[0] as usize;
        // A blank is the last id of its field, and fields of the longer task may be larger.
        let shared = fields
            .iter()
            .zip(&own)
            .zip(&wide)
            .skip(1)
            .map(|((id, own), wide)| if id + 1 == wide.vocabulary { own.vocabulary - 1 } else { *id });
        let shared: Vec<u32> = shared.collect();
        let known =
            |kind: usize| TokenMeaning::Prompt(std::iter::once(kind as u32).chain(shared.iter().copied()).collect());
        let meaning = match kind {
            kind if kind < hops => known(kind),
            kind if kind < hops + beyond => TokenMeaning::FurtherEntry(shared),
            kind => known(kind - beyond),
        };
        Token { name: token_names.name(&fields), meaning }
    };
    Ok(longer.tokens().into_iter().map(token).collect())
}
