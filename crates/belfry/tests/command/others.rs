//! The other commands, from outside: exit codes and first lines.

use serde_json::json;

use crate::support::{Engine, Reply, Workspace};

#[test]
fn wrong_use_of_the_command_line_is_told_apart() {
    let workspace = Workspace::new();
    for arguments in [vec![], vec!["sned"], vec!["send"], vec!["status", "--url", "nowhere"]] {
        assert_eq!(workspace.belfry(&arguments).code, 2, "{arguments:?}");
    }
    for port in ["99999", "0", "x", ""] {
        let url = format!("http://127.0.0.1:{port}");
        let ended = workspace.belfry(&["status", "--url", &url]);
        assert_eq!(ended.code, 2, "{url}");
        assert!(ended.err[0].starts_with(&format!("belfry: {url:?} ")), "{:?}", ended.err);
    }
    let help = workspace.belfry(&["--help"]);
    assert_eq!(help.code, 0);
    assert!(help.out.contains("78  the configuration is wrong"));
}

#[test]
fn a_wrong_configuration_stops_every_command_that_reads_it() {
    let workspace = Workspace::new();
    workspace.write("belfry.toml", "[server]\nlisen = 1\n[log]\nlevel = \"loud\"\n");
    for command in ["check-config", "serve", "status", "audit", "log"] {
        let ended = workspace.belfry(&[command]);
        assert_eq!(ended.code, 78, "{command}");
        assert_eq!(
            ended.err,
            [
                "belfry: belfry.toml: log.level: unknown variant `loud`, expected one of `error`, `warn`, \
                 `info`, `debug`, `trace`",
                "belfry: belfry.toml: server.lisen: unknown key, did you mean `listen`?"
            ]
        );
    }
    let ended = workspace.belfry(&["check-config", "none.toml"]);
    assert_eq!(ended.code, 78);
    assert_eq!(
        ended.err,
        ["belfry: cannot read the configuration none.toml: No such file or directory (os error 2)"]
    );
}

#[test]
fn a_role_says_what_it_lacks() {
    let workspace = Workspace::new();
    let check = |arguments: &[&str], expect: &str| {
        let ended = workspace.belfry(arguments);
        assert_eq!((ended.code, ended.out.as_str()), (78, ""), "{arguments:?}");
        assert!(ended.err.len() == 1 && ended.err[0].starts_with(expect), "{:?}", ended.err);
        assert!(!ended.err[0].contains("canary"), "{:?}", ended.err);
    };
    let (store, queue) =
        ("--store=postgres://me:canary@127.0.0.1:1/x", "--queue=nats://canary@127.0.0.1:1");
    check(
        &["produce"],
        "belfry: a producer needs a store that it shares with consumers: give --store postgres://",
    );
    check(
        &["consume"],
        "belfry: a consumer needs a store that it shares with producers: give --store postgres://",
    );
    check(
        &["produce", store],
        "belfry: a producer needs a queue to its consumers: give --queue amqp://",
    );
    check(
        &["consume", store],
        "belfry: a consumer needs a queue to its producers: give --queue amqp://",
    );
    for role in ["serve", "produce", "consume"] {
        check(
            &[role, queue],
            "belfry: --queue: a broker carries work between processes, and a SQLite store belongs",
        );
        check(
            &[role, queue, "--store=./data"],
            "belfry: --queue: a broker carries work between processes",
        );
        check(
            &[role, "--store=mysql://me:canary@db"],
            "belfry: --store: there is no store for mysql:// URLs",
        );
        check(
            &[role, store, "--queue=mqtt://canary@k"],
            "belfry: --queue: there is no broker for mqtt:// URLs",
        );
        check(
            &[role, "--store=postgres://me:can/canary@db"],
            "belfry: --store: has an @ after the host",
        );
        check(&[role, "--store=http:canary"], "belfry: --store: must be a URL");
    }
}

#[test]
fn a_configuration_is_shown_without_its_secrets() {
    let workspace = Workspace::new();
    let (store, queue) = ("postgres://me:canary@db/x?sslmode=require", "amqp://me:canary@mq");
    workspace.write("b.toml", format!("store.url = {store:?}\nqueue.url = {queue:?}\n"));
    let ended = workspace.belfry(&["check-config", "b.toml"]);
    let expect =
        "the configuration is fine: 0 channels\nstore: postgres://db/x\nqueue: amqp://mq\n";
    assert_eq!((ended.code, ended.out.as_str()), (0, expect));
}

