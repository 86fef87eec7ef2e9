//! Products in single precision on AMX, the matrix unit of some x86 processors.
//!
//! AMX multiplies tiles of bf16 numbers and adds the products in f32, at sixteen times the speed of f32 vectors. A bf16 number has 8
//! significant bits and an f32 number 24, so every f32 number is the sum of three bf16 numbers, its high, middle and low part. Of the
//! nine products of parts of two numbers, the six largest are computed; the other three are below 2^-21 of the product, and on average
//! below its rounding error in f32. So the result is as accurate as that of f32 vectors, at more than twice their speed.
//!
//! Operands are packed into panels of 32 rows of the left matrix, or 32 columns of the right one. A panel is a list of chunks of 32
//! terms of the inner dimension, each with two tiles for each of the three parts. In a tile, terms `t` and `t + 16` of a chunk form a pair, which AMX
//! multiplies and adds in one step. Which terms form a pair is free as long as both operands agree; these two are in different vectors,
//! so packing needs no shuffles.
//!
//! Rust has no stable functions for AMX yet, so its instructions are written as assembly.

use super::{AMX_PANEL, Matrix, MatrixMut, Operand, WriteMode, grow_to};
use crate::kernels::transpose::transpose;
use crate::kernels::vectorised::{InstructionSet, instruction_set};
use std::arch::asm;
use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps,
    _mm512_fmadd_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_srli_epi32, _mm512_storeu_ps, _mm512_sub_ps,
};
use std::cell::RefCell;
use std::ops::Range;

/// Rows of a tile, and pairs of bf16 numbers in a row.
const TILE_SIDE: usize = 16;
/// Terms of the inner dimension in a tile: two for each pair.
const CHUNK_TERMS: usize = 2 * TILE_SIDE;
/// Rows of the left operand, or columns of the right one, that are multiplied at once: two tiles.
const PANEL_WIDTH: usize = AMX_PANEL;
/// The most terms of a block of the inner dimension.
const BLOCK_TERMS: usize = 256;
/// The most numbers of a block of the left operand.
const LEFT_BLOCK_SIZE: usize = 1 << 14;
/// The most numbers of a block of the right operand: 1.5 MB as three bf16 numbers each, which stays in the L2 cache. (Machines with AMX
/// have an L2 cache of 2 MB or more.)
const RIGHT_BLOCK_SIZE: usize = 1 << 18;
/// The bits of an f32 number that are the bf16 number below it in magnitude.
const BF16_BITS: i32 = -0x1_0000;

/// Sixteen rows of sixteen pairs of bf16 numbers, the first of a pair in the low half of the bits of an f32.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Tile([[f32; TILE_SIDE]; TILE_SIDE]);

/// A chunk of a panel: for each of the three parts of its numbers, two tiles.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Chunk([[Tile; 2]; 3]);

/// The sums of two tiles of rows by two tiles of columns.
#[repr(C, align(64))]
struct Sums([[[[f32; TILE_SIDE]; TILE_SIDE]; 2]; 2]);

/// Whether AMX computes a product of these sizes faster than vectors: all must fill tiles well.
pub(crate) fn is_suitable(rows: usize, columns: usize, inner: usize) -> bool {
    instruction_set() == InstructionSet::Amx && rows >= PANEL_WIDTH && columns >= PANEL_WIDTH && inner >= CHUNK_TERMS
}

/// Buffers that each thread keeps, for the panels of a block.
struct Buffers {
    left: Vec<Chunk>,
    right: Vec<Chunk>,
}

/// `out = factor * left right`, or that added to `out`.
pub(crate) fn product(
    out: &mut MatrixMut<'_, f32>,
    mode: WriteMode,
    factor: f32,
    left: Matrix<'_, f32>,
    right: Matrix<'_, f32>,
) {
    thread_local! {
        static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers { left: Vec::new(), right: Vec::new() }) };
    }
    BUFFERS.with_borrow_mut(|buffers| {
        let _tiles = TileConfiguration::load();
        #[expect(unsafe_code, reason = "the function uses instructions that the target does not guarantee")]
        // SAFETY: `is_suitable` detected AMX, and machines with AMX have AVX-512, which `instruction_set` detected too.
        unsafe {
            multiply_blocks(out, mode, factor, left, right, buffers);
        }
    });
}

