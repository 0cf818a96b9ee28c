//! A Unix socket, from the first line of an engine to the end of its file.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{CHANNEL, Workspace};

const SOCKET: &str = "[server]\nlisten = \"none\"\nsocket = \"api.sock\"\nsocket_mode = \"0600\"\n";

const SEND: [&str; 7] =
    ["send", "--channel", "rehearsal", "--to", "anybody", "--content", r#"{"text":"noon"}"#];

#[test]
fn commands_call_an_engine_by_its_socket() {
    let workspace = Workspace::new(&format!("{SOCKET}{CHANNEL}"));
    let engine = workspace.start();
    assert_eq!(engine.ready["listen"], Value::Null);
    assert_eq!(engine.ready["socket"], "api.sock");
    // Where the configuration has it listen.
    workspace.get(&SEND);
    let url = format!("unix:{}", workspace.path("api.sock").display());
    workspace.get(&[&SEND[..], &["--url", &url]].concat());
    let mut command = workspace.command(&["status"]);
    let output = command.env("BELFRY_URL", url.replace("unix:", "unix://")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let listed = workspace.get(&["log", "--id", workspace.get(&SEND).trim()]);
    assert!(!listed.is_empty());
    let lines = "{\"channel\":\"rehearsal\",\"to\":\"a\",\"content\":{}}\n".repeat(100);
    workspace.write("rows.ndjson", &lines);
    workspace.get(&["import", "rows.ndjson", "--url", &url]);
    let audit = workspace.get(&["audit"]);
    assert!(audit.contains("103"), "{audit}");
    engine.end(Signal::TERM);
    assert!(!workspace.path("api.sock").exists());
    let gone = workspace.run(&SEND);
    let said = String::from_utf8(gone.stderr).unwrap();
    assert!(said.contains("cannot reach the engine at unix:api.sock"), "{said}");
}

#[test]
fn the_socket_of_a_process_that_was_killed_is_replaced_and_one_in_use_is_not() {
    let workspace = Workspace::new(&format!("{SOCKET}{CHANNEL}"));
    workspace.start().end(Signal::KILL);
    assert!(workspace.path("api.sock").exists(), "it was left behind");
    let engine = workspace.start();
    let path = workspace.path("api.sock");
    let other = Workspace::new(&format!("server.socket = {path:?}\n{CHANNEL}"));
    let refused = other.run(&["serve"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("another process listens there"), "{said}");
    workspace.get(&SEND);
    drop(engine);
}
