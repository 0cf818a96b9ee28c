//! The client against the server of the `h2` crate, over an in-memory pipe: another reading of the same standards.

use std::rc::Rc;

use bytes::Bytes;
use fastrand::Rng;
use h2::server::{self, SendResponse};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tokio::io::BufReader;
use tokio::task::LocalSet;

use super::answer::NoReply;
use super::connection::Connection;
use super::testing::{self, TestHead, exchange};
use crate::exchange::Reply;

static READ_FIELDS: [HeaderName; 9] = [
    HeaderName::from_static("x-path"),
    HeaderName::from_static("number"),
    HeaderName::from_static("length"),
    HeaderName::from_static("accept"),
    HeaderName::from_static("age"),
    HeaderName::from_static("via"),
    HeaderName::from_static("x-a"),
    HeaderName::from_static("x-b"),
    HeaderName::from_static("x-quite-a-long-name-of-a-field"),
];
/// Bytes that the pipe holds: less than a frame, so that everything is cut somewhere.
const PIPE_BYTES: usize = 1_000;

/// A request as the server received it.
struct Received {
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
    respond: SendResponse<Bytes>,
}

/// Runs `serve` for each request of a connection that `test` has.
async fn beside<Test: AsyncFnOnce(Rc<Connection>)>(
    builder: server::Builder,
    serve: impl Fn(Received) + 'static,
    test: Test,
) {
    let (client, server) = tokio::io::duplex(PIPE_BYTES);
    let serving = async move {
        let mut connection = builder.handshake::<_, Bytes>(server).await.unwrap();
        let serve = Rc::new(serve);
        while let Some(Ok((request, respond))) = connection.accept().await {
            let serve = Rc::clone(&serve);
            tokio::task::spawn_local(async move {
                let (head, mut stream) = request.into_parts();
                let mut body = Vec::new();
                while let Some(Ok(piece)) = stream.data().await {
                    stream.flow_control().release_capacity(piece.len()).unwrap();
                    body.extend_from_slice(&piece);
                }
                let path = head.uri.path().to_owned();
                serve(Received { path, headers: head.headers, body, respond });
            });
        }
    };
    let asking = async move {
        let mut wire = testing::wire(BufReader::new(client), &READ_FIELDS);
        wire.greet().await.unwrap();
        let connection = Rc::clone(&wire.connection);
        let running = tokio::task::spawn_local(wire.run(|| ()));
        test(Rc::clone(&connection)).await;
        connection.close_if_unused();
        running.await.unwrap();
    };
    let local = LocalSet::new();
    local
        .run_until(async {
            let serving = tokio::task::spawn_local(serving);
            asking.await;
            serving.await.unwrap();
        })
        .await;
}

fn request(number: usize) -> TestHead {
    let mut key = HeaderValue::from_str(&format!("Bearer {}", "k".repeat(200))).unwrap();
    key.set_sensitive(true);
    let mut fields = HeaderMap::new();
    fields.insert("authorization", key);
    fields.insert("topic", HeaderValue::from_static("com.example.app"));
    fields.insert("number", number.into());
    TestHead::new(&format!("/3/device/{number}"), fields)
}

async fn ask(connection: &Connection, number: usize, body: &[u8]) -> Result<Reply, NoReply> {
    exchange(connection, &request(number), Bytes::copy_from_slice(body)).await
}

/// Answers with what came: its length as a header, and all of it unless it is long.
fn echo(mut received: Received) {
    let length = received.body.len();
    let mut response =
        Response::builder().status(if length == 0 { 200 } else { 400 }).header("length", length);
    response =
        response.header("x-path", &received.path).header("number", &received.headers["number"]);
    let head = response.body(()).unwrap();
    assert_eq!(received.headers["topic"], "com.example.app");
    assert_eq!(received.headers["authorization"].len(), 207);
    let mut stream = received.respond.send_response(head, false).unwrap();
    received.body.truncate(10_000);
    stream.send_data(received.body.into(), true).unwrap();
}

