//! Element by element: functions of one number, of two, and sums of broadcasts.
//!
//! Two operands that broadcast are first brought to the fewest axes that describe them ([`Pairing`]): equal shapes become one
//! long row, a bias over a batch becomes two axes, and the inner loop is then a plain loop whose operands step by one or stand
//! still.

use crate::ops::{Binary, Unary};
use crate::scalar::Scalar;
use crate::shape::{MAX_RANK, Shape};

/// Functions of one element that have a kernel: the primitives and the fused ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementMap {
    Primitive(Unary),
    Silu,
    Gelu,
    EluPlusOne,
}

impl ElementMap {
    /// Whether the derivative is computed from the result rather than from the argument.
    pub(crate) fn keeps_result(self) -> bool {
        use Unary::{Exp, Relu, Sigmoid, Sqrt, Tanh};
        matches!(self, Self::EluPlusOne | Self::Primitive(Exp | Sigmoid | Tanh | Relu | Sqrt))
    }

    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Primitive(Unary::Exp) => "exp",
            Self::Primitive(Unary::Log) => "log",
            Self::Primitive(Unary::Sigmoid) => "sigmoid",
            Self::Primitive(Unary::Tanh) => "tanh",
            Self::Primitive(Unary::Softplus) => "softplus",
            Self::Primitive(Unary::Relu) => "relu",
            Self::Primitive(Unary::Sqrt) => "sqrt",
            Self::Primitive(Unary::Round) => "round",
            Self::Silu => "silu",
            Self::Gelu => "gelu",
            Self::EluPlusOne => "elu_plus_one",
        }
    }
}

/// Constants of the tanh form of GELU: `sqrt(2 / pi)` and the weight of the cube.
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
const GELU_CUBE: f64 = 0.044_715;

/// The argument of GELU's tanh, and its derivative.
#[inline(always)]
fn gelu_inner<S: Scalar>(x: S) -> (S, S) {
    let square = x * x;
    let inner = x * S::from_f64(GELU_SCALE) * square.mul_add(S::from_f64(GELU_CUBE), S::ONE);
    (inner, S::from_f64(GELU_SCALE) * square.mul_add(S::from_f64(3.0 * GELU_CUBE), S::ONE))
}

#[inline(always)]
fn each<S: Scalar>(x: &[S], out: &mut [S], function: impl Fn(S) -> S) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = function(x);
    }
}

#[inline(always)]
fn map_pairs<S: Scalar>(x: &[S], y: &[S], out: &mut [S], function: impl Fn(S, S) -> S) {
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        *out = function(x, y);
    }
}

