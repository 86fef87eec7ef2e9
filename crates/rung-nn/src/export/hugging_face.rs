//! The files of a Hugging Face folder: config, weights, vocabulary.

use std::borrow::Cow;

use safetensors::tensor::{Dtype, View};
use serde_json::{Map, Value, json};

use super::{ExportError, ExportTensor, ExportedCheckpoint, NumberFormat, Vocabulary};
use crate::checkpoint::MADE_BY;
use crate::tensor_file;

/// Name and content of every file.
pub(super) fn files(exported: &ExportedCheckpoint) -> Result<Vec<(&'static str, Vec<u8>)>, ExportError> {
    let text = |value: &Value| format!("{value:#}\n").into_bytes();
    Ok(vec![
        ("config.json", text(&config(exported))),
        ("generation_config.json", text(&json!({ "do_sample": false, "eos_token_id": Vocabulary::END }))),
        ("model.safetensors", encode_weights(exported)?),
        ("tokenizer.json", text(&tokenizer(&exported.vocabulary))),
        ("tokenizer_config.json", text(&tokenizer_config(exported))),
    ])
}

fn config(exported: &ExportedCheckpoint) -> Value {
    let dtype = match exported.numbers {
        NumberFormat::F32 => "float32",
        NumberFormat::Bf16 => "bfloat16",
        NumberFormat::F16 => "float16",
    };
    let mut config = Map::new();
    config.insert("architectures".to_owned(), json!([exported.family.class]));
    config.insert("model_type".to_owned(), json!(exported.family.name));
    config.extend(exported.target.config.clone());
    let common_fields = json!({
        "vocab_size": exported.vocabulary.tokens.len(),
        "max_position_embeddings": exported.max_length,
        "tie_word_embeddings": false,
        "use_cache": true,
        "bos_token_id": null,
        "eos_token_id": Vocabulary::END,
        "pad_token_id": null,
        "dtype": dtype,
        "torch_dtype": dtype,
    });
    if let Value::Object(common_fields) = common_fields {
        config.extend(common_fields);
    }
    Value::Object(config)
}

/// A tensor that safetensors encodes on demand.
struct EncodedTensor<'a> {
    tensor: &'a ExportTensor,
    numbers: NumberFormat,
}

impl View for EncodedTensor<'_> {
    fn dtype(&self) -> Dtype {
        match self.numbers {
            NumberFormat::F32 => Dtype::F32,
            NumberFormat::Bf16 => Dtype::BF16,
            NumberFormat::F16 => Dtype::F16,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.numbers.encode(&self.tensor.values))
    }

    fn data_len(&self) -> usize {
        self.tensor.values.len() * if self.numbers == NumberFormat::F32 { 4 } else { 2 }
    }
}

fn encode_weights(exported: &ExportedCheckpoint) -> Result<Vec<u8>, ExportError> {
    let numbers = exported.numbers;
    let tensors =
        exported.target.tensors.iter().map(|tensor| (tensor.name.as_str(), EncodedTensor { tensor, numbers }));
    // transformers rejects files without this metadata.
    tensor_file::encode(tensors, &[("format", "pt"), MADE_BY])
        .map_err(|error| ExportError::unsupported("model.safetensors", error, "tensors"))
}

/// A word-level tokenizer: every token is a word between white space.
fn tokenizer(vocabulary: &Vocabulary) -> Value {
    let special_token = |id: u32| {
        json!({
            "id": id, "content": vocabulary.tokens[id as usize].name, "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        })
    };
    let token_ids: Map<String, Value> =
        vocabulary.tokens.iter().enumerate().map(|(id, token)| (token.name.clone(), json!(id))).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special_token(Vocabulary::UNKNOWN), special_token(Vocabulary::END)],
        "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": token_ids, "unk_token": vocabulary.tokens[Vocabulary::UNKNOWN as usize].name },
    })
}

fn tokenizer_config(exported: &ExportedCheckpoint) -> Value {
    let name = |id: u32| &exported.vocabulary.tokens[id as usize].name;
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": exported.max_length,
        "unk_token": name(Vocabulary::UNKNOWN),
        "eos_token": name(Vocabulary::END),
        "clean_up_tokenization_spaces": false,
    })
}
