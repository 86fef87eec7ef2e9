//! `rung serve`: the page, its answers and the runs of a folder, on this machine only.
//!
//! One thread per connection, one request per connection. It answers only the page it serves: the `Host` must be the
//! address it listens on, an `Origin` must be its own, and a browser that says "cross-site" is refused. It writes nothing.
//!
//! ```text
//! GET  /, /main.js, ..        the files of the page, from inside the program
//! POST /api                   a question, answered by `rung_web::answer`
//! GET  /runs/list?since=N     what changed among the records of the folder since version N
//! GET  /runs/record?name=DIR  one record, by a name that the list had
//! ```

mod http;
mod runs;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Incoming, Request, RequestError, Response};
use runs::Runs;

use crate::files::file;

/// More connections at once are refused.
const MOST_CONNECTIONS: usize = 64;

/// A server that listens and has not begun to answer.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    site: Arc<ServerState>,
}

#[derive(Debug)]
struct ServerState {
    address: SocketAddr,
    runs: Option<Runs>,
    connections: AtomicUsize,
}

impl Server {
    /// Listens at an address; with port 0 at any free port. `runs` is a folder of training runs, if they are to be shown.
    ///
    /// # Errors
    /// The address is taken or not of this machine, or the folder cannot be read.
    pub fn listen(address: SocketAddr, runs: Option<PathBuf>) -> std::io::Result<Self> {
        let runs = runs.map(Runs::open).transpose()?;
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, site: Arc::new(ServerState { address, runs, connections: AtomicUsize::new(0) }) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.site.address
    }

    /// The status and the body that a connection with these bytes would get; nothing if they end too early.
    pub fn respond(&self, bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
        self.site.respond(&mut &bytes[..]).map(|response| (response.status, response.body))
    }

    /// Answers for ever.
    pub fn run(&self) -> ! {
        loop {
            let Ok((stream, _)) = self.listener.accept() else { continue };
            let site = Arc::clone(&self.site);
            if site.connections.fetch_add(1, Ordering::AcqRel) >= MOST_CONNECTIONS {
                site.connections.fetch_sub(1, Ordering::AcqRel);
                drop(stream);
                continue;
            }
            std::thread::spawn(move || {
                // Counts down also if an answer panics.
                let guard = Connection(&site);
                guard.0.serve(stream);
            });
        }
    }
}

/// One of the connections that are counted.
struct Connection<'a>(&'a ServerState);

impl Drop for Connection<'_> {
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

    fn respond(&self, stream: &mut impl Incoming) -> Option<Response> {
        match http::read(stream, |request| self.refuse(request)) {
            Ok(request) => Some(self.answer(&request)),
            Err(RequestError::Disconnected) => None,
            Err(RequestError::Status(status, why)) => Some(Response::text(status, why)),
        }
    }

    /// Why a request is not answered, judged by its head alone, before any of its body is read.
    fn refuse(&self, request: &Request) -> Option<RequestError> {
        let refused = |why: &str| Some(RequestError::Status(403, why.to_owned()));
        let Some(host) = request.header("host").filter(|host| self.is_ours(host)) else {
            return refused("this server answers only under its own address");
        };
        match request.header("origin") {
            Some(origin) if origin != format!("http://{host}") => return refused("other origins are refused"),
            _ => {}
        }
        match request.header("sec-fetch-site") {
            Some("same-origin" | "none") | None => None,
            Some(_) => refused("other sites are refused"),
        }
    }

    /// Whether a `Host` names this server. Names that point elsewhere today may point here tomorrow, so only addresses and
    /// `localhost` count.
    fn is_ours(&self, host: &str) -> bool {
        let port = self.address.port();
        let ip = self.address.ip();
        let own = if ip.is_ipv6() { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
        let loopback = [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
        host == own || (ip.is_loopback() && loopback.iter().any(|name| name == host))
    }

    fn answer(&self, request: &Request) -> Response {
        match (request.method.as_str(), request.path.as_str(), &self.runs) {
            ("POST", "/api", _) => ask(&request.body),
            ("GET", "/runs/list", Some(runs)) => runs.list(request.query("since").as_deref()),
            ("GET", "/runs/record", Some(runs)) => runs.record(&request.query("name").unwrap_or_default()),
            ("GET", path, _) => self.page(path),
            _ => Response::text(405, "expected GET, or POST to /api".to_owned()),
        }
    }

    fn page(&self, path: &str) -> Response {
        let Some(found) = path.strip_prefix('/').and_then(file) else {
            return Response::text(404, "there is no such file".to_owned());
        };
        let mut bytes = found.bytes.to_vec();
        if found.name == "index.html" {
            // Here the program answers, and no WebAssembly is there to be loaded.
            let runs = if self.runs.is_some() { " data-runs=\"yes\"" } else { "" };
            let page = String::from_utf8_lossy(found.bytes)
                .replace("data-engine=\"wasm\"", &format!("data-engine=\"api\"{runs}"))
                .split_inclusive('\n')
                .filter(|line| !line.contains("rung.wasm"))
                .collect::<String>();
            bytes = page.into_bytes();
        }
        Response { status: 200, kind: found.kind, body: bytes }
    }
}

/// A question: JSON, then optionally a zero byte and a file, as for the WebAssembly.
fn ask(body: &[u8]) -> Response {
    let end = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
    let Ok(request) = std::str::from_utf8(&body[..end]) else {
        return Response::text(400, "the request is not UTF-8".to_owned());
    };
    match crate::answer(request, body.get(end + 1..).unwrap_or_default()) {
        Ok(text) => Response { status: 200, kind: http::JSON, body: text.into_bytes() },
        Err(why) => Response::text(400, why),
    }
}

#[cfg(test)]
mod tests;
