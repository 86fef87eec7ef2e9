//! One more token costs a bounded-state mixer the same at every position.
//!
//! Measured without a clock: the state has as many numbers, and a step allocates as much memory, after 8192 tokens as after 256. The
//! step runs on an executor with an empty pool, so that every buffer is allocated and counted. A test binary of its own, with one
//! test, because it replaces the allocator with one that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use rung_bench::exponents::{BenchLayer, POSITIONS};
use rung_engine::Ops as _;
use rung_nn::State;
use rung_theory::stack::MixerReach;

struct CountingAllocator;

static BYTES: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Numbers in the state after `position` tokens, and bytes that the next step allocates.
fn measure(layer: &BenchLayer, position: usize) -> (usize, usize) {
    let prefill = layer.executor();
    let state = layer.state_after(&prefill, position);
    let decode = layer.executor();
    let copy = |tensor: &_| decode.constant(&prefill.shape(tensor), &prefill.values(tensor));
    let tensors = state.tensors.each_ref().map(|part| part.as_ref().map(copy));
    let copied_state = State { past_len: state.past_len, tensors, shared: None };
    // A first step fills what the layer caches between calls, such as tables of angles.
    layer.step(&prefill, &state);
    let before = BYTES.load(Ordering::Relaxed);
    layer.step(&decode, &copied_state);
    (state.element_count(&prefill), BYTES.load(Ordering::Relaxed) - before)
}

#[test]
fn bounded_mixers_step_at_the_same_cost_at_every_position() {
    let (mut bounded, mut growing) = (0, 0);
    for name in rung_nn::mixer::NAMES {
        let layer = BenchLayer::new(name).unwrap();
        let [early, late] = POSITIONS.map(|position| measure(&layer, position));
        let facts = layer.mixer().facts();
        if matches!(facts.reach, MixerReach::Full(_)) || facts.cache_per_token > 0 {
            assert!(late.0 > early.0 && late.1 > early.1, "{name}: a cache that does not grow, {early:?} and {late:?}");
            growing += 1;
            continue;
        }
        for (numbers, position) in [early.0, late.0].into_iter().zip(POSITIONS) {
            assert_eq!(numbers as u128, facts.memory_size(position as u128), "{name}");
        }
        if facts.log2_context.is_some() {
            // The number of levels grows with the sequence length.
            assert!(late.0 > early.0, "{name}");
            continue;
        }
        assert_eq!(early, late, "{name}: numbers of state and bytes of a step");
        bounded += 1;
    }
    // Full attention shows that these counts can differ.
    assert!(bounded >= 8 && growing >= 1, "{bounded} mixers of bounded state, {growing} others");
}
