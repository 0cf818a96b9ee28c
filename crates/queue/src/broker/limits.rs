//! The bounds of the queues behind a broker alone. Those that other crates share stand in [`notification::limits`].

use std::time::Duration;

use notification::limits::{TAKE_TICKETS, TICKET_LEASE};

/// Tickets of one priority that a consumer holds: one load is being taken while the next arrives. Not more, since
/// what one holds no other can take.
pub const PREFETCH_TICKETS: usize = 2 * TAKE_TICKETS;
/// Tickets published before the first of them has to be confirmed.
pub const PUBLISH_TICKETS: usize = 1_024;
/// How long publishing may take, with a broker that is away or does not confirm.
pub const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take to connect and declare, or to declare again.
pub const LINK_TIMEOUT: Duration = Duration::from_secs(5);
/// A link on which nothing arrives is asked for a sign of life this often, and given up after about
/// twice as long.
pub const LINK_HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a consumer that says nothing may hold a ticket before another gets it, where the broker counts by message.
pub const TICKET_ANSWER_WAIT: Duration = Duration::from_secs(9);
/// Times that one ticket is given out. What comes back more often is left to the end of its lease.
pub const TICKET_DELIVERIES: u8 = 20;
/// Messages kept that are no tickets; the oldest go first.
pub const DEAD_MESSAGES: u64 = 1_000;
/// How long they are kept.
pub const DEAD_MESSAGES_AGE: Duration = Duration::from_hours(7 * 24);

const _: () = assert!(
    TICKET_ANSWER_WAIT.as_secs() < TICKET_LEASE.as_secs(),
    "a ticket is given out again before its lease ends"
);
