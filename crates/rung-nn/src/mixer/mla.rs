//! Multi-head latent attention: keys and values of all heads, rebuilt from one small vector per token.
//!
//! Definition, state and sources: `rung explain mla`.
//!
//! # Computed as
//! Keys and values are expanded, and read by ordinary attention. For a few queries it is cheaper to take `W_k` and
//! `W_v` to the other side: the query becomes `[W_k' q; q_r]`, which reads the latents themselves, and `W_v` is
//! applied to what was read.

use rung_engine::{AttentionInputs, Ops, Parameter, Role, Rounding, Scalar, AttentionMask};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, grown, number};
use crate::error::ModelError;
use crate::parts::{NormGain, Linear, by_head, join, split};
use crate::position::{Positions, Rotation, alibi};
use crate::precision::rounded;
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentConfig {
    /// Heads.
    pub heads: usize,
    /// Width of the part of a key that is rebuilt.
    pub head: usize,
    /// Width of what is kept per token.
    pub latent: usize,
    /// Width of the key that heads share and position turns; 0 for none.
    pub rope: usize,
    /// Width of a value.
    pub value: usize,
    /// Rank of the query projection; 0 for full rank.
    pub rank: usize,
}

/// Latent attention.
pub struct Latent {
    config: LatentConfig,
    down: Option<(Linear, NormGain)>,
    query: Linear,
    compress: Linear,
    norm: NormGain,
    /// `[heads * (head + value), latent]`: of every head first its key, then its value.
    expand: Parameter,
    output: Linear,
    rotation: Option<Rotation>,
    /// Factor on scores.
    scale: f64,
    alibi: bool,
    rounding: Option<Rounding>,
}

/// The weights of latent attention as a checkpoint has them.
pub(crate) struct LatentParts {
    /// Down to the query's rank, and the norm there, if it has a rank.
    pub(crate) down: Option<(Linear, NormGain)>,
    /// Up to the heads' queries.
    pub(crate) query: Linear,
    /// Down to the latent and the shared key.
    pub(crate) compress: Linear,
    /// Of the latent.
    pub(crate) norm: NormGain,
    /// `[heads * (head + value), latent]`: of every head first its key, then its value.
    pub(crate) expand: Parameter,
    /// Back to the stream.
    pub(crate) output: Linear,
    /// How shared keys and their queries turn.
    pub(crate) rotation: Option<Rotation>,
    /// Beside the root of the key width, a factor on scores.
    pub(crate) factor: f64,
}

/// Epsilon of the norms of latents and of small queries.
const EPSILON: f64 = 1e-6;

/// What is kept of the tokens: latents `[batch, tokens, latent]`, and keys `[batch, tokens, rope]` if there are any.
pub(super) struct LatentCache<T> {
    latent: T,
    shared: Option<T>,
}

/// Queries, and the keys and values they read, expanded or as they are kept.
pub(super) struct AttentionOperands<T> {
    pub(super) query: T,
    pub(super) key: T,
    pub(super) value: T,
    pub(super) absorbed: bool,
}

impl LatentConfig {
    pub(super) fn of(mixer: &Mixer) -> Self {
        let [heads, head, latent] = ["heads", "head", "latent"].map(|option| number(mixer, option));
        let [rope, value, rank] = ["rope", "value", "query-rank"].map(|option| number(mixer, option));
        Self { heads, head, latent, rope, value, rank }
    }

