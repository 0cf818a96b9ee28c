//! Interleavings that were found once, or are promised, played on purpose.

use notification::{Disposition, Epoch, Guarantee, State};

use super::super::membership::depart;
use super::super::{broadcast, cancel, claim, ingest, reap, requeue, settle};
use super::book::Book;
use super::calls::{Call, Heard};
use super::cluster::{Cluster, WRITERS, are_blocked};
use super::controls::Event;
use super::finish::STRANDED;
use super::schedule::Schedule;
use crate::conformance::{BroadcastShape, Shape, at, claim_request, name, part};
use crate::{
    Admission, BroadcastOpened, ClaimRequest, Ending, Mark, MarkAnswer, ReadStore as _,
    RecipientGroup, Requeued, StoreError,
};

/// Number of times that the two processes meet, each time in another order of statements.
const MEETINGS: u64 = 100;
/// Batches, one more than are removed in a transaction.
const BATCHES: usize = 2_001;
/// Settings of a server that writes its log when a transaction is committed, and not before.
const LOG_IN_MEMORY: &[(&str, &str)] =
    &[("synchronous_commit", "on"), ("wal_level", "minimal"), ("max_wal_senders", "0")];
/// The number of the transaction that has one.
const NEWEST: &str =
    "SELECT max(backend_xid::text) FROM pg_stat_activity WHERE datname = current_database()";
const LOGGED: &str = "SELECT batch, entries FROM log WHERE batch = ANY($1)";

#[tokio::test]
async fn an_expired_chunk_that_one_process_cancels_while_another_ends_it_ends_once() {
    let mut cluster = Cluster::start().await;
    let (mut cancelled, mut too_late) = (0, 0);
    for seed in 0..MEETINGS {
        let mut schedule = Schedule::begin(&mut cluster, seed).await;
        let shape = Shape { expires_at: Some(30_000), ..Shape::default() };
        let ingest = schedule.caller().ingest_like(0, &shape);
        schedule.interleave(vec![ingest]).await;
        schedule.book.now = 40_000;
        let claims = [schedule.caller().claim(0), schedule.caller().claim(1)];
        let cancels = [schedule.caller().cancel_one(0), schedule.caller().cancel_one(1)];
        let calls = claims.into_iter().chain(cancels.into_iter().flatten()).collect();
        schedule.interleave(calls).await;
        let ended = schedule.book.ended.values();
        cancelled += ended.filter(|(state, _)| *state == State::Cancelled).count();
        too_late += schedule.book.too_late.len();
        schedule.conclude().await.unwrap_or_else(|finding| panic!("{seed}: {finding}"));
    }
    assert!(cancelled > 0 && too_late > 0, "each comes first: {cancelled}, {too_late}");
}

#[tokio::test]
async fn a_broadcast_that_is_partly_removed_with_its_process_cannot_be_sealed() {
    let mut cluster = Cluster::start().await;
    let mut schedule = Schedule::begin(&mut cluster, 1).await;
    let (intake, work) = (schedule.engines[0].intake.clone(), schedule.engines[1].work.clone());
    let opening = intake.run(broadcast::OpenBroadcast(BroadcastShape::default().draft(), at(0)));
    let opened = schedule.through(opening).await;
    let Ok(BroadcastOpened::Opened(id)) = opened else { panic!("{opened:?}") };
    let group = |number: usize| {
        let recipients = vec!["one".into()];
        RecipientGroup { recipients, ..RecipientGroup::new(format!("there-{number}").into()) }
    };
    let groups = (0..BATCHES).map(group).collect();
    let adding = intake.run(broadcast::AddRecipients { broadcast: id, groups, now: at(0) });
    schedule.through(adding).await.unwrap();
    schedule.cluster.happen(Event::Silence(0), &schedule.engines).await;
    let first = schedule.through(work.run(reap::ReapWorker { now: at(1) })).await.unwrap();
    assert_eq!(first.abandoned_broadcasts, 0, "one transaction does not remove all of it");
    // It was only slow, and has no notice of that.
    schedule.cluster.happen(Event::Beat(0), &schedule.engines).await;
    let sealed = schedule.through(intake.run(broadcast::SealBroadcast(id, at(2)))).await;
    assert_eq!(sealed, Err(StoreError::NoOpenBroadcast(id)));
    schedule.cluster.happen(Event::Silence(0), &schedule.engines).await;
    let rest = schedule.through(work.run(reap::ReapWorker { now: at(3) })).await.unwrap();
    assert_eq!(rest.abandoned_broadcasts, 1);
    // The writers end when their last handles are gone.
    drop((intake, work));
    schedule.conclude().await.unwrap();
}

