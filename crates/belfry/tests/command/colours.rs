//! Colours: on a terminal, and nowhere else.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Ended, Engine, Reply, Workspace};

/// The begin of a colour.
const ESCAPE: char = '\u{1b}';

/// Runs a command line of `belfry` on a terminal of its own (`script` of util-linux).
fn on_terminal(workspace: &Workspace, arguments: &str, environment: &[(&str, &str)]) -> Ended {
    let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_belfry"));
    let mut script = Command::new("/usr/bin/script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script.current_dir(workspace.path("")).env_clear().env("TERM", "xterm").env("SHELL", "/bin/sh");
    let output = script.envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap();
    Ended::new(&output)
}

#[test]
fn a_state_has_its_colour_on_a_terminal_and_nowhere_else() {
    let engine = Engine::start(|_| {
        let attempt = json!({"at": "noon", "attempt": 1, "state": "refused", "status": 410, "detail": "gone\u{1b}[2J"});
        Reply::Json(
            200,
            json!({
                "id": "n1", "channel": "ios", "destination": "d", "to": "t", "state": "refused", "guarantee": "at_least_once",
                "priority": "urgent", "accepted_at": "noon", "due_at": "noon", "expires_at": null, "broadcast": null,
                "next_attempt_at": null, "fallback_of": null, "fallback_id": null, "attempts": [attempt],
            }),
        )
    });
    let workspace = Workspace::new();
    let id = "01993c5a-2b7a-8a41-8000-000000010000";
    let get = ["get", id, "--url", &engine.url];
    let plain = workspace.belfry(&get);
    let expect = "n1 refused: ios to t, accepted noon\nurgent, at_least_once, due noon\n\
                  noon attempt 1 refused 410 gone[2J\n";
    assert_eq!((plain.code, plain.out.as_str()), (0, expect));
    let shown = on_terminal(&workspace, &get.join(" "), &[]);
    let painted = expect.replace("refused", "\u{1b}[31mrefused\u{1b}[0m").replace('\n', "\r\n");
    assert_eq!((shown.code, shown.out), (0, painted));
    let quiet = on_terminal(&workspace, &get.join(" "), &[("NO_COLOR", "1")]);
    assert_eq!((quiet.code, quiet.out), (0, expect.replace('\n', "\r\n")));
}

#[test]
fn help_and_errors_are_coloured_on_a_terminal_and_nowhere_else() {
    let workspace = Workspace::new();
    for arguments in ["--help", "sned"] {
        let shown = on_terminal(&workspace, arguments, &[]);
        assert!(shown.out.contains(ESCAPE), "{shown:?}");
        let quiet = on_terminal(&workspace, arguments, &[("NO_COLOR", "1")]);
        assert!(!quiet.out.contains(ESCAPE), "{quiet:?}");
        let plain = workspace.belfry(&[arguments]);
        assert!(!plain.out.contains(ESCAPE) && !plain.err.concat().contains(ESCAPE), "{plain:?}");
    }
}

#[test]
fn counts_have_the_colours_of_their_states_and_none_has_none() {
    let engine = Engine::start(|_| {
        Reply::Json(
            200,
            json!({
                "accepted": 3, "delivered": 2, "refused": 0, "expired": 0, "cancelled": 0, "suppressed": 0, "in_doubt": 1,
                "dead": 0, "pending": 0, "balanced": true, "problem_count": 0, "problems": [],
            }),
        )
    });
    let shown = on_terminal(&Workspace::new(), &format!("audit --url {}", engine.url), &[]);
    let coloured: Vec<&str> = shown.out.lines().filter(|line| line.contains(ESCAPE)).collect();
    let expect = [("32", "delivered ", 2), ("33", "in doubt  ", 1)];
    let expect =
        expect.map(|(colour, name, count)| format!("\u{1b}[{colour}m{name} {count:>12}\u{1b}[0m"));
    assert_eq!(coloured, expect);
}
