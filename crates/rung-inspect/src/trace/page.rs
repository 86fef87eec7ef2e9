//! A trace as a page: the drawing, and everything it shows as tables.

use super::text::one;
use super::{Picture, RegisterValue, percent};
use rung_figure::report::{Chapter, Column, Figure, Report, ReportError, Table, TableCell};

impl Picture {
    /// A self-contained HTML page. `command` is what made it.
    ///
    /// # Errors
    /// Never for a picture that was taken.
    pub fn html(&self, command: &str) -> Result<String, ReportError> {
        let mut chapter = Chapter::new("trace", "Who reads whom");
        let caption = "From top to bottom: the tokens, then each layer. An arrow goes from the token that is read to the token \
                       that reads; a box shows what that token then knows.";
        chapter.figure(Figure::new(self, caption, command, "trace.csv"));
        chapter.paragraph(self.scope());
        chapter.paragraph(self.check());
        let mut tokens = Table::new("The tokens shown", ["token", "says", "registers as embedded"].map(Column::text));
        for shown in &self.shown {
            let place = TableCell::from(format!("#{}", shown.position));
            tokens.row([place, TableCell::code(&shown.says), TableCell::from(listed(&shown.registers))]);
        }
        chapter.table(tokens);
        let titles = ["layer", "token", "reads", "then holds"];
        let mut layers = Table::new("What happens, layer by layer", titles.map(Column::text));
        for (index, layer) in self.layers.iter().enumerate() {
            for learned in &layer.learned {
                let reads = layer.reads.iter().filter(|read| read.to == learned.position);
                let reads =
                    reads.map(|read| format!("{} from #{} {}", percent(read.share), read.from, self.says(read.from)));
                layers.row([
                    TableCell::from(format!("{index}, {}", layer.mixers)),
                    TableCell::from(format!("#{} {}", learned.position, self.says(learned.position))),
                    TableCell::from(reads.collect::<Vec<_>>().join("; ")),
                    TableCell::from(listed(&learned.registers)),
                ]);
            }
        }
        chapter.table(layers);
        let title = format!("{}: {}", self.name, self.task);
        Report::new(title).summary(self.verdict()).fact("command", command).chapter(chapter).html()
    }
}

fn listed(registers: &[RegisterValue]) -> String {
    registers.iter().map(one).collect::<Vec<_>>().join(", ")
}