#[tokio::test]
async fn who_leaves_while_a_claim_is_committed_is_reaped_with_what_it_holds() {
    let mut cluster = Cluster::start().await;
    let mut session = cluster.connect().await;
    let mut schedule = Schedule::begin(&mut cluster, 1).await;
    let ingest = schedule.caller().ingest_like(0, &Shape::default());
    schedule.interleave(vec![ingest]).await;
    schedule.cluster.give_all(&schedule.engines[0]).await;
    let (worker, leaver) = (schedule.engines[0].worker(), session.backend);
    let claim = schedule.caller().claim(0);
    let claimer = schedule.go_until(claim, "COMMIT").await;
    let leaving = async move { depart(&mut session, worker, Ending::Left).await.unwrap() };
    let mut leaving = std::pin::pin!(leaving);
    let control = &schedule.cluster.control;
    while !are_blocked(control, &[leaver], &[claimer].into()).await {
        assert!(futures_util::poll!(&mut leaving).is_pending(), "it waits for the claim");
    }
    schedule.interleave(Vec::new()).await;
    leaving.await;
    let stranded: i64 = schedule.cluster.ask(STRANDED).await.get(0);
    assert_eq!(stranded, 0, "held by no worker that is known");
    schedule.conclude().await.unwrap();
}

#[tokio::test]
async fn a_chunk_that_is_locked_when_its_lease_ends_is_looked_at_again_soon() {
    let mut cluster = Cluster::start().await;
    let mut schedule = Schedule::begin(&mut cluster, 1).await;
    let ingest = schedule.caller().ingest_like(0, &Shape::default());
    schedule.interleave(vec![ingest]).await;
    schedule.cluster.give_all(&schedule.engines[0]).await;
    let work = schedule.engines[0].work.clone();
    let claim = |now| {
        let lease = std::time::Duration::from_mins(1);
        work.run(claim::ClaimChunks(ClaimRequest { lease, ..claim_request(now) }))
    };
    assert_eq!(schedule.through(claim(0)).await.unwrap().chunks.len(), 1);
    let lock = "BEGIN; SELECT FROM chunk FOR UPDATE";
    schedule.cluster.control.client.batch_execute(lock).await.unwrap();
    let meanwhile = schedule.through(claim(60_000)).await.unwrap();
    assert_eq!((meanwhile.chunks.len(), meanwhile.next_at), (0, Some(at(61_000))));
    schedule.cluster.control.client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(schedule.through(claim(61_000)).await.unwrap().chunks.len(), 1);
    drop(work);
}

/// The state after an outage of the server, when work goes on before the worker has renewed its lease.
#[tokio::test]
async fn what_an_overdue_worker_holds_is_begun_when_it_has_renewed_its_lease() {
    let mut cluster = Cluster::start().await;
    let mut schedule = Schedule::begin(&mut cluster, 1).await;
    let shape = Shape { guarantee: Guarantee::AtMostOnce, ..Shape::default() };
    let ingest = schedule.caller().ingest_like(0, &shape);
    schedule.interleave(vec![ingest]).await;
    schedule.cluster.give_all(&schedule.engines[0]).await;
    let [work, other] = [0, 1].map(|engine: usize| schedule.engines[engine].work.clone());
    let claimed = schedule.through(work.run(claim::ClaimChunks(claim_request(0)))).await.unwrap();
    let (chunk, through) = (&claimed.chunks[0], 0);
    let mark = Mark { chunk: chunk.id, epoch: chunk.epoch, through };
    let begin = |mark| work.run(settle::BeginDeliveries(vec![mark]));
    for expect in [MarkAnswer::Granted, MarkAnswer::Stale] {
        schedule.cluster.happen(Event::Silence(0), &schedule.engines).await;
        assert_eq!(schedule.through(begin(mark)).await.unwrap(), [MarkAnswer::Overdue]);
        let old = Mark { epoch: Epoch(chunk.epoch.0 - 1), ..mark };
        assert_eq!(schedule.through(begin(old)).await.unwrap(), [MarkAnswer::Stale]);
        if expect == MarkAnswer::Stale {
            schedule.through(other.run(reap::ReapWorker { now: at(1) })).await.unwrap();
        }
        schedule.cluster.happen(Event::Beat(0), &schedule.engines).await;
        assert_eq!(schedule.through(begin(mark)).await.unwrap(), [expect]);
    }
    drop((work, other));
    schedule.conclude().await.unwrap();
}