#[test]
fn the_default_configuration_is_printed_and_fine() {
    let workspace = Workspace::new();
    workspace.write("b.toml", workspace.belfry(&["check-config", "--print-default"]).out);
    let ended = workspace.belfry(&["check-config", "b.toml"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "the configuration is fine: 0 channels\n"));
}

#[test]
fn a_configuration_that_is_fine_is_told_with_its_warnings() {
    let workspace = Workspace::new();
    workspace.write("b.toml", "channels.mail = { kind = 'smtp', relay = 'smtp://127.0.0.1' }");
    let ended = workspace.belfry(&["check-config", "b.toml"]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "the configuration is fine: 1 channel\n"));
    assert_eq!(
        ended.err,
        [
            "belfry: channels.mail.from: is not set: mail whose content has no `from` of its own is refused"
        ]
    );
}

#[test]
fn a_vapid_key_is_printed_as_a_page_and_a_channel_take_it() {
    let workspace = Workspace::new();
    let pair = workspace.belfry(&["vapid-key"]);
    assert_eq!((pair.code, pair.err), (0, vec![]));
    let public = pair.out.lines().nth(2).unwrap().trim_start_matches("# ");
    assert_eq!((public.len(), public.starts_with('B')), (87, true), "{public}");
    let table = "[channels.browsers]\nkind = \"webpush\"\nsubject = \"mailto:ops@example.com\"\n";
    workspace.write("belfry.toml", format!("{table}{}", pair.out));
    let ended = workspace.belfry(&["check-config"]);
    assert_eq!((ended.code, ended.err), (0, vec![]));
    assert_ne!(workspace.belfry(&["vapid-key"]).out, pair.out);
}

#[test]
fn one_notification_is_sent_and_its_identifier_printed() {
    let engine = Engine::start(|_| Reply::Json(201, json!({"id": "the-id", "replayed": false})));
    let workspace = Workspace::new();
    let send = ["send", "--channel", "ios", "--to", "t", "--content", "{\"aps\":{}}"];
    let terms = ["--priority", "urgent", "--send-at", "2030-01-01T00:00:00Z", "--url", &engine.url];
    let ended = workspace.belfry(&[send.as_slice(), &terms].concat());
    assert_eq!((ended.code, ended.out.as_str()), (0, "the-id\n"));
    assert_eq!(
        engine.requests()[0].body,
        json!({
            "channel": "ios", "to": "t", "content": {"aps": {}}, "priority": "urgent",
            "send_at": "2030-01-01T00:00:00.000Z",
        })
    );
}

#[test]
fn a_preview_prints_what_would_be_sent_and_fails_where_the_channel_would_not_have_it() {
    let workspace = Workspace::new();
    let send = |answer: serde_json::Value| {
        let engine = Engine::start(move |_| Reply::Json(200, answer.clone()));
        let arguments = ["send", "--channel", "ios", "--to", "t", "--template", "welcome"];
        let preview = ["--variables", "{\"n\":1}", "--preview", "--url", &engine.url];
        let ended = workspace.belfry(&[arguments.as_slice(), &preview].concat());
        let request = engine.requests().remove(0);
        assert_eq!(request.target, "POST /v1/preview");
        let expect =
            json!({"channel": "ios", "to": "t", "template": "welcome", "variables": {"n": 1}});
        assert_eq!(request.body, expect);
        ended
    };
    let good = json!({"content": {"aps": 1}, "options": null, "bytes": 9, "accepted": true});
    let ended = send(good);
    assert_eq!((ended.code, ended.out.as_str()), (0, "{\"aps\":1}\n"));
    assert_eq!(ended.err, ["belfry: 9 bytes, which the channel accepts"]);
    let error = json!({"pointer": "/content", "message": "must have at most 4096 bytes"});
    let bad =
        json!({"content": 1, "options": {"a": 2}, "bytes": 9, "accepted": false, "error": error});
    let ended = send(bad);
    assert_eq!((ended.code, ended.out.as_str()), (65, "1\noptions: {\"a\":2}\n"));
    assert_eq!(ended.err, ["belfry: content: must have at most 4096 bytes"]);
}

