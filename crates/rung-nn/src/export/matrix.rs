//! Weights on their way out: matrices in double precision that can be cut, padded and scaled.

use std::ops::Range;

/// A matrix, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) values: Vec<f64>,
}

impl Matrix {
    pub(super) fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![0.0; rows * columns] }
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    pub(super) fn set(&mut self, row: usize, column: usize, value: f64) {
        self.values[row * self.columns + column] = value;
    }

    pub(super) fn get(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    /// All of it, times a factor.
    #[must_use]
    pub(super) fn scaled(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// The same with zeros below and to the right.
    #[must_use]
    pub(super) fn padded(&self, rows: usize, columns: usize) -> Self {
        let mut padded = Self::zeros(rows, columns);
        for row in 0..self.rows {
            padded.values[row * columns..][..self.columns].copy_from_slice(self.row(row));
        }
        padded
    }

    /// Some of its rows.
    pub(super) fn take_rows(&self, rows: Range<usize>) -> Self {
        let values = self.values[rows.start * self.columns..rows.end * self.columns].to_vec();
        Self { rows: rows.len(), columns: self.columns, values }
    }

    /// One below the other.
    pub(super) fn stacked(parts: &[&Self]) -> Self {
        let columns = parts.first().map_or(0, |part| part.columns);
        let values: Vec<f64> = parts.iter().flat_map(|part| part.values.iter().copied()).collect();
        Self { rows: parts.iter().map(|part| part.rows).sum(), columns, values }
    }

    /// Row `i` of the result is row `order(i)`; zeros where that is none.
    pub(super) fn rows_by(&self, rows: usize, order: impl Fn(usize) -> Option<usize>) -> Self {
        let mut result = Self::zeros(rows, self.columns);
        for row in 0..rows {
            if let Some(from) = order(row) {
                result.values[row * self.columns..][..self.columns].copy_from_slice(self.row(from));
            }
        }
        result
    }

    /// Column `i` of the result is column `order(i)`; zeros where that is none.
    pub(super) fn columns_by(&self, columns: usize, order: impl Fn(usize) -> Option<usize>) -> Self {
        let mut result = Self::zeros(self.rows, columns);
        for (column, from) in (0..columns).filter_map(|column| order(column).map(|from| (column, from))) {
            for row in 0..self.rows {
                result.set(row, column, self.get(row, from));
            }
        }
        result
    }
}
