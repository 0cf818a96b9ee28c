//! Events that a feed has read and not handed on yet: a page has more of them than fit into one notification, and is read once.

use std::time::Duration;

use notification::limits;
use store::EventPosition;
use tokio::time::Instant;

use crate::event::FeedEvent;

/// All events of a source behind one position, up to the last of them.
#[derive(Debug)]
pub(crate) struct EventsAhead {
    /// Position behind which they are.
    from: EventPosition,
    events: Vec<FeedEvent>,
    /// Position behind which nothing is read yet.
    pub(crate) next: EventPosition,
    /// The most that are read ahead, and that one notification takes.
    events_max: usize,
    read_at: Instant,
}

/// The events of a range that was fixed.
#[derive(Debug)]
pub(crate) enum RangeEvents {
    All(Vec<FeedEvent>),
    /// They are too many for one notification, which takes those up to here.
    UpTo(EventPosition),
}

/// Bytes of events in one notification: the rest is for what stands around them.
const CONTENT_BYTES: usize = limits::PAYLOAD_BYTES - 1_024;
/// Age from which on events are read anew: what was erased so long ago is not handed on.
const FRESH: Duration = Duration::from_secs(1);

// === impl EventsAhead ===

impl EventsAhead {
    /// No events yet behind `from`; there are none up to `next`. Reading begins `now`, and `events_max` are the most at a time.
    pub(crate) const fn new(
        from: EventPosition,
        next: EventPosition,
        events_max: usize,
        now: Instant,
    ) -> Self {
        Self { from, events: Vec::new(), next, events_max, read_at: now }
    }

    /// True if its events are the next ones behind `position`, and may be handed on.
    pub(crate) fn is_behind(&self, position: EventPosition, now: Instant) -> bool {
        self.from == position && now - self.read_at < FRESH
    }

    /// How many more may be read.
    pub(crate) const fn room(&self) -> usize {
        self.events_max - self.events.len()
    }

    /// Adds the events that were read behind the others, up to `next`.
    pub(crate) fn add(&mut self, events: Vec<FeedEvent>, next: EventPosition) {
        self.events.extend(events);
        self.next = next;
    }

    /// The first and the last event of the next notification, if there are any.
    pub(crate) fn ends(&self) -> Option<[&FeedEvent; 2]> {
        // One event always fits: a recipient has 2 KiB and a reason 200 characters at most. So the feed never stops at one.
        let fitting = self.events.get(..self.fitting())?;
        Some([fitting.first()?, fitting.last()?])
    }

    /// True if no more events go with the next notification, whatever follows.
    pub(crate) fn is_full(&self) -> bool {
        let fitting = self.fitting();
        fitting == self.events_max || fitting < self.events.len()
    }

    /// Takes the events between two positions out, the last included; `None` if they must be read anew.
    pub(crate) fn take(
        &mut self,
        position: EventPosition,
        until: EventPosition,
        now: Instant,
    ) -> Option<Vec<FeedEvent>> {
        let [_, last] = self.ends().filter(|_| self.is_behind(position, now))?;
        if last.position != until {
            return None;
        }
        self.from = until;
        Some(self.events.drain(..self.fitting()).collect())
    }

    /// All of its events, which are those until `until`; or, if they are too many for one notification, the end of those that fit.
    pub(crate) fn into_range(self, until: EventPosition) -> RangeEvents {
        let end = self.ends().map(|[_, last]| last.position);
        match end.filter(|end| self.is_full() && *end < until) {
            Some(end) => RangeEvents::UpTo(end),
            None => RangeEvents::All(self.events),
        }
    }

    /// How many of them fit into one notification.
    fn fitting(&self) -> usize {
        let ends = self.events.iter().scan(0, |end, event| {
            *end += event.bytes();
            Some(*end)
        });
        ends.take(self.events_max).take_while(|end| *end <= CONTENT_BYTES).count()
    }
}
