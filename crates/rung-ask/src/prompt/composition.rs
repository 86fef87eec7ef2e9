//! Composed look-ups as text: the prompts of the tasks `funccomp` and `chain`.
//!
//! Table l+1 maps the pair (row group, result of table l) to a symbol. Where every table has one row group, only the result counts and
//! row groups are not written. Tables are permutations, so that each symbol is the value of exactly one row.

use rung_theory::task::{Rng, random_below, shuffle};

use super::{PromptBody, Style, TableOrder};

/// Tables, the start symbol, and the row group selected in every table after the first.
pub(super) struct Composition {
    /// `tables[l][row_group * argument_counts[l] + argument]` is the value of a row.
    tables: Vec<Vec<u32>>,
    /// For each table the number of possible arguments, which is the number of values of the table before it.
    argument_counts: Vec<u32>,
    start: u32,
    /// The selected row group of each table after the first.
    selected_row_groups: Vec<u32>,
}

impl Composition {
    /// Draws random tables. The first has `rows` rows; each further table has as many as the one before, times its number of row groups.
    pub(super) fn sample(rng: &mut Rng, rows: u32, row_groups_per_table: &[u32]) -> Self {
        let (mut tables, mut argument_counts, mut row_count) = (Vec::new(), Vec::new(), rows);
        for row_group_count in std::iter::once(&1).chain(row_groups_per_table) {
            argument_counts.push(row_count);
            row_count *= row_group_count;
            let mut table: Vec<u32> = (0..row_count).collect();
            shuffle(rng, &mut table);
            tables.push(table);
        }
        let start = random_below(rng, rows);
        let selected_row_groups =
            row_groups_per_table.iter().map(|row_group_count| random_below(rng, *row_group_count)).collect();
        Self { tables, argument_counts, start, selected_row_groups }
    }

    /// Swaps the values of two rows of one table: the row that its look-up reads, and the next. Since tables are permutations, this changes the answer of every
    /// question that looks the table up.
    pub(super) fn with_changed_lookup(mut self, table: usize) -> Self {
        let row = self.row(table, self.answer(table));
        let next_row = (row + 1) % self.tables[table].len();
        self.tables[table].swap(row, next_row);
        self
    }

    /// The symbol after `hops` look-ups.
    fn answer(&self, hops: usize) -> u32 {
        (0..hops).fold(self.start, |symbol, table| self.tables[table][self.row(table, symbol)])
    }

    /// The row of a table that holds the value of an argument, in the selected row group.
    fn row(&self, table: usize, argument: u32) -> usize {
        let row_group = if table == 0 { 0 } else { self.selected_row_groups[table - 1] };
        (row_group * self.argument_counts[table] + argument) as usize
    }

    /// Whether a table has more than one row group.
    fn has_row_groups(&self, table: usize) -> bool {
        self.tables[table].len() > self.argument_counts[table] as usize
    }

    /// The parts of the prompt; `symbols` are the texts of the values, by number.
    pub(super) fn body(&self, style: Style, order: TableOrder, hops: usize, symbols: &[String]) -> PromptBody {
        let mut tables: Vec<usize> = (0..self.tables.len()).collect();
        if order == TableOrder::LastTableFirst {
            tables.reverse();
        }
        let facts = tables.into_iter().flat_map(|table| self.facts(style, table, symbols)).collect();
        let (intro, question, cue) = match style {
            Style::Code => (String::new(), self.expression(hops, symbols), "# prints:"),
            Style::Table | Style::Sentences => {
                ("Each table gives one symbol for every symbol.".to_owned(), self.instruction(hops, symbols), "Answer:")
            }
        };
        PromptBody { intro, facts, question, cue, answer_index: self.answer(hops) as usize }
    }

    /// The rows of one table as lines of text.
    fn facts(&self, style: Style, table: usize, symbols: &[String]) -> Vec<String> {
        let number = table + 1;
        let rows = self.tables[table].iter().enumerate().map(|(row, value)| {
            let argument_count = self.argument_counts[table];
            let (row_group, argument) = (row as u32 / argument_count, row as u32 % argument_count);
            (row_group + 1, &symbols[argument as usize], &symbols[*value as usize])
        });
        let has_row_groups = self.has_row_groups(table);
        match style {
            Style::Table => {
                let row = |(row_group, argument, value): (u32, &String, &String)| {
                    if has_row_groups {
                        format!("{row_group} {argument}: {value}")
                    } else {
                        format!("{argument}: {value}")
                    }
                };
                std::iter::once(format!("Table {number}")).chain(rows.map(row)).collect()
            }
            Style::Sentences => {
                let sentence = |(row_group, argument, value): (u32, &String, &String)| {
                    let row_group_text = if has_row_groups { format!("part {row_group} of ") } else { String::new() };
                    format!("In {row_group_text}table {number}, {argument} leads to {value}.")
                };
                rows.map(sentence).collect()
            }
            Style::Code => {
                let item = |(row_group, argument, value): (u32, &String, &String)| {
                    if has_row_groups {
                        format!("({row_group}, \"{argument}\"): \"{value}\"")
                    } else {
                        format!("\"{argument}\": \"{value}\"")
                    }
                };
                vec![format!("t{number} = {{{}}}", rows.map(item).collect::<Vec<_>>().join(", "))]
            }
        }
    }

    /// The question in words.
    fn instruction(&self, hops: usize, symbols: &[String]) -> String {
        let start = &symbols[self.start as usize];
        if hops == 0 {
            return format!("Start with {start}. Look nothing up. Which symbol do you have?");
        }
        let step = |table: usize| {
            let object = if table == 0 { "it" } else { "the result" };
            let row_group_text = if self.has_row_groups(table) {
                format!("part {} of ", self.selected_row_groups[table - 1] + 1)
            } else {
                String::new()
            };
            format!("look {object} up in {row_group_text}table {}", table + 1)
        };
        let steps: Vec<String> = (0..hops).map(step).collect();
        format!("Start with {start}, {}. Which symbol do you have?", steps.join(", then "))
    }

    /// The question as Python.
    fn expression(&self, hops: usize, symbols: &[String]) -> String {
        let mut expression = "x".to_owned();
        for table in 0..hops {
            expression = if self.has_row_groups(table) {
                format!("t{}[{}, {expression}]", table + 1, self.selected_row_groups[table - 1] + 1)
            } else {
                format!("t{}[{expression}]", table + 1)
            };
        }
        format!("x = \"{}\"\nprint({expression})", symbols[self.start as usize])
    }
}
