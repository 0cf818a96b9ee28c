//! The whole pipeline on one thread, under paused time, with doubles at its seams.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use flow::{Backoff, Clock, WorkerDeadline};
use notification::{
    Account, ByteString, Bytes, Chunk, Content, Draft, Envelope, Guarantee, Labels, Lane, Name,
    NotificationId, Priority, State, Ticket, Timestamp, limits,
};
use pipeline::{
    Channels, Collect, Deliver, Dispatch, LaneQuotas, Metrics, QuotaNumbers, QuotaShares,
    RetryPolicy, Settle, ThreadAffinity, report,
};
use queue::Publish;
use store::{Admission, ClaimRequest, Claims, Ingest as _, Memory, ReadStore as _};
use tokio::sync::watch;
use tokio::task::{JoinHandle, LocalSet};

use crate::script::Script;

/// A store, a channel, and a pipeline between them that can be started and crashed.
pub(crate) struct Rig {
    pub(crate) store: Arc<Memory>,
    pub(crate) script: Script,
    pub(crate) clock: Clock,
    pub(crate) policy: RetryPolicy,
    /// Attempts that each tenant may make in a minute.
    pub(crate) tenants: BTreeMap<Name, NonZeroU32>,
    pub(crate) quotas: Arc<LaneQuotas>,
    /// The ledger of processes that divide their quotas, and its number among them, if there are others.
    pub(crate) ledger: Option<(Arc<Memory>, i64)>,
    /// Sender threads, each a task here.
    pub(crate) threads: usize,
}

/// A pipeline that runs.
pub(crate) struct Running {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// Runs `test` in a local set, with time paused: the whole pipeline is one thread.
pub(crate) fn on_one_thread<T>(test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, test())
}

// === impl Rig ===

impl Rig {
    pub(crate) fn new(script: Script) -> Self {
        let clock = Clock::starting_at(Duration::from_secs(1_700_000_000));
        Self {
            store: Arc::new(Memory::new()),
            script,
            clock,
            policy: RetryPolicy { attempts: 4, backoff: Backoff::DEFAULT },
            tenants: BTreeMap::new(),
            quotas: Arc::new(LaneQuotas::new(clock)),
            ledger: None,
            threads: 1,
        }
    }

    /// Another process over the same channel, which divides its quotas with this one. Each has notifications of its own, as if each
    /// had partitions of one store.
    pub(crate) fn with_other(&mut self) -> Self {
        let ledger = Arc::clone(&self.store);
        self.ledger = Some((Arc::clone(&ledger), 1));
        let mut other = Self::new(self.script.clone());
        (other.clock, other.tenants) = (self.clock, self.tenants.clone());
        other.quotas = Arc::new(LaneQuotas::new(self.clock));
        other.ledger = Some((ledger, 2));
        other
    }

    pub(crate) fn now(&self) -> Timestamp {
        channel::timestamp(self.clock)
    }

    /// A draft for `recipient`, due now.
    pub(crate) fn draft(&self, recipient: &str, guarantee: Guarantee) -> Draft {
        let lane = Lane {
            channel: name("script"),
            destination: "here".into(),
            priority: Priority::Normal,
            tenant: name("default"),
        };
        let envelope =
            Envelope { lane, guarantee, due_at: self.now(), expires_at: None, broadcast: None };
        let content = Content { payload: Bytes::from_static(b"{}"), ..Content::default() };
        Draft {
            envelope,
            recipient: ByteString::from(recipient),
            content,
            idempotency: None,
            labels: Labels::default(),
            trace: None,
        }
    }

    /// Stores drafts for `recipients`, due now.
    pub(crate) async fn accept(
        &self,
        recipients: &[&str],
        guarantee: Guarantee,
    ) -> Vec<NotificationId> {
        self.accept_drafts(
            recipients.iter().map(|recipient| self.draft(recipient, guarantee)).collect(),
        )
        .await
    }

    pub(crate) async fn accept_drafts(&self, drafts: Vec<Draft>) -> Vec<NotificationId> {
        let admissions = self.store.ingest(drafts, self.now()).await.unwrap();
        let id = |admission: &Admission| match admission {
            Admission::Accepted(id) | Admission::Replayed(id) => *id,
        };
        admissions.iter().map(id).collect()
    }

    /// Starts dispatch, deliver and settle.
    pub(crate) fn start(&self) -> Running {
        let (stop, stopping) = watch::channel(false);
        let queue = queue::MemoryQueue::new(limits::QUEUE_WEIGHT);
        let mut tasks = self.start_consuming(&queue, &stopping);
        let dispatch = Dispatch {
            claims: Arc::clone(&self.store) as Arc<dyn Claims<Chunk>>,
            queue: Arc::new(queue.clone()) as Arc<dyn Publish<Arc<Chunk>>>,
            lease: limits::LEASE,
            clock: self.clock,
        };
        tasks.push(spawn(async move {
            dispatch.run(stopping).await.unwrap();
            queue.close();
        }));
        Running { stop, tasks }
    }

