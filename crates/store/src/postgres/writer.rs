//! A task that owns one connection and writes. Whatever arrived while the last commit ran is the next transaction.
//!
//! Commands are data: a round that was interrupted is run again, on another connection if it must be. Where nobody can
//! know whether a commit was heard, the database is asked before anything else is done.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use flow::Backoff;
use notification::limits;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::connection::{Connector, Hear, Session};
use super::round::{Interrupted, in_time};
use super::shared::{Role, Shared};
use crate::StoreError;

/// What a caller waits for, and the answer once there is one that is durable.
#[derive(Debug)]
pub(super) struct Slot<T> {
    caller: oneshot::Sender<Result<T, StoreError>>,
    answer: Option<Result<T, StoreError>>,
}

/// What callers send to a writer.
pub(super) trait Command: Send + std::fmt::Debug + 'static {
    /// Notifications that this brings in.
    fn items(&self) -> usize;
    /// Whether the caller would rather hear that nothing was done than wait for long.
    fn is_impatient(&self) -> bool;
    /// Sends the answer that was found.
    fn answer(self);
    /// Answers that it was not done.
    fn refuse(self, error: StoreError);
}

/// Does commands.
pub(super) trait Desk: Send + 'static {
    /// What it does.
    type Command: Command;

    /// Does all of `commands` in one transaction, and finds their answers. May be called again with the same ones.
    fn round(
        &mut self,
        session: &Session,
        commands: &mut [Asked<Self::Command>],
    ) -> impl Future<Output = Result<(), Interrupted>> + Send;

    /// A connection was made; what another one knew is gone.
    fn connected(
        &mut self,
        session: &Session,
    ) -> impl Future<Output = Result<(), Interrupted>> + Send;

    /// When there is something to do without a command; then [`Desk::round`] is called with none.
    fn wakes_at(&self) -> Option<Instant>;

    /// A transaction was undone, or nobody knows.
    fn undone(&mut self);
}

/// A command that waits.
#[derive(Debug)]
pub(super) struct Asked<C> {
    pub(super) command: C,
    pub(super) since: Instant,
}

/// What goes through the channel.
#[derive(Debug)]
pub(super) enum Message<C> {
    Asked(Asked<C>),
    /// Finish what was asked, take nothing more, and answer when the connection is closed.
    Close(oneshot::Sender<()>),
}

/// The task.
#[derive(Debug)]
pub(super) struct Writer<D: Desk> {
    pub(super) role: Role,
    pub(super) desk: D,
    pub(super) shared: Arc<Shared>,
    pub(super) connector: Connector,
    pub(super) messages: mpsc::Receiver<Message<D::Command>>,
    pub(super) random: fastrand::Rng,
    waiting: VecDeque<Asked<D::Command>>,
    closing: Vec<oneshot::Sender<()>>,
    is_open: bool,
}

/// What became of a transaction that was being committed when its connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Committed,
    Undone,
}

/// Every statement of a writer starts from a few keys and follows indexes. A plan is made once, often while the tables
/// are still empty, and must be as good when they are full.
const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off; \
     SET enable_seqscan = off; SET enable_bitmapscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off";
/// Callers of the API are told after this long that the database is away.
const PATIENCE: Duration = Duration::from_secs(10);
const RECONNECT_DELAY: Duration = Duration::from_millis(50);
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(2);

// === impl Slot ===

impl<T> Slot<T> {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (caller, answered) = oneshot::channel();
        (Self { caller, answer: None }, answered)
    }

    /// Keeps an answer until it is durable; a later one takes its place.
    pub(super) fn fill(&mut self, answer: Result<T, StoreError>) {
        self.answer = Some(answer);
    }

    pub(super) fn send(self) {
        if let Some(answer) = self.answer {
            let _caller_may_be_gone = self.caller.send(answer);
        }
    }

    pub(super) fn refuse(self, error: StoreError) {
        let _caller_may_be_gone = self.caller.send(Err(error));
    }
}

// === impl Writer ===

