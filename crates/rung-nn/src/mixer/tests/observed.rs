//! An observed executor runs the same kernels as the executor inside, for every mixer of [`CASES`].

use std::cell::Cell;

use rung_engine::{AttentionInputs, BlockAttention};

use super::*;
use crate::observer::{ObservedOps, OpInterceptor};

/// Counts the calls of attention.
#[derive(Default)]
struct Counter {
    dense: Cell<usize>,
    blocks: Cell<usize>,
}

impl<S: Scalar> OpInterceptor<S> for Counter {
    fn attention(&self, ops: &Native<S>, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        self.dense.set(self.dense.get() + 1);
        ops.attention(inputs)
    }
    fn block_attention(&self, ops: &Native<S>, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        self.blocks.set(self.blocks.get() + 1);
        ops.block_attention(inputs)
    }
}

#[test]
fn observed_executor_gives_bit_identical_outputs() {
    let time = 23;
    let values = input::<f32>(time, 1.0);
    let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<u64>>();
    for &(text, positions) in CASES {
        let MixerWithWeights { mixer, weights } = build::<f32>(text, positions, 4);
        let (native, counter) = (Native::new(), Counter::default());
        let ops = ObservedOps { native: Native::new(), interceptor: &counter };
        native.bind_frozen(&weights);
        ops.native.bind_frozen(&weights);
        let expected = run(&native, &mixer, &native.constant(&[BATCH, time, WIDTH], &values), &[time]).0;
        let actual = run(&ops, &mixer, &ops.constant(&[BATCH, time, WIDTH], &values), &[time]).0;
        assert_eq!(bits(actual), bits(expected), "{text}");
        let is_sparse = matches!(resolve(text).name(), "moba" | "nsa" | "dsa");
        assert_eq!(counter.blocks.get() > 0, is_sparse, "{text}: calls of block attention");
        assert!(resolve(text).name() != "full" || counter.dense.get() == 1, "{text}: calls of attention");
    }
}
