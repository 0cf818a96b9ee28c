//! A database, its engines, and the waits for locks in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flow::{Clock, Tasks};
use notification::{ByteString, Pauses, limits};
use testbed::postgres::HASTE;
use testbed::{Database, PostgresOptions};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::connection::{Connector, PostgresSession};
use super::super::notices::{self, Notice, NoticeSender};
use super::super::notify::NotifyPolicy;
use super::super::placement::{HOT_FROM, RecentArrivals};
use super::super::reader::PostgresReader;
use super::super::request::WriterHandle;
use super::super::time::DatabaseTime;
use super::super::totals_changes::{FOLD_EVERY, FoldPace};
use super::super::writer::{Notices, Writer};
use super::super::writer_state::{Membership, WriterState};
use super::applications::Application;
use super::gate::{Arrival, Gate};
use crate::rows::evidence::EvidenceBook;
use crate::rows::release::Slicing;

/// A database for many schedules, one after the other.
pub(super) struct Cluster {
    connector: Connector,
    /// Session that does the rest of the work, and looks at the writers; never held up.
    pub(super) control: PostgresSession,
    pub(super) reader: PostgresReader,
    pub(super) applications: [Application; APPLICATIONS],
    pub(super) arrivals: mpsc::Receiver<Arrival>,
    arriving: mpsc::Sender<Arrival>,
    /// Connections of former engines, by actor: making one takes longer than a schedule.
    idle: BTreeMap<usize, PostgresSession>,
    played: u64,
    time: DatabaseTime,
    pauses: watch::Sender<Arc<Pauses>>,
    _database: Database,
    server: Option<testbed::PostgresServer>,
}

/// A process.
pub(super) struct Engine {
    pub(super) intake: WriterHandle,
    pub(super) work: WriterHandle,
    pub(super) reader: PostgresReader,
    pub(super) membership: watch::Sender<Membership>,
    pub(super) notices: NoticeSender,
    /// The pauses that each process follows, the same for all.
    pub(super) pauses: watch::Sender<Arc<Pauses>>,
    sessions: Vec<(usize, oneshot::Receiver<Option<PostgresSession>>)>,
    tasks: Tasks,
}

/// Writers of an engine: its intake, and the one that claims.
pub(super) const WRITERS: usize = 2;
/// Applications that write to the outbox.
pub(super) const APPLICATIONS: usize = 2;
/// The store's id.
pub(super) const STORE_ID: u16 = 7;
/// Slices of one batch, made when a schedule calls for them.
const SLICING: Slicing = Slicing { batches: 1, goes_on: false };
/// Transactions of a writer between two foldings of the totals, in three of four schedules.
const FOLD_OFTEN: u32 = 3;
/// Batches of notices under way to a writer.
const NOTICES: usize = 64;
/// Writers that have arrived and were not seen yet: more than there are.
const ARRIVALS: usize = 64;

/// Makes an empty store with a number of processes, each with its share of the partitions. Deleting is faster than truncating;
/// the numbers begin anew, so that a seed is the same schedule whatever was played before. An hour: only a process that is
/// declared dead is dead, however slow the machine. A function, so that its plans are kept.
const BEGIN: &str = "CREATE FUNCTION races_begin(engines integer) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
     DELETE FROM tenant_lane; DELETE FROM batch; DELETE FROM chunk; DELETE FROM log; DELETE FROM idempotency; \
     DELETE FROM suppression; DELETE FROM suppression_lift; DELETE FROM suppression_event; DELETE FROM totals_delta; \
     DELETE FROM broadcast; DELETE FROM unreleased; DELETE FROM pause; DELETE FROM resuming; DELETE FROM commit_token; DELETE FROM worker; DELETE FROM feed; DELETE FROM outbox; DELETE FROM outbox_rejected; \
     UPDATE outbox_position SET snapshot = pg_current_snapshot(), txid = NULL, id = NULL; \
     PERFORM setval(numbers, 1, false) FROM unnest(ARRAY['batch_number', 'lane_id_seq', 'chunk_id_seq', 'log_id_seq', \
       'suppression_event_id_seq', 'broadcast_id_seq', 'worker_id_seq', 'outbox_id_seq']::regclass[]) AS numbers; \
     INSERT INTO worker (name, version, produces, consumes, alive_until) \
       SELECT '', '', true, true, clock_timestamp() + interval '1 hour' FROM generate_series(1, engines); \
     UPDATE meta SET value = 0 WHERE key = 'totals_assigned'; \
     UPDATE partition SET owner = id % engines + 1, epoch = 0; END $$";
