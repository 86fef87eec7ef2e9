//! Prompts that consist of the task's token names, without English text.
//!
//! ```text
//! z2(0,0)=2 z2(0,1)=0 z2(0,2)=1 z1(0)=1 z1(1)=2 z1(2)=0 z0=1 w=(0)
//! ```
//!
//! A network exported by `rung export` has such names as its vocabulary. It always looks up all of its tables, so in a question of fewer
//! hops the remaining tables map every number to itself.

use rung_theory::task::funccomp::{FuncComp, FuncCompInstance, Order, Query};
use rung_theory::task::{AnyTask, Prompt, Rng, Task as _, TokenNames, random_below, shuffle};

use super::{GridCell, Question};
use crate::AskError;

/// The numbers from 0 to `count - 1` as text: the answers of prompts in token names.
pub fn numerals(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// A question of one cell of a [`Grid`](crate::grid::Grid).
pub(super) fn grid_question(cell: &GridCell, id: String, rng: &mut Rng) -> Result<Question, AskError> {
    let (rows, table_count) = (cell.entries_per_table as u32, cell.table_count);
    // Every table has one row group, so the token `w`, which selects a row group of each table, selects nothing.
    let row_groups_per_table = vec![1; table_count - 1];
    let (query_count, mixed_hops) = (1, false);
    let task = FuncComp::new(rows, &row_groups_per_table, Order::LastTableFirst, query_count, mixed_hops)
        .map_err(|error| AskError::Unsupported(error.to_string()))?;
    let identity: Vec<u32> = (0..rows).collect();
    let mut tables: Vec<Vec<u32>> = vec![identity.clone(); table_count];
    for table in &mut tables {
        shuffle(rng, table);
    }
    let start = random_below(rng, rows);
    tables[cell.hops..].fill(identity);
    let query = Query { start, row_groups: vec![0; table_count - 1], hops: table_count };
    let mut prompt = Prompt::new();
    task.encode(&FuncCompInstance { tables, queries: vec![query] }, &mut prompt);
    question(&task, &prompt, id, cell.hops)
}

/// Draws an instance and changes one row of `table` so that the answer changes (the first row and value that do); none if there
/// is none.
pub(super) fn changed_question(
    task: &FuncComp,
    rng: &mut Rng,
    table: usize,
    id: String,
) -> Result<Option<Question>, AskError> {
    let mut instance = FuncCompInstance::default();
    task.sample(rng, &mut instance);
    let prompt_and_answer = |instance: &FuncCompInstance| {
        let mut prompt = Prompt::new();
        task.encode(instance, &mut prompt);
        let answer = prompt.questions().next().map(|(_, target, _)| target);
        (prompt, answer)
    };
    let (_, answer) = prompt_and_answer(&instance);
    let rows = instance.tables[table].len();
    for (row, value) in (0..rows).flat_map(|row| (0..rows as u32).map(move |value| (row, value))) {
        let original_value = std::mem::replace(&mut instance.tables[table][row], value);
        let (prompt, new_answer) = prompt_and_answer(&instance);
        if new_answer != answer {
            return question(task, &prompt, id, task.hops()).map(Some);
        }
        instance.tables[table][row] = original_value;
    }
    Ok(None)
}

/// The first question of a task's prompt.
pub(super) fn question(task: &dyn AnyTask, prompt: &Prompt, id: String, hops: usize) -> Result<Question, AskError> {
    let token_names = TokenNames::new(task);
    let Some((position, target, _)) = prompt.questions().next() else {
        return Err(AskError::Unsupported(format!("task `{}` has no question", task.name())));
    };
    let ids_per_token = token_names.ids_per_token();
    let words = prompt.tokens().chunks_exact(ids_per_token).take(position + 1);
    let words: Vec<String> = words.map(|token| token_names.name(token).replace(' ', ",")).collect();
    let mut symbols = numerals(task.classes() as usize);
    symbols.sort();
    Ok(Question { id, text: words.join(" "), symbols, answer: target.to_string(), hops })
}

#[cfg(test)]
mod tests {
    use rung_theory::task::seeded;

    use super::*;
    use crate::prompt::{PromptWriter, Variant};

    #[test]
    fn questions_of_fewer_hops_have_identity_tables() {
        for hops in 0..=3 {
            let cell = GridCell { hops, entries_per_table: 4, table_count: 3, variant: Variant::default() };
            let question = grid_question(&cell, String::new(), &mut seeded(5)).unwrap();
            let words: Vec<&str> = question.text.split(' ').collect();
            assert_eq!(words.len(), 3 * 4 + 2);
            // Look the answer up in the prompt's text.
            let mut symbol = words[12].strip_prefix("z0=").unwrap().to_owned();
            for table in 1..=3 {
                let argument = if table == 1 { format!("z1({symbol})=") } else { format!("z{table}(0,{symbol})=") };
                let next = words.iter().find_map(|word| word.strip_prefix(&argument)).unwrap();
                assert!(table <= hops || next == symbol, "{}", question.text);
                symbol = next.to_owned();
            }
            assert_eq!(symbol, question.answer);
        }
    }

    #[test]
    fn every_task_has_questions_in_token_names() {
        let writer = PromptWriter { named_tokens: true, ..PromptWriter::default() };
        for spec in ["funccomp{hops=3,m=3,n=[2,1]}", "parity{length=4}", "mqar"] {
            let task = crate::prompt::parse_task(spec).unwrap();
            let question = writer.task_question(&*task, &Variant::default(), &[], 1, 0).unwrap();
            assert!(question.symbols.contains(&question.answer), "{spec}");
        }
        let with_shots = PromptWriter { shots: 1, ..writer };
        assert!(with_shots.grid_question(&GridCell::default(), &[], 0, 0).is_err());
    }
}
