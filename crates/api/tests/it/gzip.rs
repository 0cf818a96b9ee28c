//! Bodies and answers in gzip, judged by the programs `gzip` and `curl`.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::BodyExt as _;
use notification::limits;
use pipeline::ingest::Reservation;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tower::ServiceExt as _;

use crate::support::{
    Answer, Fixture, JSON, LINES, chunked_head, connect, fixture, notification, read_until,
    write_chunk,
};

/// Output of `program` that is given `input`.
fn run(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // Beside the reading: a pipe holds 64 KiB.
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{program}: {output:?}");
    output.stdout
}

fn gzip(text: impl AsRef<[u8]>) -> Vec<u8> {
    run("gzip", &["-c"], text.as_ref())
}

async fn post(fixture: &Fixture, path: &str, media_type: &str, body: impl Into<Body>) -> Answer {
    let request = Request::post(path).header("content-type", media_type);
    fixture.send(request.header("content-encoding", "gzip").body(body.into()).unwrap()).await
}

/// The answer to a GET of `path` with these headers, and its body.
async fn get(fixture: &Fixture, path: &str, headers: &[(&str, &str)]) -> (Response, Vec<u8>) {
    let request = headers
        .iter()
        .fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    let answer = fixture.site.router().clone().oneshot(request.body(Body::empty()).unwrap()).await;
    let (parts, body) = answer.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(parts, Body::empty()), body.to_vec())
}

