//! What a stack costs: bytes that grow with the text, bytes that do not, weights and arithmetic.
//!
//! Everything is read off the mixers' own facts. Keys and values are charged at the cache's precision, recurrent state
//! at the state's, short convolutions at 16 bits. A window is charged the tokens it holds, and no more than the text
//! has. A layer that reads another's cache is charged nothing for it.

use rung_theory::stack::{Layer, Reach};

use crate::AuditError;

/// How numbers are stored.
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
const KNOWN: [(Dtype, &[&str]); 7] = [
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
        let found = KNOWN.iter().find(|(dtype, other)| dtype.name == lower || other.contains(&lower.as_str()));
        found.map(|(dtype, _)| *dtype).ok_or_else(|| {
            let names: Vec<&str> = KNOWN.iter().map(|(dtype, _)| dtype.name).collect();
            AuditError::Request {
                text: text.to_owned(),
                why: format!("no such number format; expected one of {}", names.join(", ")),
            }
        })
    }
}

/// Bytes of one stack, at one context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// Bytes added by every token, for ever.
    pub per_token: u64,
    /// Bytes of recurrent state and short convolutions.
    pub state: u64,
    /// Bytes of windows, at the context asked for.
    pub window: u64,
    /// All of it at that context.
    pub total: u64,
}

/// Weights and arithmetic of the mixers (not of feed-forward parts or embeddings).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Weights.
    pub parameters: u64,
    /// Floating-point operations per token, averaged over reading a text of that length.
    pub prefill: u64,
    /// Floating-point operations for the one token after it.
    pub decode: u64,
}

/// How the numbers of a stack are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub(crate) kv: Dtype,
    pub(crate) state: Dtype,
    pub(crate) context: u64,
}

fn fit(bits: u128, what: &'static str) -> Result<u64, AuditError> {
    // JSON readers in other languages hold whole numbers up to 2^53 only; the largest real figure is far below.
    u64::try_from(bits.div_ceil(8)).map_err(|_| AuditError::TooLarge { what })
}

/// Bytes that one layer keeps, in bits: growing per token, state, window.
fn bits_of(layer: &Layer, storage: Storage) -> [u128; 3] {
    let mut sum = [0; 3];
    for mixer in layer.mixers.iter() {
        let facts = mixer.facts();
        let kv = u128::from(storage.kv.bits);
        sum[1] += facts.state * u128::from(storage.state.bits) + (facts.tail + facts.front) * u128::from(BF16.bits);
        if !layer.shares_cache {
            sum[0] += facts.per_token() * kv;
            sum[2] += facts.window * facts.window_tokens.min(u128::from(storage.context)) * kv;
        }
    }
    sum
}

/// Bytes of a list of layers.
pub(crate) fn cache<'a>(layers: impl Iterator<Item = &'a Layer>, storage: Storage) -> Result<Cache, AuditError> {
    let mut sum = [0_u128; 3];
    for layer in layers {
        for (total, bits) in sum.iter_mut().zip(bits_of(layer, storage)) {
            *total = total.saturating_add(bits);
        }
    }
    let growing = sum[0].checked_mul(u128::from(storage.context)).ok_or(AuditError::TooLarge { what: "the cache" })?;
    let total = growing.saturating_add(sum[1]).saturating_add(sum[2]);
    Ok(Cache {
        per_token: fit(sum[0], "the cache per token")?,
        state: fit(sum[1], "the state")?,
        window: fit(sum[2], "the window cache")?,
        total: fit(total, "the cache")?,
    })
}

/// Weights and arithmetic of a list of layers; `shares_weights` marks layers whose attention weights are counted before.
pub(crate) fn work<'a>(layers: impl Iterator<Item = (&'a Layer, bool)>, context: u64) -> Result<Work, AuditError> {
    let (mut parameters, mut prefill, mut decode) = (0_u128, 0_u128, 0_u128);
    let context = u128::from(context);
    for (layer, shares_weights) in layers {
        for mixer in layer.mixers.iter() {
            let facts = mixer.facts();
            let counted = !(shares_weights && matches!(facts.reach, Reach::Full(_)));
            parameters = parameters.saturating_add(if counted { facts.parameters } else { 0 });
            let limit = facts.work.limit.unwrap_or(u128::MAX);
            // While reading, token t sees t earlier ones: half the text on average, less where the reach is limited.
            let reach = limit.min(context);
            let seen = context * 2 * reach - reach * reach;
            let average = if context == 0 { 0 } else { seen / (2 * context) };
            prefill = prefill.saturating_add(facts.work.token + facts.work.seen * average);
            decode = decode.saturating_add(facts.work.token + facts.work.seen * reach);
        }
    }
    let small = |number: u128, what| u64::try_from(number).map_err(|_| AuditError::TooLarge { what });
    Ok(Work {
        parameters: small(parameters, "the number of weights")?,
        prefill: small(prefill, "the arithmetic of prefill")?,
        decode: small(decode, "the arithmetic of decoding")?,
    })
}