/// Deleted rows stay in the tables until these are made anew.
const RENEW: &str = "TRUNCATE tenant_lane, batch, chunk, log, idempotency, suppression, suppression_lift, \
     suppression_event, totals_delta, broadcast, unreleased, pause, resuming, commit_token, worker, feed, outbox, outbox_rejected; \
     VACUUM partition; VACUUM meta; VACUUM outbox_position";
/// Schedules between two of these.
const RENEW_EVERY: u64 = 64;
const JOIN: &str = "INSERT INTO worker (name, version, produces, consumes, alive_until) \
     VALUES ('', '', true, true, clock_timestamp() + interval '1 hour') RETURNING id";
pub(super) const OWNED: &str = "SELECT id FROM partition WHERE owner = $1 ORDER BY id";
const BLOCKERS: &str = "SELECT pid, pg_blocking_pids(pid) FROM unnest($1::int4[]) AS pid";

// === impl Cluster ===

impl Cluster {
    pub(super) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A cluster on a server with further settings.
    pub(super) async fn start_with(settings: &'static [(&str, &str)]) -> Self {
        // On a server of its own: a transaction that ends in another database while events are read holds back later ones.
        let make = move || {
            let settings = [HASTE, &[("autovacuum", "off")], settings].concat();
            let options = PostgresOptions { settings: &settings, tls: None };
            let server = testbed::PostgresServer::start_with(options);
            let server = server.unwrap();
            (server.create_database().unwrap(), server)
        };
        let (database, server) = tokio::task::spawn_blocking(make).await.unwrap();
        let connector = Connector::new(&server.socket_url(&database), "races", None).unwrap();
        connector.prepare().await.unwrap();
        let control = connector.connect(None).await.unwrap();
        // The server resolves a deadlock once it has lasted for so long.
        let prepare = format!(
            "INSERT INTO meta (key, value) VALUES ('realm', {STORE_ID}); \
             DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''20ms''', current_database()); END $$"
        );
        control.client.batch_execute(&prepare).await.unwrap();
        control.client.batch_execute(BEGIN).await.unwrap();
        let reader =
            PostgresReader::connect(connector.clone(), EvidenceBook::default()).await.unwrap();
        let application = async || Application::new(connector.connect(None).await.unwrap()).await;
        let applications = [application().await, application().await];
        let (arriving, arrivals) = mpsc::channel(ARRIVALS);
        Self {
            connector,
            control,
            reader,
            applications,
            arrivals,
            arriving,
            idle: BTreeMap::new(),
            played: 0,
            time: DatabaseTime::new(Clock::system()),
            pauses: watch::Sender::default(),
            _database: database,
            server: Some(server),
        }
    }

    /// Crashes the server, which recovers: it loses all that it had not written to its log.
    pub(super) async fn crash(&mut self) {
        let mut server = self.server.take().unwrap();
        let crash = move || {
            server.stop_immediate().unwrap();
            server.start_again().unwrap();
            server
        };
        self.server = Some(tokio::task::spawn_blocking(crash).await.unwrap());
        self.control = self.connect().await;
        for application in &mut self.applications {
            *application = Application::new(self.connector.connect(None).await.unwrap()).await;
        }
    }

    /// An empty store with `count` processes, each with its share of the partitions.
    pub(super) async fn engines(&mut self, count: usize, seed: u64) -> Vec<Engine> {
        self.played += 1;
        if self.played.is_multiple_of(RENEW_EVERY) {
            for statement in RENEW.split("; ") {
                self.control.client.batch_execute(statement).await.unwrap();
            }
        }
        for application in &mut self.applications {
            application.reset().await;
        }
        let begin = self.control.prepared("SELECT races_begin($1)").await.unwrap();
        let processes = i32::try_from(count).unwrap();
        self.control.client.execute(&begin, &[&processes]).await.unwrap();
        while self.arrivals.try_recv().is_ok() {
            // Of engines that a finding left where they were.
        }
        // Chunks of one lane lie in many partitions, or in one.
        let hot_from = if seed.is_multiple_of(4) { HOT_FROM } else { 0 };
        let fold_every = if seed.is_multiple_of(4) { FOLD_EVERY } else { FOLD_OFTEN };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut engines = Vec::new();
        for number in 0..count {
            let worker = i64::try_from(number).unwrap() + 1;
            let is_own = |id: &i16| usize::from(id.unsigned_abs()) % count == number;
            let partitions = (0..limits::PARTITIONS.cast_signed()).filter(is_own).collect();
            let membership = Membership { worker, partitions, producers: count, consumers: count };
            let paces = (hot_from, fold_every);
            engines.push(self.engine(number, membership, paces, &mut random));
        }
        engines
    }

