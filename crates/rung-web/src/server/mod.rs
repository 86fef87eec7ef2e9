//! `rung serve`: serves the page, its answers and the runs of a folder, on this machine only.
//!
//! One thread per connection, one request per connection. It answers only the page it serves: the `Host` must be the
//! address it listens on, an `Origin` must be its own, and cross-site requests are rejected. It writes no files.
//!
//! ```text
//! GET  /, /main.js, ..        the files of the page, from inside the program
//! POST /api                   a request, answered by `rung_web::answer`
//! GET  /runs/list?since=N     runs of the folder that changed since version N
//! GET  /runs/record?name=DIR  one record, by a name from the list
//! ```

mod http;
mod runs;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HttpRequest, HttpResponse, RequestError, RequestSource};
use runs::Runs;

use crate::files::find_file;

/// Connections beyond this number are closed.
const MAX_CONNECTIONS: usize = 64;

/// A server with a bound socket; [`Server::run`] answers requests.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    state: Arc<ServerState>,
}

/// What all connections share.
#[derive(Debug)]
struct ServerState {
    address: SocketAddr,
    runs: Option<Runs>,
    /// Number of open connections.
    connections: AtomicUsize,
}

impl Server {
    /// Listens at an address; with port 0 at any free port. `runs` is a folder of training runs to show.
    ///
    /// # Errors
    /// The address is taken or not of this machine, or the folder cannot be read.
    pub fn listen(address: SocketAddr, runs: Option<PathBuf>) -> std::io::Result<Self> {
        let runs = runs.map(Runs::open).transpose()?;
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, state: Arc::new(ServerState { address, runs, connections: AtomicUsize::new(0) }) })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.state.address
    }

    /// The status and the body that a connection with these bytes would get; nothing if they end too early.
    pub fn respond(&self, bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
        self.state.respond(&mut &bytes[..]).map(|response| (response.status, response.body))
    }

    /// Answers requests until the process ends.
    pub fn run(&self) -> ! {
        loop {
            let Ok((stream, _)) = self.listener.accept() else { continue };
            let state = Arc::clone(&self.state);
            if state.connections.fetch_add(1, Ordering::AcqRel) >= MAX_CONNECTIONS {
                state.connections.fetch_sub(1, Ordering::AcqRel);
                drop(stream);
                continue;
            }
            std::thread::spawn(move || {
                // Decrements the count even if an answer panics.
                let guard = ConnectionGuard(&state);
                guard.0.serve(stream);
            });
        }
    }
}

/// Decrements the number of open connections when dropped.
struct ConnectionGuard<'a>(&'a ServerState);

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ServerState {
    fn serve(&self, mut stream: TcpStream) {
        if let Some(response) = self.respond(&mut stream) {
            response.write(&mut stream);
        }
    }

    fn respond(&self, stream: &mut impl RequestSource) -> Option<HttpResponse> {
        match http::read_request(stream, |request| self.reject(request)) {
            Ok(request) => Some(self.answer(&request)),
            Err(RequestError::Disconnected) => None,
            Err(RequestError::Status(status, why)) => Some(HttpResponse::text(status, why)),
        }
    }

    /// The error for a request that is not answered; depends only on the head, so that no body is read.
    fn reject(&self, request: &HttpRequest) -> Option<RequestError> {
        let forbidden = |why: &str| Some(RequestError::Status(403, why.to_owned()));
        let Some(host) = request.header("host").filter(|host| self.is_own_host(host)) else {
            return forbidden("this server answers only under its own address");
        };
        match request.header("origin") {
            Some(origin) if origin != format!("http://{host}") => return forbidden("other origins are refused"),
            _ => {}
        }
        match request.header("sec-fetch-site") {
            Some("same-origin" | "none") | None => None,
            Some(_) => forbidden("other sites are refused"),
        }
    }

    /// Whether a `Host` header names this server. DNS names are not accepted, because an attacker's name may later resolve to
    /// this machine (DNS rebinding): only addresses and `localhost` are.
    fn is_own_host(&self, host: &str) -> bool {
        let port = self.address.port();
        let ip = self.address.ip();
        let own_address = if ip.is_ipv6() { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
        let loopback = [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
        host == own_address || (ip.is_loopback() && loopback.iter().any(|name| name == host))
    }

    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        match (request.method.as_str(), request.path.as_str(), &self.runs) {
            ("POST", "/api", _) => answer_api(&request.body),
            ("GET", "/runs/list", Some(runs)) => runs.list(request.query("since").as_deref()),
            ("GET", "/runs/record", Some(runs)) => runs.record(&request.query("name").unwrap_or_default()),
            ("GET", path, _) => self.page_file(path),
            _ => HttpResponse::text(405, "expected GET, or POST to /api".to_owned()),
        }
    }

    fn page_file(&self, path: &str) -> HttpResponse {
        let Some(page_file) = path.strip_prefix('/').and_then(find_file) else {
            return HttpResponse::text(404, "there is no such file".to_owned());
        };
        let mut bytes = page_file.bytes.to_vec();
        if page_file.name == "index.html" {
            // The program answers, so the page must not load the WebAssembly module.
            let runs = if self.runs.is_some() { " data-runs=\"yes\"" } else { "" };
            let page = String::from_utf8_lossy(page_file.bytes)
                .replace("data-backend=\"wasm\"", &format!("data-backend=\"api\"{runs}"))
                .split_inclusive('\n')
                .filter(|line| !line.contains("rung.wasm"))
                .collect::<String>();
            bytes = page.into_bytes();
        }
        HttpResponse { status: 200, media_type: page_file.media_type, body: bytes }
    }
}

/// Answers a request: JSON, then optionally a zero byte and a file, as in the WebAssembly module.
fn answer_api(body: &[u8]) -> HttpResponse {
    let end = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
    let Ok(request) = std::str::from_utf8(&body[..end]) else {
        return HttpResponse::text(400, "the request is not UTF-8".to_owned());
    };
    match crate::answer(request, body.get(end + 1..).unwrap_or_default()) {
        Ok(text) => HttpResponse { status: 200, media_type: http::JSON, body: text.into_bytes() },
        Err(why) => HttpResponse::text(400, why),
    }
}

#[cfg(test)]
mod tests;
