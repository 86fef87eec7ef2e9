//! A confidence interval for accuracies.

/// The 97.5% quantile of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's 95% confidence interval for `correct` out of `count`; from 0 to 1 if `count` is 0.
///
/// It stays between 0 and 1 and has positive width at both ends: 256 correct answers out of 256 do not mean certainty. It treats
/// questions as independent; those of one prompt share its tables, so the interval is slightly too narrow for them.
///
/// ```
/// let (low, high) = rung_theory::statistics::wilson_interval(8, 10);
/// assert!((low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4);
/// ```
pub fn wilson_interval(correct: u64, count: u64) -> (f64, f64) {
    if count == 0 {
        return (0.0, 1.0);
    }
    let count = count as f64;
    let accuracy = correct as f64 / count;
    let centre = accuracy + Z * Z / (2.0 * count);
    let half_width = Z * (accuracy * (1.0 - accuracy) / count + Z * Z / (4.0 * count * count)).sqrt();
    let normaliser = 1.0 + Z * Z / count;
    (((centre - half_width) / normaliser).max(0.0), ((centre + half_width) / normaliser).min(1.0))
}
