//! Models behind an inference server.
//!
//! Three protocols cover the servers that people run. Which one an address speaks is found by asking it, and is shown.
//!
//! | protocol | spoken by | first-token probabilities |
//! |---|---|---|
//! | `llama.cpp` | llama.cpp's `/completion` | the 64 most likely tokens |
//! | `completions` | `/v1/completions` of vLLM, SGLang, llama.cpp, TGI | 20, or as many as the server allows |
//! | `chat` | `/v1/chat/completions` of those, Ollama and hosted models | 20, where the server gives them |
//!
//! The chat protocol puts a chat template around the prompt. Reasoning is switched off by the template's own switch where there is
//! one; a reply that reasoned anyway is marked. A key is read from the environment variable `RUNG_API_KEY`, sent as a bearer token,
//! and kept nowhere else.

mod http;
pub mod reply;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::prompt::CHAT_ENDING;
use crate::{AnsweringModel, AskError, Reply, ServerDescription};
use http::Http;
pub use reply::{parse_chat, parse_completions, parse_llama_cpp};

/// The environment variable that holds a key.
pub const KEY_VARIABLE: &str = "RUNG_API_KEY";

/// How a server is spoken to.
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
    /// All of them, with the names that users type.
    pub const ALL: [(&'static str, Self); 3] =
        [("llama.cpp", Self::LlamaCpp), ("completions", Self::Completions), ("chat", Self::Chat)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, protocol)| *protocol == self).map_or("", |(name, _)| name)
    }
}

/// What a request asks for beside the answer; servers that refuse the first are asked for less.
const DEMANDS: [CompletionOptions; 4] = [
    CompletionOptions { probabilities: 20, template_switch: true },
    CompletionOptions { probabilities: 20, template_switch: false },
    CompletionOptions { probabilities: 5, template_switch: false },
    CompletionOptions { probabilities: 0, template_switch: false },
];

#[derive(Clone, Copy)]
struct CompletionOptions {
    /// Most likely first tokens.
    probabilities: usize,
    /// Whether the switch that turns reasoning off is sent.
    template_switch: bool,
}

/// A model behind an address.
pub struct ModelServer {
    http: Http,
    protocol: ServerProtocol,
    model: String,
    /// Index into [`DEMANDS`]: the first that the server accepts.
    demand: AtomicUsize,
}

impl ModelServer {
    /// Connects to an address, and finds out what it speaks unless `protocol` says so.
    ///
    /// # Errors
    /// It cannot be reached or speaks none of the protocols.
    pub fn connect(
        address: &str,
        protocol: Option<ServerProtocol>,
        model: Option<&str>,
        timeout: Duration,
    ) -> Result<Self, AskError> {
        let (base, named) = split_address(address)?;
        let http = Http::new(base, std::env::var(KEY_VARIABLE).ok(), timeout);
        let protocol = match protocol.or(named) {
            Some(protocol) => protocol,
            None => detect(&http)?,
        };
        let model = model.map_or_else(|| first_model(&http), str::to_owned);
        let server = Self { http, protocol, model, demand: AtomicUsize::new(0) };
        if protocol == ServerProtocol::Completions && named.is_none() && server.next_token("A B C D").is_err() {
            return Ok(Self { protocol: ServerProtocol::Chat, ..server });
        }
        Ok(server)
    }

    /// How it is spoken to.
    pub fn protocol(&self) -> ServerProtocol {
        self.protocol
    }

    /// The address without credentials.
    pub fn address(&self) -> &str {
        self.http.base()
    }

    fn generate(&self, prompt: &str, tokens: usize, probabilities: bool) -> Result<Reply, AskError> {
        if self.protocol == ServerProtocol::LlamaCpp {
            let probabilities = if probabilities { 64 } else { 0 };
            let request = json!({
                "prompt": prompt, "n_predict": tokens, "n_probs": probabilities, "temperature": 0, "cache_prompt": false,
            });
            let (url, value) = self.http.post("/completion", &request)?;
            return parse_llama_cpp(&url, &value);
        }
        loop {
            let level = self.demand.load(Ordering::Relaxed);
            match self.generate_with(DEMANDS[level], prompt, tokens, probabilities) {
                // 400 and 422 are how servers refuse a field or a number that they do not know.
                Err(AskError::Status { status: 400 | 422, .. }) if level + 1 < DEMANDS.len() => {
                    self.demand.fetch_max(level + 1, Ordering::Relaxed);
                }
                other => return other,
            }
        }
    }

