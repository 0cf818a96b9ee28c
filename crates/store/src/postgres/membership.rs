//! This process as a worker of the cluster: alive while it renews its lease on itself, owner of its share of the partitions.
//!
//! A worker is a row that is renewed at every beat, in the database's time. An expired worker is reaped by the first process
//! that finds it. A worker that was stopped or cut off for that long finds its row gone and joins anew under another number;
//! until then its [`WorkerDeadline`] is over, and it starts no attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow::{Backoff, Clock, WorkerDeadline};
use notification::limits;
use tokio::sync::{Notify, watch};
use tokio_postgres::Error;

use super::Options;
use super::connection::{Connector, PostgresSession};
use super::errors;
use super::keys::KnownKeys;
use super::notify::NotifyPolicy;
use super::pause_view::KnownPauses;
use super::reap::{BY_A_FAULT, IN_ORDER, ReapWorker};
use super::request::WriterHandle;
use super::settle_rate::SettleRate;
use super::store_id;
use super::time::{DatabaseTime, now_micros};
use super::transaction::NOTIFY_CLUSTER;
use super::writer_state::Membership;
use crate::{Ending, Peers, Recovery, StoreError};

/// This process as a worker of the cluster.
#[derive(Debug)]
pub(super) struct Worker {
    connector: Connector,
    session: Option<PostgresSession>,
    options: Options,
    pub(super) membership: Membership,
    pub(super) store_id: u16,
    time: DatabaseTime,
    pub(super) notify: Arc<NotifyPolicy>,
    pub(super) deadline: WorkerDeadline,
    clock: Clock,
    random: fastrand::Rng,
    /// Set once the writers are there.
    pub(super) stats: Option<WorkerParts>,
    pace: SettleRate,
    pub(super) pauses: KnownPauses,
    pub(super) keys: KnownKeys,
    pub(super) peers: watch::Sender<Peers>,
    /// The time since boot from which on this process and the database have known of each other, and of nothing odd.
    linked_since: Option<Duration>,
    /// Time since boot at which the last answered beat was sent.
    beaten_at: Duration,
    /// True if the clocks were found to be apart.
    is_apart: bool,
}

/// The share of work that this process takes, until it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// The worker takes its share of the partitions.
    Work,
    /// The worker only finishes the work it has.
    Finish,
    /// The worker leaves, with this ending.
    Leave(Ending),
}

/// The parts of the store that a worker needs: its count of settled deliveries, and the writer that reaps.
#[derive(Debug)]
pub(super) struct WorkerParts {
    pub(super) settled: Arc<AtomicU64>,
    pub(super) work: WriterHandle,
    /// Wakes the stages that wait for work.
    pub(super) changes: watch::Sender<u64>,
    /// Wakes the task that makes the slices of broadcasts.
    pub(super) waiting: Arc<Notify>,
}

/// The state of the cluster at a beat.
#[derive(Debug)]
struct ClusterBeat {
    /// Workers whose leases are over.
    expired: i64,
    /// Time until the next lease of another worker ends, unless it is renewed: it is looked at in time.
    next_end: Option<Duration>,
}

const JOIN: &str = "INSERT INTO worker (name, version, produces, consumes, listen, alive_until, backend) \
     VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6 * interval '1 millisecond', pg_backend_pid()) RETURNING id";
const RENEW: &str = concat!(
    "UPDATE worker SET alive_until = clock_timestamp() + $2 * interval '1 millisecond', is_standing_by = $3, \
     settled = $4, settled_per_second = $5, backend = pg_backend_pid() WHERE id = $1 RETURNING ",
    now_micros!()
);
const LOOK: &str = "SELECT count(*) FILTER (WHERE alive_until < clock_timestamp()), \
     count(*) FILTER (WHERE alive_until >= clock_timestamp() AND produces AND NOT is_standing_by), \
     count(*) FILTER (WHERE alive_until >= clock_timestamp() AND consumes AND NOT is_standing_by), \
     count(*) FILTER (WHERE alive_until >= clock_timestamp() AND produces AND NOT is_standing_by AND id < $1), \
     extract(epoch FROM min(alive_until) FILTER (WHERE alive_until >= clock_timestamp() AND id <> $1) \
       - clock_timestamp())::float8, count(*) FILTER (WHERE id <> $1), \
     EXISTS (SELECT FROM unreleased WHERE passed IS NOT NULL) OR EXISTS (SELECT FROM resuming), (SELECT value FROM meta WHERE key = 'pauses'), \
     count(*) FILTER (WHERE id <> $1 AND consumes), (SELECT value FROM meta WHERE key = 'keys') FROM worker";
