//! A client of inference servers.
//!
//! Three protocols cover the servers in common use. The protocol of an address is detected from its replies.
//!
//! | protocol | servers | first-token probabilities |
//! |---|---|---|
//! | `llama.cpp` | llama.cpp's `/completion` | the 64 most likely tokens |
//! | `completions` | `/v1/completions` of vLLM, SGLang, llama.cpp, TGI | 20, or as many as the server allows |
//! | `chat` | `/v1/chat/completions` of those, Ollama and hosted models | 20, where the server gives them |
//!
//! The chat protocol puts a chat template around the prompt. Reasoning is switched off by a variable of the template where the
//! server supports it; a reply that contains reasoning anyway is marked. An API key is read from the environment variable `RUNG_API_KEY`,
//! sent as a bearer token, and stored nowhere else.

mod http;
pub mod reply;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::prompt::CHAT_ENDING;
use crate::{AnsweringModel, AskError, ModelDescription, Reply};
use http::Http;
pub use reply::{parse_chat, parse_completions, parse_llama_cpp};

/// The environment variable that holds the API key.
pub const API_KEY_VARIABLE: &str = "RUNG_API_KEY";

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerProtocol {
    /// llama.cpp's own `/completion`.
    LlamaCpp,
    /// OpenAI-compatible text completion.
    Completions,
    /// OpenAI-compatible chat completion.
    Chat,
}

impl ServerProtocol {
    /// Every protocol, with its name on the command line.
    pub const ALL: [(&'static str, Self); 3] =
        [("llama.cpp", Self::LlamaCpp), ("completions", Self::Completions), ("chat", Self::Chat)];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, protocol)| *protocol == self).map_or("", |(name, _)| name)
    }
}

/// Optional fields of a request, from the most to the fewest. When a server rejects one set, the next is tried.
const REQUEST_OPTIONS: [CompletionOptions; 4] = [
    CompletionOptions { top_logprobs: 20, disable_thinking: true },
    CompletionOptions { top_logprobs: 20, disable_thinking: false },
    CompletionOptions { top_logprobs: 5, disable_thinking: false },
    CompletionOptions { top_logprobs: 0, disable_thinking: false },
];

/// Optional fields of a request.
#[derive(Clone, Copy)]
struct CompletionOptions {
    /// How many of the most likely first tokens are requested with their log-probabilities.
    top_logprobs: usize,
    /// Whether the request switches reasoning off in the chat template.
    disable_thinking: bool,
}

/// A model of an inference server.
pub struct ModelServer {
    http: Http,
    protocol: ServerProtocol,
    model: String,
    /// Index into [`REQUEST_OPTIONS`]: the first that the server has not rejected.
    options_index: AtomicUsize,
}

impl ModelServer {
    /// Connects to an address, and detects its protocol unless `protocol` is given.
    ///
    /// # Errors
    /// The server cannot be reached or supports none of the protocols.
    pub fn connect(
        address: &str,
        protocol: Option<ServerProtocol>,
        model: Option<&str>,
        timeout: Duration,
    ) -> Result<Self, AskError> {
        let (base_url, path_protocol) = split_address(address)?;
        let http = Http::new(base_url, std::env::var(API_KEY_VARIABLE).ok(), timeout);
        let protocol = match protocol.or(path_protocol) {
            Some(protocol) => protocol,
            None => detect_protocol(&http)?,
        };
        let model = model.map_or_else(|| first_model_name(&http), str::to_owned);
        let server = Self { http, protocol, model, options_index: AtomicUsize::new(0) };
        if protocol == ServerProtocol::Completions && path_protocol.is_none() && server.next_token("A B C D").is_err() {
            return Ok(Self { protocol: ServerProtocol::Chat, ..server });
        }
        Ok(server)
    }

    /// The protocol in use.
    pub fn protocol(&self) -> ServerProtocol {
        self.protocol
    }

    /// The base URL of the server, which has no credentials.
    pub fn address(&self) -> &str {
        self.http.base_url()
    }

    fn complete(&self, prompt: &str, max_tokens: usize, with_logprobs: bool) -> Result<Reply, AskError> {
        if self.protocol == ServerProtocol::LlamaCpp {
            let top_logprobs = if with_logprobs { 64 } else { 0 };
            let request = json!({
                "prompt": prompt, "n_predict": max_tokens, "n_probs": top_logprobs, "temperature": 0, "cache_prompt": false,
            });
            let (url, value) = self.http.post("/completion", &request)?;
            return parse_llama_cpp(&url, &value);
        }
        loop {
            let index = self.options_index.load(Ordering::Relaxed);
            match self.complete_with(REQUEST_OPTIONS[index], prompt, max_tokens, with_logprobs) {
                // Servers reject an unknown field or a too large number with status 400 or 422.
                Err(AskError::Status { status: 400 | 422, .. }) if index + 1 < REQUEST_OPTIONS.len() => {
                    self.options_index.fetch_max(index + 1, Ordering::Relaxed);
                }
                result => return result,
            }
        }
    }

