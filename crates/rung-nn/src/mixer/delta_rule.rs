//! What the mixers of the delta rule share: the projections to queries, keys, values and beta, and the layout of their state.

use rung_engine::{Ops, Role, Scalar};

use super::State;
use crate::param_builder::ParamBuilder;
use crate::submodules::{ConvProjection, Convolution, Linear, scale_query};

/// Sizes of the projections of a delta-rule mixer.
#[derive(Clone, Copy)]
pub(super) struct DeltaRuleSizes {
    /// Query and key heads.
    pub(super) heads: usize,
    /// Value heads.
    pub(super) value_heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
    /// Kernel size of the short convolutions; 0 for none.
    pub(super) kernel_size: usize,
    /// Delta-rule steps per token. The key, value and beta projections have the heads of the first step, then those of the next.
    pub(super) steps: usize,
    /// Whether beta ranges from 0 to 2, which allows negative eigenvalues, instead of from 0 to 1.
    pub(super) negative_eigenvalues: bool,
}

/// Queries, keys and values through short convolutions, and the write strength beta, of a delta-rule mixer.
pub(super) struct DeltaRuleProjections {
    query: ConvProjection,
    key: ConvProjection,
    value: ConvProjection,
    beta: Linear,
    negative_eigenvalues: bool,
}

/// The inputs of a delta-rule recurrence.
pub(super) struct DeltaRuleInputs<T> {
    /// Unit queries, divided by the root of their width.
    pub(super) query: T,
    /// Unit keys.
    pub(super) key: T,
    pub(super) value: T,
    pub(super) beta: T,
}

impl DeltaRuleProjections {
    /// Added to the squared length of queries and keys before they are normalised.
    const EPSILON: f64 = 1e-6;

    pub(super) fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, sizes: DeltaRuleSizes) -> Self {
        let DeltaRuleSizes { heads, value_heads, key_dim, value_dim, kernel_size, steps, negative_eigenvalues } = sizes;
        let width = params.settings.width;
        let mut projection = |role: Role, name: &str, heads: usize, head_dim: usize| ConvProjection {
            projection: params.role(role).linear(&format!("{name}_proj"), width, heads * head_dim),
            convolution: params.convolution(&format!("{name}_conv1d"), heads * head_dim, kernel_size),
            heads,
        };
        let query = projection(Role::Query, "q", heads, key_dim);
        let key = projection(Role::Key, "k", steps * heads, key_dim);
        let value = projection(Role::Value, "v", steps * value_heads, value_dim);
        params.copy_query_to_key(&query.projection, &key.projection, heads, heads);
        let beta = params.linear("b_proj", width, steps * value_heads);
        Self { query, key, value, beta, negative_eigenvalues }
    }

    /// Projections whose weights were read from a checkpoint; `heads` are those of keys and of values.
    pub(super) fn assemble(
        [query, key, value]: [Linear; 3],
        [query_convolution, key_convolution, value_convolution]: [Convolution; 3],
        beta: Linear,
        [heads, value_heads]: [usize; 2],
        negative_eigenvalues: bool,
    ) -> Self {
        let projection =
            |projection, convolution, heads| ConvProjection { projection, convolution: Some(convolution), heads };
        Self {
            query: projection(query, query_convolution, heads),
            key: projection(key, key_convolution, heads),
            value: projection(value, value_convolution, value_heads),
            beta,
            negative_eigenvalues,
        }
    }

    /// Projects a span of tokens, runs `recurrence` on the result, and returns its output with the state after the span. The
    /// state has the recurrence's matrix as tensor 0 and the last inputs of the three convolutions as tensors 1 to 3.
    pub(super) fn run<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
        recurrence: impl FnOnce(&DeltaRuleInputs<O::Tensor>) -> (O::Tensor, O::Tensor),
    ) -> (O::Tensor, State<O::Tensor>) {
        let (query, query_conv_state) = self.query.apply(ops, x, State::tensor(state, 1));
        let (key, key_conv_state) = self.key.apply(ops, x, State::tensor(state, 2));
        let (value, value_conv_state) = self.value.apply(ops, x, State::tensor(state, 3));
        let query = scale_query(ops, &ops.l2_norm(&query, Self::EPSILON));
        let key = ops.l2_norm(&key, Self::EPSILON);
        let beta = ops.sigmoid(&self.beta.apply(ops, x));
        let beta = if self.negative_eigenvalues { ops.scale(&beta, 2.0) } else { beta };
        let (out, matrix) = recurrence(&DeltaRuleInputs { query, key, value, beta });
        let past_len = State::past_len(state) + ops.shape(x)[1];
        (out, State::new(past_len, [Some(matrix), query_conv_state, key_conv_state, value_conv_state]))
    }
}
