//! Databases, stores and sessions for tests.

use flow::{Clock, Tasks};
use testbed::Database;
use tokio_postgres::{Client, NoTls};

use super::{Options, Postgres};

/// An empty database.
pub(super) fn fresh() -> Database {
    testbed::postgres::shared().unwrap().create().unwrap()
}

/// A store in `database`, by a process of its own as far as the others can tell.
pub(super) async fn open(database: &Database) -> Postgres {
    Postgres::open(Options::new(database.url()), Clock::system()).await.unwrap()
}

/// Connects to `database` as a program that uses our tables.
pub(super) async fn connect(database: &Database, tasks: &mut Tasks) -> Client {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    tasks.spawn("application", async move {
        let _over = connection.await;
    });
    client.batch_execute("SET search_path = belfry, pg_catalog").await.unwrap();
    client
}

/// Waits until a session of the database waits for a lock.
pub(super) async fn until_blocked(client: &Client) {
    let waits = "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}
