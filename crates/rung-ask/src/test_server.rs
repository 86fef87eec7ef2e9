//! Servers for tests on the loopback interface: each speaks one of three protocols, is given every answer, and simulates faults.
//!
//! A server simulates a model that makes a given number of hops: questions with more hops get a wrong answer. Faults occur at the first
//! attempt at a question, and successive questions cycle through the list of faults, so that a client that retries gets every answer.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::prompt::{CHAT_ENDING, Question};

/// A fault at the first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFault {
    /// The reply is delayed.
    Slow,
    /// Status 429 with `Retry-After: 0`.
    TooManyRequests,
    /// Status 500.
    InternalError,
    /// The JSON ends in the middle.
    TruncatedJson,
    /// JSON without the fields of the protocol.
    UnexpectedJson,
    /// A correct reply without probabilities.
    MissingProbabilities,
    /// The connection is closed without a reply.
    ConnectionReset,
}

impl ServerFault {
    /// Every fault.
    pub const ALL: [Self; 7] = [
        Self::Slow,
        Self::TooManyRequests,
        Self::InternalError,
        Self::TruncatedJson,
        Self::UnexpectedJson,
        Self::MissingProbabilities,
        Self::ConnectionReset,
    ];
}

/// The protocol that a test server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestProtocol {
    /// llama.cpp's `/completion` and a tokenizer.
    LlamaCpp,
    /// `/v1/completions` and a tokenizer, as vLLM.
    Completions,
    /// `/v1/chat/completions` alone, as Ollama.
    Chat,
}

/// A server that runs until it is dropped.
pub struct TestServer {
    address: SocketAddr,
    state: Arc<ServerState>,
}

/// State that the threads of a server share.
struct ServerState {
    protocol: TestProtocol,
    /// By prompt: the right symbol, and a wrong one.
    answers: HashMap<String, (String, String)>,
    /// Questions up to this number of hops get the right answer.
    max_hops: usize,
    /// Number of hops by prompt.
    hops: HashMap<String, usize>,
    faults: Vec<ServerFault>,
    /// Number of requests by prompt.
    attempts: Mutex<HashMap<String, usize>>,
    next_fault: AtomicUsize,
    /// The `Authorization` header of the last request.
    authorization: Mutex<Option<String>>,
    stop: AtomicBool,
}

