//! A pool of reusable buffers.
//!
//! New memory from the system is slow twice: the call, and the page faults of the first access. A training step needs the same
//! sizes again and again, so a [`Pool`] keeps every buffer that was dropped, by size class, and reuses it. After the first step
//! nothing is allocated any more.
//!
//! A [`Buffer`] is a reference-counted array. It can be written while it has one owner, which is the case until the tensor made
//! from it is first cloned; a shared one is copied before writing. When the last owner drops it, it returns to its pool. A weight
//! is a buffer too: a range of the model's shared array, which is never written during a step.

use crate::scalar::Scalar;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Number of size classes: four per power of two, so that at most a quarter of a buffer is unused.
const CLASSES: usize = 4 * 60;

/// The free buffers of one executor.
pub(crate) struct Pool<S> {
    free: Mutex<Vec<Vec<Arc<Block<S>>>>>,
}

/// An array that returns to its pool.
pub(crate) struct Block<S> {
    data: Vec<S>,
    size_class: usize,
    pool: Weak<Pool<S>>,
}

/// A reference-counted array of numbers.
pub(crate) enum Buffer<S: Scalar> {
    /// The first `length` numbers of a block of a pool; no block for an empty buffer.
    Pooled { block: Option<Arc<Block<S>>>, length: usize },
    /// A range of an array that is shared read-only.
    Shared { values: Arc<Vec<S>>, start: usize, length: usize },
}

/// The size class for `length` numbers, and how many numbers it holds.
fn size_class_of(length: usize) -> (usize, usize) {
    let length = length.max(16);
    let octave = (length - 1).ilog2() as usize;
    let quarter = 1_usize << (octave - 2);
    let quarters = length.div_ceil(quarter);
    (4 * octave + quarters - 5, quarters * quarter)
}

impl<S: Scalar> Pool<S> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { free: Mutex::new((0..CLASSES).map(|_| Vec::new()).collect()) })
    }

    /// A buffer with arbitrary contents.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> Buffer<S> {
        let (size_class, capacity) = size_class_of(length);
        let reused = self.free.lock().unwrap_or_else(PoisonError::into_inner)[size_class].pop();
        let block = reused.unwrap_or_else(|| {
            Arc::new(Block { data: vec![S::ZERO; capacity], size_class, pool: Arc::downgrade(self) })
        });
        Buffer::Pooled { block: Some(block), length }
    }

    /// A buffer filled with one value.
    pub(crate) fn take_filled(self: &Arc<Self>, length: usize, value: S) -> Buffer<S> {
        let mut buffer = self.take(length);
        buffer.write().fill(value);
        buffer
    }

    /// A buffer with a copy of the values.
    pub(crate) fn take_copy(self: &Arc<Self>, values: &[S]) -> Buffer<S> {
        let mut buffer = self.take(values.len());
        buffer.write().copy_from_slice(values);
        buffer
    }

    fn put_back(&self, block: Arc<Block<S>>) {
        let size_class = block.size_class;
        self.free.lock().unwrap_or_else(PoisonError::into_inner)[size_class].push(block);
    }
}

impl<S: Scalar> Buffer<S> {
    /// The numbers, to write.
    ///
    /// # Panics
    /// If the buffer is shared: that is a bug in the executor.
    pub(crate) fn write(&mut self) -> &mut [S] {
        let Self::Pooled { block: Some(block), length } = self else { panic!("a weight is never written in a step") };
        let block = Arc::get_mut(block).expect("a buffer with several owners is not written");
        &mut block.data[..*length]
    }

    /// Whether [`write`](Self::write) may be called.
    pub(crate) fn has_one_owner(&self) -> bool {
        matches!(self, Self::Pooled { block: Some(block), .. } if Arc::strong_count(block) == 1)
    }
}

impl<S: Scalar> Deref for Buffer<S> {
    type Target = [S];
    fn deref(&self) -> &[S] {
        match self {
            Self::Pooled { block, length } => block.as_ref().map_or(&[], |block| &block.data[..*length]),
            Self::Shared { values, start, length } => &values[*start..*start + *length],
        }
    }
}

impl<S: Scalar> Clone for Buffer<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Pooled { block, length } => Self::Pooled { block: block.clone(), length: *length },
            Self::Shared { values, start, length } => {
                Self::Shared { values: Arc::clone(values), start: *start, length: *length }
            }
        }
    }
}

impl<S: Scalar> Drop for Buffer<S> {
    fn drop(&mut self) {
        if let Self::Pooled { block, .. } = self
            && let Some(block) = block.take()
            && Arc::strong_count(&block) == 1
            && let Some(pool) = block.pool.upgrade()
        {
            pool.put_back(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_hold_their_length_and_waste_at_most_a_quarter() {
        let mut last = 0;
        for length in 1..5000 {
            let (class, capacity) = size_class_of(length);
            assert!(
                capacity >= length && (length < 16 || capacity < length + length / 4 + 1),
                "{length} in {capacity}"
            );
            assert!(class >= last, "classes grow with length");
            last = class;
        }
    }

    #[test]
    fn a_buffer_is_reused_after_its_last_owner_drops_it() {
        let pool = Pool::<f32>::new();
        let first = pool.take_filled(100, 1.0);
        let address = first.as_ptr();
        let second = first.clone();
        drop(first);
        assert_ne!(pool.take(100).as_ptr(), address, "the buffer still has an owner");
        drop(second);
        let addresses = [pool.take(100), pool.take(100)].map(|buffer| buffer.as_ptr());
        assert!(addresses.contains(&address));
    }
}
