//! Lanes in which nothing is.

use std::path::Path;

use tempfile::TempDir;

use super::{Options, Sqlite};
use crate::Store;
use crate::conformance::at;
use crate::rows::emptied_lanes::{LaneStore, lanes_go_when_nothing_is_in_them};
use crate::rows::retention::LANE_KEPT_FOR;

struct SqliteLanes {
    directory: TempDir,
    store: Sqlite,
}

fn open(directory: &Path) -> Sqlite {
    Sqlite::open(directory, Options::new(1), at(0)).unwrap().0
}

impl LaneStore for SqliteLanes {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn destinations(&self) -> Vec<String> {
        let connection =
            rusqlite::Connection::open(self.directory.path().join("belfry.db")).unwrap();
        let mut select =
            connection.prepare("SELECT destination FROM tenant_lane ORDER BY destination").unwrap();
        let rows = select.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    async fn skip_numbers(&mut self) {
        self.store.close().await;
        let connection =
            rusqlite::Connection::open(self.directory.path().join("belfry.db")).unwrap();
        let skip = "UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'batch'";
        connection.execute(skip, [2 * LANE_KEPT_FOR.cast_signed()]).unwrap();
        drop(connection);
        self.store = open(self.directory.path());
    }
}

#[tokio::test]
async fn lanes_go_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    lanes_go_when_nothing_is_in_them(&mut SqliteLanes { directory, store }).await;
}
