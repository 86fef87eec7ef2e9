//! Readable names of tokens, such as `z2(1,0)=3` instead of five ids.

use std::any::Any;

use super::funccomp::FuncComp;
use super::{AnyTask, Field};

/// Names the tokens of a task. Different tokens of one task have different names.
pub struct TokenNames {
    fields: Vec<Field>,
    /// For function composition: the number of hops, and whether they are mixed.
    composition: Option<(usize, bool)>,
}

impl TokenNames {
    /// The names for a task's tokens.
    pub fn new(task: &dyn AnyTask) -> Self {
        let composition = (task as &dyn Any).downcast_ref::<FuncComp>().map(|task| (task.hops(), task.mixed_hops()));
        Self { fields: task.fields(), composition }
    }

    /// Number of ids per token.
    pub fn ids_per_token(&self) -> usize {
        self.fields.len()
    }

    /// The name of a token.
    pub fn name(&self, token: &[u32]) -> String {
        match self.composition {
            Some((hops, mixed)) => self.composition_name(token, hops, mixed),
            None => self.field_values(token),
        }
    }

    /// Whether an id is the blank: the last of every field except the first.
    fn is_blank(&self, field: usize, id: u32) -> bool {
        id + 1 >= self.fields[field].vocabulary
    }

    /// A token of function composition: an entry of a table, the start, the query, the slot, or a thought.
    fn composition_name(&self, token: &[u32], hops: usize, mixed: bool) -> String {
        let kind = token[0] as usize;
        let join_ids = |fields: std::ops::Range<usize>| {
            let ids =
                fields.filter(|field| !self.is_blank(*field, token[*field])).map(|field| token[field].to_string());
            ids.collect::<Vec<_>>().join(",")
        };
        let row_groups = join_ids(4..self.fields.len());
        match kind {
            _ if token[0] >= self.fields[0].vocabulary => {
                format!("thought {}: {}", token[0] - self.fields[0].vocabulary + 1, join_ids(3..4))
            }
            kind if kind < hops => format!("z{}({})={}", kind + 1, join_ids(1..3), join_ids(3..4)),
            kind if kind == hops => format!("z0={}", join_ids(3..4)),
            kind if kind == hops + 1 && row_groups.is_empty() => "w".to_owned(),
            _ if !row_groups.is_empty() && mixed => format!("w{}=({row_groups})", kind - hops),
            _ if !row_groups.is_empty() => format!("w=({row_groups})"),
            _ => "slot".to_owned(),
        }
    }

    /// The fields of a token with their ids, such as `kind=1 key=5`, without blanks.
    fn field_values(&self, token: &[u32]) -> String {
        if let ([field], [id]) = (&self.fields[..], token) {
            return format!("{}={id}", field.name);
        }
        let values = token.iter().enumerate().filter(|(field, id)| *field == 0 || !self.is_blank(*field, **id));
        values.map(|(field, id)| format!("{}={id}", self.fields[field].name)).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use crate::task::{self, Prompt, seeded};

    use super::*;

    fn token_names_of_sample(spec: &str) -> Vec<String> {
        let task = task::parse(spec).unwrap();
        let mut prompt = Prompt::new();
        task.sample_prompt(&mut seeded(0), &mut prompt);
        let names = TokenNames::new(&*task);
        prompt.tokens().chunks_exact(names.ids_per_token()).map(|token| names.name(token)).collect()
    }

    #[test]
    fn composition_tokens_have_readable_names() {
        let names = token_names_of_sample("funccomp{hops=2,m=3,n=[2],order=query-first}");
        assert!(names[0].starts_with("w=("), "{}", names[0]);
        assert!(names[1].starts_with("z2(0,0)=") && names[7].starts_with("z1(0)="), "{names:?}");
        assert!(names[10].starts_with("z0=") && names[11] == "slot", "{names:?}");
    }

    #[test]
    fn composition_tokens_have_different_names() {
        for spec in [
            "funccomp{hops=1,m=3,n=[]}",
            "funccomp{hops=2,m=3,n=[2],mixed=yes,queries=2}",
            "funccomp{hops=3,m=2,n=[2,1],names=levels}",
            "funccomp{hops=2,m=2,n=[2],order=streaming}",
        ] {
            let task = task::parse(spec).unwrap();
            let composition = (&*task as &dyn Any).downcast_ref::<FuncComp>().unwrap();
            let (token_names, tokens) = (TokenNames::new(&*task), composition.tokens());
            assert_eq!(tokens.len() as u128, composition.token_count(), "{spec}");
            let names: std::collections::BTreeSet<String> =
                tokens.iter().map(|token| token_names.name(token)).collect();
            assert_eq!(names.len(), tokens.len(), "{spec}");
            let mut prompt = Prompt::new();
            for seed in 0..50 {
                task.sample_prompt(&mut seeded(seed), &mut prompt);
                assert!(
                    prompt
                        .tokens()
                        .chunks_exact(token_names.ids_per_token())
                        .all(|token| tokens.iter().any(|t| t == token)),
                    "{spec}"
                );
            }
        }
    }

    #[test]
    fn tokens_of_other_tasks_list_their_fields() {
        assert!(token_names_of_sample("parity{length=3}")[0].contains('='));
        let structured = token_names_of_sample("parity-retrieval{bits=2,entries=2}");
        assert!(
            structured.iter().any(|name| name.contains("key=")) && structured[0].matches('=').count() < 5,
            "{structured:?}"
        );
    }
}
