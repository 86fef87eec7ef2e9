//! Parsers of server replies, one per protocol. They are pure functions, so that a fuzzer can call them.

use serde_json::Value;

use super::http::{excerpt_for_message, unexpected_response};
use crate::{AskError, Reply, TokenProbability};

/// Parses a reply of llama.cpp's `/completion`.
///
/// # Errors
/// It has no `content`.
pub fn parse_llama_cpp(url: &str, value: &Value) -> Result<Reply, AskError> {
    let text = value.get("content").and_then(Value::as_str);
    let text = text.ok_or_else(|| unexpected_response(url, describe_keys(value), "`content`, a string"))?.to_owned();
    let first = &value["completion_probabilities"][0];
    let first_token_candidates = parse_logprobs(&first["top_logprobs"]);
    // Older builds have `probs`, with probabilities instead of their logarithms.
    let first_token_candidates =
        if first_token_candidates.is_empty() { parse_probabilities(&first["probs"]) } else { first_token_candidates };
    Ok(Reply { text, first_token_candidates, has_reasoning: false })
}

/// Parses a reply of `/v1/completions`.
///
/// # Errors
/// It has no `choices[0].text`.
pub fn parse_completions(url: &str, value: &Value) -> Result<Reply, AskError> {
    let choice = &value["choices"][0];
    let text = choice["text"]
        .as_str()
        .ok_or_else(|| unexpected_response(url, describe_keys(value), "`choices[0].text`, a string"))?
        .to_owned();
    let logprobs = &choice["logprobs"];
    // llama.cpp uses the chat format here; other servers have one object per position that maps tokens to log-probabilities.
    let mut first_token_candidates = parse_logprobs(&logprobs["content"][0]["top_logprobs"]);
    if let Some(tokens) = logprobs["top_logprobs"][0].as_object() {
        let token = |(text, logprob): (&String, &Value)| token_probability(text, logprob.as_f64()?.exp());
        first_token_candidates = tokens.iter().filter_map(token).collect();
    }
    Ok(Reply { text, first_token_candidates, has_reasoning: false })
}

/// Parses a reply of `/v1/chat/completions`.
///
/// # Errors
/// It has no `choices[0].message`.
pub fn parse_chat(url: &str, value: &Value) -> Result<Reply, AskError> {
    let choice = &value["choices"][0];
    let message = choice.get("message").and_then(Value::as_object);
    let message =
        message.ok_or_else(|| unexpected_response(url, describe_keys(value), "`choices[0].message`, an object"))?;
    let text = message.get("content").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_non_empty = |key: &str| message.get(key).and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
    let has_reasoning =
        is_non_empty("reasoning_content") || is_non_empty("reasoning") || text.trim_start().starts_with("<think>");
    Ok(Reply {
        first_token_candidates: parse_logprobs(&choice["logprobs"]["content"][0]["top_logprobs"]),
        text,
        has_reasoning,
    })
}

/// Parses a list of `{token, logprob}`.
fn parse_logprobs(value: &Value) -> Vec<TokenProbability> {
    let token = |entry: &Value| token_probability(entry["token"].as_str()?, entry["logprob"].as_f64()?.exp());
    value.as_array().map(|entries| entries.iter().filter_map(token).collect()).unwrap_or_default()
}

/// Parses a list of `{tok_str, prob}`.
fn parse_probabilities(value: &Value) -> Vec<TokenProbability> {
    let token = |entry: &Value| token_probability(entry["tok_str"].as_str()?, entry["prob"].as_f64()?);
    value.as_array().map(|entries| entries.iter().filter_map(token).collect()).unwrap_or_default()
}

/// A token with its probability, or none if the number is not a probability. Up to 1.001 counts as 1: servers round log-probabilities.
fn token_probability(text: &str, probability: f64) -> Option<TokenProbability> {
    let is_valid = (0.0..=1.0 + 1e-3).contains(&probability);
    is_valid.then(|| TokenProbability { text: text.to_owned(), probability: probability.min(1.0) })
}

/// The keys of a reply, for an error message.
fn describe_keys(value: &Value) -> String {
    match value.as_object() {
        Some(object) => {
            let names: Vec<&str> = object.keys().take(8).map(String::as_str).collect();
            format!("an object with [{}]", excerpt_for_message(&names.join(", ")))
        }
        None => "no object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn probabilities_are_parsed_in_every_format() {
        let ln_half = 0.5_f64.ln();
        let entry = json!([{"token": " A", "logprob": ln_half, "id": 3}]);
        let replies = [
            parse_llama_cpp("u", &json!({"content": " A", "completion_probabilities": [{"top_logprobs": entry}]})),
            parse_llama_cpp(
                "u",
                &json!({"content": " A", "completion_probabilities": [{"probs": [{"tok_str": " A", "prob": 0.5}]}]}),
            ),
            parse_completions(
                "u",
                &json!({"choices": [{"text": " A", "logprobs": {"top_logprobs": [{" A": ln_half}]}}]}),
            ),
            parse_completions(
                "u",
                &json!({"choices": [{"text": " A", "logprobs": {"content": [{"top_logprobs": entry}]}}]}),
            ),
            parse_chat(
                "u",
                &json!({"choices": [{"message": {"content": " A"}, "logprobs": {"content": [{"top_logprobs": entry}]}}]}),
            ),
        ];
        for reply in replies {
            let reply = reply.unwrap();
            assert_eq!((reply.text.as_str(), reply.first_token_candidates[0].text.as_str()), (" A", " A"));
            assert!((reply.first_token_candidates[0].probability - 0.5).abs() < 1e-12 && !reply.has_reasoning);
        }
    }

    #[test]
    fn malformed_replies_are_errors_or_have_no_probabilities() {
        for value in [json!(null), json!([]), json!({}), json!({"choices": 3}), json!({"choices": [{"text": 4}]})] {
            assert!(parse_llama_cpp("u", &value).is_err() && parse_completions("u", &value).is_err());
            assert!(parse_chat("u", &value).is_err());
        }
        let malformed = json!({"content": "A", "completion_probabilities": [{"top_logprobs": [{"token": 3, "logprob": "x"}, {"token": "A", "logprob": 9}]}]});
        assert!(parse_llama_cpp("u", &malformed).unwrap().first_token_candidates.is_empty());
    }

    #[test]
    fn replies_that_contain_reasoning_are_marked() {
        let reply = |message: Value| parse_chat("u", &json!({"choices": [{"message": message}]})).unwrap();
        assert!(reply(json!({"content": "A", "reasoning_content": "First"})).has_reasoning);
        assert!(reply(json!({"content": "<think> hm"})).has_reasoning);
        assert!(!reply(json!({"content": "A", "reasoning_content": ""})).has_reasoning);
    }
}
