//! Small dense matrices in double precision: the linear algebra that analyses need.
//!
//! Sizes are those of heads and model widths, a few hundred at most, so textbook methods are fast enough: Cholesky for ridge regression,
//! one-sided Jacobi rotations for singular values.

/// A row-major matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// The entries, row by row.
    pub entries: Vec<f64>,
}

impl Matrix {
    /// A matrix from its entries, row by row.
    ///
    /// # Panics
    /// There are not rows times columns entries.
    pub fn new(rows: usize, columns: usize, entries: Vec<f64>) -> Self {
        assert_eq!(entries.len(), rows * columns, "entries of a {rows} x {columns} matrix");
        Self { rows, columns, entries }
    }

    /// The zero matrix.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self::new(rows, columns, vec![0.0; rows * columns])
    }

    /// The identity.
    pub fn identity(size: usize) -> Self {
        let mut identity = Self::zeros(size, size);
        (0..size).for_each(|index| identity.entries[index * size + index] = 1.0);
        identity
    }

    /// A row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.entries[row * self.columns..(row + 1) * self.columns]
    }

    /// One entry.
    pub fn entry(&self, row: usize, column: usize) -> f64 {
        self.entries[row * self.columns + column]
    }

    /// The transpose.
    #[must_use]
    pub fn transposed(&self) -> Self {
        let entry = |index: usize| self.entry(index % self.rows, index / self.rows);
        Self::new(self.columns, self.rows, (0..self.entries.len()).map(entry).collect())
    }

    /// The matrix product.
    ///
    /// # Panics
    /// The columns of the left matrix are not as many as the rows of the right one.
    #[must_use]
    pub fn matmul(&self, right: &Self) -> Self {
        assert_eq!(self.columns, right.rows, "inner sizes of a product");
        let mut product = Self::zeros(self.rows, right.columns);
        for row in 0..self.rows {
            let target = &mut product.entries[row * right.columns..(row + 1) * right.columns];
            for (inner, factor) in self.row(row).iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
                for (sum, value) in target.iter_mut().zip(right.row(inner)) {
                    *sum += factor * value;
                }
            }
        }
        product
    }

    /// `self + factor * other`, for matrices of the same size.
    #[must_use]
    pub fn add_scaled(&self, factor: f64, other: &Self) -> Self {
        let sum = self.entries.iter().zip(&other.entries).map(|(left, right)| left + factor * right);
        Self::new(self.rows, self.columns, sum.collect())
    }

    /// The largest sum of absolute values in a row.
    pub fn row_norm(&self) -> f64 {
        let sums = (0..self.rows).map(|row| self.row(row).iter().map(|value| value.abs()).sum());
        sums.fold(0.0, f64::max)
    }

    /// The largest sum of absolute values in a column.
    pub fn column_norm(&self) -> f64 {
        let mut sums = vec![0.0; self.columns];
        for row in 0..self.rows {
            sums.iter_mut().zip(self.row(row)).for_each(|(sum, value)| *sum += value.abs());
        }
        sums.into_iter().fold(0.0, f64::max)
    }

    /// The root of row norm times column norm: the composite norm of the papers on rank collapse.
    pub fn composite_norm(&self) -> f64 {
        (self.row_norm() * self.column_norm()).sqrt()
    }

    /// The matrix with the mean row subtracted from every row.
    #[must_use]
    pub fn subtract_mean_row(&self) -> Self {
        let mut mean = vec![0.0; self.columns];
        for row in 0..self.rows {
            mean.iter_mut().zip(self.row(row)).for_each(|(sum, value)| *sum += value / self.rows as f64);
        }
        let entry = |(index, value): (usize, &f64)| value - mean[index % self.columns];
        Self::new(self.rows, self.columns, self.entries.iter().enumerate().map(entry).collect())
    }

    /// Singular values, largest first. One-sided Jacobi rotations are accurate for small ones too.
    pub fn singular_values(&self) -> Vec<f64> {
        self.singular_pairs().into_iter().map(|(value, _)| value).collect()
    }

    /// Singular values, largest first, each with its right singular vector; one pair for every column.
    pub fn singular_pairs(&self) -> Vec<(f64, Vec<f64>)> {
        const MAX_SWEEPS: usize = 40;
        // Rotations make the columns of the matrix orthogonal; applied to the identity they give the right singular vectors.
        let mut columns: Vec<Vec<f64>> =
            (0..self.columns).map(|c| (0..self.rows).map(|r| self.entry(r, c)).collect()).collect();
        let identity = Self::identity(self.columns);
        let mut vectors: Vec<Vec<f64>> = (0..self.columns).map(|row| identity.row(row).to_vec()).collect();
        for _ in 0..MAX_SWEEPS {
            let mut rotated = false;
            for left in 0..self.columns {
                for right in left + 1..self.columns {
                    let (a, b) = (dot(&columns[left], &columns[left]), dot(&columns[right], &columns[right]));
                    let inner = dot(&columns[left], &columns[right]);
                    if inner.abs() <= 1e-15 * (a * b).sqrt() || inner == 0.0 {
                        continue;
                    }
                    rotated = true;
                    let slope = (b - a) / (2.0 * inner);
                    let tangent = slope.signum() / (slope.abs() + slope.hypot(1.0));
                    let tangent = if slope == 0.0 { 1.0 } else { tangent };
                    let cosine = 1.0 / tangent.hypot(1.0);
                    for rows in [&mut columns, &mut vectors] {
                        let (first, second) = rows.split_at_mut(right);
                        rotate(&mut first[left], &mut second[0], cosine, cosine * tangent);
                    }
                }
            }
            if !rotated {
                break;
            }
        }
        let mut pairs: Vec<(f64, Vec<f64>)> =
            columns.iter().map(|column| dot(column, column).sqrt()).zip(vectors).collect();
        pairs.sort_by(|left, right| right.0.total_cmp(&left.0));
        pairs
    }
}

