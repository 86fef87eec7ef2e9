//! Answers as accuracies, and the number of hops that they show.

use std::collections::BTreeMap;

use rung_theory::statistics::wilson_interval;

use crate::score::{Answer, ReadBy};

/// Accuracy of one variant at one number of hops and rows.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct AccuracyRow {
    /// How the prompt was put.
    pub variant: String,
    /// Rows of a table.
    pub entries: usize,
    /// Hops asked for.
    pub hops: usize,
    /// Answers that count.
    pub answers: usize,
    /// Of those, right ones.
    pub right: usize,
    /// `right / answers`.
    pub accuracy: f64,
    /// 95% interval (Wilson).
    pub interval: (f64, f64),
    /// What guessing scores.
    pub chance: f64,
    /// Mean probability on answer symbols, where it is known.
    pub mass: Option<f64>,
    /// Replies that reasoned although they were asked not to; not among `answers`.
    pub reasoned: usize,
    /// Replies in which no answer symbol was found; they count as wrong.
    pub without_symbol: usize,
    /// How answers were read.
    pub read_by: ReadBy,
}

/// All rates, by variant, rows and hops.
pub fn rates(answers: &[Answer]) -> Vec<AccuracyRow> {
    let mut cells: BTreeMap<(&str, usize, usize), Vec<&Answer>> = BTreeMap::new();
    for answer in answers {
        cells.entry((&answer.variant, answer.entries, answer.hops)).or_default().push(answer);
    }
    cells.into_iter().map(|((variant, entries, hops), answers)| rate(variant, entries, hops, &answers)).collect()
}

fn rate(variant: &str, entries: usize, hops: usize, answers: &[&Answer]) -> AccuracyRow {
    let (reasoned, counted): (Vec<&Answer>, Vec<&Answer>) = answers.iter().partition(|answer| answer.reasoned);
    let right = counted.iter().filter(|answer| answer.is_right()).count();
    let masses: Vec<f64> = counted.iter().filter_map(|answer| answer.mass).collect();
    AccuracyRow {
        variant: variant.to_owned(),
        entries,
        hops,
        answers: counted.len(),
        right,
        accuracy: if counted.is_empty() { 0.0 } else { right as f64 / counted.len() as f64 },
        interval: wilson_interval(right as u64, counted.len() as u64),
        chance: 1.0 / entries.max(1) as f64,
        mass: (!masses.is_empty()).then(|| masses.iter().sum::<f64>() / masses.len() as f64),
        reasoned: reasoned.len(),
        without_symbol: counted.iter().filter(|answer| answer.found.is_none()).count(),
        read_by: answers.first().map_or(ReadBy::Text, |answer| answer.read_by),
    }
}

/// The largest number of hops up to which every interval lies above `threshold`; none if the first does not.
pub fn measured_hops(rates: &[AccuracyRow], variant: &str, entries: usize, threshold: f64) -> Option<usize> {
    let mut cells: Vec<&AccuracyRow> =
        rates.iter().filter(|rate| rate.variant == variant && rate.entries == entries).collect();
    cells.sort_by_key(|rate| rate.hops);
    cells.iter().take_while(|rate| rate.interval.0 > threshold).last().map(|rate| rate.hops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(hops: usize, right: bool, reasoned: bool) -> Answer {
        let found = Some(if right { "A" } else { "B" }.to_owned());
        let (variant, expected) = ("one pass".to_owned(), "A".to_owned());
        let (id, entries, read_by) = (String::new(), 4, ReadBy::Probabilities);
        Answer { id, hops, entries, variant, expected, found, read_by, mass: Some(0.5), reasoned }
    }

    #[test]
    fn hops_count_only_while_every_rung_below_holds() {
        let mut answers = Vec::new();
        for (hops, right) in [(0, 40), (1, 40), (2, 22), (3, 40)] {
            answers.extend((0..40).map(|index| answer(hops, index < right, false)));
        }
        let rates = rates(&answers);
        assert_eq!(
            measured_hops(&rates, "one pass", 4, 0.5),
            Some(1),
            "two hops: 55%, whose interval reaches below 50%"
        );
        assert_eq!(measured_hops(&rates, "one pass", 4, 0.99), None);
        assert_eq!(measured_hops(&rates, "one pass", 8, 0.5), None);
    }

    #[test]
    fn replies_that_reasoned_are_counted_apart() {
        let rates = rates(&[answer(1, true, false), answer(1, true, true), answer(1, false, false)]);
        assert_eq!((rates[0].answers, rates[0].right, rates[0].reasoned), (2, 1, 1));
    }

    #[test]
    fn replies_without_a_symbol_are_wrong_and_counted() {
        let silent = Answer { found: None, ..answer(1, true, false) };
        let rates = rates(&[answer(1, true, false), silent]);
        assert_eq!((rates[0].answers, rates[0].right, rates[0].without_symbol), (2, 1, 1));
    }
}
