//! A witness for people: where two prompts differ, and where the model stops seeing it.
//!
//! ```text
//!   token   #0       #1       ..  #8    #9
//!   first   z1(0)=0  z1(1)=3      z0=1  w
//!   second           z1(1)=5
//!   as embedded        x
//!   layer 0            x                        x: the streams differ; a dot: they are the same, to the bit
//! ```

use std::fmt::Write as _;

use super::FalsifyError;
use super::target::{Runner, SpanOutputs, TargetModel};
use super::witness::Witness;
use rung_figure::report::{Chapter, Column, Prose, Report, Table, TableCell};
use rung_theory::task::TokenNames;

/// Tokens shown at most.
const MOST_SHOWN: usize = 48;

/// A token of the page.
struct PageToken {
    position: usize,
    /// What stands there, in each input.
    says: Vec<String>,
    /// For each layer, whether the streams differ.
    differs: Vec<bool>,
}

impl PageToken {
    /// Whether the inputs or their streams differ here.
    fn is_different(&self) -> bool {
        self.differs.contains(&true) || self.says.windows(2).any(|pair| pair[0] != pair[1])
    }
}

/// A witness with what the model makes of it.
pub struct WitnessPage<'a> {
    witness: &'a Witness,
    shown: Vec<PageToken>,
    /// Tokens that are not shown, and how many of them differ.
    left_out: [usize; 2],
}

impl<'a> WitnessPage<'a> {
    /// Runs the model once more and looks at every layer.
    ///
    /// # Errors
    /// The model refuses the tokens.
    pub fn new(witness: &'a Witness, target: &TargetModel) -> Result<Self, FalsifyError> {
        let (runner, fields) = (Runner::new(target), target.fields());
        let views: Vec<SpanOutputs> =
            witness.inputs.iter().map(|input| runner.views(input, 1, None)).collect::<Result<_, _>>()?;
        let (length, names) = (views[0].time, TokenNames::new(target.task()));
        let differs = |position: usize| -> Vec<bool> {
            let [first, second] = &views[..] else { return Vec::new() };
            let layers = 0..first.layers.len();
            layers.map(|layer| first.stream(layer, 0, position) != second.stream(layer, 0, position)).collect()
        };
        let token = |position: usize| {
            let says = |input: &Vec<u32>| names.name(&input[position * fields..][..fields]);
            PageToken { position, says: witness.inputs.iter().map(says).collect(), differs: differs(position) }
        };
        let all: Vec<PageToken> = (0..length).map(token).collect();
        let differing = |tokens: &[PageToken]| tokens.iter().filter(|shown| shown.is_different()).count();
        let all_differing = differing(&all);
        let worth = |shown: &PageToken| {
            let border = witness.border.is_some_and(|border| shown.position.abs_diff(border) <= 1);
            length <= MOST_SHOWN || shown.position == witness.question || border || shown.is_different()
        };
        let mut shown: Vec<PageToken> = all.into_iter().filter(worth).collect();
        if shown.len() > MOST_SHOWN {
            let end = shown.split_off(shown.len() - MOST_SHOWN / 4);
            shown.truncate(MOST_SHOWN - end.len());
            shown.extend(end);
        }
        let left_out = [length - shown.len(), all_differing - differing(&shown)];
        Ok(Self { witness, shown, left_out })
    }

