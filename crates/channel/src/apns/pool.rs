//! The connections of one sender thread, and who may use them.
//!
//! A connection is full when all streams that its peer grants are taken. When all connections are full and
//! somebody waits, another is opened, one at a time; a new one takes one request until that has shown that
//! APNs accepts our token. Whoever waits is served in the order of priority, then of arrival.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use flow::{Backoff, Clock};
use notification::Priority;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::{Connection, Dial, Ending, Wire};

/// How long a request waits for a stream. Leaves half of an attempt's time for the answer.
const STREAM_WAIT: Duration = Duration::from_secs(15);
/// How soon a request that found no stream is worth another try.
pub(super) const NO_STREAM_DELAY: Duration = Duration::from_secs(1);

/// Connections to one endpoint.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Rc<Shared>,
    /// Ends with the pool.
    tasks: RefCell<JoinSet<()>>,
}

/// A stream that may be used. Dropping it frees the stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) connection: Rc<Connection>,
    /// Whether it had to be waited for.
    pub(super) waited: bool,
    shared: Rc<Shared>,
}

/// Why there is no stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoStream {
    /// There is no connection, and this is why.
    Unreachable(String),
    /// All streams were in use all the time.
    Full,
}

#[derive(Debug)]
struct Shared {
    dial: Dial,
    clock: Clock,
    connections_max: usize,
    backoff: Backoff,
    random: RefCell<fastrand::Rng>,
    connections: RefCell<Vec<Rc<Connection>>>,
    waiting: Waiting,
    connecting: Cell<bool>,
    failures: Cell<u16>,
    /// Not to be dialled before, after failures.
    dial_at: Cell<Option<Instant>>,
    last_failure: RefCell<Option<String>>,
}

/// Who waits for a stream, by priority.
#[derive(Debug, Default)]
struct Waiting {
    urgent: Line,
    normal: Line,
    bulk: Line,
}

#[derive(Debug, Default)]
struct Line {
    length: Cell<usize>,
    turn: Notify,
}

/// A place in a line. Leaving it, served or not, passes the turn on.
#[derive(Debug)]
struct Place<'a> {
    line: &'a Line,
    shared: &'a Shared,
}

// === impl Pool ===

impl Pool {
    /// A pool without connections.
    pub(super) fn new(
        dial: Dial,
        connections_max: usize,
        backoff: Backoff,
        tools: crate::Tools,
    ) -> Self {
        let shared = Shared {
            dial,
            clock: tools.clock,
            connections_max,
            backoff,
            random: RefCell::new(fastrand::Rng::with_seed(tools.seed)),
            connections: RefCell::default(),
            waiting: Waiting::default(),
            connecting: Cell::new(false),
            failures: Cell::new(0),
            dial_at: Cell::new(None),
            last_failure: RefCell::default(),
        };
        Self { shared: Rc::new(shared), tasks: RefCell::default() }
    }

    /// Takes a stream, when it is `priority`'s turn.
    pub(super) async fn stream(&self, priority: Priority) -> Result<Stream, NoStream> {
        if self.shared.waiting.none_before(priority)
            && let Some(stream) = self.take(false)
        {
            return Ok(stream);
        }
        match tokio::time::timeout(STREAM_WAIT, self.wait(priority)).await {
            Ok(stream) => Ok(stream),
            Err(_) => Err(self.shared.no_stream()),
        }
    }

    async fn wait(&self, priority: Priority) -> Stream {
        let place = Place::new(self.shared.waiting.line(priority), &self.shared);
        loop {
            self.grow();
            place.line.turn.notified().await;
            if let Some(stream) = self.take(true) {
                drop(place);
                self.grow();
                return stream;
            }
        }
    }

    fn take(&self, waited: bool) -> Option<Stream> {
        let connections = self.shared.connections.borrow();
        let connection = connections.iter().find(|connection| connection.free_streams() > 0)?;
        connection.take_stream();
        let connection = Rc::clone(connection);
        Some(Stream { connection, waited, shared: Rc::clone(&self.shared) })
    }

    /// Opens a connection if somebody waits and those there are cannot serve.
    fn grow(&self) {
        let shared = &self.shared;
        let may_grow = !shared.connecting.get() && shared.waiting.anyone() && {
            let connections = shared.connections.borrow();
            connections.len() < shared.connections_max
                && connections.iter().all(|one| one.is_proven() && one.free_streams() == 0)
        };
        if !may_grow {
            return;
        }
        shared.connecting.set(true);
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(live(Rc::clone(shared)));
    }

