//! The sizes that the bounds certify today, for real models and for models that can be trained in minutes.
//!
//! # Claim
//! The tables below are computed when they are printed: each line is the smallest instance that the checker certifies, by whichever
//! theorem needs the fewest tokens. *Within 128k* and *within 1M* say whether a prompt of that many tokens can hold it.
//!
//! # Conditions
//! Those of the theorems: one forward pass, any weights, p bits per number, sums from left to right. A line claims that some tables
//! of that length are impossible, not all.
//!
//! # Vacuous when
//! A line exceeds every context length: then nothing is proved about such a model in practice. This holds for most real models with
//! two or more full layers.
//!
//! # Source
//! The theorems of `docs/proof.md`; the commands `rung bound` and `rung sparse` compute single lines.

use std::fmt::Write as _;

use super::input::log2;
use super::sparse::BlockSparseInstance;
use super::stack_bounds::StackBounds;
use crate::stack::{Defaults, MessageSizeConvention, Plan};

/// Heads, `head_dim`, and bits per number of a model.
type ModelSizes = (u64, u64, u64);

/// The smallest certified instance of one stack and model size.
#[derive(Clone, Debug)]
pub struct CertifiedRow {
    /// The stack, as typed.
    pub stack: &'static str,
    /// The number of hops that is proved impossible.
    pub hops: usize,
    /// Heads, `head_dim`, and bits per number.
    pub sizes: ModelSizes,
    /// Entries of the first table; none if no certificate was found.
    pub first_table_entries: Option<String>,
    /// Base-two logarithm of the tokens of the smallest certified prompt.
    pub log2_tokens: Option<f64>,
}

/// Stacks for models of real size, with hops: one without a full layer, two with one, and one of two full layers alone.
const REAL_STACKS: &[(&str, usize)] =
    &[("gdn*24", 1), ("linear*3 full", 2), ("window{size=128} full", 2), ("full full", 2)];
const REAL_SIZES: &[ModelSizes] = &[(8, 64, 8), (8, 64, 16), (16, 128, 16), (32, 128, 16)];

/// Stacks that can be trained on a laptop, with hops.
const SMALL_STACKS: &[(&str, usize)] =
    &[("linear", 1), ("linear full", 2), ("window{size=2} full", 2), ("full full", 2)];
const SMALL_SIZES: &[ModelSizes] = &[(1, 4, 4), (1, 8, 4), (1, 8, 8), (1, 16, 8), (2, 8, 8), (2, 16, 8)];

/// The smallest certified prompt of a stack.
pub fn certified_row(
    stack: &'static str,
    hops: usize,
    sizes: ModelSizes,
    convention: MessageSizeConvention,
) -> CertifiedRow {
    let (heads, head_dim, bits) = sizes;
    let defaults = Defaults { heads, head_dim, bits, ..Defaults::default() };
    let plan = Plan::parse(stack, &defaults).ok();
    let smallest = plan.and_then(|plan| StackBounds::new(&plan, convention).lower_bound(hops).into_certificate());
    CertifiedRow {
        stack,
        hops,
        sizes,
        first_table_entries: smallest.as_ref().map(|smallest| smallest.certificate.m.to_string()),
        log2_tokens: smallest.map(|smallest| log2(&smallest.accepted.tokens)),
    }
}

/// The rows of all combinations of stacks and sizes, stack by stack.
fn rows(
    stacks: &[(&'static str, usize)],
    sizes: &[ModelSizes],
    convention: MessageSizeConvention,
) -> Vec<CertifiedRow> {
    let combinations = stacks.iter().flat_map(|&(stack, hops)| sizes.iter().map(move |&sizes| (stack, hops, sizes)));
    combinations.map(|(stack, hops, sizes)| certified_row(stack, hops, sizes, convention)).collect()
}

/// Rows of models of real sizes, messages counted as in the papers.
pub fn real_sizes() -> Vec<CertifiedRow> {
    rows(REAL_STACKS, REAL_SIZES, MessageSizeConvention::Paper)
}

/// Rows of models that can be trained in minutes, messages counted by their registers.
pub fn trainable_sizes() -> Vec<CertifiedRow> {
    rows(SMALL_STACKS, SMALL_SIZES, MessageSizeConvention::Register)
}

/// The tables as text.
pub fn text() -> String {
    let mut text = "\n# Real sizes (2*H*d*p)\n".to_owned();
    write_rows(&mut text, &real_sizes(), |row| {
        let within = |log2: f64| if row.log2_tokens.is_some_and(|tokens| tokens <= log2) { "yes" } else { "no" };
        format!("within 128k: {}, within 1M: {}", within(17.0), within(20.0))
    });
    text.push_str("\n# Trainable sizes (H*(d+1)*p)\n");
    write_rows(&mut text, &trainable_sizes(), |row| {
        let tokens = row.log2_tokens.map_or(f64::NAN, f64::exp2);
        if tokens < 1e6 { format!("a prompt of {tokens:.0} tokens") } else { String::new() }
    });
    text.push_str("\n# Block-sparse layers on 2-Sum (values modulo 65,536, 16 blocks picked)\n");
    for (block, log2_context) in [(64_u64, 17_u32), (64, 20), (128, 17), (512, 17), (512, 20)] {
        let blocks = (1_u64 << log2_context) / block - 1;
        let sparse = BlockSparseInstance {
            block_tokens: block,
            selected_blocks: 16,
            summary_bits: 0,
            modulus: 65_536,
            other_blocks: blocks,
            shared_summary_map: false,
        };
        let needed = sparse.verdict().ok().and_then(|verdict| verdict.needed_bits);
        let needed = needed.map_or_else(|| "not certified at any size".to_owned(), |bits| format!("{bits} bits"));
        let _ = writeln!(text, "  blocks of {block:<4} at 2^{log2_context} tokens: a summary needs at least {needed}");
    }
    text
}

fn write_rows(text: &mut String, rows: &[CertifiedRow], remark: impl Fn(&CertifiedRow) -> String) {
    for row in rows {
        let (heads, head_dim, bits) = row.sizes;
        let hops = if row.hops == 1 { "1 hop" } else { "2 hops" };
        let tokens = match (&row.first_table_entries, row.log2_tokens) {
            (Some(entries), Some(log2)) => format!("from 2^{log2:<6.2} tokens, m = {entries:<10} {}", remark(row)),
            _ => "not certified".to_owned(),
        };
        let _ = writeln!(text, "  {:<22} {hops:<6} {heads:>2} x {head_dim:<3} {bits:>2} bits  {tokens}", row.stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_certified_and_larger_sizes_need_longer_prompts() {
        let small = certified_row("linear", 1, (1, 4, 4), MessageSizeConvention::Register);
        let large = certified_row("linear", 1, (1, 8, 8), MessageSizeConvention::Register);
        assert!(small.log2_tokens.unwrap() < large.log2_tokens.unwrap());
        // 80 bits of state hold no table of more than 18 entries: 19 log2 19 > 80.
        assert_eq!(small.first_table_entries.as_deref(), Some("19"));
        assert!(
            certified_row("linear full", 1, (1, 4, 4), MessageSizeConvention::Register).first_table_entries.is_none()
        );
    }
}
