//! Counts of connections: how many are open, how many were made, and why others were not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the connections of a channel on one thread, or on several.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    opened: AtomicU64,
    closed: AtomicU64,
    failed: [AtomicU64; ConnectFault::ALL.len()],
    gone_away: AtomicU64,
}

/// The part of connecting at which it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFault {
    /// The address must not be connected to.
    Forbidden,
    /// The name has no address, or cannot be looked up.
    Resolve,
    /// TCP: refused, unreachable.
    Connect,
    /// The handshake of TLS.
    Tls,
    /// The protocol in it: not spoken, refused, closed at once.
    Protocol,
    /// It took too long, whichever part it was at.
    Timeout,
}

/// A connection that is open until this is dropped.
#[derive(Debug)]
pub struct CountedConnection(Arc<ConnectionCounts>);

// === impl ConnectionCounts ===

impl ConnectionCounts {
    /// Counts a connection that was made.
    pub fn open(self: &Arc<Self>) -> CountedConnection {
        self.opened.fetch_add(1, Ordering::Relaxed);
        CountedConnection(Arc::clone(self))
    }

    /// Counts one that could not be made.
    pub fn fail(&self, fault: ConnectFault) {
        if let Some(count) = self.failed.get(fault as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one whose server has announced that it ends it (GOAWAY of HTTP/2, RFC 9113, section 6.8).
    pub fn go_away(&self) {
        self.gone_away.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of connections that were made.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Number of connections that are open.
    pub fn open_now(&self) -> u64 {
        // In this order: one that is closed meanwhile was opened before.
        let closed = self.closed.load(Ordering::Relaxed);
        self.opened().saturating_sub(closed)
    }

    /// Number of connections that could not be made because of `fault`.
    pub fn failed(&self, fault: ConnectFault) -> u64 {
        self.failed.get(fault as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Number of connections whose server has announced their end.
    pub fn gone_away(&self) -> u64 {
        self.gone_away.load(Ordering::Relaxed)
    }
}

// === impl ConnectFault ===

impl ConnectFault {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Forbidden, Self::Resolve, Self::Connect, Self::Tls, Self::Protocol, Self::Timeout];

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
        }
    }
}

// === impl CountedConnection ===

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::Relaxed);
    }
}
