//! Tests with a server on a free port, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use super::*;

fn start_server(runs: Option<PathBuf>) -> SocketAddr {
    let server = Server::listen("127.0.0.1:0".parse().unwrap(), runs).unwrap();
    let address = server.address();
    std::thread::spawn(move || server.run());
    address
}

fn send(address: SocketAddr, bytes: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    send(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
}

fn post(address: SocketAddr, body: &str, headers: &str) -> (u16, String) {
    let head = format!("POST /api HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    send(address, (head + body).as_bytes())
}

#[test]
fn server_serves_the_page_and_answers_requests() {
    let address = start_server(None);
    let (status, page) = get(address, "/");
    assert_eq!(status, 200);
    assert!(page.contains("data-backend=\"api\"") && !page.contains("rung.wasm"), "{page}");
    assert_eq!(get(address, "/main.js").0, 200);
    assert_eq!(get(address, "/worker.js?backend=api").0, 200);
    let (status, answer) = post(address, r#"{"ask": "audit", "model": {"preset": "llama-3.1-8b"}}"#, "");
    assert_eq!(status, 200);
    assert_eq!(answer, crate::answer(r#"{"ask": "audit", "model": {"preset": "llama-3.1-8b"}}"#, &[]).unwrap());
    let (status, answer) = post(address, r#"{"ask": "audit", "model": {"preset": "no"}}"#, "");
    assert_eq!(status, 400);
    assert!(answer.contains("no file, directory or preset"), "{answer}");
}

#[test]
fn other_hosts_origins_and_sites_get_status_403() {
    let address = start_server(None);
    let status_with = |host: &str, headers: &str| {
        send(address, format!("GET / HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n").as_bytes()).0
    };
    let own_host = address.to_string();
    assert_eq!(status_with(&own_host, ""), 200);
    assert_eq!(status_with(&format!("localhost:{}", address.port()), ""), 200);
    for host in ["example.org", "127.0.0.1", "evil.localhost:80", "127.0.0.1:1", ""] {
        assert_eq!(status_with(host, ""), 403, "{host}");
    }
    assert_eq!(send(address, b"GET / HTTP/1.1\r\n\r\n").0, 403);
    assert_eq!(status_with(&own_host, &format!("Host: {own_host}\r\n")), 403);
    assert_eq!(status_with(&own_host, &format!("Origin: http://{own_host}\r\n")), 200);
    for origin in ["http://example.org", "null", "https://127.0.0.1", "file://"] {
        assert_eq!(status_with(&own_host, &format!("Origin: {origin}\r\n")), 403, "{origin}");
    }
    assert_eq!(status_with(&own_host, "Sec-Fetch-Site: cross-site\r\n"), 403);
    assert_eq!(post(address, "{}", "Origin: http://example.org\r\n").0, 403);
}

#[test]
fn malformed_and_large_requests_get_an_error_status() {
    let address = start_server(None);
    let host = format!("Host: {address}\r\n");
    for (bytes, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        (format!("GET http://example.org/ HTTP/1.1\r\n{host}\r\n"), 400),
        (format!("GET / HTTP/9.9\r\n{host}\r\n"), 400),
        (format!("GET / HTTP/1.1\r\n{host}no colon\r\n\r\n"), 400),
        (format!("PUT / HTTP/1.1\r\n{host}\r\n"), 405),
        (format!("POST /api HTTP/1.1\r\n{host}Content-Length: 99999999999\r\n\r\n"), 413),
        (format!("POST /api HTTP/1.1\r\n{host}Content-Length: 99999999999999999999999\r\n\r\n"), 413),
        (format!("POST /api HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n"), 400),
        (format!("POST /api HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 400),
        (format!("POST /api HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"), 411),
        (format!("POST /api HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\n\u{0}\u{1}\u{2}"), 400),
        (format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "x".repeat(40_000)), 431),
    ] {
        let start: String = bytes.chars().take(60).collect();
        assert_eq!(send(address, bytes.as_bytes()).0, status, "{start}");
    }
    assert_eq!(get(address, "/").0, 200);
}

#[test]
fn slow_requests_and_excess_connections_are_closed() {
    let address = start_server(None);
    let start = std::time::Instant::now();
    // Sending single bytes must not keep the connection open beyond the timeout.
    let mut slow = std::net::TcpStream::connect(address).unwrap();
    slow.set_nonblocking(true).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 256]);
    while !answer.ends_with(b"too long\n") && start.elapsed() < std::time::Duration::from_secs(20) {
        let _ = slow.write(b"G");
        match slow.read(&mut buffer) {
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
    let idle: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut excess = std::net::TcpStream::connect(address).unwrap();
    let _ = excess.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    let mut reply = Vec::new();
    let _ = excess.read_to_end(&mut reply);
    assert!(reply.is_empty(), "the 65th connection is closed");
    drop(idle);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(get(address, "/").0, 200);
}

/// The header of a checkpoint without weights.
fn checkpoint(step: usize) -> Vec<u8> {
    let progress = format!(
        r#"{{"progress": {{"step": {step}, "looks": [{{"step": 5, "loss": 0.5, "accuracy": {{"1": {{"right": 3, "count": 4}}}}}}]}}}}"#
    );
    let header = serde_json::json!({"__metadata__": {"rung.progress": progress}}).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()
}

#[test]
fn only_runs_inside_the_folder_are_served() {
    let folder = std::env::temp_dir().join(format!("rung-web-runs-{}", std::process::id()));
    let outside = folder.join("outside");
    for path in [folder.join("runs/first"), folder.join("runs/begun"), outside.clone()] {
        std::fs::create_dir_all(path).unwrap();
    }
    let record = r#"{"id": "a", "config": {"stack": "gdn full", "task": "mqar", "seed": 0}, "facts": {"rungs": 1, "hops": 1},
        "steps": 5, "loss": 0.5, "over": "steps", "accuracy": {"1": {"right": 3, "count": 4}}, "looks": []}"#;
    std::fs::write(folder.join("runs/first/record.json"), record).unwrap();
    std::fs::write(folder.join("runs/begun/run.toml"), "stack = \"gdn full\"\n").unwrap();
    std::fs::write(folder.join("runs/begun/resume.safetensors"), checkpoint(7)).unwrap();
    std::fs::create_dir_all(folder.join("runs/broken")).unwrap();
    std::fs::write(folder.join("runs/broken/run.toml"), "no = = toml").unwrap();
    std::fs::write(folder.join("runs/broken/resume.safetensors"), [0xff; 64]).unwrap();
    std::fs::write(outside.join("record.json"), record).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&outside, folder.join("runs/linked")).unwrap();
        std::fs::create_dir_all(folder.join("runs/sly")).unwrap();
        std::os::unix::fs::symlink(outside.join("record.json"), folder.join("runs/sly/record.json")).unwrap();
    }
    let address = start_server(Some(folder.join("runs")));
    let (status, list) = get(address, "/runs/list");
    assert_eq!(status, 200);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["total"], 3, "{list}");
    assert_eq!(list["runs"][2]["accuracy"]["1"], 0.75);
    let progress: Vec<_> = list["runs"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(progress, ["running", "running", "finished"]);
    assert_eq!((&list["runs"][0]["stack"], &list["runs"][0]["steps"]), (&"gdn full".into(), &7.into()));
    assert_eq!(list["runs"][1]["steps"], serde_json::Value::Null);
    let begun: serde_json::Value = serde_json::from_str(&get(address, "/runs/record?name=begun").1).unwrap();
    assert_eq!(begun["evaluations"][0]["accuracy"]["1"]["right"], 3);
    // A later checkpoint is listed as a change.
    let version = list["version"].as_u64().unwrap();
    std::fs::write(folder.join("runs/begun/resume.safetensors"), checkpoint(9)).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let later = get(address, &format!("/runs/list?since={version}")).1;
    assert!(later.contains("\"steps\":9") && later.matches("\"name\"").count() == 1, "{later}");
    let list: serde_json::Value = serde_json::from_str(&later).unwrap();
    let version = list["version"].as_u64().unwrap();
    assert_eq!(get(address, &format!("/runs/list?since={version}")).1.matches("\"name\"").count(), 0);
    assert_eq!(get(address, "/runs/record?name=first"), (200, record.to_owned()));
    for name in ["..", "../outside", "..%2Foutside", "linked", "sly", "/etc", "first/../../outside", "%00", "first%00"]
    {
        assert_eq!(get(address, &format!("/runs/record?name={name}")).0, 404, "{name}");
    }
    for path in ["/../Cargo.toml", "/..%2fCargo.toml", "//etc/passwd", "/page/main.js", "/runs/first/record.json"] {
        assert_eq!(get(address, path).0, 404, "{path}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