impl TestServer {
    /// Starts a server that answers these questions, correctly up to `max_hops`.
    ///
    /// # Errors
    /// No port of the loopback interface is free.
    pub fn start(
        protocol: TestProtocol,
        questions: &[Question],
        max_hops: usize,
        faults: &[ServerFault],
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let wrong_symbol =
            |question: &Question| question.symbols.iter().find(|symbol| **symbol != question.answer).cloned();
        let answers = questions
            .iter()
            .map(|question| {
                (question.text.clone(), (question.answer.clone(), wrong_symbol(question).unwrap_or_default()))
            })
            .collect();
        let state = Arc::new(ServerState {
            protocol,
            answers,
            max_hops,
            hops: questions.iter().map(|question| (question.text.clone(), question.hops)).collect(),
            faults: faults.to_vec(),
            attempts: Mutex::default(),
            next_fault: AtomicUsize::new(0),
            authorization: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let listener_state = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if listener_state.stop.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&listener_state);
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Ok(Self { address, state })
    }

    /// Its address, such as `http://127.0.0.1:4711`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of requests by prompt.
    pub fn attempts(&self) -> HashMap<String, usize> {
        self.state.attempts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The last `Authorization` header that was sent.
    pub fn last_authorization(&self) -> Option<String> {
        self.state.authorization.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        // A connection wakes the accepting thread, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

impl ServerState {
    /// Answers the requests of one connection.
    fn serve(&self, stream: TcpStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let Ok(mut writer) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        while let Some(Request { path, body, authorization }) = read_request(&mut reader) {
            *self.authorization.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = authorization;
            let Some((status, reply)) = self.reply(&path, &body) else { return };
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nretry-after: 0\r\n\r\n",
                reply.len()
            );
            if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(reply.as_bytes())).is_err() {
                return;
            }
        }
    }

    /// Status and body, or none to close the connection.
    fn reply(&self, path: &str, body: &Value) -> Option<(u16, String)> {
        let ok = |value: Value| Some((200, value.to_string()));
        match (path, self.protocol) {
            ("/props", TestProtocol::LlamaCpp) => ok(json!({"default_generation_settings": {}})),
            ("/v1/models", _) => ok(json!({"data": [{"id": "test-model"}]})),
            ("/tokenize", TestProtocol::LlamaCpp | TestProtocol::Completions) => {
                let text = body["content"].as_str().or(body["prompt"].as_str()).unwrap_or_default();
                let tokens: Vec<usize> = text.split(' ').map(str::len).collect();
                ok(json!({"tokens": tokens}))
            }
            ("/completion", TestProtocol::LlamaCpp) | ("/v1/completions", TestProtocol::Completions) => {
                self.answer(path, body["prompt"].as_str()?)
            }
            ("/v1/chat/completions", TestProtocol::Chat) => {
                let prompt = body["messages"][0]["content"].as_str()?;
                self.answer(path, prompt.strip_suffix(CHAT_ENDING).unwrap_or(prompt))
            }
            _ => Some((404, json!({"error": "no such path"}).to_string())),
        }
    }

    /// The reply to a prompt, with a fault at the first attempt.
    fn answer(&self, path: &str, prompt: &str) -> Option<(u16, String)> {
        let Some((right_symbol, wrong_symbol)) = self.answers.get(prompt) else {
            return Some((200, reply_json(path, " ?", None).to_string()));
        };
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let count = attempts.entry(prompt.to_owned()).or_default();
            *count += 1;
            *count
        };
        let symbol = if self.hops[prompt] <= self.max_hops { right_symbol } else { wrong_symbol };
        let text = format!(" {symbol}");
        let full_reply = reply_json(path, &text, Some(0.9_f64.ln())).to_string();
        if attempt > 1 || self.faults.is_empty() {
            return Some((200, full_reply));
        }
        let fault = self.faults[self.next_fault.fetch_add(1, Ordering::Relaxed) % self.faults.len()];
        match fault {
            ServerFault::Slow => {
                std::thread::sleep(Duration::from_millis(50));
                Some((200, full_reply))
            }
            ServerFault::TooManyRequests => Some((429, "{}".to_owned())),
            ServerFault::InternalError => Some((500, "{}".to_owned())),
            ServerFault::TruncatedJson => Some((200, full_reply[..full_reply.len() / 2].to_owned())),
            ServerFault::UnexpectedJson => Some((200, "[1, 2]".to_owned())),
            ServerFault::MissingProbabilities => Some((200, reply_json(path, &text, None).to_string())),
            ServerFault::ConnectionReset => None,
        }
    }
}

/// The JSON of a reply in the protocol of the path.
fn reply_json(path: &str, text: &str, logprob: Option<f64>) -> Value {
    let top_logprobs = json!([{"token": text, "logprob": logprob}]);
    let if_logprob = |value: Value| logprob.map(|_| value);
    match path {
        "/completion" => {
            json!({"content": text, "completion_probabilities": if_logprob(json!([{"top_logprobs": top_logprobs}]))})
        }
        "/v1/completions" => {
            json!({"choices": [{"text": text, "logprobs": if_logprob(json!({"top_logprobs": [{text: logprob}]}))}]})
        }
        _ => {
            let logprobs = if_logprob(json!({"content": [{"top_logprobs": top_logprobs}]}));
            json!({"choices": [{"message": {"content": text}, "logprobs": logprobs}]})
        }
    }
}

struct Request {
    path: String,
    body: Value,
    authorization: Option<String>,
}

/// The next request; none at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut content_length, mut authorization) = (0, None);
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => content_length = value.trim().parse::<u64>().ok()?.min(1 << 24),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => (),
        }
    }
    let mut body = Vec::new();
    reader.take(content_length).read_to_end(&mut body).ok()?;
    Some(Request { path, body: serde_json::from_slice(&body).unwrap_or_default(), authorization })
}