vectorised! {
    /// `out = map(x)`.
    pub(crate) fn map<S>(kind: ElementMap, x: &[S], out: &mut [S]) {
        match kind {
            ElementMap::Primitive(Unary::Exp) => each(x, out, S::exp),
            ElementMap::Primitive(Unary::Log) => each(x, out, S::ln),
            ElementMap::Primitive(Unary::Sigmoid) => each(x, out, S::sigmoid),
            ElementMap::Primitive(Unary::Tanh) => each(x, out, S::tanh),
            ElementMap::Primitive(Unary::Softplus) => each(x, out, S::softplus),
            ElementMap::Primitive(Unary::Relu) => each(x, out, |x| if x > S::ZERO { x } else { x * S::ZERO }),
            ElementMap::Primitive(Unary::Sqrt) => each(x, out, S::sqrt),
            ElementMap::Primitive(Unary::Round) => each(x, out, S::round),
            ElementMap::Silu => each(x, out, |x| x * x.sigmoid()),
            ElementMap::EluPlusOne => each(x, out, |x| if x > S::ZERO { x + S::ONE } else { x.exp() }),
            ElementMap::Gelu => each(x, out, |x| x * (gelu_inner(x).0 * S::from_f64(2.0)).sigmoid()),
        }
    }

    /// `out = slope * map'(.)`, from the argument or the result, whichever [`ElementMap::keeps_result`] says was kept.
    pub(crate) fn map_back<S>(kind: ElementMap, kept: &[S], slope: &[S], out: &mut [S]) {
        let one = S::ONE;
        match kind {
            ElementMap::Primitive(Unary::Exp) => map_pairs(kept, slope, out, |y, s| s * y),
            ElementMap::Primitive(Unary::Log) => map_pairs(kept, slope, out, |x, s| s / x),
            ElementMap::Primitive(Unary::Sigmoid) => map_pairs(kept, slope, out, |y, s| s * y * (one - y)),
            ElementMap::Primitive(Unary::Tanh) => map_pairs(kept, slope, out, |y, s| s * (one - y * y)),
            ElementMap::Primitive(Unary::Softplus) => map_pairs(kept, slope, out, |x, s| s * x.sigmoid()),
            ElementMap::Primitive(Unary::Relu) => map_pairs(kept, slope, out, |y, s| if y > S::ZERO { s } else { S::ZERO }),
            ElementMap::Primitive(Unary::Sqrt) => map_pairs(kept, slope, out, |y, s| s / (y + y)),
            ElementMap::Primitive(Unary::Round) => out.fill(S::ZERO),
            ElementMap::Silu => map_pairs(kept, slope, out, |x, s| {
                let gate = x.sigmoid();
                s * gate * (x * (one - gate) + one)
            }),
            ElementMap::EluPlusOne => map_pairs(kept, slope, out, |y, s| if y > one { s } else { s * y }),
            ElementMap::Gelu => map_pairs(kept, slope, out, |x, s| {
                let (inner, turn) = gelu_inner(x);
                let gate = (inner * S::from_f64(2.0)).sigmoid();
                s * gate * (x * S::from_f64(2.0) * turn * (one - gate) + one)
            }),
        }
    }

    /// `out = silu(gate) * x`.
    pub(crate) fn silu_gate<S>(gate: &[S], x: &[S], out: &mut [S]) {
        map_pairs(gate, x, out, |gate, x| gate * gate.sigmoid() * x);
    }

    /// Gradients of [`silu_gate`].
    pub(crate) fn silu_gate_back<S>(gate: &[S], x: &[S], slope: &[S], to_gate: &mut [S], to_x: &mut [S]) {
        let operands = gate.iter().zip(x).zip(slope);
        for (((&gate, &x), &slope), (to_gate, to_x)) in operands.zip(to_gate.iter_mut().zip(to_x)) {
            let open = gate.sigmoid();
            *to_x = slope * gate * open;
            *to_gate = slope * x * open * (gate * (S::ONE - open) + S::ONE);
        }
    }

    /// `out = factor * x + offset`.
    pub(crate) fn affine<S>(x: &[S], factor: S, offset: S, out: &mut [S]) {
        each(x, out, |x| x.mul_add(factor, offset));
    }

    /// `out += x`.
    pub(crate) fn accumulate<S>(x: &[S], out: &mut [S]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out += x;
        }
    }

    /// One row of a binary operation; a side of length one stands still.
    fn row<S>(kind: Binary, left: &[S], right: &[S], out: &mut [S]) {
        #[inline(always)]
        fn run<S: Scalar>(left: &[S], right: &[S], out: &mut [S], function: impl Fn(S, S) -> S) {
            match (left, right) {
                (_, &[still]) => each(left, out, |x| function(x, still)),
                (&[still], _) => each(right, out, |x| function(still, x)),
                _ => map_pairs(left, right, out, function),
            }
        }
        match kind {
            Binary::Add => run(left, right, out, |x, y| x + y),
            Binary::Sub => run(left, right, out, |x, y| x - y),
            Binary::Mul => run(left, right, out, |x, y| x * y),
            Binary::Div => run(left, right, out, |x, y| x / y),
        }
    }

    /// Sum of a row.
    pub(crate) fn total<S>(x: &[S]) -> S {
        let mut lanes = [S::ZERO; 16];
        let mut blocks = x.chunks_exact(16);
        for block in blocks.by_ref() {
            for (lane, &x) in lanes.iter_mut().zip(block) {
                *lane += x;
            }
        }
        blocks.remainder().iter().copied().sum::<S>() + lanes.into_iter().sum::<S>()
    }
}

