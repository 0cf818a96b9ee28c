//! The connections of one sender thread, by destination.
//!
//! A connection carries one mail at a time and belongs to the attempt that uses it. A destination has so many places; who
//! holds a place takes a connection that is idle, or opens one. What a server says or does between two mails (421, or just
//! closing) costs nobody anything: the connection is forgotten and the next one taken.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use flow::{Backoff, Clock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::route::Router;
use super::session::{Connection, NoConnection};
use super::session_limits::{Refusal, SessionLimits};
use super::transaction::quit;
use crate::Tools;

/// How long a connection without work is kept, and how often that is looked at: so up to twice as long. Servers end idle
/// ones after five minutes (RFC 5321, section 4.5.3.2.7), many sooner.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long an attempt waits for a place.
const PLACE_WAIT: Duration = Duration::from_secs(30);
/// Destinations remembered without a connection or a failure to speak of; beyond it they are forgotten.
const DESTINATIONS_KEPT: usize = 1_024;
/// Between connects that fail: at first and at last.
const RECONNECT_BASE: Duration = Duration::from_millis(500);
const RECONNECT_CAP: Duration = Duration::from_secs(30);

/// Connections to servers.
#[derive(Debug)]
pub(super) struct Pool {
    router: Router,
    limits: Limits,
    clock: Clock,
    backoff: Backoff,
    random: RefCell<fastrand::Rng>,
    destinations: Rc<RefCell<HashMap<Arc<str>, Rc<Destination>>>>,
    session_limits: SessionLimits,
    is_swept: Rc<Cell<bool>>,
    /// Ends with the pool.
    tasks: RefCell<JoinSet<()>>,
}

/// How many connections, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// At least 1.
    pub(super) connections_max: usize,
    /// At least 1.
    pub(super) deliveries_per_connection: u32,
}

/// A connection that may be used. Dropping it ends it; [`Pool::keep`] does not.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) connection: Connection,
    /// Whether it carried a mail before.
    pub(super) is_reused: bool,
    /// Whether it had to be waited for.
    pub(super) waited: bool,
    destination: Rc<Destination>,
    _permit: OwnedSemaphorePermit,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoPlace {
    /// All were in use all the time.
    Full,
    /// None can be made, and this is why; `is_new` when nobody was told yet.
    Failed { why: NoConnection, is_new: bool },
}

#[derive(Debug)]
struct Destination {
    name: Arc<str>,
    places: Arc<Semaphore>,
    /// The one that was used last comes last.
    idle: RefCell<Vec<(Connection, Instant)>>,
    failures: Cell<u16>,
    /// Why and until when nobody tries.
    closed: RefCell<Option<(NoConnection, Instant)>>,
}

// === impl Pool ===

impl Pool {
    /// A pool without connections.
    pub(super) fn new(router: Router, limits: Limits, backoff: Backoff, tools: Tools) -> Self {
        Self {
            router,
            limits,
            clock: tools.clock,
            backoff,
            random: RefCell::new(fastrand::Rng::with_seed(tools.seed)),
            destinations: Rc::default(),
            session_limits: SessionLimits::new(tools.clock),
            is_swept: Rc::default(),
            tasks: RefCell::default(),
        }
    }

    /// The backoff between connects.
    pub(super) fn backoff() -> Result<Backoff, flow::backoff::BackoffError> {
        Backoff::new(RECONNECT_BASE, RECONNECT_CAP)
    }

