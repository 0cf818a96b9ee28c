//! Nothing that was erased is in any file of the store once it is compacted.

use std::path::Path;

use notification::NotificationId;

use super::*;
use crate::conformance::{
    DELIVERED, Shape, at, claim_all, indexes, name, part, settle_all, the_books_balance,
};
use crate::sqlite::Options;
use crate::{
    Erased, Filter, Ingest as _, Operations as _, ReadStore as _, Settlements as _, Sqlite,
    Suppression,
};

const SECRET: &str = "ann.erased@example.net";

fn open(directory: &Path) -> Sqlite {
    Sqlite::open(directory, Options::new(1), at(0)).unwrap().0
}

/// Closes the store with the connections of its readers.
async fn close(store: Sqlite) {
    store.close().await;
    drop(store);
}

/// Files of the directory in which the address is, in whatever case.
fn files_with(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap().to_ascii_lowercase();
        if bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

/// Accepts and delivers `rounds` batches of three, one of each to the address. What the provider says has it as well.
async fn deliver(store: &Sqlite, rounds: i64) -> Vec<NotificationId> {
    let mut ids = Vec::new();
    for round in 0..rounds {
        let drafts =
            ["a", SECRET, "b"].map(|to| Shape { due_at: round, ..Shape::default() }.draft(to));
        store.ingest(drafts.into(), at(0)).await.unwrap();
        for chunk in claim_all(store, round).await {
            ids.push(chunk.notification_id(chunk.deliveries[1].index));
            let mut settlement = part(&chunk, &indexes(&chunk), DELIVERED);
            settlement.groups[0].detail =
                format!("250 to a, {} and b", SECRET.to_uppercase()).into();
            store.settle(vec![settlement]).await.unwrap();
        }
    }
    ids
}

#[tokio::test]
async fn an_erased_address_is_in_no_file_of_a_compacted_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let ids = deliver(&store, 300).await;
    assert_eq!(ids.len(), 300);
    let listed = Suppression {
        channel: name("channel"),
        recipient: SECRET.into(),
        reason: format!("{SECRET} bounced"),
        status: 550,
        since: at(1),
    };
    store.suppress(vec![listed], at(1)).await.unwrap();
    assert!(!files_with(directory.path()).is_empty());
    assert_eq!(store.erase(ids.clone(), name("tenant")).await.unwrap(), vec![Erased::Erased; 300]);
    assert_eq!(store.forget(SECRET.into()).await.unwrap(), 1);
    the_books_balance(&store).await;
    let before = store.reader().list(Filter::default(), None, 1_000).await.unwrap();
    close(store).await;
    let sizes = compact(directory.path()).unwrap();
    assert!(0 < sizes.after && sizes.after < sizes.before, "{sizes:?}");
    assert_eq!(files_with(directory.path()), [""; 0]);
    let store = open(directory.path());
    the_books_balance(&store).await;
    let after = store.reader().list(Filter::default(), None, 1_000).await.unwrap();
    assert_eq!(after, before, "nothing else is gone");
    assert_eq!(deliver(&store, 1).await.len(), 1);
    close(store).await;
}

#[tokio::test]
async fn a_store_that_is_in_use_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    Shape::default().ingest(&store, 3).await;
    for chunk in claim_all(&store, 0).await {
        settle_all(&store, &chunk, DELIVERED).await;
    }
    assert!(matches!(compact(directory.path()), Err(StoreError::InUse(_))));
    close(store).await;
    let reader = Sqlite::open_read_only(directory.path()).unwrap();
    assert_eq!(reader.totals().await.unwrap().delivered, 3);
    assert!(matches!(compact(directory.path()), Err(StoreError::InUse(_))));
    drop(reader);
    compact(directory.path()).unwrap();
    let missing = directory.path().join("missing");
    assert!(matches!(compact(&missing), Err(StoreError::Schema(_))));
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_store_from_before_pages_were_given_back_gives_them_back() {
    let directory = tempfile::tempdir().unwrap();
    close(open(directory.path())).await;
    let connection = Connection::open(directory.path().join(DATABASE)).unwrap();
    let gives_back = |connection: &Connection| -> i64 {
        connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0)).unwrap()
    };
    connection.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM").unwrap();
    assert_eq!(gives_back(&connection), 0);
    drop(connection);
    compact(directory.path()).unwrap();
    let connection = Connection::open(directory.path().join(DATABASE)).unwrap();
    assert_eq!(gives_back(&connection), 2, "incremental");
}
