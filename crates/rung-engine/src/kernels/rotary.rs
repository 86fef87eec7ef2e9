//! Rotary positions: channel `i` and channel `i + half` of a head turn together. The gradient turns the other way.

vectorised! {
    /// Turns rows of `heads * 2 * half` by the angles of their time, by minus the angles if `back`.
    pub(crate) fn rotate<S>(time: usize, heads: usize, half: usize, x: &[S], cosine: &[S], sine: &[S], back: bool, out: &mut [S]) {
        let sign = if back { -S::ONE } else { S::ONE };
        for (head, (x, out)) in x.chunks_exact(2 * half).zip(out.chunks_exact_mut(2 * half)).enumerate() {
            let row = head / heads % time * half;
            let (cosine, sine) = (&cosine[row..row + half], &sine[row..row + half]);
            let ((left, right), (out_left, out_right)) = (x.split_at(half), out.split_at_mut(half));
            for index in 0..half {
                let (l, r, c, s) = (left[index], right[index], cosine[index], sine[index] * sign);
                out_left[index] = l * c - r * s;
                out_right[index] = r * c + l * s;
            }
        }
    }
}
