//! Buffers that come back.
//!
//! Fresh memory from the system is slow twice: the call, and the page faults of the first touch. A training step asks for the
//! same sizes again and again, so a [`Pool`] keeps every buffer that was dropped, by size class, and hands it out again. After
//! the first step nothing is asked of the system any more.
//!
//! A [`Buffer`] is a counted reference. It can be written while it has one owner, which is the case from the moment it is
//! taken until the tensor made from it is first cloned; a shared one is copied before writing. When the last owner drops it,
//! it goes home by itself. A weight is a buffer too, one that looks into the shared array of the model and is never written.

use crate::scalar::Scalar;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Size classes: four per power of two, so that at most a quarter of a buffer is unused.
const CLASSES: usize = 4 * 60;

/// The free buffers of one executor.
pub(crate) struct Pool<S> {
    free: Mutex<Vec<Vec<Arc<Block<S>>>>>,
}

pub(crate) struct Block<S> {
    data: Vec<S>,
    class: usize,
    home: Weak<Pool<S>>,
}

/// A counted reference to an array of numbers.
pub(crate) enum Buffer<S: Scalar> {
    /// Belongs to a pool.
    Pooled { block: Option<Arc<Block<S>>>, length: usize },
    /// Part of an array that is shared read-only.
    Shared { values: Arc<Vec<S>>, start: usize, length: usize },
}

/// The class that holds `length` numbers, and how many it holds.
fn class_of(length: usize) -> (usize, usize) {
    let length = length.max(16);
    let octave = (length - 1).ilog2() as usize;
    let quarter = 1_usize << (octave - 2);
    let steps = length.div_ceil(quarter);
    (4 * octave + steps - 5, steps * quarter)
}

impl<S: Scalar> Pool<S> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { free: Mutex::new((0..CLASSES).map(|_| Vec::new()).collect()) })
    }

    /// A buffer with whatever its last user left in it.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> Buffer<S> {
        let (class, capacity) = class_of(length);
        let found = self.free.lock().unwrap_or_else(PoisonError::into_inner)[class].pop();
        let block = found
            .unwrap_or_else(|| Arc::new(Block { data: vec![S::ZERO; capacity], class, home: Arc::downgrade(self) }));
        Buffer::Pooled { block: Some(block), length }
    }

    /// A buffer of one value.
    pub(crate) fn filled(self: &Arc<Self>, length: usize, value: S) -> Buffer<S> {
        let mut buffer = self.take(length);
        buffer.write().fill(value);
        buffer
    }

    /// A copy of the values.
    pub(crate) fn copied(self: &Arc<Self>, values: &[S]) -> Buffer<S> {
        let mut buffer = self.take(values.len());
        buffer.write().copy_from_slice(values);
        buffer
    }

    fn put_back(&self, block: Arc<Block<S>>) {
        let class = block.class;
        self.free.lock().unwrap_or_else(PoisonError::into_inner)[class].push(block);
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
    pub(crate) fn is_sole(&self) -> bool {
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
            && let Some(home) = block.home.upgrade()
        {
            home.put_back(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_promise() {
        let mut last = 0;
        for length in 1..5000 {
            let (class, capacity) = class_of(length);
            assert!(
                capacity >= length && (length < 16 || capacity < length + length / 4 + 1),
                "{length} in {capacity}"
            );
            assert!(class >= last, "classes grow with length");
            last = class;
        }
    }

    #[test]
    fn a_dropped_buffer_is_handed_out_again() {
        let pool = Pool::<f32>::new();
        let first = pool.filled(100, 1.0);
        let place = first.as_ptr();
        let second = first.clone();
        drop(first);
        assert_ne!(pool.take(100).as_ptr(), place, "it still has an owner");
        drop(second);
        let places = [pool.take(100), pool.take(100)].map(|buffer| buffer.as_ptr());
        assert!(places.contains(&place));
    }
}
