//! nginx and `HAProxy` in front of an engine, by the configurations of `docs/deploy`.

use std::io::Write as _;

use serde_json::Value;
use testbed::{ReverseProxy, ReverseProxyProgram};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Authority, CHANNEL, TlsConnection, Workspace, read_until};

/// More than the buffers of sockets and of a proxy hold on the way.
const MANY: usize = 40_000;

const NOTIFICATION: &str =
    r#"{"channel":"rehearsal","to":"anybody","content":{"text":"It is noon"}}"#;

/// Headers of a stream, whose connection ends with the answer.
const LINES: &str =
    "content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\nconnection: close";

/// An engine behind a proxy.
struct World {
    authority: Authority,
    proxy: ReverseProxy,
    key: String,
}

// === impl World ===

impl World {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.proxy.port())
    }

    fn head(&self, request: &str, headers: &str) -> String {
        let key = &self.key;
        format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n{headers}\r\n\r\n"
        )
    }

    /// Calls the proxy and sends the head of a request.
    fn begin(&self, request: &str, headers: &str) -> TlsConnection {
        let mut stream = self.authority.call(&self.address(), None).unwrap();
        stream.write_all(self.head(request, headers).as_bytes()).unwrap();
        stream.flush().unwrap();
        stream
    }
}

fn write_chunk(stream: &mut TlsConnection, text: &str) {
    write!(stream, "{:x}\r\n{text}\r\n", text.len()).unwrap();
    stream.flush().unwrap();
}

fn through(program: ReverseProxyProgram, configuration: &str, (from, to): (&str, &str)) {
    let workspace = Workspace::new("");
    let key =
        workspace.get(&["api-key", "proxy", "--tenant", "shop", "--scopes", "send,read,metrics"]);
    let text = key.lines().find_map(|line| line.split_once("BELFRY_API_KEY=")).unwrap().1;
    let socket = "[server]\nlisten = \"none\"\nsocket = \"api.sock\"\n";
    workspace.write("belfry.toml", &format!("{socket}{CHANNEL}{key}"));
    let _engine = workspace.start();
    let authority = Authority::new();
    workspace.certify(&authority);
    let pem = |name: &str| std::fs::read_to_string(workspace.path(name)).unwrap();
    workspace.write("both.pem", &(pem("certificate.pem") + &pem("key.pem")));
    let place = |name: &str| workspace.path(name).display().to_string();
    let port = testbed::free_port().unwrap();
    let files = [
        ("/run/belfry/api.sock", place("api.sock")),
        ("/etc/nginx/tls/fullchain.pem", place("certificate.pem")),
        ("/etc/nginx/tls/privkey.pem", place("key.pem")),
        ("/etc/haproxy/tls/notify.example.com.pem", place("both.pem")),
        (from, to.replace("PORT", &port.to_string())),
    ];
    let files = files.iter().filter(|(from, _)| configuration.contains(from));
    let changes: Vec<_> = files.map(|(from, to)| (*from, to.as_str())).collect();
    let proxy = ReverseProxy::start(program, configuration, &changes, port).unwrap();
    let world = World { authority, proxy, key: text.trim().to_owned() };
    one_is_accepted(&world);
    lines_are_answered_one_by_one(&world);
    a_long_stream_does_not_stand_still(&world);
    events_come_as_they_happen(&world);
}

fn one_is_accepted(world: &World) {
    let length = NOTIFICATION.len();
    let headers = format!(
        "content-type: application/json\r\ncontent-length: {length}\r\nx-request-id: noon-1"
    );
    let mut stream = world.begin("POST /v1/notifications", &headers);
    write!(stream, "{NOTIFICATION}").unwrap();
    stream.flush().unwrap();
    let answer = read_until(&mut stream, "\"replayed\":false}").unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(answer.to_lowercase().contains("x-request-id: noon-1\r\n"), "{answer}");
    // The proxy names a request that has no name.
    let mut stream = world.begin("GET /v1/keys/self", "connection: close");
    let answer = read_until(&mut stream, "\"not_after\"").unwrap().to_lowercase();
    let name = answer.split_once("x-request-id: ").unwrap().1.lines().next().unwrap();
    // Those of the engine have a dash and a number behind 16 digits.
    assert!(name.len() >= 32, "{name}");
    // Those of the tenant: the process itself is for operators to see.
    let mut stream = world.begin("GET /metrics", "connection: close");
    let answer = read_until(&mut stream, "# EOF").unwrap();
    assert!(answer.contains("\nbelfry_notifications_accepted_total "), "{answer}");
    assert!(!answer.contains("belfry_available"), "{answer}");
}