    /// A connection to `destination`: an idle one, or a new one when a place is free.
    pub(super) async fn place(&self, destination: &Arc<str>) -> Result<Place, NoPlace> {
        let destination = self.destination(destination);
        let mut waited = false;
        let permit = match Arc::clone(&destination.places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_none_free) => {
                waited = true;
                let places = Arc::clone(&destination.places);
                match tokio::time::timeout(PLACE_WAIT, places.acquire_owned()).await {
                    Ok(Ok(permit)) => permit,
                    Ok(Err(_)) | Err(_) => return Err(NoPlace::Full),
                }
            }
        };
        let (connection, is_reused) = match self.take_idle(&destination) {
            Some(connection) => (connection, true),
            None => (self.connect(&destination).await?, false),
        };
        Ok(Place { connection, is_reused, waited, destination, _permit: permit })
    }

    /// Keeps the connection for the next mail, unless it has had its share.
    pub(super) fn keep(&self, place: Place) {
        let Place { connection, destination, .. } = place;
        if connection.transactions >= self.limits.deliveries_per_connection
            || self.is_full(&connection)
        {
            self.spawn(quit(connection, self.clock));
            return;
        }
        destination.idle.borrow_mut().push((connection, self.clock.monotonic()));
        if !self.is_swept.replace(true) {
            let swept = Rc::clone(&self.is_swept);
            self.spawn(sweep(Rc::downgrade(&self.destinations), swept, self.clock));
        }
    }

    /// Ends the connection, whose server takes no more mails over it. What it refused is tried over another one, and
    /// if that takes it, the refusal is to be [learned](Self::learn).
    pub(super) fn retire(&self, place: Place) -> Refusal {
        let Place { connection, .. } = place;
        let (host, mails_taken) = (Arc::clone(&connection.host), connection.mails_taken);
        self.spawn(quit(connection, self.clock));
        Refusal { host, mails_taken }
    }

    /// Ends later sessions with the host of `refusal` before they are refused.
    pub(super) fn learn(&self, refusal: Refusal) {
        self.session_limits.learn(refusal);
    }

    fn is_full(&self, connection: &Connection) -> bool {
        self.session_limits.is_full(&connection.host, connection.mails_taken)
    }

    /// The idle connection that was used last, is still good, and has room for a mail as far as is known.
    fn take_idle(&self, destination: &Destination) -> Option<Connection> {
        loop {
            let connection = destination.take_idle()?;
            if !self.is_full(&connection) {
                return Some(connection);
            }
            self.spawn(quit(connection, self.clock));
        }
    }

    /// Ends idle connections politely.
    pub(super) async fn close(&self) {
        let destinations: Vec<_> = self.destinations.borrow_mut().drain().collect();
        let mut tasks = self.tasks.take();
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        self.is_swept.set(false);
        let idle = destinations.iter().flat_map(|(_, destination)| destination.idle.take());
        let farewells = idle.map(|(connection, _)| quit(connection, self.clock));
        futures_util::future::join_all(farewells).await;
    }

    fn destination(&self, name: &Arc<str>) -> Rc<Destination> {
        let mut destinations = self.destinations.borrow_mut();
        if let Some(destination) = destinations.get(name) {
            return Rc::clone(destination);
        }
        if destinations.len() >= DESTINATIONS_KEPT {
            let now = self.clock.monotonic();
            destinations.retain(|_, destination| destination.is_of_use(now));
        }
        let destination = Rc::new(Destination {
            name: Arc::clone(name),
            places: Arc::new(Semaphore::new(self.limits.connections_max)),
            idle: RefCell::default(),
            failures: Cell::new(0),
            closed: RefCell::default(),
        });
        destinations.insert(Arc::clone(name), Rc::clone(&destination));
        destination
    }

    async fn connect(&self, destination: &Destination) -> Result<Connection, NoPlace> {
        if let Some((why, until)) = &*destination.closed.borrow()
            && *until > self.clock.monotonic()
        {
            return Err(NoPlace::Failed { why: why.clone(), is_new: false });
        }
        match self.router.connect(&destination.name, &self.random).await {
            Ok(connection) => {
                destination.failures.set(0);
                destination.closed.take();
                Ok(connection)
            }
            Err(why) => {
                let failures = destination.failures.get().saturating_add(1);
                destination.failures.set(failures);
                let wait = self.backoff.delay(failures, None, &mut self.random.borrow_mut());
                destination.closed.replace(Some((why.clone(), self.clock.monotonic() + wait)));
                Err(NoPlace::Failed { why, is_new: true })
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }
}

// === impl Destination ===

impl Destination {
    /// The idle connection that was used last and is still good.
    fn take_idle(&self) -> Option<Connection> {
        loop {
            let (mut connection, _) = self.idle.borrow_mut().pop()?;
            if connection.wire.is_quiet() {
                return Some(connection);
            }
        }
    }

    fn is_of_use(&self, now: Instant) -> bool {
        let is_closed = self.closed.borrow().as_ref().is_some_and(|(_, until)| *until > now);
        let is_idle = self.idle.borrow().is_empty() && Arc::strong_count(&self.places) == 1;
        is_closed || !is_idle
    }
}

/// Ends connections that have been idle for long, until none is left.
async fn sweep(
    destinations: Weak<RefCell<HashMap<Arc<str>, Rc<Destination>>>>,
    is_swept: Rc<Cell<bool>>,
    clock: Clock,
) {
    loop {
        tokio::time::sleep(IDLE_MAX).await;
        let Some(destinations) = destinations.upgrade() else { return };
        let expired = clock.monotonic().checked_sub(IDLE_MAX);
        let (mut ended, mut is_any_left) = (Vec::new(), false);
        for destination in destinations.borrow().values() {
            let mut idle = destination.idle.borrow_mut();
            let is_kept = |since: &Instant| expired.is_none_or(|expired| *since > expired);
            let kept = idle.iter().position(|(_, since)| is_kept(since)).unwrap_or(idle.len());
            ended.extend(idle.drain(..kept));
            is_any_left |= !idle.is_empty();
        }
        if !is_any_left {
            is_swept.set(false);
        }
        drop(destinations);
        futures_util::future::join_all(
            ended.into_iter().map(|(connection, _)| quit(connection, clock)),
        )
        .await;
        if !is_any_left {
            return;
        }
    }
}
