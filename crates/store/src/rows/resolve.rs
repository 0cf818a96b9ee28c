//! Notifications that were in doubt and have ended by an operator's word: their entries in the log, and the conditions.

use notification::{NotificationId, State, Timestamp};

use super::codec::LogLine;
use super::members::Members;
use super::requeue::{EndedBatch, NO_LONGER_IN_DOUBT};
use crate::{Attempted, Resolution, Resolved};

/// The log's words for the end, before the note.
const BY_HAND: &str = "resolved by hand";

/// The two lines of the log for notifications that are resolved.
#[derive(Debug)]
pub(crate) struct ResolutionLines {
    state: State,
    words: String,
    now: Timestamp,
}

// === impl ResolutionLines ===

impl ResolutionLines {
    pub(crate) fn new(resolution: &Resolution, now: Timestamp) -> Self {
        let words = match &*resolution.note {
            "" => BY_HAND.to_owned(),
            note => format!("{BY_HAND}: {note}"),
        };
        Self { state: resolution.state(), words, now }
    }

    /// The line that takes the doubt back. It comes first.
    pub(crate) fn taking_back(&self) -> LogLine<'static> {
        let unattempted = LogLine::unattempted(self.now, State::Pending);
        LogLine { detail: NO_LONGER_IN_DOUBT, ..unattempted }
    }

    /// The line of the end.
    pub(crate) fn end(&self) -> LogLine<'_> {
        LogLine { detail: &self.words, ..LogLine::unattempted(self.now, self.state) }
    }
}

// === impl EndedBatch ===

impl EndedBatch {
    /// Answers the requests for this batch; returns the members that are resolved from now on.
    pub(crate) fn resolve(
        &self,
        asked: &[(usize, NotificationId)],
        answers: &mut [Resolved],
    ) -> Members {
        let in_doubt = self.ended().remove(&State::InDoubt).unwrap_or_default();
        let mut resolved = Members::default();
        for &(place, id) in asked {
            let index = id.index();
            let answer = if !self.has(id) {
                Resolved::Unknown
            } else if in_doubt.contains(index) && resolved.insert(index) {
                Resolved::Resolved
            } else {
                // It has another state, or this is the second time in one request.
                Resolved::OtherState
            };
            if let Some(slot) = answers.get_mut(place) {
                *slot = answer;
            }
        }
        resolved
    }
}

// === impl Attempted ===

impl Attempted {
    /// True if it is an end by an operator's word: no attempt led to it, which is so of hardly another one that is dead, and of
    /// none that is delivered.
    pub(crate) fn is_resolution(&self) -> bool {
        let may_be = matches!(self.state, State::Delivered | State::Dead) && self.attempt == 0;
        may_be && self.detail.starts_with(BY_HAND)
    }

    /// The words that stay when all is erased that was said of a notification.
    pub(crate) fn own_words(&self) -> &'static str {
        if self.is_resolution() { BY_HAND } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::super::requeue::{log_line, put_end_last};
    use super::*;

    #[test]
    fn the_end_is_the_one_of_the_resolution_in_whatever_order_the_log_has_it() {
        let now = Timestamp::from_millis(0);
        let in_doubt = Attempted { attempt: 1, ..LogLine::unattempted(now, State::InDoubt).into() };
        let lines = |state: State| -> [Attempted; 2] {
            let lines = ResolutionLines::new(&Resolution::new(state, "").unwrap(), now);
            [lines.taking_back().into(), lines.end().into()]
        };
        let [of_doubt, delivered] = lines(State::Delivered);
        let [_, dead] = lines(State::Dead);
        let requeued: Attempted = log_line(State::Dead, now).into();
        let last = |lines: &[&Attempted]| {
            let mut attempts: Vec<Attempted> = lines.iter().copied().cloned().collect();
            put_end_last(&mut attempts);
            attempts.last().map(|it| it.state)
        };
        assert_eq!(of_doubt.taken_back(), Some(State::InDoubt));
        assert_eq!(last(&[&delivered, &of_doubt, &in_doubt]), Some(State::Delivered));
        assert_eq!(last(&[&dead, &of_doubt, &in_doubt]), Some(State::Dead));
        assert_eq!(
            last(&[&dead, &in_doubt, &of_doubt, &in_doubt, &requeued]),
            Some(State::InDoubt)
        );
        assert_eq!(last(&[&in_doubt, &dead, &of_doubt, &requeued]), Some(State::Pending));
    }

    #[test]
    fn the_note_follows_belfrys_words() {
        let now = Timestamp::from_millis(0);
        let line = |note| {
            let resolution = Resolution::new(State::Dead, note).unwrap();
            Attempted::from(ResolutionLines::new(&resolution, now).end())
        };
        assert_eq!(line("").detail, "resolved by hand");
        let noted = line("the provider has none of it");
        assert_eq!(noted.detail, "resolved by hand: the provider has none of it");
        assert!(noted.is_resolution());
        assert_eq!(noted.own_words(), "resolved by hand");
        let other = Attempted { attempt: 1, ..noted };
        assert_eq!((other.is_resolution(), other.own_words()), (false, ""));
    }
}
