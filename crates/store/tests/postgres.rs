//! PostgreSQL is a store.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod databases;

use std::sync::Arc;

use databases::{fresh, open, open_with};
use store::conformance::{SharedSubject, Subject, exercise, exercise_tickets};

#[tokio::test]
async fn postgresql_is_a_store() {
    exercise(async || {
        let database = fresh();
        let store = open(database.url()).await;
        Subject { store: Arc::new(store), keep: Box::new(database) }
    })
    .await;
}

#[tokio::test]
async fn postgresql_issues_tickets_to_other_processes() {
    exercise_tickets(async || {
        let database = fresh();
        let one = open(database.url()).await;
        let other = open_with(database.url(), |options| options.produces = false).await;
        SharedSubject { one: Arc::new(one), other: Arc::new(other), keep: Box::new(database) }
    })
    .await;
}
