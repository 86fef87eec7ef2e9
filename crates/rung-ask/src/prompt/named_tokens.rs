//! Prompts in a construction's own tokens: names that say what a token means, and nothing else.
//!
//! ```text
//! z2(0,0)=2 z2(0,1)=0 z2(0,2)=1 z1(0)=1 z1(1)=2 z1(2)=0 z0=1 w=(0)
//! ```
//!
//! A network exported by `rung export` has such names as its vocabulary. It always walks through all of its tables, so a question of fewer
//! hops has tables in front that map every number to itself.

use rung_theory::task::funccomp::{FuncComp, FuncCompInstance, Order, Query};
use rung_theory::task::{AnyTask, Prompt, Rng, Task as _, TokenNames, below, shuffle};

use super::{Cell, Question};
use crate::AskError;

/// Names of the first `count` answers: numbers.
pub fn numerals(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

/// A question of the ladder.
pub(super) fn ladder_question(cell: &Cell, id: String, rng: &mut Rng) -> Result<Question, AskError> {
    let (rows, tables) = (cell.entries as u32, cell.tables);
    let task = FuncComp::new(rows, &vec![1; tables - 1], Order::Hard, 1, false)
        .map_err(|error| AskError::Unsupported(error.to_string()))?;
    let identity: Vec<u32> = (0..rows).collect();
    let mut drawn: Vec<Vec<u32>> = vec![identity.clone(); tables];
    for table in &mut drawn {
        shuffle(rng, table);
    }
    let start = below(rng, rows);
    drawn[cell.hops..].fill(identity);
    let query = Query { start, parts: vec![0; tables - 1], hops: tables };
    let mut prompt = Prompt::new();
    task.encode(&FuncCompInstance { tables: drawn, queries: vec![query] }, &mut prompt);
    question(&task, &prompt, id, cell.hops)
}

/// The first question of a task's prompt.
pub(super) fn question(task: &dyn AnyTask, prompt: &Prompt, id: String, hops: usize) -> Result<Question, AskError> {
    let token_names = TokenNames::new(task);
    let Some((position, target, _)) = prompt.questions().next() else {
        return Err(AskError::Unsupported(format!("task `{}` asks nothing", task.name())));
    };
    let words = prompt.tokens().chunks_exact(token_names.width()).take(position + 1);
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
    fn questions_of_fewer_hops_have_tables_that_change_nothing() {
        for hops in 0..=3 {
            let cell = Cell { hops, entries: 4, tables: 3, variant: Variant::default() };
            let asked = ladder_question(&cell, String::new(), &mut seeded(5)).unwrap();
            let words: Vec<&str> = asked.text.split(' ').collect();
            assert_eq!(words.len(), 3 * 4 + 2);
            // Follow the words by hand.
            let mut at = words[12].strip_prefix("z0=").unwrap().to_owned();
            for table in 1..=3 {
                let argument = if table == 1 { format!("z1({at})=") } else { format!("z{table}(0,{at})=") };
                let next = words.iter().find_map(|word| word.strip_prefix(&argument)).unwrap();
                assert!(table <= hops || next == at, "{}", asked.text);
                at = next.to_owned();
            }
            assert_eq!(at, asked.answer);
        }
    }

    #[test]
    fn every_task_can_be_put_in_its_own_tokens() {
        let writer = PromptWriter { named_tokens: true, ..PromptWriter::default() };
        for spec in ["funccomp{hops=3,m=3,n=[2,1]}", "parity{length=4}", "mqar"] {
            let task = crate::prompt::parse_task(spec).unwrap();
            let asked = writer.task_question(&*task, &Variant::default(), &[], 1, 0).unwrap();
            assert!(asked.symbols.contains(&asked.answer), "{spec}");
        }
        let with_shots = PromptWriter { shots: 1, ..writer };
        assert!(with_shots.ladder_question(&Cell::default(), &[], 0, 0).is_err());
    }
}
