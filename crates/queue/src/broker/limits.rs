//! The bounds of the queues behind a broker alone. Bounds that other crates share stand in [`notification::limits`].

use std::time::Duration;

use notification::limits::{TAKE_TICKETS, TICKET_LEASE};

/// Tickets of one priority that a consumer holds: one load is being taken while the next arrives. Not more, since
/// what one holds no other can take.
pub const PREFETCH_TICKETS: usize = 2 * TAKE_TICKETS;
/// Tickets published before the first of them has to be confirmed.
pub const PUBLISH_TICKETS: usize = 1_024;
/// Longest time to publish, with a broker that is away or does not confirm.
pub const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time to connect and declare, or to declare again.
pub const LINK_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without data after which a link is probed; it is given up after about twice as long.
pub const LINK_HEARTBEAT: Duration = Duration::from_secs(5);
/// Time for which a silent consumer may hold a ticket before another gets it, where the broker counts by message.
pub const TICKET_ANSWER_WAIT: Duration = Duration::from_secs(9);
/// Deliveries of one ticket. One that comes back more often is left to the end of its lease.
pub const TICKET_DELIVERIES: u8 = 20;
/// Dead messages kept, which are no tickets; the oldest are deleted first.
pub const DEAD_MESSAGES: u64 = 1_000;
/// Time for which dead messages are kept.
pub const DEAD_MESSAGES_AGE: Duration = Duration::from_hours(7 * 24);

const _: () = assert!(
    TICKET_ANSWER_WAIT.as_secs() < TICKET_LEASE.as_secs(),
    "a ticket is given out again before its lease ends"
);