/// The server gives the number of the transaction that it lost to the next one. That of another session is committed, or still
/// under way, when the writer queries it.
#[tokio::test]
async fn a_commit_that_the_server_lost_in_a_crash_is_done_again_whoever_has_its_number() {
    for ends_first in [true, false] {
        let mut cluster = Cluster::start_with(LOG_IN_MEMORY).await;
        let mut schedule = Schedule::begin(&mut cluster, 1).await;
        // On a page of the log that no other transaction has a reason to write.
        schedule.cluster.ask("SELECT pg_switch_wal()::text").await;
        let ingest = schedule.caller().ingest_like(0, &Shape::default());
        schedule.go_until(ingest, "COMMIT").await;
        let lost: String = schedule.cluster.ask(NEWEST).await.get(0);
        schedule.cluster.crash().await;
        let other = schedule.cluster.connect().await;
        other.client.batch_execute("BEGIN").await.unwrap();
        let xid = other.client.query_one("SELECT pg_current_xact_id()::xid::text", &[]).await;
        assert_eq!(xid.unwrap().get::<_, String>(0), lost);
        if ends_first {
            other.client.batch_execute("COMMIT").await.unwrap();
        }
        schedule.finish_calls().await;
        assert!(!schedule.book.accepted.is_empty(), "it is answered");
        drop(other);
        schedule.conclude().await.unwrap();
    }
}

/// The one that cancels has its number of a transaction first, from the rest of the batch that it locks, and writes last: so the
/// log has the end before the requeue.
#[tokio::test]
async fn one_that_is_requeued_while_it_is_cancelled_can_be_read() {
    let mut cluster = Cluster::start().await;
    let mut schedule = Schedule::begin(&mut cluster, 1).await;
    let [one, other] = [0, 1].map(|engine: usize| schedule.engines[engine].work.clone());
    let drafts = ["one", "other"].map(|to| Shape::default().draft(to)).to_vec();
    let ingest = ingest::IngestDrafts { drafts, now: at(0) };
    let intake = schedule.engines[0].intake.clone();
    let admissions = schedule.through(intake.run(ingest)).await.unwrap();
    let [Admission::Accepted(id), _] = admissions[..] else { panic!("{admissions:?}") };
    schedule.cluster.give_all(&schedule.engines[0]).await;
    let claim = claim::ClaimChunks(claim_request(0));
    let chunk = schedule.through(one.run(claim)).await.unwrap().chunks.remove(0);
    let settlement = part(&chunk, &[id.index()], Disposition::Ended(State::Dead));
    schedule.through(one.run(settle::SettleChunks([settlement].into()))).await.unwrap();

    let answer = Box::pin(async move {
        let tenant = name("tenant");
        let cancelled = other.run(cancel::CancelNotification { id, tenant, now: at(1) }).await;
        assert_eq!(cancelled.unwrap().map(|it| it.cancelled), Some(1));
        Box::new(|_: &mut Book| {}) as Heard
    });
    let call = Call { actor: WRITERS + 1, words: "cancel".to_owned(), answer };
    schedule.go_until(call, LOGGED).await;
    let tenant = name("tenant");
    let request = requeue::RequeueNotifications {
        ids: vec![id],
        states: [State::Dead].into(),
        tenant,
        now: at(2),
    };
    let requeued = schedule.through(one.run(request)).await.unwrap();
    assert_eq!(requeued, [Requeued::Requeued]);
    schedule.finish_calls().await;
    let history = schedule.cluster.reader.find(id).await.unwrap().unwrap();
    assert_eq!(history.state, State::Cancelled);
    let states: Vec<State> = history.attempts.iter().map(|it| it.state).collect();
    assert_eq!(states, [State::Dead, State::Pending, State::Cancelled]);
    drop((one, intake));
}
