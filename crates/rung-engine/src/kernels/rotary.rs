//! Rotary position embedding: rotates the pair of channels `i` and `i + half` of a head. The gradient is rotated by the opposite
//! angles.

vectorised! {
    /// Rotates `x`, `[batch, time, heads, 2 * half]`, by the angles of each time, or by minus the angles if `inverse`.
    pub(crate) fn rotate<S>(time: usize, heads: usize, half: usize, x: &[S], cosine: &[S], sine: &[S], inverse: bool, out: &mut [S]) {
        let sign = if inverse { -S::ONE } else { S::ONE };
        for (head, (x, out)) in x.chunks_exact(2 * half).zip(out.chunks_exact_mut(2 * half)).enumerate() {
            let start = head / heads % time * half;
            let (cosine, sine) = (&cosine[start..start + half], &sine[start..start + half]);
            let ((left, right), (out_left, out_right)) = (x.split_at(half), out.split_at_mut(half));
            for index in 0..half {
                let (x, y, cosine, sine) = (left[index], right[index], cosine[index], sine[index] * sign);
                out_left[index] = x * cosine - y * sine;
                out_right[index] = y * cosine + x * sine;
            }
        }
    }
}
