//! Accuracies from answers, and the largest number of hops with an accuracy above a threshold.

use std::collections::BTreeMap;

use rung_theory::statistics::wilson_interval;

use crate::score::{Answer, AnswerSource};

/// Accuracy on one cell of the grid: one prompt variant, table size and number of hops.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct CellAccuracy {
    /// Label of the prompt variant.
    pub variant: String,
    /// Number of entries (rows) of each table.
    #[serde(rename = "entries")]
    pub entries_per_table: usize,
    /// Number of hops that the questions ask for.
    pub hops: usize,
    /// Number of answers without reasoning.
    #[serde(rename = "answers")]
    pub answer_count: usize,
    /// Number of correct answers among them.
    #[serde(rename = "right")]
    pub right_count: usize,
    /// `right_count / answer_count`.
    pub accuracy: f64,
    /// 95% confidence interval (Wilson).
    pub interval: (f64, f64),
    /// Accuracy of guessing.
    pub chance: f64,
    /// Mean probability mass on answer symbols, where the server gives probabilities.
    #[serde(rename = "mass")]
    pub symbol_mass: Option<f64>,
    /// Number of replies that contain reasoning although they were asked not to; not part of `answer_count`.
    #[serde(rename = "reasoned")]
    pub reasoned_count: usize,
    /// Number of replies without an answer symbol; they count as wrong.
    #[serde(rename = "without_symbol")]
    pub without_symbol_count: usize,
    /// What the answers were read from.
    #[serde(rename = "read_by")]
    pub source: AnswerSource,
}

/// The accuracy of every cell, sorted by variant, table size and hops.
pub fn cell_accuracies(answers: &[Answer]) -> Vec<CellAccuracy> {
    let mut cells: BTreeMap<(&str, usize, usize), Vec<&Answer>> = BTreeMap::new();
    for answer in answers {
        cells.entry((&answer.variant, answer.entries_per_table, answer.hops)).or_default().push(answer);
    }
    cells
        .into_iter()
        .map(|((variant, entries_per_table, hops), answers)| cell_accuracy(variant, entries_per_table, hops, &answers))
        .collect()
}

fn cell_accuracy(variant: &str, entries_per_table: usize, hops: usize, answers: &[&Answer]) -> CellAccuracy {
    let (with_reasoning, without_reasoning): (Vec<&Answer>, Vec<&Answer>) =
        answers.iter().partition(|answer| answer.has_reasoning);
    let right_count = without_reasoning.iter().filter(|answer| answer.is_right()).count();
    let masses: Vec<f64> = without_reasoning.iter().filter_map(|answer| answer.symbol_mass).collect();
    CellAccuracy {
        variant: variant.to_owned(),
        entries_per_table,
        hops,
        answer_count: without_reasoning.len(),
        right_count,
        accuracy: if without_reasoning.is_empty() { 0.0 } else { right_count as f64 / without_reasoning.len() as f64 },
        interval: wilson_interval(right_count as u64, without_reasoning.len() as u64),
        chance: 1.0 / entries_per_table.max(1) as f64,
        symbol_mass: (!masses.is_empty()).then(|| masses.iter().sum::<f64>() / masses.len() as f64),
        reasoned_count: with_reasoning.len(),
        without_symbol_count: without_reasoning.iter().filter(|answer| answer.reply_symbol.is_none()).count(),
        source: answers.first().map_or(AnswerSource::Text, |answer| answer.source),
    }
}

/// The largest number of hops up to which every confidence interval lies above `threshold`; none if the interval of the smallest number of hops does not.
pub fn measured_hops(
    accuracies: &[CellAccuracy],
    variant: &str,
    entries_per_table: usize,
    threshold: f64,
) -> Option<usize> {
    let mut cells: Vec<&CellAccuracy> = accuracies
        .iter()
        .filter(|cell| cell.variant == variant && cell.entries_per_table == entries_per_table)
        .collect();
    cells.sort_by_key(|cell| cell.hops);
    cells.iter().take_while(|cell| cell.interval.0 > threshold).last().map(|cell| cell.hops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(hops: usize, right: bool, has_reasoning: bool) -> Answer {
        let reply_symbol = Some(if right { "A" } else { "B" }.to_owned());
        let (variant, expected) = ("one pass".to_owned(), "A".to_owned());
        let (id, entries_per_table, source) = (String::new(), 4, AnswerSource::Probabilities);
        Answer {
            id,
            hops,
            entries_per_table,
            variant,
            expected,
            reply_symbol,
            source,
            symbol_mass: Some(0.5),
            has_reasoning,
        }
    }

    #[test]
    fn measured_hops_stop_at_the_first_cell_below_the_threshold() {
        let mut answers = Vec::new();
        for (hops, right) in [(0, 40), (1, 40), (2, 22), (3, 40)] {
            answers.extend((0..40).map(|index| answer(hops, index < right, false)));
        }
        let accuracies = cell_accuracies(&answers);
        assert_eq!(
            measured_hops(&accuracies, "one pass", 4, 0.5),
            Some(1),
            "two hops: 55%, whose interval extends below 50%"
        );
        assert_eq!(measured_hops(&accuracies, "one pass", 4, 0.99), None);
        assert_eq!(measured_hops(&accuracies, "one pass", 8, 0.5), None);
    }

    #[test]
    fn replies_that_reasoned_are_counted_separately() {
        let accuracies = cell_accuracies(&[answer(1, true, false), answer(1, true, true), answer(1, false, false)]);
        assert_eq!((accuracies[0].answer_count, accuracies[0].right_count, accuracies[0].reasoned_count), (2, 1, 1));
    }

    #[test]
    fn replies_without_a_symbol_are_wrong_and_counted() {
        let without_symbol = Answer { reply_symbol: None, ..answer(1, true, false) };
        let accuracies = cell_accuracies(&[answer(1, true, false), without_symbol]);
        assert_eq!(
            (accuracies[0].answer_count, accuracies[0].right_count, accuracies[0].without_symbol_count),
            (2, 1, 1)
        );
    }
}
