//! An executor without fused kernels, for tests: the primitives of [`Native`], and every fused operation composed of primitives.

use rung_engine::{Native, Ops, Scalar, Tensor, delegate_ops};

/// [`Native`] without its fused kernels.
pub struct NoFusedKernels<S: Scalar>(pub Native<S>);

impl<S: Scalar> Ops for NoFusedKernels<S> {
    type Scalar = S;
    type Tensor = Tensor<S>;
    delegate_ops!(0 => primitives, scope);
    delegate_ops!(composed => fused);
}
