//! Databases for tests, and stores in them.

use flow::Clock;
use store::postgres::{Options, Postgres};
use testbed::Database;

/// An empty database of its own.
pub(crate) fn fresh() -> Database {
    testbed::postgres::shared().unwrap().create().unwrap()
}

/// A process that does everything.
pub(crate) async fn open(url: &str) -> Postgres {
    open_with(url, |_| {}).await
}

/// A process that does what `change` says.
pub(crate) async fn open_with(url: &str, change: impl FnOnce(&mut Options)) -> Postgres {
    let mut options = options(url);
    change(&mut options);
    Postgres::open(options, Clock::system()).await.unwrap()
}

pub(crate) fn options(url: &str) -> Options {
    Options {
        url: url.to_owned(),
        ca_file: None,
        name: "test".to_owned(),
        version: "0".to_owned(),
        produces: true,
        consumes: true,
        listen: None,
        seed: 1,
    }
}
