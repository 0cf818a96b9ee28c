//! An operator's address, while callers have taken every connection of the other one.

use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::support::{CHANNEL, Workspace, get};

/// Less than the 30 s for which a connection may be idle.
const WAIT: Duration = Duration::from_secs(20);

#[test]
fn operators_are_answered_while_callers_have_every_connection() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[server.operator]\nlisten = \"127.0.0.1:0\"\n{CHANNEL}"
    );
    let workspace = Workspace::new(&config);
    let engine = workspace.start();
    let public = engine.address("/listen");
    // Each has asked something, so that it may be silent for 30 s.
    let taken: Vec<TcpStream> = (0..1_024)
        .map(|_| {
            let mut socket = TcpStream::connect(&public).unwrap();
            get(&mut socket, "/v1/channels", "\"rehearsal\"").unwrap();
            socket
        })
        .collect();
    let operator = engine.address("/operator/listen");
    for (path, end) in [
        ("/healthz", "ok\n"),
        ("/readyz", "ready"),
        ("/metrics", "belfry_available"),
        ("/v1/status", "\"totals\""),
        ("/v1/channels", "\"rehearsal\""),
    ] {
        let mut socket = TcpStream::connect(&operator).unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        let answer = get(&mut socket, path, end);
        assert!(answer.is_ok(), "{path}: {answer:?}");
    }
    workspace.get(&["status", "--url", &format!("http://{operator}")]);
    drop(taken);
    let mut socket = TcpStream::connect(&public).unwrap();
    let text = get(&mut socket, "/v1/status", "}").unwrap();
    assert!(text.starts_with("HTTP/1.1 404 ") && text.contains("operator's address"), "{text}");
    let text = get(&mut socket, "/metrics", "# EOF").unwrap();
    assert!(text.starts_with("HTTP/1.1 200 ") && !text.contains("belfry_available"), "{text}");
}
