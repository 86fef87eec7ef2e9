//! Runs against servers with faults: no answer may be lost, requested again without need, or counted twice.

use std::time::{Duration, Instant};

use rung_ask::AnsweringModel as _;
use rung_ask::grid::Grid;
use rung_ask::prompt::{PromptWriter, Question, Variant};
use rung_ask::record::{RecordFile, RecordHeader, read_record};
use rung_ask::run::{RequestPolicy, run};
use rung_ask::server::{ModelServer, ServerProtocol};
use rung_ask::summary::{cell_accuracies, measured_hops};
use rung_ask::symbols::{Symbols, default_symbols};
use rung_ask::test_server::{ServerFault, TestProtocol, TestServer};

fn grid(questions_per_cell: u64) -> Grid {
    let symbols = Symbols { symbols: default_symbols(4), checked: false };
    let (writer, variants) = (PromptWriter::default(), vec![Variant::default()]);
    Grid {
        writer,
        hops: vec![0, 1, 2, 3, 4],
        entries_per_table: vec![4],
        variants,
        questions_per_cell,
        seed: 1,
        symbols,
    }
}

fn questions(grid: &Grid) -> Vec<Question> {
    grid.questions().unwrap().into_iter().map(|(_, question)| question).collect()
}

/// Retries after a few milliseconds.
fn fast_retries() -> RequestPolicy {
    RequestPolicy { initial_backoff: Duration::from_millis(5), ..RequestPolicy::default() }
}

fn temporary_directory(name: &str) -> std::path::PathBuf {
    let directory =
        std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ask-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn connect(server: &TestServer) -> ModelServer {
    ModelServer::connect(&server.url(), None, None, Duration::from_secs(5)).unwrap()
}

#[test]
fn every_question_is_answered_exactly_once_despite_faults() {
    let protocols = [
        (TestProtocol::LlamaCpp, ServerProtocol::LlamaCpp),
        (TestProtocol::Completions, ServerProtocol::Completions),
        (TestProtocol::Chat, ServerProtocol::Chat),
    ];
    let (grid, directory) = (grid(100), temporary_directory("faults"));
    for (test_protocol, protocol) in protocols {
        let server = TestServer::start(test_protocol, &questions(&grid), 2, &ServerFault::ALL).unwrap();
        let model = connect(&server);
        assert_eq!(model.protocol(), protocol);
        let path = directory.join(format!("{}.jsonl", protocol.name()));
        let header = RecordHeader::new(server.url(), model.describe(), grid.clone());
        let mut record = RecordFile::open(&path, header).unwrap();
        let outcome = run(&model, &grid, &mut record, fast_retries(), &|| false, &|_| ()).unwrap();
        assert_eq!((outcome.answer_count, outcome.unanswered_count), (500, 0), "{:?}", outcome.failure);
        let (_, answers) = read_record(&path).unwrap();
        assert_eq!(answers.len(), 500);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 501);
        // At most one retry, where the first attempt failed.
        assert!(server.attempts().values().all(|count| *count <= 2));
        let accuracies = cell_accuracies(&answers);
        assert_eq!(measured_hops(&accuracies, "one pass", 4, 0.5), Some(2));
        assert!(accuracies.iter().filter(|cell| cell.hops > 2).all(|cell| cell.right_count == 0));
    }
}

#[test]
fn a_record_with_an_incomplete_last_line_resumes_to_the_same_bytes() {
    let (grid, directory) = (grid(20), temporary_directory("torn"));
    let server = TestServer::start(TestProtocol::LlamaCpp, &questions(&grid), 2, &[]).unwrap();
    let model = connect(&server);
    let header = || RecordHeader::new("test".to_owned(), model.describe(), grid.clone());
    let (complete, torn) = (directory.join("complete.jsonl"), directory.join("torn.jsonl"));
    run(&model, &grid, &mut RecordFile::open(&complete, header()).unwrap(), fast_retries(), &|| false, &|_| ())
        .unwrap();

    // Half of the answers, and an incomplete line as after a power cut.
    let text = std::fs::read_to_string(&complete).unwrap();
    let half: String = text.lines().take(50).flat_map(|line| [line, "\n"]).collect();
    std::fs::write(&torn, format!("{half}{{\"id\": \"one pa\u{e9}")).unwrap();
    let attempts_before: usize = server.attempts().values().sum();
    run(&model, &grid, &mut RecordFile::open(&torn, header()).unwrap(), fast_retries(), &|| false, &|_| ()).unwrap();
    assert_eq!(std::fs::read_to_string(&torn).unwrap(), text);
    assert_eq!(server.attempts().values().sum::<usize>() - attempts_before, 51, "only the missing questions are asked");
}