impl<D: Desk> Writer<D> {
    pub(super) fn new(
        role: Role,
        desk: D,
        shared: &Arc<Shared>,
        connector: Connector,
        random: fastrand::Rng,
    ) -> (Self, mpsc::Sender<Message<D::Command>>) {
        let (sender, messages) = mpsc::channel(limits::WRITER_COMMANDS);
        let writer = Self {
            role,
            desk,
            shared: Arc::clone(shared),
            connector,
            messages,
            random,
            waiting: VecDeque::new(),
            closing: Vec::new(),
            is_open: true,
        };
        (writer, sender)
    }

    /// Works until it is closed or the store fails.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.work().await {
            tracing::error!(%error, "the store failed: it takes no more work until a restart");
            let is_told = matches!(error, StoreError::Broken(_));
            let broken = if is_told { error } else { StoreError::Broken(error.to_string()) };
            self.shared.failed.send_replace(Some(broken));
        }
        for closing in self.closing {
            let _caller_may_be_gone = closing.send(());
        }
    }

    async fn work(&mut self) -> Result<(), StoreError> {
        let mut session = self.connect().await?;
        loop {
            self.gather().await;
            if self.waiting.is_empty() && !self.is_open {
                return Ok(());
            }
            let mut round = self.next_round();
            match self.desk.round(&session, &mut round).await {
                Ok(()) => answer_all(round),
                Err(Interrupted::Fatal(error)) => return Err(error),
                Err(Interrupted::Again(told)) => {
                    tracing::debug!(told, "a transaction is run again");
                    self.put_back(round);
                    // Whoever was in the way is done in a moment.
                    let delay = RECONNECT_DELAY.mul_f64(self.random.f64());
                    self.wait(tokio::time::sleep(delay)).await;
                    session = self.rolled_back(session).await?;
                }
                Err(Interrupted::Lost(told)) => {
                    drop(session);
                    self.lost(&told);
                    self.put_back(round);
                    session = self.connect().await?;
                }
                Err(Interrupted::Unknown { xid, told }) => {
                    drop(session);
                    self.lost(&told);
                    session = self.connect().await?;
                    let fate;
                    (session, fate) = self.fate(session, &xid).await?;
                    match fate {
                        Fate::Committed => {
                            answer_all(round);
                            self.shared.wake();
                        }
                        Fate::Undone => self.put_back(round),
                    }
                }
            }
        }
    }

    /// Waits until there is something to do, and takes whatever else is there.
    async fn gather(&mut self) {
        if self.waiting.is_empty() && self.is_open {
            let alarm = self.desk.wakes_at();
            let alarm = async {
                match alarm {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                message = self.messages.recv() => self.take_in(message),
                () = alarm => return,
            }
        }
        while self.waiting.len() < limits::ROUND_COMMANDS
            && let Ok(message) = self.messages.try_recv()
        {
            self.take_in(Some(message));
        }
    }

    fn take_in(&mut self, message: Option<Message<D::Command>>) {
        match message {
            Some(Message::Asked(asked)) => self.waiting.push_back(asked),
            Some(Message::Close(closing)) => {
                self.messages.close();
                self.closing.push(closing);
            }
            None => self.is_open = false,
        }
    }

    /// As much of what waits as one transaction takes.
    fn next_round(&mut self) -> Vec<Asked<D::Command>> {
        let mut items = 0;
        let mut round = Vec::new();
        while round.len() < limits::ROUND_COMMANDS
            && items < limits::ROUND_ITEMS
            && let Some(asked) = self.waiting.pop_front()
        {
            items += asked.command.items();
            round.push(asked);
        }
        round
    }

    fn put_back(&mut self, round: Vec<Asked<D::Command>>) {
        for asked in round.into_iter().rev() {
            self.waiting.push_front(asked);
        }
    }

    fn lost(&mut self, told: &str) {
        tracing::warn!(told, "lost the connection to the database");
        self.shared.set_link(self.role, None);
        self.desk.undone();
    }

    /// The connection after a transaction that the server undid.
    async fn rolled_back(&mut self, session: Session) -> Result<Session, StoreError> {
        self.desk.undone();
        let undo = in_time(RECONNECT_DELAY_MAX, session.client.batch_execute("ROLLBACK")).await;
        if matches!(undo, Ok(Ok(()))) {
            return Ok(session);
        }
        drop(session);
        self.lost("it does not answer");
        self.connect().await
    }

    /// Connects, however long it takes; callers that will not wait are answered meanwhile.
    async fn connect(&mut self) -> Result<Session, StoreError> {
        #[expect(clippy::expect_used, reason = "the bounds are constants")]
        let backoff = Backoff::new(RECONNECT_DELAY, RECONNECT_DELAY_MAX).expect("good bounds");
        let mut attempt: u16 = 0;
        loop {
            match self.try_to_connect().await {
                Ok(session) => {
                    if attempt > 0 {
                        tracing::info!("connected to the database again");
                    }
                    return Ok(session);
                }
                Err(Interrupted::Fatal(error @ StoreError::Damaged(_))) => return Err(error),
                Err(interrupted) => {
                    tracing::warn!(?interrupted, "cannot connect to the database: trying again");
                }
            }
            attempt = attempt.saturating_add(1);
            let delay = backoff.delay(attempt, None, &mut self.random);
            self.wait(tokio::time::sleep(delay)).await;
        }
    }

    async fn try_to_connect(&mut self) -> Result<Session, Interrupted> {
        let shared = Arc::clone(&self.shared);
        let hear: Hear = Arc::new(move |notification| shared.hear(&notification));
        let connector = self.connector.clone();
        let session = self.wait(connector.connect(Some(hear))).await?;
        session.client.batch_execute(PLANS).await?;
        self.shared.set_link(self.role, Some(session.backend));
        let connected = self.desk.connected(&session).await;
        if connected.is_err() {
            self.shared.set_link(self.role, None);
        }
        connected.map(|()| session)
    }

    /// What became of the transaction `xid`. One that still runs has not heard that its client is gone.
    async fn fate(
        &mut self,
        mut session: Session,
        xid: &str,
    ) -> Result<(Session, Fate), StoreError> {
        loop {
            let asked = async {
                session.client.query_one("SELECT pg_xact_status($1::text::xid8)", &[&xid]).await
            };
            let status = self.wait(in_time(PATIENCE, asked)).await;
            let status = match status {
                Ok(Ok(row)) => row.try_get::<_, Option<String>>(0)?,
                // A number from the future: this server never saw it, so it took over from the one that did.
                Ok(Err(error)) if error.code().is_some_and(|code| code.code() == "22023") => None,
                Ok(Err(_)) | Err(_) => {
                    drop(session);
                    self.lost("asked for a transaction");
                    session = self.connect().await?;
                    continue;
                }
            };
            match status.as_deref() {
                Some("committed") => return Ok((session, Fate::Committed)),
                Some("in progress") => self.wait(tokio::time::sleep(RECONNECT_DELAY)).await,
                _ => return Ok((session, Fate::Undone)),
            }
        }
    }

    /// Waits for `future`; takes in what is asked meanwhile, and answers who waited for too long.
    async fn wait<T>(&mut self, future: impl Future<Output = T>) -> T {
        tokio::pin!(future);
        loop {
            let oldest = self.waiting.iter().filter(|asked| asked.command.is_impatient());
            let oldest = oldest.map(|asked| asked.since + PATIENCE).min();
            let overdue = async {
                match oldest {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let takes_more = self.is_open && self.waiting.len() < limits::WRITER_COMMANDS;
            tokio::select! {
                biased;
                done = &mut future => return done,
                () = overdue => self.give_up(),
                message = self.messages.recv(), if takes_more => self.take_in(message),
            }
        }
    }

    /// Answers callers that waited for too long: what they asked for was certainly not done.
    fn give_up(&mut self) {
        let now = self.shared.clock.monotonic();
        let is_over = |asked: &Asked<D::Command>| {
            asked.command.is_impatient() && asked.since + PATIENCE <= now
        };
        let waiting = std::mem::take(&mut self.waiting);
        let (over, waiting): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(is_over);
        self.waiting = waiting;
        for asked in over {
            let told = "the database does not answer".to_owned();
            asked.command.refuse(StoreError::Unavailable(told));
        }
    }
}

fn answer_all<C: Command>(round: Vec<Asked<C>>) {
    for asked in round {
        asked.command.answer();
    }
}
