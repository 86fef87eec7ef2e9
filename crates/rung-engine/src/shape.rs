//! The shape of a tensor, stored without allocation.
//!
//! A training step makes hundreds of tensors; a `Vec` of extents in each would be hundreds of small allocations. Six axes are
//! enough for every operation (batch, head, chunk, row, column, channel), so a shape is a small array that is copied.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The most axes a tensor may have.
pub const MAX_RANK: usize = 6;

/// Extents of a tensor, outermost first. Data is row-major.
#[derive(Clone, Copy, Default)]
pub struct Shape {
    extents: [usize; MAX_RANK],
    rank: usize,
}

impl Shape {
    /// A shape with these extents.
    ///
    /// # Panics
    /// If there are more than [`MAX_RANK`].
    pub fn new(extents: &[usize]) -> Self {
        assert!(extents.len() <= MAX_RANK, "a tensor has at most {MAX_RANK} axes, not {extents:?}");
        let mut shape = Self { extents: [0; MAX_RANK], rank: extents.len() };
        shape.extents[..extents.len()].copy_from_slice(extents);
        shape
    }

    /// Number of elements; one for a scalar.
    pub fn size(&self) -> usize {
        self.iter().product()
    }

    /// Extent of the last axis; one for a scalar.
    pub fn width(&self) -> usize {
        self.last().copied().unwrap_or(1)
    }

    /// Number of rows of [`width`](Self::width) elements.
    pub fn rows(&self) -> usize {
        self.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// The shape with one extent replaced.
    #[must_use]
    pub fn with(mut self, axis: usize, extent: usize) -> Self {
        self[axis] = extent;
        self
    }

    /// The products of the extents before an axis, of the axis itself, and after it: the tensor as `[outer, extent, inner]`.
    ///
    /// # Panics
    /// If there is no such axis.
    pub fn split_at_axis(&self, axis: usize) -> (usize, usize, usize) {
        assert!(axis < self.rank, "axis {axis} of a tensor of shape {self}");
        (self[..axis].iter().product(), self[axis], self[axis + 1..].iter().product())
    }

    /// The shape of the result of an element-wise operation: trailing axes are aligned, and an extent of 1 is broadcast.
    ///
    /// # Panics
    /// If two extents differ and neither is one.
    #[must_use]
    pub fn broadcast(&self, other: &Self) -> Self {
        let rank = self.rank.max(other.rank);
        let mut out = Self { extents: [1; MAX_RANK], rank };
        for from_last in 1..=rank {
            let extent = |shape: &Self| if from_last <= shape.rank { shape[shape.rank - from_last] } else { 1 };
            let (left, right) = (extent(self), extent(other));
            assert!(left == right || left == 1 || right == 1, "shapes {self} and {other} do not broadcast");
            out[rank - from_last] = if left == 1 { right } else { left };
        }
        out
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Shape {}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.extents[..self.rank]
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.extents[..self.rank]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", &self[..])
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl From<&[usize]> for Shape {
    fn from(extents: &[usize]) -> Self {
        Self::new(extents)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Self {
        Self::new(&extents)
    }
}