#[test]
fn what_the_engine_complains_of_is_told_field_by_field() {
    let errors = json!([
        {"pointer": "/to", "message": "must be a device token"},
        {"pointer": "/content/aps", "message": "must be an object"},
    ]);
    let refusal = json!({"title": "Bad", "status": 422, "detail": "2 fields", "errors": errors});
    let engine = Engine::start(move |_| Reply::Json(422, refusal.clone()));
    let send = ["send", "--channel", "ios", "--to", "t", "--content", "{}", "--url", &engine.url];
    let ended = Workspace::new().belfry(&send);
    assert_eq!(ended.code, 65);
    assert_eq!(
        ended.err,
        [
            "belfry: field `to`: must be a device token",
            "belfry: field `content.aps`: must be an object"
        ]
    );
}

#[test]
fn a_wrong_recipient_of_a_file_is_told_by_its_line() {
    let engine = Engine::start(|_request| {
        let error = json!({"pointer": "", "line": 4, "message": "is not a device token"});
        Reply::Json(422, json!({"title": "Unprocessable Content", "errors": [error]}))
    });
    let workspace = Workspace::new();
    workspace.write("tokens.txt", "a\n\nb\n");
    let send = ["send", "--channel", "ios", "--to-file", "tokens.txt", "--content", "{}"];
    let ended = workspace.belfry(&[send.as_slice(), &["--url", &engine.url]].concat());
    assert_eq!(ended.code, 65, "{ended:?}");
    assert_eq!(ended.err, ["belfry: line 3: is not a device token"]);
}

#[test]
fn a_key_that_is_not_known_is_no_bad_input() {
    let refusal = json!({"title": "Unauthorized", "status": 401, "detail": "unknown API key"});
    let engine = Engine::start(move |_| Reply::Json(401, refusal.clone()));
    let ended = Workspace::new().belfry(&["status", "--url", &engine.url]);
    assert_eq!((ended.code, ended.err), (1, vec!["belfry: unknown API key".to_owned()]));
}

#[test]
fn cancelling_names_what_is_meant() {
    let answer = json!({"cancelled": 5, "under_way": 1, "ended": 2});
    let engine = Engine::start(move |_| Reply::Json(200, answer.clone()));
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["cancel", "bc_7", "--url", &engine.url]);
    assert_eq!(ended.out, "5 cancelled; too late for 1 under way and 2 that ended\n");
    assert_eq!(engine.requests()[0].target, "POST /v1/broadcasts/bc_7/cancel");
    let usage = |arguments: &[&str]| workspace.belfry(&[&["cancel"], arguments].concat()).code;
    let id = "01993c5a-2b7a-8a41-8000-000000010000";
    assert_eq!(usage(&[]), 2, "everything must be said");
    assert_eq!(usage(&["bc_7", "--all"]), 2);
    assert_eq!(usage(&["--channel", "ios", "--priority", "bulk"]), 2);
    assert_eq!(usage(&[id, "--dry-run"]), 2);
    let ended = workspace.belfry(&["cancel", "seven", "--url", &engine.url]);
    let message = "belfry: \"seven\" is neither a notification (a UUID) nor a broadcast (bc_1)";
    assert_eq!((ended.code, ended.err), (65, vec![message.to_owned()]));
}

