//! Settings that change while an engine runs, and settings that need a restart; neither costs a notification.

use std::path::Path;

use bench::{Setup, SimulatorProcess, Trial, Workload, WorkloadGuarantee};
use provider_sim::journal::{JournalChannel, JournalStatus, Reader};
use rcgen::KeyPair;
use rustix::process::Signal;

use crate::support::{BELFRY, Engine, Workspace, eventually, make_api_key};

const SECRET: &str = "whsec_YSBjYW5hcnkgZm9yIHRoZSB0ZXN0cyEh";
const OTHER_SECRET: &str = "whsec_YW5vdGhlciBvZiB0aGVzZSBjYW5hcmll";
const TOKENS: u64 = 4_000;

/// A configuration of rehearsals.
fn rehearsals(server: &str, channels: &[&str]) -> String {
    let channel = |name: &&str| format!("[channels.{name}]\nkind = \"dry-run\"\n");
    let channels: String = channels.iter().map(channel).collect();
    format!("[server]\nlisten = \"127.0.0.1:0\"\n{server}[delivery]\nsenders = 1\n{channels}")
}

/// The status that the engine answers to a notification over `channel`.
fn send(
    workspace: &mut Workspace,
    engine: &Engine,
    key: &str,
    channel: &str,
    what: &str,
) -> String {
    let body = format!(r#"{{"channel":"{channel}","to":"somebody",{what}}}"#);
    let answer = workspace.call(engine, key, "POST /v1/notifications", &body);
    answer.split(' ').nth(1).unwrap().to_owned()
}

const CONTENT: &str = r#""content":{}"#;

#[test]
fn reloads_under_load_lose_and_double_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let trial = Trial::start(Setup {
        binary: BELFRY.into(),
        directory: directory.path().to_owned(),
        engine_settings: Vec::new(),
        simulator_flags: ["--latency", "40ms", "--latency-jitter", "40ms"]
            .map(str::to_owned)
            .to_vec(),
    })
    .unwrap();
    let config = trial.engine().client().config.clone();
    let text = std::fs::read_to_string(&config).unwrap();
    let log = directory.path().join("belfry.log");
    let reloads =
        || std::fs::read_to_string(&log).unwrap().matches("reloaded: what is sent").count();
    // Few at a time, so that there is something to reload under.
    let reload = |round: usize| {
        let settings =
            format!("concurrency = {}\nthrottle_delay = \"{}s\"\n", 8 + round, 1 + round);
        let topic = "topic = \"org.belfry.demo\"\n";
        std::fs::write(&config, text.replace(topic, &format!("{topic}{settings}"))).unwrap();
        trial.engine().signal(Signal::HUP).unwrap();
        eventually("it is reloaded", || reloads() == round + 1);
    };
    reload(0);
    let (least, most) = (0..TOKENS / 2, TOKENS / 2..TOKENS);
    trial.broadcast(least, r#"{"aps":{}}"#, WorkloadGuarantee::AtLeastOnce).unwrap();
    trial.broadcast(most, r#"{"aps":{}}"#, WorkloadGuarantee::AtMostOnce).unwrap();
    for round in 1..6 {
        reload(round);
        assert!(trial.pending().unwrap() > 0, "there is nothing to reload under");
    }
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches("changed=\"channels.ios\"").count(), 6, "{said}");
    std::fs::write(&config, &text).unwrap();
    trial.engine().signal(Signal::HUP).unwrap();
    trial.drain(std::time::Duration::from_mins(2), || Ok(())).unwrap();
    let finished = trial.finish(&Workload { tokens: TOKENS, webhooks: Vec::new() }).unwrap();
    let (audit, tally) = (finished.audit, finished.books.tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.accepted, audit.delivered, audit.in_doubt), (TOKENS, TOKENS, 0), "{audit:?}");
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (TOKENS, 0, 0), "{tally:?}");
    assert_eq!(tally.processed_max, 1);
}

