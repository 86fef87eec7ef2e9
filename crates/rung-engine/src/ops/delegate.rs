//! Operations that an executor delegates: [`delegate_ops!`](crate::delegate_ops).

/// Implements methods of [`Ops`](crate::Ops) by passing their arguments to another implementation.
///
/// - `delegate_ops!(composed => softmax, linear)` calls the functions of [`composed`](crate::composed);
/// - `delegate_ops!(native => silu, gelu)` calls the executor in the field `native`, which has the same tensors.
///
/// In the list, `primitives` stands for all primitives and `fused` for all fused operations. An executor that lists its operations
/// one by one does not compile when one is missing:
///
/// ```compile_fail,E0046
/// use rung_engine::{Native, Ops, Tensor, delegate_ops};
///
/// struct Wrapper(Native<f32>);
/// impl Ops for Wrapper {
///     type Scalar = f32;
///     type Tensor = Tensor<f32>;
///     delegate_ops!(0 => primitives, scope, softmax, linear, block_attention);
/// }
/// ```
///
/// This executor is complete: primitives of the inner executor, and fused operations composed of them.
///
/// ```
/// use rung_engine::{Native, Ops, Tensor, delegate_ops};
///
/// struct NoKernels(Native<f32>);
/// impl Ops for NoKernels {
///     type Scalar = f32;
///     type Tensor = Tensor<f32>;
///     delegate_ops!(0 => primitives, scope);
///     delegate_ops!(composed => fused);
/// }
/// let ops = NoKernels(Native::new());
/// let x = ops.constant(&[1, 2], &[3.0, 3.0]);
/// assert_eq!(ops.values(&ops.softmax(&x)), [0.5, 0.5]);
/// ```
#[macro_export]
macro_rules! delegate_ops {
    (composed => $($name:ident),+ $(,)?) => {
        $($crate::delegate_ops! { @name [composed] $name })+
    };
    ($inner:tt => $($name:ident),+ $(,)?) => {
        $($crate::delegate_ops! { @name [$inner] $name })+
    };

    (@method [composed] $name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        fn $name(&self, $($argument: $type),*) -> $result {
            $crate::composed::$name(self, $($argument),*)
        }
    };
    (@method [$inner:tt] $name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {
        fn $name(&self, $($argument: $type),*) -> $result {
            $crate::Ops::$name(&self.$inner, $($argument),*)
        }
    };

    (@name $by:tt primitives) => {
        $crate::delegate_ops! { @each $by
            parameter constant full detach shape values unary binary affine product reshape permute slice concat
            broadcast gather_rows sum max cumulative_sum
        }
    };
    (@name $by:tt fused) => {
        $crate::delegate_ops! { @each $by
            softmax linear attention left_to_right_attention block_attention choose_tokens recurrence general_delta rms_norm layer_norm l2_norm silu
            gelu gelu_exact elu_plus_one silu_gate short_convolution gated_scan rotary cross_entropy
            round_to_bits
        }
    };
    (@each $by:tt $($name:ident)+) => {
        $($crate::delegate_ops! { @name $by $name })+
    };

    (@name [$inner:tt] scope) => {
        fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
            $crate::Ops::scope(&self.$inner, name, body)
        }
    };
    (@name $by:tt parameter) => {
        $crate::delegate_ops! { @method $by parameter(id: $crate::Parameter) -> Self::Tensor }
    };
    (@name $by:tt constant) => {
        $crate::delegate_ops! { @method $by constant(shape: &[usize], values: &[Self::Scalar]) -> Self::Tensor }
    };
    (@name $by:tt full) => {
        $crate::delegate_ops! { @method $by full(shape: &[usize], value: f64) -> Self::Tensor }
    };
    (@name $by:tt detach) => {
        $crate::delegate_ops! { @method $by detach(x: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt shape) => {
        $crate::delegate_ops! { @method $by shape(x: &Self::Tensor) -> $crate::Shape }
    };
    (@name $by:tt values) => {
        $crate::delegate_ops! { @method $by values(x: &Self::Tensor) -> Vec<Self::Scalar> }
    };
    (@name $by:tt unary) => {
        $crate::delegate_ops! { @method $by unary(kind: $crate::Unary, x: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt binary) => {
        $crate::delegate_ops! { @method $by binary(kind: $crate::Binary, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt affine) => {
        $crate::delegate_ops! { @method $by affine(x: &Self::Tensor, factor: f64, offset: f64) -> Self::Tensor }
    };
    (@name $by:tt product) => {
        $crate::delegate_ops! { @method $by product(left: &Self::Tensor, transpose_left: bool, right: &Self::Tensor, transpose_right: bool) -> Self::Tensor }
    };
    (@name $by:tt reshape) => {
        $crate::delegate_ops! { @method $by reshape(x: &Self::Tensor, shape: &[usize]) -> Self::Tensor }
    };
    (@name $by:tt permute) => {
        $crate::delegate_ops! { @method $by permute(x: &Self::Tensor, order: &[usize]) -> Self::Tensor }
    };
    (@name $by:tt slice) => {
        $crate::delegate_ops! { @method $by slice(x: &Self::Tensor, axis: usize, range: ::std::ops::Range<usize>) -> Self::Tensor }
    };
    (@name $by:tt concat) => {
        $crate::delegate_ops! { @method $by concat(parts: &[Self::Tensor], axis: usize) -> Self::Tensor }
    };
    (@name $by:tt broadcast) => {
        $crate::delegate_ops! { @method $by broadcast(x: &Self::Tensor, shape: &[usize]) -> Self::Tensor }
    };
    (@name $by:tt gather_rows) => {
        $crate::delegate_ops! { @method $by gather_rows(x: &Self::Tensor, rows: &[usize]) -> Self::Tensor }
    };
    (@name $by:tt sum) => {
        $crate::delegate_ops! { @method $by sum(x: &Self::Tensor, axis: usize) -> Self::Tensor }
    };
    (@name $by:tt max) => {
        $crate::delegate_ops! { @method $by max(x: &Self::Tensor, axis: usize) -> Self::Tensor }
    };
    (@name $by:tt cumulative_sum) => {
        $crate::delegate_ops! { @method $by cumulative_sum(x: &Self::Tensor, axis: usize) -> Self::Tensor }
    };
    (@name $by:tt softmax) => {
        $crate::delegate_ops! { @method $by softmax(x: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt linear) => {
        $crate::delegate_ops! { @method $by linear(x: &Self::Tensor, weight: &Self::Tensor, bias: Option<&Self::Tensor>) -> Self::Tensor }
    };
    (@name $by:tt attention) => {
        $crate::delegate_ops! { @method $by attention(inputs: &$crate::AttentionInputs<'_, Self::Tensor>) -> Self::Tensor }
    };
    (@name $by:tt left_to_right_attention) => {
        $crate::delegate_ops! { @method $by left_to_right_attention(inputs: &$crate::AttentionInputs<'_, Self::Tensor>, rounding: Option<$crate::AccumulatorRounding>) -> Self::Tensor }
    };
    (@name $by:tt block_attention) => {
        $crate::delegate_ops! { @method $by block_attention(inputs: &$crate::BlockAttention<'_, Self::Tensor>) -> Self::Tensor }
    };
    (@name $by:tt choose_tokens) => {
        $crate::delegate_ops! { @method $by choose_tokens(inputs: &$crate::Indexer<'_, Self::Tensor>) -> $crate::BlockChoice }
    };
    (@name $by:tt recurrence) => {
        $crate::delegate_ops! { @method $by recurrence(inputs: &$crate::Recurrence<'_, Self::Tensor>) -> (Self::Tensor, Self::Tensor) }
    };
    (@name $by:tt general_delta) => {
        $crate::delegate_ops! { @method $by general_delta(inputs: &$crate::GeneralDelta<'_, Self::Tensor>) -> (Self::Tensor, Self::Tensor) }
    };
    (@name $by:tt rms_norm) => {
        $crate::delegate_ops! { @method $by rms_norm(x: &Self::Tensor, weight: Option<&Self::Tensor>, epsilon: f64) -> Self::Tensor }
    };
    (@name $by:tt layer_norm) => {
        $crate::delegate_ops! { @method $by layer_norm(x: &Self::Tensor, weight: Option<&Self::Tensor>, bias: Option<&Self::Tensor>, epsilon: f64) -> Self::Tensor }
    };
    (@name $by:tt l2_norm) => {
        $crate::delegate_ops! { @method $by l2_norm(x: &Self::Tensor, epsilon: f64) -> Self::Tensor }
    };
    (@name $by:tt silu) => {
        $crate::delegate_ops! { @method $by silu(x: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt gelu) => {
        $crate::delegate_ops! { @method $by gelu(x: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt gelu_exact) => {
        $crate::delegate_ops! { @method $by gelu_exact(x: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt elu_plus_one) => {
        $crate::delegate_ops! { @method $by elu_plus_one(x: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt silu_gate) => {
        $crate::delegate_ops! { @method $by silu_gate(gate: &Self::Tensor, x: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt short_convolution) => {
        $crate::delegate_ops! { @method $by short_convolution(x: &Self::Tensor, filters: &Self::Tensor, bias: Option<&Self::Tensor>, state: Option<&Self::Tensor>) -> (Self::Tensor, Self::Tensor) }
    };
    (@name $by:tt gated_scan) => {
        $crate::delegate_ops! { @method $by gated_scan(inputs: &$crate::GatedScan<'_, Self::Tensor>) -> Self::Tensor }
    };
    (@name $by:tt rotary) => {
        $crate::delegate_ops! { @method $by rotary(x: &Self::Tensor, cosine: &Self::Tensor, sine: &Self::Tensor) -> Self::Tensor }
    };
    (@name $by:tt cross_entropy) => {
        $crate::delegate_ops! { @method $by cross_entropy(logits: &Self::Tensor, targets: &[usize]) -> Self::Tensor }
    };
    (@name $by:tt round_to_bits) => {
        $crate::delegate_ops! { @method $by round_to_bits(x: &Self::Tensor, bits: u32, range: f64) -> Self::Tensor }
    };
}