    /// Attention whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, parts: LatentParts) -> Latent {
        let LatentParts { down, query, compress, norm, expand, output, rotation, factor } = parts;
        let scale = factor * self.scale();
        let (config, alibi, rounding) = (self, false, None);
        Latent { config, down, query, compress, norm, expand, output, rotation, scale, alibi, rounding }
    }

    /// One over the root of the key width.
    fn scale(self) -> f64 {
        ((self.head + self.rope) as f64).powf(-0.5)
    }

    /// Adds the weights.
    pub(super) fn init_as<S: Scalar>(self, name: &'static str, params: &mut ParamBuilder<'_, S>) -> Result<Latent, ModelError> {
        causal_only(name, params)?;
        let Self { heads, head, latent, rope, value, rank } = self;
        let width = params.settings.width;
        let rotation = Rotation::of_keys(name, "width of the rotary key", rope, params.settings.positions)?;
        let (down, query) = if rank == 0 {
            (None, params.role(Role::Query).linear("q_proj", width, heads * (head + rope)))
        } else {
            let down = (params.linear("q_a_proj", width, rank), params.gain("q_a_layernorm", rank));
            (Some(down), params.linear("q_b_proj", rank, heads * (head + rope)))
        };
        let compress = params.linear("kv_a_proj_with_mqa", width, latent + rope);
        let norm = params.gain("kv_a_layernorm", latent);
        let init = Init::Normal(params.settings.deviation);
        let expand = params.weight("kv_b_proj.weight", &[heads * (head + value), latent], init);
        let output = params.role(Role::Output).linear("o_proj", heads * value, width);
        let alibi = params.settings.positions == Positions::Alibi;
        let rounding = params.settings.precision.message;
        let scale = self.scale();
        Ok(Latent { config: self, down, query, compress, norm, expand, output, rotation, scale, alibi, rounding })
    }
}

impl MixerConfig for LatentConfig {
    type Mixer = Latent;
    const NAME: &'static str = "mla";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self::of(mixer))
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Latent, ModelError> {
        self.init_as(Self::NAME, params)
    }
}

impl Latent {
    /// What is kept after new tokens, in the first two slots of a state.
    pub(super) fn append_to_cache<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (LatentCache<O::Tensor>, State<O::Tensor>) {
        let LatentConfig { latent, rope, .. } = self.config;
        let (seen, time) = (State::seen(state), ops.shape(x)[1]);
        let both = self.compress.apply(ops, x);
        let grown = |slot: usize, new: &O::Tensor| grown(ops, state, slot, &rounded(ops, new, self.rounding));
        let shared = (rope > 0).then(|| {
            let key = ops.slice(&both, 2, latent..latent + rope);
            grown(1, &join(ops, &self.turned(ops, &split(ops, &key, 1), seen)))
        });
        let latent = grown(0, &self.norm.norm_with(ops, &ops.slice(&both, 2, 0..latent), EPSILON));
        let next = State::new(seen + time, [Some(latent.clone()), shared.clone()]);
        (LatentCache { latent, shared }, next)
    }

