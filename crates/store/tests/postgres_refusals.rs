//! Requests that PostgreSQL refuses: each fails alone.
#![cfg(feature = "postgres")]
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the helpers of a test fail by panicking"
)]

mod support;

use std::sync::Arc;

use futures_util::future::join_all;
use notification::{BatchId, Idempotency, State};
use store::conformance::{Shape, at, claim_all, name, the_books_balance};
use store::{
    Admission, CancelTarget, Ingest, Operations, Outbox, OutboxRow, Postgres, ReadStore, Settled,
    Settlements, StoreError, Suppression, Validator,
};
use support::{accepted, deliver, delivered, fresh, open};
use testbed::Database;

/// Callers whose requests are one group: more than two halvings find the bad one among.
const CALLERS: usize = 9;
/// Their keys, where they have some.
const KEYS: [&str; CALLERS] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"];
/// Index of the caller whose request is refused.
const BAD: usize = 5;
/// Refuses a row of the table by the state of the server that data has, at once or when the transaction is committed.
const REFUSE: &str = "CREATE FUNCTION belfry.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     RAISE EXCEPTION 'no such row' USING ERRCODE = 'data_exception', DETAIL = 'a secret'; END $$;";

#[tokio::test]
async fn a_text_that_the_database_cannot_keep_fails_its_request_alone() {
    let database = fresh();
    let store = open(database.url()).await;
    let shape = |caller| Shape {
        key: Some(if caller == BAD { ("k\0", 1) } else { (KEYS[caller], 1) }),
        ..Shape::default()
    };
    let refusal = ingest_together(&store, shape).await;
    let StoreError::Invalid(words) = refusal else { panic!("{refusal:?}") };
    assert!(words.contains("invalid byte sequence") && words.ends_with("22021"), "{words}");
    the_books_balance(&store).await;
}

#[tokio::test]
async fn a_row_that_a_rule_of_the_database_refuses_fails_its_request_alone() {
    for deferred in ["", "DEFERRABLE INITIALLY DEFERRED"] {
        let database = fresh();
        let store = open(database.url()).await;
        let rule = format!(
            "{REFUSE} CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON belfry.batch {deferred} \
             FOR EACH ROW WHEN (NEW.tenant = 'bad') EXECUTE FUNCTION belfry.refuse()"
        );
        database.query(&rule).unwrap();
        let tenant = |caller| if caller == BAD { "bad" } else { "tenant" };
        let shape = |caller| Shape { tenant: tenant(caller), ..Shape::default() };
        let refusal = ingest_together(&store, shape).await;
        // The detail shows rows, and is withheld from callers.
        assert_eq!(refusal, StoreError::Invalid("no such row, SQLSTATE 22000".to_owned()));
        the_books_balance(&store).await;
    }
}

#[tokio::test]
async fn a_settlement_that_cannot_be_written_keeps_no_other_from_being_written_once() {
    let database = fresh();
    let store = open(database.url()).await;
    let mut chunks = Vec::new();
    for _ in 0..CALLERS {
        Shape::default().ingest(&store, 2).await;
    }
    while chunks.len() < CALLERS {
        chunks.extend(claim_all(&store, 10).await);
    }
    let bad = chunks[BAD].batch;
    refuse_log_of(&database, bad);
    // Some in one request, beside requests of others.
    let shared = store.settle(chunks[3..7].iter().map(delivered).collect());
    let alone = chunks[..3].iter().chain(&chunks[7..]).map(|chunk| deliver(&store, chunk));
    let (shared, alone) = tokio::join!(shared, join_all(alone));
    assert!(alone.iter().all(|settled| *settled == Settled::Applied { remaining: 0 }));
    // No other process has its outcome: this one is not to go on.
    let StoreError::Broken(words) = shared.unwrap_err() else { panic!("not told to end") };
    assert!(words.contains("no such row"), "{words}");
    let totals = store.reader().totals().await.unwrap();
    assert_eq!((totals.delivered, totals.pending), (2 * (CALLERS as u64 - 1), 2));
    for chunk in &chunks {
        let expect = if chunk.batch == bad { State::Claimed } else { State::Delivered };
        let history = store.reader().find(chunk.notification_id(0)).await.unwrap().unwrap();
        assert_eq!(history.state, expect);
        assert_eq!(history.attempts.len(), usize::from(expect == State::Delivered));
    }
    database.query("DROP TRIGGER refuse ON belfry.log").unwrap();
    assert_eq!(deliver(&store, &chunks[BAD]).await, Settled::Applied { remaining: 0 });
    the_books_balance(&store).await;
}

