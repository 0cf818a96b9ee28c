//! A session of a program that is no engine, for tests.

use flow::Tasks;
use testbed::Database;
use tokio_postgres::{Client, NoTls};

/// Connects to `database` as a program that uses our tables.
pub(super) async fn connect(database: &Database, tasks: &mut Tasks) -> Client {
    let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    tasks.spawn("application", async move {
        let _over = connection.await;
    });
    client.batch_execute("SET search_path = belfry, pg_catalog").await.unwrap();
    client
}