fn lines_are_answered_one_by_one(world: &World) {
    let mut stream = world.begin("POST /v1/notifications", LINES);
    for line in 1..=3 {
        write_chunk(&mut stream, &format!("{NOTIFICATION}\n"));
        read_until(&mut stream, &format!("{{\"line\":{line},\"id\":\"")).unwrap();
    }
    write!(stream, "0\r\n\r\n").unwrap();
    stream.flush().unwrap();
    read_until(&mut stream, "{\"accepted\":3,\"replayed\":0,\"refused\":0}").unwrap();
}

/// A proxy that passes on no more of the request once the answer has begun ends here: more is written than buffers hold on the way,
/// while answers are read.
fn a_long_stream_does_not_stand_still(world: &World) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let head = world.head("POST /v1/notifications", LINES);
    let pieces = format!("{NOTIFICATION}\n").repeat(100);
    let chunk = format!("{:x}\r\n{pieces}\r\n", pieces.len());
    let expect = format!("{{\"accepted\":{MANY},\"replayed\":0,\"refused\":0}}");
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(world.address()).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(world.authority.client(None));
        let stream = connector.connect("localhost".try_into().unwrap(), socket).await.unwrap();
        let (mut answers, mut lines) = tokio::io::split(stream);
        let write = async {
            lines.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..MANY / 100 {
                lines.write_all(chunk.as_bytes()).await.unwrap();
            }
            lines.write_all(b"0\r\n\r\n").await.unwrap();
            lines.flush().await.unwrap();
        };
        let read = async {
            let mut text = Vec::new();
            while answers.read_buf(&mut text).await.unwrap() > 0 {}
            String::from_utf8(text).unwrap()
        };
        let ((), text) = tokio::join!(write, read);
        let end: Vec<&str> = text.lines().rev().take(6).collect();
        assert!(text.contains(&expect), "{end:?}");
    });
}

fn events_come_as_they_happen(world: &World) {
    let mut events = world.begin("GET /v1/events", "accept: text/event-stream");
    read_until(&mut events, ": begins").unwrap();
    one_is_accepted(world);
    let text = read_until(&mut events, "\"state\":\"delivered\"").unwrap();
    assert!(text.contains("data: "), "{text}");
    // And one by asking, after what there was.
    let position = text.split("id: ").nth(1).unwrap().lines().next().unwrap();
    let path = format!("GET /v1/events?position={position}&wait=20");
    let mut waiting = world.begin(&path, "accept: application/x-ndjson");
    one_is_accepted(world);
    let text = read_until(&mut waiting, "\"next\"").unwrap();
    let line = text.lines().find(|line| line.starts_with('{')).unwrap();
    assert!(serde_json::from_str::<Value>(line).is_ok(), "{text}");
}

#[test]
fn nginx_passes_streams_on_both_ways() {
    let configuration = include_str!("../../../../docs/deploy/nginx.conf");
    let listen = ("listen 443 ssl http2;", "listen 127.0.0.1:PORT ssl http2;");
    through(ReverseProxyProgram::Nginx, configuration, listen);
}

#[test]
fn haproxy_passes_streams_on_both_ways() {
    let configuration = include_str!("../../../../docs/deploy/haproxy.cfg");
    through(ReverseProxyProgram::Haproxy, configuration, ("bind :443", "bind 127.0.0.1:PORT"));
}
