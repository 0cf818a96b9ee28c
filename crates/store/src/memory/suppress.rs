//! The suppression list and its changes.

use notification::{ByteString, Name, Timestamp};

use super::books::Books;
use crate::{
    Change, EventPosition, FeedCursor, Lift, Suppression, SuppressionEvent, SuppressionPage,
};

impl Books {
    /// Lists a recipient, unless it came back after the instant at which its provider saw it gone.
    pub(super) fn suppress(
        &mut self,
        suppression: Suppression,
        gone_since: Option<Timestamp>,
        at: Timestamp,
    ) {
        let key = (suppression.channel.clone(), suppression.recipient.clone());
        let lifted_at = self.lifts.get(&key).copied();
        // A recipient that was never lifted has no mark, and `None` is before every instant.
        let is_out_of_date = gone_since.is_some_and(|gone_since| lifted_at >= Some(gone_since));
        if is_out_of_date {
            return;
        }
        if let Some(listed) = self.suppressions.get_mut(&key) {
            listed.since = listed.since.max(suppression.since);
            let is_said_already =
                (listed.status, &listed.reason) == (suppression.status, &suppression.reason);
            if !suppression.is_by_operator() || is_said_already {
                return;
            }
            (listed.status, listed.reason) = (suppression.status, suppression.reason);
        } else {
            self.suppressions.insert(key.clone(), suppression);
        }
        let Some(Suppression { reason, status, since, .. }) = self.suppressions.get(&key).cloned()
        else {
            return;
        };
        self.tell(&key, at, Change::Suppressed { reason, status, since });
    }

    pub(super) fn lift(&mut self, lift: &Lift, now: Timestamp) -> bool {
        let covers = |listed: &Suppression| {
            let is_before =
                |registered_at| listed.since <= registered_at && !listed.is_by_operator();
            lift.registered_at.is_none_or(is_before)
        };
        let key = (lift.channel.clone(), lift.recipient.clone());
        let is_lifted = self.suppressions.get(&key).is_some_and(covers);
        if is_lifted {
            self.suppressions.remove(&key);
            self.tell(&key, now, Change::Lifted);
        }
        if is_lifted || lift.registered_at.is_some() {
            let mark = lift.registered_at.unwrap_or(now);
            let lifted_at = self.lifts.entry(key).or_insert(mark);
            *lifted_at = mark.max(*lifted_at);
        }
        is_lifted
    }

    pub(super) fn suppressions(
        &self,
        channel: &Name,
        after: Option<&ByteString>,
        items: usize,
    ) -> Vec<Suppression> {
        let of_channel = self.suppressions.values().filter(|it| &it.channel == channel);
        let rest = of_channel.filter(|it| after.is_none_or(|after| &it.recipient > after));
        rest.take(items).cloned().collect()
    }

    pub(super) fn suppressed_channel(&self, after: Option<&Name>) -> Option<Name> {
        let mut channels = self.suppressions.keys().map(|(channel, _)| channel);
        channels.find(|channel| after.is_none_or(|after| *channel > after)).cloned()
    }

    pub(super) fn suppression_events(
        &self,
        position: EventPosition,
        events: usize,
    ) -> SuppressionPage {
        let rest = self.events.iter().filter(|event| event.position > position);
        let mut events: Vec<SuppressionEvent> = rest.take(events).cloned().collect();
        let next = events.last().map_or(position, |last| last.position);
        // Of recipients that were erased.
        events.retain(|event| !event.recipient.is_empty());
        SuppressionPage { events, next }
    }

    pub(super) fn feed(&self, feed: &Name) -> FeedCursor {
        self.feeds.get(feed).copied().unwrap_or_default()
    }

    pub(super) fn move_feed(&mut self, feed: Name, from: FeedCursor, to: FeedCursor) -> FeedCursor {
        let cursor = self.feeds.entry(feed).or_default();
        if *cursor == from {
            *cursor = to;
        }
        *cursor
    }

    fn tell(&mut self, (channel, recipient): &(Name, ByteString), at: Timestamp, change: Change) {
        let event = self.events.last().map_or(0, |last| last.position.event) + 1;
        let position = EventPosition { transaction: 0, event };
        let (channel, recipient) = (channel.clone(), recipient.clone());
        self.events.push(SuppressionEvent { position, at, channel, recipient, change });
    }
}