/// Rotates two vectors in their common plane.
fn rotate(left: &mut [f64], right: &mut [f64], cosine: f64, sine: f64) {
    for (a, b) in left.iter_mut().zip(right) {
        (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
    }
}

/// The inner product.
pub fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// Solves `a x = b` for a symmetric positive definite matrix and every column of `b` by Cholesky's factorisation; `None` if `a` is not
/// positive definite.
pub fn solve(a: &Matrix, b: &Matrix) -> Option<Matrix> {
    let (size, columns) = (a.rows, b.columns);
    let mut lower = a.clone();
    for row in 0..size {
        for column in 0..=row {
            let difference = a.entry(row, column) - dot(&lower.row(row)[..column], &lower.row(column)[..column]);
            lower.entries[row * size + column] = if row == column {
                if difference <= 0.0 || !difference.is_finite() {
                    return None;
                }
                difference.sqrt()
            } else {
                difference / lower.entry(column, column)
            };
        }
    }
    let mut x = b.clone();
    for row in (0..size).chain((0..size).rev().map(|row| row + size)) {
        // Forward substitution with the lower triangle first, then back substitution with its transpose.
        let (row, back) = (row % size, row >= size);
        let solved_rows = if back { row + 1..size } else { 0..row };
        for solved in solved_rows {
            let factor = if back { lower.entry(solved, row) } else { lower.entry(row, solved) };
            for column in 0..columns {
                let value = x.entry(solved, column);
                x.entries[row * columns + column] -= factor * value;
            }
        }
        let pivot = lower.entry(row, row);
        x.entries[row * columns..(row + 1) * columns].iter_mut().for_each(|value| *value /= pivot);
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_theory::task::{random_below, seeded};

    fn random_matrix(rows: usize, columns: usize, seed: u64) -> Matrix {
        let mut rng = seeded(seed);
        let mut next = || f64::from(random_below(&mut rng, 2_000_001)) / 1e6 - 1.0;
        Matrix::new(rows, columns, (0..rows * columns).map(|_| next()).collect())
    }

    #[test]
    fn solve_inverts_the_product() {
        let factor = random_matrix(9, 6, 1);
        let a = factor.transposed().matmul(&factor).add_scaled(0.1, &Matrix::identity(6));
        let x = random_matrix(6, 3, 2);
        let solution = solve(&a, &a.matmul(&x)).unwrap();
        assert!(solution.add_scaled(-1.0, &x).entries.iter().all(|value| value.abs() < 1e-9));
        assert!(solve(&Matrix::zeros(2, 2), &Matrix::zeros(2, 1)).is_none());
    }

    #[test]
    fn singular_values_are_those_of_known_matrices() {
        assert_eq!(Matrix::identity(4).singular_values(), [1.0; 4]);
        // A product of rank two, whose last singular vector is in the kernel.
        let matrix = random_matrix(8, 2, 3).matmul(&random_matrix(2, 5, 4));
        let pairs = matrix.singular_pairs();
        assert!(pairs[1].0 > 0.1 && pairs[2].0 < 1e-12, "{pairs:?}");
        let image = matrix.matmul(&Matrix::new(5, 1, pairs[4].1.clone()));
        assert!(image.entries.iter().all(|value| value.abs() < 1e-12));
        let squares: f64 = pairs.iter().map(|(value, _)| value * value).sum();
        assert!((squares - dot(&matrix.entries, &matrix.entries)).abs() < 1e-9);
    }

    #[test]
    fn composite_norm_is_submultiplicative_and_subtract_mean_row_removes_a_common_row() {
        let (left, right) = (random_matrix(5, 4, 5), random_matrix(4, 6, 6));
        assert!(left.matmul(&right).composite_norm() <= left.composite_norm() * right.composite_norm() + 1e-12);
        let shifted = left.add_scaled(1.0, &Matrix::new(5, 4, [0.3, -1.0, 2.0, 0.0].repeat(5)));
        assert!(
            shifted
                .subtract_mean_row()
                .add_scaled(-1.0, &left.subtract_mean_row())
                .entries
                .iter()
                .all(|value| value.abs() < 1e-12)
        );
    }
}
