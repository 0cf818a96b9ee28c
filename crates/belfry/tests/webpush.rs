//! Web Push and webhooks with both kinds of keys, as a user runs them: the binary, providers over TLS, what they say.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bench::{Setup, Trial};
use provider_sim::is_dead;
use provider_sim::journal::{JournalChannel, JournalStatus, Reader};

const BELFRY: &str = env!("CARGO_BIN_EXE_belfry");
const PATIENCE: Duration = Duration::from_mins(2);
const SUBSCRIPTIONS: usize = 30;
const DEAD: f64 = 0.3;
const SECRET: &str = "whsec_YmVsZnJ5IGRlbW86IG5vdCBhIHJlYWwgc2VjcmV0ISE=";

/// The pair that `belfry vapid-key` prints: the public key, and the private one.
fn vapid_key() -> (String, String) {
    let output = Command::new(BELFRY).arg("vapid-key").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let public = printed.lines().nth(2).unwrap().trim_start_matches("# ").to_owned();
    let key = printed.lines().last().unwrap();
    (public, key.trim_start_matches("key = ").trim_matches('"').to_owned())
}

/// A new Ed25519 pair for webhooks: the private key (`whsk_`), and the public one (`whpk_`).
fn signing_pair() -> (String, String) {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed).unwrap();
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
    let encode = |key: &[u8]| BASE64_STANDARD.encode(key);
    (format!("whsk_{}", encode(&seed)), format!("whpk_{}", encode(pair.public_key().as_ref())))
}

fn start(directory: &Path, settings: &[(&str, String)], flags: &[&str]) -> Trial {
    let owned =
        |(name, value): &(&str, String)| (format!("BELFRY__CHANNELS__{name}"), value.clone());
    Trial::start(Setup {
        binary: BELFRY.into(),
        directory: directory.to_owned(),
        engine_settings: settings.iter().map(owned).collect(),
        simulator_flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
    })
    .unwrap()
}

/// Hands one notification per line to the engine, and waits until all have an outcome.
fn send(trial: &Trial, rows: impl Iterator<Item = serde_json::Value>) {
    let mut command = trial.engine().client().command("import");
    command.args(["-", "--format", "ndjson"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for row in rows {
        writeln!(input, "{row}").unwrap();
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    trial.drain(PATIENCE, || Ok(())).unwrap();
}

/// How often each status was answered on `channel`.
fn answers(trial: &Trial, channel: JournalChannel) -> BTreeMap<JournalStatus, usize> {
    let mut reader = Reader::open(&trial.simulator().ready.journal).unwrap();
    let mut answers = BTreeMap::new();
    while let Some(record) = reader.next_record().unwrap() {
        if record.channel == channel {
            *answers.entry(record.status).or_default() += 1;
        }
    }
    answers
}

#[test]
fn browsers_get_what_only_they_can_read_and_the_gone_are_not_asked_twice() {
    let directory = tempfile::tempdir().unwrap();
    let (public, private) = vapid_key();
    let settings = [
        ("BROWSERS__KIND", "webpush".to_owned()),
        ("BROWSERS__KEY", private),
        ("BROWSERS__SUBJECT", "mailto:ops@example.com".to_owned()),
        ("BROWSERS__CA_FILE", directory.path().join("tls/ca.pem").display().to_string()),
        ("BROWSERS__ALLOW_NETWORKS", r#"["127.0.0.0/8"]"#.to_owned()),
    ];
    let (count, dead) = (SUBSCRIPTIONS.to_string(), DEAD.to_string());
    let service = ["--web-push", "127.0.0.1:0", "--web-push-key", &public];
    let faults =
        ["--web-push-subscriptions", &count, "--dead-tokens", &dead, "--throttle-rate", "0.1"];
    let trial = start(directory.path(), &settings, &[service.as_slice(), &faults].concat());
    let subscriptions = trial.simulator().ready.subscriptions.clone();
    assert_eq!(subscriptions.len(), SUBSCRIPTIONS);
    let gone = (0..SUBSCRIPTIONS).filter(|i| is_dead(&format!("/push/{i}"), DEAD)).count();
    assert!(gone > 0 && gone < SUBSCRIPTIONS);

    let row = |to: String| {
        let options = serde_json::json!({ "ttl": 60, "urgency": "high", "topic": "news" });
        serde_json::json!({ "channel": "browsers", "to": to, "content": { "title": "Grüße" }, "options": options })
    };
    send(&trial, subscriptions.iter().map(|one| row(one.to_string())));
    let in_short = |one: &serde_json::Value| {
        let part = |pointer| one.pointer(pointer).and_then(serde_json::Value::as_str).unwrap();
        let (p256dh, auth) = (part("/keys/p256dh"), part("/keys/auth"));
        format!("{}#p256dh={p256dh}&auth={auth}", part("/endpoint"))
    };
    send(&trial, subscriptions.iter().map(|one| row(in_short(one))));

    let answers = answers(&trial, JournalChannel::WebPush);
    let reached = SUBSCRIPTIONS - gone;
    assert_eq!(answers.get(&JournalStatus::Answered(201)), Some(&(2 * reached)), "{answers:?}");
    assert_eq!(answers.get(&JournalStatus::Answered(410)), Some(&gone), "{answers:?}");
    let others =
        answers.keys().filter(|status| !matches!(status, JournalStatus::Answered(201 | 410 | 429)));
    assert_eq!(others.count(), 0, "{answers:?}");
    let audit = trial.audit().unwrap();
    assert!(audit.balanced, "{audit:?}");
    let found = (audit.delivered, audit.refused, audit.suppressed);
    assert_eq!(found, (2 * reached as u64, gone as u64, gone as u64), "{audit:?}");
}

#[test]
fn a_webhook_is_signed_with_a_secret_and_a_key_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let (key, public) = signing_pair();
    let settings = [("HOOKS__SECRETS", format!("[{key:?}, {SECRET:?}]"))];
    let flags = ["--webhook-secret", SECRET, "--webhook-public-key", &public];
    let trial = start(directory.path(), &settings, &flags);
    let address = &trial.simulator().ready.webhook;
    let to = |number| format!("https://{address}/hook/{number}");
    let row = |number: u8| serde_json::json!({ "channel": "hooks", "to": to(number), "content": { "n": number } });
    send(&trial, (0..20).map(row));
    assert_eq!(
        answers(&trial, JournalChannel::Webhook),
        BTreeMap::from([(JournalStatus::Answered(200), 20)])
    );
    assert_eq!(trial.audit().unwrap().delivered, 20);
}
