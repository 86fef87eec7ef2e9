//! Lattice reduction: short vectors among all integer combinations of given vectors.
//!
//! The algorithm of Lenstra, Lenstra and Lovász (LLL), with Gram-Schmidt coefficients in double precision and the basis in exact integers:
//! rounding errors can make the result longer or the reduction slower, but never wrong, because every row stays an integer combination of
//! the given rows. A row is moved at once to the position to which successive swaps would move it; its coefficients with respect to the
//! rows before it do not change on the way.
//!
//! [`relations`] uses it to find integers x, not all zero, with `sum_i x_i c_i = 0`: the rows `(e_i | W c_i)`, with `e_i` the i-th unit
//! vector, are reduced, and a short row whose second half is zero is such an x. More than D vectors of D small numbers have relations; with about 2 D vectors the relations are
//! short. With a large W from the start, double precision would lose the first half of the rows. So W starts at one and grows by a small
//! factor, and the basis is reduced again each time.

/// The constant of Lovász's condition.
const LOVASZ_CONSTANT: f64 = 0.99;
/// A row is size-reduced when its coefficients are below this. More than 0.5, or a coefficient of 0.5 would change its sign for ever.
const MAX_REDUCED_COEFFICIENT: f64 = 0.51;
/// Two passes over a row are usually enough; more than this many mean that double precision is not sufficient.
const MAX_PASSES: usize = 64;
/// Factor by which the weight W of the second half grows.
const WEIGHT_GROWTH: i64 = 4;
/// The largest weight W; relations longer than this would not fit into a prompt.
const MAX_WEIGHT: i64 = 1 << 12;
/// The reduction fails if entries get larger.
const MAX_ENTRY: i64 = 1 << 32;
/// The reduction fails if coefficients get larger, since their products with entries must be exact.
const MAX_COEFFICIENT: f64 = (1_u64 << 29) as f64;

/// A basis with its Gram-Schmidt coefficients.
struct Reduction<'a> {
    basis: &'a mut [Vec<i64>],
    floats: Vec<Vec<f64>>,
    /// The usual name of the Gram-Schmidt coefficients of a row with respect to the rows before it.
    mu: Vec<Vec<f64>>,
    /// Squared norm of each row's component orthogonal to the rows before it.
    norms: Vec<f64>,
}

/// Reduces a basis in place. False if `should_continue` returned false, or numbers grew too large.
pub fn reduce(basis: &mut [Vec<i64>], mut should_continue: impl FnMut() -> bool) -> bool {
    let rows = basis.len();
    let floats = basis.iter().map(|row| row.iter().map(|entry| *entry as f64).collect()).collect();
    let mut reduction = Reduction { basis, floats, mu: vec![vec![0.0; rows]; rows], norms: vec![0.0; rows] };
    let mut row = 0;
    while row < rows {
        if !should_continue() {
            return false;
        }
        let Some(squared_norms) = reduction.size_reduce(row) else { return false };
        let position = reduction.insertion_position(row, &squared_norms);
        reduction.move_row(row, position);
        reduction.norms[position] = squared_norms[position];
        row = position + 1;
    }
    true
}

