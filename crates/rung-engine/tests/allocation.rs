//! After the first steps, a training step allocates no memory.
//!
//! A test binary of its own, because it replaces the allocator with one that counts.

mod common;

use common::Model;
use rung_engine::{AdamWConfig, DataParallel, Native};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct CountingAllocator;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const STEPS: usize = 200;

#[test]
fn steps_after_the_first_allocate_nothing() {
    let mut model = Model::new();
    let mut workers = DataParallel::new(2, 4);
    let mut optimizer = AdamWConfig::default().init();
    let mut step = || {
        let outcome =
            workers.compute_gradient(&model.weights, 16, |ops: &Native<f32>, items| model.loss(ops, items, 16));
        assert!(outcome.is_ok());
        optimizer.update(&mut model.weights, workers.gradient(), 1.0);
    };
    for _ in 0..10 {
        step();
    }
    let before = (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    for _ in 0..STEPS {
        step();
    }
    let (calls, bytes) = (CALLS.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1);
    assert_eq!(calls, 0, "{calls} allocations of {bytes} bytes in {STEPS} steps");
}
