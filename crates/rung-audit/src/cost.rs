//! What a stack costs: KV cache, recurrent state, and the weights and FLOPs of its mixers.
//!
//! All sizes come from the mixers' facts. Keys and values are counted at the cache's precision, recurrent state at the
//! state's, inputs of short convolutions at 16 bits. A window is counted with its size in tokens, at most the context. A
//! layer that reads another's cache has none of its own.

use rung_theory::stack::{Layer, Mixer, MixerReach};

use crate::AuditError;

/// A number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtype {
    /// The name users type.
    pub name: &'static str,
    /// Bits per number.
    pub bits: u64,
}

/// bfloat16.
pub const BF16: Dtype = Dtype { name: "bf16", bits: 16 };
/// 32-bit floats.
pub const FP32: Dtype = Dtype { name: "fp32", bits: 32 };
const DTYPES: [(Dtype, &[&str]); 7] = [
    (BF16, &["bfloat16", "torch.bfloat16"]),
    (Dtype { name: "fp16", bits: 16 }, &["float16", "f16", "half"]),
    (FP32, &["float32", "f32", "float", "torch.float32"]),
    (Dtype { name: "fp8", bits: 8 }, &["float8", "f8", "e4m3", "e5m2", "fp8_e4m3", "fp8_e5m2"]),
    (Dtype { name: "int8", bits: 8 }, &["q8"]),
    (Dtype { name: "int4", bits: 4 }, &["q4", "fp4"]),
    (Dtype { name: "fp64", bits: 64 }, &["float64", "double"]),
];

impl std::str::FromStr for Dtype {
    type Err = AuditError;

    fn from_str(text: &str) -> Result<Self, AuditError> {
        let lower = text.to_lowercase();
        let dtype = DTYPES.iter().find(|(dtype, aliases)| dtype.name == lower || aliases.contains(&lower.as_str()));
        dtype.map(|(dtype, _)| *dtype).ok_or_else(|| {
            let names: Vec<&str> = DTYPES.iter().map(|(dtype, _)| dtype.name).collect();
            AuditError::InvalidArgument {
                text: text.to_owned(),
                why: format!("no such number format; expected one of {}", names.join(", ")),
            }
        })
    }
}

/// Bytes of one stack, at one context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheBytes {
    /// KV cache that each token adds.
    pub per_token: u64,
    /// Recurrent state and short convolutions.
    pub state: u64,
    /// KV cache of window layers, at the context.
    pub window: u64,
    /// Sum of KV cache, windows and state at the context.
    pub total: u64,
}

/// Weights and FLOPs of the mixers (not of feed-forward parts or embeddings).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MixerCost {
    /// Number of weights.
    pub parameters: u64,
    /// FLOPs per token, averaged over the prefill of a prompt as long as the context.
    pub prefill_flops: u64,
    /// FLOPs of one token decoded after that prompt.
    pub decode_flops: u64,
}

/// Number formats and context at which caches are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheSettings {
    pub(crate) kv: Dtype,
    pub(crate) state: Dtype,
    pub(crate) context: u64,
}

fn bits_to_bytes(bits: u128, quantity: &'static str) -> Result<u64, AuditError> {
    to_u64(bits.div_ceil(8), quantity)
}

fn to_u64(number: u128, quantity: &'static str) -> Result<u64, AuditError> {
    u64::try_from(number).map_err(|_| AuditError::TooLarge { quantity })
}

/// Bits of the caches of several layers.
#[derive(Clone, Copy, Default)]
struct CacheBits {
    per_token: u128,
    state: u128,
    window: u128,
}

impl CacheBits {
    fn add_layer(&mut self, layer: &Layer, settings: CacheSettings) {
        let (kv_bits, conv_bits) = (u128::from(settings.kv.bits), u128::from(BF16.bits));
        for facts in layer.mixers.iter().map(Mixer::facts) {
            let state = facts.recurrent_state * u128::from(settings.state.bits)
                + (facts.conv_state + facts.input_conv_state) * conv_bits;
            self.state = self.state.saturating_add(state);
            if !layer.shares_cache {
                let window_tokens = facts.window_tokens.min(u128::from(settings.context));
                self.per_token = self.per_token.saturating_add(facts.cache_growth() * kv_bits);
                self.window = self.window.saturating_add(facts.window_elements_per_token * window_tokens * kv_bits);
            }
        }
    }
}

/// Cache bytes of some layers.
pub(crate) fn cache_bytes<'a>(
    layers: impl Iterator<Item = &'a Layer>,
    settings: CacheSettings,
) -> Result<CacheBytes, AuditError> {
    let mut bits = CacheBits::default();
    for layer in layers {
        bits.add_layer(layer, settings);
    }
    let too_large = AuditError::TooLarge { quantity: "the cache" };
    let kv = bits.per_token.checked_mul(u128::from(settings.context)).ok_or(too_large)?;
    Ok(CacheBytes {
        per_token: bits_to_bytes(bits.per_token, "the cache per token")?,
        state: bits_to_bytes(bits.state, "the state")?,
        window: bits_to_bytes(bits.window, "the window cache")?,
        total: bits_to_bytes(kv.saturating_add(bits.state).saturating_add(bits.window), "the cache")?,
    })
}

/// Weights and FLOPs of some layers. The flag beside a layer says that it shares its attention weights with an earlier
/// layer, so that they are not counted again.
pub(crate) fn mixer_cost<'a>(
    layers: impl Iterator<Item = (&'a Layer, bool)>,
    context: u64,
) -> Result<MixerCost, AuditError> {
    let (mut parameters, mut prefill, mut decode) = (0_u128, 0_u128, 0_u128);
    let context = u128::from(context);
    for (layer, shares_parameters) in layers {
        for mixer in layer.mixers.iter() {
            let facts = mixer.facts();
            let is_counted = !(shares_parameters && matches!(facts.reach, MixerReach::Full(_)));
            parameters = parameters.saturating_add(if is_counted { facts.parameters } else { 0 });
            // In prefill, token t attends to t earlier tokens: half the prompt on average, fewer where attention is limited.
            let max_attended = facts.flops.max_attended.unwrap_or(u128::MAX).min(context);
            let twice_total_attended = context * 2 * max_attended - max_attended * max_attended;
            let average_attended = twice_total_attended.checked_div(2 * context).unwrap_or(0);
            prefill = prefill.saturating_add(facts.flops.per_token + facts.flops.per_attended * average_attended);
            decode = decode.saturating_add(facts.flops.per_token + facts.flops.per_attended * max_attended);
        }
    }
    Ok(MixerCost {
        parameters: to_u64(parameters, "the number of weights")?,
        prefill_flops: to_u64(prefill, "the FLOPs of prefill")?,
        decode_flops: to_u64(decode, "the FLOPs of decoding")?,
    })
}