    /// A connection that is not held up.
    pub(super) async fn connect(&self) -> PostgresSession {
        self.connector.connect(None).await.unwrap()
    }

    pub(super) async fn owned(&self, worker: i64) -> Vec<i16> {
        let owned = self.control.prepared(OWNED).await.unwrap();
        let rows = self.control.client.query(&owned, &[&worker]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Joins anew: the number of the worker.
    pub(super) async fn join(&self) -> i64 {
        let join = self.control.prepared(JOIN).await.unwrap();
        self.control.client.query_one(&join, &[]).await.unwrap().get(0)
    }

    fn engine(
        &mut self,
        number: usize,
        membership: Membership,
        (hot_from, fold_every): (u32, u32),
        random: &mut fastrand::Rng,
    ) -> Engine {
        let (membership, is_member) = watch::channel(membership);
        let (sender, receiver) = notices::channel(NOTICES);
        let notify = Arc::new(NotifyPolicy::new(Clock::system()));
        let (mut tasks, mut sessions) = (Tasks::default(), Vec::new());
        let mut start = |place: usize, name: &'static str, notices: Notices| {
            let actor = number * WRITERS + place;
            let (failed, failing) = watch::channel(None);
            let (handle, commands) = WriterHandle::new(failing, Clock::system());
            let mut connector = self.connector.clone();
            connector.gate = Some(Gate { actor, arrivals: self.arriving.clone() });
            let logs = matches!(notices, Notices::Claimer(_));
            let (membership, notify) = (is_member.clone(), Arc::clone(&notify));
            let mut state = WriterState::new(STORE_ID, membership, self.time, notify, logs);
            state.recent_arrivals = RecentArrivals::new(hot_from);
            state.fold_pace = FoldPace::new(fold_every);
            (state.slicing, state.pauses) = (SLICING, self.pauses.subscribe());
            let mut writer = Writer {
                connector,
                state,
                commands,
                available: watch::channel(true).0,
                failed,
                clock: Clock::system(),
                random: random.fork(),
                session: self.idle.remove(&actor),
                notices,
                changes: watch::channel(0).0,
                settled: Arc::new(AtomicU64::new(0)),
                waiting: Arc::default(),
            };
            let (leave, left) = oneshot::channel();
            sessions.push((actor, left));
            tasks.spawn(name, async move {
                writer.run().await;
                let _nobody_waits = leave.send(writer.session.take());
            });
            handle
        };
        let intake = start(0, "intake", Notices::Forward(sender.clone()));
        let work = start(1, "work", Notices::Claimer(receiver));
        let reader = self.reader.clone();
        let (notices, pauses) = (sender, self.pauses.clone());
        Engine { intake, work, reader, membership, notices, pauses, sessions, tasks }
    }

    /// Keeps the connections of engines whose calls are all answered.
    pub(super) async fn retire(&mut self, engines: Vec<Engine>) {
        for engine in engines {
            let Engine { intake, work, sessions, tasks, .. } = engine;
            drop((intake, work));
            for (actor, left) in sessions {
                if let Ok(Some(session)) = left.await {
                    self.idle.insert(actor, session);
                }
            }
            drop(tasks);
        }
    }
}

// === impl Engine ===

impl Engine {
    pub(super) fn worker(&self) -> i64 {
        self.membership.borrow().worker
    }

    /// Has the next claim read everything anew, as notices of other processes have it now and then.
    pub(super) fn reload(&self) {
        self.notices.send(vec![Notice::Everything]);
    }
}

/// True if all of the `running` sessions wait for locks that only `paused` ones can give up.
pub(super) async fn are_blocked(
    control: &PostgresSession,
    running: &[i32],
    paused: &BTreeSet<i32>,
) -> bool {
    let statement = control.prepared(BLOCKERS).await.unwrap();
    let rows = control.client.query(&statement, &[&running]).await.unwrap();
    let mut waiting: Vec<(i32, Vec<i32>)> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut held_up = paused.clone();
    loop {
        let before = waiting.len();
        waiting.retain(|(backend, blockers)| {
            let is_held_up = !blockers.is_empty() && blockers.iter().all(|by| held_up.contains(by));
            if is_held_up {
                held_up.insert(*backend);
            }
            !is_held_up
        });
        if waiting.len() == before {
            return waiting.is_empty();
        }
    }
}

/// A recipient, of a few only, so that some are listed when they are claimed.
pub(super) fn recipient(number: usize) -> ByteString {
    format!("r{number}").into()
}
