//! HTTP requests with JSON bodies and replies, with limits on time and size.

use std::io::Read as _;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::Body;
use ureq::http::Response;

use crate::AskError;

/// Maximum size of a reply.
const MAX_BYTES: u64 = 16 << 20;

/// An HTTP client for one server.
pub(super) struct Http {
    agent: Agent,
    base_url: String,
    authorization: Option<String>,
}

impl Http {
    pub(super) fn new(base_url: String, api_key: Option<String>, timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")))
            .build();
        let authorization = api_key.map(|key| format!("Bearer {key}"));
        Self { agent: config.into(), base_url, authorization }
    }

    /// The base URL.
    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Posts JSON. Returns the URL, for error messages, and the reply's JSON.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<(String, Value), AskError> {
        let url = format!("{}{path}", self.base_url);
        let mut request = self.agent.post(&url).content_type("application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let reply = request.send(body.to_string().as_bytes());
        let value = read_json(&url, reply)?;
        Ok((url, value))
    }

    pub(super) fn get(&self, path: &str) -> Result<Value, AskError> {
        let url = format!("{}{path}", self.base_url);
        let mut request = self.agent.get(&url);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        read_json(&url, request.call())
    }
}

fn read_json(url: &str, reply: Result<Response<Body>, ureq::Error>) -> Result<Value, AskError> {
    let unreachable = |cause: String| AskError::Unreachable { url: url.to_owned(), cause };
    let mut reply = reply.map_err(|error| unreachable(error.to_string()))?;
    let status = reply.status().as_u16();
    let retry_after = reply.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let mut text = Vec::new();
    let mut reader = reply.body_mut().as_reader().take(MAX_BYTES + 1);
    reader.read_to_end(&mut text).map_err(|error| unreachable(error.to_string()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(unexpected_response(url, format!("a reply of more than {MAX_BYTES} bytes"), "a shorter one"));
    }
    if !(200..300).contains(&status) {
        let message = excerpt_for_message(&String::from_utf8_lossy(&text));
        return Err(AskError::Status { url: url.to_owned(), status, message, retry_after });
    }
    serde_json::from_slice(&text)
        .map_err(|error| unexpected_response(url, format!("a reply that is not JSON ({error})"), "JSON"))
}

/// An error about a reply that does not follow the protocol.
pub(super) fn unexpected_response(url: &str, found: impl Into<String>, expected: &str) -> AskError {
    AskError::UnexpectedResponse { url: url.to_owned(), found: found.into(), expected: expected.to_owned() }
}

/// The first 200 characters of a text that are not control characters, for an error message.
pub(super) fn excerpt_for_message(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(200).collect()
}
