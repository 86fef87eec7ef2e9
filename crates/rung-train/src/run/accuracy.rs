//! Counts of correct answers, with Wilson's 95% confidence interval ([`wilson_interval`]).

use std::collections::BTreeMap;

use rung_theory::statistics::wilson_interval;
use serde::{Deserialize, Serialize};

/// The correct answers among a number of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AnswerCount {
    /// Correct answers.
    #[serde(rename = "right")]
    pub correct: u64,
    /// All answers.
    pub count: u64,
}

/// Counts of correct answers for each metric group: for function composition, each number of hops.
pub type AccuracyByGroup = BTreeMap<u16, AnswerCount>;

impl AnswerCount {
    /// Share of correct answers; NaN if there are no answers.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.count as f64
    }

    /// Wilson's 95% confidence interval; from 0 to 1 if there are no answers.
    pub fn interval(&self) -> (f64, f64) {
        wilson_interval(self.correct, self.count)
    }

    /// Counts one more answer.
    pub fn add(&mut self, correct: bool) {
        self.count += 1;
        self.correct += u64::from(correct);
    }
}

impl Serialize for AnswerCount {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let (low, high) = self.interval();
        let mut fields = out.serialize_struct("AnswerCount", 5)?;
        fields.serialize_field("mean", &round_to_6_decimals(self.accuracy()))?;
        fields.serialize_field("low", &round_to_6_decimals(low))?;
        fields.serialize_field("high", &round_to_6_decimals(high))?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("right", &self.correct)?;
        fields.end()
    }
}

/// Rounds to six decimals, few enough that the number is the same after it was written to JSON and read back.
pub fn round_to_6_decimals(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Whether the accuracy is at least `share` in every group.
pub fn all_groups_reach(accuracy: &AccuracyByGroup, share: f64) -> bool {
    !accuracy.is_empty() && accuracy.values().all(|answers| answers.accuracy() >= share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_agrees_with_wilsons_formula() {
        // 8 of 10, computed by hand; all right; no answers.
        let (low, high) = AnswerCount { correct: 8, count: 10 }.interval();
        assert!((low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4, "{low} {high}");
        let (low, high) = AnswerCount { correct: 256, count: 256 }.interval();
        assert!((high - 1.0).abs() < 1e-12 && low < 0.986 && low > 0.98);
        assert_eq!(AnswerCount::default().interval(), (0.0, 1.0));
    }

    #[test]
    fn answer_count_is_serialized_with_its_interval_and_read_back() {
        let answers = AnswerCount { correct: 3, count: 7 };
        let text = serde_json::to_string(&answers).unwrap();
        assert!(text.contains("\"mean\":0.428571") && text.contains("\"low\":"), "{text}");
        assert_eq!(serde_json::from_str::<AnswerCount>(&text).unwrap(), answers);
    }
}
