//! The comparison of a fast store with the obvious one, whatever happens.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the helpers of a test fail by panicking"
)]

use std::collections::{BTreeSet, HashMap};

use notification::{
    BroadcastId, ByteString, Chunk, Disposition, Guarantee, NotificationId, OutcomeGroup, Pause,
    Priority, Scope, Settlement, State, Timestamp,
};
use proptest::prelude::*;
use store::conformance::{
    BroadcastShape, Shape, at, claim_request, groups, name, the_books_balance,
};
use store::{
    Admission, Attempted, Begin, BroadcastOpened, CancelTarget, Claims, Ending, History, Ingest,
    LogPosition, Mark, Memory, Operations, ReadStore, Recovery, Settlements, Store,
};

#[path = "support/on_disk.rs"]
mod on_disk;
#[path = "support/steps.rs"]
mod steps;
#[path = "support/suppressions.rs"]
mod suppressions;

use on_disk::on_disk;
use steps::{Step, step};
use suppressions::{gone_since, suppressions};

/// A fast store, and how its process ends and begins anew.
trait Fast {
    /// The store.
    fn store(&self) -> &dyn Store;
    /// Ends without notice and is opened again; the result of recovery, where there is one.
    fn crash(&mut self, ending: Ending, now: Timestamp) -> Option<Recovery>;
    /// True if its epochs rise with claims only, and its next claim is not too early even if a notification was withdrawn
    /// meanwhile.
    fn is_exact(&self) -> bool;
}

/// Both stores, and the identifiers of the same notifications in each.
struct Pair<F> {
    memory: Memory,
    fast: F,
    now: i64,
    ids: Vec<(NotificationId, NotificationId)>,
    positions: HashMap<NotificationId, usize>,
    broadcasts: Vec<(BroadcastId, BroadcastId)>,
    /// Claims of both, in the same order; perhaps stale by now.
    held: Vec<(Chunk, Chunk)>,
}

impl<F: Fast> Pair<F> {
    fn new(fast: F) -> Self {
        Self {
            memory: Memory::new(),
            fast,
            now: 0,
            ids: Vec::new(),
            positions: HashMap::new(),
            broadcasts: Vec::new(),
            held: Vec::new(),
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Ingest { count, lane, once, due_in, expires_in } => {
                let shape = self.shape(lane, once, due_in, expires_in);
                self.ingest(&shape, count).await;
            }
            Step::Keyed { key, content } => {
                let key = ["one", "two", "three"].get(key).map(|key| (*key, content));
                let shape = Shape { key, due_at: self.now, ..Shape::default() };
                self.ingest(&shape, 1).await;
            }
            Step::Broadcast { count, sealed } => self.broadcast(count, sealed).await,
            Step::Claim => self.claim().await,
            Step::Begin { which, through } => self.begin(which, through).await,
            Step::Settle { which, every, outcome, wait } => {
                self.settle(which, every, outcome, wait).await;
            }
            Step::Cancel { position } => {
                let Some(position) = position.checked_rem(self.ids.len()) else { return };
                let (memory, sqlite) = self.ids[position];
                self.cancel(CancelTarget::Notification(memory), CancelTarget::Notification(sqlite))
                    .await;
            }
            Step::CancelBroadcast { which } => {
                let Some(which) = which.checked_rem(self.broadcasts.len()) else { return };
                let (memory, sqlite) = self.broadcasts[which];
                self.cancel(CancelTarget::Broadcast(memory), CancelTarget::Broadcast(sqlite)).await;
            }
            Step::Reschedule { which, of_broadcast, due_in } => {
                self.reschedule(which, of_broadcast, due_in).await;
            }
            Step::Requeue { first, count } => self.requeue(first, count).await,
            Step::Pause { scope, paused } => self.pause(scope, paused).await,
            Step::Suppress { recipient, listed, registered } => {
                self.suppress(recipient, listed, registered).await;
            }
            Step::Wait { millis } => self.now += millis,
            Step::Crash(ending) => self.crash(ending),
        }
    }

