//! FCM as a user runs it: the binary, a provider with its token endpoint, counted at the provider.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::time::Duration;

use bench::{Setup, Trial};
use provider_sim::is_dead;
use provider_sim::journal::{JournalStatus, Reader};

const PATIENCE: Duration = Duration::from_mins(2);
const DEVICES: usize = 300;
const DEAD: f64 = 0.1;

/// The provider's books.
#[derive(Debug, Default)]
struct Books {
    access_tokens: usize,
    accepted: usize,
    unregistered: usize,
    unanswered: usize,
    others: Vec<JournalStatus>,
}

fn books(trial: &Trial) -> Books {
    let mut reader = Reader::open(&trial.simulator().ready.journal).unwrap();
    let mut books = Books::default();
    while let Some(record) = reader.next_record().unwrap() {
        match record.status {
            _ if record.id == "access-token" => books.access_tokens += 1,
            JournalStatus::Answered(200) => books.accepted += 1,
            JournalStatus::Answered(404) => books.unregistered += 1,
            JournalStatus::Drop => books.unanswered += 1,
            JournalStatus::Refuse => {}
            status @ JournalStatus::Answered(_) => books.others.push(status),
        }
    }
    books
}

fn rows(guarantee: &str) -> impl Iterator<Item = String> {
    (0..DEVICES).map(move |number| {
        let row = serde_json::json!({
            "channel": "android",
            "to": format!("device:{number}"),
            "content": { "notification": { "title": "Grüße" }, "data": { "n": number.to_string() } },
            "guarantee": guarantee,
        });
        row.to_string()
    })
}

#[test]
fn devices_are_reached_with_one_access_token_and_the_unregistered_are_not_asked_twice() {
    let directory = tempfile::tempdir().unwrap();
    let dead = DEAD.to_string();
    let flags = ["--fcm", "127.0.0.1:0", "--dead-tokens", &dead];
    let faults = ["--refuse-rate", "0.05", "--drop-rate", "0.02", "--goaway-every", "100"];
    let trial = Trial::start(Setup {
        binary: env!("CARGO_BIN_EXE_belfry").into(),
        directory: directory.path().to_owned(),
        engine_settings: vec![("BELFRY__DELIVERY__SENDERS".to_owned(), "3".to_owned())],
        simulator_flags: [flags.as_slice(), &faults]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })
    .unwrap();
    trial.submit(rows("at_least_once")).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();
    trial.submit(rows("at_most_once")).unwrap();
    trial.drain(PATIENCE, || Ok(())).unwrap();

    let gone = (0..DEVICES).filter(|number| is_dead(&format!("device:{number}"), DEAD)).count();
    let alive = DEVICES - gone;
    let (books, audit) = (books(&trial), trial.audit().unwrap());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!(books.access_tokens, 1, "three threads share one");
    assert_eq!((books.unregistered, books.others.len()), (gone, 0), "{books:?}");
    assert!(books.unanswered > 0, "the dice should have dropped some: {books:?}");
    assert_eq!(audit.refused + audit.suppressed, 2 * gone as u64, "{audit:?}");
    assert_eq!(audit.delivered + audit.in_doubt, 2 * alive as u64, "{audit:?}");
    assert_eq!(audit.delivered, books.accepted as u64, "{audit:?} {books:?}");
    // What was dropped is sent again at least once, and in doubt at most once.
    assert!(audit.in_doubt <= books.unanswered as u64, "{audit:?} {books:?}");
}
