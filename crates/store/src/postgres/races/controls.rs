//! Events of processes: time passes, one is declared dead, one comes back, partitions are handed over. Rows that
//! are locked are left for another time, so nothing here waits.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::totals_tests::FOLD_BEFORE;
use super::super::writer_state::Membership;
use super::applications::Step;
use super::cluster::{APPLICATIONS, Cluster, Engine};
use super::themes::Kind;

/// An event that is over at once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A wait of this many milliseconds.
    Wait(i64),
    /// An engine has not renewed its lease on itself for too long.
    Silence(usize),
    /// An engine says that it is alive, or joins anew, and takes partitions that are free.
    Beat(usize),
    /// Half of the partitions of one engine are another's, and the first one does not know.
    HandOver(usize, usize),
    /// An application goes on with its transaction.
    Apply(usize, Step),
    /// A process of an earlier version folds the totals.
    FoldBefore,
}

const SILENCE: &str = "UPDATE worker SET alive_until = clock_timestamp() - interval '1 second' WHERE id IN \
     (SELECT id FROM worker WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED)";
const RENEW: &str = "UPDATE worker SET alive_until = clock_timestamp() + interval '1 hour' WHERE id IN \
     (SELECT id FROM worker WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED)";
const IS_KNOWN: &str = "SELECT EXISTS (SELECT FROM worker WHERE id = $1)";
const ACQUIRE: &str = "UPDATE partition SET owner = $1, epoch = epoch + 1 WHERE id IN ( \
     SELECT id FROM partition WHERE owner IS NULL ORDER BY id FOR UPDATE SKIP LOCKED)";
const HAND_OVER: &str = "UPDATE partition SET owner = $2, epoch = epoch + 1 WHERE id IN ( \
     SELECT id FROM partition WHERE owner = $1 AND id % 4 < 2 ORDER BY id FOR UPDATE SKIP LOCKED)";

pub(super) const ONLY_ONE: &str = "UPDATE partition SET owner = $1";

// === impl Event ===

impl Event {
    /// The event that a generator draws in a schedule of `theme`, with `engines` engines.
    pub(super) fn draw(random: &mut fastrand::Rng, engines: usize, theme: &[Kind]) -> Self {
        if theme.contains(&Kind::Assign) && random.bool() {
            return Self::FoldBefore;
        }
        if theme.contains(&Kind::Drain) && random.u8(..3) > 0 {
            let step = match random.u8(..5) {
                0..3 => Step::Write { has_key: random.u8(..4) == 0 },
                3 => Step::Commit,
                _ => [Step::Commit, Step::RollBack][random.usize(..2)],
            };
            return Self::Apply(random.usize(..APPLICATIONS), step);
        }
        let engine = random.usize(..engines);
        match random.u32(..10) {
            0..4 => Self::Wait([20, 31_000, 61_000, 61_000][random.usize(..4)]),
            4..7 => Self::Silence(engine),
            7..9 => Self::Beat(engine),
            _ => Self::HandOver(engine, (engine + 1) % engines),
        }
    }
}

// === impl Cluster ===

impl Cluster {
    pub(super) async fn happen(&self, event: Event, engines: &[Engine]) {
        match event {
            Event::Wait(_) | Event::Apply(..) => {}
            Event::FoldBefore => _ = self.change(FOLD_BEFORE, &[]).await,
            Event::Silence(engine) => _ = self.change(SILENCE, &[&engines[engine].worker()]).await,
            Event::Beat(engine) => self.beat(&engines[engine]).await,
            Event::HandOver(one, other) => {
                let workers = (engines[one].worker(), engines[other].worker());
                self.change(HAND_OVER, &[&workers.0, &workers.1]).await;
                self.tell(&engines[other], workers.1).await;
            }
        }
    }

    /// Gives all partitions to an engine, with the notice of it.
    pub(super) async fn give_all(&self, engine: &Engine) {
        let worker = engine.worker();
        self.change(ONLY_ONE, &[&worker]).await;
        self.tell(engine, worker).await;
    }

    async fn beat(&self, engine: &Engine) {
        let mut worker = engine.worker();
        if self.change(RENEW, &[&worker]).await == 0 {
            let is_known = self.control.prepared(IS_KNOWN).await.unwrap();
            let row = self.control.client.query_one(&is_known, &[&worker]).await.unwrap();
            if row.get(0) {
                // Another process ends its claims at the moment.
                return;
            }
            worker = self.join().await;
        }
        self.change(ACQUIRE, &[&worker]).await;
        self.tell(engine, worker).await;
    }

    /// Lets an engine know which worker it is, and what that one owns.
    async fn tell(&self, engine: &Engine, worker: i64) {
        let partitions = self.owned(worker).await;
        engine.membership.send_modify(|membership| {
            *membership = Membership { worker, partitions, ..membership.clone() };
        });
    }

    /// The one row that `sql` selects.
    pub(super) async fn ask(&self, sql: &'static str) -> Row {
        let statement = self.control.prepared(sql).await.unwrap();
        self.control.client.query_one(&statement, &[]).await.unwrap()
    }

    pub(super) async fn change(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> u64 {
        let statement = self.control.prepared(sql).await.unwrap();
        self.control.client.execute(&statement, parameters).await.unwrap()
    }
}