/// The product, a block of terms and of columns at a time.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
fn multiply_blocks(
    out: &mut MatrixMut<'_, f32>,
    mode: WriteMode,
    factor: f32,
    left: Matrix<'_, f32>,
    right: Matrix<'_, f32>,
    buffers: &mut Buffers,
) {
    let ([rows, columns], inner) = (out.extents, left.extents[1]);
    let block_chunks = inner.min(BLOCK_TERMS).div_ceil(CHUNK_TERMS);
    let panels =
        |extent: usize, size: usize| extent.div_ceil(PANEL_WIDTH).min(size / CHUNK_TERMS / PANEL_WIDTH / block_chunks);
    let (left_count, right_count) = (panels(rows, LEFT_BLOCK_SIZE), panels(columns, RIGHT_BLOCK_SIZE));
    // After the last panel there is one chunk more, which `multiply_panels` loads and does not use.
    let left_buffer = grow_to(&mut buffers.left, left_count * block_chunks + 1, Chunk::ZERO);
    let right_buffer = grow_to(&mut buffers.right, right_count * block_chunks + 1, Chunk::ZERO);
    let mut sums = Sums([[[[0.0; TILE_SIDE]; TILE_SIDE]; 2]; 2]);
    for terms in blocks(0..inner, BLOCK_TERMS) {
        let chunks = terms.len().div_ceil(CHUNK_TERMS);
        let add = mode == WriteMode::Add || terms.start > 0;
        for block_columns in blocks(0..columns, right_count * PANEL_WIDTH) {
            pack(right.rows(terms.clone()).columns(block_columns.clone()), Operand::Right, right_buffer);
            for block_rows in blocks(0..rows, left_count * PANEL_WIDTH) {
                pack(left.rows(block_rows.clone()).columns(terms.clone()).t(), Operand::Left, left_buffer);
                for (index, rows) in blocks(block_rows, PANEL_WIDTH).enumerate() {
                    let left_panel = &left_buffer[index * chunks..];
                    for (index, columns) in blocks(block_columns.clone(), PANEL_WIDTH).enumerate() {
                        let right_panel = &right_buffer[index * chunks..];
                        prefetch(out, rows.clone(), columns.clone());
                        multiply_panels(left_panel, right_panel, chunks, &mut sums);
                        store(&sums, out, rows.clone(), columns, factor, add);
                    }
                }
            }
        }
    }
}

/// A range in blocks of at most `size`.
fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size).map(move |start| start..end.min(start + size))
}

/// Packs a block of terms by columns of the right operand, or by rows of the left one, into panels one after another. Whatever is
/// contiguous is read in order: a panel at a time along its terms, or 32 terms at a time of all panels.
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
fn pack(x: Matrix<'_, f32>, operand: Operand, panels: &mut [Chunk]) {
    let chunks = x.extents[0].div_ceil(CHUNK_TERMS);
    let counts = [x.extents[1].div_ceil(PANEL_WIDTH), chunks];
    let [outer, inner] = if x.strides[0] == 1 { counts } else { [counts[1], counts[0]] };
    let mut buffer = [0.0; CHUNK_TERMS * PANEL_WIDTH];
    for first in 0..outer {
        for second in 0..inner {
            let [panel, chunk] = if x.strides[0] == 1 { [first, second] } else { [second, first] };
            let range = |index: usize, size: usize, end: usize| index * size..end.min((index + 1) * size);
            let columns = range(panel, PANEL_WIDTH, x.extents[1]);
            let part = x.rows(range(chunk, CHUNK_TERMS, x.extents[0])).columns(columns);
            // In tiles of the left operand, terms are contiguous; in those of the right operand, columns are.
            let part = match operand {
                Operand::Left => part.t().with_contiguous_rows(&mut buffer).t(),
                Operand::Right => part.with_contiguous_rows(&mut buffer),
            };
            pack_chunk(part, &mut panels[panel * chunks + chunk]);
        }
    }
}

impl<'a> Matrix<'a, f32> {
    /// The same matrix with contiguous rows: itself, or a copy in the buffer.
    fn with_contiguous_rows(self, buffer: &'a mut [f32]) -> Self {
        let [rows, columns] = self.extents;
        if self.strides[1] == 1 {
            return self;
        }
        transpose(self.data, columns, rows, self.strides[1], buffer, columns);
        Matrix::new(buffer, rows, columns, columns)
    }
}

