//! The conformance suite, which both stores pass.

use std::sync::Arc;

use store::conformance::{SharedSubject, Subject, at, exercise, exercise_quotas, exercise_tickets};
use store::sqlite::Options;
use store::{Memory, Sqlite};

#[tokio::test]
async fn the_double_is_a_store() {
    exercise(async || Subject { store: Arc::new(Memory::new()), keep: Box::new(()) }).await;
}

#[tokio::test]
async fn the_double_issues_tickets() {
    exercise_tickets(async || {
        let store = Arc::new(Memory::new());
        SharedSubject { one: Arc::clone(&store), other: store, keep: Box::new(()) }
    })
    .await;
}

#[tokio::test]
async fn the_double_divides_quotas() {
    exercise_quotas(async || {
        let store = Arc::new(Memory::new());
        SharedSubject { one: Arc::clone(&store), other: store, keep: Box::new(()) }
    })
    .await;
}

#[tokio::test]
async fn sqlite_is_a_store() {
    exercise(async || {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Sqlite::open(directory.path(), Options::new(1), at(0)).unwrap();
        Subject { store: Arc::new(store), keep: Box::new(directory) }
    })
    .await;
}
