//! Parts of a batch that go with its contents.

use super::{Options, Sqlite};
use crate::conformance::at;
use crate::rows::traces_of_contents::traces_go_with_contents;

#[tokio::test]
async fn traces_go_with_contents_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Sqlite::open(directory.path(), Options::new(1), at(0)).unwrap();
    let reader = rusqlite::Connection::open(directory.path().join("belfry.db")).unwrap();
    let count =
        async || reader.query_row("SELECT count(trace) FROM batch", [], |row| row.get(0)).unwrap();
    traces_go_with_contents(&store, count).await;
}