/// A partition is free when it has no owner, or one that is not among the workers any more: a statement of a reaped worker
/// may have been under way for long. Only a process that is a worker now takes one.
const ACQUIRE: &str = "UPDATE partition SET owner = $1, epoch = epoch + 1 WHERE id IN ( \
     SELECT id FROM partition WHERE owner IS NULL OR owner NOT IN (SELECT worker.id FROM worker) \
     ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) AND EXISTS (SELECT FROM worker WHERE worker.id = $1)";
const RELEASE: &str = "UPDATE partition SET owner = NULL, epoch = epoch + 1 WHERE id IN ( \
     SELECT id FROM partition WHERE owner = $1 ORDER BY id DESC LIMIT $2 FOR UPDATE)";
const OWNED: &str = "SELECT id FROM partition WHERE owner = $1 ORDER BY id";
/// Tokens of sessions that have ended long ago: one that is looked for is younger, unless the database was away for so long.
const FORGET_TOKENS: &str =
    "DELETE FROM commit_token WHERE at < clock_timestamp() - interval '7 days'";
const LOCK_SELF: &str = "SELECT FROM worker WHERE id = $1 FOR UPDATE";
const END_SELF: &str = "UPDATE worker SET alive_until = clock_timestamp() - interval '1 second', ended = $2 \
     WHERE id = $1 AND EXISTS (SELECT FROM chunk WHERE worker = $1 AND lease_until IS NOT NULL)";
/// Time that a process must have been connected before it reaps workers: after an outage all of them seem expired.
const REAP_AFTER: Duration = limits::WORKER_BEAT.saturating_mul(2);
/// Difference of two clocks beyond which it is logged.
const DRIFT_MAX: Duration = Duration::from_secs(1);
const PARTITIONS: usize = limits::PARTITIONS as usize;

// === impl Worker ===

impl Worker {
    /// Registers this process, and takes the free partitions of its share.
    pub(super) async fn join(
        connector: &Connector,
        options: &Options,
        time: DatabaseTime,
        mut random: fastrand::Rng,
    ) -> Result<Self, StoreError> {
        let session = connector.connect(None).await?;
        let store_id = store_id::draw(&session, random.i64(1..1 << 12)).await?;
        let asked = time.boot();
        let row = session.client.query_one(concat!("SELECT ", now_micros!()), &[]).await?;
        time.learn(asked, row.try_get(0)?);
        let clock = time.clock();
        let mut worker = Self {
            connector: connector.clone(),
            session: Some(session),
            options: options.clone(),
            membership: Membership::default(),
            store_id,
            time,
            notify: Arc::new(NotifyPolicy::new(clock)),
            // No attempt may start before the first beat is answered.
            deadline: WorkerDeadline::passed(),
            clock,
            random,
            stats: None,
            pace: SettleRate::new(clock.monotonic()),
            pauses: KnownPauses::default(),
            keys: KnownKeys::default(),
            peers: watch::Sender::default(),
            linked_since: None,
            beaten_at: clock.boot(),
            is_apart: false,
        };
        worker.beat(false).await?;
        // A beat that took too long is no error of its own, but has left no session.
        if worker.session.is_none() {
            let late = "it takes longer than a worker may to say that it is alive";
            return Err(StoreError::Unavailable(late.to_owned()));
        }
        Ok(worker)
    }

