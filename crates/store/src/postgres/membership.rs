//! This process among the others: alive while it says so, owner of its share of the partitions.
//!
//! A worker is a row that is renewed at every beat, in the database's time. Whoever finds one overdue buries it. A worker
//! that was stopped or cut off for that long finds its row gone and joins anew under another number; until then its
//! [`Tenure`] is over, and it starts nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow::{Backoff, Clock, Tenure};
use notification::{Timestamp, limits};
use tokio::sync::{Notify, watch};
use tokio_postgres::Error;

use super::Options;
use super::bury::Bury;
use super::connection::{Connector, Session};
use super::desk::Membership;
use super::errors;
use super::writer::Desktop;
use crate::StoreError;

/// This process as a worker.
#[derive(Debug)]
pub(super) struct Member {
    connector: Connector,
    session: Option<Session>,
    options: Options,
    standing: Membership,
    realm: u16,
    time_offset: i64,
    tenure: Tenure,
    clock: Clock,
    random: fastrand::Rng,
    stats: Option<Stats>,
    settled_before: u64,
}

/// What this process means to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// Its share.
    Work,
    /// Only to finish what it has.
    Finish,
    /// Nothing any more.
    Leave,
}

/// Where a member sees what it has done, and whom it asks to bury others.
#[derive(Debug)]
pub(super) struct Stats {
    pub(super) settled: Arc<AtomicU64>,
    pub(super) work: Desktop,
    /// Wakes who waits for work.
    pub(super) changes: watch::Sender<u64>,
}

/// What a beat found.
#[derive(Debug)]
struct Beat {
    is_known: bool,
    dead: i64,
}

const JOIN: &str = "INSERT INTO worker (name, version, produces, consumes, listen, alive_until) \
     VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6 * interval '1 millisecond') RETURNING id";
const RENEW: &str = "UPDATE worker SET alive_until = clock_timestamp() + $2 * interval '1 millisecond', \
     is_leaving = $3, settled = $4, settled_per_second = $5 \
     WHERE id = $1 RETURNING id";
const LOOK: &str = "SELECT count(*) FILTER (WHERE alive_until < clock_timestamp()), \
     count(*) FILTER (WHERE alive_until >= clock_timestamp() AND produces AND NOT is_leaving), \
     count(*) FILTER (WHERE alive_until >= clock_timestamp() AND consumes AND NOT is_leaving) FROM worker";
/// A free partition is anybody's, one whose owner is alive is its owner's.
const ACQUIRE: &str = "UPDATE partition SET owner = $1, epoch = epoch + 1 WHERE id IN ( \
     SELECT id FROM partition WHERE owner IS NULL ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)";
const RELEASE: &str = "UPDATE partition SET owner = NULL, epoch = epoch + 1 WHERE id IN ( \
     SELECT id FROM partition WHERE owner = $1 ORDER BY id DESC LIMIT $2 FOR UPDATE)";
const OWNED: &str = "SELECT id FROM partition WHERE owner = $1 ORDER BY id";
const PARTITIONS: usize = limits::PARTITIONS as usize;

// === impl Member ===

impl Member {
    /// Registers this process, and takes what is free of its share.
    pub(super) async fn join(
        connector: &Connector,
        options: &Options,
        clock: Clock,
        mut random: fastrand::Rng,
    ) -> Result<Self, StoreError> {
        let session = connector.connect(None).await?;
        let realm = stored_realm(&session, random.i64(1..1 << 12)).await?;
        let row = session
            .client
            .query_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8", &[])
            .await?;
        let wall = i64::try_from(clock.wall().as_millis()).unwrap_or(i64::MAX);
        let time_offset = row.try_get::<_, i64>(0)? - wall;
        let mut member = Self {
            connector: connector.clone(),
            session: Some(session),
            options: options.clone(),
            standing: Membership::default(),
            realm,
            time_offset,
            tenure: Tenure::ended(clock.monotonic()),
            clock,
            random,
            stats: None,
            settled_before: 0,
        };
        member.beat(false).await?;
        Ok(member)
    }

    pub(super) fn standing(&self) -> Membership {
        self.standing.clone()
    }

    pub(super) fn realm(&self) -> u16 {
        self.realm
    }

