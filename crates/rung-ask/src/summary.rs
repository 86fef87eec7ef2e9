//! Accuracies from answers, and the number of hops that they demonstrate.

use std::collections::BTreeMap;

use rung_theory::statistics::wilson_interval;

use crate::score::{Answer, AnswerSource};

/// Accuracy on one cell of the grid: one prompt variant, table size and number of hops.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct CellAccuracy {
    /// Label of the prompt variant.
    pub variant: String,
    /// Number of rows of each table.
    pub entries: usize,
    /// Number of hops that the questions ask for.
    pub hops: usize,
    /// Number of answers without reasoning.
    pub answers: usize,
    /// Number of right answers among them.
    pub right: usize,
    /// `right / answers`.
    pub accuracy: f64,
    /// 95% confidence interval (Wilson).
    pub interval: (f64, f64),
    /// Accuracy of guessing.
    pub chance: f64,
    /// Mean probability mass on answer symbols, where the server gives probabilities.
    pub mass: Option<f64>,
    /// Number of replies that reasoned although they were asked not to; not among `answers`.
    pub reasoned: usize,
    /// Number of replies without an answer symbol; they count as wrong.
    pub without_symbol: usize,
    /// What the answers were read from.
    #[serde(rename = "read_by")]
    pub source: AnswerSource,
}

/// The accuracy of every cell, sorted by variant, table size and hops.
pub fn cell_accuracies(answers: &[Answer]) -> Vec<CellAccuracy> {
    let mut cells: BTreeMap<(&str, usize, usize), Vec<&Answer>> = BTreeMap::new();
    for answer in answers {
        cells.entry((&answer.variant, answer.entries, answer.hops)).or_default().push(answer);
    }
    cells
        .into_iter()
        .map(|((variant, entries, hops), answers)| cell_accuracy(variant, entries, hops, &answers))
        .collect()
}

fn cell_accuracy(variant: &str, entries: usize, hops: usize, answers: &[&Answer]) -> CellAccuracy {
    let (reasoned, without_reasoning): (Vec<&Answer>, Vec<&Answer>) =
        answers.iter().partition(|answer| answer.reasoned);
    let right = without_reasoning.iter().filter(|answer| answer.is_right()).count();
    let masses: Vec<f64> = without_reasoning.iter().filter_map(|answer| answer.mass).collect();
    CellAccuracy {
        variant: variant.to_owned(),
        entries,
        hops,
        answers: without_reasoning.len(),
        right,
        accuracy: if without_reasoning.is_empty() { 0.0 } else { right as f64 / without_reasoning.len() as f64 },
        interval: wilson_interval(right as u64, without_reasoning.len() as u64),
        chance: 1.0 / entries.max(1) as f64,
        mass: (!masses.is_empty()).then(|| masses.iter().sum::<f64>() / masses.len() as f64),
        reasoned: reasoned.len(),
        without_symbol: without_reasoning.iter().filter(|answer| answer.reply_symbol.is_none()).count(),
        source: answers.first().map_or(AnswerSource::Text, |answer| answer.source),
    }
}

/// The largest number of hops up to which every confidence interval lies above `threshold`; none if the first does not.
pub fn measured_hops(accuracies: &[CellAccuracy], variant: &str, entries: usize, threshold: f64) -> Option<usize> {
    let mut cells: Vec<&CellAccuracy> =
        accuracies.iter().filter(|cell| cell.variant == variant && cell.entries == entries).collect();
    cells.sort_by_key(|cell| cell.hops);
    cells.iter().take_while(|cell| cell.interval.0 > threshold).last().map(|cell| cell.hops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(hops: usize, right: bool, reasoned: bool) -> Answer {
        let reply_symbol = Some(if right { "A" } else { "B" }.to_owned());
        let (variant, expected) = ("one pass".to_owned(), "A".to_owned());
        let (id, entries, source) = (String::new(), 4, AnswerSource::Probabilities);
        Answer { id, hops, entries, variant, expected, reply_symbol, source, mass: Some(0.5), reasoned }
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
        assert_eq!((accuracies[0].answers, accuracies[0].right, accuracies[0].reasoned), (2, 1, 1));
    }

    #[test]
    fn replies_without_a_symbol_are_wrong_and_counted() {
        let without_symbol = Answer { reply_symbol: None, ..answer(1, true, false) };
        let accuracies = cell_accuracies(&[answer(1, true, false), without_symbol]);
        assert_eq!((accuracies[0].answers, accuracies[0].right, accuracies[0].without_symbol), (2, 1, 1));
    }
}
