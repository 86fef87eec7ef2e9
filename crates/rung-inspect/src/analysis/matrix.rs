//! Small dense matrices in double precision: what instruments need of linear algebra, and no more.
//!
//! Sizes here are heads and widths, a few hundred at most, so the textbook methods do: Cholesky for ridge regression, Jacobi's
//! rotations for singular values. Rows follow each other in memory.

/// A matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Numbers, row by row.
    pub numbers: Vec<f64>,
}

impl Matrix {
    /// A matrix from its numbers.
    ///
    /// # Panics
    /// There are not as many as rows times columns.
    pub fn new(rows: usize, columns: usize, numbers: Vec<f64>) -> Self {
        assert_eq!(numbers.len(), rows * columns, "numbers of a {rows} x {columns} matrix");
        Self { rows, columns, numbers }
    }

    /// Zeros.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self::new(rows, columns, vec![0.0; rows * columns])
    }

    /// The identity.
    pub fn identity(size: usize) -> Self {
        let mut one = Self::zeros(size, size);
        (0..size).for_each(|index| one.numbers[index * size + index] = 1.0);
        one
    }

    /// A row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.numbers[row * self.columns..(row + 1) * self.columns]
    }

    /// One number.
    pub fn at(&self, row: usize, column: usize) -> f64 {
        self.numbers[row * self.columns + column]
    }

    /// The transpose.
    #[must_use]
    pub fn flipped(&self) -> Self {
        let cell = |at: usize| self.at(at % self.rows, at / self.rows);
        Self::new(self.columns, self.rows, (0..self.numbers.len()).map(cell).collect())
    }

    /// The product.
    ///
    /// # Panics
    /// Sizes do not fit.
    #[must_use]
    pub fn times(&self, right: &Self) -> Self {
        assert_eq!(self.columns, right.rows, "inner sizes of a product");
        let mut out = Self::zeros(self.rows, right.columns);
        for row in 0..self.rows {
            let target = &mut out.numbers[row * right.columns..(row + 1) * right.columns];
            for (inner, factor) in self.row(row).iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
                for (sum, value) in target.iter_mut().zip(right.row(inner)) {
                    *sum += factor * value;
                }
            }
        }
        out
    }

    /// The sum with another of the same size, times a factor.
    #[must_use]
    pub fn plus(&self, factor: f64, other: &Self) -> Self {
        let sum = self.numbers.iter().zip(&other.numbers).map(|(left, right)| left + factor * right);
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

    /// The root of the product of both: the composite norm of the papers on rank collapse.
    pub fn composite_norm(&self) -> f64 {
        (self.row_norm() * self.column_norm()).sqrt()
    }

    /// The matrix without what all rows have in common: their mean.
    #[must_use]
    pub fn residual(&self) -> Self {
        let mut mean = vec![0.0; self.columns];
        for row in 0..self.rows {
            mean.iter_mut().zip(self.row(row)).for_each(|(sum, value)| *sum += value / self.rows as f64);
        }
        let cell = |(at, value): (usize, &f64)| value - mean[at % self.columns];
        Self::new(self.rows, self.columns, self.numbers.iter().enumerate().map(cell).collect())
    }

    /// Singular values, largest first, by one-sided rotations: accurate also for the small ones.
    pub fn singular_values(&self) -> Vec<f64> {
        self.singular().into_iter().map(|(value, _)| value).collect()
    }

    /// Singular values, largest first, each with its right singular vector; as many as columns if rows are not fewer.
    pub fn singular(&self) -> Vec<(f64, Vec<f64>)> {
        const SWEEPS: usize = 40;
        // Rows of `work` are columns of the matrix; rows of `turned` the rotations so far.
        let mut work: Vec<Vec<f64>> =
            (0..self.columns).map(|c| (0..self.rows).map(|r| self.at(r, c)).collect()).collect();
        let one = Self::identity(self.columns);
        let mut turned: Vec<Vec<f64>> = (0..self.columns).map(|row| one.row(row).to_vec()).collect();
        for _ in 0..SWEEPS {
            let mut rotated = false;
            for left in 0..self.columns {
                for right in left + 1..self.columns {
                    let (a, b) = (dot(&work[left], &work[left]), dot(&work[right], &work[right]));
                    let both = dot(&work[left], &work[right]);
                    if both.abs() <= 1e-15 * (a * b).sqrt() || both == 0.0 {
                        continue;
                    }
                    rotated = true;
                    let slope = (b - a) / (2.0 * both);
                    let tangent = slope.signum() / (slope.abs() + slope.hypot(1.0));
                    let tangent = if slope == 0.0 { 1.0 } else { tangent };
                    let cosine = 1.0 / tangent.hypot(1.0);
                    for table in [&mut work, &mut turned] {
                        let (first, second) = table.split_at_mut(right);
                        rotate(&mut first[left], &mut second[0], cosine, cosine * tangent);
                    }
                }
            }
            if !rotated {
                break;
            }
        }
        let mut found: Vec<(f64, Vec<f64>)> =
            work.iter().map(|column| dot(column, column).sqrt()).zip(turned).collect();
        found.sort_by(|left, right| right.0.total_cmp(&left.0));
        found
    }
}