#[tokio::test]
async fn every_request_has_its_own_answer_whatever_the_windows() {
    for (window, table) in [(65_535, 4_096), (1, 0), (100, 200), (1 << 20, 1 << 16)] {
        let mut builder = server::Builder::new();
        builder.initial_window_size(window).header_table_size(table).max_concurrent_streams(300);
        beside(builder, echo, async |connection| {
            let sizes = [0, 1, 200, 20_000, 40_000];
            let size = |number: usize| if window == 1 { number % 50 } else { sizes[number % 5] };
            let one = async |number: usize| {
                let reply = ask(&connection, number, &vec![b'x'; size(number)]).await.unwrap();
                assert_eq!(reply.status, if size(number) == 0 { 200 } else { 400 });
                assert_eq!(reply.headers["x-path"], format!("/3/device/{number}"));
                assert_eq!(reply.headers["number"], number.to_string());
                assert_eq!(reply.headers["length"], size(number).to_string());
                assert_eq!(reply.body.len(), size(number).min(10_000));
            };
            futures_util::future::join_all((0..100).map(one)).await;
        })
        .await;
    }
}

#[tokio::test]
async fn resets_are_read_as_what_they_mean() {
    let serve = |mut received: Received| {
        received.respond.send_reset(match received.path.as_str() {
            "/3/device/1" => h2::Reason::REFUSED_STREAM,
            "/3/device/2" => h2::Reason::HTTP_1_1_REQUIRED,
            _ => h2::Reason::INTERNAL_ERROR,
        });
    };
    beside(server::Builder::new(), serve, async |connection| {
        let refused = ask(&connection, 1, b"x").await.unwrap_err();
        assert_eq!(refused, NoReply::NotProcessed);
        assert_eq!(ask(&connection, 2, b"x").await.unwrap_err(), NoReply::Http11Required);
        let lost =
            NoReply::Lost("no answer: the server reset the stream (INTERNAL_ERROR)".to_owned());
        assert_eq!(ask(&connection, 3, b"x").await.unwrap_err(), lost);
    })
    .await;
}

#[tokio::test]
async fn a_graceful_end_of_the_server_loses_nothing() {
    let (client, server) = tokio::io::duplex(PIPE_BYTES);
    let serve = async move {
        let mut connection = server::handshake(server).await.unwrap();
        let mut answered = 0;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let head = Response::builder().status(StatusCode::OK).body(()).unwrap();
            respond.send_response(head, true).unwrap();
            answered += 1;
            if answered == 20 {
                connection.graceful_shutdown();
            }
        }
        answered
    };
    let local = LocalSet::new();
    let asking = async {
        let mut wire = testing::wire(BufReader::new(client), &READ_FIELDS);
        wire.greet().await.unwrap();
        let connection = Rc::clone(&wire.connection);
        let running = tokio::task::spawn_local(wire.run(|| ()));
        let (mut accepted, mut refused) = (0, 0);
        for wave in 0..5 {
            let replies = futures_util::future::join_all(
                (0..10).map(|number| ask(&connection, wave * 10 + number, b"")),
            );
            for reply in replies.await {
                match reply {
                    Ok(reply) => accepted += usize::from(reply.status == 200),
                    Err(why) => {
                        assert_eq!(why, NoReply::NotProcessed);
                        assert!(!connection.session.borrow().takes_requests());
                        refused += 1;
                    }
                }
            }
        }
        assert!(!connection.session.borrow().takes_requests());
        connection.close_if_unused();
        running.await.unwrap();
        (accepted, refused)
    };
    let (answered, (accepted, refused)) =
        local.run_until(async { tokio::join!(serve, asking) }).await;
    assert_eq!((accepted, accepted + refused), (answered, 50));
    assert!(refused > 0 && answered >= 20, "{answered}");
}