    fn shape(&self, lane: usize, once: bool, due_in: i64, expires_in: Option<i64>) -> Shape {
        Shape {
            destination: ["a", "b", "c", "d"][lane],
            priority: if lane == 0 { Priority::Urgent } else { Priority::Normal },
            guarantee: if once { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce },
            due_at: self.now + due_in,
            expires_at: expires_in.map(|millis| self.now + millis),
            tenant: ["tenant", "tenant", "tenant", "other"][lane],
            ..Shape::default()
        }
    }

    async fn ingest(&mut self, shape: &Shape, count: usize) {
        let drafts = shape.drafts(count);
        let memory = self.memory.ingest(drafts.clone(), at(self.now)).await;
        let sqlite = self.fast.store().ingest(drafts, at(self.now)).await;
        let (Ok(memory), Ok(sqlite)) = (&memory, &sqlite) else {
            assert_eq!(memory, sqlite);
            return;
        };
        for (memory, sqlite) in memory.iter().zip(sqlite) {
            match (*memory, *sqlite) {
                (Admission::Accepted(memory), Admission::Accepted(sqlite)) => {
                    self.know(memory, sqlite);
                }
                (Admission::Replayed(memory), Admission::Replayed(sqlite)) => {
                    assert_eq!(self.positions[&memory], self.positions[&sqlite]);
                }
                differing => panic!("{differing:?}"),
            }
        }
    }

    fn know(&mut self, memory: NotificationId, sqlite: NotificationId) {
        let position = self.ids.len();
        self.ids.push((memory, sqlite));
        assert_eq!(self.positions.insert(memory, position), None, "an identifier came twice");
        assert!(sqlite == memory || self.positions.insert(sqlite, position).is_none());
    }

    async fn broadcast(&mut self, count: usize, sealed: bool) {
        let mut opened = Vec::new();
        for store in [&self.memory as &dyn Store, self.fast.store()] {
            let draft =
                store::BroadcastDraft { due_at: at(self.now), ..BroadcastShape::default().draft() };
            let answer = store.open_broadcast(draft, at(self.now)).await.unwrap();
            let BroadcastOpened::Opened(id) = answer else { panic!("{answer:?}") };
            store.add_recipients(id, groups(count), at(self.now)).await.unwrap();
            if sealed {
                assert_eq!(store.seal_broadcast(id, at(self.now)).await.unwrap(), count as u64);
            }
            opened.push(id);
        }
        if !sealed {
            return;
        }
        let (memory, sqlite) = (opened[0], opened[1]);
        let (in_memory, in_sqlite) =
            (members(&self.memory, memory).await, members(self.fast.store(), sqlite).await);
        assert_eq!(in_memory.len(), count);
        for (memory, sqlite) in in_memory.into_iter().zip(in_sqlite) {
            self.know(memory, sqlite);
        }
        self.broadcasts.push((memory, sqlite));
    }

    async fn claim(&mut self) {
        let memory = Claims::<Chunk>::claim(&self.memory, claim_request(self.now)).await.unwrap();
        let sqlite = self.fast.store().claim(claim_request(self.now)).await.unwrap();
        if self.fast.is_exact() {
            assert_eq!(memory.next_at, sqlite.next_at);
        } else {
            // A claim that is too early answers nothing; one that is too late leaves chunks waiting.
            let never = Timestamp::MAX;
            assert!(sqlite.next_at.unwrap_or(never) <= memory.next_at.unwrap_or(never));
        }
        let mut chunks = [memory.chunks, sqlite.chunks];
        for chunks in &mut chunks {
            chunks.sort_by_key(|chunk| self.positions_of(chunk));
        }
        let [memory, sqlite] = chunks;
        assert_eq!(memory.len(), sqlite.len());
        for (memory, sqlite) in memory.into_iter().zip(sqlite) {
            assert_eq!(self.positions_of(&memory), self.positions_of(&sqlite));
            let told = |chunk: &Chunk| (chunk.attempt, chunk.lease_until);
            assert_eq!(told(&memory), told(&sqlite));
            assert!(memory.epoch <= sqlite.epoch);
            assert!(memory.epoch == sqlite.epoch || !self.fast.is_exact());
            for (one, other) in memory.deliveries.iter().zip(&sqlite.deliveries) {
                assert_eq!(one.recipient, other.recipient);
                assert_eq!(memory.content_of(one), sqlite.content_of(other));
            }
            self.held.push((memory, sqlite));
        }
    }