#[tokio::test]
async fn what_cannot_be_cancelled_is_told_and_nothing_else_is_undone() {
    let database = fresh();
    let store = open(database.url()).await;
    let mut ids = Vec::new();
    for _ in 0..CALLERS {
        ids.push(Shape::default().ingest(&store, 1).await[0]);
    }
    refuse_log_of(&database, ids[BAD].batch());
    let cancel = |id| store.cancel(CancelTarget::Notification(id), name("tenant"), at(1));
    let answers = join_all(ids.iter().map(|id| cancel(*id))).await;
    for (caller, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(cancelled) => assert_eq!(cancelled.unwrap().cancelled, 1),
            Err(error) => assert!(matches!(error, StoreError::Invalid(_)) && caller == BAD),
        }
    }
    assert_eq!(store.reader().totals().await.unwrap().cancelled, CALLERS as u64 - 1);
    the_books_balance(&store).await;
}

#[tokio::test]
async fn a_row_of_the_outbox_that_the_database_refuses_is_put_aside_alone() {
    let database = fresh();
    let store = open(database.url()).await;
    for recipient in ["a", "b", "odd", "nobody", "c"] {
        let values = format!("('channel', '{recipient}', '1')");
        let insert = "INSERT INTO belfry.outbox (channel, recipient, content) VALUES";
        database.query(&format!("{insert} {values}")).unwrap();
    }
    // JSON may say a NUL, which no text of PostgreSQL has.
    let validator: Arc<Validator> = Arc::new(|row: OutboxRow, _now| {
        if row.recipient == "nobody" {
            return Err("fallback/0/a\0b: is unknown".to_owned());
        }
        let mut draft = Shape::default().draft(&row.recipient);
        draft.idempotency = (row.recipient == "odd").then(|| Idempotency::of_engine("k\0".into()));
        Ok(draft)
    });
    let (mut taken, mut rejected, mut more) = (0, 0, true);
    while more {
        let drained = store.drain(Arc::clone(&validator), at(0)).await.unwrap();
        (taken, rejected) = (taken + drained.accepted, rejected + drained.rejected);
        more = drained.more;
    }
    assert_eq!((taken, rejected), (3, 2));
    assert_eq!(accepted(store.reader()).await, 3);
    let reasons =
        database.query("SELECT reason FROM belfry.outbox_rejected ORDER BY recipient").unwrap();
    let refused = "the database refuses it: invalid byte sequence for encoding \"UTF8\": 0x00, SQLSTATE 22021";
    assert_eq!(reasons, format!("fallback/0/a\u{fffd}b: is unknown\n{refused}"));
    assert_eq!(*store.failed().borrow(), None);
    the_books_balance(&store).await;
}

#[tokio::test]
async fn a_row_of_the_outbox_that_a_rule_refuses_is_put_aside_and_those_behind_it_are_taken() {
    for state in
        ["raise_exception", "not_null_violation", "foreign_key_violation", "unique_violation"]
    {
        let database = fresh();
        let store = open(database.url()).await;
        let rule = format!(
            "CREATE FUNCTION belfry.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'not this one' USING ERRCODE = '{state}', DETAIL = 'a secret'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON belfry.batch \
             FOR EACH ROW WHEN (NEW.tenant = 'bad') EXECUTE FUNCTION belfry.refuse()"
        );
        database.query(&rule).unwrap();
        for tenant in ["a", "bad", "b", "c"] {
            let insert = "INSERT INTO belfry.outbox (tenant, channel, recipient, content) VALUES";
            database.query(&format!("{insert} ('{tenant}', 'channel', 'to', '1')")).unwrap();
        }
        let validator: Arc<Validator> = Arc::new(|row: OutboxRow, _now| {
            let mut draft = Shape::default().draft(&row.recipient);
            draft.envelope.lane.tenant = name(&row.tenant);
            Ok(draft)
        });
        let (mut rejected, mut more) = (0, true);
        while more {
            let drained = store.drain(Arc::clone(&validator), at(0)).await.unwrap();
            rejected += drained.rejected;
            more = drained.more;
        }
        assert_eq!((accepted(store.reader()).await, rejected), (3, 1), "{state}");
        let reason = database.query("SELECT tenant, reason FROM belfry.outbox_rejected").unwrap();
        assert!(reason.contains("the database refuses it: not this one, SQLSTATE"), "{reason}");
        assert!(reason.starts_with("bad") && !reason.contains("secret"), "{reason}");
        the_books_balance(&store).await;
    }
}

