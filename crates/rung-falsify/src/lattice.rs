//! Lattice reduction: short integer vectors among all whole combinations of given ones.
//!
//! The algorithm of Lenstra, Lenstra and Lovász, with the Gram-Schmidt coefficients in double precision and the basis in exact integers:
//! rounding can make the result longer than it need be, or the work slower, and never wrong, because every row stays a whole
//! combination of the rows given. A row goes at once to the place to which single exchanges would carry it: on the way its coefficients
//! on the rows before it stay what they are.
//!
//! [`relations`] uses it to find whole numbers x, not all zero, with `sum_i x_i c_i = 0`: the rows `(e_i | W c_i)` are reduced, and a
//! short row whose second part is zero is such an x. A sum of D small numbers has relations as soon as there are more than D vectors; with
//! about twice as many they are short. A large W at once would leave double precision nothing to see of the first part. So W starts
//! at one and grows by a small factor, and each time the basis is reduced again from where it was.

/// How far from orthogonal a reduced basis may be.
const LOVASZ: f64 = 0.99;
/// Coefficients below this are small enough.
const REDUCED: f64 = 0.51;
/// Passes over one row, of which two are enough in general: more means that double precision has lost its way.
const PASSES: usize = 64;
/// What the weight of the second part is multiplied by.
const HEAVIER: i64 = 4;
/// The largest weight: more than the length of relations that are of any use.
const HEAVIEST: i64 = 1 << 12;
/// Entries beyond this are not trusted.
const MOST: i64 = 1 << 32;
/// Nor are coefficients beyond this: their products with entries must stay exact.
const LARGEST_STEP: f64 = (1_u64 << 29) as f64;

/// A basis with its Gram-Schmidt coefficients.
struct Reduction<'a> {
    basis: &'a mut [Vec<i64>],
    floats: Vec<Vec<f64>>,
    /// Coefficients of a row on those before it.
    mu: Vec<Vec<f64>>,
    /// Square of what the rows before it leave of a row.
    norms: Vec<f64>,
}

/// Reduces a basis in place. False if it was stopped, or numbers grew too large.
pub fn reduce(basis: &mut [Vec<i64>], mut go_on: impl FnMut() -> bool) -> bool {
    let rows = basis.len();
    let floats = basis.iter().map(|row| row.iter().map(|entry| *entry as f64).collect()).collect();
    let mut reduction = Reduction { basis, floats, mu: vec![vec![0.0; rows]; rows], norms: vec![0.0; rows] };
    let mut at = 0;
    while at < rows {
        if !go_on() {
            return false;
        }
        let Some(left) = reduction.shorten(at) else { return false };
        let place = reduction.place(at, &left);
        reduction.insert(at, place);
        reduction.norms[place] = left[place];
        at = place + 1;
    }
    true
}

impl Reduction<'_> {
    /// Takes whole multiples of the rows before it from a row, until its coefficients are small. The answer is the square of what is
    /// left of it behind the first 0, 1, .. of them; none if numbers grow too large.
    fn shorten(&mut self, at: usize) -> Option<Vec<f64>> {
        for _ in 0..PASSES {
            let left = self.orthogonalise(at);
            let (before, rest) = self.basis.split_at_mut(at);
            let (above, own) = self.mu.split_at_mut(at);
            let mut changed = false;
            for other in (0..at).rev() {
                // A hair more than a half, or a coefficient of one half would go to and fro for ever.
                let times = own[0][other].round();
                if own[0][other].abs() < REDUCED {
                    continue;
                }
                if times.abs() > LARGEST_STEP {
                    return None;
                }
                changed = true;
                rest[0].iter_mut().zip(&before[other]).for_each(|(entry, less)| *entry -= times as i64 * less);
                own[0][..other].iter_mut().zip(&above[other]).for_each(|(own, less)| *own -= times * less);
            }
            if !changed {
                return Some(left);
            }
            if rest[0].iter().any(|entry| entry.abs() > MOST) {
                return None;
            }
            self.floats[at].iter_mut().zip(&rest[0]).for_each(|(float, entry)| *float = *entry as f64);
        }
        None
    }

    /// The coefficients of one row on those before it. The answer is as in [`Reduction::shorten`].
    fn orthogonalise(&mut self, at: usize) -> Vec<f64> {
        let Self { floats, mu, norms, .. } = self;
        let mut left = vec![dot(&floats[at], &floats[at])];
        let mut scaled = vec![0.0; at];
        for other in 0..at {
            scaled[other] = dot(&floats[at], &floats[other]) - dot(&mu[other][..other], &scaled[..other]);
            mu[at][other] = scaled[other] / norms[other];
            // Linearly dependent rows, up to rounding: keep divisions finite.
            left.push((left[other] - mu[at][other] * scaled[other]).max(1e-9));
        }
        left
    }

    /// The place that a row belongs to.
    fn place(&self, at: usize, left: &[f64]) -> usize {
        let stays = |place: &usize| left[place - 1] >= LOVASZ * self.norms[place - 1];
        (1..=at).rev().find(stays).unwrap_or(0)
    }

    fn insert(&mut self, at: usize, place: usize) {
        self.basis[place..=at].rotate_right(1);
        self.floats[place..=at].rotate_right(1);
        self.mu[place..=at].rotate_right(1);
    }
}