    fn positions_of(&self, chunk: &Chunk) -> Vec<usize> {
        let id = |delivery: &notification::Delivery| chunk.notification_id(delivery.index);
        chunk.deliveries.iter().map(|delivery| self.positions[&id(delivery)]).collect()
    }

    async fn begin(&mut self, which: usize, through: usize) {
        let Some((memory, sqlite)) = self.pick(which) else { return };
        let mark = |chunk: &Chunk| Mark {
            chunk: chunk.id,
            epoch: chunk.epoch,
            through: chunk.deliveries[through % chunk.deliveries.len()].index,
        };
        let memory = self.memory.begin(vec![mark(&memory)]).await.unwrap();
        assert_eq!(memory, self.fast.store().begin(vec![mark(&sqlite)]).await.unwrap());
    }

    /// Settles every `every`th delivery of a claim, half of them some other way.
    async fn settle(&mut self, which: usize, every: usize, outcome: usize, wait: i64) {
        let Some((memory, sqlite)) = self.pick(which) else { return };
        let once = memory.envelope.guarantee == Guarantee::AtMostOnce;
        let due_at = at(self.now + wait);
        let ways = [
            Disposition::HandedBack { at: due_at },
            Disposition::Ended(State::Expired),
            Disposition::Ended(State::Delivered),
            Disposition::Ended(State::Refused),
            Disposition::Retry { at: due_at },
            Disposition::Ended(State::Delivered),
            Disposition::Ended(State::Dead),
            Disposition::Ended(if once { State::InDoubt } else { State::Delivered }),
        ];
        if once && outcome >= 2 {
            let last = |chunk: &Chunk| chunk.deliveries.last().unwrap().index;
            let mark = |chunk: &Chunk| {
                vec![Mark { chunk: chunk.id, epoch: chunk.epoch, through: last(chunk) }]
            };
            self.memory.begin(mark(&memory)).await.unwrap();
            self.fast.store().begin(mark(&sqlite)).await.unwrap();
        }
        let settlement = |chunk: &Chunk| {
            let indexes: Vec<u16> =
                chunk.deliveries.iter().step_by(every).map(|delivery| delivery.index).collect();
            let (first, second) = indexes.split_at(indexes.len() / 2);
            let group = |indexes: &[u16], way: usize| OutcomeGroup {
                disposition: ways[way],
                status: 200,
                detail: format!("way {way}").into(),
                suppress: ways[way] == Disposition::Ended(State::Refused),
                gone_since: gone_since(indexes, wait, self.now),
                indexes: indexes.to_vec(),
            };
            let groups = [group(first, outcome), group(second, outcome ^ 1)];
            Settlement {
                chunk: chunk.id,
                epoch: chunk.epoch,
                at: at(self.now),
                groups: groups.into_iter().filter(|group| !group.indexes.is_empty()).collect(),
                places: 0,
                latency: None,
                rate_per_minute: None,
                fallbacks: Vec::new(),
            }
        };
        let in_memory = self.memory.settle(vec![settlement(&memory)]).await.unwrap();
        let in_sqlite = self.fast.store().settle(vec![settlement(&sqlite)]).await.unwrap();
        assert_eq!(in_memory, in_sqlite);
    }

    fn pick(&self, which: usize) -> Option<(Chunk, Chunk)> {
        // Mostly recent claims: old ones are stale.
        let recent = self.held.len().saturating_sub(6);
        let recent = self.held.get(recent..)?;
        recent.get(which.checked_rem(recent.len())?).cloned()
    }

