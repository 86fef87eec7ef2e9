//! Element-wise functions of one or two tensors, with broadcasting, and sums over broadcast axes.
//!
//! For two operands that broadcast, adjacent axes are merged where possible ([`BroadcastLayout`]): equal shapes become one long
//! row, a bias over a batch becomes two axes. In the innermost loop each operand has stride 1 or is a single number.

use crate::ops::{Binary, Unary};
use crate::scalar::Scalar;
use crate::shape::{MAX_RANK, Shape};

/// Functions of one number that have a kernel: the primitives and the fused activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementMap {
    Primitive(Unary),
    Silu,
    Gelu,
    EluPlusOne,
}

impl ElementMap {
    /// Whether the derivative is computed from the result rather than from the argument.
    pub(crate) fn derivative_uses_result(self) -> bool {
        use Unary::{Exp, Relu, Sigmoid, Sqrt, Tanh};
        matches!(self, Self::EluPlusOne | Self::Primitive(Exp | Sigmoid | Tanh | Relu | Sqrt))
    }

    /// The name of the operation in profiles and error messages.
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

/// `sqrt(2 / pi)`, in the tanh form of GELU.
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
/// Coefficient of the cube, in the tanh form of GELU.
const GELU_CUBE: f64 = 0.044_715;

/// The argument of GELU's tanh, and its derivative.
#[inline(always)]
fn gelu_argument<S: Scalar>(x: S) -> (S, S) {
    let square = x * x;
    let argument = x * S::from_f64(GELU_SCALE) * square.mul_add(S::from_f64(GELU_CUBE), S::ONE);
    (argument, S::from_f64(GELU_SCALE) * square.mul_add(S::from_f64(3.0 * GELU_CUBE), S::ONE))
}

#[inline(always)]
fn map_each<S: Scalar>(x: &[S], out: &mut [S], function: impl Fn(S) -> S) {
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
            ElementMap::Primitive(Unary::Exp) => map_each(x, out, S::exp),
            ElementMap::Primitive(Unary::Log) => map_each(x, out, S::ln),
            ElementMap::Primitive(Unary::Sigmoid) => map_each(x, out, S::sigmoid),
            ElementMap::Primitive(Unary::Tanh) => map_each(x, out, S::tanh),
            ElementMap::Primitive(Unary::Softplus) => map_each(x, out, S::softplus),
            ElementMap::Primitive(Unary::Relu) => map_each(x, out, |x| if x > S::ZERO { x } else { x * S::ZERO }),
            ElementMap::Primitive(Unary::Sqrt) => map_each(x, out, S::sqrt),
            ElementMap::Primitive(Unary::Round) => map_each(x, out, S::round),
            ElementMap::Silu => map_each(x, out, |x| x * x.sigmoid()),
            ElementMap::EluPlusOne => map_each(x, out, |x| if x > S::ZERO { x + S::ONE } else { x.exp() }),
            ElementMap::Gelu => map_each(x, out, |x| x * (gelu_argument(x).0 * S::from_f64(2.0)).sigmoid()),
        }
    }

    /// `out = grad_out * map'(x)`, where `saved` is the result if [`ElementMap::derivative_uses_result`], otherwise the argument.
    pub(crate) fn map_backward<S>(kind: ElementMap, saved: &[S], grad_out: &[S], out: &mut [S]) {
        let one = S::ONE;
        match kind {
            ElementMap::Primitive(Unary::Exp) => map_pairs(saved, grad_out, out, |y, grad| grad * y),
            ElementMap::Primitive(Unary::Log) => map_pairs(saved, grad_out, out, |x, grad| grad / x),
            ElementMap::Primitive(Unary::Sigmoid) => map_pairs(saved, grad_out, out, |y, grad| grad * y * (one - y)),
            ElementMap::Primitive(Unary::Tanh) => map_pairs(saved, grad_out, out, |y, grad| grad * (one - y * y)),
            ElementMap::Primitive(Unary::Softplus) => map_pairs(saved, grad_out, out, |x, grad| grad * x.sigmoid()),
            ElementMap::Primitive(Unary::Relu) => map_pairs(saved, grad_out, out, |y, grad| if y > S::ZERO { grad } else { S::ZERO }),
            ElementMap::Primitive(Unary::Sqrt) => map_pairs(saved, grad_out, out, |y, grad| grad / (y + y)),
            ElementMap::Primitive(Unary::Round) => out.fill(S::ZERO),
            ElementMap::Silu => map_pairs(saved, grad_out, out, |x, grad| {
                let gate = x.sigmoid();
                grad * gate * (x * (one - gate) + one)
            }),
            ElementMap::EluPlusOne => map_pairs(saved, grad_out, out, |y, grad| if y > one { grad } else { grad * y }),
            ElementMap::Gelu => map_pairs(saved, grad_out, out, |x, grad| {
                let (argument, derivative) = gelu_argument(x);
                let gate = (argument * S::from_f64(2.0)).sigmoid();
                grad * gate * (x * S::from_f64(2.0) * derivative * (one - gate) + one)
            }),
        }
    }

    /// `out = silu(gate) * x`.
    pub(crate) fn silu_gate<S>(gate: &[S], x: &[S], out: &mut [S]) {
        map_pairs(gate, x, out, |gate, x| gate * gate.sigmoid() * x);
    }

    /// Gradients of [`silu_gate`].
    pub(crate) fn silu_gate_backward<S>(gate: &[S], x: &[S], grad_out: &[S], grad_gate: &mut [S], grad_x: &mut [S]) {
        let operands = gate.iter().zip(x).zip(grad_out);
        for (((&gate, &x), &grad_out), (grad_gate, grad_x)) in operands.zip(grad_gate.iter_mut().zip(grad_x)) {
            let sigmoid = gate.sigmoid();
            *grad_x = grad_out * gate * sigmoid;
            *grad_gate = grad_out * x * sigmoid * (gate * (S::ONE - sigmoid) + S::ONE);
        }
    }

    /// `out = factor * x + offset`.
    pub(crate) fn affine<S>(x: &[S], factor: S, offset: S, out: &mut [S]) {
        map_each(x, out, |x| x.mul_add(factor, offset));
    }

    /// `out += x`.
    pub(crate) fn accumulate<S>(x: &[S], out: &mut [S]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out += x;
        }
    }

    /// One row of a binary operation; an operand of length 1 is used for the complete row.
    fn binary_row<S>(kind: Binary, left: &[S], right: &[S], out: &mut [S]) {
        #[inline(always)]
        fn run<S: Scalar>(left: &[S], right: &[S], out: &mut [S], function: impl Fn(S, S) -> S) {
            match (left, right) {
                (_, &[constant]) => map_each(left, out, |x| function(x, constant)),
                (&[constant], _) => map_each(right, out, |x| function(constant, x)),
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

    /// Sum of a row, with 16 partial sums.
    pub(crate) fn sum_row<S>(x: &[S]) -> S {
        let mut lanes = [S::ZERO; 16];
        let mut chunks = x.chunks_exact(16);
        for chunk in chunks.by_ref() {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += x;
            }
        }
        chunks.remainder().iter().copied().sum::<S>() + lanes.into_iter().sum::<S>()
    }
}

/// Extents of the result of a broadcast, and strides of both operands, with as few axes as possible.
pub(crate) struct BroadcastLayout {
    extents: [usize; MAX_RANK],
    /// Strides of the left operand, 0 along axes where it is broadcast.
    left: [usize; MAX_RANK],
    /// Strides of the right operand, likewise.
    right: [usize; MAX_RANK],
    rank: usize,
}

impl BroadcastLayout {
    pub(crate) fn new(left: &Shape, right: &Shape, out: &Shape) -> Self {
        let mut layout = Self { extents: [1; MAX_RANK], left: [0; MAX_RANK], right: [0; MAX_RANK], rank: 0 };
        let (left, right) = (strides(left, out), strides(right, out));
        for axis in 0..out.len() {
            if out[axis] != 1 {
                layout.push(out[axis], left[axis], right[axis]);
            }
        }
        layout.rank = layout.rank.max(1);
        layout
    }

    /// Adds an innermost axis, merged into the axis before it if both operands are contiguous over the two.
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
    fn for_each_row(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let outer = self.rank - 1;
        let count: usize = self.extents[..outer].iter().product();
        for row in 0..count {
            let (mut outer_index, mut left, mut right) = (row, 0, 0);
            for axis in (0..outer).rev() {
                let index = outer_index % self.extents[axis];
                outer_index /= self.extents[axis];
                left += index * self.left[axis];
                right += index * self.right[axis];
            }
            visit(left, right, row * self.extents[outer]);
        }
    }

    /// Extent of an inner row, and how many elements of the left and of the right operand it reads: as many, or 1.
    fn inner_row(&self) -> (usize, usize, usize) {
        let last = self.rank - 1;
        let extent = self.extents[last];
        let span = |stride: usize| if stride == 0 { 1 } else { extent };
        (extent, span(self.left[last]), span(self.right[last]))
    }
}

/// Row-major strides of a shape that is broadcast to `out`, 0 along axes where it repeats.
fn strides(shape: &Shape, out: &Shape) -> [usize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let (added_axes, mut stride) = (out.len() - shape.len(), 1);
    for axis in (0..shape.len()).rev() {
        strides[axis + added_axes] = if shape[axis] == 1 { 0 } else { stride };
        stride *= shape[axis];
    }
    strides
}

/// `out = left (kind) right`, broadcasting.
pub(crate) fn binary<S: Scalar>(kind: Binary, layout: &BroadcastLayout, left: &[S], right: &[S], out: &mut [S]) {
    let (extent, left_span, right_span) = layout.inner_row();
    layout.for_each_row(|left_start, right_start, out_start| {
        let (left, right) = (&left[left_start..left_start + left_span], &right[right_start..right_start + right_span]);
        binary_row(kind, left, right, &mut out[out_start..out_start + extent]);
    });
}

/// Adds a tensor of shape `from` to one of shape `to`, summed over the axes along which `to` broadcasts to `from`.
pub(crate) fn sum_to_shape<S: Scalar>(from: &Shape, x: &[S], to: &Shape, out: &mut [S]) {
    let layout = BroadcastLayout::new(to, from, from);
    let (extent, span, _) = layout.inner_row();
    layout.for_each_row(|target, _, source| {
        let source = &x[source..source + extent];
        if span == 1 {
            out[target] += sum_row(source);
        } else {
            accumulate(source, &mut out[target..target + span]);
        }
    });
}

/// Broadcasts a tensor of shape `from` to shape `to`.
pub(crate) fn broadcast<S: Scalar>(from: &Shape, x: &[S], to: &Shape, out: &mut [S]) {
    let layout = BroadcastLayout::new(from, to, to);
    let (extent, span, _) = layout.inner_row();
    layout.for_each_row(|source, _, target| {
        let out = &mut out[target..target + extent];
        if span == 1 { out.fill(x[source]) } else { out.copy_from_slice(&x[source..source + span]) }
    });
}
