//! Rows and columns of a matrix exchanged.
//!
//! A matrix is transposed in blocks of eight by eight, small enough for registers. The compiler moves such a block number by number,
//! at one a cycle; the vector instructions that exchange halves, quarters and neighbours of two rows need three rounds for all
//! of it. So this is the one loop that is written with instructions by name, for single precision where AVX is available.

use crate::scalar::Scalar;

/// Side of a block.
pub(crate) const SIDE: usize = 8;

/// A block of a matrix, by rows.
pub(crate) type Block<S> = [[S; SIDE]; SIDE];

/// Exchanges rows and columns of a block, number by number.
#[inline(always)]
pub(crate) fn transpose_scalar<S: Scalar>(block: &Block<S>) -> Block<S> {
    std::array::from_fn(|column| std::array::from_fn(|row| block[row][column]))
}

/// Exchanges rows and columns of a block in single precision.
#[inline(always)]
pub(crate) fn transpose_f32(block: &Block<f32>) -> Block<f32> {
    #[cfg(target_arch = "x86_64")]
    if crate::kernels::vectorised::level() != crate::kernels::vectorised::InstructionSet::Baseline {
        #[expect(unsafe_code, reason = "a function built for more instructions than the target promises")]
        // SAFETY: every level above the baseline has AVX.
        return unsafe { transpose_avx(block) };
    }
    transpose_scalar(block)
}

/// The same with vectors: neighbours, then quarters, then halves.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
#[expect(unsafe_code, reason = "vectors are read and written as the arrays they are")]
fn transpose_avx(block: &Block<f32>) -> Block<f32> {
    use std::arch::x86_64::{
        __m256, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // SAFETY: eight vectors of eight numbers and an array of 64 numbers have the same bytes, and any bytes are numbers.
    let rows: [__m256; SIDE] = unsafe { std::mem::transmute(*block) };
    let pair = |index: usize| {
        (_mm256_unpacklo_ps(rows[index], rows[index + 1]), _mm256_unpackhi_ps(rows[index], rows[index + 1]))
    };
    let (pairs, mut quarters) = ([pair(0), pair(2), pair(4), pair(6)], rows);
    for half in 0..2 {
        let ((low, high), (next_low, next_high)) = (pairs[2 * half], pairs[2 * half + 1]);
        quarters[4 * half] = _mm256_shuffle_ps::<0b01_00_01_00>(low, next_low);
        quarters[4 * half + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(low, next_low);
        quarters[4 * half + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(high, next_high);
        quarters[4 * half + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(high, next_high);
    }
    let mut transposed = rows;
    for row in 0..SIDE / 2 {
        transposed[row] = _mm256_permute2f128_ps::<0x20>(quarters[row], quarters[row + 4]);
        transposed[row + 4] = _mm256_permute2f128_ps::<0x31>(quarters[row], quarters[row + 4]);
    }
    // SAFETY: as above.
    unsafe { std::mem::transmute(transposed) }
}

vectorised! {
    /// `out[j, i] = x[i, j]` for a matrix of `rows` by `columns` whose rows are `stride` apart.
    pub(crate) fn transpose<S>(x: &[S], rows: usize, columns: usize, stride: usize, out: &mut [S], out_stride: usize) {
        for top in (0..rows).step_by(SIDE) {
            let height = SIDE.min(rows - top);
            for side in (0..columns).step_by(SIDE) {
                let width = SIDE.min(columns - side);
                if height == SIDE && width == SIDE {
                    let block = std::array::from_fn(|row| {
                        let start = (top + row) * stride + side;
                        *x[start..start + SIDE].first_chunk().expect("a whole row")
                    });
                    for (column, transposed) in S::transpose_block(&block).iter().enumerate() {
                        let start = (side + column) * out_stride + top;
                        out[start..start + SIDE].copy_from_slice(transposed);
                    }
                    continue;
                }
                for row in 0..height {
                    for column in 0..width {
                        out[(side + column) * out_stride + top + row] = x[(top + row) * stride + side + column];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_numbers_transpose_a_block_alike() {
        let block: Block<f32> = std::array::from_fn(|row| std::array::from_fn(|column| (10 * row + column) as f32));
        assert_eq!(transpose_f32(&block), transpose_scalar(&block));
        assert_eq!(transpose_f32(&block)[3][5].to_bits(), 53.0_f32.to_bits());
    }
}
