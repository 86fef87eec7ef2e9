//! Look-up tables and a walk through them: `funccomp` and `chain` as text.
//!
//! Table l+1 maps the pair (branch, result of table l) to a symbol. Where every table has one branch, only the result counts and
//! branches are not written. Tables are permutations, so that each symbol is the value of exactly one row.

use rung_theory::task::{Rng, below, shuffle};

use super::{PromptBody, Style, TableOrder};

/// Tables, a start, and the branch taken at every table after the first.
pub(super) struct Composition {
    /// `tables[l][branch * previous + argument]`.
    tables: Vec<Vec<u32>>,
    /// Values of each level before it: how many arguments a row of one branch can have.
    arguments: Vec<u32>,
    start: u32,
    branches: Vec<u32>,
}

impl Composition {
    /// Draws tables of `m` rows at the bottom, times each of `branches` further up.
    pub(super) fn draw(rng: &mut Rng, m: u32, branches: &[u32]) -> Self {
        let (mut tables, mut arguments, mut size) = (Vec::new(), Vec::new(), m);
        for branch in std::iter::once(&1).chain(branches) {
            arguments.push(size);
            size *= branch;
            let mut table: Vec<u32> = (0..size).collect();
            shuffle(rng, &mut table);
            tables.push(table);
        }
        let start = below(rng, m);
        let branches = branches.iter().map(|branch| below(rng, *branch)).collect();
        Self { tables, arguments, start, branches }
    }

    fn answer(&self, hops: usize) -> u32 {
        (0..hops).fold(self.start, |at, table| self.tables[table][self.row(table, at)])
    }

    /// The row of a table in which the walk reads.
    fn row(&self, table: usize, at: u32) -> usize {
        let branch = if table == 0 { 0 } else { self.branches[table - 1] };
        (branch * self.arguments[table] + at) as usize
    }

    /// Whether rows of a table differ by a branch.
    fn is_branching(&self, table: usize) -> bool {
        self.tables[table].len() > self.arguments[table] as usize
    }

    pub(super) fn body(&self, style: Style, order: TableOrder, hops: usize, names: &[String]) -> PromptBody {
        let mut tables: Vec<usize> = (0..self.tables.len()).collect();
        if order == TableOrder::Hard {
            tables.reverse();
        }
        let facts = tables.into_iter().flat_map(|table| self.facts(style, table, names)).collect();
        let (intro, question, cue) = match style {
            Style::Code => (String::new(), self.expression(hops, names), "# prints:"),
            Style::Table | Style::Sentences => {
                ("Each table gives one symbol for every symbol.".to_owned(), self.instruction(hops, names), "Answer:")
            }
        };
        PromptBody { intro, facts, question, cue, answer: self.answer(hops) as usize }
    }

    fn facts(&self, style: Style, table: usize, names: &[String]) -> Vec<String> {
        let number = table + 1;
        let rows = self.tables[table].iter().enumerate().map(|(row, value)| {
            let (branch, argument) = (row as u32 / self.arguments[table], row as u32 % self.arguments[table]);
            (branch + 1, &names[argument as usize], &names[*value as usize])
        });
        let branching = self.is_branching(table);
        match style {
            Style::Table => {
                let row = |(branch, argument, value): (u32, &String, &String)| {
                    if branching { format!("{branch} {argument}: {value}") } else { format!("{argument}: {value}") }
                };
                std::iter::once(format!("Table {number}")).chain(rows.map(row)).collect()
            }
            Style::Sentences => {
                let sentence = |(branch, argument, value): (u32, &String, &String)| {
                    let part = if branching { format!("part {branch} of ") } else { String::new() };
                    format!("In {part}table {number}, {argument} leads to {value}.")
                };
                rows.map(sentence).collect()
            }
            Style::Code => {
                let item = |(branch, argument, value): (u32, &String, &String)| {
                    if branching {
                        format!("({branch}, \"{argument}\"): \"{value}\"")
                    } else {
                        format!("\"{argument}\": \"{value}\"")
                    }
                };
                vec![format!("t{number} = {{{}}}", rows.map(item).collect::<Vec<_>>().join(", "))]
            }
        }
    }

    fn instruction(&self, hops: usize, names: &[String]) -> String {
        let start = &names[self.start as usize];
        if hops == 0 {
            return format!("Start with {start}. Look nothing up. Which symbol do you have?");
        }
        let step = |table: usize| {
            let what = if table == 0 { "it" } else { "the result" };
            let part = if self.is_branching(table) {
                format!("part {} of ", self.branches[table - 1] + 1)
            } else {
                String::new()
            };
            format!("look {what} up in {part}table {}", table + 1)
        };
        let steps: Vec<String> = (0..hops).map(step).collect();
        format!("Start with {start}, {}. Which symbol do you have?", steps.join(", then "))
    }

    fn expression(&self, hops: usize, names: &[String]) -> String {
        let mut expression = "x".to_owned();
        for table in 0..hops {
            expression = if self.is_branching(table) {
                format!("t{}[{}, {expression}]", table + 1, self.branches[table - 1] + 1)
            } else {
                format!("t{}[{expression}]", table + 1)
            };
        }
        format!("x = \"{}\"\nprint({expression})", names[self.start as usize])
    }
}