    pub(super) fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    pub(super) fn time_offset(&self) -> i64 {
        self.time_offset
    }

    pub(super) fn count(&mut self, stats: Stats) {
        self.stats = Some(stats);
    }

    /// Beats until it is to leave, and then leaves. `cluster` wakes it when others come or go. A beat that fails is how a
    /// process with nothing to do notices that the database is away.
    pub(super) async fn run(
        mut self,
        standing: watch::Sender<Membership>,
        available: watch::Sender<bool>,
        cluster: Arc<Notify>,
        mut intent: watch::Receiver<Intent>,
    ) {
        let backoff = Backoff::new(Duration::from_millis(100), limits::WORKER_BEAT);
        let mut failures = 0;
        loop {
            let intended = *intent.borrow_and_update();
            if intended == Intent::Leave {
                break;
            }
            let beaten = self.beat(intended == Intent::Finish).await;
            let is_linked = beaten.is_ok() && self.session.is_some();
            available.send_if_modified(|told| std::mem::replace(told, is_linked) != is_linked);
            let wait = match beaten {
                Ok(beat) => {
                    failures = 0;
                    self.tell(&standing);
                    self.bury(beat.dead).await;
                    limits::WORKER_BEAT
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
                () = cluster.notified() => {}
                _ = intent.changed() => {}
            }
        }
        if let Err(error) = self.leave().await {
            tracing::warn!(error = %errors::in_words(&error), "left without saying so: others find out");
        }
    }

    /// Passes on where this process stands. With other partitions comes other work.
    fn tell(&self, standing: &watch::Sender<Membership>) {
        let is_told = standing.send_if_modified(|told| {
            let is_new = *told != self.standing;
            told.clone_from(&self.standing);
            is_new
        });
        if let Some(stats) = self.stats.as_ref().filter(|_| is_told) {
            stats.changes.send_modify(|change| *change += 1);
        }
    }

    /// Says that this process is alive, and brings its share of partitions in order. One that takes too long has lost
    /// its connection.
    async fn beat(&mut self, is_leaving: bool) -> Result<Beat, Error> {
        let sent_at = self.clock.monotonic();
        let session = match self.session.take() {
            Some(session) => session,
            None => self.connector.connect(None).await?,
        };
        let beat = tokio::time::timeout(limits::WORKER_LEASE / 2, self.say(&session, is_leaving));
        let beat = match beat.await {
            Ok(beat) => beat?,
            // The session is dropped with its silence.
            Err(_elapsed) => return Ok(Beat { is_known: false, dead: 0 }),
        };
        if beat.is_known {
            self.tenure.renew(
                self.standing.worker.cast_unsigned(),
                sent_at,
                limits::WORKER_LEASE / 2,
            );
        } else {
            // Buried: nothing that was started is ours any more.
            self.tenure.end();
        }
        self.session = Some(session);
        Ok(beat)
    }

    async fn say(&mut self, session: &Session, is_leaving: bool) -> Result<Beat, Error> {
        let client = &session.client;
        let lease = millis(limits::WORKER_LEASE);
        let settled = self.stats.as_ref().map_or(0, |stats| stats.settled.load(Ordering::Relaxed));
        let beats_per_second = 1.0 / limits::WORKER_BEAT.as_secs_f32();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = settled.saturating_sub(self.settled_before) as f32 * beats_per_second;
        self.settled_before = settled;
        let renew = session.prepared(RENEW).await?;
        let worker = self.standing.worker;
        let known = client
            .query_opt(&renew, &[&worker, &lease, &is_leaving, &settled.cast_signed(), &rate])
            .await?;
        if known.is_none() {
            let Options { name, version, produces, consumes, listen, .. } = &self.options;
            let join = session.prepared(JOIN).await?;
            let row = client
                .query_one(&join, &[name, version, produces, consumes, listen, &lease])
                .await?;
            self.standing = Membership { worker: row.try_get(0)?, ..Membership::default() };
            client.execute("SELECT pg_notify('belfry_cluster', '')", &[]).await?;
            tracing::info!(worker = self.standing.worker, "joined the cluster");
        }
        let look = session.prepared(LOOK).await?;
        let row = client.query_one(&look, &[]).await?;
        let count =
            |column| Ok::<_, Error>(usize::try_from(row.try_get::<_, i64>(column)?).unwrap_or(0));
        (self.standing.producers, self.standing.consumers) = (count(1)?, count(2)?);
        if self.options.produces {
            self.balance(session, is_leaving).await?;
        }
        Ok(Beat { is_known: known.is_some() || worker == 0, dead: row.try_get(0)? })
    }

    /// Takes free partitions up to a fair share, and gives back what exceeds it.
    async fn balance(&mut self, session: &Session, is_leaving: bool) -> Result<(), Error> {
        let client = &session.client;
        let worker = self.standing.worker;
        let share =
            if is_leaving { 0 } else { PARTITIONS.div_ceil(self.standing.producers.max(1)) };
        let owned = owned(session, worker).await?;
        let limit = |count: usize| i64::try_from(count).unwrap_or(0);
        if owned.len() < share {
            let acquire = session.prepared(ACQUIRE).await?;
            client.execute(&acquire, &[&worker, &limit(share - owned.len())]).await?;
        } else if owned.len() > share {
            let release = session.prepared(RELEASE).await?;
            client.execute(&release, &[&worker, &limit(owned.len() - share)]).await?;
            client.execute("SELECT pg_notify('belfry_cluster', '')", &[]).await?;
        }
        let owned_now = self::owned(session, worker).await?;
        if owned_now != self.standing.partitions {
            tracing::info!(worker, partitions = owned_now.len(), "owns other partitions");
        }
        self.standing.partitions = owned_now;
        Ok(())
    }

    /// Has the work of `dead` workers taken over.
    async fn bury(&self, dead: i64) {
        let Some(stats) = self.stats.as_ref().filter(|_| dead > 0) else { return };
        let wall = self.clock.shifted(self.time_offset).wall();
        let millis = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
        let now = Timestamp::from_millis(millis);
        // A writer that is held up must not keep this process from saying that it is alive.
        match tokio::time::timeout(limits::WORKER_BEAT, stats.work.ask(Bury { now })).await {
            Ok(Ok(recovery)) => tracing::warn!(?recovery, "took over from workers that are gone"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot take over from workers that are gone"),
            Err(_elapsed) => tracing::warn!("taking over from workers that are gone takes long"),
        }
    }

    /// Gives everything back and removes this process.
    async fn leave(&mut self) -> Result<(), Error> {
        self.beat(true).await?;
        let Some(session) = &self.session else { return Ok(()) };
        self.tenure.end();
        // What it still holds is ended by whoever buries it, at once: its lease on itself is over.
        let leave = "UPDATE worker SET alive_until = clock_timestamp() - interval '1 second' WHERE id = $1 \
             AND EXISTS (SELECT FROM chunk WHERE worker = $1 AND lease_until IS NOT NULL)";
        let worker = self.standing.worker;
        let holds = session.client.execute(leave, &[&worker]).await? > 0;
        if !holds {
            session.client.execute("DELETE FROM worker WHERE id = $1", &[&worker]).await?;
        }
        session.client.execute("SELECT pg_notify('belfry_cluster', '')", &[]).await.map(drop)
    }
}

async fn owned(session: &Session, worker: i64) -> Result<Vec<i16>, Error> {
    let select = session.prepared(OWNED).await?;
    let rows = session.client.query(&select, &[&worker]).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// The store's tag: `drawn`, if it has none yet.
async fn stored_realm(session: &Session, drawn: i64) -> Result<u16, StoreError> {
    let insert = "INSERT INTO meta (key, value) VALUES ('realm', $1) ON CONFLICT DO NOTHING";
    session.client.execute(insert, &[&drawn]).await?;
    let row = session.client.query_one("SELECT value FROM meta WHERE key = 'realm'", &[]).await?;
    let damaged = |_| StoreError::Damaged("the store's tag".to_owned());
    u16::try_from(row.try_get::<_, i64>(0)?).map_err(damaged)
}

#[expect(clippy::cast_precision_loss, reason = "some seconds")]
fn millis(span: Duration) -> f64 {
    span.as_millis() as f64
}
