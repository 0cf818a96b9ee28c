//! The connections of one sender thread, by destination.
//!
//! A connection carries one mail at a time and belongs to the attempt that uses it. A destination has a bounded number of
//! sessions; an attempt that may have one takes an idle connection, or opens one. What a server says or does between two mails
//! (421, or just closing) costs no mail anything: the connection is dropped and the next one taken.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flow::{Backoff, Clock};
use net::connection_counts::ConnectionCounts;
use net::idle::{Idle, Reusable};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::route::Router;
use super::session::{NoConnection, SmtpSession};
use super::session_limits::{LimitRefusal, SessionLimits};
use super::transaction::quit;
use crate::Tools;

/// How long a connection without work is kept, and how often that is looked at: so up to twice as long. Servers end idle
/// ones after five minutes (RFC 5321, section 4.5.3.2.7), many sooner.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long an attempt waits for a session.
const SESSION_WAIT: Duration = Duration::from_secs(30);
/// Destinations remembered without a connection or a failure to speak of; beyond it they are forgotten.
const DESTINATIONS_KEPT: usize = 1_024;

/// Connections to servers.
#[derive(Debug)]
pub(super) struct SessionPool {
    router: Router,
    limits: SessionPoolBounds,
    clock: Clock,
    random: RefCell<fastrand::Rng>,
    destinations: RefCell<HashMap<Arc<str>, Rc<Destination>>>,
    idle: Idle<Rc<Destination>, SmtpSession>,
    session_limits: SessionLimits,
    counts: Arc<ConnectionCounts>,
}

/// How many connections, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionPoolBounds {
    /// At least 1.
    pub(super) connections_max: usize,
    /// At least 1.
    pub(super) deliveries_per_connection: u32,
}

/// A connection for one mail, with the permit to use it. Dropping it ends the connection; [`SessionPool::keep`] does not.
#[derive(Debug)]
pub(super) struct PooledSession {
    pub(super) connection: SmtpSession,
    /// True if it carried a mail before.
    pub(super) is_reused: bool,
    destination: Rc<Destination>,
    _permit: OwnedSemaphorePermit,
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum NoSession {
    /// All were in use all the time.
    Full,
    /// No connection can be made, and why; `is_new` when this was not reported before.
    Failed { why: NoConnection, is_new: bool },
}

#[derive(Debug)]
struct Destination {
    name: Arc<str>,
    /// Permits of sessions.
    sessions: Arc<Semaphore>,
    failures: Cell<u16>,
    /// Why and until when no connection is tried.
    closed: RefCell<Option<(NoConnection, Instant)>>,
}

// === impl SessionPool ===

impl SessionPool {
    /// A pool without connections.
    pub(super) fn new(router: Router, limits: SessionPoolBounds, tools: Tools) -> Self {
        Self {
            router,
            limits,
            clock: tools.clock,
            random: RefCell::new(fastrand::Rng::with_seed(tools.seed)),
            destinations: RefCell::default(),
            // The sessions of each destination bound them.
            idle: Idle::new(tools.clock, IDLE_MAX, usize::MAX),
            session_limits: SessionLimits::new(tools.clock),
            counts: tools.connections,
        }
    }

    /// A session with `destination`, over an idle connection or a new one, when it may have another.
    pub(super) async fn session(&self, destination: &Arc<str>) -> Result<PooledSession, NoSession> {
        let destination = self.destination(destination);
        let permit = Arc::clone(&destination.sessions).acquire_owned();
        let Ok(Ok(permit)) = tokio::time::timeout(SESSION_WAIT, permit).await else {
            return Err(NoSession::Full);
        };
        // A new one only where none is idle: so those in use and the idle ones together are never more than the
        // permits.
        let (connection, is_reused) = match self.take_idle(&destination) {
            Some(connection) => (connection, true),
            None => (self.connect(&destination).await?, false),
        };
        Ok(PooledSession { connection, is_reused, destination, _permit: permit })
    }