    /// What is wrong, in a sentence or two.
    pub fn verdict(&self) -> String {
        let Witness { task, answers, outputs, question, model, .. } = self.witness;
        let bits = model.kept.map_or_else(String::new, |kept| {
            let messages =
                kept.message.map_or_else(String::new, |range| format!(", messages from -{range} to {range}"));
            format!(" in {} bits (states from -{1} to {1}{messages})", kept.bits, kept.state)
        });
        let name = format!("{}{bits}", model.name);
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

    /// Where it stops seeing the difference.
    pub fn stops(&self) -> Option<String> {
        let border = self.witness.border?;
        let (question, blind) = (self.witness.question, &self.witness.blind);
        let state = self.witness.state.as_ref().map(|state| {
            format!(" Before it, both have left the same state behind, {} numbers equal to the bit.", state.len())
        });
        let seen = (border..=question).filter(|position| !blind.contains(position)).count();
        let between = if seen == 0 {
            " No token's stream differs from there on, after any layer.".to_owned()
        } else {
            format!(
                " {seen} of the tokens after that still see a difference; the question, token {question}, does not."
            )
        };
        let sets = self.witness.decomposition.as_ref().map(|sets| {
            format!(
                " The sets of the proof, built: {} starts, {} first tables, {} queries; with all choices from them, {} of {} second \
                 tables look alike to every later token (Delta = {:.2} bits).",
                sets.starts.len(),
                sets.first.len(),
                sets.queries.len(),
                sets.alike.len(),
                sets.of,
                sets.delta()
            )
        });
        let differ = self.witness.inputs[0].iter().zip(&self.witness.inputs[1]).filter(|(a, b)| a != b).count();
        let ids = if differ == 1 { "id" } else { "ids" };
        let border =
            format!("The prompts differ in {differ} {ids} before token {border}, and are the same from there on.");
        Some([border, state.unwrap_or_default(), between, sets.unwrap_or_default()].concat())
    }

    /// What is not shown.
    fn left_out(&self) -> Option<String> {
        match (self.left_out, self.witness.inputs.len()) {
            ([0, _], _) => None,
            ([tokens, _], 1) => Some(format!("{tokens} more tokens")),
            ([tokens, 0], _) => Some(format!("{tokens} more tokens are the same in both")),
            ([tokens, differing], _) => Some(format!("{tokens} more tokens, {differing} of which differ")),
        }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "witness ({}; measured)", self.witness.kind())?;
        writeln!(text, "  {}", self.verdict())?;
        if let Some(stops) = self.stops() {
            writeln!(text, "  {stops}")?;
        }
        let pair = self.witness.inputs.len() == 2;
        let wide = |input: usize| self.shown.iter().map(|shown| shown.says[input].len()).max().unwrap_or(0).max(12);
        write!(text, "\n  {:>6}  {:w$}", "token", if pair { "first" } else { "input" }, w = wide(0))?;
        if pair {
            write!(
                text,
                "  {:w$}  streams differ (x) or not (.), as embedded and after each layer",
                "second",
                w = wide(1)
            )?;
        }
        writeln!(text)?;
        let mut before = None;
        for shown in &self.shown {
            if before.is_some_and(|before| before + 1 != shown.position) {
                writeln!(text, "  {:>6}", "..")?;
            }
            before = Some(shown.position);
            write!(text, "  {:>6}  {:w$}", shown.position, shown.says[0], w = wide(0))?;
            if pair {
                let second = if shown.says[0] == shown.says[1] { "" } else { &shown.says[1] };
                let marks: String = shown.differs.iter().map(|differs| if *differs { 'x' } else { '.' }).collect();
                write!(text, "  {second:w$}  {marks}", w = wide(1))?;
            }
            if Some(shown.position) == self.witness.border {
                write!(text, "  <- the same from here on")?;
            }
            if shown.position == self.witness.question {
                write!(text, "  <- asked")?;
            }
            writeln!(text)?;
        }
        if let Some(left_out) = self.left_out() {
            writeln!(text, "  {left_out}")?;
        }
        Ok(())
    }

    /// A self-contained page. `command` is what checks the witness.
    ///
    /// # Errors
    /// Never for a witness that holds.
    pub fn html(&self, command: &str) -> Result<String, rung_figure::report::ReportError> {
        let mut chapter = Chapter::new("witness", "What it cannot tell apart");
        if let Some(stops) = self.stops() {
            chapter.paragraph(stops);
        }
        let layers = self.shown.first().map_or(0, |shown| shown.differs.len());
        let inputs = if self.witness.inputs.len() == 2 { &["first", "second"][..] } else { &["input"][..] };
        let mut columns = vec![Column::number("token")];
        columns.extend(inputs.iter().map(|title| Column::text(*title)));
        let name = |layer: usize| if layer == 0 { "as embedded".to_owned() } else { format!("layer {}", layer - 1) };
        columns.extend((0..layers).map(|layer| Column::text(name(layer))));
        let mut table = Table::new("Every token, and whether its streams differ after each layer", columns);
        for shown in &self.shown {
            let mut row = vec![TableCell::from(shown.position.to_string())];
            row.extend(shown.says.iter().map(TableCell::code));
            row.extend(shown.differs.iter().map(|differs| TableCell::from(if *differs { "differs" } else { "same" })));
            table.row(row);
        }
        chapter.table(table);
        if let Some(left_out) = self.left_out() {
            chapter.paragraph(format!("{left_out}."));
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