    /// Beats until it is to leave, and then leaves. `cluster` wakes it when workers come or go. A beat that fails is how a
    /// process with nothing to do notices that the database is away.
    pub(super) async fn run(
        mut self,
        membership: watch::Sender<Membership>,
        available: watch::Sender<bool>,
        cluster: Arc<Notify>,
        mut intent: watch::Receiver<Intent>,
    ) {
        let backoff = Backoff::new(Duration::from_millis(100), limits::WORKER_BEAT);
        let mut failures = 0;
        let ending = loop {
            let intended = *intent.borrow_and_update();
            if let Intent::Leave(ending) = intended {
                break ending;
            }
            let beaten = self.beat(intended == Intent::Finish).await;
            let is_linked = beaten.is_ok() && self.session.is_some();
            available.send_if_modified(|told| std::mem::replace(told, is_linked) != is_linked);
            let now = self.clock.boot();
            self.linked_since = is_linked.then(|| self.linked_since.unwrap_or(now));
            // After an outage all workers seem expired, and most are about to renew their leases.
            let knows =
                self.linked_since.is_some_and(|since| now.saturating_sub(since) >= REAP_AFTER);
            let wait = match beaten {
                Ok(beat) => {
                    failures = 0;
                    // A beat that was not answered to its end may have joined anew, and have seen no pauses.
                    if is_linked {
                        self.tell(&membership);
                    }
                    if knows {
                        self.reap(beat.expired).await;
                    }
                    beat.next_end.map_or(limits::WORKER_BEAT, |end| end.min(limits::WORKER_BEAT))
                }
                Err(error) => {
                    self.session = None;
                    failures += 1;
                    tracing::warn!(error = %errors::in_words(&error), "this process cannot say that it is alive");
                    backoff.map_or(limits::WORKER_BEAT, |backoff| {
                        backoff.delay(failures, None, &mut self.random)
                    })
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // A partition that was given back, or a pause, does not wait for the next beat.
                () = cluster.notified() => {}
                () = self.pauses.settled() => {}
                _ = intent.changed() => {}
            }
        };
        if let Err(error) = self.leave(ending).await {
            tracing::warn!(error = %errors::in_words(&error), "left without saying so: other processes find out");
        }
    }

    /// Passes on where this process stands. With other partitions comes other work.
    fn tell(&self, membership: &watch::Sender<Membership>) {
        let is_told = membership.send_if_modified(|told| {
            let is_new = *told != self.membership;
            told.clone_from(&self.membership);
            is_new
        });
        if let Some(stats) = self.stats.as_ref().filter(|_| is_told) {
            stats.changes.send_modify(|change| *change += 1);
        }
    }

    /// Renews the lease of this process on itself, and brings its share of partitions in order. A beat that takes too long has
    /// lost its connection.
    async fn beat(&mut self, is_standing_by: bool) -> Result<ClusterBeat, Error> {
        // Taken before it is sent: the database counts the lease from when the beat arrives, so the deadline passes here before
        // the lease ends there.
        let sent_at = self.clock.boot();
        // All processes may have been asleep, as after an outage.
        if sent_at.saturating_sub(self.beaten_at) > limits::WORKER_LEASE / 2 {
            self.linked_since = None;
        }
        let session = match self.session.take() {
            Some(session) => session,
            None => self.connector.connect(None).await?,
        };
        let beat =
            tokio::time::timeout(limits::WORKER_LEASE / 2, self.say(&session, is_standing_by));
        let beat = match beat.await {
            Ok(beat) => beat?,
            // The session is dropped with its silence.
            Err(_elapsed) => return Ok(ClusterBeat { expired: 0, next_end: None }),
        };
        // After a worker was reaped and has joined anew, the former number ends with this: work that was started under it is not
        // its own.
        self.deadline.extend(
            self.membership.worker.cast_unsigned(),
            sent_at,
            limits::WORKER_LEASE / 2,
        );
        (self.session, self.beaten_at) = (Some(session), sent_at);
        Ok(beat)
    }

    async fn say(
        &mut self,
        session: &PostgresSession,
        is_standing_by: bool,
    ) -> Result<ClusterBeat, Error> {
        let client = &session.client;
        let lease = millis(limits::WORKER_LEASE);
        let settled = self.stats.as_ref().map_or(0, |stats| stats.settled.load(Ordering::Relaxed));
        let rate = self.pace.measure(self.clock.monotonic(), settled);
        let renew = session.prepared(RENEW).await?;
        let worker = self.membership.worker;
        let asked = self.time.boot();
        let known = client
            .query_opt(&renew, &[&worker, &lease, &is_standing_by, &settled.cast_signed(), &rate])
            .await?;
        if let Some(row) = &known {
            let was_set = self.time.learn(asked, row.try_get(0)?);
            self.compare_clocks(was_set);
        } else {
            let Options { name, version, produces, consumes, listen, .. } = &self.options;
            let join = session.prepared(JOIN).await?;
            let row = client
                .query_one(&join, &[name, version, produces, consumes, listen, &lease])
                .await?;
            // Without partitions: those of the former number were freed by the process that removed it.
            self.membership = Membership { worker: row.try_get(0)?, ..Membership::default() };
            self.notify_cluster(session).await?;
            // A session removes only its own tokens, and joining is seldom enough to remove what ended sessions left.
            client.execute(FORGET_TOKENS, &[]).await?;
            tracing::info!(worker = self.membership.worker, "joined the cluster");
        }
        let look = session.prepared(LOOK).await?;
        let row = client.query_one(&look, &[&self.membership.worker]).await?;
        let count =
            |column| Ok::<_, Error>(usize::try_from(row.try_get::<_, i64>(column)?).unwrap_or(0));
        (self.membership.producers, self.membership.consumers) = (count(1)?, count(2)?);
        // Before any partition is given back to them. Overdue workers count: one that was only slow goes on listening.
        self.notify.set_has_listeners(count(5)? > 0);
        // Before this beat moves the deadline: another process trusts that each of the others knows of it, or starts no attempt.
        let peers = Peers { worker: self.membership.worker, are_there: count(8)? > 0 };
        self.peers.send_if_modified(|told| std::mem::replace(told, peers) != peers);
        // Before the pauses, whose version says that this process goes by the keys as well.
        self.keys.follow(session, row.try_get(9)?).await?;
        // Before there is anything to claim: the pauses are read by then, if this beat gets no further.
        let claims = self.stats.as_ref().map(|stats| &stats.work);
        let position = (self.membership.worker, row.try_get(7)?);
        let has_new = self.pauses.follow(session, position, claims).await?;
        if let Some(stats) = self.stats.as_ref().filter(|_| has_new) {
            stats.changes.send_modify(|change| *change += 1);
        }
        if self.options.produces {
            let share =
                if is_standing_by { 0 } else { share(self.membership.producers, count(3)?) };
            self.balance(session, share).await?;
        }
        // The process that began with the slices may be gone.
        let waits: bool = row.try_get(6)?;
        if let Some(stats) = self.stats.as_ref().filter(|_| waits) {
            stats.waiting.notify_one();
        }
        let next_end: Option<f64> = row.try_get(4)?;
        // A little later, so that it is over then.
        let next_end =
            next_end.and_then(|seconds| Duration::try_from_secs_f64(seconds + 0.01).ok());
        Ok(ClusterBeat { expired: row.try_get(0)?, next_end })
    }

    /// Looks whether the database's clock was set, by milliseconds, and whether this machine's differs. Says so once.
    fn compare_clocks(&mut self, was_set: i64) {
        if is_apart(was_set) {
            tracing::warn!(
                ahead_ms = was_set,
                "the database's clock was set: this process follows"
            );
            // By a clock that was set ahead all workers seem expired, as after an outage.
            self.linked_since = None;
        }
        let ahead_ms = self.time.ahead();
        let is_apart = is_apart(ahead_ms);
        if is_apart && !self.is_apart {
            tracing::warn!(
                ahead_ms,
                "the clocks of the database and of this machine differ: this process goes by the database's; synchronize both"
            );
        }
        self.is_apart = is_apart;
    }

    /// Takes free partitions up to `share`, and gives back what exceeds it.
    async fn balance(&mut self, session: &PostgresSession, share: usize) -> Result<(), Error> {
        let client = &session.client;
        let worker = self.membership.worker;
        let owned = owned(session, worker).await?;
        let limit = |count: usize| i64::try_from(count).unwrap_or(0);
        if owned.len() < share {
            let acquire = session.prepared(ACQUIRE).await?;
            client.execute(&acquire, &[&worker, &limit(share - owned.len())]).await?;
        } else if owned.len() > share {
            let release = session.prepared(RELEASE).await?;
            client.execute(&release, &[&worker, &limit(owned.len() - share)]).await?;
            // Another producer takes them now, and not only at its next beat.
            self.notify_cluster(session).await?;
        }
        // Asked again and not computed: rows that another process has locked were skipped.
        let owned_now = self::owned(session, worker).await?;
        if owned_now != self.membership.partitions {
            tracing::info!(worker, partitions = owned_now.len(), "owns other partitions");
        }
        self.membership.partitions = owned_now;
        Ok(())
    }

    /// Reaps, if `expired` workers were counted.
    async fn reap(&self, expired: i64) {
        let Some(stats) = self.stats.as_ref().filter(|_| expired > 0) else { return };
        let now = self.time.now();
        // A writer that is held up must not keep this process from saying that it is alive.
        match tokio::time::timeout(limits::WORKER_BEAT, stats.work.run(ReapWorker { now })).await {
            Ok(Ok(recovery)) => {
                let Recovery { returned, suspected, in_doubt, quarantined, abandoned_broadcasts } =
                    recovery;
                tracing::warn!(
                    returned,
                    suspected,
                    in_doubt,
                    quarantined,
                    abandoned_broadcasts,
                    "took over from workers that are gone"
                );
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot take over from workers that are gone"),
            Err(_elapsed) => tracing::warn!("taking over from workers that are gone takes long"),
        }
    }

    /// Gives everything back and removes this process.
    async fn leave(&mut self, ending: Ending) -> Result<(), Error> {
        // As one that stands by, so that the partitions go back first and the others claim from them at once.
        self.beat(true).await?;
        let Some(mut session) = self.session.take() else { return Ok(()) };
        // Before the row goes: from then on another process may give away what this one holds.
        self.deadline.pass();
        depart(&mut session, self.membership.worker, ending).await?;
        self.notify_cluster(&session).await
    }

    /// Notifies the other processes that a worker came or went. Without the notification they see it at their next beat.
    async fn notify_cluster(&self, session: &PostgresSession) -> Result<(), Error> {
        match session.client.execute(NOTIFY_CLUSTER, &[]).await {
            Err(error) if self.notify.mute_after(&error) => Ok(()),
            told => told.map(drop),
        }
    }
}

/// Number of partitions of the producer that joined after `rank` other ones: as many as each of them, or one less. The shares
/// together are all partitions.
fn share(producers: usize, rank: usize) -> usize {
    let producers = producers.max(1);
    PARTITIONS / producers + usize::from(rank < PARTITIONS % producers)
}

async fn owned(session: &PostgresSession, worker: i64) -> Result<Vec<i16>, Error> {
    let select = session.prepared(OWNED).await?;
    let rows = session.client.query(&select, &[&worker]).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Removes a worker. One that still holds chunks is left to be reaped by another process: its lease on itself ends here. A claim
/// of it that is being committed holds its row, and is waited for.
pub(super) async fn depart(
    session: &mut PostgresSession,
    worker: i64,
    ending: Ending,
) -> Result<(), Error> {
    let ended = if ending == Ending::Faulted { BY_A_FAULT } else { IN_ORDER };
    let transaction = session.client.transaction().await?;
    transaction.execute(LOCK_SELF, &[&worker]).await?;
    if transaction.execute(END_SELF, &[&worker, &ended]).await? == 0 {
        transaction.execute("DELETE FROM worker WHERE id = $1", &[&worker]).await?;
    }
    transaction.commit().await
}

fn is_apart(millis: i64) -> bool {
    Duration::from_millis(millis.unsigned_abs()) > DRIFT_MAX
}

#[expect(clippy::cast_precision_loss, reason = "some seconds")]
fn millis(span: Duration) -> f64 {
    span.as_millis() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_differ_by_one_at_most_and_make_up_the_whole() {
        for producers in 1..=100 {
            let shares: Vec<usize> = (0..producers).map(|rank| share(producers, rank)).collect();
            assert_eq!(shares.iter().sum::<usize>(), PARTITIONS);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{shares:?}");
        }
    }
}
