//! `belfry import` against a double of the engine: what arrives, what is said, how it ends.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Ended, Engine, Reply, Request, Workspace};

fn lines(range: std::ops::Range<usize>) -> String {
    let rows: Vec<String> = range.map(|i| format!("{{\"to\":\"r{i}\"}}\n")).collect();
    rows.concat()
}

fn accept(request: &Request) -> Reply {
    let rows = request.body.as_array().map_or(0, Vec::len);
    Reply::Json(201, json!({"accepted": rows, "replayed": 0, "ids": []}))
}

/// Accepts a request unless it has rows whose recipient begins with `bad`.
fn judge(request: &Request) -> Reply {
    let recipients = recipients(request);
    let errors: Vec<Value> = (0..recipients.len())
        .filter(|i| recipients[*i].starts_with("bad"))
        .map(|i| json!({"pointer": format!("/{i}/to"), "message": "is no token"}))
        .collect();
    if errors.is_empty() {
        return accept(request);
    }
    Reply::Json(422, json!({"title": "Bad rows", "status": 422, "errors": errors}))
}

fn recipients(request: &Request) -> Vec<String> {
    let rows = request.body.as_array().unwrap().iter();
    rows.map(|row| row["to"].as_str().unwrap().to_owned()).collect()
}

/// Recipients of the requests that `judge` accepts.
fn stored(engine: &Engine) -> Vec<String> {
    let requests = engine.requests();
    let taken = requests.iter().filter(|request| matches!(judge(request), Reply::Json(201, _)));
    taken.flat_map(recipients).collect()
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("r{i}")).collect()
}

#[track_caller]
fn check(ended: &Ended, code: i32, out: &str, err: &[&str]) {
    assert_eq!((ended.code, ended.out.as_str()), (code, out), "{:?}", ended.err);
    assert_eq!(ended.err, err);
}

#[test]
fn a_file_arrives_whole_and_in_order() {
    let (engine, workspace) = (Engine::start(accept), Workspace::new());
    workspace.write("f.ndjson", lines(0..2_500));
    let arguments = ["import", "f.ndjson", "--url", &engine.url, "--api-key", "secret"];
    check(&workspace.belfry(&arguments), 0, "2500 accepted, 0 replayed, 0 rejected\n", &[]);
    assert_eq!(stored(&engine), names(0..2_500));
    let requests = engine.requests();
    assert_eq!(requests.len(), 3, "1,000 rows a request");
    assert_eq!(requests[0].target, "POST /v1/notifications");
    assert_eq!(requests[0].authorization.as_deref(), Some("Bearer secret"));
}

#[test]
fn standard_input_is_a_file_and_the_summary_may_be_json() {
    let (engine, workspace) = (Engine::start(accept), Workspace::new());
    let arguments = ["import", "-", "--json", "--url", &engine.url];
    let ended = workspace.belfry_reading(&arguments, lines(0..3).into_bytes());
    check(&ended, 0, "{\"accepted\":3,\"replayed\":0,\"rejected\":0,\"next_line\":null}\n", &[]);
}

#[test]
fn a_bad_row_stops_the_import_after_the_rows_before_it() {
    let (engine, workspace) = (Engine::start(judge), Workspace::new());
    workspace.write("f.ndjson", lines(0..1_017) + "{\"to\":\"bad\"}\n" + &lines(1_018..5_000));
    let ended = workspace.belfry(&["import", "f.ndjson", "--json", "--url", &engine.url]);
    let summary = "{\"accepted\":1017,\"replayed\":0,\"rejected\":1,\"next_line\":1018}\n";
    check(&ended, 65, summary, &["belfry: f.ndjson:1018: field `to`: is no token"]);
    assert_eq!(stored(&engine), names(0..1_017));
}

#[test]
fn a_row_that_cannot_be_read_stops_the_import_after_the_rows_before_it() {
    let (engine, workspace) = (Engine::start(judge), Workspace::new());
    let check_row = |row: &[u8], expect: &str| {
        workspace.write("f.ndjson", [lines(0..2).as_bytes(), row, b"\n{}\n"].concat());
        let ended = workspace.belfry(&["import", "f.ndjson", "--url", &engine.url]);
        check(&ended, 65, "2 accepted, 0 replayed, 1 rejected\n", &[expect]);
    };
    check_row(
        b"{\"to\":\"\xff\"}",
        "belfry: f.ndjson:3: the row is not UTF-8 at byte 8 of the row: convert the file to UTF-8",
    );
    check_row(
        b"{\"to\" 1}",
        "belfry: f.ndjson:3: the row is not JSON: expected `:` at line 1 column 7",
    );
    check_row(
        &vec![b'x'; 20_000_000],
        "belfry: f.ndjson:3: the row has 20000001 bytes, at most 278528 are allowed",
    );
}

