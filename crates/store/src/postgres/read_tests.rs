//! Readers: the rows that they may see, and when.

use notification::{State, Timestamp};
use testbed::Database;
use tokio_postgres::Client;

use super::connection::{Connector, PostgresSession};
use super::reader::PostgresReader;
use crate::rows::codec::{LogLine, LogRow};
use crate::{EventPosition, LogPosition, ReadStore as _, StoreError, SuppressionPage};

/// A store with one batch of a hundred, on a server on which no other database is in use: any transaction that ends on a server
/// while the log is read holds back, for that page, the ones after it.
async fn store() -> (testbed::PostgresServer, Database, Connector) {
    let options = testbed::PostgresOptions { settings: &[("autovacuum", "off")], tls: None };
    let server = testbed::PostgresServer::start_with(options).unwrap();
    let database = server.create_database().unwrap();
    let connector = Connector::new(database.url(), "test", None).unwrap();
    connector.prepare().await.unwrap();
    let rows = "INSERT INTO meta VALUES ('realm', 7) ON CONFLICT DO NOTHING; \
         INSERT INTO batch (id, lane, guarantee, accepted_at, due_at, count, tenant, items) \
         VALUES (1, 1, 0, 0, 0, 100, 'tenant', '')";
    connector.connect(None).await.unwrap().client.batch_execute(rows).await.unwrap();
    (server, database, connector)
}

/// A transaction that has written the end of one member to the log.
async fn writing(connector: &Connector, index: u16) -> PostgresSession {
    let session = connector.connect(None).await.unwrap();
    let begin = format!("BEGIN; {}", super::LOG_WRITERS);
    session.client.batch_execute(&begin).await.unwrap();
    write(&session.client, index).await;
    session
}

async fn write(client: &Client, index: u16) {
    let mut row = LogRow::new();
    let line = LogLine::unattempted(Timestamp::from_millis(0), State::Delivered);
    row.push(&line, [index].into_iter());
    let insert = "INSERT INTO log (batch, entries) VALUES (1, $1)";
    client.execute(insert, &[&row.as_bytes()]).await.unwrap();
}

async fn commit(session: &PostgresSession) {
    session.client.batch_execute("COMMIT").await.unwrap();
}

/// The members in the log from `position` on, and the next position.
async fn read(
    reader: &PostgresReader,
    position: LogPosition,
    entries: usize,
) -> (Vec<u16>, LogPosition) {
    let page = reader.log(position, entries).await.unwrap();
    (page.entries.iter().map(|entry| entry.id.index()).collect(), page.next)
}

#[tokio::test]
async fn the_log_is_read_up_to_the_first_transaction_that_may_still_write() {
    let (_server, database, connector) = store().await;
    let reader = PostgresReader::open(database.url(), None).await.unwrap();
    let start = LogPosition::default();
    // A transaction that only writes elsewhere, for however long, holds up no reader.
    let stranger = connector.connect(None).await.unwrap();
    stranger.client.batch_execute("BEGIN; INSERT INTO meta VALUES ('other', 1)").await.unwrap();
    // The transaction that was numbered first is committed last.
    let early = writing(&connector, 1).await;
    let late = writing(&connector, 2).await;
    commit(&late).await;
    assert_eq!(read(&reader, start, 10).await, (vec![], start), "the first may still write");
    write(&early.client, 3).await;
    commit(&early).await;
    let (members, next) = read(&reader, start, 10).await;
    assert_eq!(members, [1, 3, 2], "in the order of transactions");
    assert_eq!(read(&reader, next, 10).await, (vec![], next));
    // A transaction that has the lock and no number yet comes after all that have one.
    let unnumbered = connector.connect(None).await.unwrap();
    let begin = format!("BEGIN; {}", super::LOG_WRITERS);
    unnumbered.client.batch_execute(&begin).await.unwrap();
    commit(&writing(&connector, 4).await).await;
    let (members, next) = read(&reader, next, 10).await;
    assert_eq!(members, [4]);
    write(&unnumbered.client, 5).await;
    commit(&unnumbered).await;
    assert_eq!(read(&reader, next, 10).await.0, [5]);
}

#[tokio::test]
async fn what_a_transaction_wrote_is_never_split_over_pages() {
    let (_server, database, connector) = store().await;
    let reader = PostgresReader::open(database.url(), None).await.unwrap();
    for first in [0, 10, 20] {
        let session = writing(&connector, first).await;
        for index in first + 1..first + 10 {
            write(&session.client, index).await;
        }
        commit(&session).await;
    }
    let mut position = LogPosition::default();
    let mut pages = Vec::new();
    loop {
        let (members, next) = read(&reader, position, 11).await;
        if next == position {
            break;
        }
        pages.push(members);
        position = next;
    }
    assert_eq!(pages, [(0..20).collect::<Vec<u16>>(), (20..30).collect()]);
}

