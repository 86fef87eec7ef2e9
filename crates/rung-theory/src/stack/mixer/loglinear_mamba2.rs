//! Log-linear Mamba-2: a state for every power-of-two span of the past.
//!
//! The recent past is kept finely and the distant past coarsely, in a Fenwick tree of states; a learned weight per level
//! combines them. The state grows with the logarithm of the sequence length, so a bound holds up to a stated length only.
//!
//! # Recurrence
//! Before token t, the states of levels 0..b (b the lowest set bit of t) merge into level b+1; all levels decay; level
//! 0 becomes `B_t (dt_t x_t)^T`; `y_t = sum_l lambda_t^(l) (S_t^(l))^T C_t + D_h x_t`, `lambda = softplus(L . W x)`
//! per head and level. Everything else as Mamba-2.
//!
//! # Parallel form
//! `O = (Q K^T . L . Lambda) V`, `Lambda_ts = lambda_t^(level(t,s))`, `level(t,s)` the bit length of `t xor s`.
//!
//! # State
//! Mamba-2's state for each level in use, `log2(n) + 1` after n tokens and at most `levels`; and
//! Mamba-2's convolution.
//!
//! # Reduces to
//! Mamba-2 when every lambda is 1.
//!
//! # Reference implementation
//! A second implementation after the authors' code: no difference known for one group. For several the norm is per
//! group, as in mamba_ssm; `fla`'s layer normalises all channels together. The authors' 15 levels, for 16,384 tokens, are
//! the default.
//!
//! # Source
//! Guo et al. 2025 (2506.04761).

use super::{ForwardingSizes, MixerKind, Reference, family, log_linear, mamba2_facts, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "loglinear-mamba2",
    aliases: &["log-linear-mamba2"],
    options: &[
        size("head", "width of a head", |options| (2 * options.defaults.width()).min(64)),
        size("heads", "heads", |options| 2 * options.defaults.width() / options.integer("head")),
        size("state", "state indices per channel", |_| 128),
        size("groups", "groups of heads that share B and C", |_| 1),
        size("conv", "kernel size of the convolution", |_| 4),
        size("levels", "levels of the hierarchy: prompts of up to 2^(levels-1) tokens", |_| 15),
    ],
    facts: |options| log_linear(&mamba2_facts(options), "heads", options),
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: family::mamba2_forwarding,
        table_rows_option: Some("state"),
    }),
    reference: Reference::Reimplementation("the authors' code"),
    ..MixerKind::DEFAULT
};
