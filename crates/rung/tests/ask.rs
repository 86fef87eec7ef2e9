//! Runs `rung ask` against servers on the loopback interface; kills and resumes it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rung_ask::grid::Grid;
use rung_ask::prompt::{PromptWriter, Question, Variant};
use rung_ask::record::read_record;
use rung_ask::symbols::{Symbols, default_symbols};
use rung_ask::test_server::{ServerFault, TestProtocol, TestServer};

/// The questions that `--hops 0..2 --entries 4 --shots 0 --seed 3` asks.
fn questions(count: u64) -> Vec<Question> {
    let symbols = Symbols { symbols: default_symbols(4), checked: false };
    let (writer, variants) = (PromptWriter::default(), vec![Variant::default()]);
    let grid = Grid {
        writer,
        hops: vec![0, 1, 2],
        entries_per_table: vec![4],
        variants,
        questions_per_cell: count,
        seed: 3,
        symbols,
    };
    grid.questions().unwrap().into_iter().map(|(_, question)| question).collect()
}

/// The command `rung ask` for these questions.
fn ask_command(server: &TestServer, count: u64, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    command.args(["ask", &server.url(), "--hops", "0..2", "--entries", "4", "--shots", "0", "--seed", "3", "--json"]);
    command.args(["--count", &count.to_string(), "--out"]).arg(out);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn scratch_directory(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ask-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits until the record has `lines` lines or the process has ended.
fn wait_for(path: &Path, lines: usize, child: &mut Child) {
    for _ in 0..2000 {
        let line_count = std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
        if line_count >= lines || child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_run_resumes_to_the_same_record() {
    let (folder, count) = (scratch_directory("kill"), 60);
    let server = || TestServer::start(TestProtocol::LlamaCpp, &questions(count), 1, &[ServerFault::Slow]).unwrap();
    let (undisturbed, killed) = (folder.join("undisturbed.jsonl"), folder.join("killed.jsonl"));
    let server_a = server();
    assert!(ask_command(&server_a, count, &undisturbed).status().unwrap().success());

    let server_b = server();
    for lines in [20, 60, 120] {
        let mut child = ask_command(&server_b, count, &killed).spawn().unwrap();
        wait_for(&killed, lines, &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = ask_command(&server_b, count, &killed).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The headers differ in the address; the answers are the same.
    assert_eq!(read_record(&killed).unwrap().1, read_record(&undisturbed).unwrap().1);
    assert_eq!(read_record(&killed).unwrap().1.len(), 180);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["hops"][0]["measured_hops"], 1);
}

#[test]
fn api_key_is_sent_but_never_written() {
    let (folder, key) = (scratch_directory("key"), "secret-key-of-this-test");
    let server = TestServer::start(TestProtocol::Completions, &questions(2), 2, &[]).unwrap();
    let out = folder.join("a.jsonl");
    let output = ask_command(&server, 2, &out).env("RUNG_API_KEY", key).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.last_authorization().as_deref(), Some(format!("Bearer {key}").as_str()));
    let all_output = [output.stdout, output.stderr, std::fs::read(&out).unwrap()].concat();
    assert!(!String::from_utf8_lossy(&all_output).contains(key));
}

#[test]
fn unreachable_server_is_an_error() {
    let folder = scratch_directory("none");
    let server = TestServer::start(TestProtocol::LlamaCpp, &questions(1), 2, &[]).unwrap();
    let mut command = ask_command(&server, 1, &folder.join("a.jsonl"));
    drop(server);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("127.0.0.1"));
}
