//! The chapter "What is not known": questions that the other chapters leave open.

use rung_figure::report::{Chapter, Column, Prose, Table, TableCell};
use rung_theory::bound::search::MAX_SEARCH_HOPS;
use rung_theory::stack::{Defaults, Plan, mixer};

use crate::experiment::Conclusion;

/// Writes the chapter.
pub fn render(conclusions: &[(&str, &Conclusion)]) -> Chapter {
    let mut chapter = Chapter::new("unknown", "What is not known");
    let mut add_question = |title: &str, text: String| {
        chapter.paragraph(Prose::new().strong(format!("{title} ")).text(text));
    };
    add_question(
        "Between constructions and certificates.",
        "For every stack there are sizes that no construction solves and no certificate excludes. The maps show them as unknown; the \
         gap section has the distance in tokens. Whether sharper proofs or better weights close it is open."
            .to_owned(),
    );
    add_question(
        "More hops.",
        format!(
            "Certificates are searched up to {MAX_SEARCH_HOPS} hops. Whether a model of more rungs could do one hop more at a current context length is unknown."
        ),
    );
    let contradictions: usize = conclusions.iter().map(|(_, conclusion)| conclusion.contradictions.len()).sum();
    add_question(
        "Training.",
        format!(
            "No theorem here says which weights gradient descent finds. {} in this report; each is listed in its section.",
            match contradictions {
                0 => "No result is against a prediction".to_owned(),
                1 => "1 result is against a prediction".to_owned(),
                _ => format!("{contradictions} results are against a prediction"),
            }
        ),
    );
    add_question(
        "Real models.",
        "Rungs are what a layout allows for large tables. What a trained language model does within one forward pass is a measurement \
         (rung ask), of that model and that prompt."
            .to_owned(),
    );
    let columns = [Column::text("stack"), Column::number("rungs (proved)"), Column::number("hops (constructed)")];
    let mut table = Table::new("Layers for which no weights are known that reach the proved limit", columns);
    for name in mixer::all_names() {
        let stack = format!("{name} full full");
        let Ok(plan) = Plan::parse(&stack, &Defaults::default()) else { continue };
        let capacity = plan.capacity();
        if capacity.constructed_hops < capacity.rungs {
            table.row([
                TableCell::code(stack),
                TableCell::from(capacity.rungs.to_string()),
                TableCell::from(capacity.constructed_hops.to_string()),
            ]);
        }
    }
    chapter.table(table);
    chapter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_without_a_matching_construction_are_listed() {
        let page = rung_figure::report::Report::new("t").chapter(render(&[])).html().unwrap();
        assert!(page.contains("mla full full") && !page.contains("gdn full full"), "{page}");
        assert!(page.contains("No result is against a prediction"));
    }
}
