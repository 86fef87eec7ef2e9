//! Products on several threads give the bits of one thread: every element is one sum, taken in the same order.

use rung_engine::{Native, Ops, Scalar};

fn numbers<S: Scalar>(count: usize, step: f64) -> Vec<S> {
    (0..count).map(|at| S::of((at as f64 * step).sin())).collect()
}

fn products<S: Scalar + PartialEq>(threads: usize) {
    let (plain, threaded) = (Native::<S>::new(), Native::<S>::with_threads(threads));
    // Few rows (columns are shared out), whole tiles, tiles and a rest, and so little work that no thread is woken.
    for rows in [1, 3, 4, 5, 6, 11, 12, 13, 64, 97] {
        for (inner, columns) in [(64, 576), (131, 259), (8, 16), (1031, 33)] {
            let (left, right) = (numbers::<S>(rows * inner, 0.37), numbers::<S>(inner * columns, 0.73));
            for flip in [false, true] {
                let run = |ops: &Native<S>| {
                    let shape = if flip { [columns, inner] } else { [inner, columns] };
                    let (left, right) = (ops.constant(&[rows, inner], &left), ops.constant(&shape, &right));
                    ops.values(&ops.product(&left, false, &right, flip))
                };
                let same = run(&plain) == run(&threaded);
                assert!(same, "{rows} x {inner} times {inner} x {columns}, transposed: {flip}, on {threads} threads");
            }
        }
    }
}

#[test]
fn products_on_threads_have_the_same_bits() {
    for threads in [2, 3, 8] {
        products::<f32>(threads);
        products::<f64>(threads);
    }
}
