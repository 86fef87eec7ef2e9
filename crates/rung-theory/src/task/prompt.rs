//! The input and the targets of a model: tokens, targets, metric groups.
//!
//! A [`Prompt`] is a set of buffers that is reused, so that repeated sampling allocates no memory. Two things are kept from one
//! sample to the next; neither changes a result:
//!
//! - the **template**: most ids of a structured prompt (the arguments of table entries) are the same in every sample of a
//!   task. A task whose template is already in the buffer writes only the ids that vary;
//! - the last instance, whose memory the next one reuses.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The target of a position without a question.
pub const NO_TARGET: u32 = u32::MAX;

/// The metric group of every question of a task whose questions have no number of hops.
pub const SINGLE_GROUP: u16 = 1;

/// One field of a token: its name and its number of ids.
///
/// Most tasks have tokens of one field. A structured token, such as an entry of a table, has several.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Field {
    /// The name of the field.
    pub name: String,
    /// The number of ids: they are below this.
    pub vocabulary: u32,
    /// Whether the last id is the blank, for tokens that do not use the field.
    pub blank: bool,
    /// The name of its set of symbols. In fields of the same alphabet an id has the same meaning, except for blanks, so a model may
    /// share one embedding table between them.
    pub alphabet: String,
}

impl Field {
    /// A field with a separate alphabet and no blank.
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
    pub fn with_alphabet(self, alphabet: &str) -> Self {
        Self { alphabet: alphabet.to_owned(), ..self }
    }

    /// The number of ids without the blank.
    pub fn symbol_count(&self) -> u32 {
        self.vocabulary.saturating_sub(u32::from(self.blank))
    }
}

/// Identifies a task's template: the ids that are the same in all its prompts. A clone identifies the same
/// template; two new values never do.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplateId(Arc<()>);

/// Tokens, with the target and metric group of each.
#[derive(Default)]
pub struct Prompt {
    tokens: Vec<u32>,
    targets: Vec<u32>,
    groups: Vec<u16>,
    intermediate_answers: Vec<u32>,
    ids_per_token: usize,
    template: Option<TemplateId>,
    reused_instance: Option<Box<dyn Any + Send>>,
}

impl Prompt {
    /// An empty prompt, to be filled by a task.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ids, [`ids_per_token`](Self::ids_per_token) ids for each token.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// One per token: the class to be predicted there, or [`NO_TARGET`].
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// One per token: the metric group of its question, such as its number of hops. Accuracy is reported per metric group. 0 without
    /// a question.
    pub fn groups(&self) -> &[u16] {
        &self.groups
    }

    /// Intermediate results, the same number for each question: the class after one step, after two and so on, and the answer itself
    /// from the question's number of steps on. Empty for tasks without intermediate results.
    pub fn intermediate_answers(&self) -> &[u32] {
        &self.intermediate_answers
    }

    /// Number of ids per token: one per [`Field`].
    pub fn ids_per_token(&self) -> usize {
        self.ids_per_token
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Every position with a question: position, target, metric group.
    pub fn questions(&self) -> impl Iterator<Item = (usize, u32, u16)> + '_ {
        let positions = self.targets.iter().zip(&self.groups).enumerate();
        positions
            .filter(|(_, (target, _))| **target != NO_TARGET)
            .map(|(position, (target, group))| (position, *target, *group))
    }

    /// Empties the prompt, for tokens of `ids_per_token` ids.
    pub fn start(&mut self, ids_per_token: usize) {
        self.tokens.clear();
        self.targets.clear();
        self.groups.clear();
        self.intermediate_answers.clear();
        self.ids_per_token = ids_per_token;
        self.template = None;
    }

    /// Appends a token without a question. Missing fields are 0; surplus ids are ignored.
    pub fn push(&mut self, token: &[u32]) {
        let end = self.tokens.len() + self.ids_per_token;
        self.tokens.extend_from_slice(&token[..token.len().min(self.ids_per_token)]);
        self.tokens.resize(end, 0);
        self.targets.push(NO_TARGET);
        self.groups.push(0);
    }

    /// Appends a token with a question whose answer is `target`.
    pub fn push_question(&mut self, token: &[u32], target: u32, group: u16) {
        self.push(token);
        let last = self.len() - 1;
        self.set_target(last, target, group);
    }

    /// Makes an existing position a question whose answer is `target`.
    ///
    /// # Panics
    /// There is no such position.
    pub fn set_target(&mut self, position: usize, target: u32, group: u16) {
        self.targets[position] = target;
        self.groups[position] = group;
    }

    /// Replaces the [`intermediate_answers`](Self::intermediate_answers).
    pub(crate) fn set_intermediate_answers(&mut self, intermediate_answers: impl Iterator<Item = u32>) {
        self.intermediate_answers.clear();
        self.intermediate_answers.extend(intermediate_answers);
    }

    /// Empties the prompt and appends tokens of one field without questions: the bulk form of [`push`](Self::push).
    pub fn start_single_field(&mut self, tokens: &[u32]) {
        self.start(1);
        self.tokens.extend_from_slice(tokens);
        self.targets.resize(tokens.len(), NO_TARGET);
        self.groups.resize(tokens.len(), 0);
    }

    /// Whether the constant ids of `template` are already in the buffer.
    pub(crate) fn has_template(&self, template: &TemplateId) -> bool {
        self.template.as_ref().is_some_and(|current| Arc::ptr_eq(&current.0, &template.0))
    }

    /// Records that the current ids are those of `template`, except for the ids that its task always overwrites.
    pub(crate) fn set_template(&mut self, template: &TemplateId) {
        self.template = Some(template.clone());
    }

    /// The ids, for the task whose template is in the buffer.
    pub(crate) fn tokens_mut(&mut self) -> &mut [u32] {
        &mut self.tokens
    }

    /// Takes the instance of the last sample if it has this type.
    pub(crate) fn take_reused_instance<T: Any>(&mut self) -> Option<Box<T>> {
        self.reused_instance.take()?.downcast().ok()
    }

    /// Stores an instance whose memory the next sample reuses.
    pub(crate) fn keep_reused_instance<T: Any + Send>(&mut self, instance: Box<T>) {
        self.reused_instance = Some(instance);
    }
}

// Not derived: the instance and the template are caches, not part of the value.
impl Clone for Prompt {
    fn clone(&self) -> Self {
        let (tokens, targets, groups) = (self.tokens.clone(), self.targets.clone(), self.groups.clone());
        let intermediate_answers = self.intermediate_answers.clone();
        Self {
            tokens,
            targets,
            groups,
            intermediate_answers,
            ids_per_token: self.ids_per_token,
            template: None,
            reused_instance: None,
        }
    }
}

impl PartialEq for Prompt {
    fn eq(&self, other: &Self) -> bool {
        (self.ids_per_token, &self.tokens, &self.targets, &self.groups)
            == (other.ids_per_token, &other.tokens, &other.targets, &other.groups)
    }
}

impl Eq for Prompt {}

impl fmt::Debug for Prompt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("Prompt");
        out.field("ids_per_token", &self.ids_per_token).field("tokens", &self.tokens);
        out.field("targets", &self.targets).field("groups", &self.groups).finish_non_exhaustive()
    }
}