    async fn cancel(&mut self, memory: CancelTarget, sqlite: CancelTarget) {
        let memory = self.memory.cancel(memory, name("tenant"), at(self.now)).await.unwrap();
        let sqlite = self.fast.store().cancel(sqlite, name("tenant"), at(self.now)).await.unwrap();
        assert_eq!(memory, sqlite);
    }

    async fn reschedule(&mut self, which: usize, of_broadcast: bool, due_in: i64) {
        let targets = if of_broadcast {
            let Some(which) = which.checked_rem(self.broadcasts.len()) else { return };
            let (memory, fast) = self.broadcasts[which];
            [memory, fast].map(CancelTarget::Broadcast)
        } else {
            let Some(which) = which.checked_rem(self.ids.len()) else { return };
            let (memory, fast) = self.ids[which];
            [memory, fast].map(CancelTarget::Notification)
        };
        let [memory, fast] = targets.map(|target| store::Reschedule {
            target,
            tenant: name("tenant"),
            send_at: at(self.now + due_in),
            now: at(self.now),
        });
        let memory = self.memory.reschedule(memory).await.unwrap();
        assert_eq!(memory, self.fast.store().reschedule(fast).await.unwrap());
    }

    /// Requeues `count` notifications that were handed in one after the other, whatever they ended in.
    async fn requeue(&mut self, first: usize, count: usize) {
        let Some(first) = first.checked_rem(self.ids.len()) else { return };
        let ids = self.ids[first..].iter().take(count);
        let (memory, fast): (Vec<_>, Vec<_>) = ids.copied().unzip();
        let states = State::ALL.iter().copied().filter(|state| state.may_be_requeued());
        let states: BTreeSet<State> = states.collect();
        let (tenant, now) = (name("tenant"), at(self.now));
        let memory = self.memory.requeue(memory, states.clone(), tenant.clone(), now).await;
        let fast = self.fast.store().requeue(fast, states, tenant, now).await;
        assert_eq!(memory.unwrap(), fast.unwrap());
    }

    async fn pause(&mut self, scope: usize, paused: bool) {
        let scopes = match ["tenant", "channel/channel", "lane/channel/normal/b"].get(scope) {
            Some(text) => [text.parse().unwrap(), text.parse().unwrap()],
            None => match self.broadcasts.last() {
                // Elsewhere resumed chunks come back some time after the answer.
                Some((memory, fast)) if self.fast.is_exact() => {
                    [memory, fast].map(|id| Scope::Broadcast(*id))
                }
                Some(_) | None => return,
            },
        };
        let mut answers = Vec::new();
        for (store, scope) in
            [&self.memory as &dyn Store, self.fast.store()].into_iter().zip(scopes)
        {
            let (tenant, since) = (name("tenant"), at(self.now));
            answers.push(if paused {
                Err(store.pause(Pause { tenant, scope, since }).await.unwrap())
            } else {
                Ok(store.resume(tenant, scope).await.unwrap())
            });
        }
        assert_eq!(answers[0], answers[1]);
        let (one, other) = (self.memory.pauses().await, self.fast.store().reader().pauses().await);
        assert_eq!(one.unwrap().len(), other.unwrap().len());
    }