    /// Lets go of all connections and waits until they have said goodbye.
    pub(super) async fn close(&self) {
        self.shared.connections.borrow_mut().clear();
        let mut tasks = self.tasks.take();
        while tasks.join_next().await.is_some() {}
    }
}

/// The life of a connection.
async fn live(shared: Rc<Shared>) {
    let connected = shared.connect().await;
    shared.connecting.set(false);
    let Some((connection, mut wire)) = connected else { return };
    // Not held here: the connection ends in good order when the pool and its last stream let go of it.
    let connection = {
        let connection = Rc::new(connection);
        let weak = Rc::downgrade(&connection);
        shared.connections.borrow_mut().push(connection);
        weak
    };
    shared.wake();
    // What came may have been SETTINGS that grant more streams.
    let ending = wire.run(|| shared.wake()).await;
    shared.leave(&connection);
    if ending == Ending::Idle {
        wire.close().await;
    }
}

// === impl Shared ===

impl Shared {
    /// Connects, again and again while somebody waits.
    async fn connect(&self) -> Option<(Connection, Wire)> {
        while self.waiting.anyone() {
            if let Some(at) = self.dial_at.get() {
                tokio::time::sleep_until(at).await;
            }
            match self.dial.connect().await {
                Ok(connected) => {
                    self.failures.set(0);
                    self.dial_at.set(None);
                    self.last_failure.replace(None);
                    return Some(connected);
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection to APNs");
                    let failures = self.failures.get().saturating_add(1);
                    self.failures.set(failures);
                    let delay = self.backoff.delay(failures, None, &mut self.random.borrow_mut());
                    self.dial_at.set(Some(self.clock.monotonic() + delay));
                    self.last_failure.replace(Some(error.to_string()));
                }
            }
        }
        None
    }

    /// Takes a connection out of use; those under way on it go on. Who waits must look for another.
    fn leave(&self, connection: &Weak<Connection>) {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|other| !std::ptr::eq(Rc::as_ptr(other), connection.as_ptr()));
        self.waiting.wake_all();
    }

    /// Wakes whose turn it is, if there is a stream for them.
    fn wake(&self) {
        let serves =
            || self.connections.borrow().iter().any(|connection| connection.free_streams() > 0);
        if self.waiting.anyone() && serves() {
            self.waiting.wake_next();
        }
    }

    fn no_stream(&self) -> NoStream {
        match &*self.last_failure.borrow() {
            Some(failure) if self.connections.borrow().is_empty() => {
                NoStream::Unreachable(failure.clone())
            }
            _ if self.connections.borrow().is_empty() => {
                NoStream::Unreachable("no connection in time".to_owned())
            }
            _ => NoStream::Full,
        }
    }
}

// === impl Stream ===

impl Stream {
    /// Takes the stream's connection out of use.
    pub(super) fn leave_connection(&self) {
        self.shared.leave(&Rc::downgrade(&self.connection));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.give_stream_back();
        self.shared.wake();
    }
}

// === impl Waiting ===

impl Waiting {
    fn line(&self, priority: Priority) -> &Line {
        match priority {
            Priority::Urgent => &self.urgent,
            Priority::Normal => &self.normal,
            Priority::Bulk => &self.bulk,
        }
    }

    fn in_order(&self) -> [&Line; 3] {
        [&self.urgent, &self.normal, &self.bulk]
    }

    fn anyone(&self) -> bool {
        self.in_order().iter().any(|line| line.length.get() > 0)
    }

    /// Whether nobody of the same or a higher priority waits.
    fn none_before(&self, priority: Priority) -> bool {
        let lines = Priority::ALL.iter().filter(|other| **other <= priority);
        lines.map(|other| self.line(*other)).all(|line| line.length.get() == 0)
    }

    fn wake_next(&self) {
        if let Some(line) = self.in_order().into_iter().find(|line| line.length.get() > 0) {
            line.turn.notify_one();
        }
    }

    fn wake_all(&self) {
        for line in self.in_order() {
            line.turn.notify_waiters();
        }
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    fn new(line: &'a Line, shared: &'a Shared) -> Self {
        line.length.set(line.length.get() + 1);
        Self { line, shared }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.line.length.set(self.line.length.get().saturating_sub(1));
        self.shared.wake();
    }
}
