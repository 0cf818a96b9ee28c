//! API keys, from outside: how one is made, what a configuration takes, and how a command has its own.

use serde_json::json;

use crate::support::{Engine, Reply, Workspace};

#[test]
fn a_key_is_printed_with_the_table_that_admits_it() {
    let workspace = Workspace::new();
    let key = workspace.belfry(&["api-key", "billing", "--tenant", "shop"]);
    assert_eq!(key.code, 0);
    assert!(key.out.contains("# BELFRY_API_KEY=belfry_"));
    workspace.write("belfry.toml", format!("server.listen = \"0.0.0.0:1\"\n{}", key.out));
    let ended = workspace.belfry(&["check-config"]);
    assert_eq!((ended.code, ended.err), (0, vec![]));
    assert_ne!(workspace.belfry(&["api-key", "billing", "--tenant", "shop"]).out, key.out);
}

#[test]
fn a_key_with_few_grants_is_printed_with_them() {
    let workspace = Workspace::new();
    let name = ["api-key", "news", "--tenant", "shop", "--scopes", "send,read"];
    let bounds = ["--channels", "ios,web", "--priorities", "normal"];
    let senders = ["--from", "@shop.example", "--endpoints", "https://shop.example/hooks/"];
    let time = ["--not-after", "2027-12-31T23:59:59Z", "--requests-per-minute", "600"];
    let key = workspace.belfry(&[&name[..], &bounds, &senders, &time].concat());
    let expect = "scopes = [\"send\", \"read\"]\nchannels = [\"ios\", \"web\"]\npriorities = [\"normal\"]\n\
                  from = [\"@shop.example\"]\nendpoints = [\"https://shop.example/hooks\"]\n\
                  not_after = \"2027-12-31T23:59:59.000Z\"\nrequests_per_minute = 600\n";
    assert!(key.out.ends_with(expect), "{}", key.out);
    let channels = "[channels.ios]\nkind = \"dry-run\"\n[channels.web]\nkind = \"dry-run\"\n";
    workspace.write("belfry.toml", format!("{channels}{}", key.out));
    let ended = workspace.belfry(&["check-config"]);
    assert_eq!((ended.code, ended.err), (0, vec![]));
    let wrong = workspace.belfry(&["api-key", "news", "--tenant", "shop", "--scopes", "sned"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err[0].contains("there are send, read, cancel"), "{:?}", wrong.err);
}

#[test]
fn a_key_that_stands_there_twice_is_told() {
    let workspace = Workspace::new();
    let key = workspace.belfry(&["api-key", "news", "--tenant", "shop"]).out;
    let again = key.replace("news", "other");
    workspace.write("belfry.toml", format!("{key}{again}"));
    let ended = workspace.belfry(&["check-config"]);
    assert_eq!((ended.code, ended.err.len()), (78, 1), "{:?}", ended.err);
    assert!(
        ended.err[0].contains("server.keys[1].sha256: another key is the same"),
        "{:?}",
        ended.err
    );
}

#[test]
fn grants_that_cannot_be_meant_are_told() {
    let workspace = Workspace::new();
    let key = workspace.belfry(&["api-key", "news", "--tenant", "shop"]).out;
    let check = |grant: &str, expect: &str| {
        workspace.write("belfry.toml", format!("{key}{grant}\n"));
        let ended = workspace.belfry(&["check-config"]);
        assert_eq!((ended.code, ended.err.len()), (78, 1), "{:?}", ended.err);
        assert!(ended.err[0].contains(expect), "{:?}", ended.err);
    };
    check("scopes = [\"sned\"]", "\"sned\" is no scope: there are send, read, cancel");
    check("scopes = []", "server.keys[0].scopes: a key without a scope is good for nothing");
    check("channels = []", "server.keys[0].channels: names none: leave it out for all of them");
    check("priorities = []", "server.keys[0].priorities: names none");
    check("priorities = [\"high\"]", "is not `urgent`, `normal` or `bulk`");
    check("from = [\"shop.example\"]", "is not an e-mail address");
    check("endpoints = [\"https://a.example/?x\"]", "must not have a query");
    check("endpoints = []", "server.keys[0].endpoints: names none");
    check("not_after = \"soon\"", "server.keys[0].not_after");
    check("requests_per_minute = 0", "server.keys[0].requests_per_minute");
    check("operator = true", "server.keys[0].operator");
    // A channel may be taken out for a while, and a key is still good for the others.
    workspace.write("belfry.toml", format!("{key}channels = [\"ios\"]\n"));
    let ended = workspace.belfry(&["check-config"]);
    let expect = "belfry: server.keys[0].channels: there is no channel \"ios\"".to_owned();
    assert_eq!((ended.code, ended.err), (0, vec![expect]));
}

#[test]
fn a_command_has_its_key_from_a_file_and_its_engine_from_the_environment() {
    let engine = Engine::start(|_request| Reply::Json(403, json!({"detail": "not that"})));
    let workspace = Workspace::new();
    workspace.write("key", "belfry_secret\n");
    let mut command = workspace.command(&["status", "--api-key-file", "key"]);
    assert_eq!(command.env("BELFRY_URL", &engine.url).output().unwrap().status.code(), Some(1));
    let mut command = workspace.command(&["status", "--url", &engine.url]);
    assert_eq!(command.env("BELFRY_API_KEY_FILE", "key").output().unwrap().status.code(), Some(1));
    let given: Vec<_> =
        engine.requests().into_iter().map(|request| request.authorization.unwrap()).collect();
    assert_eq!(given, ["Bearer belfry_secret"; 2]);
    let status = ["status", "--url", &engine.url, "--api-key-file"];
    let absent = workspace.belfry(&[&status[..], &["nowhere"]].concat());
    assert_eq!(absent.code, 2);
    assert!(absent.err[0].contains("cannot read the API key from nowhere"), "{:?}", absent.err);
    workspace.write("empty", "\n");
    let empty = workspace.belfry(&[&status[..], &["empty"]].concat());
    assert_eq!(empty.code, 2);
    assert!(empty.err[0].contains("empty has no API key"), "{:?}", empty.err);
    let both = workspace.belfry(&[&status[..], &["key", "--api-key", "k"]].concat());
    assert_eq!(both.code, 2);
    assert!(both.err[0].contains("leave one of them out"), "{:?}", both.err);
}

/// An authority that this machine does not know is named.
#[test]
fn an_engine_behind_a_certificate_of_ones_own_is_called() {
    let directory = tempfile::tempdir().unwrap();
    let simulator = bench::Setup::new(env!("CARGO_BIN_EXE_belfry"), directory.path(), &[]);
    let trial = bench::Trial::start(simulator).unwrap();
    let ready = &trial.simulator().ready;
    let url = format!("https://{}", ready.webhook);
    let workspace = Workspace::new();
    let unknown = workspace.belfry(&["status", "--url", &url]);
    assert!(unknown.err[0].contains("certificate"), "{:?}", unknown.err);
    let ca = ready.ca.to_str().unwrap();
    let known = workspace.belfry(&["status", "--url", &url, "--ca-file", ca]);
    // It is no engine, and it has answered.
    assert!(!known.err[0].contains("cannot reach"), "{:?}", known.err);
}
