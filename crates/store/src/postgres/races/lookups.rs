//! The number of statements of a transaction: counted where they pass the pause points.

use futures_util::StreamExt as _;
use futures_util::poll;
use futures_util::stream::FuturesUnordered;
use notification::{Idempotency, NotificationId};

use super::super::ingest::IngestDrafts;
use super::cluster::{Cluster, Engine};
use super::gate::Verdict;
use crate::conformance::{Shape, at};
use crate::{Admission, StoreError};

/// A request of one caller for a notification under `key`.
fn keyed(key: usize) -> IngestDrafts {
    let mut draft = Shape::default().draft("r");
    let key = format!("k{key}").into();
    draft.idempotency = Some(Idempotency { key, fingerprint: [1; 32], passed: None });
    IngestDrafts { drafts: vec![draft], now: at(0) }
}

/// Asks for all `keys` within one transaction; the answers in order, and the statements that the transaction took.
async fn in_one_transaction(
    cluster: &mut Cluster,
    engine: &Engine,
    keys: Vec<usize>,
) -> (Vec<Admission>, usize) {
    let ask = async |place: usize, request: IngestDrafts| (place, engine.intake.run(request).await);
    let mut calls = FuturesUnordered::new();
    calls.push(ask(0, keyed(usize::MAX)));
    let mut answers: Vec<(usize, Result<Vec<Admission>, StoreError>)> = Vec::new();
    let (mut statements, mut transactions) = (0, 0);
    while answers.len() <= keys.len() {
        tokio::select! {
            biased;
            Some(answer) = calls.next() => answers.push(answer),
            Some(arrival) = cluster.arrivals.recv() => {
                if arrival.statement == "BEGIN" {
                    transactions += 1;
                    statements = 0;
                    // The first transaction waits here until all the other requests are made.
                    if transactions == 1 {
                        for (place, key) in keys.iter().enumerate() {
                            calls.push(ask(place + 1, keyed(*key)));
                        }
                        assert!(poll!(calls.next()).is_pending());
                    }
                }
                statements += 1;
                arrival.go.send(Verdict::Go).unwrap();
            }
        }
    }
    assert_eq!(transactions, 2, "the others were one transaction");
    answers.sort_by_key(|(place, _)| *place);
    let answers = answers.into_iter().skip(1).map(|(_, answer)| answer.unwrap()[0]);
    (answers.collect(), statements)
}

#[tokio::test]
async fn a_transaction_of_a_thousand_keyed_requests_takes_as_many_statements_as_one_of_two() {
    let mut cluster = Cluster::start().await;
    let engines = cluster.engines(1, 0).await;
    let id = |admission: &Admission| -> (bool, NotificationId) {
        match *admission {
            Admission::Accepted(id) => (true, id),
            Admission::Replayed(id) => (false, id),
        }
    };
    let (few, of_few) = in_one_transaction(&mut cluster, &engines[0], vec![1, 1]).await;
    assert_eq!([id(&few[0]).0, id(&few[1]).0], [true, false], "one key, asked for by two callers");
    assert_eq!(id(&few[0]).1, id(&few[1]).1);
    let (many, of_many) =
        in_one_transaction(&mut cluster, &engines[0], (1..=1_000).collect()).await;
    assert_eq!(id(&many[0]), (false, id(&few[0]).1), "used in a transaction before");
    assert_eq!(many.iter().filter(|admission| id(admission).0).count(), 999);
    assert_eq!(of_many, of_few);
    cluster.retire(engines).await;
}