#[tokio::test]
async fn a_request_that_is_given_up_is_reset_and_the_connection_goes_on() {
    let serve = |mut received: Received| {
        if received.path == "/3/device/1" {
            let waiting = async move {
                std::future::poll_fn(|context| received.respond.poll_reset(context)).await
            };
            tokio::task::spawn_local(async {
                assert_eq!(waiting.await.unwrap(), h2::Reason::CANCEL);
            });
        } else {
            echo(received);
        }
    };
    beside(server::Builder::new(), serve, async |connection| {
        let body = Bytes::from_static(b"x");
        let given_up =
            connection.act(|session| session.send(&request(1), body, (&Rc::default(), 0))).unwrap();
        assert_eq!(ask(&connection, 2, b"").await.unwrap().status, 200);
        connection.give_back(Some(given_up));
        assert_eq!(ask(&connection, 3, b"").await.unwrap().status, 200);
    })
    .await;
}

/// Header fields that only `seed` decides: names of the static table and others, values of any bytes, some of them the same in
/// many lists, some sensitive, some twice.
fn any_fields(seed: u64) -> HeaderMap {
    let names = ["accept", "age", "via", "x-a", "x-b", "x-quite-a-long-name-of-a-field"];
    let mut random = Rng::with_seed(seed);
    let mut fields = HeaderMap::new();
    for _ in 0..random.usize(..12) {
        let name = HeaderName::from_static(random.choice(names).unwrap());
        let value: Vec<u8> = match random.u8(..4) {
            0 => b"the same in many".to_vec(),
            1 => (0..random.usize(..150)).map(|_| random.u8(0x80..)).collect(),
            _ => (0..random.usize(..40)).map(|_| random.u8(b'!'..=b'~')).collect(),
        };
        let mut value = HeaderValue::from_bytes(&value).unwrap();
        value.set_sensitive(random.u8(..8) == 0);
        fields.append(name, value);
    }
    fields
}

#[tokio::test]
async fn header_fields_of_any_kind_arrive_both_ways_whatever_the_tables() {
    const REQUESTS: u64 = 400;
    // Every third list comes again, so that entries of the tables are used.
    let lists = |number: u64| (any_fields(number % 3), any_fields(1_000 + number));
    let whole = move |number: u64| {
        let (same, own) = lists(number);
        let mut fields = same;
        for (name, value) in &own {
            fields.append(name, value.clone());
        }
        fields
    };
    let serve = move |mut received: Received| {
        let number: u64 = received.path.trim_start_matches('/').parse().unwrap();
        assert_eq!(received.headers, whole(number), "what we encoded, as h2 has read it");
        let mut head = Response::new(());
        *head.headers_mut() = whole(number + 1);
        received.respond.send_response(head, true).unwrap();
    };
    for table in [0, 64, 1_000, 4_096, 1 << 16] {
        let mut builder = server::Builder::new();
        builder.header_table_size(table);
        beside(builder, serve, async |connection| {
            let mut random = Rng::with_seed(u64::from(table));
            let shared = [0, 1, 2].map(|seed| testing::shared(any_fields(seed)));
            for number in 0..REQUESTS {
                if random.u8(..8) == 0 {
                    // As when the server allows less, and more again.
                    let bytes = usize::try_from(random.u32(..=table)).unwrap();
                    connection.session.borrow_mut().encoder.allow(bytes);
                }
                let mut request = TestHead::new(&format!("/{number}"), HeaderMap::new());
                let (same, own) = lists(number);
                (request.shared, request.own) =
                    (Rc::clone(&shared[usize::try_from(number % 3).unwrap()]), own);
                if random.u8(..4) == 0 {
                    // Nothing that others share.
                    request.shared = testing::shared(same);
                }
                let reply = exchange(&connection, &request, Bytes::new()).await.unwrap();
                assert_eq!(reply.headers, whole(number + 1), "what h2 encoded, as we have read it");
            }
        })
        .await;
    }
}