impl Reduction<'_> {
    /// Subtracts integer multiples of earlier rows from a row until its coefficients are small. Entry i of the result is the squared norm
    /// of the row's component orthogonal to the first i rows; `None` if numbers grow too large.
    fn size_reduce(&mut self, row: usize) -> Option<Vec<f64>> {
        for _ in 0..MAX_PASSES {
            let squared_norms = self.orthogonalise(row);
            let (earlier_rows, later_rows) = self.basis.split_at_mut(row);
            let (earlier_mu, later_mu) = self.mu.split_at_mut(row);
            let (entries, mu) = (&mut later_rows[0], &mut later_mu[0]);
            let mut changed = false;
            for other in (0..row).rev() {
                let multiple = mu[other].round();
                if mu[other].abs() < MAX_REDUCED_COEFFICIENT {
                    continue;
                }
                if multiple.abs() > MAX_COEFFICIENT {
                    return None;
                }
                changed = true;
                entries
                    .iter_mut()
                    .zip(&earlier_rows[other])
                    .for_each(|(entry, other)| *entry -= multiple as i64 * other);
                mu[..other].iter_mut().zip(&earlier_mu[other]).for_each(|(mu, other)| *mu -= multiple * other);
            }
            if !changed {
                return Some(squared_norms);
            }
            if entries.iter().any(|entry| entry.abs() > MAX_ENTRY) {
                return None;
            }
            self.floats[row].iter_mut().zip(&*entries).for_each(|(float, entry)| *float = *entry as f64);
        }
        None
    }

    /// Computes the coefficients of a row with respect to the rows before it. The result is that of [`Reduction::size_reduce`].
    fn orthogonalise(&mut self, row: usize) -> Vec<f64> {
        let Self { floats, mu, norms, .. } = self;
        let mut squared_norms = vec![dot(&floats[row], &floats[row])];
        let mut scaled = vec![0.0; row];
        for other in 0..row {
            scaled[other] = dot(&floats[row], &floats[other]) - dot(&mu[other][..other], &scaled[..other]);
            mu[row][other] = scaled[other] / norms[other];
            // Rows that are linearly dependent up to rounding must not lead to a division by zero.
            squared_norms.push((squared_norms[other] - mu[row][other] * scaled[other]).max(1e-9));
        }
        squared_norms
    }

    /// The position to which successive swaps would move a row.
    fn insertion_position(&self, row: usize, squared_norms: &[f64]) -> usize {
        let satisfies_lovasz =
            |position: &usize| squared_norms[position - 1] >= LOVASZ_CONSTANT * self.norms[position - 1];
        (1..=row).rev().find(satisfies_lovasz).unwrap_or(0)
    }

    fn move_row(&mut self, row: usize, position: usize) {
        self.basis[position..=row].rotate_right(1);
        self.floats[position..=row].rotate_right(1);
        self.mu[position..=row].rotate_right(1);
    }
}

/// The inner product of two vectors, in eight partial sums that vector instructions can add in parallel.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sums, length) = ([0.0; 8], a.len().min(b.len()));
    let (mut left, mut right) = (a[..length].chunks_exact(8), b[..length].chunks_exact(8));
    for (a, b) in left.by_ref().zip(right.by_ref()) {
        sums.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum += a * b);
    }
    let remainder: f64 = left.remainder().iter().zip(right.remainder()).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + remainder
}

/// The result of [`relations`].
pub struct Relations {
    /// Integer coefficients, not all zero, with which the vectors sum to zero; the smallest first.
    pub relations: Vec<Vec<i64>>,
    /// Whether the reduction was completed; false if it ran out of time or of double precision.
    pub complete: bool,
}

