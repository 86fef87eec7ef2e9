//! The prompt lengths from which the published bounds apply, for comparison with ours.
//!
//! # Claim
//! H is the number of heads, d the width of a head, p the bits per number, L the number of hops and n that of tokens. With
//! K = (H d p L)^8 * 8^(2 L^2), m = K^(1 + 8^0 + .. + 8^(L-1)) and n_l = K^(4 * 8^(L-l-1)), L full layers do not solve
//! L-step function composition. Stated in closed form: they fail when H d p <= n^(2^(-4L)); and with L-1 full layers and up
//! to 2^(3 L^2) linear ones per block, when H d p <= n^(2^(-4L-2)).
//!
//! # Conditions
//! As in the papers: asymptotic, p-bit arithmetic, one causal forward pass.
//!
//! # Vacuous when
//! The required n exceeds any context length: for L = 2 and a small model it already has hundreds of bits.
//!
//! # Source
//! Chen, Peng and Wu (2412.02975); Ye et al. (2602.01763).

use super::checker::ProofCase;

/// log2 of the tokens from which the published proof applies, with the parameters that the papers choose; `heads_dim_bits` is H d p.
pub fn published_log2_tokens(heads_dim_bits: u128, hops: usize) -> f64 {
    let real_hops = hops as f64;
    let log_k = 8.0 * ((heads_dim_bits as f64).log2() + real_hops.log2()) + 3.0 * 2.0 * real_hops * real_hops;
    // Exponents of K in m and in the product of the n_l.
    let m: f64 = 1.0 + (0..hops).map(|l| 8_f64.powf(l as f64)).sum::<f64>();
    let n: f64 = (1..hops).map(|l| 4.0 * 8_f64.powf((hops - l - 1) as f64)).sum();
    log_k * (m + n)
}

/// log2 of the tokens from the closed form `H d p <= n^(2^-(4L))` (case 0) or `n^(2^-(4L+2))` (case 1).
pub fn closed_form_log2_tokens(heads_dim_bits: u128, hops: usize, case: ProofCase) -> f64 {
    let exponent = 4 * hops + if case == ProofCase::OneLayerFewer { 2 } else { 0 };
    (heads_dim_bits as f64).log2() * (exponent as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_lengths_for_two_hops_are_as_computed_by_hand() {
        for (heads_dim_bits, log2_tokens) in [(16, 896.0), (32, 1008.0), (64, 1120.0), (1 << 15, 2128.0)] {
            assert!((published_log2_tokens(heads_dim_bits, 2) - log2_tokens).abs() < 1e-6);
        }
        assert!((closed_form_log2_tokens(16, 2, ProofCase::OneLayerFewer) - 4096.0).abs() < 1e-9);
        assert!((closed_form_log2_tokens(16, 2, ProofCase::AsManyLayers) - 1024.0).abs() < 1e-9);
    }
}