    /// Keeps the connection for the next mail, unless it has had its share.
    pub(super) fn keep(&self, session: PooledSession) {
        let PooledSession { connection, destination, .. } = session;
        if connection.transactions >= self.limits.deliveries_per_connection
            || self.is_full(&connection)
        {
            // In the background: the next mail does not wait for the answer to QUIT.
            self.idle.end(connection);
            return;
        }
        self.idle.put(destination, connection);
    }

    /// Ends the connection, whose server takes no more mails over it. What it refused is tried over another one, and
    /// if that takes it, the refusal is to be [learned](Self::learn).
    pub(super) fn retire(&self, session: PooledSession) -> LimitRefusal {
        let PooledSession { connection, .. } = session;
        let (host, mails_taken) = (Arc::clone(&connection.host), connection.mails_taken);
        self.idle.end(connection);
        LimitRefusal { host, mails_taken }
    }

    /// Ends later sessions with the host of `refusal` before they are refused.
    pub(super) fn learn(&self, refusal: LimitRefusal) {
        self.session_limits.learn(refusal);
    }

    fn is_full(&self, connection: &SmtpSession) -> bool {
        self.session_limits.is_full(&connection.host, connection.mails_taken)
    }

    /// The idle connection that was used last, is still good, and has room for a mail as far as is known.
    fn take_idle(&self, destination: &Rc<Destination>) -> Option<SmtpSession> {
        loop {
            let connection = self.idle.take(destination)?;
            if !self.is_full(&connection) {
                return Some(connection);
            }
            self.idle.end(connection);
        }
    }

    /// Ends idle connections with QUIT.
    pub(super) async fn close(&self) {
        self.destinations.borrow_mut().clear();
        self.idle.close().await;
    }

    fn destination(&self, name: &Arc<str>) -> Rc<Destination> {
        let mut destinations = self.destinations.borrow_mut();
        if let Some(destination) = destinations.get(name) {
            return Rc::clone(destination);
        }
        if destinations.len() >= DESTINATIONS_KEPT {
            let now = self.clock.monotonic();
            destinations.retain(|_, destination| {
                // A session or an idle connection holds it too.
                Rc::strong_count(destination) > 1 || destination.is_closed(now)
            });
        }
        let destination = Rc::new(Destination {
            name: Arc::clone(name),
            sessions: Arc::new(Semaphore::new(self.limits.connections_max)),
            failures: Cell::new(0),
            closed: RefCell::default(),
        });
        destinations.insert(Arc::clone(name), Rc::clone(&destination));
        destination
    }

    async fn connect(&self, destination: &Destination) -> Result<SmtpSession, NoSession> {
        // While a server cannot be reached it is called once after each pause, and not for each of its mails.
        if let Some((why, until)) = &*destination.closed.borrow()
            && *until > self.clock.monotonic()
        {
            return Err(NoSession::Failed { why: why.clone(), is_new: false });
        }
        let failures_before = destination.failures.get();
        let connected = self.router.connect(&destination.name, &self.random).await;
        if let Err(why) = &connected {
            self.counts.fail(why.fault());
        }
        match connected {
            Ok(mut connection) => {
                destination.failures.set(0);
                destination.closed.take();
                connection.counted = Some(self.counts.open());
                Ok(connection)
            }
            // Of connects at the same time the first that fails speaks for all: together they are one failure in a row.
            Err(why) if destination.failures.get() != failures_before => {
                Err(NoSession::Failed { why, is_new: false })
            }
            Err(why) => {
                let failures = failures_before.saturating_add(1);
                destination.failures.set(failures);
                let wait = Backoff::CONNECT.delay(failures, None, &mut self.random.borrow_mut());
                destination.closed.replace(Some((why.clone(), self.clock.monotonic() + wait)));
                Err(NoSession::Failed { why, is_new: true })
            }
        }
    }
}

// === impl Destination ===

impl Destination {
    fn is_closed(&self, now: Instant) -> bool {
        self.closed.borrow().as_ref().is_some_and(|(_, until)| *until > now)
    }
}

impl PartialEq for Destination {
    /// By name: the key of idle connections.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Destination {}

// === impl SmtpSession ===

impl Reusable for SmtpSession {
    fn is_usable(&mut self) -> bool {
        self.wire.is_quiet()
    }

    async fn end(self) {
        quit(self).await;
    }
}
