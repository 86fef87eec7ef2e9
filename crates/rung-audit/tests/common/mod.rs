//! A writer of GGUF headers for tests.
#![allow(dead_code, reason = "each test program uses a part of it")]

/// A metadata value.
#[derive(Clone, Debug)]
pub enum Meta {
    /// A 32-bit number.
    Number(u32),
    /// A text.
    Text(&'static str),
    /// A list of 32-bit numbers.
    Numbers(Vec<i32>),
    /// A list of flags.
    Flags(Vec<bool>),
    /// A list of that many texts.
    Texts(usize),
}

/// The bytes of a version-3 header that announces 7 tensors.
pub fn header(fields: &[(&str, Meta)]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3_u32.to_le_bytes());
    out.extend(7_u64.to_le_bytes());
    out.extend((fields.len() as u64).to_le_bytes());
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };
    for (key, value) in fields {
        text(&mut out, key);
        match value {
            Meta::Number(number) => {
                out.extend(4_u32.to_le_bytes());
                out.extend(number.to_le_bytes());
            }
            Meta::Text(value) => {
                out.extend(8_u32.to_le_bytes());
                text(&mut out, value);
            }
            Meta::Numbers(items) => {
                out.extend(9_u32.to_le_bytes());
                out.extend(5_u32.to_le_bytes());
                out.extend((items.len() as u64).to_le_bytes());
                out.extend(items.iter().flat_map(|item| item.to_le_bytes()));
            }
            Meta::Flags(items) => {
                out.extend(9_u32.to_le_bytes());
                out.extend(7_u32.to_le_bytes());
                out.extend((items.len() as u64).to_le_bytes());
                out.extend(items.iter().map(|&flag| u8::from(flag)));
            }
            Meta::Texts(count) => {
                out.extend(9_u32.to_le_bytes());
                out.extend(8_u32.to_le_bytes());
                out.extend((*count as u64).to_le_bytes());
                (0..*count).for_each(|index| text(&mut out, &format!("token{index}")));
            }
        }
    }
    out
}

/// A header like that of a Qwen3.5 model with a vocabulary of `tokens` tokens and some more fields.
pub fn qwen(tokens: usize, more_fields: &[(&'static str, Meta)]) -> Vec<u8> {
    let mut fields = vec![
        ("general.architecture", Meta::Text("qwen35")),
        ("general.name", Meta::Text("A Small Hybrid")),
        ("tokenizer.ggml.tokens", Meta::Texts(tokens)),
        ("qwen35.block_count", Meta::Number(8)),
        ("qwen35.embedding_length", Meta::Number(1024)),
        ("qwen35.attention.head_count", Meta::Number(8)),
        ("qwen35.attention.head_count_kv", Meta::Number(2)),
        ("qwen35.attention.key_length", Meta::Number(128)),
        ("qwen35.attention.value_length", Meta::Number(128)),
        ("qwen35.ssm.conv_kernel", Meta::Number(4)),
        ("qwen35.ssm.state_size", Meta::Number(128)),
        ("qwen35.ssm.group_count", Meta::Number(8)),
        ("qwen35.ssm.time_step_rank", Meta::Number(16)),
        ("qwen35.ssm.inner_size", Meta::Number(2048)),
    ];
    fields.extend(more_fields.iter().cloned());
    header(&fields)
}