#[test]
fn bad_rows_are_skipped_and_kept_with_their_reasons() {
    let (engine, workspace) = (Engine::start(judge), Workspace::new());
    let rows =
        lines(0..2) + "{\"to\":\"bad1\"}\nnonsense\n" + &lines(4..1_500) + "{\"to\":\"bad2\"}\n";
    workspace.write("f.ndjson", rows + &"x".repeat(300_000));
    let ended =
        workspace.belfry(&["import", "f.ndjson", "--on-error", "skip", "--url", &engine.url]);
    check(&ended, 0, "1498 accepted, 0 replayed, 4 rejected\n", &[]);
    assert_eq!(stored(&engine), [names(0..2), names(4..1_500)].concat());
    let kept: BTreeSet<String> =
        workspace.read("f.ndjson.rejects").lines().map(str::to_owned).collect();
    assert_eq!(
        kept,
        ["nonsense", r#"{"to":"bad1"}"#, r#"{"to":"bad2"}"#].map(str::to_owned).into()
    );
    let reasons: BTreeSet<String> =
        workspace.read("f.ndjson.rejects.reasons").lines().map(str::to_owned).collect();
    let expect = [
        r#"{"line":3,"field":"to","message":"is no token","kept":true}"#,
        r#"{"line":4,"field":"","message":"must be a JSON object: {\"channel\":...,\"to\":...}","kept":true}"#,
        r#"{"line":1501,"field":"to","message":"is no token","kept":true}"#,
        r#"{"line":1502,"field":"","message":"has 300000 bytes, at most 278528 are allowed","kept":false}"#,
    ];
    assert_eq!(reasons, expect.map(str::to_owned).into());
}

#[test]
fn rejects_of_a_csv_can_be_mended_and_imported() {
    let (engine, workspace) = (Engine::start(judge), Workspace::new());
    workspace.write("f.csv", "channel,to,content.text\nios,r0,\"two\nlines\"\nios,bad,x\n");
    let arguments = ["import", "f.csv", "--on-error", "skip", "--url", &engine.url];
    check(&workspace.belfry(&arguments), 0, "1 accepted, 0 replayed, 1 rejected\n", &[]);
    assert_eq!(workspace.read("f.csv.rejects"), "channel,to,content.text\nios,bad,x\n");
    let reason = "{\"line\":4,\"field\":\"to\",\"message\":\"is no token\",\"kept\":true}\n";
    assert_eq!(workspace.read("f.csv.rejects.reasons"), reason);
    assert_eq!(
        engine.requests()[0].body[0],
        json!({"channel": "ios", "to": "r0", "content": {"text": "two\nlines"}})
    );
}

#[test]
fn rejects_are_never_overwritten_and_not_left_empty() {
    let (engine, workspace) = (Engine::start(judge), Workspace::new());
    workspace.write("f.ndjson", lines(0..1));
    let arguments =
        ["import", "f.ndjson", "--on-error", "skip", "--rejects", "r", "--url", &engine.url];
    check(&workspace.belfry(&arguments), 0, "1 accepted, 0 replayed, 0 rejected\n", &[]);
    assert!(!workspace.path("r").exists() && !workspace.path("r.reasons").exists());
    workspace.write("r", "precious");
    let message = "belfry: cannot create the rejects r: File exists (os error 17); move it away or name \
                   another with --rejects";
    check(&workspace.belfry(&arguments), 73, "", &[message]);
    assert_eq!(workspace.read("r"), "precious");
}

#[test]
fn a_busy_engine_is_asked_again() {
    let requests = AtomicUsize::new(0);
    let busy_at_first = move |request: &Request| match requests.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Reply::Busy,
        _ => accept(request),
    };
    let (engine, workspace) = (Engine::start(busy_at_first), Workspace::new());
    workspace.write("f.ndjson", lines(0..10));
    let ended = workspace.belfry(&["import", "f.ndjson", "--url", &engine.url]);
    check(&ended, 0, "10 accepted, 0 replayed, 0 rejected\n", &[]);
    assert_eq!(engine.requests().len(), 3);
}

#[test]
fn a_busy_engine_is_not_asked_for_ever() {
    let (engine, workspace) = (Engine::start(|_| Reply::Busy), Workspace::new());
    workspace.write("f.ndjson", lines(0..10));
    let ended = workspace.belfry(&["import", "f.ndjson", "--url", &engine.url]);
    let message = "belfry: the engine answered 503 Service Unavailable; nothing was \
                   accepted; go on with --from-line 1";
    check(&ended, 1, "0 accepted, 0 replayed, 0 rejected\n", &[message]);
    assert_eq!(engine.requests().len(), 60);
}