/// Packs at most 32 terms by 32 columns, padded with zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
fn pack_chunk(x: Matrix<'_, f32>, chunk: &mut Chunk) {
    let [terms, columns] = x.extents;
    let [high, middle, low] = &mut chunk.0;
    for (half, ((high, middle), low)) in high.iter_mut().zip(middle).zip(low).enumerate() {
        let first = columns.min(half * TILE_SIDE);
        pack_tiles(x, terms, first..columns.min(first + TILE_SIDE), [high, middle, low]);
    }
}

/// Splits a part of a matrix of at most 32 terms by 16 columns into three tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
fn pack_tiles(x: Matrix<'_, f32>, terms: usize, columns: Range<usize>, [high, middle, low]: [&mut Tile; 3]) {
    let [term_stride, column_stride] = x.strides;
    let data = &x.data[(columns.start * column_stride).min(x.data.len())..];
    for index in 0..TILE_SIDE {
        // Where the two vectors of a row of pairs start, and how many of their numbers lie inside the matrix.
        let (starts, counts) = if term_stride == 1 {
            let count = if index < columns.len() { terms } else { 0 };
            ([0, TILE_SIDE].map(|term| index * column_stride + term), [count, count.saturating_sub(TILE_SIDE)])
        } else {
            let pair = [index, index + TILE_SIDE];
            (pair.map(|term| term * term_stride), pair.map(|term| if term < terms { columns.len() } else { 0 }))
        };
        let (first, second) = (load(data, starts[0], counts[0]), load(data, starts[1], counts[1]));
        let pairs = pair_parts(first, second);
        store_vector(pairs[0], &mut high.0[index]);
        store_vector(pairs[1], &mut middle.0[index]);
        store_vector(pairs[2], &mut low.0[index]);
    }
}

/// At most sixteen of the `count` numbers from `start` on, padded with zeros.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(data: &[f32], start: usize, count: usize) -> __m512 {
    if count == 0 {
        return _mm512_setzero_ps();
    }
    let count = count.min(TILE_SIDE);
    let numbers = &data[start..start + count];
    let mask = u16::MAX >> (TILE_SIDE - count);
    #[expect(unsafe_code, reason = "a slice is read as a vector")]
    // SAFETY: the mask selects `count` numbers, which the slice has; others are not read.
    unsafe {
        _mm512_maskz_loadu_ps(mask, numbers.as_ptr())
    }
}

/// The three parts of sixteen pairs of numbers: bf16 numbers whose sum is the number, each with 8 of its 24 significant bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair_parts(first: __m512, second: __m512) -> [__m512i; 3] {
    let bf16_bits = _mm512_set1_epi32(BF16_BITS);
    let (mut first, mut second) = (first, second);
    let mut pairs = [_mm512_setzero_si512(); 3];
    for pairs in &mut pairs {
        let first_part = _mm512_and_si512(_mm512_castps_si512(first), bf16_bits);
        let second_part = _mm512_and_si512(_mm512_castps_si512(second), bf16_bits);
        first = _mm512_sub_ps(first, _mm512_castsi512_ps(first_part));
        second = _mm512_sub_ps(second, _mm512_castsi512_ps(second_part));
        *pairs = _mm512_or_si512(_mm512_srli_epi32::<16>(first_part), second_part);
    }
    pairs
}

/// Writes a vector to sixteen numbers.
#[inline]
#[target_feature(enable = "avx512f")]
fn store_vector(vector: __m512i, out: &mut [f32; TILE_SIDE]) {
    #[expect(unsafe_code, reason = "an array is written as a vector")]
    // SAFETY: the array has the size of the vector.
    unsafe {
        _mm512_storeu_ps(out.as_mut_ptr(), _mm512_castsi512_ps(vector));
    }
}

impl Chunk {
    const ZERO: Self = Self([[Tile([[0.0; TILE_SIDE]; TILE_SIDE]); 2]; 3]);
}

/// The shapes of AMX's tile registers on this thread; all have sixteen rows of 64 bytes.
struct TileConfiguration;

