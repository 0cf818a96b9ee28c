//! E-mail as its user sends it: the binary, a mail server with TLS, counted at the server.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bench::{AuditOutput, Setup, Trial, WorkloadGuarantee};
use provider_sim::is_dead;
use provider_sim::journal::{JournalChannel, Reader};

const PATIENCE: Duration = Duration::from_mins(2);
const CONTENT: &str = r#"{"subject":"Hello","text":"Hello\n","html":"<p>Hello</p>"}"#;

fn start(directory: &Path, flags: &[&str]) -> Trial {
    Trial::start(Setup {
        binary: env!("CARGO_BIN_EXE_belfry").into(),
        directory: directory.to_owned(),
        engine_settings: Vec::new(),
        simulator_flags: ["--smtp", "127.0.0.1:0"]
            .iter()
            .chain(flags)
            .map(|&flag| flag.to_owned())
            .collect(),
    })
    .unwrap()
}

/// Sends one mail to each recipient, as one broadcast.
fn broadcast(
    trial: &Trial,
    recipients: impl Iterator<Item = String>,
    guarantee: WorkloadGuarantee,
) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), recipients.collect::<Vec<_>>().join("\n")).unwrap();
    let mut command = trial.engine().client().command("send");
    command.args(["--channel", "mail", "--content", CONTENT, "--guarantee", guarantee.as_str()]);
    let output = command.arg("--to-file").arg(file.path()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn drained(trial: &Trial) -> AuditOutput {
    trial.drain(PATIENCE, || Ok(())).unwrap();
    trial.engine().client().audit().unwrap()
}

/// How often each recipient got a mail, whether the server said so or not.
fn arrived(trial: &Trial) -> HashMap<String, u64> {
    let mut arrived = HashMap::new();
    let mut journal = Reader::open(&trial.simulator().ready.journal).unwrap();
    while let Some(record) = journal.next_record().unwrap() {
        if record.channel == JournalChannel::Smtp && record.status.has_arrived() {
            *arrived.entry(record.recipient.to_owned()).or_default() += 1;
        }
    }
    arrived
}

fn recipient(number: u64) -> String {
    format!("reader-{number}@Example.ORG")
}

#[test]
fn each_mail_arrives_once_over_connections_that_end_as_the_server_likes() {
    let directory = tempfile::tempdir().unwrap();
    let trial = start(directory.path(), &["--goaway-every", "37"]);
    broadcast(&trial, (0..2_000).map(recipient), WorkloadGuarantee::AtMostOnce);
    let audit = drained(&trial);
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.in_doubt), (2_000, 0), "{audit:?}");
    let arrived = arrived(&trial);
    assert_eq!(arrived.len(), 2_000);
    assert!(arrived.values().all(|&times| times == 1));
    assert!(arrived.contains_key("reader-7@example.org"), "a domain is written in one way");
}

#[test]
fn a_lost_answer_is_repeated_or_in_doubt_and_who_is_gone_is_not_written_to_again() {
    let directory = tempfile::tempdir().unwrap();
    let trial = start(directory.path(), &["--drop-rate", "0.02", "--dead-tokens", "0.1"]);
    let (least, most) = (0..500, 500..1_000);
    broadcast(&trial, least.clone().map(recipient), WorkloadGuarantee::AtLeastOnce);
    broadcast(&trial, most.clone().map(recipient), WorkloadGuarantee::AtMostOnce);
    let audit = drained(&trial);
    let is_gone = |number: &u64| is_dead(&recipient(*number).to_lowercase(), 0.1);
    let gone = u64::try_from((0..1_000).filter(is_gone).count()).unwrap();
    assert!(audit.balanced, "{audit:?}");
    assert_eq!(
        (audit.refused, audit.delivered + audit.in_doubt),
        (gone, 1_000 - gone),
        "{audit:?}"
    );
    assert!(audit.in_doubt > 0, "{audit:?}");
    let arrived = arrived(&trial);
    let times = |number| arrived.get(&recipient(number).to_lowercase()).copied().unwrap_or(0);
    assert!(least.filter(|number| !is_gone(number)).all(|number| times(number) >= 1));
    assert!(most.filter(|number| !is_gone(number)).all(|number| times(number) == 1));
    broadcast(&trial, (0..1_000).filter(is_gone).map(recipient), WorkloadGuarantee::AtLeastOnce);
    assert_eq!(drained(&trial).suppressed, gone);
}