    /// What queries are made of: the token, or a small vector of it.
    pub(super) fn query_input<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let Some((down, norm)) = &self.down else { return x.clone() };
        norm.norm_with(ops, &down.apply(ops, x), EPSILON)
    }

    /// Queries of tokens after `seen` others: the part for rebuilt keys, and the part for shared ones, already turned.
    pub(super) fn project_query<O: Ops>(&self, ops: &O, query_input: &O::Tensor, seen: usize) -> [O::Tensor; 2] {
        let LatentConfig { heads, head, rope, .. } = self.config;
        let query = self.query.heads(ops, query_input, heads);
        let plain = ops.slice(&query, 3, 0..head);
        [plain, self.turned(ops, &ops.slice(&query, 3, head..head + rope), seen)]
    }

    /// Keys `[batch, tokens, heads, head + rope]` and values `[batch, tokens, heads, value]`.
    fn expanded<O: Ops>(&self, ops: &O, kept: &LatentCache<O::Tensor>) -> [O::Tensor; 2] {
        let LatentConfig { heads, head, value, .. } = self.config;
        let both = split(ops, &ops.linear(&kept.latent, &ops.parameter(self.expand), None), heads);
        let key = ops.slice(&both, 3, 0..head);
        let key = match &kept.shared {
            None => key,
            Some(shared) => {
                let [batch, tokens, rope] = ops.shape(shared)[..] else { unreachable!("kept as three axes") };
                let shared = ops.reshape(shared, &[batch, tokens, 1, rope]);
                ops.concat(&[key, ops.broadcast(&shared, &[batch, tokens, heads, rope])], 3)
            }
        };
        [key, ops.slice(&both, 3, head..head + value)]
    }

    /// The heads' weights `[batch, heads, time, time]` on a whole text, under a mask that hides what comes after a token too.
    pub(super) fn weights<O: Ops>(&self, ops: &O, x: &O::Tensor, mask: &O::Tensor) -> O::Tensor {
        let kept = self.append_to_cache(ops, x, None).0;
        let query = ops.concat(&self.project_query(ops, &self.query_input(ops, x), 0), 3);
        let [query, key] = [&query, &self.expanded(ops, &kept)[0]].map(|x| ops.permute(x, &[0, 2, 1, 3]));
        let scores = ops.scale(&ops.product(&query, false, &key, true), self.scale);
        let bias = self.bias(ops, [ops.shape(x)[1]; 2], Some(mask));
        ops.softmax(&bias.map_or_else(|| scores.clone(), |bias| ops.add(&scores, &bias)))
    }

    /// What is added to the scores of the last of some tokens: a penalty on distance, and a mask.
    fn bias<O: Ops>(&self, ops: &O, [time, tokens]: [usize; 2], mask: Option<&O::Tensor>) -> Option<O::Tensor> {
        let far = self.alibi.then(|| alibi(ops, self.config.heads, tokens - time..tokens, 0..tokens, false));
        match (far, mask) {
            (Some(far), Some(mask)) => Some(ops.add(&far, mask)),
            (far, mask) => far.or(mask.cloned()),
        }
    }

    /// Queries with the keys and values that they read.
    pub(super) fn expand<O: Ops>(
        &self,
        ops: &O,
        [plain, turned]: [O::Tensor; 2],
        kept: &LatentCache<O::Tensor>,
    ) -> AttentionOperands<O::Tensor> {
        let LatentConfig { heads, head, latent, value, .. } = self.config;
        let time = ops.shape(&plain)[1];
        // Reading latents costs each query about 2 latent per token and head; expanding them, latent (head + value) once.
        if 2 * time >= head + value {
            let [key, value] = self.expanded(ops, kept);
            return AttentionOperands { query: ops.concat(&[plain, turned], 3), key, value, absorbed: false };
        }
        let weight = ops.reshape(&ops.parameter(self.expand), &[heads, head + value, latent]);
        let query = by_head(ops, &plain, &ops.slice(&weight, 1, 0..head), false);
        let parts: Vec<O::Tensor> = [Some(&kept.latent), kept.shared.as_ref()].into_iter().flatten().cloned().collect();
        let key = ops.concat(&parts, 2);
        let [key, value] = [&key, &kept.latent].map(|x| split(ops, x, 1));
        AttentionOperands { query: ops.concat(&[query, turned], 3), key, value, absorbed: true }
    }

    /// Attention of the last of some tokens, under a mask if there is one.
    pub(super) fn attend<O: Ops>(
        &self,
        ops: &O,
        [query, key, value]: [&O::Tensor; 3],
        mask: Option<&O::Tensor>,
    ) -> O::Tensor {
        let bias = self.bias(ops, [ops.shape(query)[1], ops.shape(key)[1]], mask);
        let (bias, mask, scale) = (bias.as_ref(), AttentionMask::Causal, self.scale);
        ops.attention(&AttentionInputs { query, key, value, bias, mask, scale })
    }

    /// What the heads read, put together.
    pub(super) fn project_output<O: Ops>(&self, ops: &O, read: &O::Tensor, absorbed: bool) -> O::Tensor {
        let LatentConfig { heads, head, latent, value, .. } = self.config;
        if !absorbed {
            return self.output.apply(ops, &join(ops, read));
        }
        let weight = ops.reshape(&ops.parameter(self.expand), &[heads, head + value, latent]);
        let read = by_head(ops, read, &ops.slice(&weight, 1, head..head + value), true);
        self.output.apply(ops, &join(ops, &read))
    }

    fn turned<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize) -> O::Tensor {
        self.rotation.as_ref().map_or_else(|| x.clone(), |turn| turn.apply(ops, x, seen))
    }
}

impl TokenMixer for Latent {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (kept, next) = self.append_to_cache(ops, x, state);
        let query = self.project_query(ops, &self.query_input(ops, x), State::seen(state));
        let ready = self.expand(ops, query, &kept);
        let read = self.attend(ops, [&ready.query, &ready.key, &ready.value], None);
        (self.project_output(ops, &read, ready.absorbed), next)
    }

    /// Latents only: no scores.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        self.append_to_cache(ops, x, state).1
    }
}