    fn generate_with(
        &self,
        demand: CompletionOptions,
        prompt: &str,
        tokens: usize,
        probabilities: bool,
    ) -> Result<Reply, AskError> {
        let mut request = json!({"model": self.model, "max_tokens": tokens, "temperature": 0});
        let count = if probabilities { demand.probabilities } else { 0 };
        if self.protocol == ServerProtocol::Completions {
            request["prompt"] = json!(prompt);
            if count > 0 {
                request["logprobs"] = json!(count);
            }
            let (url, value) = self.http.post("/v1/completions", &request)?;
            return parse_completions(&url, &value);
        }
        let ending = if tokens == 1 { CHAT_ENDING } else { "" };
        request["messages"] = json!([{"role": "user", "content": format!("{prompt}{ending}")}]);
        if count > 0 {
            request["logprobs"] = json!(true);
            request["top_logprobs"] = json!(count);
        }
        if demand.template_switch {
            request["chat_template_kwargs"] = json!({"enable_thinking": false});
        }
        let (url, value) = self.http.post("/v1/chat/completions", &request)?;
        parse_chat(&url, &value)
    }
}

impl AnsweringModel for ModelServer {
    fn describe(&self) -> ServerDescription {
        ServerDescription { protocol: self.protocol.name().to_owned(), model: self.model.clone() }
    }

    fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError> {
        let request = if self.protocol == ServerProtocol::LlamaCpp {
            json!({"content": text, "add_special": false})
        } else {
            // vLLM reads `prompt`, llama.cpp `content`; each ignores what it does not know.
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
        self.generate(prompt, 1, true)
    }

    fn write(&self, prompt: &str, tokens: usize) -> Result<Reply, AskError> {
        self.generate(prompt, tokens, false)
    }
}

/// The base of an address, and the protocol if its path names one.
fn split_address(address: &str) -> Result<(String, Option<ServerProtocol>), AskError> {
    if !address.starts_with("http://") && !address.starts_with("https://") {
        return Err(AskError::Unsupported(format!("target: found {address}, expected http://.. or https://..")));
    }
    let address = address.trim_end_matches('/');
    let endings = [
        ("/v1/chat/completions", Some(ServerProtocol::Chat)),
        ("/v1/completions", Some(ServerProtocol::Completions)),
        ("/completion", Some(ServerProtocol::LlamaCpp)),
        ("/v1", None),
    ];
    for (ending, protocol) in endings {
        if let Some(base) = address.strip_suffix(ending) {
            return Ok((base.to_owned(), protocol));
        }
    }
    Ok((address.to_owned(), None))
}

fn detect(http: &Http) -> Result<ServerProtocol, AskError> {
    if let Ok(value) = http.get("/props")
        && value.get("default_generation_settings").is_some()
    {
        return Ok(ServerProtocol::LlamaCpp);
    }
    match http.get("/v1/models") {
        Ok(_) => Ok(ServerProtocol::Completions),
        Err(AskError::Status { status, .. }) => Err(AskError::Shape {
            url: http.base().to_owned(),
            found: format!("neither /props nor /v1/models (status {status})"),
            expected: "a server that speaks llama.cpp's protocol or OpenAI's; --protocol names one".to_owned(),
        }),
        Err(error) => Err(error),
    }
}

fn first_model(http: &Http) -> String {
    let value = http.get("/v1/models").unwrap_or_default();
    let name = value["data"][0]["id"].as_str().unwrap_or("default");
    // llama.cpp names a model by its path on the server's machine; only the file says something, and may be shown.
    let file = name.rsplit(['/', '\\']).next().filter(|file| file.to_lowercase().ends_with("gguf"));
    file.unwrap_or(name).chars().filter(|letter| !letter.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_from_their_paths() {
        let split = |address: &str| split_address(address).unwrap();
        assert_eq!(split("http://127.0.0.1:80/"), ("http://127.0.0.1:80".to_owned(), None));
        assert_eq!(split("http://h/v1"), ("http://h".to_owned(), None));
        assert_eq!(split("http://h/v1/chat/completions"), ("http://h".to_owned(), Some(ServerProtocol::Chat)));
        assert_eq!(split("http://h/x/completion"), ("http://h/x".to_owned(), Some(ServerProtocol::LlamaCpp)));
        assert!(split_address("ftp://h").is_err());
    }
}
