//! The interval that goes with a count of right answers.

/// The 97.5% point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's 95% interval for a share of `right` out of `count`; from 0 to 1 if there is none.
///
/// It stays between 0 and 1 and is honest at both ends, where 256 right answers out of 256 do not mean certainty. It treats
/// questions as independent; those of one prompt share its tables, so it is a little too narrow for them.
///
/// ```
/// let (low, high) = rung_theory::statistics::wilson_interval(8, 10);
/// assert!((low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4);
/// ```
pub fn wilson_interval(right: u64, count: u64) -> (f64, f64) {
    if count == 0 {
        return (0.0, 1.0);
    }
    let count = count as f64;
    let share = right as f64 / count;
    let middle = share + Z * Z / (2.0 * count);
    let half = Z * (share * (1.0 - share) / count + Z * Z / (4.0 * count * count)).sqrt();
    let whole = 1.0 + Z * Z / count;
    (((middle - half) / whole).max(0.0), ((middle + half) / whole).min(1.0))
}