#[test]
fn a_record_of_other_questions_is_rejected() {
    let (grid_a, directory) = (grid(1), temporary_directory("other"));
    let path = directory.join("a.jsonl");
    drop(
        RecordFile::open(
            &path,
            RecordHeader::new(String::new(), rung_ask::ModelDescription::default(), grid_a.clone()),
        )
        .unwrap(),
    );
    let other = Grid { seed: 2, ..grid_a };
    let error = RecordFile::open(&path, RecordHeader::new(String::new(), rung_ask::ModelDescription::default(), other))
        .err()
        .unwrap();
    assert!(error.to_string().contains("other questions"), "{error}");
    std::fs::write(&path, "{}\n").unwrap();
    assert!(read_record(&path).is_err());
}

#[test]
fn a_question_stays_open_when_retries_run_out() {
    let (grid, directory) = (grid(1), temporary_directory("open"));
    let server =
        TestServer::start(TestProtocol::LlamaCpp, &questions(&grid), 9, &[ServerFault::InternalError]).unwrap();
    let model = connect(&server);
    let header = || RecordHeader::new(String::new(), model.describe(), grid.clone());
    let (path, no_retries) = (directory.join("a.jsonl"), RequestPolicy { retries: 0, ..fast_retries() });
    let outcome =
        run(&model, &grid, &mut RecordFile::open(&path, header()).unwrap(), no_retries, &|| false, &|_| ()).unwrap();
    assert_eq!((outcome.answer_count, outcome.unanswered_count), (0, 5));
    assert!(outcome.failure.unwrap().contains("status 500"));
    // The server answers the second attempt, so a second run answers the open questions.
    let outcome =
        run(&model, &grid, &mut RecordFile::open(&path, header()).unwrap(), no_retries, &|| false, &|_| ()).unwrap();
    assert_eq!((outcome.answer_count, outcome.unanswered_count), (5, 0));
}

#[test]
fn a_stop_ends_the_wait_for_a_retry() {
    let (grid, directory) = (grid(1), temporary_directory("stop"));
    let server =
        TestServer::start(TestProtocol::LlamaCpp, &questions(&grid), 9, &[ServerFault::InternalError]).unwrap();
    let model = connect(&server);
    let header = RecordHeader::new(String::new(), model.describe(), grid.clone());
    let mut record = RecordFile::open(&directory.join("a.jsonl"), header).unwrap();
    let long_backoff = RequestPolicy { initial_backoff: Duration::from_hours(1), ..fast_retries() };
    let start = Instant::now();
    let outcome =
        run(&model, &grid, &mut record, long_backoff, &|| start.elapsed() > Duration::from_millis(200), &|_| ())
            .unwrap();
    assert_eq!((outcome.answer_count, outcome.unanswered_count), (0, 5));
    // A stop also ends the wait of the rate limiter.
    let low_rate = RequestPolicy { max_requests_per_second: Some(1e-3), concurrency: 1, ..fast_retries() };
    let start = Instant::now();
    run(&model, &grid, &mut record, low_rate, &|| start.elapsed() > Duration::from_millis(200), &|_| ()).unwrap();
    assert!(start.elapsed() < Duration::from_mins(1));
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_the_temporary_file_is_not_followed() {
    let directory = temporary_directory("link");
    let (path, target) = (directory.join("a.jsonl"), directory.join("matters"));
    std::fs::write(&target, "matters").unwrap();
    std::os::unix::fs::symlink(&target, directory.join("a.part")).unwrap();
    let header = RecordHeader::new(String::new(), rung_ask::ModelDescription::default(), grid(1));
    RecordFile::open(&path, header).unwrap().finish().unwrap();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "matters");
    assert!(read_record(&path).unwrap().1.is_empty());
}