#[test]
fn what_is_wrong_is_told_and_changes_nothing() {
    let mut workspace = Workspace::new();
    let config = rehearsals("", &["one"]);
    workspace.write("belfry.toml", &config);
    let engine = workspace.start();
    workspace.write("belfry.toml", &rehearsals("colour = 1\n", &["two", "Three"]));
    let said = workspace.reload(&engine);
    for expect in [
        "belfry.toml: server.colour: unknown key",
        "belfry.toml: channels.Three: \"Three\" is not a name",
    ] {
        assert!(
            said.contains(&format!("not reloaded, everything stays as it was: {expect}")),
            "{said}"
        );
    }
    assert_eq!(send(&mut workspace, &engine, "", "one", CONTENT), "201");
    assert_eq!(send(&mut workspace, &engine, "", "two", CONTENT), "422");
    workspace.write("belfry.toml", &config);
    let said = workspace.reload(&engine);
    assert!(
        said.contains(
            "reloaded: what is sent and asked from now on goes by it changed=\"nothing\""
        ),
        "{said}"
    );
}

#[test]
fn channels_come_and_go() {
    let mut workspace = Workspace::new();
    workspace.write("belfry.toml", &rehearsals("", &["stays", "goes"]));
    let engine = workspace.start();
    let delivered = |workspace: &mut Workspace, count: usize| {
        eventually("all are delivered", || {
            workspace.get(&["log", "--json"]).matches("\"delivered\"").count() == count
        });
    };
    assert_eq!(send(&mut workspace, &engine, "", "goes", CONTENT), "201");
    delivered(&mut workspace, 1);
    workspace.write("belfry.toml", &rehearsals("", &["comes", "stays"]));
    let said = workspace.reload(&engine);
    assert!(said.contains("changed=\"channels.comes (new), channels.goes (gone)\""), "{said}");
    for (channel, status) in [("comes", "201"), ("stays", "201"), ("goes", "422")] {
        assert_eq!(send(&mut workspace, &engine, "", channel, CONTENT), status, "{channel}");
    }
    delivered(&mut workspace, 3);
    workspace.write("belfry.toml", &rehearsals("", &["goes"]));
    workspace.reload(&engine);
    assert_eq!(send(&mut workspace, &engine, "", "goes", CONTENT), "201");
    delivered(&mut workspace, 4);
}

#[test]
fn api_keys_and_templates_change_and_an_open_address_never_loses_its_last_key() {
    let mut workspace = Workspace::new();
    let (old, old_table) = make_api_key(&mut workspace, "old");
    let (new, new_table) = make_api_key(&mut workspace, "new");
    let template = |text: &str| format!("[templates.t]\ncontent = {{ hello = \"{text}\" }}\n");
    let config = |table: &str, text: &str| rehearsals(table, &["one"]) + &template(text);
    workspace.write(
        "belfry.toml",
        &config(&old_table, "{{ name }}").replace("127.0.0.1:0", "0.0.0.0:0"),
    );
    let mut engine = workspace.start();
    engine.listen = engine.listen.replace("0.0.0.0", "127.0.0.1");
    let use_template = r#""template":"t","variables":{"name":"x"}"#;
    assert_eq!(send(&mut workspace, &engine, &old, "one", use_template), "201");
    assert_eq!(send(&mut workspace, &engine, &new, "one", use_template), "401");
    workspace.write("belfry.toml", &config(&new_table, "{{ first }}"));
    let said = workspace.reload(&engine);
    assert!(said.contains("changed=\"server.keys, templates\""), "{said}");
    assert!(said.contains("server.listen differs too, and needs a restart"), "{said}");
    assert_eq!(send(&mut workspace, &engine, &old, "one", use_template), "401");
    assert_eq!(
        send(&mut workspace, &engine, &new, "one", use_template),
        "422",
        "no variable `first`"
    );
    // Right for an engine that starts with it, and not for one that listens elsewhere until then.
    workspace.write("belfry.toml", &config("", "{{ name }}"));
    let said = workspace.reload(&engine);
    assert!(said.contains("not reloaded"), "{said}");
    assert!(
        said.contains(
            "server.keys: the address stays until a restart: refusing to listen on 0.0.0.0"
        ),
        "{said}"
    );
    assert_eq!(send(&mut workspace, &engine, "", "one", use_template), "401");
}

#[test]
fn what_needs_a_restart_is_named() {
    let workspace = Workspace::new();
    let config = rehearsals("", &["one"]);
    workspace.write("belfry.toml", &config);
    let engine = workspace.start();
    let other = config.replace("127.0.0.1:0", "127.0.0.1:1").replace("senders = 1", "senders = 2");
    let other = format!(
        "{other}retry = {{ attempts = 3 }}\n[store]\nsynchronous = \"normal\"\n[log]\nlevel = \"warn\"\n"
    );
    workspace.write("belfry.toml", &other);
    let said = workspace.reload(&engine);
    assert!(said.contains("changed=\"channels.one\""), "{said}");
    assert!(
        said.contains("server.listen, store, delivery, log differs too, and needs a restart"),
        "{said}"
    );
}

