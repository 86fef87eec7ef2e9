//! The chapter "In two minutes": the conclusions for a model designer.
//!
//! It states the rule, whether training confirms it, and what the rule does not say. Every number comes from the chapters of the report.

use super::ChapterOutput;
use crate::experiment::Conclusion;
use rung_figure::Evidence;
use rung_figure::report::{Chapter, Column, Prose, Table, TableCell};
use rung_theory::stack::{Defaults, Plan};

/// Layouts of the comparison: stack and description.
const LAYOUTS: [(&str, &str); 5] = [
    ("full*8", "full attention only"),
    ("gdn*8", "bounded state only"),
    ("(gdn*3 full)*2", "one full layer in four"),
    ("full gdn*6 full", "full at both ends"),
    ("full full gdn*6", "state only after the full layers"),
];

/// Writes the chapter.
pub fn render(chapters: &[ChapterOutput], conclusions: &[(&str, &Conclusion)]) -> Chapter {
    let mut chapter = Chapter::new("in-two-minutes", "In two minutes");
    chapter.paragraph(
        "A full-attention layer can do one look-up anywhere in the context. A layer with a state of fixed size cannot do one in a table \
         larger than its state, but it can pass a value on to the next token. So in one forward pass over large tables a stack does as \
         many dependent look-ups as it has full layers, minus one that is spent on finding the start value. A bounded-state layer \
         before the first full layer, or between the first and the second, saves that one.",
    );
    for figure in conclusions.iter().flat_map(|(_, conclusion)| &conclusion.headline_figures) {
        chapter.figure(figure.clone());
    }
    let columns = [
        Column::text("eight layers"),
        Column::text("layout"),
        Column::number("full"),
        Column::number("look-ups in one pass"),
    ];
    let mut table = Table::new("Look-ups of different layouts with the same number of layers", columns);
    for (stack, description) in LAYOUTS {
        let Ok(plan) = Plan::parse(stack, &Defaults::default()) else { continue };
        let capacity = plan.capacity();
        table.row([
            TableCell::code(stack),
            TableCell::from(description),
            TableCell::from(capacity.full_layers.to_string()),
            TableCell::from(format!("{} {}", capacity.relation(), capacity.rungs)).with_evidence(Evidence::Proved),
        ]);
    }
    chapter.table(table);
    let conclusions_with_result: Vec<_> =
        conclusions.iter().filter(|(_, conclusion)| !conclusion.summary_line.is_empty()).collect();
    if !conclusions_with_result.is_empty() {
        let columns = [Column::text("experiment"), Column::number("against the prediction"), Column::text("result")];
        let caption = "Results of training, all measured; results against a prediction are described in their sections";
        let mut table = Table::new(caption, columns);
        for (name, conclusion) in conclusions_with_result {
            table.row([
                TableCell::from(*name),
                TableCell::from(conclusion.contradictions.len().to_string()).with_evidence(Evidence::Measured),
                TableCell::from(conclusion.summary_line.clone()),
            ]);
        }
        chapter.table(table);
    }
    chapter.paragraph(
        Prose::new().strong("For a design: ").text(
            "count the dependent look-ups that an answer needs before the model emits a token; use at least as many full layers; \
             put one layer with state before the second full layer; use the cheapest layers elsewhere. More layers with state \
             elsewhere add no look-up, though they add other abilities, such as tracking a state.",
        ),
    );
    chapter.paragraph(
        Prose::new().strong("What this does not say: ").text(
            "the limit is a worst case for tables larger than the state. At the sizes of today's models the proved bound starts far \
             beyond any context, chain of thought adds look-ups with every emitted token, and nothing here says that a given model cannot \
             do something.",
        ),
    );
    for output in chapters {
        chapter.paragraph(
            Prose::new()
                .link(output.chapter.title.clone(), format!("#{}", output.chapter.id))
                .text(format!(": {}", output.summary)),
        );
    }
    chapter
}