fn rotate(left: &mut [f64], right: &mut [f64], cosine: f64, sine: f64) {
    for (a, b) in left.iter_mut().zip(right) {
        (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
    }
}

/// The inner product.
pub fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// Solves `a x = b` for a symmetric positive definite matrix and several right sides; none if it is not definite.
pub fn solve(a: &Matrix, b: &Matrix) -> Option<Matrix> {
    let (size, sides) = (a.rows, b.columns);
    let mut lower = a.clone();
    for row in 0..size {
        for column in 0..=row {
            let known = dot(&lower.row(row)[..column], &lower.row(column)[..column]);
            let rest = a.at(row, column) - known;
            lower.numbers[row * size + column] = if row == column {
                if rest <= 0.0 || !rest.is_finite() {
                    return None;
                }
                rest.sqrt()
            } else {
                rest / lower.at(column, column)
            };
        }
    }
    let mut x = b.clone();
    for row in (0..size).chain((0..size).rev().map(|row| row + size)) {
        // Down through the triangle first, then up through its transpose.
        let (row, up) = (row % size, row >= size);
        let others = if up { row + 1..size } else { 0..row };
        for other in others {
            let factor = if up { lower.at(other, row) } else { lower.at(row, other) };
            for side in 0..sides {
                let known = x.at(other, side);
                x.numbers[row * sides + side] -= factor * known;
            }
        }
        let pivot = lower.at(row, row);
        x.numbers[row * sides..(row + 1) * sides].iter_mut().for_each(|value| *value /= pivot);
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_theory::task::{below, seeded};

    fn random(rows: usize, columns: usize, seed: u64) -> Matrix {
        let mut rng = seeded(seed);
        let mut next = || f64::from(below(&mut rng, 2_000_001)) / 1e6 - 1.0;
        Matrix::new(rows, columns, (0..rows * columns).map(|_| next()).collect())
    }

    #[test]
    fn solutions_solve() {
        let half = random(9, 6, 1);
        let a = half.flipped().times(&half).plus(0.1, &Matrix::identity(6));
        let x = random(6, 3, 2);
        let found = solve(&a, &a.times(&x)).unwrap();
        assert!(found.plus(-1.0, &x).numbers.iter().all(|value| value.abs() < 1e-9));
        assert!(solve(&Matrix::zeros(2, 2), &Matrix::zeros(2, 1)).is_none());
    }

    #[test]
    fn singular_values_are_those_of_known_matrices() {
        assert_eq!(Matrix::identity(4).singular_values(), [1.0; 4]);
        // A rank of two by construction, and vectors that the matrix sends to nothing.
        let matrix = random(8, 2, 3).times(&random(2, 5, 4));
        let found = matrix.singular();
        assert!(found[1].0 > 0.1 && found[2].0 < 1e-12, "{found:?}");
        let gone = matrix.times(&Matrix::new(5, 1, found[4].1.clone()));
        assert!(gone.numbers.iter().all(|value| value.abs() < 1e-12));
        let squares: f64 = found.iter().map(|(value, _)| value * value).sum();
        assert!((squares - dot(&matrix.numbers, &matrix.numbers)).abs() < 1e-9);
    }

    #[test]
    fn the_composite_norm_is_below_the_product_of_norms() {
        let (left, right) = (random(5, 4, 5), random(4, 6, 6));
        assert!(left.times(&right).composite_norm() <= left.composite_norm() * right.composite_norm() + 1e-12);
        let shifted = left.plus(1.0, &Matrix::new(5, 4, [0.3, -1.0, 2.0, 0.0].repeat(5)));
        assert!(shifted.residual().plus(-1.0, &left.residual()).numbers.iter().all(|value| value.abs() < 1e-12));
    }
}
