//! Lattice reduction: short integer vectors among all whole combinations of given ones.
//!
//! The algorithm of Lenstra, Lenstra and Lovász, with the Gram-Schmidt coefficients in double precision and the basis in exact integers:
//! rounding can make the result longer than it need be, or the work slower, and never wrong, because every row stays a whole
//! combination of the rows given. Numbers that grow too large for that end the reduction.
//!
//! [`relation`] uses it to find whole numbers x, not all zero, with `sum_i x_i c_i = 0`: the rows `(e_i | W c_i)` are reduced, and a
//! short row whose second part is zero is such an x. A sum of D small numbers has relations as soon as there are more than D vectors; with
//! about twice as many they are short.

/// How far from orthogonal a reduced basis may be.
const LOVASZ: f64 = 0.99;
/// Coefficients below this are small enough.
const REDUCED: f64 = 0.51;
/// Times the second part: more than the length of relations that are of any use.
const WEIGHT: i64 = 1 << 12;
/// Entries beyond this are not trusted.
const MOST: i64 = 1 << 32;
/// Nor are coefficients beyond this: their products with entries must stay exact.
const LARGEST_STEP: f64 = (1_u64 << 29) as f64;

/// Reduces a basis in place. False if it was stopped, or numbers grew too large.
pub fn reduce(basis: &mut [Vec<i64>], mut go_on: impl FnMut() -> bool) -> bool {
    let rows = basis.len();
    let (mut mu, mut norms) = (vec![vec![0.0_f64; rows]; rows], vec![0.0_f64; rows]);
    let mut floats: Vec<Vec<f64>> = basis.iter().map(|row| row.iter().map(|entry| *entry as f64).collect()).collect();
    let (mut at, mut rounds) = (0, 0_u64);
    while at < rows {
        rounds += 1;
        if rounds.is_multiple_of(256) && !go_on() {
            return false;
        }
        // Twice at most in general: once to reduce, once to see that it is reduced.
        loop {
            orthogonalise(&floats, &mut mu, &mut norms, at);
            let mut changed = false;
            for other in (0..at).rev() {
                // A hair more than a half, or a coefficient of one half would go to and fro for ever.
                if mu[at][other].abs() < REDUCED {
                    continue;
                }
                let times = mu[at][other].round();
                if times.abs() > LARGEST_STEP {
                    return false;
                }
                changed = true;
                let (before, rest) = basis.split_at_mut(at);
                for (entry, less) in rest[0].iter_mut().zip(&before[other]) {
                    *entry -= times as i64 * less;
                }
                let (before, rest) = mu.split_at_mut(at);
                for (coefficient, less) in rest[0][..other].iter_mut().zip(&before[other]) {
                    *coefficient -= times * less;
                }
                rest[0][other] -= times;
            }
            if !changed {
                break;
            }
            if basis[at].iter().any(|entry| entry.abs() > MOST) {
                return false;
            }
            floats[at].iter_mut().zip(&basis[at]).for_each(|(float, entry)| *float = *entry as f64);
        }
        let ordered = at == 0 || norms[at] >= (LOVASZ - mu[at][at - 1] * mu[at][at - 1]) * norms[at - 1];
        if ordered {
            at += 1;
        } else {
            basis.swap(at, at - 1);
            floats.swap(at, at - 1);
            at -= 1;
        }
    }
    true
}

/// The coefficients of one row on those before it, and the square of what is left.
fn orthogonalise(floats: &[Vec<f64>], mu: &mut [Vec<f64>], norms: &mut [f64], at: usize) {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut scaled = vec![0.0; at];
    for other in 0..at {
        let done = dot(&mu[other][..other], &scaled[..other]);
        scaled[other] = dot(&floats[at], &floats[other]) - done;
        mu[at][other] = scaled[other] / norms[other];
    }
    norms[at] = dot(&floats[at], &floats[at]) - dot(&mu[at][..at], &scaled);
    // Linearly dependent rows, up to rounding: keep divisions finite.
    norms[at] = norms[at].max(1e-9);
}

/// Whole numbers, not all zero, with which the vectors add up to nothing: the smallest that reduction finds.
pub fn relation(vectors: &[Vec<i64>], go_on: impl FnMut() -> bool) -> Option<Vec<i64>> {
    let count = vectors.len();
    let row = |(index, vector): (usize, &Vec<i64>)| {
        let unit = (0..count).map(|column| i64::from(column == index));
        unit.chain(vector.iter().map(|entry| entry * WEIGHT)).collect::<Vec<i64>>()
    };
    let mut basis: Vec<Vec<i64>> = vectors.iter().enumerate().map(row).collect();
    // What was found before the time was over may still be of use.
    reduce(&mut basis, go_on);
    let relations = basis.into_iter().filter(|row| row[count..].iter().all(|entry| *entry == 0));
    let relations = relations.map(|row| row[..count].to_vec()).filter(|row| row.iter().any(|entry| *entry != 0));
    relations.min_by_key(|row| row.iter().map(|entry| entry.abs()).sum::<i64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of the shortest combination with coefficients up to `reach`, by trying all.
    fn shortest(basis: &[Vec<i64>], reach: i64) -> i64 {
        let base = 2 * reach + 1;
        let all = 1..base.pow(basis.len() as u32);
        let length = |mut number: i64| {
            let mut sum = vec![0; basis[0].len()];
            for row in basis {
                let times = number % base - reach;
                number /= base;
                sum.iter_mut().zip(row).for_each(|(sum, entry)| *sum += times * entry);
            }
            sum.iter().map(|entry| entry * entry).sum::<i64>()
        };
        all.map(length).filter(|length| *length > 0).min().unwrap()
    }

    #[test]
    fn small_bases_become_as_short_as_they_can_be_nearly() {
        for seed in 0..20_u64 {
            let entry = |row: u64, column: u64| {
                i64::try_from(crate::run::source::stirred(seed * 99 + row * 9 + column) % 41).unwrap() - 20
            };
            let mut basis: Vec<Vec<i64>> =
                (0..4).map(|row| (0..4).map(|column| entry(row, column)).collect()).collect();
            let best = shortest(&basis, 6);
            assert!(reduce(&mut basis, || true));
            let found = basis.iter().map(|row| row.iter().map(|entry| entry * entry).sum::<i64>()).min().unwrap();
            // The guarantee is 2^(3/2) in length; in four dimensions it is nearly always met with equality.
            assert!(found <= 8 * best, "{seed}: {found} {best}");
        }
    }

    #[test]
    fn relations_are_relations() {
        for (count, width) in [(8, 4), (24, 10), (60, 30)] {
            let entry = |row: u64, column: u64| {
                i64::try_from(crate::run::source::stirred(row * 1000 + column) % 9).unwrap() - 4
            };
            let vectors: Vec<Vec<i64>> =
                (0..count).map(|row| (0..width).map(|column| entry(row, column)).collect()).collect();
            let found = relation(&vectors, || true).expect("there are more vectors than dimensions");
            assert!(found.iter().any(|entry| *entry != 0));
            for column in 0..width as usize {
                assert_eq!(found.iter().zip(&vectors).map(|(times, vector)| times * vector[column]).sum::<i64>(), 0);
            }
        }
    }
}
