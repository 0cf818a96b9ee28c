//! A dump may be restored on any server: one whose transactions have lower numbers, too.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;

use notification::{Disposition, State};
use store::conformance::{Shape, at, claim_all, name, the_books_balance};
use store::{
    Change, EventPosition, FeedCursor, Lift, LogPosition, Operations, Outbox, Postgres,
    PostgresReader, ReadStore, Settlements, StoreError, Suppression, Validator,
};
use support::{deliver, delivered, open};
use testbed::Database;

fn suppression(recipient: &str) -> Suppression {
    Suppression {
        channel: name("channel"),
        recipient: recipient.into(),
        reason: "asked us".to_owned(),
        status: 0,
        since: at(1),
    }
}

fn lift(recipient: &str) -> Lift {
    Lift { channel: name("channel"), recipient: recipient.into(), registered_at: None }
}

/// The changes after a position: the recipient, and true if it is listed then; and the next position.
async fn changes(
    store: &dyn ReadStore,
    position: EventPosition,
) -> (Vec<(String, bool)>, EventPosition) {
    let page = store.suppression_events(position, 100).await.unwrap();
    let change = |event: store::SuppressionEvent| {
        (event.recipient.to_string(), event.change != Change::Lifted)
    };
    (page.events.into_iter().map(change).collect(), page.next)
}

/// Stores a notification for `recipient`, and settles it as refused by the provider, which says that it is gone since `since`.
async fn refuse(store: &Postgres, recipient: &str, since: i64) {
    store::Ingest::ingest(store, vec![Shape::default().draft(recipient)], at(0)).await.unwrap();
    let chunk = claim_all(store, 0).await.remove(0);
    let mut gone = delivered(&chunk);
    for group in &mut gone.groups {
        group.disposition = Disposition::Ended(State::Refused);
        group.suppress = true;
        group.gone_since = [(0, at(since))].into();
    }
    store.settle(vec![gone]).await.unwrap();
}

/// Two databases on two servers, the second of which is behind.
struct Servers {
    old: testbed::PostgresServer,
    _new: testbed::PostgresServer,
    from: Database,
    to: Database,
}

impl Servers {
    fn start() -> Self {
        let (old, new) =
            (testbed::PostgresServer::start().unwrap(), testbed::PostgresServer::start().unwrap());
        let (from, to) = (old.create_database().unwrap(), new.create_database().unwrap());
        let spend = "DO $$ BEGIN FOR i IN 1..3000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$";
        from.query(spend).unwrap();
        Self { old, _new: new, from, to }
    }

