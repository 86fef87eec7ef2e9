//! Matrix transposition.
//!
//! A matrix is transposed in blocks of eight by eight, small enough for registers. The compiler would move such a block one
//! number per cycle. Vector instructions that exchange halves, quarters and adjacent elements of two rows need three rounds for
//! the block. So this kernel is written with intrinsics, for single precision where AVX is available. (Products on AMX are the only
//! other kernel that is.)

use crate::scalar::Scalar;

/// Rows and columns of a block.
pub(crate) const SIDE: usize = 8;

/// A block of a matrix, row-major.
pub(crate) type Block<S> = [[S; SIDE]; SIDE];

/// Transposes a block, number by number.
#[inline(always)]
pub(crate) fn transpose_scalar<S: Scalar>(block: &Block<S>) -> Block<S> {
    std::array::from_fn(|column| std::array::from_fn(|row| block[row][column]))
}

/// Transposes a block in single precision, with AVX if available.
#[inline(always)]
pub(crate) fn transpose_f32(block: &Block<f32>) -> Block<f32> {
    #[cfg(target_arch = "x86_64")]
    if crate::kernels::vectorised::instruction_set() != crate::kernels::vectorised::InstructionSet::Baseline {
        #[expect(unsafe_code, reason = "the function uses instructions that the target does not guarantee")]
        // SAFETY: every instruction set above the baseline includes AVX.
        return unsafe { transpose_avx(block) };
    }
    transpose_scalar(block)
}

/// Transposes a block with AVX: interleaves adjacent elements, then quarters, then halves of rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
#[expect(unsafe_code, reason = "arrays are reinterpreted as vectors and back")]
fn transpose_avx(block: &Block<f32>) -> Block<f32> {
    use std::arch::x86_64::{
        __m256, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // SAFETY: eight vectors of eight numbers and an array of 64 numbers have the same size, and every bit pattern is valid.
    let rows: [__m256; SIDE] = unsafe { std::mem::transmute(*block) };
    let interleave = |index: usize| {
        (_mm256_unpacklo_ps(rows[index], rows[index + 1]), _mm256_unpackhi_ps(rows[index], rows[index + 1]))
    };
    let (pairs, mut quarters) = ([interleave(0), interleave(2), interleave(4), interleave(6)], rows);
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
        for first_row in (0..rows).step_by(SIDE) {
            let height = SIDE.min(rows - first_row);
            for first_column in (0..columns).step_by(SIDE) {
                let width = SIDE.min(columns - first_column);
                if height == SIDE && width == SIDE {
                    let block = std::array::from_fn(|row| {
                        let start = (first_row + row) * stride + first_column;
                        *x[start..start + SIDE].first_chunk().expect("a whole row")
                    });
                    for (column, transposed) in S::transpose_block(&block).iter().enumerate() {
                        let start = (first_column + column) * out_stride + first_row;
                        out[start..start + SIDE].copy_from_slice(transposed);
                    }
                    continue;
                }
                for row in 0..height {
                    for column in 0..width {
                        out[(first_column + column) * out_stride + first_row + row] = x[(first_row + row) * stride + first_column + column];
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
    fn avx_and_scalar_transposition_agree() {
        let block: Block<f32> = std::array::from_fn(|row| std::array::from_fn(|column| (10 * row + column) as f32));
        assert_eq!(transpose_f32(&block), transpose_scalar(&block));
        assert_eq!(transpose_f32(&block)[3][5].to_bits(), 53.0_f32.to_bits());
    }
}
