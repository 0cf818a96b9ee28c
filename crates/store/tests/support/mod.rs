//! Stores on PostgreSQL for tests.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]
#![allow(dead_code, clippy::allow_attributes, reason = "no test needs all of it")]

use flow::Clock;
use notification::{Chunk, Settlement};
use store::postgres::Options;
use store::{Postgres, ReadStore, Settled, Settlements};
use testbed::Database;

/// An empty database of its own.
pub(crate) fn fresh() -> Database {
    testbed::postgres::shared().unwrap().create().unwrap()
}

/// A database with the schema of a store and nothing in it, to be copied: that is faster than to migrate each.
pub(crate) async fn template() -> Database {
    // In a runtime of its own, that takes every connection with it: a connected session keeps the database from being copied.
    let make = || {
        let database = fresh();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { open(database.url()).await.close().await });
        database
    };
    tokio::task::spawn_blocking(make).await.unwrap()
}

/// A copy of `template`, which no process has open.
pub(crate) fn fresh_like(template: &Database) -> Database {
    testbed::postgres::shared().unwrap().create_like(template).unwrap()
}

/// A process that does everything.
pub(crate) async fn open(url: &str) -> Postgres {
    Postgres::open(Options::new(url), Clock::system()).await.unwrap()
}

/// A process that delivers and owns no partition.
pub(crate) async fn open_consumer(url: &str) -> Postgres {
    let options = Options { produces: false, ..Options::new(url) };
    Postgres::open(options, Clock::system()).await.unwrap()
}

/// Settles all of `chunk` as delivered.
pub(crate) async fn deliver(store: &Postgres, chunk: &Chunk) -> Settled {
    store.settle(vec![delivered(chunk)]).await.unwrap().remove(0)
}

pub(crate) fn delivered(chunk: &Chunk) -> Settlement {
    let group = notification::OutcomeGroup {
        disposition: notification::Disposition::Ended(notification::State::Delivered),
        status: 200,
        detail: "".into(),
        suppress: false,
        gone_since: [].into(),
        indexes: chunk.deliveries.iter().map(|delivery| delivery.index).collect(),
    };
    Settlement {
        chunk: chunk.id,
        epoch: chunk.epoch,
        at: store::conformance::at(7),
        groups: vec![group],
        places: 0,
        latency: None,
        rate_per_minute: None,
        fallbacks: Vec::new(),
    }
}

pub(crate) async fn accepted(store: &dyn ReadStore) -> u64 {
    store.totals().await.unwrap().accepted
}