/// Finds integer coefficients, not all zero, with which the vectors sum to zero.
pub fn relations(vectors: &[Vec<i64>], mut should_continue: impl FnMut() -> bool) -> Relations {
    let count = vectors.len();
    let row = |(index, vector): (usize, &Vec<i64>)| {
        let unit = (0..count).map(|column| i64::from(column == index));
        unit.chain(vector.iter().copied()).collect::<Vec<i64>>()
    };
    let is_relation = |row: &Vec<i64>| row[count..].iter().all(|entry| *entry == 0);
    let mut basis: Vec<Vec<i64>> = vectors.iter().enumerate().map(row).collect();
    let (mut weight, mut complete) = (1, false);
    while reduce(&mut basis, &mut should_continue) {
        // Vectors of dimension D that span their space have as many independent relations as there are vectors beyond D.
        let all_found = basis.iter().filter(|row| is_relation(row)).count() >= count - vectors[0].len().min(count);
        complete = all_found || weight >= MAX_WEIGHT;
        if complete {
            break;
        }
        weight *= WEIGHT_GROWTH;
        for entry in basis.iter_mut().flat_map(|row| &mut row[count..]) {
            *entry *= WEIGHT_GROWTH;
        }
    }
    // Relations of an incomplete reduction are valid too.
    let relations = basis.into_iter().filter(is_relation).map(|row| row[..count].to_vec());
    let mut relations: Vec<Vec<i64>> = relations.filter(|row| row.iter().any(|entry| *entry != 0)).collect();
    relations.sort_by_key(|row| row.iter().map(|entry| entry.abs()).sum::<i64>());
    Relations { relations, complete }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The squared length of the shortest combination with coefficients from `-max` to `max`, by trying all.
    fn shortest(basis: &[Vec<i64>], max: i64) -> i64 {
        let base = 2 * max + 1;
        let all = 1..base.pow(basis.len() as u32);
        let length = |mut number: i64| {
            let mut sum = vec![0; basis[0].len()];
            for row in basis {
                let times = number % base - max;
                number /= base;
                sum.iter_mut().zip(row).for_each(|(sum, entry)| *sum += times * entry);
            }
            sum.iter().map(|entry| entry * entry).sum::<i64>()
        };
        all.map(length).filter(|length| *length > 0).min().unwrap()
    }

    #[test]
    fn the_shortest_row_of_a_reduced_basis_is_within_the_guarantee_of_lll() {
        for seed in 0..20_u64 {
            let entry = |row: u64, column: u64| {
                i64::try_from(rung_theory::task::splitmix64(seed * 99 + row * 9 + column) % 41).unwrap() - 20
            };
            let mut basis: Vec<Vec<i64>> =
                (0..4).map(|row| (0..4).map(|column| entry(row, column)).collect()).collect();
            let best = shortest(&basis, 6);
            assert!(reduce(&mut basis, || true));
            let reduced = basis.iter().map(|row| row.iter().map(|entry| entry * entry).sum::<i64>()).min().unwrap();
            // In four dimensions LLL guarantees a factor of 2^(3/2) in length, which is 8 in squared length.
            assert!(reduced <= 8 * best, "{seed}: {reduced} {best}");
        }
    }

    /// Textbook LLL, which swaps adjacent rows and recomputes all Gram-Schmidt vectors each time.
    fn textbook_reduce(mut basis: Vec<Vec<i64>>) -> Vec<Vec<i64>> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut current = 1;
        while current < basis.len() {
            let mut orthogonal_rows: Vec<Vec<f64>> = Vec::new();
            let mut mu = vec![0.0; current];
            for row in 0..=current {
                for other in (0..row).rev().filter(|_| row == current) {
                    let float: Vec<f64> = basis[current].iter().map(|entry| *entry as f64).collect();
                    let orthogonal = &orthogonal_rows[other];
                    let coefficient = dot(&float, orthogonal) / dot(orthogonal, orthogonal);
                    let times =
                        if coefficient.abs() < MAX_REDUCED_COEFFICIENT { 0 } else { coefficient.round() as i64 };
                    let other_row = basis[other].clone();
                    basis[current].iter_mut().zip(other_row).for_each(|(entry, other)| *entry -= times * other);
                }
                let float: Vec<f64> = basis[row].iter().map(|entry| *entry as f64).collect();
                let mut orthogonal = float.clone();
                for (other, earlier) in orthogonal_rows.iter().enumerate() {
                    mu[other] = dot(&float, earlier) / dot(earlier, earlier);
                    orthogonal.iter_mut().zip(earlier).for_each(|(entry, earlier)| *entry -= mu[other] * earlier);
                }
                orthogonal_rows.push(orthogonal);
            }
            let [previous_norm, norm] =
                [current - 1, current].map(|row| dot(&orthogonal_rows[row], &orthogonal_rows[row]));
            if norm >= (LOVASZ_CONSTANT - mu[current - 1] * mu[current - 1]) * previous_norm {
                current += 1;
            } else {
                basis.swap(current, current - 1);
                current = (current - 1).max(1);
            }
        }
        basis
    }

    #[test]
    fn reduce_gives_rows_of_the_same_lengths_as_textbook_lll() {
        for seed in 0..20_u64 {
            let entry = |row: u64, column: u64| {
                i64::try_from(rung_theory::task::splitmix64(seed * 999 + row * 20 + column) % 201).unwrap() - 100
            };
            let mut basis: Vec<Vec<i64>> =
                (0..12).map(|row| (0..14).map(|column| entry(row, column)).collect()).collect();
            let expected = textbook_reduce(basis.clone());
            assert!(reduce(&mut basis, || true));
            let lengths = |basis: &[Vec<i64>]| -> Vec<i64> {
                basis.iter().map(|row| row.iter().map(|entry| entry * entry).sum()).collect()
            };
            assert_eq!(lengths(&basis), lengths(&expected), "{seed}");
        }
    }

    #[test]
    fn relations_sum_the_vectors_to_zero() {
        for (count, width) in [(8, 4), (24, 10), (60, 30)] {
            let entry = |row: u64, column: u64| {
                i64::try_from(rung_theory::task::splitmix64(row * 1000 + column) % 9).unwrap() - 4
            };
            let vectors: Vec<Vec<i64>> =
                (0..count).map(|row| (0..width).map(|column| entry(row, column)).collect()).collect();
            let Relations { relations, complete } = relations(&vectors, || true);
            assert!(complete);
            assert_eq!(relations.len() as u64, count - width, "one for every vector beyond the dimension");
            for relation in relations {
                assert!(relation.iter().any(|entry| *entry != 0));
                for column in 0..width as usize {
                    let terms = relation.iter().zip(&vectors).map(|(times, vector)| times * vector[column]);
                    assert_eq!(terms.sum::<i64>(), 0);
                }
            }
        }
    }
}
