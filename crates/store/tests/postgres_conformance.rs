//! PostgreSQL passes the conformance suite.
#![cfg(feature = "postgres")]

mod support;

use std::sync::Arc;

use store::conformance::{SharedSubject, Subject, exercise, exercise_quotas, exercise_tickets};
use support::{fresh_like, open, open_consumer, template};

#[tokio::test]
async fn postgresql_is_a_store() {
    let template = template().await;
    exercise(async || {
        let database = fresh_like(&template);
        Subject { store: Arc::new(open(database.url()).await), keep: Box::new(database) }
    })
    .await;
}

#[tokio::test]
async fn postgresql_issues_tickets() {
    let template = template().await;
    exercise_tickets(async || {
        let database = fresh_like(&template);
        let one = Arc::new(open(database.url()).await);
        let other = Arc::new(open_consumer(database.url()).await);
        SharedSubject { one, other, keep: Box::new(database) }
    })
    .await;
}

#[tokio::test]
async fn postgresql_divides_quotas() {
    let template = template().await;
    exercise_quotas(async || {
        let database = fresh_like(&template);
        let one = Arc::new(open(database.url()).await);
        let other = Arc::new(open_consumer(database.url()).await);
        SharedSubject { one, other, keep: Box::new(database) }
    })
    .await;
}