#[test]
fn cancelling_a_scope_goes_on_to_the_end() {
    let engine = Engine::start(|request| {
        let is_last = request.target.contains("after=");
        let next = if is_last { json!(null) } else { json!("lane.1.2.3.ios") };
        let (under_way, scope) = (if is_last { 0 } else { 3 }, "as named");
        let at = if is_last { "2026-11-23T08:00:01.000Z" } else { "2026-11-23T08:00:00.000Z" };
        let answer = json!({
            "tenant": "t", "scope": scope, "at": at, "cancelled": 5, "under_way": under_way, "next": next
        });
        Reply::Json(200, answer)
    });
    let workspace = Workspace::new();
    let belfry = |arguments: &[&str]| {
        workspace.belfry(&[&["cancel", "--url", &engine.url], arguments].concat())
    };
    let lane = ["--channel", "ios", "--destination", "h", "--priority", "bulk", "--tenant", "t"];
    let ended = belfry(&lane);
    let advice = "what is under way may come back for another attempt: pause it, and cancel again when nothing is";
    let again =
        "to send it again: belfry requeue --state cancelled --all --since 2026-11-23T08:00:00.000Z";
    let expect = format!("10 cancelled; too late for 3 under way\n{again}\n{advice}\n");
    assert_eq!(ended.out, expect);
    let counted = belfry(&["bc_7", "--dry-run"]);
    assert_eq!(counted.out, "10 would be cancelled; too late for 3 under way\n");
    let all: serde_json::Value = serde_json::from_str(&belfry(&["--all", "--json"]).out).unwrap();
    assert_eq!(all, json!({"at": "2026-11-23T08:00:00.000Z", "cancelled": 10, "under_way": 3}));
    let targets: Vec<String> =
        engine.requests().into_iter().map(|request| request.target).collect();
    let lane = "POST /v1/cancel?channel=ios&destination=h&priority=bulk&tenant=t";
    let broadcast = "POST /v1/cancel?broadcast=bc_7&dry_run=true";
    let all = "POST /v1/cancel?all=true";
    assert_eq!(
        targets,
        [
            lane.to_owned(),
            format!("{lane}&after=lane.1.2.3.ios"),
            broadcast.to_owned(),
            format!("{broadcast}&after=lane.1.2.3.ios"),
            all.to_owned(),
            format!("{all}&after=lane.1.2.3.ios"),
        ]
    );
}

#[test]
fn channels_are_listed_with_the_ends_of_their_credentials() {
    let engine = Engine::start(|_| {
        let hooks = json!({"name": "hooks", "kind": "webhook", "messages_per_minute": null, "paused_since": null,
            "credentials": [{"what": "client certificate for a.example", "expires_at": "noon"}]});
        let ios =
            json!({"name": "ios", "kind": "apns", "messages_per_minute": 60, "paused_since": null});
        Reply::Json(200, json!({"items": [hooks, ios]}))
    });
    let ended = Workspace::new().belfry(&["channels", "--url", &engine.url]);
    let hooks = "hooks: webhook, client certificate for a.example until noon";
    assert_eq!(ended.out, format!("{hooks}\nios: apns, 60 a minute at most\n"));
}

#[test]
fn a_command_about_one_thing_names_its_tenant() {
    let engine = Engine::start(|_| Reply::Json(404, json!({"detail": "not here"})));
    let workspace = Workspace::new();
    let id = "01993c5a-2b7a-8a41-8000-000000010000";
    let send_at = ["--send-at", "2027-01-01T00:00:00Z"];
    for arguments in [
        &["get", id][..],
        &["get", "bc_7"],
        &["cancel", id],
        &["cancel", "bc_7"],
        &["requeue", id],
        &["resolve", id, "--as", "dead"],
        &[&["reschedule", id], &send_at[..]].concat(),
        &["channels"],
    ] {
        let named = ["--tenant", "shop", "--url", &engine.url];
        let ended = workspace.belfry(&[arguments, &named].concat());
        assert_eq!(ended.err, ["belfry: not here"], "{arguments:?}");
    }
    let targets: Vec<String> = engine.requests().into_iter().map(|it| it.target).collect();
    assert_eq!(
        targets,
        [
            format!("GET /v1/notifications/{id}?tenant=shop"),
            "GET /v1/broadcasts/bc_7?tenant=shop".to_owned(),
            format!("POST /v1/notifications/{id}/cancel?tenant=shop"),
            "POST /v1/broadcasts/bc_7/cancel?tenant=shop".to_owned(),
            format!("POST /v1/notifications/{id}/requeue?tenant=shop"),
            format!("POST /v1/notifications/{id}/resolve?as=dead&tenant=shop"),
            format!("POST /v1/notifications/{id}/reschedule?tenant=shop"),
            "GET /v1/channels?tenant=shop".to_owned(),
        ]
    );
}

