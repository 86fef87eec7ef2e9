//! A trace as an HTML page: the drawing, and the same content as tables.

use super::text::join_registers;
use super::{AnswerTrace, percent};
use rung_figure::report::{Chapter, Column, Figure, Report, ReportError, Table, TableCell};

impl AnswerTrace {
    /// A self-contained HTML page. `command` is the command line that made it, for the page's caption.
    ///
    /// # Errors
    /// Never for the result of [`AnswerTrace::record`].
    pub fn html(&self, command: &str) -> Result<String, ReportError> {
        let mut chapter = Chapter::new("trace", "Which token reads which");
        let caption = "From top to bottom: the tokens, then each layer. An arrow goes from the token that is read to the token \
                       that reads; a box shows the registers that changed.";
        chapter.figure(Figure::new(self, caption, command, "trace.csv"));
        chapter.paragraph(self.scope_sentence());
        chapter.paragraph(self.accuracy_sentence());
        let mut tokens = Table::new("The tokens shown", ["token", "says", "registers as embedded"].map(Column::text));
        for token in &self.shown_tokens {
            let position = TableCell::from(format!("#{}", token.position));
            tokens.row([position, TableCell::code(&token.text), TableCell::from(join_registers(&token.registers))]);
        }
        chapter.table(tokens);
        let titles = ["layer", "token", "reads", "then holds"];
        let mut layers = Table::new("Reads and registers, layer by layer", titles.map(Column::text));
        for (index, layer) in self.layers.iter().enumerate() {
            for change in &layer.register_changes {
                let reads = layer.edges.iter().filter(|edge| edge.to == change.position);
                let reads = reads
                    .map(|edge| format!("{} from #{} {}", percent(edge.share), edge.from, self.token_text(edge.from)));
                layers.row([
                    TableCell::from(format!("{index}, {}", layer.mixers)),
                    TableCell::from(format!("#{} {}", change.position, self.token_text(change.position))),
                    TableCell::from(reads.collect::<Vec<_>>().join("; ")),
                    TableCell::from(join_registers(&change.registers)),
                ]);
            }
        }
        chapter.table(layers);
        let title = format!("{}: {}", self.name, self.task);
        Report::new(title).summary(self.verdict()).fact("command", command).chapter(chapter).html()
    }
}