impl TileConfiguration {
    /// Configures the registers until the value is dropped.
    fn load() -> Self {
        /// The layout that `ldtilecfg` reads: palette, first row, reserved, bytes per row and rows of each register.
        #[repr(C, align(64))]
        struct Layout {
            palette: u8,
            reserved: [u8; 15],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
        row_bytes[..8].fill(64);
        rows[..8].fill(TILE_SIDE as u8);
        let layout = Layout { palette: 1, reserved: [0; 15], row_bytes, rows };
        #[expect(unsafe_code, reason = "there is no other way to AMX")]
        // SAFETY: `is_suitable` detected AMX; the layout is a valid one of 64 bytes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const layout, options(nostack, readonly, preserves_flags));
        }
        Self
    }
}

impl Drop for TileConfiguration {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "there is no other way to AMX")]
        // SAFETY: it resets the tile registers, which only this module uses.
        unsafe {
            asm!("tilerelease", options(nostack, nomem, preserves_flags));
        }
    }
}

/// The product of a panel of rows and a panel of columns of the same depth.
#[inline]
fn multiply_panels(left: &[Chunk], right: &[Chunk], chunks: usize, sums: &mut Sums) {
    assert!(chunks > 0 && left.len().min(right.len()) > chunks, "a panel has {chunks} chunks, and one more follows it");
    // Sums are in tmm0 to tmm3, tiles of rows in tmm4 and tmm5, tiles of columns in tmm6 and tmm7. Parts are multiplied in an
    // order in which all but one are loaded only once: high by low, high by middle, high by high, low by high, middle by high,
    // middle by middle. A tile is loaded as soon as its register is free, one or two products before it is needed: a processor whose
    // other hardware thread is busy has no spare registers to do so by itself. So the first tiles of the next chunk are loaded, too.
    #[expect(unsafe_code, reason = "there is no other way to AMX")]
    // SAFETY: the registers are configured (`product`); every load reads a tile of one of the first `chunks + 1` chunks of either panel,
    // which `Chunk` lays out as six tiles of 1024 bytes, and every store writes one of the four tiles of `sums`.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "tileloadd tmm4, [{left} + {row}]",
            "tileloadd tmm6, [{right} + {row} + 4096]",
            "tileloadd tmm5, [{left} + {row} + 1024]",
            "tileloadd tmm7, [{right} + {row} + 5120]",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm6, [{right} + {row} + 2048]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{right} + {row} + 3072]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm6, [{right} + {row}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{right} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{left} + {row} + 4096]",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm5, [{left} + {row} + 5120]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{left} + {row} + 2048]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm5, [{left} + {row} + 3072]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm6, [{right} + {row} + 2048]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{right} + {row} + 3072]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm6, [{right} + {row} + 10240]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{left} + {row} + 6144]",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{right} + {row} + 11264]",
            "tileloadd tmm5, [{left} + {row} + 7168]",
            "add {left}, 6144",
            "add {right}, 6144",
            "dec {chunks}",
            "jnz 2b",
            "tilestored [{sums} + {row}], tmm0",
            "tilestored [{sums} + {row} + 1024], tmm1",
            "tilestored [{sums} + {row} + 2048], tmm2",
            "tilestored [{sums} + {row} + 3072], tmm3",
            left = inout(reg) left.as_ptr() => _,
            right = inout(reg) right.as_ptr() => _,
            chunks = inout(reg) chunks => _,
            sums = in(reg) sums,
            row = in(reg) 64_usize,
            options(nostack),
        );
    }
}

/// Asks for the part of the result that is written after the product, which hides the time to fetch it.
#[inline]
fn prefetch(out: &MatrixMut<'_, f32>, rows: Range<usize>, columns: Range<usize>) {
    for row in rows {
        let start = row * out.stride + columns.start;
        for first in (start..start + columns.len()).step_by(TILE_SIDE) {
            #[expect(unsafe_code, reason = "an address is computed")]
            // SAFETY: the address is that of a number of the result; a prefetch reads nothing.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(out.data.as_ptr().add(first).cast());
            }
        }
    }
}

