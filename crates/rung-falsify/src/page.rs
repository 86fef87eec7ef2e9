//! A witness as text and as an HTML page: where two prompts differ, and where the model's residual streams no longer do.
//!
//! ```text
//!   token   #0       #1       ..  #8    #9
//!   first   z1(0)=0  z1(1)=3      z0=1  w
//!   second           z1(1)=5
//!   as embedded        x
//!   layer 0            x                        x: the residual streams differ; a dot: they are equal to the bit
//! ```

use std::fmt::Write as _;

use super::FalsifyError;
use super::target::{BatchOutputs, Runner, TargetModel};
use super::witness::Witness;
use rung_figure::report::{Chapter, Column, Prose, Report, Table, TableCell};
use rung_theory::task::TokenNames;

/// The largest number of tokens on a page.
const MAX_TOKENS: usize = 48;

/// One position of the prompts.
struct PageToken {
    position: usize,
    /// The token as text, in each input.
    names: Vec<String>,
    /// For the embedding and each layer, whether the residual streams differ.
    differs: Vec<bool>,
}

impl PageToken {
    /// Whether the inputs or their residual streams differ here.
    fn is_different(&self) -> bool {
        self.differs.contains(&true) || self.names.windows(2).any(|pair| pair[0] != pair[1])
    }
}

/// A witness with the residual streams of the model.
pub struct WitnessPage<'a> {
    witness: &'a Witness,
    tokens: Vec<PageToken>,
    /// Number of tokens that are left out, and how many of them differ.
    omitted: [usize; 2],
}

impl<'a> WitnessPage<'a> {
    /// Runs the model again to compare the residual streams of every layer.
    ///
    /// # Errors
    /// The model cannot run on the tokens.
    pub fn new(witness: &'a Witness, target: &TargetModel) -> Result<Self, FalsifyError> {
        let (runner, ids_per_token) = (Runner::new(target), target.ids_per_token());
        let outputs: Vec<BatchOutputs> =
            witness.inputs.iter().map(|input| runner.outputs(input, 1, None)).collect::<Result<_, _>>()?;
        let (length, token_names) = (outputs[0].sequence_length, TokenNames::new(target.task()));
        let differs = |position: usize| -> Vec<bool> {
            let [first, second] = &outputs[..] else { return Vec::new() };
            let layers = 0..first.residuals.len();
            layers.map(|layer| first.residual(layer, 0, position) != second.residual(layer, 0, position)).collect()
        };
        let token = |position: usize| {
            let name = |input: &Vec<u32>| token_names.name(&input[position * ids_per_token..][..ids_per_token]);
            PageToken { position, names: witness.inputs.iter().map(name).collect(), differs: differs(position) }
        };
        let all_tokens: Vec<PageToken> = (0..length).map(token).collect();
        let count_different = |tokens: &[PageToken]| tokens.iter().filter(|token| token.is_different()).count();
        let different_count = count_different(&all_tokens);
        let is_shown = |token: &PageToken| {
            let at_border = witness.border.is_some_and(|border| token.position.abs_diff(border) <= 1);
            length <= MAX_TOKENS || token.position == witness.question || at_border || token.is_different()
        };
        let mut tokens: Vec<PageToken> = all_tokens.into_iter().filter(is_shown).collect();
        if tokens.len() > MAX_TOKENS {
            let end = tokens.split_off(tokens.len() - MAX_TOKENS / 4);
            tokens.truncate(MAX_TOKENS - end.len());
            tokens.extend(end);
        }
        let omitted = [length - tokens.len(), different_count - count_different(&tokens)];
        Ok(Self { witness, tokens, omitted })
    }

    /// The failure, in a sentence or two.
    pub fn verdict(&self) -> String {
        let Witness { task, answers, outputs, question, model, .. } = self.witness;
        let precision_text = model.precision.map_or_else(String::new, |precision| {
            let messages = precision
                .message_range
                .map_or_else(String::new, |range| format!(", messages from -{range} to {range}"));
            format!(" in {} bits (states from -{1} to {1}{messages})", precision.bits, precision.state_range)
        });
        let name = format!("{}{precision_text}", model.name);
        match (&answers[..], &outputs[..]) {
            ([answer], [output]) => {
                format!("{name} answers {output} at token {question} of a prompt of {task}, where {answer} is right.")
            }
            ([first, second], [output, ..]) => format!(
                "{name} cannot tell two prompts of {task} apart: at token {question} the right answers are {first} and {second}, \
                 and it answers {output} to both."
            ),
            _ => String::new(),
        }
    }

