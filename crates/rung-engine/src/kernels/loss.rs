//! Cross-entropy of rows of logits against one class each.
//!
//! The forward pass keeps the log of each row's sum; the gradient is `softmax - one hot`, recomputed from it.

vectorised! {
    /// Losses, and the log of the sum of exponentials of each row.
    pub(crate) fn forward<S>(classes: usize, logits: &[S], targets: &[u32], kept: &mut [S], out: &mut [S]) {
        let rows = logits.chunks_exact(classes).zip(targets);
        for ((logits, &target), (kept, out)) in rows.zip(kept.iter_mut().zip(out)) {
            let highest = logits.iter().fold(S::LOWEST, |highest, &x| x.larger(highest));
            let mut sum = S::ZERO;
            for &x in logits {
                sum += (x - highest).exp();
            }
            *kept = highest + sum.ln();
            *out = *kept - logits[target as usize];
        }
    }

    /// Gradient to the logits.
    pub(crate) fn backward<S>(classes: usize, logits: &[S], targets: &[u32], kept: &[S], slope: &[S], out: &mut [S]) {
        let rows = logits.chunks_exact(classes).zip(out.chunks_exact_mut(classes)).zip(targets);
        for (((logits, out), &target), (&kept, &slope)) in rows.zip(kept.iter().zip(slope)) {
            for (out, &x) in out.iter_mut().zip(logits) {
                *out = (x - kept).exp() * slope;
            }
            out[target as usize] -= slope;
        }
    }
}
