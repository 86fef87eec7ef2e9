//! Where the bounds reach: which sizes are certified today, for real models and for models that can be trained in minutes.
//!
//! # Claim
//! The tables below are computed when they are printed: each line is the smallest instance that the checker certifies, by whichever
//! theorem needs the fewest tokens. *Within 128k* and *within 1M* say whether a prompt of that many tokens can hold it.
//!
//! # Conditions
//! Those of the theorems: one forward pass, any weights, p bits per number, sums from left to right. A line is about some tables
//! of that length, not about all.
//!
//! # Vacuous when
//! A line lies beyond every context: then nothing is proved of such a model at its size. Most of real models with two or more full
//! layers are in that case.
//!
//! # Source
//! The theorems of `docs/proof.md`; the commands `rung bound` and `rung sparse` give each line on its own.

use std::fmt::Write as _;

use super::input::log2;
use super::sparse::Sparse;
use super::stack_bounds::StackBounds;
use crate::stack::{Convention, Defaults, Plan};

/// One certified size.
#[derive(Clone, Debug)]
pub struct Line {
    /// The stack.
    pub stack: &'static str,
    /// Hops that are out of its reach.
    pub hops: usize,
    /// Heads, their width, and bits per number.
    pub sizes: (u64, u64, u64),
    /// Entries of the first table; none if no certificate was found.
    pub entries: Option<String>,
    /// Base-two logarithm of the tokens of the smallest certified prompt.
    pub log2_tokens: Option<f64>,
}

/// Stacks of real sizes: one look-up without a full layer, two with one, two with two full layers and nothing else.
const REAL: &[(&str, usize)] = &[("gdn*24", 1), ("linear*3 full", 2), ("window{size=128} full", 2), ("full full", 2)];
const REAL_SIZES: &[(u64, u64, u64)] = &[(8, 64, 8), (8, 64, 16), (16, 128, 16), (32, 128, 16)];

/// Stacks that a laptop trains.
const SMALL: &[(&str, usize)] = &[("linear", 1), ("linear full", 2), ("window{size=2} full", 2), ("full full", 2)];
const SMALL_SIZES: &[(u64, u64, u64)] = &[(1, 4, 4), (1, 8, 4), (1, 8, 8), (1, 16, 8), (2, 8, 8), (2, 16, 8)];

/// The smallest certified prompt of a stack.
pub fn line(stack: &'static str, hops: usize, sizes: (u64, u64, u64), convention: Convention) -> Line {
    let (heads, head_dim, bits) = sizes;
    let defaults = Defaults { heads, head_dim, bits, ..Defaults::default() };
    let plan = Plan::parse(stack, &defaults).ok();
    let found = plan.and_then(|plan| StackBounds::new(&plan, convention).lower_bound(hops).into_certificate());
    Line {
        stack,
        hops,
        sizes,
        entries: found.as_ref().map(|found| found.certificate.m.to_string()),
        log2_tokens: found.map(|found| log2(&found.accepted.tokens)),
    }
}

/// Every line of a group, stack by stack.
fn lines(stacks: &[(&'static str, usize)], sizes: &[(u64, u64, u64)], convention: Convention) -> Vec<Line> {
    let each = stacks.iter().flat_map(|&(stack, hops)| sizes.iter().map(move |&sizes| (stack, hops, sizes)));
    each.map(|(stack, hops, sizes)| line(stack, hops, sizes, convention)).collect()
}

/// Lines of models of real sizes, messages counted as in the papers.
pub fn real_sizes() -> Vec<Line> {
    lines(REAL, REAL_SIZES, Convention::Paper)
}

/// Lines of models that can be trained in minutes, messages counted by their registers.
pub fn trainable_sizes() -> Vec<Line> {
    lines(SMALL, SMALL_SIZES, Convention::Register)
}

/// The tables, for people.
pub fn text() -> String {
    let mut text = "\n# Real sizes (2*H*d*p)\n".to_owned();
    write_lines(&mut text, &real_sizes(), |line| {
        let within = |log2: f64| if line.log2_tokens.is_some_and(|tokens| tokens <= log2) { "yes" } else { "no" };
        format!("within 128k: {}, within 1M: {}", within(17.0), within(20.0))
    });
    text.push_str("\n# Trainable sizes (H*(d+1)*p)\n");
    write_lines(&mut text, &trainable_sizes(), |line| {
        let tokens = line.log2_tokens.map_or(f64::NAN, f64::exp2);
        if tokens < 1e6 { format!("a prompt of {tokens:.0} tokens") } else { String::new() }
    });
    text.push_str("\n# Block-sparse layers on 2-Sum (values modulo 65,536, 16 blocks picked)\n");
    for (block, log2_context) in [(64_u64, 17_u32), (64, 20), (128, 17), (512, 17), (512, 20)] {
        let blocks = (1_u64 << log2_context) / block - 1;
        let sparse = Sparse { block, select: 16, bits: 0, values: 65_536, blocks, same_map: false };
        let needed = sparse.verdict().ok().and_then(|verdict| verdict.needed);
        let needed = needed.map_or_else(|| "not certified at any size".to_owned(), |bits| format!("{bits} bits"));
        let _ = writeln!(text, "  blocks of {block:<4} at 2^{log2_context} tokens: a summary needs at least {needed}");
    }
    text
}

fn write_lines(text: &mut String, lines: &[Line], remark: impl Fn(&Line) -> String) {
    for line in lines {
        let (heads, head, bits) = line.sizes;
        let hops = if line.hops == 1 { "1 hop" } else { "2 hops" };
        let tokens = match (&line.entries, line.log2_tokens) {
            (Some(entries), Some(log2)) => format!("from 2^{log2:<6.2} tokens, m = {entries:<10} {}", remark(line)),
            _ => "not certified".to_owned(),
        };
        let _ = writeln!(text, "  {:<22} {hops:<6} {heads:>2} x {head:<3} {bits:>2} bits  {tokens}", line.stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_certified_and_larger_sizes_need_longer_prompts() {
        let small = line("linear", 1, (1, 4, 4), Convention::Register);
        let large = line("linear", 1, (1, 8, 8), Convention::Register);
        assert!(small.log2_tokens.unwrap() < large.log2_tokens.unwrap());
        // 80 bits of state hold no table of more than 18 entries: 19 log2 19 > 80.
        assert_eq!(small.entries.as_deref(), Some("19"));
        assert!(line("linear full", 1, (1, 4, 4), Convention::Register).entries.is_none());
    }
}