    /// From which token on the residual streams are equal, in a few sentences; `None` for a witness with one prompt.
    pub fn collision(&self) -> Option<String> {
        let border = self.witness.border?;
        let (question, equal_positions) = (self.witness.question, &self.witness.equal_positions);
        let state = self.witness.state.as_ref().map(|state| {
            format!(" Before it, both have left the same state behind, {} numbers equal to the bit.", state.len())
        });
        let different = (border..=question).filter(|position| !equal_positions.contains(position)).count();
        let between = if different == 0 {
            " No token's residual stream differs from there on, after any layer.".to_owned()
        } else {
            format!(
                " {different} of the tokens after that still see a difference; the question, token {question}, does not."
            )
        };
        let sets = self.witness.decomposition.as_ref().map(|sets| {
            format!(
                " The sets of the proof, built: {} starts, {} first tables, {} queries; with all choices from them, {} of {} second \
                 tables look alike to every later token (Delta = {:.2} bits).",
                sets.starts.len(),
                sets.first_tables.len(),
                sets.queries.len(),
                sets.indistinguishable.len(),
                sets.second_table_count,
                sets.delta()
            )
        });
        let different_ids = self.witness.inputs[0].iter().zip(&self.witness.inputs[1]).filter(|(a, b)| a != b).count();
        let ids = if different_ids == 1 { "id" } else { "ids" };
        let border = format!(
            "The prompts differ in {different_ids} {ids} before token {border}, and are the same from there on."
        );
        Some([border, state.unwrap_or_default(), between, sets.unwrap_or_default()].concat())
    }

    /// The number of tokens that are left out, in words.
    fn omission_note(&self) -> Option<String> {
        match (self.omitted, self.witness.inputs.len()) {
            ([0, _], _) => None,
            ([tokens, _], 1) => Some(format!("{tokens} more tokens")),
            ([tokens, 0], _) => Some(format!("{tokens} more tokens are the same in both")),
            ([tokens, different], _) => Some(format!("{tokens} more tokens, {different} of which differ")),
        }
    }

    /// The witness for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "witness ({}; measured)", self.witness.kind())?;
        writeln!(text, "  {}", self.verdict())?;
        if let Some(collision) = self.collision() {
            writeln!(text, "  {collision}")?;
        }
        let pair = self.witness.inputs.len() == 2;
        let width = |input: usize| self.tokens.iter().map(|token| token.names[input].len()).max().unwrap_or(0).max(12);
        write!(text, "\n  {:>6}  {:w$}", "token", if pair { "first" } else { "input" }, w = width(0))?;
        if pair {
            write!(
                text,
                "  {:w$}  residual streams differ (x) or not (.), as embedded and after each layer",
                "second",
                w = width(1)
            )?;
        }
        writeln!(text)?;
        let mut previous = None;
        for token in &self.tokens {
            if previous.is_some_and(|previous| previous + 1 != token.position) {
                writeln!(text, "  {:>6}", "..")?;
            }
            previous = Some(token.position);
            write!(text, "  {:>6}  {:w$}", token.position, token.names[0], w = width(0))?;
            if pair {
                let second = if token.names[0] == token.names[1] { "" } else { &token.names[1] };
                let marks: String = token.differs.iter().map(|differs| if *differs { 'x' } else { '.' }).collect();
                write!(text, "  {second:w$}  {marks}", w = width(1))?;
            }
            if Some(token.position) == self.witness.border {
                write!(text, "  <- the same from here on")?;
            }
            if token.position == self.witness.question {
                write!(text, "  <- asked")?;
            }
            writeln!(text)?;
        }
        if let Some(note) = self.omission_note() {
            writeln!(text, "  {note}")?;
        }
        Ok(())
    }

    /// A self-contained HTML page. `command` is the command line that checks the witness.
    ///
    /// # Errors
    /// Never for a valid witness.
    pub fn html(&self, command: &str) -> Result<String, rung_figure::report::ReportError> {
        let mut chapter = Chapter::new("witness", "What it cannot tell apart");
        if let Some(collision) = self.collision() {
            chapter.paragraph(collision);
        }
        let layers = self.tokens.first().map_or(0, |token| token.differs.len());
        let inputs = if self.witness.inputs.len() == 2 { &["first", "second"][..] } else { &["input"][..] };
        let mut columns = vec![Column::number("token")];
        columns.extend(inputs.iter().map(|title| Column::text(*title)));
        let name = |layer: usize| if layer == 0 { "as embedded".to_owned() } else { format!("layer {}", layer - 1) };
        columns.extend((0..layers).map(|layer| Column::text(name(layer))));
        let mut table = Table::new("Every token, and whether its residual streams differ after each layer", columns);
        for token in &self.tokens {
            let mut row = vec![TableCell::from(token.position.to_string())];
            row.extend(token.names.iter().map(TableCell::code));
            row.extend(token.differs.iter().map(|differs| TableCell::from(if *differs { "differs" } else { "same" })));
            table.row(row);
        }
        chapter.table(table);
        if let Some(note) = self.omission_note() {
            chapter.paragraph(format!("{note}."));
        }
        chapter.paragraph(Prose::new().text("Check it: ").code(command));
        Report::new(format!("A witness against {}", self.witness.model.name))
            .summary(self.verdict())
            .fact("kind", self.witness.kind())
            .fact("fingerprint of the model", self.witness.model.fingerprint.clone())
            .chapter(chapter)
            .html()
    }
}
