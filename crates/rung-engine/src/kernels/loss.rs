//! Cross-entropy of rows of logits against one class each.
//!
//! The forward pass stores the log of each row's sum of exponentials; the gradient, `softmax - one hot`, is computed from it.

vectorised! {
    /// Computes the loss and the log-sum of each row.
    pub(crate) fn forward<S>(classes: usize, logits: &[S], targets: &[u32], log_sums: &mut [S], out: &mut [S]) {
        let rows = logits.chunks_exact(classes).zip(targets);
        for ((logits, &target), (log_sum, out)) in rows.zip(log_sums.iter_mut().zip(out)) {
            let maximum = logits.iter().fold(S::LOWEST, |maximum, &x| x.larger(maximum));
            let mut sum = S::ZERO;
            for &x in logits {
                sum += (x - maximum).exp();
            }
            *log_sum = maximum + sum.ln();
            *out = *log_sum - logits[target as usize];
        }
    }

    /// Computes the gradient of the logits.
    pub(crate) fn backward<S>(classes: usize, logits: &[S], targets: &[u32], log_sums: &[S], grad_out: &[S], out: &mut [S]) {
        let rows = logits.chunks_exact(classes).zip(out.chunks_exact_mut(classes)).zip(targets);
        for (((logits, out), &target), (&log_sum, &grad_out)) in rows.zip(log_sums.iter().zip(grad_out)) {
            for (out, &x) in out.iter_mut().zip(logits) {
                *out = (x - log_sum).exp() * grad_out;
            }
            out[target as usize] -= grad_out;
        }
    }
}
