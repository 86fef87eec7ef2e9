//! One more token costs a bounded-state mixer the same at every position.
//!
//! Not by the clock: the state has as many numbers, and a step takes as much memory, after 8192 tokens as after 256. The step
//! runs on an executor that has no buffers yet, so that every one it needs is asked of the system and counted. A test binary
//! of its own, and of one test, because it replaces the allocator with one that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use rung_bench::exponents::{BenchLayer, POSITIONS};
use rung_engine::Ops as _;
use rung_nn::State;
use rung_theory::stack::MixerReach;

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Numbers in the state after so many tokens, and bytes that the next step asks for.
fn measure(layer: &BenchLayer, position: usize) -> (usize, usize) {
    let long = layer.executor();
    let state = layer.state(&long, position);
    let fresh = layer.executor();
    let copy = |tensor: &_| fresh.constant(&long.shape(tensor), &long.values(tensor));
    let tensors = state.tensors.each_ref().map(|part| part.as_ref().map(copy));
    let moved = State { seen: state.seen, tensors, shared: None };
    // What is kept from call to call, such as tables of angles, is there after a first step elsewhere.
    layer.step(&long, &state);
    let before = BYTES.load(Ordering::Relaxed);
    layer.step(&fresh, &moved);
    (state.numbers(&long), BYTES.load(Ordering::Relaxed) - before)
}

#[test]
fn bounded_mixers_step_at_the_same_cost_everywhere() {
    let (mut bounded, mut growing) = (0, 0);
    for name in rung_nn::mixer::NAMES {
        let layer = BenchLayer::new(name).unwrap();
        let [early, late] = POSITIONS.map(|position| measure(&layer, position));
        let facts = layer.plan().facts();
        if matches!(facts.reach, MixerReach::Full(_)) || facts.cache_per_token > 0 {
            assert!(late.0 > early.0 && late.1 > early.1, "{name}: a cache that does not grow, {early:?} and {late:?}");
            growing += 1;
            continue;
        }
        for (numbers, position) in [early.0, late.0].into_iter().zip(POSITIONS) {
            assert_eq!(numbers as u128, facts.kept(position as u128), "{name}");
        }
        if facts.log2_context.is_some() {
            // Its levels are as many as the text has reached.
            assert!(late.0 > early.0, "{name}");
            continue;
        }
        assert_eq!(early, late, "{name}: numbers of state and bytes of a step");
        bounded += 1;
    }
    // Full attention shows that the counts can differ.
    assert!(bounded >= 8 && growing >= 1, "{bounded} mixers of bounded state, {growing} others");
}