#[test]
fn the_end_of_a_broadcast_is_told_while_it_is_sent_and_before() {
    let broadcast = json!({"id": "bc_7", "channel": "ios", "accepted_at": "noon", "expires_at": null, "paused_since": null,
        "accepted": 5, "delivered": 2, "refused": 0, "expired": 0, "cancelled": 0, "suppressed": 0, "in_doubt": 0, "dead": 0,
        "pending": 3, "estimate": {"state": "running", "since": null, "earliest": "one", "latest": "two",
            "least_seconds": 3_600.0, "most_seconds": 7_200.0}});
    let prospect = json!({"channel": "ios", "destination": "h", "recipients": 9, "ahead": 3, "ahead_at_least": false,
        "measured_at": "noon", "least_seconds": 4.0, "most_seconds": 8.0, "unknown": null});
    let engine = Engine::start(move |request| {
        let is_prospect = request.target.starts_with("GET /v1/estimate");
        Reply::Json(200, if is_prospect { prospect.clone() } else { broadcast.clone() })
    });
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["status", "bc_7", "--url", &engine.url]);
    assert!(ended.out.starts_with("broadcast bc_7 on ios, accepted noon\naccepted "), "{ended:?}");
    let end = "\ncomplete   in 1.0 to 2.0 h, between one and two (four times out of five)\n";
    assert!(ended.out.ends_with(end), "{ended:?}");
    let estimate = ["estimate", "--channel", "ios", "--recipients", "9", "--destination", "a/b"];
    let ended = workspace.belfry(&[estimate.as_slice(), &["--url", &engine.url]].concat());
    let told = "4.0 to 8.0 s (four times out of five): 3 of the channel may come before them; as fast as at noon\n";
    assert_eq!(ended.out, told, "{ended:?}");
    let targets: Vec<String> = engine.requests().into_iter().map(|it| it.target).collect();
    let expect = "GET /v1/estimate?channel=ios&recipients=9&destination=a%2Fb";
    assert_eq!(targets, ["GET /v1/broadcasts/bc_7", expect]);
}

#[test]
fn an_engine_that_is_not_there_is_told() {
    let workspace = Workspace::new();
    workspace.write("belfry.toml", "server.listen = \"127.0.0.1:1\"");
    let ended = workspace.belfry(&["status"]);
    let message = "belfry: cannot reach the engine at http://127.0.0.1:1: Connection refused (os error 111); \
                   is `belfry serve` running there?";
    assert_eq!((ended.code, ended.err), (69, vec![message.to_owned()]));
}

#[test]
fn a_store_is_read_without_an_engine() {
    let workspace = Workspace::new();
    for command in ["audit", "log"] {
        let ended = workspace.belfry(&[command]);
        assert_eq!(ended.code, 1, "{command}");
        assert!(ended.err[0].starts_with("belfry: cannot read the store in ./data: "), "{ended:?}");
    }
    workspace.make_store();
    let ended = workspace.belfry(&["audit", "--json"]);
    let account = "{\"accepted\":0,\"delivered\":0,\"refused\":0,\"expired\":0,\"cancelled\":0,\"suppressed\":0,\
                   \"in_doubt\":0,\"dead\":0,\"pending\":0,\"balanced\":true,\"problems\":[],\"tenants\":[]}\n";
    assert_eq!((ended.code, ended.out.as_str()), (0, account));
    let ended = workspace.belfry(&["audit"]);
    assert!(ended.out.ends_with("the account balances\n"), "{}", ended.out);
    let ended = workspace.belfry(&["status", "--store", "data"]);
    assert!(ended.out.contains("as the store has it\naccepted"), "{}", ended.out);
    let ended = workspace.belfry(&["log"]);
    assert_eq!(
        (ended.out.as_str(), ended.err),
        ("", vec!["belfry: go on with --position 0".to_owned()])
    );
    let unknown = "018f3c5a-0000-8000-8000-000000000000";
    let ended = workspace.belfry(&["log", "--id", unknown]);
    let message = format!(
        "belfry: this store has no notification {unknown}: it was never accepted, or retention has removed it"
    );
    assert_eq!((ended.code, ended.err), (65, vec![message]));
}
