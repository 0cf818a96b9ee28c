//! Recipients that a writer need not look up in the suppression list, while other processes add to it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use flow::Tasks;

use super::Postgres;
use super::listed::ListReading;
use super::request::WriterRequest;
use super::setup_tests::{connect, fresh, open};
use super::suppress::SuppressionReport;
use super::transaction::{RunError, Transaction};
use crate::conformance::at;
use crate::{Lift, Operations as _, Suppression};

const CHANNEL: &str = "ios";
const SMALL: ListReading = ListReading { page: 10, added: 20 };

/// Reads on in the list, and says which of the recipients with these numbers may be on it, and whether all of it was read.
#[derive(Debug)]
struct ReadOn(Range<u32>);

#[async_trait]
impl WriterRequest for ReadOn {
    type Answer = (Vec<u32>, bool);

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        transaction.read_listed(SMALL).await?;
        let listed = &transaction.state.listed;
        let may_be_listed = |number: &u32| listed.may_contain(CHANNEL, &recipient(*number));
        Ok((self.0.clone().filter(may_be_listed).collect(), listed.is_complete()))
    }
}

/// Adds a recipient, reads on in the list once `other` has added one, and adds a third, all in one transaction.
#[derive(Debug)]
struct AddAroundReading {
    other: Postgres,
}

#[async_trait]
impl WriterRequest for AddAroundReading {
    type Answer = ();

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        let report = |number| {
            let reported = suppression(number);
            vec![SuppressionReport { reported, gone_since: None, at: at(2) }]
        };
        transaction.suppress(report(1)).await?;
        // It ends first, although it has the higher number.
        suppress(&self.other, 2..3).await;
        transaction.read_listed(SMALL).await?;
        transaction.suppress(report(3)).await
    }
}

/// Takes a recipient off the list, reads on in it, and is undone; done again it takes none off, as when another process has listed the
/// recipient for another reason meanwhile.
#[derive(Debug, Default)]
struct TakeOffInVain {
    is_repeated: AtomicBool,
}

#[async_trait]
impl WriterRequest for TakeOffInVain {
    type Answer = ();

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        if self.is_repeated.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        assert!(transaction.lift(&lift(1), at(3)).await?);
        transaction.read_listed(SMALL).await?;
        Err(RunError::Conflict("as if another had changed what it locked"))
    }
}

fn lift(number: u32) -> Lift {
    Lift {
        channel: CHANNEL.parse().unwrap(),
        recipient: recipient(number).into(),
        registered_at: None,
    }
}

fn recipient(number: u32) -> String {
    format!("token-{number:04}")
}

fn suppression(number: u32) -> Suppression {
    Suppression {
        channel: CHANNEL.parse().unwrap(),
        recipient: recipient(number).into(),
        reason: "gone".into(),
        status: 410,
        since: at(1),
    }
}

async fn suppress(store: &Postgres, numbers: Range<u32>) {
    store.suppress(numbers.map(suppression).collect(), at(2)).await.unwrap();
}

async fn read_on(store: &Postgres, numbers: Range<u32>) -> (Vec<u32>, bool) {
    store.work.run(ReadOn(numbers)).await.unwrap()
}

/// Reads until all is read; returns those of the recipients with numbers below 1,000 that may be on the list then.
async fn read_all(store: &Postgres) -> Vec<u32> {
    loop {
        let (may_be_listed, is_complete) = read_on(store, 0..1_000).await;
        if is_complete {
            return may_be_listed;
        }
        assert_eq!(may_be_listed.len(), 1_000, "before that, each of them may be on it");
    }
}

