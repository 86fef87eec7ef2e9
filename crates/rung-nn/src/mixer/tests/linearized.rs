//! Every mixer of [`CASES`] as a linear operator with frozen gates.

use super::*;
use crate::SimulatedPrecision;
use crate::linearized::LinearizedOps;

/// The output of a live input.
fn output(ops: &LinearizedOps<f64>, mixer: &Builtin, values: &[f64], time: usize) -> Vec<f64> {
    let x = ops.track(&ops.constant(&[1, time, WIDTH], values));
    let out = mixer.forward(ops, &x, None).0;
    ops.native().values(ops.tensor(&out))
}

#[test]
fn linearized_outputs_of_single_tokens_sum_to_the_output() {
    let time = 9;
    for precision in [SimulatedPrecision::default(), SimulatedPrecision::bits(10, 8.0)] {
        for &(text, positions) in CASES {
            let MixerWithWeights { mixer, weights } = build_with_precision::<f64>(text, positions, 4, precision);
            let ops = LinearizedOps::new(Native::new());
            ops.native().bind_frozen(&weights);
            let values = &input::<f64>(time, 1.0)[..time * WIDTH];
            let x = ops.native().constant(&[1, time, WIDTH], values);
            let expected = ops.native().values(&mixer.forward(ops.native(), &x, None).0);
            assert_close(&output(&ops, &mixer, values, time), &expected, 1e-9, &format!("{text}, recorded"));
            let replay = |values: &[f64]| {
                ops.rewind();
                output(&ops, &mixer, values, time)
            };
            assert_close(&replay(values), &expected, 1e-9, &format!("{text}, replayed"));
            let offset = replay(&vec![0.0; time * WIDTH]);
            let mut sum = offset.clone();
            let mut largest_effect = 0.0_f64;
            for token in 0..time {
                let mut single_token = vec![0.0; time * WIDTH];
                let row = token * WIDTH..(token + 1) * WIDTH;
                single_token[row.clone()].copy_from_slice(&values[row.clone()]);
                for (index, (value, offset)) in replay(&single_token).iter().zip(&offset).enumerate() {
                    assert!(
                        index >= row.start || value.to_bits() == offset.to_bits(),
                        "{text}: token {token} affects an earlier output"
                    );
                    sum[index] += value - offset;
                    largest_effect = largest_effect.max((value - offset).abs());
                }
            }
            assert_close(&sum, &expected, 1e-9, &format!("{text}, summed up"));
            // A gated recurrence writes a hyperbolic tangent, which is frozen.
            let is_frozen = matches!(resolve(text).name(), "none" | "gated");
            assert!(is_frozen || largest_effect > 1e-3, "{text}: everything is frozen");
        }
    }
}