/// How often the simulator answered so.
fn answered(simulator: &SimulatorProcess, channel: JournalChannel, status: u16) -> usize {
    let mut reader = Reader::open(&simulator.ready.journal).unwrap();
    let mut count = 0;
    while let Some(record) = reader.next_record().unwrap() {
        count += usize::from(
            record.channel == channel && record.status == JournalStatus::Answered(status),
        );
    }
    count
}

#[test]
fn a_new_key_secret_or_account_is_what_the_provider_sees() {
    let mut workspace = Workspace::new();
    let apple = KeyPair::generate().unwrap();
    workspace.write("apple.pub", &apple.public_key_pem());
    let flags = ["--fcm", "127.0.0.1:0", "--webhook-secret", SECRET, "--apns-public-key"];
    let mut flags: Vec<String> = flags.map(str::to_owned).to_vec();
    flags.push(workspace.path("apple.pub").to_str().unwrap().to_owned());
    let simulator =
        SimulatorProcess::start(Path::new(BELFRY), &workspace.path("provider"), &flags).unwrap();
    let ready = simulator.ready.clone();
    let account = std::fs::read_to_string(&ready.fcm_service_account).unwrap();
    let mut wrong: serde_json::Value = serde_json::from_str(&account).unwrap();
    let rsa = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    wrong["private_key"] = rsa.serialize_pem().into();
    workspace.write("account.json", &wrong.to_string());
    workspace.write("apple.p8", &KeyPair::generate().unwrap().serialize_pem());
    let (ca, fcm) = (ready.ca.display(), ready.fcm.as_ref().unwrap());
    let (apns, webhook) = (&ready.apns, &ready.webhook);
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[delivery]\nsenders = 1\n\
         [channels.ios]\nkind = \"apns\"\nkey_file = \"apple.p8\"\nkey_id = \"ABCDE12345\"\nteam_id = \"TEAM012345\"\n\
         topic = \"a.b\"\nendpoint = \"https://{apns}\"\nca_file = \"{ca}\"\n\
         [channels.android]\nkind = \"fcm\"\nservice_account_file = \"account.json\"\nendpoint = \"https://{fcm}\"\n\
         token_uri = \"https://{fcm}/token\"\nca_file = \"{ca}\"\n\
         [channels.hooks]\nkind = \"webhook\"\nsecrets = [\"{OTHER_SECRET}\"]\nallow_networks = [\"127.0.0.0/8\"]\n\
         ca_file = \"{ca}\"\n"
    );
    workspace.write("belfry.toml", &config);
    let engine = workspace.start();
    let send_all = |workspace: &mut Workspace| {
        let hook = format!("https://{webhook}/x");
        let rows = [
            ("ios", "ab".repeat(32), r#"{"aps":{}}"#),
            ("android", "device:1".to_owned(), "{}"),
            ("hooks", hook, "{}"),
        ];
        for (channel, to, content) in rows {
            let body = format!(r#"{{"channel":"{channel}","to":"{to}","content":{content}}}"#);
            let answer = workspace.call(&engine, "", "POST /v1/notifications", &body);
            assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        }
    };
    let seen = |expect: [(JournalChannel, u16); 3]| {
        eventually("the provider sees it", || {
            expect.iter().all(|&(channel, status)| answered(&simulator, channel, status) > 0)
        });
    };
    send_all(&mut workspace);
    seen([(JournalChannel::Apns, 403), (JournalChannel::Fcm, 400), (JournalChannel::Webhook, 401)]);
    let accepted =
        [(JournalChannel::Apns, 200), (JournalChannel::Fcm, 200), (JournalChannel::Webhook, 200)];
    assert!(accepted.iter().all(|&(channel, status)| answered(&simulator, channel, status) == 0));
    workspace.write("apple.p8", &apple.serialize_pem());
    workspace.write("account.json", &account);
    workspace.write("belfry.toml", &config.replace(OTHER_SECRET, SECRET));
    let said = workspace.reload(&engine);
    assert!(said.contains("changed=\"channels.android, channels.hooks, channels.ios\""), "{said}");
    send_all(&mut workspace);
    seen(accepted);
}
