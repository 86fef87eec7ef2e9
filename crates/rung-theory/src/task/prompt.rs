//! What a model is given and what it is asked: tokens, targets, groups.
//!
//! A [`Prompt`] is a set of buffers that is filled again and again, so that a steady stream of samples allocates
//! nothing. Two things are remembered from one filling to the next, and neither can change a result:
//!
//! - the **layout**: most cells of a structured prompt (which entry stands where) are the same in every sample of a
//!   task. A task that finds its own layout in place writes only the cells that vary;
//! - the **scratch**: the last instance, whose memory the next one takes over.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The target of a position at which nothing is asked.
pub const NO_TARGET: u32 = u32::MAX;

/// One part of a token: its name and how many ids it has.
///
/// A token of a plain task is one id and has one field. A structured token (an entry of a table, say) has several.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Field {
    /// What the field says.
    pub name: String,
    /// Ids run from 0 to one less than this.
    pub vocabulary: u32,
    /// Whether the last id says that the field says nothing here.
    pub blank: bool,
    /// What its ids stand for. Fields of one alphabet mean the same by the same id, blanks aside, so a model may give them one
    /// table of vectors.
    pub alphabet: String,
}

impl Field {
    /// A field with an alphabet of its own and no blank.
    pub fn new(name: impl Into<String>, vocabulary: u32) -> Self {
        let name = name.into();
        Self { alphabet: name.clone(), name, vocabulary, blank: false }
    }

    /// The same field, whose last id is a blank.
    #[must_use]
    pub fn with_blank(self) -> Self {
        Self { blank: true, ..self }
    }

    /// The same field, whose ids are of this alphabet.
    #[must_use]
    pub fn of(self, alphabet: &str) -> Self {
        Self { alphabet: alphabet.to_owned(), ..self }
    }

    /// Ids that are not the blank.
    pub fn symbols(&self) -> u32 {
        self.vocabulary.saturating_sub(u32::from(self.blank))
    }
}

/// Which constant cells stand in a prompt. Compared by identity: a clone is the same layout, two new ones never are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout(Arc<()>);

/// Tokens, and what is asked at each of them.
#[derive(Default)]
pub struct Prompt {
    tokens: Vec<u32>,
    targets: Vec<u32>,
    groups: Vec<u16>,
    partials: Vec<u32>,
    fields: usize,
    layout: Option<Layout>,
    scratch: Option<Box<dyn Any + Send>>,
}

impl Prompt {
    /// An empty prompt, to be filled by a task.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ids, one row of [`fields`](Self::fields) ids per token.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// One per token: the class to be predicted there, or [`NO_TARGET`].
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// One per token: which sort of question is asked there (say, how many hops), so that accuracy can be counted for each; 0
    /// where none is.
    pub fn groups(&self) -> &[u16] {
        &self.groups
    }

    /// What each question's answer is after fewer steps, question by question, as many for each: the class after one step, after
    /// two and so on, and the answer itself from the question's own number of steps on. Empty where answers have no such parts.
    pub fn partials(&self) -> &[u32] {
        &self.partials
    }

    /// Ids per token.
    pub fn fields(&self) -> usize {
        self.fields
    }

    /// Tokens.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Every position at which something is asked: position, target, group.
    pub fn questions(&self) -> impl Iterator<Item = (usize, u32, u16)> + '_ {
        let all = self.targets.iter().zip(&self.groups).enumerate();
        all.filter(|(_, (target, _))| **target != NO_TARGET)
            .map(|(position, (target, group))| (position, *target, *group))
    }

    /// Empties the prompt for tokens of this many fields.
    pub fn start(&mut self, fields: usize) {
        self.tokens.clear();
        self.targets.clear();
        self.groups.clear();
        self.partials.clear();
        self.fields = fields;
        self.layout = None;
    }

    /// Appends a token at which nothing is asked. Missing fields are 0, further ones are left out.
    pub fn push(&mut self, token: &[u32]) {
        let end = self.tokens.len() + self.fields;
        self.tokens.extend_from_slice(&token[..token.len().min(self.fields)]);
        self.tokens.resize(end, 0);
        self.targets.push(NO_TARGET);
        self.groups.push(0);
    }

    /// Appends a token at which `target` is asked.
    pub fn push_question(&mut self, token: &[u32], target: u32, group: u16) {
        self.push(token);
        let last = self.len() - 1;
        self.ask(last, target, group);
    }

    /// Asks for `target` at a position that is already there.
    ///
    /// # Panics
    /// There is no such position.
    pub fn ask(&mut self, position: usize, target: u32, group: u16) {
        self.targets[position] = target;
        self.groups[position] = group;
    }

    /// Replaces the [`partials`](Self::partials).
    pub(crate) fn set_partials(&mut self, partials: impl Iterator<Item = u32>) {
        self.partials.clear();
        self.partials.extend(partials);
    }

    /// Empties the prompt and lays out single-field tokens, nothing asked: the bulk form of [`push`](Self::push).
    pub fn start_plain(&mut self, tokens: &[u32]) {
        self.start(1);
        self.tokens.extend_from_slice(tokens);
        self.targets.resize(tokens.len(), NO_TARGET);
        self.groups.resize(tokens.len(), 0);
    }

    /// Whether the constant cells of `layout` are in place already.
    pub(crate) fn has_layout(&self, layout: &Layout) -> bool {
        self.layout.as_ref().is_some_and(|own| Arc::ptr_eq(&own.0, &layout.0))
    }

    /// Marks the cells now in place as the constant ones of `layout`, plus cells that its task always rewrites.
    pub(crate) fn set_layout(&mut self, layout: &Layout) {
        self.layout = Some(layout.clone());
    }

    /// The ids, to be rewritten by the task whose layout is in place.
    pub(crate) fn cells(&mut self) -> &mut [u32] {
        &mut self.tokens
    }

    /// Takes out the scratch if it is of this type.
    pub(crate) fn take_scratch<T: Any>(&mut self) -> Option<Box<T>> {
        self.scratch.take()?.downcast().ok()
    }

    /// Puts the scratch back for the next sample.
    pub(crate) fn keep_scratch<T: Any + Send>(&mut self, scratch: Box<T>) {
        self.scratch = Some(scratch);
    }
}

// Written by hand: scratch and layout say how the prompt was made, not what it is.
impl Clone for Prompt {
    fn clone(&self) -> Self {
        let (tokens, targets, groups) = (self.tokens.clone(), self.targets.clone(), self.groups.clone());
        let partials = self.partials.clone();
        Self { tokens, targets, groups, partials, fields: self.fields, layout: None, scratch: None }
    }
}

impl PartialEq for Prompt {
    fn eq(&self, other: &Self) -> bool {
        (self.fields, &self.tokens, &self.targets, &self.groups)
            == (other.fields, &other.tokens, &other.targets, &other.groups)
    }
}

impl Eq for Prompt {}

impl fmt::Debug for Prompt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("Prompt");
        out.field("fields", &self.fields).field("tokens", &self.tokens);
        out.field("targets", &self.targets).field("groups", &self.groups).finish_non_exhaustive()
    }
}