#[test]
fn a_lost_connection_says_how_far_it_got_and_how_to_go_on() {
    let hang_at_third = |request: &Request| match request.body[0]["to"].as_str() {
        Some("r2000") => Reply::Hang,
        _ => accept(request),
    };
    let (engine, workspace) = (Engine::start(hang_at_third), Workspace::new());
    workspace.write("f.ndjson", lines(0..3_500));
    let ended = workspace.belfry(&["import", "f.ndjson", "--url", &engine.url]);
    assert_eq!((ended.code, ended.out.as_str()), (69, "2000 accepted, 0 replayed, 0 rejected\n"));
    let message = &ended.err[0];
    assert!(message.starts_with("belfry: lost the connection to the engine before it answered: "));
    assert!(
        message.ends_with(
            "; everything before line 2001 was accepted; lines 2001 to 3000 may have been accepted, see \
             `belfry status`; go on with --from-line 2001"
        ),
        "{message}"
    );
    let other = Engine::start(accept);
    let ended =
        workspace.belfry(&["import", "f.ndjson", "--from-line", "2001", "--url", &other.url]);
    check(&ended, 0, "1500 accepted, 0 replayed, 0 rejected\n", &[]);
    assert_eq!(stored(&other), names(2_000..3_500));
}

#[test]
fn with_keys_a_run_may_be_repeated() {
    let known = Mutex::new(BTreeSet::new());
    let requests = AtomicUsize::new(0);
    let forgetful = move |request: &Request| {
        let rows = request.body.as_array().unwrap();
        let keys = rows.iter().map(|row| row["idempotency_key"].as_str().unwrap().to_owned());
        let mut known = known.lock().unwrap();
        let before = known.len();
        known.extend(keys);
        let accepted = known.len() - before;
        // The third request is stored, and its answer lost.
        if requests.fetch_add(1, Ordering::Relaxed) == 2 {
            return Reply::Hang;
        }
        let replayed = rows.len() - accepted;
        Reply::Json(201, json!({"accepted": accepted, "replayed": replayed, "ids": []}))
    };
    let (engine, workspace) = (Engine::start(forgetful), Workspace::new());
    workspace.write("f.ndjson", lines(0..6_000));
    let arguments =
        ["import", "f.ndjson", "--idempotency-prefix", "may-", "--json", "--url", &engine.url];
    let first = workspace.belfry(&arguments);
    assert_eq!(first.code, 69);
    assert!(first.err[0].contains("may have been accepted, repeating them does no harm"));
    let second: Value = serde_json::from_str(&workspace.belfry(&arguments).out).unwrap();
    assert_eq!(second["accepted"].as_u64().unwrap() + second["replayed"].as_u64().unwrap(), 6_000);
    let first: Value = serde_json::from_str(&first.out).unwrap();
    let answered = first["accepted"].as_u64().unwrap() + second["accepted"].as_u64().unwrap();
    assert!(answered <= 6_000, "no row is accepted twice: {answered}");
    // Several requests are under way at a time, so their order is left open.
    let requests = engine.requests();
    let rows = requests.iter().flat_map(|request| request.body.as_array().unwrap());
    let keys: BTreeSet<&str> = rows.map(|row| row["idempotency_key"].as_str().unwrap()).collect();
    let expected: BTreeSet<String> = (1..=6_000).map(|line| format!("may-{line}")).collect();
    assert!(keys.iter().eq(expected.iter()), "a key is the prefix and the line");
}

#[test]
fn an_engine_that_is_not_there_is_told_at_once() {
    let workspace = Workspace::new();
    workspace.write("f.ndjson", lines(0..1));
    let ended = workspace.belfry(&["import", "f.ndjson", "--url", "http://127.0.0.1:1"]);
    let message = "belfry: cannot reach the engine at http://127.0.0.1:1: Connection refused (os error 111); \
                   is `belfry serve` running there?; nothing was accepted; go on with \
                   --from-line 1";
    check(&ended, 69, "0 accepted, 0 replayed, 0 rejected\n", &[message]);
}

#[test]
fn an_import_that_fails_does_not_wait_for_more_of_its_pipe() {
    let workspace = Workspace::new();
    let arguments = ["import", "-", "--format", "ndjson", "--url", "http://127.0.0.1:1"];
    let ended = workspace.belfry_reading_on(&arguments, lines(0..2_000).into());
    assert_eq!((ended.code, ended.out.as_str()), (69, "0 accepted, 0 replayed, 0 rejected\n"));
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["import", "none.csv"]);
    let message = "belfry: cannot read none.csv: No such file or directory (os error 2)";
    check(&ended, 65, "", &[message]);
    workspace.write("f.csv", "to,subject\n");
    let ended = workspace.belfry(&["import", "f.csv"]);
    assert_eq!(ended.code, 65);
    assert!(
        ended.err[0].starts_with("belfry: f.csv:1: the header names the unknown column `subject`")
    );
}