    fn copy(&self) {
        let programs = self.old.bin_dir();
        let mut dump = Command::new(programs.join("pg_dump"))
            .args(["--schema=belfry", self.from.url()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let restored = Command::new(programs.join("psql"))
            .args(["--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null", self.to.url()])
            .stdin(dump.stdout.take().unwrap())
            .status()
            .unwrap();
        assert!(dump.wait().unwrap().success() && restored.success());
        let number = |database: &Database| -> u64 {
            database.query("SELECT pg_current_xact_id()").unwrap().parse().unwrap()
        };
        assert!(number(&self.to) + 1_000 < number(&self.from), "the new server is behind");
    }
}

/// Recipients of the notifications that the outbox has now.
async fn drain(store: &Postgres) -> Vec<String> {
    let validator: Arc<Validator> =
        Arc::new(|row, _now| Ok(Shape::default().draft(&row.recipient)));
    let drained = store.drain(validator, at(0)).await.unwrap();
    assert_eq!((drained.rejected, drained.more), (0, false));
    let mut taken = Vec::new();
    for chunk in claim_all(store, 0).await {
        taken.extend(chunk.deliveries.iter().map(|delivery| delivery.recipient.to_string()));
        deliver(store, &chunk).await;
    }
    taken.sort();
    taken
}

#[tokio::test]
async fn a_dump_goes_on_where_it_stood_on_a_server_with_lower_numbers() {
    let servers = Servers::start();
    let Servers { from, to, .. } = &servers;
    let store = open(from.url()).await;
    Shape::default().ingest(&store, 3).await;
    deliver(&store, &claim_all(&store, 0).await[0]).await;
    let listed = ["a", "b", "back"].map(suppression);
    store.suppress(listed.to_vec(), at(2)).await.unwrap();
    store.lift(vec![lift("back")], at(50)).await.unwrap();
    let feed = || name("hooks");
    let (told, end) = changes(store.reader(), EventPosition::default()).await;
    assert_eq!(told.len(), 4);
    let fixed = FeedCursor { until: Some(end), ..FeedCursor::default() };
    store.move_feed(feed(), FeedCursor::default(), fixed).await.unwrap();
    let log_end = store.reader().log(LogPosition::default(), 100).await.unwrap().next;
    store.close().await;
    servers.copy();
    // The changes of the former server after that, which an application saw, are lost.
    let store = open(from.url()).await;
    store.suppress(vec![suppression("lost")], at(3)).await.unwrap();
    let beyond = changes(store.reader(), end).await.1;
    store.close().await;
    assert!(beyond > end);

    let refused = PostgresReader::open(to.url(), None).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Schema(words) if words.contains("belfry serve")),
        "{refused}"
    );
    let store = open(to.url()).await;
    assert_eq!(store.reader().feed(feed()).await.unwrap(), fixed);
    assert_eq!(changes(store.reader(), EventPosition::default()).await, (told, end));
    assert_eq!(changes(store.reader(), end).await, (vec![], end));
    // The marks and the entries of before can be changed, and are still obeyed.
    refuse(&store, "back", 50).await;
    refuse(&store, "back", 51).await;
    assert_eq!(store.lift(vec![lift("a")], at(60)).await.unwrap(), [true]);
    let other = Suppression { reason: "asked again".to_owned(), ..suppression("b") };
    store.suppress(vec![other], at(61)).await.unwrap();
    let expect = [("back", true), ("a", false), ("b", true)];
    let expect = expect.map(|(recipient, is_listed)| (recipient.to_owned(), is_listed)).to_vec();
    let (news, next) = changes(store.reader(), end).await;
    assert_eq!(news, expect);
    assert_eq!(changes(store.reader(), beyond).await, (expect, next), "also for who was further");
    let page = store.reader().log(log_end, 100).await.unwrap();
    assert_eq!(page.entries.len(), 2, "the log goes on");
    the_books_balance(&store).await;
    store.close().await;

    let shift =
        || to.query("SELECT value FROM belfry.meta WHERE key = 'transaction_shift'").unwrap();
    let before = shift();
    open(to.url()).await.close().await;
    assert_eq!(shift(), before, "once is enough");
    let reader = PostgresReader::open(to.url(), None).await.unwrap();
    assert_eq!(changes(&reader, next).await, (vec![], next));
}

#[tokio::test]
async fn a_suppression_list_that_outlived_its_log_is_changed_on_the_new_server() {
    let servers = Servers::start();
    let Servers { from, to, .. } = &servers;
    let store = open(from.url()).await;
    store.suppress(["listed", "back"].map(suppression).to_vec(), at(2)).await.unwrap();
    store.lift(vec![lift("back")], at(50)).await.unwrap();
    store.close().await;
    // As retention leaves it: nothing else has the numbers of these transactions.
    from.query("DELETE FROM belfry.suppression_event").unwrap();
    servers.copy();
    let shift =
        || to.query("SELECT value FROM belfry.meta WHERE key = 'transaction_shift'").unwrap();
    let before = shift();
    let store = open(to.url()).await;
    assert_ne!(
        shift(),
        before,
        "else each change is tried until the server has given as many numbers"
    );
    refuse(&store, "back", 51).await;
    assert_eq!(store.lift(vec![lift("listed")], at(60)).await.unwrap(), [true]);
    let (news, _) = changes(store.reader(), EventPosition::default()).await;
    assert_eq!(news, [("back".to_owned(), true), ("listed".to_owned(), false)]);
    the_books_balance(&store).await;
    store.close().await;
}

#[tokio::test]
async fn what_was_not_taken_of_the_outbox_is_taken_on_the_new_server() {
    let servers = Servers::start();
    let Servers { from, to, .. } = &servers;
    let insert = |database: &Database, recipient: &str| {
        let insert = "INSERT INTO belfry.outbox (channel, recipient, content) VALUES ('channel',";
        database.query(&format!("{insert} '{recipient}', '1')")).unwrap();
    };
    let store = open(from.url()).await;
    insert(from, "taken");
    assert_eq!(drain(&store).await, ["taken"]);
    insert(from, "not-taken");
    store.close().await;
    servers.copy();
    insert(to, "new");
    let store = open(to.url()).await;
    assert_eq!(drain(&store).await, ["new", "not-taken"]);
    insert(to, "newer");
    assert_eq!(drain(&store).await, ["newer"]);
    the_books_balance(&store).await;
    store.close().await;
}