/// Stores the sums of a panel of rows and a panel of columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(sums: &Sums, out: &mut MatrixMut<'_, f32>, rows: Range<usize>, columns: Range<usize>, factor: f32, add: bool) {
    let factor = _mm512_set1_ps(factor);
    for (index, row) in rows.enumerate() {
        let out = &mut out.data[row * out.stride + columns.start..row * out.stride + columns.end];
        for (half, out) in out.chunks_mut(TILE_SIDE).enumerate() {
            let sums = load(&sums.0[index / TILE_SIDE][half][index % TILE_SIDE], 0, TILE_SIDE);
            let old = if add { load(out, 0, out.len()) } else { _mm512_setzero_ps() };
            let new = if add { _mm512_fmadd_ps(sums, factor, old) } else { _mm512_mul_ps(sums, factor) };
            let mask = u16::MAX >> (TILE_SIDE - out.len());
            #[expect(unsafe_code, reason = "a slice is written as a vector")]
            // SAFETY: the mask selects as many numbers as the slice has; others are not written.
            unsafe {
                _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::product::product as product_of_any_size;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count)
            .map(|index| ((index * 7919 + seed * 31) as f32 * 0.731).sin() * 1.7_f32.powf((index % 9) as f32))
            .collect()
    }

    /// Largest difference from the product in double precision, relative to the largest number of that.
    fn error(multiply: impl Fn(&mut MatrixMut<'_, f32>, Matrix<'_, f32>, Matrix<'_, f32>), sizes: [usize; 3]) -> f64 {
        let [rows, columns, inner] = sizes;
        let (left, right) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
        let mut out = vec![0.0; rows * columns];
        let (left_view, right_view) =
            (Matrix::new(&left, rows, inner, inner), Matrix::new(&right, inner, columns, columns));
        multiply(&mut MatrixMut::new(&mut out, rows, columns, columns), left_view, right_view);
        let [left, right] = [&left, &right].map(|x| x.iter().copied().map(f64::from).collect::<Vec<_>>());
        let mut exact = vec![0.0; rows * columns];
        let (left_view, right_view) =
            (Matrix::new(&left, rows, inner, inner), Matrix::new(&right, inner, columns, columns));
        let out_view = &mut MatrixMut::new(&mut exact, rows, columns, columns);
        product_of_any_size(out_view, WriteMode::Overwrite, 1.0, left_view, right_view);
        let largest = exact.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        let differences = out.iter().zip(&exact).map(|(&out, &exact)| (f64::from(out) - exact).abs());
        differences.fold(0.0, f64::max) / largest
    }

    #[test]
    fn three_parts_are_the_number() {
        if instruction_set() != InstructionSet::Amx {
            return;
        }
        for x in [0.0, 1.0, -1.0, 3.0e-20, 16_777_215.0, -0.333_333_34, f32::MAX, f32::MIN_POSITIVE * 65536.0] {
            #[expect(unsafe_code, reason = "the function uses instructions that the target does not guarantee")]
            // SAFETY: machines with AMX have AVX-512.
            let parts = unsafe { split_one(x) };
            assert_eq!(parts.iter().sum::<f32>().to_bits(), x.to_bits(), "{x}: {parts:?}");
        }
    }

    #[target_feature(enable = "avx512f")]
    fn split_one(x: f32) -> [f32; 3] {
        let pairs = pair_parts(_mm512_set1_ps(x), _mm512_setzero_ps());
        let mut parts = [0.0; 3];
        for (part, pairs) in parts.iter_mut().zip(pairs) {
            let mut numbers = [0.0; TILE_SIDE];
            store_vector(pairs, &mut numbers);
            *part = f32::from_bits(numbers[0].to_bits() << 16);
        }
        parts
    }

    #[test]
    fn is_as_accurate_as_vectors() {
        if instruction_set() != InstructionSet::Amx {
            return;
        }
        for sizes in [[32, 32, 32], [64, 96, 256], [100, 33, 70], [257, 300, 1000], [40, 1100, 520]] {
            let on_amx = error(|out, left, right| product(out, WriteMode::Overwrite, 1.0, left, right), sizes);
            let on_vectors = error(
                |out, left, right| {
                    let mut space = vec![0.0; super::super::Panels::<f32>::size(sizes[2], sizes[1])];
                    let panels = super::super::Panels::pack(right, &mut space);
                    super::super::product_with_panels(out, WriteMode::Overwrite, 1.0, left, panels, 0..sizes[2]);
                },
                sizes,
            );
            assert!(on_amx < 1.5 * on_vectors + 1e-7, "{sizes:?}: {on_amx:e} on AMX, {on_vectors:e} on vectors");
        }
    }
}