    /// Starts dispatch on one side of `broker`, and collect, deliver and settle on the other.
    pub(crate) fn start_behind(&self, broker: &queue::MemoryQueue<Ticket>) -> Running {
        let (stop, stopping) = watch::channel(false);
        let queue = queue::MemoryQueue::new(limits::CONSUMER_WEIGHT);
        let mut tasks = self.start_consuming(&queue, &stopping);
        tasks.push(self.start_issuing(broker, stopping.clone()));
        let collect = Collect {
            tickets: Arc::new(broker.clone()),
            store: Arc::clone(&self.store) as _,
            queue: Arc::new(queue.clone()),
            clock: self.clock,
        };
        tasks.push(spawn(async move {
            collect.run(stopping).await.unwrap();
            queue.close();
        }));
        Running { stop, tasks }
    }

    /// Starts dispatch alone, in front of `broker`.
    pub(crate) fn start_before(&self, broker: &queue::MemoryQueue<Ticket>) -> Running {
        let (stop, stopping) = watch::channel(false);
        Running { stop, tasks: vec![self.start_issuing(broker, stopping)] }
    }

    fn start_issuing(
        &self,
        broker: &queue::MemoryQueue<Ticket>,
        stopping: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let dispatch = Dispatch {
            claims: Arc::clone(&self.store) as Arc<dyn Claims<Ticket>>,
            queue: Arc::new(broker.clone()) as Arc<dyn Publish<Ticket>>,
            lease: limits::TICKET_LEASE,
            clock: self.clock,
        };
        spawn(async move { dispatch.run(stopping).await.unwrap() })
    }

    /// Starts what takes chunks from `queue`.
    fn start_consuming(
        &self,
        queue: &queue::MemoryQueue<Arc<Chunk>>,
        stopping: &watch::Receiver<bool>,
    ) -> Vec<JoinHandle<()>> {
        let (reports, reported) = report::channel();
        let mut channels = Channels::default();
        channels.insert(name("script"), Arc::new(self.script.clone()));
        self.quotas.follow(QuotaNumbers::new(&channels, self.tenants.clone()));
        let deliver = Deliver {
            queue: Arc::new(queue.clone()),
            begin: Arc::clone(&self.store) as _,
            channels: watch::channel(channels).1,
            reports,
            stopping: stopping.clone(),
            worker_deadline: WorkerDeadline::unlimited(),
            quotas: Arc::clone(&self.quotas),
            metrics: Metrics::default(),
            spans: None,
            clock: self.clock,
            seed: 1,
            limits: Arc::default(),
            affinity: ThreadAffinity::new(self.threads),
        };
        let settle = Settle {
            store: Arc::clone(&self.store) as _,
            reports: reported,
            policies: watch::channel(BTreeMap::from([(name("script"), self.policy)])).1,
            metrics: Metrics::default(),
            clock: self.clock,
            salt: 1,
        };
        let mut tasks = vec![spawn(async move { settle.run().await.unwrap() })];
        for deliver in vec![deliver; self.threads] {
            tasks.push(spawn(async move { deliver.run().await.unwrap() }));
        }
        if let Some((ledger, holder)) = self.ledger.clone() {
            let quotas = Arc::clone(&self.quotas);
            let shares = QuotaShares { quotas, ledger, holder, clock: self.clock };
            shares.begin();
            let stopping = stopping.clone();
            tasks.push(spawn(async move { shares.run(stopping).await.unwrap() }));
        }
        tasks
    }

    /// Has tickets issued for everything that is due.
    pub(crate) async fn issue_tickets(&self) -> Vec<Ticket> {
        let request = ClaimRequest {
            now: self.now(),
            lease: limits::TICKET_LEASE,
            items: usize::MAX,
            lowest: Priority::Bulk,
            lane_window: usize::MAX,
            total_window: usize::MAX,
            probe_window: None,
        };
        let claims: &dyn Claims<Ticket> = &*self.store;
        claims.claim(request).await.unwrap().chunks
    }

    /// Lets paused time pass until no notification is pending.
    pub(crate) async fn drained(&self) -> Account {
        let mut changes = Claims::<Chunk>::changes(&*self.store);
        loop {
            let account = self.account().await;
            if account.pending == 0 {
                return account;
            }
            changes.changed().await.unwrap();
        }
    }

    /// The account, after a full audit that must find nothing wrong.
    pub(crate) async fn account(&self) -> Account {
        let audit = self.store.audit().await.unwrap();
        assert_eq!(audit.problems, Vec::<String>::new());
        assert!(audit.account.is_balanced(), "{:?}", audit.account);
        audit.account
    }

    pub(crate) async fn state(&self, id: NotificationId) -> State {
        self.store.find(id).await.unwrap().unwrap().state
    }
}

// === impl Running ===

impl Running {
    /// Stops as SIGTERM does: no attempt is started, and those under way are finished and settled.
    pub(crate) async fn stop(self) {
        self.stop.send(true).unwrap();
        for task in self.tasks {
            task.await.unwrap();
        }
    }

    /// Stops as SIGKILL does: nothing runs any further.
    pub(crate) async fn crash(self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            assert!(task.await.unwrap_err().is_cancelled());
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn spawn(future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    tokio::task::spawn_local(future)
}