/// The fewest axes that describe two broadcasting operands and their result.
pub(crate) struct Pairing {
    extents: [usize; MAX_RANK],
    left: [usize; MAX_RANK],
    right: [usize; MAX_RANK],
    rank: usize,
}

impl Pairing {
    pub(crate) fn new(left: &Shape, right: &Shape, out: &Shape) -> Self {
        let mut pairing = Self { extents: [1; MAX_RANK], left: [0; MAX_RANK], right: [0; MAX_RANK], rank: 0 };
        let (left, right) = (strides(left, out), strides(right, out));
        for axis in 0..out.len() {
            if out[axis] != 1 {
                pairing.push(out[axis], left[axis], right[axis]);
            }
        }
        pairing.rank = pairing.rank.max(1);
        pairing
    }

    /// Adds an inner axis, merged into the one before it if both operands run on without a gap.
    fn push(&mut self, extent: usize, left: usize, right: usize) {
        let last = self.rank.saturating_sub(1);
        if self.rank > 0 && self.left[last] == left * extent && self.right[last] == right * extent {
            self.extents[last] *= extent;
            (self.left[last], self.right[last]) = (left, right);
            return;
        }
        (self.extents[self.rank], self.left[self.rank], self.right[self.rank]) = (extent, left, right);
        self.rank += 1;
    }

    /// Calls `visit(left offset, right offset, out offset)` for every inner row.
    fn rows(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let outer = self.rank - 1;
        let count: usize = self.extents[..outer].iter().product();
        for row in 0..count {
            let (mut rest, mut left, mut right) = (row, 0, 0);
            for axis in (0..outer).rev() {
                let index = rest % self.extents[axis];
                rest /= self.extents[axis];
                left += index * self.left[axis];
                right += index * self.right[axis];
            }
            visit(left, right, row * self.extents[outer]);
        }
    }

    /// Extent of the inner row, and how many elements of either side it covers.
    fn inner(&self) -> (usize, usize, usize) {
        let last = self.rank - 1;
        let extent = self.extents[last];
        let span = |stride: usize| if stride == 0 { 1 } else { extent };
        (extent, span(self.left[last]), span(self.right[last]))
    }
}

/// Row-major strides of a shape aligned to a larger one, zero where it repeats.
fn strides(shape: &Shape, out: &Shape) -> [usize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let (shift, mut step) = (out.len() - shape.len(), 1);
    for axis in (0..shape.len()).rev() {
        strides[axis + shift] = if shape[axis] == 1 { 0 } else { step };
        step *= shape[axis];
    }
    strides
}

/// `out = left (kind) right`, broadcasting.
pub(crate) fn binary<S: Scalar>(kind: Binary, pairing: &Pairing, left: &[S], right: &[S], out: &mut [S]) {
    let (extent, left_span, right_span) = pairing.inner();
    pairing.rows(|l, r, o| row(kind, &left[l..l + left_span], &right[r..r + right_span], &mut out[o..o + extent]));
}

/// Adds a tensor of shape `from` into one of shape `to` that it was broadcast from.
pub(crate) fn sum_to<S: Scalar>(from: &Shape, x: &[S], to: &Shape, out: &mut [S]) {
    let pairing = Pairing::new(to, from, from);
    let (extent, span, _) = pairing.inner();
    pairing.rows(|target, _, source| {
        let source = &x[source..source + extent];
        if span == 1 {
            out[target] += total(source);
        } else {
            accumulate(source, &mut out[target..target + span]);
        }
    });
}

/// Repeats a tensor of shape `from` up to shape `to`.
pub(crate) fn spread<S: Scalar>(from: &Shape, x: &[S], to: &Shape, out: &mut [S]) {
    let pairing = Pairing::new(from, to, to);
    let (extent, span, _) = pairing.inner();
    pairing.rows(|source, _, target| {
        let out = &mut out[target..target + extent];
        if span == 1 { out.fill(x[source]) } else { out.copy_from_slice(&x[source..source + span]) }
    });
}
