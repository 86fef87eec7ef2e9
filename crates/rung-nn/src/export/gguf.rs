//! Writes a GGUF file, version 3: header keys, descriptions of tensors, data of tensors.
//!
//! The vocabulary is written as a unigram model (llama.cpp's `t5`): every token is one piece with `▁` in front, so that a word between
//! spaces is one token whatever characters it has. Vectors are in single precision, which llama.cpp requires for norms, and so are the
//! vectors and convolutions of state-space mixers, which it stores as matrices.

use super::{ExportError, ExportTensor, ExportedCheckpoint, NumberFormat, Vocabulary};

/// The data of every tensor starts at a multiple of this many bytes.
const ALIGNMENT: usize = 32;

/// Kinds of pieces in `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;

/// A value of a header key.
#[derive(Clone, Debug)]
pub(super) enum HeaderValue {
    U32(u32),
    F32(f32),
    Flag(bool),
    Text(String),
    TextArray(Vec<String>),
    I32Array(Vec<i32>),
    U32Array(Vec<u32>),
    F32Array(Vec<f32>),
}

/// The bytes of the file.
pub(super) fn encode_file(exported: &ExportedCheckpoint) -> Result<Vec<u8>, ExportError> {
    let architecture = exported.family.architecture.ok_or_else(|| {
        ExportError::unsupported("format", "GGUF", format!("another one for {}", exported.family.name))
    })?;
    let mut keys = vec![
        ("general.architecture".to_owned(), HeaderValue::Text(architecture.to_owned())),
        ("general.name".to_owned(), HeaderValue::Text(format!("rung {}", exported.name))),
        ("general.alignment".to_owned(), HeaderValue::U32(ALIGNMENT as u32)),
        ("general.file_type".to_owned(), HeaderValue::U32(file_type(exported.numbers))),
    ];
    let family_keys = exported.target.keys.iter();
    keys.extend(family_keys.map(|(name, value)| (format!("{architecture}.{name}"), value.clone())));
    keys.push((format!("{architecture}.context_length"), HeaderValue::U32(exported.max_length as u32)));
    keys.push((format!("{architecture}.vocab_size"), HeaderValue::U32(exported.vocabulary.tokens.len() as u32)));
    keys.extend(tokenizer(&exported.vocabulary));
    let tensors = &exported.target.tensors;
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    for (name, value) in &keys {
        write_text(&mut bytes, name);
        value.write(&mut bytes);
    }
    let mut data = Vec::new();
    for tensor in tensors {
        let format = number_format(tensor, exported.numbers);
        write_text(&mut bytes, &tensor.name);
        bytes.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|extent| bytes.extend((*extent as u64).to_le_bytes()));
        bytes.extend(tensor_type(format).to_le_bytes());
        bytes.extend((data.len() as u64).to_le_bytes());
        data.extend(format.encode(&tensor.values));
        data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
    }
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    bytes.extend(data);
    Ok(bytes)
}

/// The element type of a tensor: the requested one for projections, single precision for all others.
fn number_format(tensor: &ExportTensor, requested: NumberFormat) -> NumberFormat {
    let always_f32 =
        ["ssm_a", "ssm_d", "ssm_norm.weight", "ssm_conv1d.weight"].iter().any(|end| tensor.name.ends_with(end));
    let is_projection = tensor.shape.len() == 2 && !always_f32;
    if is_projection { requested } else { NumberFormat::F32 }
}

/// The GGUF type id of tensors in a format.
fn tensor_type(format: NumberFormat) -> u32 {
    match format {
        NumberFormat::F32 => 0,
        NumberFormat::F16 => 1,
        NumberFormat::Bf16 => 30,
    }
}

/// The GGUF file type for a format.
fn file_type(format: NumberFormat) -> u32 {
    match format {
        NumberFormat::F32 => 0,
        NumberFormat::F16 => 1,
        NumberFormat::Bf16 => 32,
    }
}

fn tokenizer(vocabulary: &Vocabulary) -> Vec<(String, HeaderValue)> {
    let is_special = |id: usize| id == Vocabulary::UNKNOWN as usize || id == Vocabulary::END as usize;
    let tokens = || vocabulary.tokens.iter().enumerate();
    let piece = |(id, token): (usize, &super::vocabulary::Token)| {
        if is_special(id) { token.name.clone() } else { format!("▁{}", token.name) }
    };
    let kind = |(id, _)| match id as u32 {
        Vocabulary::UNKNOWN => UNKNOWN,
        Vocabulary::END => CONTROL,
        _ => NORMAL,
    };
    // A unigram model prefers the segmentation with the highest sum: one long piece over two short ones.
    let score = |(id, _)| if is_special(id) { 0.0 } else { -1.0 };
    let keys = [
        ("model", HeaderValue::Text("t5".to_owned())),
        ("tokens", HeaderValue::TextArray(tokens().map(piece).collect())),
        ("scores", HeaderValue::F32Array(tokens().map(score).collect())),
        ("token_type", HeaderValue::I32Array(tokens().map(kind).collect())),
        ("unknown_token_id", HeaderValue::U32(Vocabulary::UNKNOWN)),
        ("eos_token_id", HeaderValue::U32(Vocabulary::END)),
        ("padding_token_id", HeaderValue::U32(Vocabulary::END)),
        ("add_bos_token", HeaderValue::Flag(false)),
        ("add_eos_token", HeaderValue::Flag(false)),
        ("add_space_prefix", HeaderValue::Flag(true)),
        ("remove_extra_whitespaces", HeaderValue::Flag(true)),
    ];
    keys.into_iter().map(|(name, value)| (format!("tokenizer.ggml.{name}"), value)).collect()
}

fn write_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

impl HeaderValue {
    /// Appends the type and the value.
    fn write(&self, bytes: &mut Vec<u8>) {
        const ARRAY: u32 = 9;
        let write_array_header = |bytes: &mut Vec<u8>, kind: u32, count: usize| {
            bytes.extend(ARRAY.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend((count as u64).to_le_bytes());
        };
        let write_scalar = |bytes: &mut Vec<u8>, kind: u32, value: &[u8]| {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(value);
        };
        match self {
            Self::U32(value) => write_scalar(bytes, 4, &value.to_le_bytes()),
            Self::F32(value) => write_scalar(bytes, 6, &value.to_le_bytes()),
            Self::Flag(value) => write_scalar(bytes, 7, &[u8::from(*value)]),
            Self::Text(value) => {
                write_scalar(bytes, 8, &[]);
                write_text(bytes, value);
            }
            Self::TextArray(values) => {
                write_array_header(bytes, 8, values.len());
                for value in values {
                    write_text(bytes, value);
                }
            }
            Self::I32Array(values) => {
                write_array_header(bytes, 5, values.len());
                for value in values {
                    bytes.extend(value.to_le_bytes());
                }
            }
            Self::U32Array(values) => {
                write_array_header(bytes, 4, values.len());
                for value in values {
                    bytes.extend(value.to_le_bytes());
                }
            }
            Self::F32Array(values) => {
                write_array_header(bytes, 6, values.len());
                for value in values {
                    bytes.extend(value.to_le_bytes());
                }
            }
        }
    }
}
