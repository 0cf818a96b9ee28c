//! One tenant that asks without end, and another one and an operator, whose requests are all answered.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::{CHANNEL, PATIENCE, Workspace};

/// Callers of the tenant that asks without end: twice as many as it may have questions.
const CALLERS: usize = 128;
/// Rounds of the others.
const ROUNDS: usize = 25;
/// Rounds after which none is waited for any more that is refused.
const ROUNDS_MAX: usize = 1_000;

/// An answer.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// A connection with a key.
struct Client {
    socket: TcpStream,
    key: String,
}

// === impl Client ===

impl Client {
    fn new(address: &str, key: &str) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, key: key.to_owned() }
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> Answer {
        let (key, length) = (&self.key, body.len());
        write!(
            self.socket,
            "{method} {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let length = self.socket.read(&mut piece).unwrap();
            assert!(length > 0, "{method} {path}: {}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&piece[..length]);
            let text = String::from_utf8_lossy(&bytes);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                return Answer { status, head: head.to_owned(), body: body.to_owned() };
            }
        }
    }

    /// Calls, and is answered well.
    fn must(&mut self, method: &str, path: &str, body: &str) -> String {
        let answer = self.call(method, path, body);
        assert!(matches!(answer.status, 200 | 201), "{path}: {}{}", answer.head, answer.body);
        answer.body
    }
}

/// The configuration of a key, and the key.
fn key(workspace: &Workspace, name: &str, scopes: &str) -> (String, String) {
    let text = workspace.get(&["api-key", name, "--tenant", name, "--scopes", scopes]);
    let (_, rest) = text.split_once("BELFRY_API_KEY=").unwrap();
    let key = rest.split_whitespace().next().unwrap().to_owned();
    (text, key)
}

fn check(store: &str) {
    let workspace = Workspace::new("");
    let (greedy_table, greedy) = key(&workspace, "greedy", "send,read");
    let (modest_table, modest) = key(&workspace, "modest", "send,read,metrics");
    let (ops_table, ops) = key(&workspace, "ops", "read,operate,metrics");
    let config = format!(
        "{store}\n[server]\nlisten = \"127.0.0.1:0\"\n{CHANNEL}{greedy_table}\n{modest_table}\n{ops_table}"
    );
    workspace.write("belfry.toml", &config);
    let engine = workspace.start();
    let address = engine.address("/listen");
    let one = r#"{"channel":"rehearsal","to":"a","content":{"text":"noon"}}"#;
    let many = format!("[{}]", vec![one; 1_000].join(","));
    Client::new(&address, &greedy).must("POST", "/v1/notifications", &many);

    let (stops, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let heads = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut client = Client::new(&address, &greedy);
                while !stops.load(Ordering::Relaxed) {
                    let answer = client.call("GET", "/v1/notifications?limit=200", "");
                    if answer.status != 200 {
                        refused.fetch_add(1, Ordering::Relaxed);
                        let mut heads = heads.lock().unwrap();
                        heads.clear();
                        heads.push((answer.status, answer.head, answer.body));
                    }
                }
            });
        }
        // The callers end whatever becomes of this.
        let rounds = std::panic::catch_unwind(|| {
            let (mut modest, mut ops) =
                (Client::new(&address, &modest), Client::new(&address, &ops));
            for round in 0..ROUNDS_MAX {
                let made = modest.must("POST", "/v1/notifications", one);
                let made: serde_json::Value = serde_json::from_str(&made).unwrap();
                modest.must(
                    "GET",
                    &format!("/v1/notifications/{}", made["id"].as_str().unwrap()),
                    "",
                );
                modest.must("GET", "/v1/notifications?limit=10", "");
                modest.must("GET", "/metrics", "");
                ops.must("GET", "/v1/status", "");
                ops.must("GET", "/metrics", "");
                if round >= ROUNDS && refused.load(Ordering::Relaxed) > 0 {
                    return;
                }
            }
        });
        stops.store(true, Ordering::Relaxed);
        rounds.unwrap();
    });
    let heads = heads.into_inner().unwrap();
    let (status, head, body) = heads.first().expect("some were refused");
    assert_eq!(*status, 429, "{head}{body}");
    for part in [
        "retry-after: 1",
        r#"ratelimit-policy: "reads";q=64;qu="concurrent-requests""#,
        r#"ratelimit: "reads";r=0;t=1"#,
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    assert!(body.contains(r#""code":"tenant_overloaded""#), "{body}");
}

#[test]
fn a_tenant_that_reads_without_end_holds_up_no_other_on_sqlite() {
    check("");
}

#[test]
fn a_tenant_that_reads_without_end_holds_up_no_other_on_postgresql() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    check(&format!("[store]\nurl = \"{}\"", database.url()));
}
