//! Matrices in double precision that an export slices, pads and scales.

use std::ops::Range;

/// A row-major matrix.
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

    /// The matrix times a factor.
    #[must_use]
    pub(super) fn scaled(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// The matrix with zeros below and to the right, up to a given size.
    #[must_use]
    pub(super) fn padded(&self, rows: usize, columns: usize) -> Self {
        let mut padded = Self::zeros(rows, columns);
        for row in 0..self.rows {
            padded.values[row * columns..][..self.columns].copy_from_slice(self.row(row));
        }
        padded
    }

    /// A range of rows.
    pub(super) fn take_rows(&self, rows: Range<usize>) -> Self {
        let values = self.values[rows.start * self.columns..rows.end * self.columns].to_vec();
        Self { rows: rows.len(), columns: self.columns, values }
    }

    /// Matrices stacked vertically.
    pub(super) fn stack_rows(matrices: &[&Self]) -> Self {
        let columns = matrices.first().map_or(0, |matrix| matrix.columns);
        let values: Vec<f64> = matrices.iter().flat_map(|matrix| matrix.values.iter().copied()).collect();
        Self { rows: matrices.iter().map(|matrix| matrix.rows).sum(), columns, values }
    }

    /// Row `i` of the result is row `source_of(i)`, or zeros if that is `None`.
    pub(super) fn map_rows(&self, rows: usize, source_of: impl Fn(usize) -> Option<usize>) -> Self {
        let mut result = Self::zeros(rows, self.columns);
        for row in 0..rows {
            if let Some(from) = source_of(row) {
                result.values[row * self.columns..][..self.columns].copy_from_slice(self.row(from));
            }
        }
        result
    }

    /// Column `i` of the result is column `source_of(i)`, or zeros if that is `None`.
    pub(super) fn map_columns(&self, columns: usize, source_of: impl Fn(usize) -> Option<usize>) -> Self {
        let mut result = Self::zeros(self.rows, columns);
        for (column, from) in (0..columns).filter_map(|column| source_of(column).map(|from| (column, from))) {
            for row in 0..self.rows {
                result.set(row, column, self.get(row, from));
            }
        }
        result
    }
}