#[tokio::test]
async fn a_reader_outlives_its_sessions_and_says_what_is_missing() {
    let (server, database, connector) = store().await;
    let reader = PostgresReader::open(database.url(), None).await.unwrap();
    let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let session = connector.connect(None).await.unwrap();
    let ended: i64 = session.client.query_one(others, &[]).await.unwrap().get(0);
    assert!(ended > 0);
    assert_eq!(reader.totals().await.unwrap().accepted, 0);

    let empty = server.create_database().unwrap();
    let refused = PostgresReader::open(empty.url(), None).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Schema(words) if words.contains("belfry serve")),
        "{refused}"
    );
}

/// A transaction that has told of a change, and is not over.
async fn telling(connector: &Connector, recipient: &str) -> PostgresSession {
    let session = connector.connect(None).await.unwrap();
    let begin = format!("BEGIN; {}", super::LOG_WRITERS);
    session.client.batch_execute(&begin).await.unwrap();
    tell(&session.client, recipient).await;
    session
}

async fn tell(client: &Client, recipient: &str) {
    let insert = "INSERT INTO suppression_event (at, channel, recipient) VALUES (0, 'ios', $1)";
    client.execute(insert, &[&recipient]).await.unwrap();
}

async fn told(reader: &PostgresReader, position: EventPosition, events: usize) -> SuppressionPage {
    reader.suppression_events(position, events).await.unwrap()
}

fn recipients(page: &SuppressionPage) -> Vec<&str> {
    page.events.iter().map(|event| &*event.recipient).collect()
}

#[tokio::test]
async fn changes_of_the_list_are_read_up_to_the_first_transaction_that_may_still_write() {
    let (_server, database, connector) = store().await;
    let reader = PostgresReader::open(database.url(), None).await.unwrap();
    let start = EventPosition::default();
    // The transaction that was numbered first is committed last.
    let early = telling(&connector, "a").await;
    let late = telling(&connector, "b").await;
    commit(&late).await;
    let page = told(&reader, start, 10).await;
    assert_eq!((recipients(&page), page.next), (vec![], start), "the first may still write");
    tell(&early.client, "c").await;
    commit(&early).await;
    assert_eq!(recipients(&told(&reader, start, 10).await), ["a", "c", "b"]);
    // A page may end within a transaction.
    let page = told(&reader, start, 1).await;
    assert_eq!(recipients(&page), ["a"]);
    assert_eq!(recipients(&told(&reader, page.next, 10).await), ["c", "b"]);
}

#[tokio::test]
async fn a_change_that_would_be_numbered_before_an_earlier_one_is_done_again() {
    let (_server, _database, connector) = store().await;
    let early = telling(&connector, "a").await;
    let late = telling(&connector, "b").await;
    let insert = "INSERT INTO suppression (channel, recipient, reason, status, since) \
         VALUES ('ios', 'x', '', 410, 0)";
    late.client.batch_execute(insert).await.unwrap();
    commit(&late).await;
    let lift = "DELETE FROM suppression WHERE recipient = 'x' RETURNING comes_after(txid)";
    let error = early.client.batch_execute(lift).await.unwrap_err();
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("40001"));
    early.client.batch_execute("ROLLBACK").await.unwrap();
    let again = telling(&connector, "a").await;
    assert_eq!(again.client.query(lift, &[]).await.unwrap().len(), 1);
    commit(&again).await;
}

#[tokio::test]
async fn events_are_read_up_to_the_first_transaction_that_may_still_write() {
    let (_server, database, connector) = store().await;
    let insert_lane = "INSERT INTO tenant_lane (id, channel, destination, priority, tenant) OVERRIDING SYSTEM VALUE \
         VALUES (1, 'channel', 'here', 1, 'tenant')";
    let session = connector.connect(None).await.unwrap();
    session.client.batch_execute(insert_lane).await.unwrap();
    // Without items: recipients that are kept no longer.
    session
        .client
        .batch_execute("ALTER TABLE batch ALTER items DROP NOT NULL; UPDATE batch SET items = NULL")
        .await
        .unwrap();
    let reader = PostgresReader::open(database.url(), None).await.unwrap();
    let read = async |position, events| {
        let filter = crate::DeliveryFilter::ends_of("tenant".parse().unwrap());
        let page = reader.delivery_events(filter, position, events).await.unwrap();
        let members = page.events.iter().map(|event| event.id.index()).collect::<Vec<_>>();
        assert!(page.events.iter().all(|event| event.recipient.is_none()));
        (members, page.next)
    };
    let start = EventPosition::default();
    // The transaction that was numbered first is committed last, and others after a feed has begun at the end.
    let early = writing(&connector, 1).await;
    let late = writing(&connector, 2).await;
    commit(&late).await;
    assert_eq!(read(start, 10).await, (vec![], start), "the first may still write");
    let end = reader.events_end().await.unwrap();
    write(&early.client, 3).await;
    commit(&early).await;
    let (members, next) = read(start, 2).await;
    assert_eq!(members, [1, 3], "a page may end within a transaction");
    assert_eq!(read(next, 10).await.0, [2]);
    assert_eq!(read(end, 10).await.0, [1, 3, 2], "nothing that was committed later is missed");
    let end = reader.events_end().await.unwrap();
    assert_eq!(read(end, 10).await.0, [] as [u16; 0]);
    let after = writing(&connector, 4).await;
    commit(&after).await;
    assert_eq!(read(end, 10).await.0, [4]);
}
