//! Every mixer of the table as a linear operator, by gates held still.

use super::*;
use crate::Precision;
use crate::linearized::LinearizedOps;

/// Output for some values, live.
fn output(ops: &LinearizedOps<f64>, mixer: &Builtin, values: &[f64], time: usize) -> Vec<f64> {
    let x = ops.track(&ops.constant(&[1, time, WIDTH], values));
    let out = mixer.forward(ops, &x, None).0;
    ops.native().values(ops.tensor(&out))
}

#[test]
fn parts_of_an_input_give_parts_that_sum_up_to_the_output() {
    let time = 9;
    for precision in [Precision::default(), Precision::bits(10, 8.0)] {
        for &(text, positions) in CASES {
            let Built { mixer, weights } = build_within::<f64>(text, positions, 4, precision);
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
            let mut moved = 0.0_f64;
            for token in 0..time {
                let mut part = vec![0.0; time * WIDTH];
                let row = token * WIDTH..(token + 1) * WIDTH;
                part[row.clone()].copy_from_slice(&values[row.clone()]);
                for (at, (value, offset)) in replay(&part).iter().zip(&offset).enumerate() {
                    assert!(
                        at >= row.start || value.to_bits() == offset.to_bits(),
                        "{text}: token {token} reaches back"
                    );
                    sum[at] += value - offset;
                    moved = moved.max((value - offset).abs());
                }
            }
            assert_close(&sum, &expected, 1e-9, &format!("{text}, summed up"));
            // What a gated recurrence writes is a hyperbolic tangent, which is held still.
            let still = matches!(resolve(text).name(), "none" | "gated");
            assert!(still || moved > 1e-3, "{text}: everything is held still");
        }
    }
}