#[tokio::test]
async fn what_is_added_while_the_list_is_read_is_known_once_all_of_it_is() {
    let database = fresh();
    // A server counts transactions of all its databases: what was added since this one began is read once all the same.
    let (beside, mut tasks) = (fresh(), Tasks::default());
    let mut client = connect(&beside, &mut tasks).await;
    let long = client.transaction().await.unwrap();
    long.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    let (store, other) = (open(&database).await, open(&database).await);
    suppress(&other, 500..535).await;
    let mut pages = 0;
    let may_be_listed = loop {
        let (may_be_listed, is_complete) = read_on(&store, 0..1_000).await;
        if is_complete {
            break may_be_listed;
        }
        // One behind which the reading has come, and one before it.
        suppress(&other, pages..pages + 1).await;
        suppress(&other, 900 + pages..901 + pages).await;
        pages += 1;
    };
    assert_eq!(pages, 3);
    let added: Vec<u32> = (0..3).chain(500..535).chain(900..903).collect();
    assert_eq!(may_be_listed, added);
    suppress(&other, 700..701).await;
    assert_eq!(read_on(&store, 699..702).await, (vec![700], true), "and what comes later");
    assert_eq!(store.lift(vec![lift(700)], at(3)).await.unwrap(), [true]);
    assert_eq!(read_on(&store, 699..702).await, (vec![700], true), "it is looked up in vain");
}

#[tokio::test]
async fn an_entry_of_an_early_transaction_that_is_committed_late_is_known() {
    let database = fresh();
    let (store, mut tasks) = (open(&database).await, Tasks::default());
    let mut client = connect(&database, &mut tasks).await;
    assert_eq!(read_all(&store).await, [] as [u32; 0]);
    let early = client.transaction().await.unwrap();
    early.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    suppress(&store, 1..2).await;
    suppress(&store, 2..3).await;
    assert_eq!(read_all(&store).await, [1, 2], "of later transactions");
    let add = "INSERT INTO suppression (channel, recipient, reason, status, since) \
         VALUES ($1, $2, 'gone', 410, 1)";
    early.execute(add, &[&CHANNEL, &recipient(3)]).await.unwrap();
    assert_eq!(read_all(&store).await, [1, 2]);
    early.commit().await.unwrap();
    assert_eq!(read_on(&store, 0..1_000).await, (vec![1, 2, 3], true));
}

#[tokio::test]
async fn what_the_readers_own_transaction_adds_behind_the_reading_is_known() {
    let database = fresh();
    let (store, other) = (open(&database).await, open(&database).await);
    assert_eq!(read_all(&store).await, [] as [u32; 0]);
    store.work.run(AddAroundReading { other }).await.unwrap();
    assert_eq!(read_on(&store, 0..1_000).await, (vec![1, 2, 3], true));
}

#[tokio::test]
async fn a_recipient_that_an_undone_transaction_took_off_is_known() {
    let database = fresh();
    let (store, other) = (open(&database).await, open(&database).await);
    assert_eq!(read_all(&store).await, [] as [u32; 0]);
    suppress(&other, 1..2).await;
    store.work.run(TakeOffInVain::default()).await.unwrap();
    assert_eq!(read_all(&store).await, [1]);
}

#[tokio::test]
async fn after_many_were_added_the_list_is_read_anew() {
    let database = fresh();
    let (store, other) = (open(&database).await, open(&database).await);
    assert_eq!(read_all(&store).await, [] as [u32; 0]);
    suppress(&other, 0..20).await;
    let (may_be_listed, is_complete) = read_on(&store, 0..1_000).await;
    assert_eq!((may_be_listed, is_complete), ((0..20).collect(), true));
    suppress(&other, 20..41).await;
    let (may_be_listed, is_complete) = read_on(&store, 0..1_000).await;
    assert_eq!((may_be_listed.len(), is_complete), (1_000, false));
    assert_eq!(read_all(&store).await, (0..41).collect::<Vec<_>>());
}

#[tokio::test]
async fn after_another_server_took_over_the_list_is_read_anew() {
    let database = fresh();
    let (store, mut tasks) = (open(&database).await, Tasks::default());
    let client = connect(&database, &mut tasks).await;
    suppress(&store, 0..1).await;
    assert_eq!(read_all(&store).await, [0]);
    // As if it had the number of one that was lost with the server before.
    let add = "INSERT INTO suppression VALUES ($1, $2, 'gone', 410, 1, 1)";
    client.execute(add, &[&CHANNEL, &recipient(1)]).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()";
    client.execute(end, &[]).await.unwrap();
    assert_eq!(read_all(&store).await, [0, 1]);
}
