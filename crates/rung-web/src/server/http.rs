//! The part of HTTP/1.1 that the page needs: one request per connection, limited in bytes and in time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Media type of the answers to `/api`.
pub(super) const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Most bytes of a request's body: the header of a GGUF file and the request's JSON.
const MAX_BODY_BYTES: usize = 36 << 20;
/// Time within which a request must arrive; shorter in tests.
const READ_TIMEOUT: Duration = if cfg!(test) { Duration::from_millis(1500) } else { Duration::from_secs(10) };
/// Time within which the client must read the answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A parsed HTTP request.
#[derive(Debug)]
pub(super) struct HttpRequest {
    pub(super) method: String,
    /// The path without the query.
    pub(super) path: String,
    query: String,
    /// Header names in lower case, with their values.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Why a request could not be read.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The client closed the connection.
    Disconnected,
    /// The request is answered with this status and message.
    Status(u16, String),
}

/// An HTTP response.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) media_type: &'static str,
    pub(super) body: Vec<u8>,
}

fn status_error(status: u16, why: &str) -> RequestError {
    RequestError::Status(status, why.to_owned())
}

impl HttpRequest {
    /// Parses the head of a request.
    fn parse(head: &str) -> Result<Self, RequestError> {
        let mut lines = head.split("\r\n");
        let mut request_line = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (request_line.next(), request_line.next(), request_line.next(), request_line.next())
        else {
            return Err(status_error(400, "not a request of HTTP/1.1"));
        };
        if !target.starts_with('/') {
            return Err(status_error(400, "expected a path"));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = Vec::new();
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                return Err(status_error(400, "a header has no colon"));
            };
            if name.is_empty() || name.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
                return Err(status_error(400, "a header has no name"));
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

    /// The value of a header that occurs exactly once.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        values.next().filter(|_| values.next().is_none())
    }

    /// The decoded value of a query parameter.
    pub(super) fn query(&self, name: &str) -> Option<String> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| decode_percent(value))
    }

    /// The body's length in bytes, from the headers.
    fn body_length(&self) -> Result<usize, RequestError> {
        if self.headers.iter().any(|(name, _)| name == "transfer-encoding") {
            return Err(status_error(411, "a body needs a length"));
        }
        match self.headers.iter().filter(|(name, _)| name == "content-length").collect::<Vec<_>>()[..] {
            [] => Ok(0),
            [(_, text)] if text.bytes().all(|byte| byte.is_ascii_digit()) => match text.parse() {
                Ok(length) if length <= MAX_BODY_BYTES => Ok(length),
                _ => Err(RequestError::Status(413, format!("the request is longer than {MAX_BODY_BYTES} bytes"))),
            },
            _ => Err(status_error(400, "the length is not a number")),
        }
    }
}

/// Decodes percent-encoding and plus signs.
fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut remaining = text.as_bytes();
    while let Some((&byte, following)) = remaining.split_first() {
        let code = (byte == b'%').then(|| following.get(..2)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        remaining = if code.is_some() { &following[2..] } else { following };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A source of request bytes with a read timeout.
pub(super) trait RequestSource: Read {
    /// Sets the longest time that the next read may take.
    fn set_timeout(&mut self, time: Duration) -> std::io::Result<()>;
}

impl RequestSource for TcpStream {
    fn set_timeout(&mut self, time: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

impl RequestSource for &[u8] {
    fn set_timeout(&mut self, _: Duration) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads one request; `reject` may reject it before its body is read.
pub(super) fn read_request(
    stream: &mut impl RequestSource,
    reject: impl Fn(&HttpRequest) -> Option<RequestError>,
) -> Result<HttpRequest, RequestError> {
    let deadline = Instant::now() + READ_TIMEOUT;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > MAX_HEAD_BYTES {
            return Err(RequestError::Status(431, format!("the head is longer than {MAX_HEAD_BYTES} bytes")));
        }
        read_more(stream, &mut bytes, MAX_HEAD_BYTES, deadline)?;
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| status_error(400, "the head is not UTF-8"))?;
    let mut request = HttpRequest::parse(head)?;
    if let Some(error) = reject(&request) {
        return Err(error);
    }
    let length = request.body_length()?;
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        read_more(stream, &mut body, length, deadline)?;
    }
    body.truncate(length);
    request.body = body;
    Ok(request)
}

fn read_more(
    stream: &mut impl RequestSource,
    bytes: &mut Vec<u8>,
    max_bytes: usize,
    deadline: Instant,
) -> Result<(), RequestError> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() {
        return Err(status_error(408, "the request took too long"));
    }
    stream.set_timeout(remaining).map_err(|_| RequestError::Disconnected)?;
    let mut buffer = vec![0; (max_bytes.saturating_sub(bytes.len())).clamp(1, 1 << 16)];
    match stream.read(&mut buffer) {
        Ok(0) => Err(RequestError::Disconnected),
        Ok(count) => {
            bytes.extend_from_slice(&buffer[..count]);
            Ok(())
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Err(status_error(408, "the request took too long"))
        }
        Err(_) => Err(RequestError::Disconnected),
    }
}

impl HttpResponse {
    /// A plain-text response.
    pub(super) fn text(status: u16, text: String) -> Self {
        Self { status, media_type: TEXT, body: (text + "\n").into_bytes() }
    }

    /// Writes the response; errors are ignored, because the client may have closed the connection.
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
            self.media_type,
            self.body.len()
        );
        let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let _ =
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&self.body)).and_then(|()| stream.flush());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // The rest of a rejected request is read and dropped; otherwise the client would see a reset connection instead of the answer.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(300)));
        let mut discarded = [0; 4096];
        for _ in 0..64 {
            if !matches!(stream.read(&mut discarded), Ok(count) if count > 0) {
                break;
            }
        }
    }
}
