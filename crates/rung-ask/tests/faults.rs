//! Servers that fail: nothing may be lost, asked twice without need, or counted twice.

use std::time::{Duration, Instant};

use rung_ask::AnsweringModel as _;
use rung_ask::ladder::{Grid, RequestPolicy, run};
use rung_ask::prompt::{PromptWriter, Question, Variant};
use rung_ask::record::{AnswerRecord, RecordHeader, read};
use rung_ask::server::{ModelServer, ServerProtocol};
use rung_ask::summary::{measured_hops, rates};
use rung_ask::symbols::{Symbols, letters};
use rung_ask::test_server::{ServerFault, TestProtocol, TestServer};

fn grid(count: u64) -> Grid {
    let symbols = Symbols { symbols: letters(4), checked: false };
    let (writer, variants) = (PromptWriter::default(), vec![Variant::default()]);
    Grid { writer, hops: vec![0, 1, 2, 3, 4], entries: vec![4], variants, count, seed: 1, symbols }
}

fn questions(grid: &Grid) -> Vec<Question> {
    grid.questions().unwrap().into_iter().map(|(_, question)| question).collect()
}

fn pace() -> RequestPolicy {
    RequestPolicy { first_wait: Duration::from_millis(5), ..RequestPolicy::default() }
}

fn scratch(name: &str) -> std::path::PathBuf {
    let folder =
        std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ask-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn connect(server: &TestServer) -> ModelServer {
    ModelServer::connect(&server.url(), None, None, Duration::from_secs(5)).unwrap()
}

#[test]
fn five_hundred_questions_under_faults_lose_and_double_nothing() {
    let protocols = [
        (TestProtocol::LlamaCpp, ServerProtocol::LlamaCpp),
        (TestProtocol::Completions, ServerProtocol::Completions),
        (TestProtocol::Chat, ServerProtocol::Chat),
    ];
    let (grid, folder) = (grid(100), scratch("faults"));
    for (speaks, protocol) in protocols {
        let server = TestServer::start(speaks, &questions(&grid), 2, &ServerFault::ALL).unwrap();
        let model = connect(&server);
        assert_eq!(model.protocol(), protocol);
        let path = folder.join(format!("{}.jsonl", protocol.name()));
        let header = RecordHeader::new(server.url(), model.describe(), grid.clone());
        let mut record = AnswerRecord::open(&path, header).unwrap();
        let outcome = run(&model, &grid, &mut record, pace(), &|| false, &|_| ()).unwrap();
        assert_eq!((outcome.answered, outcome.open), (500, 0), "{:?}", outcome.failure);
        let (_, answers) = read(&path).unwrap();
        assert_eq!(answers.len(), 500);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 501);
        // One attempt more where the first failed, and no other.
        assert!(server.attempts().values().all(|count| *count <= 2));
        let rates = rates(&answers);
        assert_eq!(measured_hops(&rates, "one pass", 4, 0.5), Some(2));
        assert!(rates.iter().filter(|rate| rate.hops > 2).all(|rate| rate.right == 0));
    }
}

#[test]
fn a_record_resumes_after_a_torn_line_to_the_same_bytes() {
    let (grid, folder) = (grid(20), scratch("torn"));
    let server = TestServer::start(TestProtocol::LlamaCpp, &questions(&grid), 2, &[]).unwrap();
    let model = connect(&server);
    let header = || RecordHeader::new("test".to_owned(), model.describe(), grid.clone());
    let (whole, torn) = (folder.join("whole.jsonl"), folder.join("torn.jsonl"));
    run(&model, &grid, &mut AnswerRecord::open(&whole, header()).unwrap(), pace(), &|| false, &|_| ()).unwrap();

    // Half of the answers, and a line that a power cut left behind.
    let text = std::fs::read_to_string(&whole).unwrap();
    let half: String = text.lines().take(50).flat_map(|line| [line, "\n"]).collect();
    std::fs::write(&torn, format!("{half}{{\"id\": \"one pa\u{e9}")).unwrap();
    let before: usize = server.attempts().values().sum();
    run(&model, &grid, &mut AnswerRecord::open(&torn, header()).unwrap(), pace(), &|| false, &|_| ()).unwrap();
    assert_eq!(std::fs::read_to_string(&torn).unwrap(), text);
    assert_eq!(server.attempts().values().sum::<usize>() - before, 51, "only what was missing is asked");
}

#[test]
fn a_record_of_other_questions_is_refused() {
    let (grid_a, folder) = (grid(1), scratch("other"));
    let path = folder.join("a.jsonl");
    drop(
        AnswerRecord::open(
            &path,
            RecordHeader::new(String::new(), rung_ask::ServerDescription::default(), grid_a.clone()),
        )
        .unwrap(),
    );
    let other = Grid { seed: 2, ..grid_a };
    let error =
        AnswerRecord::open(&path, RecordHeader::new(String::new(), rung_ask::ServerDescription::default(), other))
            .err()
            .unwrap();
    assert!(error.to_string().contains("other questions"), "{error}");
    std::fs::write(&path, "{}\n").unwrap();
    assert!(read(&path).is_err());
}

#[test]
fn attempts_run_out_and_leave_the_question_open() {
    let (grid, folder) = (grid(1), scratch("open"));
    let server =
        TestServer::start(TestProtocol::LlamaCpp, &questions(&grid), 9, &[ServerFault::InternalError]).unwrap();
    let model = connect(&server);
    let header = || RecordHeader::new(String::new(), model.describe(), grid.clone());
    let (path, none) = (folder.join("a.jsonl"), RequestPolicy { retries: 0, ..pace() });
    let outcome =
        run(&model, &grid, &mut AnswerRecord::open(&path, header()).unwrap(), none, &|| false, &|_| ()).unwrap();
    assert_eq!((outcome.answered, outcome.open), (0, 5));
    assert!(outcome.failure.unwrap().contains("status 500"));
    // The server answers the second time: a further run asks only what is open.
    let outcome =
        run(&model, &grid, &mut AnswerRecord::open(&path, header()).unwrap(), none, &|| false, &|_| ()).unwrap();
    assert_eq!((outcome.answered, outcome.open), (5, 0));
}

#[test]
fn a_stop_is_noticed_while_nothing_is_answered() {
    let (grid, folder) = (grid(1), scratch("stop"));
    let server =
        TestServer::start(TestProtocol::LlamaCpp, &questions(&grid), 9, &[ServerFault::InternalError]).unwrap();
    let model = connect(&server);
    let header = RecordHeader::new(String::new(), model.describe(), grid.clone());
    let mut record = AnswerRecord::open(&folder.join("a.jsonl"), header).unwrap();
    let patient = RequestPolicy { first_wait: Duration::from_hours(1), ..pace() };
    let start = Instant::now();
    let outcome =
        run(&model, &grid, &mut record, patient, &|| start.elapsed() > Duration::from_millis(200), &|_| ()).unwrap();
    assert_eq!((outcome.answered, outcome.open), (0, 5));
    // A wait between two requests is left too.
    let slow = RequestPolicy { rate: Some(1e-3), concurrency: 1, ..pace() };
    let start = Instant::now();
    run(&model, &grid, &mut record, slow, &|| start.elapsed() > Duration::from_millis(200), &|_| ()).unwrap();
    assert!(start.elapsed() < Duration::from_mins(1));
}