/// Every header that the answer depends on.
fn vary(answer: &Response) -> String {
    let values = answer.headers().get_all("vary").iter();
    values.map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join(", ")
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// The lines of `text` in one order: the metrics of a family come in any.
fn sorted(text: Vec<u8>) -> Vec<String> {
    let mut lines: Vec<_> = String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// All that a tenant may reserve is free.
fn assert_nothing_is_held(fixture: &Fixture) {
    let tenant = "default".parse().unwrap();
    let mut all = Reservation::default();
    fixture.intake.reserve(&tenant, limits::INGEST_TENANT_BYTES, &mut all).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_body_in_gzip_is_what_it_would_be_without() {
    let fixture = fixture(Vec::new());
    let one = notification("a1", r#","idempotency_key":"k""#);
    let path = "/v1/notifications";
    let plain = fixture.post(path, JSON, one.clone()).await.json();
    let again = post(&fixture, path, JSON, gzip(&one)).await;
    assert_eq!(again.status, StatusCode::CREATED, "{}", again.text);
    assert_eq!(again.json(), json!({"id": plain["id"], "replayed": true}));
    let several = format!("[{one},{}]", notification("a2", ""));
    assert_eq!(post(&fixture, path, JSON, gzip(several)).await.json()["accepted"], 1);
    let shown = post(&fixture, "/v1/preview", JSON, gzip(&one)).await.json();
    assert_eq!(shown["accepted"], true);

    // Members one after the other are one body, wherever it is cut (RFC 1952, section 2.2).
    let (head, tail) = one.split_at(20);
    let members = [gzip(head), gzip(""), gzip(tail)].concat();
    for size in [1, 7, members.len()] {
        let pieces: Vec<_> = members.chunks(size).map(Bytes::copy_from_slice).collect();
        let pieces = stream::iter(pieces.into_iter().map(Ok::<_, std::convert::Infallible>));
        let answer = post(&fixture, path, JSON, Body::from_stream(pieces)).await;
        assert_eq!(answer.json()["replayed"], true, "{size}: {}", answer.text);
    }
    assert_eq!(fixture.account().await.accepted, 2);
    assert_nothing_is_held(&fixture);
}

#[tokio::test]
async fn a_broadcast_in_gzip_has_all_its_recipients() {
    let fixture = fixture(Vec::new());
    let head = r#"{"channel":"ios","content":{"n":1},"idempotency_key":"k"}"#;
    let recipients: Vec<_> = (0..100_000).map(|number| format!("\"{number:x}\"")).collect();
    let recipients = recipients.join("\n");
    let body = gzip(format!("{head}\n{recipients}"));
    let created = post(&fixture, "/v1/broadcasts", LINES, body.clone()).await;
    assert_eq!(created.json()["accepted"], 100_000, "{}", created.text);
    // Of one that is there already, nothing but its first line is inflated.
    let mut damaged = body;
    damaged.truncate(damaged.len() / 2);
    let again = post(&fixture, "/v1/broadcasts", LINES, damaged.clone()).await;
    assert_eq!(again.json()["replayed"], true, "{}", again.text);
    // And of one that breaks off nothing stays.
    let other = gzip(format!("{}\n{recipients}", head.replace("\"k\"", "\"other\"")));
    let cut = other[..other.len() / 2].to_vec();
    let problem = post(&fixture, "/v1/broadcasts", LINES, cut).await.problem(400);
    assert_eq!(problem["code"], "invalid_gzip");
    assert_eq!(fixture.account().await.accepted, 100_000);
    assert_nothing_is_held(&fixture);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_gzip_is_told_and_another_coding_is_not_taken() {
    let fixture = fixture(Vec::new());
    let good = gzip(notification("a1", ""));
    let mut damaged = good.clone();
    let crc = damaged.len() - 8;
    damaged[crc] ^= 1;
    let too_short = good[..good.len() - 1].to_vec();
    let with_more = [good.clone(), b"more".to_vec()].concat();
    for body in [damaged, too_short, with_more, b"{}".to_vec(), Vec::new()] {
        let problem = post(&fixture, "/v1/notifications", JSON, body.clone()).await.problem(400);
        assert_eq!(problem["code"], "invalid_gzip", "{problem}");
        let lines = post(&fixture, "/v1/notifications", LINES, body).await.lines();
        assert_eq!(lines.last().unwrap()["error"]["code"], "invalid_gzip", "{lines:?}");
    }
    let before = fixture.account().await.accepted;
    for codings in [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"], &["deflate"], &["gzip;q=1"]] {
        for media_type in [JSON, LINES] {
            let request = Request::post("/v1/notifications").header("content-type", media_type);
            let request = codings
                .iter()
                .fold(request, |request, coding| request.header("content-encoding", *coding));
            let answer = fixture.send(request.body(Body::from(good.clone())).unwrap()).await;
            assert_eq!(answer.problem(415)["code"], "unsupported_coding");
            assert_eq!(answer.header("accept-encoding"), "gzip");
        }
    }
    assert_eq!(fixture.account().await.accepted, before);
    for coding in ["GZIP", "x-gzip", "identity"] {
        let body = if coding == "identity" { notification("a1", "").into() } else { good.clone() };
        let request = Request::post("/v1/notifications").header("content-type", JSON);
        let request = request.header("content-encoding", coding).body(Body::from(body)).unwrap();
        assert_eq!(fixture.send(request).await.status, StatusCode::CREATED, "{coding}");
    }
    assert_nothing_is_held(&fixture);
}

#[tokio::test]
async fn a_bomb_ends_where_a_plain_body_would_and_holds_no_memory() {
    let fixture = fixture(Vec::new());
    // A gigabyte of zeros in a megabyte.
    let member = gzip(vec![0; 16 << 20]);
    let bomb = member.repeat(64);
    assert!(bomb.len() < 2 << 20, "{}", bomb.len());
    for path in ["/v1/notifications", "/v1/broadcasts", "/v1/preview"] {
        let problem = post(&fixture, path, JSON, bomb.clone()).await.problem(413);
        assert_eq!(problem["code"], "too_large");
        assert_nothing_is_held(&fixture);
    }
    // A line without an end: it is refused by its number, and the rest is thrown away.
    let problem = post(&fixture, "/v1/broadcasts", LINES, bomb).await.problem(422);
    assert_eq!(problem["errors"][0]["line"], 1);
    let lines = [member, gzip(format!("\n{}", notification("a1", "")))].concat();
    let answers = post(&fixture, "/v1/notifications", LINES, lines).await.lines();
    assert_eq!(answers[0]["error"]["code"], "too_large");
    assert_eq!(answers[2], json!({"accepted": 1, "replayed": 0, "refused": 1}));
    assert_nothing_is_held(&fixture);
}

#[tokio::test]
async fn a_task_that_inflates_much_has_turns_with_others() {
    let fixture = fixture(Vec::new());
    let blank = gzip(vec![b'\n'; 16 << 20]);
    let mut turns = 0;
    let others = async {
        loop {
            tokio::task::yield_now().await;
            turns += 1;
        }
    };
    tokio::select! {
        biased;
        answer = post(&fixture, "/v1/notifications", LINES, blank) => {
            assert_eq!(answer.lines(), [json!({"accepted": 0, "replayed": 0, "refused": 0})]);
        }
        () = others => {}
    }
    assert!(turns >= 4, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_dribbles_has_its_minute_and_no_more() {
    let fixture = fixture(Vec::new());
    let body = gzip(notification("a1", ""));
    let dribble = |wait: Duration| {
        let pieces = stream::iter(body.clone()).then(move |byte| async move {
            tokio::time::sleep(wait).await;
            Ok::<_, std::convert::Infallible>(Bytes::from(vec![byte]))
        });
        Body::from_stream(pieces)
    };
    for media_type in [JSON, LINES] {
        let slow =
            post(&fixture, "/v1/notifications", media_type, dribble(limits::IDLE_TIMEOUT / 2));
        let slow = slow.await;
        let code = if media_type == JSON {
            slow.problem(408)["code"].clone()
        } else {
            slow.lines()[0]["error"]["code"].clone()
        };
        assert_eq!(code, "slow_body");
        let answer = dribble(Duration::from_millis(10));
        let answer = post(&fixture, "/v1/notifications", media_type, answer).await;
        assert!(answer.status.is_success(), "{}", answer.text);
    }
    assert_eq!(fixture.account().await.accepted, 2);
    assert_nothing_is_held(&fixture);
}

#[tokio::test]
async fn a_line_is_answered_when_the_caller_has_flushed_it() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let head = chunked_head("/v1/notifications", LINES);
    let head = head.replace("host:", "content-encoding: gzip\r\nhost:");
    let mut socket = connect(server.address, &head).await;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    for line in 1..=3 {
        encoder.write_all(format!("{}\n", notification("a1", "")).as_bytes()).unwrap();
        encoder.flush().unwrap();
        write_chunk(&mut socket, &std::mem::take(encoder.get_mut())).await;
        read_until(&mut socket, &format!(r#"{{"line":{line},"id":""#)).await;
        assert_eq!(fixture.account().await.accepted, line);
    }
    // As well with a member for each line, and with more behind a flush than one piece has.
    write_chunk(&mut socket, &encoder.finish().unwrap()).await;
    write_chunk(&mut socket, &gzip(format!("{}\n", notification("a2", "")))).await;
    read_until(&mut socket, r#"{"line":4,"id":""#).await;
    let many = format!("{}\n", notification("a3", "")).repeat(2_000);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(many.as_bytes()).unwrap();
    encoder.flush().unwrap();
    write_chunk(&mut socket, encoder.get_ref()).await;
    read_until(&mut socket, r#"{"line":2004,"id":""#).await;
    socket.shutdown().await.unwrap();
    drop(socket);
    server.stop().await;
    assert_eq!(fixture.account().await.accepted, 2_004);
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_compressed_for_callers_that_accept_it_and_the_same() {
    let fixture = fixture(Vec::new());
    for number in 0..100 {
        let body = notification(&format!("{number:x}"), "");
        fixture.post("/v1/notifications", JSON, body).await;
    }
    for path in ["/v1/notifications?limit=100", "/metrics", "/openapi.json", "/v1/status"] {
        let (plain, text) = get(&fixture, path, &[]).await;
        let varies = if path == "/metrics" { "accept, accept-encoding" } else { "accept-encoding" };
        assert_eq!((header(&plain, "content-encoding"), &*vary(&plain)), ("", varies));
        let (shorter, bytes) = get(&fixture, path, &[("accept-encoding", "br, gzip")]).await;
        let content_type = header(&plain, "content-type");
        assert_eq!(
            (shorter.status(), header(&shorter, "content-type")),
            (StatusCode::OK, content_type)
        );
        if text.len() < 1024 {
            assert_eq!((header(&shorter, "content-encoding"), &bytes), ("", &text), "{path}");
            continue;
        }
        assert_eq!((header(&shorter, "content-encoding"), &*vary(&shorter)), ("gzip", varies));
        assert!(bytes.len() < text.len() / 2, "{path}: {} of {}", bytes.len(), text.len());
        assert!(sorted(run("gzip", &["-dc"], &bytes)) == sorted(text.clone()), "{path}");
        for refusing in ["identity", "gzip;q=0", "gzip;q=0.2, identity"] {
            let (answer, bytes) = get(&fixture, path, &[("accept-encoding", refusing)]).await;
            assert!(
                header(&answer, "content-encoding").is_empty()
                    && sorted(bytes) == sorted(text.clone()),
                "{path}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_tag_of_a_compressed_answer_is_weak_and_known_with_any_coding() {
    let fixture = fixture(Vec::new());
    let (path, gzip) = ("/openapi.json", ("accept-encoding", "gzip"));
    let (plain, _) = get(&fixture, path, &[]).await;
    let (shorter, _) = get(&fixture, path, &[gzip]).await;
    let (strong, weak) = (header(&plain, "etag"), header(&shorter, "etag"));
    assert!(strong.starts_with('"'));
    assert_eq!(weak, format!("W/{strong}"));
    for known in [strong, weak] {
        for (headers, tag) in
            [(&[("if-none-match", known)][..], strong), (&[("if-none-match", known), gzip], weak)]
        {
            let (answer, body) = get(&fixture, path, headers).await;
            assert_eq!((answer.status(), body.len()), (StatusCode::NOT_MODIFIED, 0));
            assert_eq!(
                (header(&answer, "etag"), header(&answer, "vary")),
                (tag, "accept-encoding")
            );
            assert_eq!(header(&answer, "content-encoding"), "");
        }
    }
    let head = Request::builder().method(Method::HEAD).uri(path).header("accept-encoding", "gzip");
    let head =
        fixture.site.router().clone().oneshot(head.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!((header(&head, "etag"), header(&head, "vary")), (weak, "accept-encoding"));
    assert_eq!(header(&head, "content-encoding"), "gzip");
    assert!(head.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn answers_to_requests_that_change_something_are_never_compressed() {
    let fixture = fixture(Vec::new());
    let several: Vec<_> = (0..100).map(|_| notification("a1", "")).collect();
    let request = Request::post("/v1/notifications").header("accept-encoding", "gzip");
    let request = request.header("content-type", JSON);
    let answer =
        fixture.send(request.body(Body::from(format!("[{}]", several.join(",")))).unwrap());
    let answer = answer.await;
    assert!(answer.text.len() > 1024);
    assert_eq!((answer.header("content-encoding"), answer.header("vary")), ("", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_sends_and_reads_gzip() {
    let fixture = fixture(Vec::new());
    let server = fixture.listen().await;
    let base = format!("http://{}", server.address);
    let curl = async |arguments: &[&str], input: Vec<u8>| {
        let arguments: Vec<String> =
            arguments.iter().map(|&argument| argument.to_owned()).collect();
        let run = move || {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            run(
                "curl",
                &[&["-sS", "--fail-with-body", "--max-time", "60"], &arguments[..]].concat(),
                &input,
            )
        };
        String::from_utf8(tokio::task::spawn_blocking(run).await.unwrap()).unwrap()
    };
    let lines = gzip(format!("{}\n", notification("a1", "")).repeat(500));
    let url = format!("{base}/v1/notifications");
    let upload = [
        "--data-binary",
        "@-",
        "-H",
        "content-type: application/x-ndjson",
        "-H",
        "content-encoding: gzip",
        &url,
    ];
    let answers = curl(&upload, lines).await;
    assert!(answers.ends_with("{\"accepted\":500,\"replayed\":0,\"refused\":0}\n"), "{answers}");
    let list = format!("{url}?limit=200");
    let plain = curl(&[&list], Vec::new()).await;
    assert!(plain.len() > 20_000 && plain == curl(&["--compressed", &list], Vec::new()).await);
    let sent =
        curl(&["--compressed", "-o", "/dev/null", "-w", "%{size_download}", &list], Vec::new())
            .await;
    assert!(sent.parse::<usize>().unwrap() < plain.len() / 4, "{sent} of {}", plain.len());
    server.stop().await;
}
