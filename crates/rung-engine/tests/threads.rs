//! Products and attention on several threads give the bits of one thread: every element is one sum, taken in the same order.

use rung_engine::{AttentionInputs, AttentionMask, Native, Ops, Scalar};

fn numbers<S: Scalar>(count: usize, step: f64) -> Vec<S> {
    (0..count).map(|index| S::from_f64((index as f64 * step).sin())).collect()
}

fn assert_same_products<S: Scalar + PartialEq>(threads: usize) {
    let (single, threaded) = (Native::<S>::new(), Native::<S>::with_threads(threads));
    // Few rows (each thread takes columns), complete tiles, tiles and a remainder, and work for one thread only.
    for rows in [1, 3, 4, 5, 6, 11, 12, 13, 64, 97] {
        for (inner, columns) in [(64, 576), (131, 259), (8, 16), (1031, 33)] {
            let (left, right) = (numbers::<S>(rows * inner, 0.37), numbers::<S>(inner * columns, 0.73));
            for transpose in [false, true] {
                let run = |ops: &Native<S>| {
                    let shape = if transpose { [columns, inner] } else { [inner, columns] };
                    let (left, right) = (ops.constant(&[rows, inner], &left), ops.constant(&shape, &right));
                    ops.values(&ops.product(&left, false, &right, transpose))
                };
                let same = run(&single) == run(&threaded);
                assert!(
                    same,
                    "{rows} x {inner} times {inner} x {columns}, transposed: {transpose}, on {threads} threads"
                );
            }
        }
    }
}

#[test]
fn products_on_threads_have_the_same_bits() {
    for threads in [2, 3, 8] {
        assert_same_products::<f32>(threads);
        assert_same_products::<f64>(threads);
    }
}

#[test]
fn attention_on_threads_has_the_same_bits() {
    let (heads, kv_heads, width, value_width) = (6, 2, 16, 24);
    for (queries, keys) in [(1, 300), (1, 900), (96, 96), (131, 131), (257, 300), (512, 512)] {
        let numbers = |heads: usize, count: usize, width: usize, step: f64| numbers::<f32>(count * heads * width, step);
        let (query, key) = (numbers(heads, queries, width, 0.37), numbers(kv_heads, keys, width, 0.73));
        let value = numbers(kv_heads, keys, value_width, 0.11);
        for mask in [AttentionMask::Causal, AttentionMask::Window(50), AttentionMask::None] {
            let run = |ops: &Native<f32>| {
                ops.values(&ops.attention(&AttentionInputs {
                    query: &ops.constant(&[1, queries, heads, width], &query),
                    key: &ops.constant(&[1, keys, kv_heads, width], &key),
                    value: &ops.constant(&[1, keys, kv_heads, value_width], &value),
                    bias: None,
                    mask,
                    scale: 0.25,
                }))
            };
            let expected = run(&Native::new());
            assert!(expected.iter().any(|x| *x != 0.0));
            for threads in [2, 3, 7] {
                assert!(run(&Native::with_threads(threads)) == expected, "{queries} of {keys}, {mask:?}, {threads}");
            }
        }
    }
}
