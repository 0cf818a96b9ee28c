//! PostgreSQL passes the conformance suite.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::sync::Arc;

use flow::Clock;
use store::Postgres;
use store::conformance::{SharedSubject, Subject, exercise, exercise_tickets};
use store::postgres::Options;

fn options(url: &str, produces: bool) -> Options {
    Options {
        url: url.to_owned(),
        ca_file: None,
        name: "test".to_owned(),
        version: "1".to_owned(),
        produces,
        consumes: true,
        listen: None,
        seed: 1,
    }
}

async fn open(url: &str, produces: bool) -> Arc<Postgres> {
    Arc::new(Postgres::open(options(url, produces), Clock::system()).await.unwrap())
}

#[tokio::test]
async fn postgresql_is_a_store() {
    let server = testbed::postgres::shared().unwrap();
    exercise(async || {
        let database = server.create().unwrap();
        Subject { store: open(database.url(), true).await, keep: Box::new(database) }
    })
    .await;
}

#[tokio::test]
async fn postgresql_issues_tickets() {
    let server = testbed::postgres::shared().unwrap();
    exercise_tickets(async || {
        let database = server.create().unwrap();
        let (one, other) = (open(database.url(), true).await, open(database.url(), false).await);
        SharedSubject { one, other, keep: Box::new(database) }
    })
    .await;
}
