//! As much of HTTP/1.1 as one page needs: one request per connection, bounded in bytes and in time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The media type of answers.
pub(super) const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// A request's head may have so many bytes.
const MOST_HEAD: usize = 16 << 10;
/// A request's body may have so many: the header of a GGUF file, and a question beside it.
const MOST_BODY: usize = 36 << 20;
/// A request must have arrived after so long; tests have less patience.
const READ_TIMEOUT: Duration = if cfg!(test) { Duration::from_millis(1500) } else { Duration::from_secs(10) };
/// An answer must have been taken after so long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    query: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Why there is no request to answer.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The client is gone.
    Disconnected,
    /// It is refused.
    Status(u16, String),
}

/// An answer.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: Vec<u8>,
}

fn status(status: u16, why: &str) -> RequestError {
    RequestError::Status(status, why.to_owned())
}

impl Request {
    /// Reads the head of a request.
    fn parse(head: &str) -> Result<Self, RequestError> {
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (first.next(), first.next(), first.next(), first.next())
        else {
            return Err(status(400, "not a request of HTTP/1.1"));
        };
        if !target.starts_with('/') {
            return Err(status(400, "expected a path"));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = Vec::new();
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { return Err(status(400, "a header has no colon")) };
            if name.is_empty() || name.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
                return Err(status(400, "a header has no name"));
            }
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: Vec::new(),
        })
    }

    /// A header that occurs once.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        found.next().filter(|_| found.next().is_none())
    }

    /// A value of the query.
    pub(super) fn query(&self, name: &str) -> Option<String> {
        let pair = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pair.into_iter().find(|(key, _)| *key == name).map(|(_, value)| decode(value))
    }

    fn length(&self) -> Result<usize, RequestError> {
        if self.headers.iter().any(|(name, _)| name == "transfer-encoding") {
            return Err(status(411, "a body needs a length"));
        }
        match self.headers.iter().filter(|(name, _)| name == "content-length").collect::<Vec<_>>()[..] {
            [] => Ok(0),
            [(_, text)] if text.bytes().all(|byte| byte.is_ascii_digit()) => match text.parse() {
                Ok(length) if length <= MOST_BODY => Ok(length),
                _ => Err(RequestError::Status(413, format!("the request is longer than {MOST_BODY} bytes"))),
            },
            _ => Err(status(400, "the length is no number")),
        }
    }
}

/// Percent signs and plus signs undone.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = (byte == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What requests come from.
pub(super) trait Incoming: Read {
    /// The longest that the next reading may take.
    fn wait_at_most(&mut self, time: Duration) -> std::io::Result<()>;
}

impl Incoming for TcpStream {
    fn wait_at_most(&mut self, time: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

impl Incoming for &[u8] {
    fn wait_at_most(&mut self, _: Duration) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads one request; `refuse` may turn it away before its body is read.
pub(super) fn read(
    stream: &mut impl Incoming,
    refuse: impl Fn(&Request) -> Option<RequestError>,
) -> Result<Request, RequestError> {
    let deadline = Instant::now() + READ_TIMEOUT;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MOST_HEAD {
            return Err(RequestError::Status(431, format!("the head is longer than {MOST_HEAD} bytes")));
        }
        read_more(stream, &mut bytes, MOST_HEAD, deadline)?;
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| status(400, "the head is not UTF-8"))?;
    let mut request = Request::parse(head)?;
    if let Some(problem) = refuse(&request) {
        return Err(problem);
    }
    let length = request.length()?;
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        read_more(stream, &mut body, length, deadline)?;
    }
    body.truncate(length);
    request.body = body;
    Ok(request)
}

fn read_more(
    stream: &mut impl Incoming,
    bytes: &mut Vec<u8>,
    most: usize,
    deadline: Instant,
) -> Result<(), RequestError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(status(408, "the request took too long"));
    }
    stream.wait_at_most(left).map_err(|_| RequestError::Disconnected)?;
    let mut part = vec![0; (most.saturating_sub(bytes.len())).clamp(1, 1 << 16)];
    match stream.read(&mut part) {
        Ok(0) => Err(RequestError::Disconnected),
        Ok(count) => {
            bytes.extend_from_slice(&part[..count]);
            Ok(())
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Err(status(408, "the request took too long"))
        }
        Err(_) => Err(RequestError::Disconnected),
    }
}

impl Response {
    /// A sentence.
    pub(super) fn text(status: u16, text: String) -> Self {
        Self { status, kind: TEXT, body: (text + "\n").into_bytes() }
    }

    /// Writes it; somebody who is gone has seen enough.
    pub(super) fn write(&self, stream: &mut TcpStream) {
        let reason = match self.status {
            200 => "OK",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            411 => "Length Required",
            413 => "Content Too Large",
            431 => "Request Header Fields Too Large",
            _ => "Bad Request",
        };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: SAMEORIGIN\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             Referrer-Policy: no-referrer\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let _ =
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&self.body)).and_then(|()| stream.flush());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // What a refused request still sends is taken and dropped, or the other side would see an error instead of the answer.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(300)));
        let mut left = [0; 4096];
        for _ in 0..64 {
            if !matches!(stream.read(&mut left), Ok(count) if count > 0) {
                break;
            }
        }
    }
}