#[tokio::test]
async fn a_lock_in_the_way_of_one_request_is_no_error_of_it_and_holds_up_no_other_for_long() {
    let database = fresh();
    let store = open(database.url()).await;
    let rule = "CREATE SEQUENCE belfry.tries; \
         CREATE FUNCTION belfry.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           PERFORM nextval('belfry.tries'); \
           RAISE EXCEPTION 'it is locked' USING ERRCODE = 'lock_not_available'; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON belfry.batch \
           FOR EACH ROW WHEN (NEW.tenant = 'bad') EXECUTE FUNCTION belfry.refuse()";
    database.query(rule).unwrap();
    let tenant = |caller| if caller == BAD { "bad" } else { "tenant" };
    let shape = |caller| Shape { tenant: tenant(caller), ..Shape::default() };
    let refusal = ingest_together(&store, shape).await;
    assert_eq!(refusal, StoreError::Unavailable("it is locked, SQLSTATE 55P03".to_owned()));
    let tries = database.query("SELECT last_value FROM belfry.tries").unwrap();
    // All of them 51 times, the one alone 51 times, and four times each part between.
    assert!(tries.trim().parse::<u32>().unwrap() <= 2 * 51 + 3 * 4, "{tries}");
    the_books_balance(&store).await;
}

#[tokio::test]
async fn an_outcome_waits_until_the_transaction_in_its_way_has_ended() {
    let database = fresh();
    let store = open(database.url()).await;
    Shape::default().ingest(&store, 2).await;
    let chunks = claim_all(&store, 2).await;
    // More often than a request is repeated, and then no more: a sequence keeps what is rolled back.
    let rule = "CREATE SEQUENCE belfry.tries; \
         CREATE FUNCTION belfry.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF nextval('belfry.tries') > 120 THEN RETURN NEW; END IF; \
           RAISE EXCEPTION 'it is locked' USING ERRCODE = 'lock_not_available'; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON belfry.log FOR EACH ROW EXECUTE FUNCTION belfry.refuse()";
    database.query(rule).unwrap();
    assert_eq!(deliver(&store, &chunks[0]).await, Settled::Applied { remaining: 0 });
    assert_eq!(*store.failed().borrow(), None);
    the_books_balance(&store).await;
}

#[tokio::test]
async fn a_question_that_the_database_refuses_is_refused_and_others_are_answered() {
    let database = fresh();
    let store = open(database.url()).await;
    let ask = |after: &str| store.reader().suppressions(name("channel"), Some(after.into()), 10);
    assert!(matches!(ask("\0").await, Err(StoreError::Invalid(_))));
    assert_eq!(ask("a").await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_recipient_that_cannot_be_looked_up_keeps_no_other_from_being_claimed() {
    let database = fresh();
    let store = open(database.url()).await;
    let suppression = Suppression {
        channel: name("channel"),
        recipient: "listed".into(),
        reason: "by hand".to_owned(),
        status: 0,
        since: at(0),
    };
    store.suppress(vec![suppression], at(0)).await.unwrap();
    let recipients = ["one", "odd\0", "listed", "another"];
    let drafts = recipients.map(|recipient| Shape::default().draft(recipient));
    store.ingest(drafts.to_vec(), at(0)).await.unwrap();
    let chunks = claim_all(&store, 1).await;
    let deliveries = chunks.iter().flat_map(|chunk| &chunk.deliveries);
    let claimed: Vec<&str> = deliveries.map(|delivery| &*delivery.recipient).collect();
    assert_eq!(claimed, ["one", "odd\0", "another"]);
    assert_eq!(*store.failed().borrow(), None);
}

/// Has every caller's notification accepted, all at once: that of the bad one is refused, and those of the others are there once.
/// Gives the refusal.
async fn ingest_together(store: &Postgres, shape: impl Fn(usize) -> Shape) -> StoreError {
    let ingest = |caller| store.ingest(shape(caller).drafts(1), at(0));
    let answers = join_all((0..CALLERS).map(ingest)).await;
    let mut batches: Vec<BatchId> = Vec::new();
    let mut refusal = None;
    for (caller, answer) in answers.into_iter().enumerate() {
        match answer.as_deref() {
            Ok([Admission::Accepted(id)]) => batches.push(id.batch()),
            Err(error) if caller == BAD => refusal = Some(error.clone()),
            other => panic!("caller {caller}: {other:?}"),
        }
    }
    assert_eq!(accepted(store.reader()).await, CALLERS as u64 - 1);
    // They were one transaction, and then its halves.
    assert_eq!(batches[0], batches[3], "those of a half share a batch");
    assert_eq!(*store.failed().borrow(), None);
    let again = store.ingest(Shape { key: None, ..Shape::default() }.drafts(1), at(0)).await;
    assert_eq!(again.unwrap().len(), 1, "the store goes on");
    refusal.unwrap()
}

/// Has the database refuse any line of the log for `batch`.
fn refuse_log_of(database: &Database, batch: BatchId) {
    let rule = format!(
        "{REFUSE} CREATE TRIGGER refuse BEFORE INSERT ON belfry.log \
         FOR EACH ROW WHEN (NEW.batch = {}) EXECUTE FUNCTION belfry.refuse()",
        batch.0
    );
    database.query(&rule).unwrap();
}
