//! Notices to other processes on a real server: who gets them, and what becomes of what is refused for its notices.

use std::sync::Arc;

use flow::Clock;
use notification::{Disposition, State};
use testbed::Database;
use tokio::sync::mpsc;

use super::connection::{Connector, OnNotification, PostgresSession};
use super::notices::from_payload;
use super::notify::MUTED_FOR;
use super::{Options, Postgres};
use crate::conformance::{Shape, at, claim_all, settle_all, the_books_balance};
use crate::postgres::notices::Notice;
use crate::{Ingest as _, ReadStore as _, StoreError};

/// Payloads that were received and not looked at yet: more than a test sends.
const RECEIVED: usize = 256;

async fn open(database: &Database, clock: Clock) -> Postgres {
    Postgres::open(Options::new(database.url()), clock).await.unwrap()
}

/// A session that receives the notices of the processes.
async fn listen(database: &Database) -> (PostgresSession, mpsc::Receiver<String>) {
    let (sender, received) = mpsc::channel(RECEIVED);
    let on_notification: OnNotification = Arc::new(move |notification| {
        sender.try_send(notification.payload().to_owned()).unwrap();
    });
    let session = connect(database, Some(on_notification)).await;
    session.client.batch_execute("LISTEN belfry_work").await.unwrap();
    (session, received)
}

async fn connect(database: &Database, on_notification: Option<OnNotification>) -> PostgresSession {
    Connector::new(database.url(), "test", None).unwrap().connect(on_notification).await.unwrap()
}

async fn work(store: &Postgres) {
    Shape::default().ingest(store, 5).await;
    let chunks = claim_all(store, 1).await;
    assert!(!chunks.is_empty());
    for chunk in chunks {
        settle_all(store, &chunk, Disposition::Ended(State::Delivered)).await;
    }
}

#[tokio::test]
async fn work_is_told_only_when_another_process_listens() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let store = open(&database, Clock::system()).await;
    let (session, mut received) = listen(&database).await;
    work(&store).await;
    session.client.batch_execute("NOTIFY belfry_work, 'marker'").await.unwrap();
    assert_eq!(received.recv().await.unwrap(), "marker", "nothing was said before it");

    let watching = Options { produces: false, ..Options::new(database.url()) };
    let other = Postgres::open(watching, Clock::system()).await.unwrap();
    let mut membership = store.membership.clone();
    membership.wait_for(|membership| membership.consumers == 2).await.unwrap();
    work(&store).await;
    let worker = store.membership.borrow().worker;
    let (sender, notices) = from_payload(&received.recv().await.unwrap());
    assert_eq!(sender, Some(worker));
    assert!(matches!(notices[..], [Notice::Due(..)]), "{notices:?}");
    the_books_balance(&other).await;
}

/// Refuses commits as a server whose queue of notifications is full. What was refused for `belfry_work` is counted: a
/// sequence keeps what a transaction that is rolled back drew from it.
const FULL: &str = "CREATE SEQUENCE belfry.refusals MINVALUE 0; SELECT nextval('belfry.refusals'); \
     CREATE TABLE belfry.refused (channel text); \
     CREATE FUNCTION belfry.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
       IF NEW.channel = 'belfry_work' THEN PERFORM nextval('belfry.refusals'); END IF; \
       RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$; \
     CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON belfry.refused DEFERRABLE INITIALLY DEFERRED \
       FOR EACH ROW EXECUTE FUNCTION belfry.refuse(); \
     CREATE FUNCTION belfry.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
       INSERT INTO belfry.refused VALUES (channel); END $$";
const EMPTIED: &str = "CREATE OR REPLACE FUNCTION belfry.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql \
     AS $$ BEGIN PERFORM pg_catalog.pg_notify(channel, payload); END $$";

#[tokio::test]
async fn a_full_queue_of_notifications_costs_one_repetition_and_then_nothing_for_a_while() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    Connector::new(database.url(), "test", None).unwrap().prepare().await.unwrap();
    let (session, mut received) = listen(&database).await;
    session.client.batch_execute(FULL).await.unwrap();
    let other = open(&database, Clock::system()).await;
    let (clock, steering) = Clock::system().steered();
    let store = open(&database, clock).await;
    let refusals = async || {
        let select = "SELECT last_value FROM belfry.refusals";
        session.client.query_one(select, &[]).await.unwrap().get::<_, i64>(0)
    };
    for refused in 1..=2 {
        steering.suspend(MUTED_FOR);
        for _ in 0..3 {
            Shape::default().ingest(&store, 5).await;
            assert_eq!(refusals().await, refused, "the first of them was refused, once");
        }
    }
    session.client.batch_execute(EMPTIED).await.unwrap();
    Shape::default().ingest(&store, 5).await;
    steering.suspend(MUTED_FOR);
    Shape::default().ingest(&store, 5).await;
    let notices = from_payload(&received.recv().await.unwrap());
    let worker = store.membership.borrow().worker;
    assert_eq!(notices, (Some(worker), vec![Notice::Everything]), "for all that was kept back");
    assert_eq!(other.reader().totals().await.unwrap().accepted, 40);
    the_books_balance(&other).await;
}

#[tokio::test]
async fn another_limit_of_the_server_is_not_taken_for_a_full_queue() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let store = open(&database, Clock::system()).await;
    let refuse = "CREATE SEQUENCE belfry.refusals; \
         CREATE FUNCTION belfry.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           PERFORM nextval('belfry.refusals'); RAISE EXCEPTION 'too much' USING ERRCODE = '54000'; END $$; \
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON belfry.totals_delta DEFERRABLE INITIALLY DEFERRED \
           FOR EACH ROW EXECUTE FUNCTION belfry.refuse()";
    let session = connect(&database, None).await;
    session.client.batch_execute(refuse).await.unwrap();
    let error = store.ingest(Shape::default().drafts(1), at(0)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Invalid(words) if words.contains("54000")), "{error}");
    let select = "SELECT last_value FROM belfry.refusals";
    let tries: i64 = session.client.query_one(select, &[]).await.unwrap().get(0);
    assert_eq!(tries, 1, "nothing is repeated that would fail again");
}

#[tokio::test]
async fn what_was_kept_back_is_told_by_the_first_transaction_that_is_committed() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    Connector::new(database.url(), "test", None).unwrap().prepare().await.unwrap();
    let (session, mut received) = listen(&database).await;
    session.client.batch_execute(FULL).await.unwrap();
    let other = open(&database, Clock::system()).await;
    let (clock, steering) = Clock::system().steered();
    let store = open(&database, clock).await;
    steering.suspend(MUTED_FOR);
    Shape::default().ingest(&store, 5).await;
    // The next commit, with its notices, is undone once.
    let once = "CREATE SEQUENCE belfry.commits; \
         CREATE FUNCTION belfry.undo_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF nextval('belfry.commits') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = '40001'; END IF; \
           RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER undo_once AFTER INSERT ON belfry.totals_delta DEFERRABLE INITIALLY DEFERRED \
           FOR EACH ROW EXECUTE FUNCTION belfry.undo_once()";
    session.client.batch_execute(EMPTIED).await.unwrap();
    session.client.batch_execute(once).await.unwrap();
    steering.suspend(MUTED_FOR);
    Shape::default().ingest(&store, 5).await;
    let undone = "SELECT last_value FROM belfry.commits";
    let tries: i64 = session.client.query_one(undone, &[]).await.unwrap().get(0);
    assert!(tries > 1, "it was undone, and done again");
    let (_, notices) = from_payload(&received.recv().await.unwrap());
    assert_eq!(notices, [Notice::Everything]);
    the_books_balance(&other).await;
}