    fn complete_with(
        &self,
        options: CompletionOptions,
        prompt: &str,
        max_tokens: usize,
        with_logprobs: bool,
    ) -> Result<Reply, AskError> {
        let mut request = json!({"model": self.model, "max_tokens": max_tokens, "temperature": 0});
        let top_logprobs = if with_logprobs { options.top_logprobs } else { 0 };
        if self.protocol == ServerProtocol::Completions {
            request["prompt"] = json!(prompt);
            if top_logprobs > 0 {
                request["logprobs"] = json!(top_logprobs);
            }
            let (url, value) = self.http.post("/v1/completions", &request)?;
            return parse_completions(&url, &value);
        }
        let ending = if max_tokens == 1 { CHAT_ENDING } else { "" };
        request["messages"] = json!([{"role": "user", "content": format!("{prompt}{ending}")}]);
        if top_logprobs > 0 {
            request["logprobs"] = json!(true);
            request["top_logprobs"] = json!(top_logprobs);
        }
        if options.disable_thinking {
            request["chat_template_kwargs"] = json!({"enable_thinking": false});
        }
        let (url, value) = self.http.post("/v1/chat/completions", &request)?;
        parse_chat(&url, &value)
    }
}

impl AnsweringModel for ModelServer {
    fn describe(&self) -> ModelDescription {
        ModelDescription { protocol: self.protocol.name().to_owned(), model: self.model.clone() }
    }

    fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError> {
        let request = if self.protocol == ServerProtocol::LlamaCpp {
            json!({"content": text, "add_special": false})
        } else {
            // vLLM reads `prompt`, llama.cpp `content`; each ignores unknown fields.
            json!({"model": self.model, "prompt": text, "content": text, "add_special_tokens": false, "add_special": false})
        };
        let value = match self.http.post("/tokenize", &request) {
            Ok((_, value)) => value,
            Err(AskError::Status { status, .. }) if status != 429 && status < 500 => return Ok(None),
            Err(error) => return Err(error),
        };
        let tokens = value.get("tokens").and_then(Value::as_array);
        Ok(tokens.and_then(|tokens| tokens.iter().map(|token| token.as_u64()?.try_into().ok()).collect()))
    }

    fn next_token(&self, prompt: &str) -> Result<Reply, AskError> {
        self.complete(prompt, 1, true)
    }

    fn generate(&self, prompt: &str, max_tokens: usize) -> Result<Reply, AskError> {
        self.complete(prompt, max_tokens, false)
    }
}

/// The base URL of an address, and the protocol if the address ends with a known path.
fn split_address(address: &str) -> Result<(String, Option<ServerProtocol>), AskError> {
    if !address.starts_with("http://") && !address.starts_with("https://") {
        return Err(AskError::Unsupported(format!("target: found {address}, expected http://.. or https://..")));
    }
    let (_, after_scheme) = address.split_once("://").unwrap_or_default();
    if after_scheme.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        let expected = format!("none: addresses are recorded; a key is read from {API_KEY_VARIABLE}");
        return Err(AskError::Unsupported(format!("target: found a user name in the address, expected {expected}")));
    }
    let address = address.trim_end_matches('/');
    let known_paths = [
        ("/v1/chat/completions", Some(ServerProtocol::Chat)),
        ("/v1/completions", Some(ServerProtocol::Completions)),
        ("/completion", Some(ServerProtocol::LlamaCpp)),
        ("/v1", None),
    ];
    for (path, protocol) in known_paths {
        if let Some(base) = address.strip_suffix(path) {
            return Ok((base.to_owned(), protocol));
        }
    }
    Ok((address.to_owned(), None))
}

/// Finds the protocol of a server by its replies to `/props` and `/v1/models`.
fn detect_protocol(http: &Http) -> Result<ServerProtocol, AskError> {
    if let Ok(value) = http.get("/props")
        && value.get("default_generation_settings").is_some()
    {
        return Ok(ServerProtocol::LlamaCpp);
    }
    match http.get("/v1/models") {
        Ok(_) => Ok(ServerProtocol::Completions),
        Err(AskError::Status { status, .. }) => Err(AskError::UnexpectedResponse {
            url: http.base_url().to_owned(),
            found: format!("neither /props nor /v1/models (status {status})"),
            expected: "a server with llama.cpp's or OpenAI's protocol; --protocol selects one".to_owned(),
        }),
        Err(error) => Err(error),
    }
}

/// The name of the first model that the server lists.
fn first_model_name(http: &Http) -> String {
    let value = http.get("/v1/models").unwrap_or_default();
    let name = value["data"][0]["id"].as_str().unwrap_or("default");
    // llama.cpp names a model by its path on the server. Only the file name is kept, so that the server's directories are not shown.
    let file = name.rsplit(['/', '\\']).next().filter(|file| file.to_lowercase().ends_with("gguf"));
    file.unwrap_or(name).chars().filter(|character| !character.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_address_separates_base_url_and_protocol() {
        let split = |address: &str| split_address(address).unwrap();
        assert_eq!(split("http://127.0.0.1:80/"), ("http://127.0.0.1:80".to_owned(), None));
        assert_eq!(split("http://h/v1"), ("http://h".to_owned(), None));
        assert_eq!(split("http://h/v1/chat/completions"), ("http://h".to_owned(), Some(ServerProtocol::Chat)));
        assert_eq!(split("http://h/x/completion"), ("http://h/x".to_owned(), Some(ServerProtocol::LlamaCpp)));
        assert!(split_address("ftp://h").is_err());
    }

    #[test]
    fn addresses_with_credentials_are_rejected_without_repeating_them() {
        for address in ["http://user:secret@h", "https://secret@h/v1?x=@", "http://:secret@h:1/"] {
            let error = split_address(address).unwrap_err().to_string();
            assert!(error.contains(API_KEY_VARIABLE) && !error.contains("secret"), "{error}");
        }
        assert!(split_address("http://h/a@b").is_ok());
    }
}