    async fn suppress(&mut self, recipient: u8, listed: bool, registered: i64) {
        let mut answers = Vec::new();
        for store in [&self.memory as &dyn Store, self.fast.store()] {
            let (channel, recipient) = (name("channel"), ByteString::from(recipient.to_string()));
            if listed {
                let reason = ["asked", "again"][usize::from(registered % 2 == 0)].to_owned();
                let since = at(self.now - registered / 4);
                let entry = store::Suppression { channel, recipient, reason, status: 0, since };
                store.suppress(vec![entry], at(self.now)).await.unwrap();
            } else {
                let registered_at = (registered > 0).then(|| at(self.now - registered));
                let lift = store::Lift { channel, recipient, registered_at };
                answers.push(store.lift(vec![lift], at(self.now)).await.unwrap());
            }
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    }

    fn crash(&mut self, ending: Ending) {
        if let Some(recovery) = self.fast.crash(ending, at(self.now)) {
            assert_eq!(recovery, self.memory.crash(ending, at(self.now)));
        }
    }

    async fn compare(&self) {
        the_books_balance(&self.memory).await;
        the_books_balance(self.fast.store()).await;
        assert_eq!(
            self.memory.totals().await.unwrap(),
            self.fast.store().reader().totals().await.unwrap()
        );
        for tenant in ["tenant", "other"].map(name) {
            let fast = self.fast.store().reader().tenant_totals(tenant.clone()).await;
            assert_eq!(self.memory.tenant_totals(tenant).await, fast);
        }
        let fast = self.fast.store().reader().tenants(None, 1).await;
        assert_eq!(self.memory.tenants(None, 1).await, fast);
        assert_eq!(
            self.memory.lanes().await.unwrap(),
            self.fast.store().reader().lanes().await.unwrap()
        );
        let mut attempts = vec![Vec::new(); self.ids.len()];
        for (position, (memory, sqlite)) in self.ids.iter().enumerate() {
            let memory = self.memory.find(*memory).await.unwrap().unwrap();
            let sqlite = self.fast.store().reader().find(*sqlite).await.unwrap().unwrap();
            attempts[position].clone_from(&sqlite.attempts);
            assert_eq!(comparable(memory), comparable(sqlite));
        }
        let (in_memory, in_fast) =
            (suppressions(&self.memory).await, suppressions(self.fast.store()).await);
        assert_eq!(in_memory, in_fast);
        assert_eq!(self.log_of(&self.memory).await, attempts);
        assert_eq!(self.log_of(self.fast.store()).await, attempts);
    }

    async fn log_of(&self, store: &dyn Store) -> Vec<Vec<Attempted>> {
        let mut attempts = vec![Vec::new(); self.ids.len()];
        let mut position = LogPosition::default();
        loop {
            let page = store.reader().log(position, 50).await.unwrap();
            if page.next == position {
                return attempts;
            }
            for entry in page.entries {
                attempts[self.positions[&entry.id]].push(entry.attempted);
            }
            position = page.next;
        }
    }
}

async fn members(store: &dyn Store, broadcast: BroadcastId) -> Vec<NotificationId> {
    let filter = store::Filter { broadcast: Some(broadcast), ..store::Filter::default() };
    let page = store.reader().list(filter, None, 1_000).await.unwrap();
    page.items.into_iter().map(|history| history.id).collect()
}

/// The history without the numbers that each store draws for itself.
fn comparable(mut history: History) -> impl PartialEq + std::fmt::Debug {
    let broadcast = history.envelope.broadcast.take().is_some();
    let History { envelope, accepted_at, recipient, content, state, next_attempt_at, .. } = history;
    (broadcast, envelope, accepted_at, recipient, content, state, next_attempt_at, history.attempts)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        ..ProptestConfig::default()
    })]

    #[test]
    fn sqlite_does_what_the_double_does(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::new(on_disk());
            for step in steps {
                pair.take(step).await;
                the_books_balance(pair.fast.store()).await;
            }
            pair.compare().await;
        });
    }
}

/// PostgreSQL in a database of its own. Its process does not end here: the claims of one that ends are taken over by others in
/// the database's own time, which no test decides.
#[cfg(feature = "postgres")]
struct InDatabase {
    store: store::Postgres,
    _database: testbed::Database,
}

#[cfg(feature = "postgres")]
impl Fast for InDatabase {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn crash(&mut self, _ending: Ending, _now: Timestamp) -> Option<Recovery> {
        None
    }

    fn is_exact(&self) -> bool {
        false
    }
}

#[cfg(feature = "postgres")]
mod support;

#[cfg(feature = "postgres")]
proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 32,
        ..ProptestConfig::default()
    })]

    #[test]
    fn postgresql_does_what_the_double_does(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let database = support::fresh();
        runtime.block_on(async {
            let store = support::open(database.url()).await;
            let mut pair = Pair::new(InDatabase { store, _database: database });
            for step in steps {
                pair.take(step).await;
            }
            pair.compare().await;
        });
    }
}