/// The product of two vectors, in eight sums: a processor can add them side by side.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sums, length) = ([0.0; 8], a.len().min(b.len()));
    let (mut left, mut right) = (a[..length].chunks_exact(8), b[..length].chunks_exact(8));
    for (a, b) in left.by_ref().zip(right.by_ref()) {
        sums.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum += a * b);
    }
    let rest: f64 = left.remainder().iter().zip(right.remainder()).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// What [`relations`] found.
pub struct Relations {
    /// Whole numbers, not all zero, with which the vectors add up to nothing, the smallest first.
    pub found: Vec<Vec<i64>>,
    /// Whether the lattice was reduced to the end; if not, time or double precision was at its own.
    pub whole: bool,
}

/// Whole numbers, not all zero, with which the vectors add up to nothing.
pub fn relations(vectors: &[Vec<i64>], mut go_on: impl FnMut() -> bool) -> Relations {
    let count = vectors.len();
    let row = |(index, vector): (usize, &Vec<i64>)| {
        let unit = (0..count).map(|column| i64::from(column == index));
        unit.chain(vector.iter().copied()).collect::<Vec<i64>>()
    };
    let nothing = |row: &Vec<i64>| row[count..].iter().all(|entry| *entry == 0);
    let mut basis: Vec<Vec<i64>> = vectors.iter().enumerate().map(row).collect();
    let (mut weight, mut whole) = (1, false);
    // What was found before the end may still be of use.
    while reduce(&mut basis, &mut go_on) {
        // There cannot be more relations than vectors too many, if the vectors span their space.
        let complete = basis.iter().filter(|row| nothing(row)).count() >= count - vectors[0].len().min(count);
        whole = complete || weight >= HEAVIEST;
        if whole {
            break;
        }
        weight *= HEAVIER;
        for entry in basis.iter_mut().flat_map(|row| &mut row[count..]) {
            *entry *= HEAVIER;
        }
    }
    let found = basis.into_iter().filter(nothing).map(|row| row[..count].to_vec());
    let mut found: Vec<Vec<i64>> = found.filter(|row| row.iter().any(|entry| *entry != 0)).collect();
    found.sort_by_key(|row| row.iter().map(|entry| entry.abs()).sum::<i64>());
    Relations { found, whole }
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
                i64::try_from(rung_theory::task::splitmix64(seed * 99 + row * 9 + column) % 41).unwrap() - 20
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

    /// The textbook's way, with single exchanges and everything computed anew each time.
    fn reduced_slowly(mut basis: Vec<Vec<i64>>) -> Vec<Vec<i64>> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut at = 1;
        while at < basis.len() {
            let mut stars: Vec<Vec<f64>> = Vec::new();
            let mut onto = vec![0.0; at];
            for row in 0..=at {
                for other in (0..row).rev().filter(|_| row == at) {
                    let float: Vec<f64> = basis[at].iter().map(|entry| *entry as f64).collect();
                    let share = dot(&float, &stars[other]) / dot(&stars[other], &stars[other]);
                    let times = if share.abs() < REDUCED { 0 } else { share.round() as i64 };
                    let less = basis[other].clone();
                    basis[at].iter_mut().zip(less).for_each(|(entry, less)| *entry -= times * less);
                }
                let float: Vec<f64> = basis[row].iter().map(|entry| *entry as f64).collect();
                let mut star = float.clone();
                for (other, before) in stars.iter().enumerate() {
                    onto[other] = dot(&float, before) / dot(before, before);
                    star.iter_mut().zip(before).for_each(|(star, before)| *star -= onto[other] * before);
                }
                stars.push(star);
            }
            let [before, own] = [at - 1, at].map(|row| dot(&stars[row], &stars[row]));
            if own >= (LOVASZ - onto[at - 1] * onto[at - 1]) * before {
                at += 1;
            } else {
                basis.swap(at, at - 1);
                at = (at - 1).max(1);
            }
        }
        basis
    }

    #[test]
    fn rows_that_go_to_their_place_at_once_end_where_single_exchanges_lead() {
        for seed in 0..20_u64 {
            let entry = |row: u64, column: u64| {
                i64::try_from(rung_theory::task::splitmix64(seed * 999 + row * 20 + column) % 201).unwrap() - 100
            };
            let mut basis: Vec<Vec<i64>> =
                (0..12).map(|row| (0..14).map(|column| entry(row, column)).collect()).collect();
            let slow = reduced_slowly(basis.clone());
            assert!(reduce(&mut basis, || true));
            let lengths = |basis: &[Vec<i64>]| -> Vec<i64> {
                basis.iter().map(|row| row.iter().map(|entry| entry * entry).sum()).collect()
            };
            assert_eq!(lengths(&basis), lengths(&slow), "{seed}");
        }
    }

    #[test]
    fn relations_are_relations() {
        for (count, width) in [(8, 4), (24, 10), (60, 30)] {
            let entry = |row: u64, column: u64| {
                i64::try_from(rung_theory::task::splitmix64(row * 1000 + column) % 9).unwrap() - 4
            };
            let vectors: Vec<Vec<i64>> =
                (0..count).map(|row| (0..width).map(|column| entry(row, column)).collect()).collect();
            let Relations { found, whole } = relations(&vectors, || true);
            assert!(whole);
            assert_eq!(found.len() as u64, count - width, "as many as there are vectors too many");
            for found in found {
                assert!(found.iter().any(|entry| *entry != 0));
                for column in 0..width as usize {
                    let terms = found.iter().zip(&vectors).map(|(times, vector)| times * vector[column]);
                    assert_eq!(terms.sum::<i64>(), 0);
                }
            }
        }
    }
}
