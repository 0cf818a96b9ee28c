//! The rule by which a report that a recipient must not be tried changes the suppression list: the table of
//! [`crate::Operations::suppress`]. Arithmetic only: both databases go by it, and write its result.

use std::collections::BTreeMap;

use notification::{State, Timestamp};

use super::codec::{LogLine, LogRow};
use crate::Suppression;

/// Members that are not sent, and the detail of each for the log.
pub(crate) type SuppressedMembers = BTreeMap<u16, String>;

/// The entry of a listed recipient after another report of it.
pub(crate) fn merged(listed: &Suppression, reported: &Suppression) -> Suppression {
    let newer = if reported.is_by_operator() { reported } else { listed };
    Suppression {
        reason: newer.reason.clone(),
        status: newer.status,
        since: listed.since.max(reported.since),
        ..listed.clone()
    }
}

/// True if a change of an entry is an event. A later `since` alone is none.
pub(crate) fn is_news(before: &Suppression, after: &Suppression) -> bool {
    (&before.reason, before.status) != (&after.reason, after.status)
}

/// The log of those that are not sent, which is found at `at`.
pub(crate) fn log_row(suppressed: &SuppressedMembers, at: Timestamp) -> LogRow {
    let mut indexes: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
    // In order of index, in which a row of the log takes them.
    for (index, detail) in suppressed {
        indexes.entry(detail).or_default().push(*index);
    }
    let mut row = LogRow::new();
    for (detail, indexes) in indexes {
        let line = LogLine { detail, ..LogLine::unattempted(at, State::Suppressed) };
        row.push(&line, indexes.into_iter());
    }
    row
}

/// True if the recipient came back, as of `lifted_at`, at or after the instant at which its provider saw it gone.
pub(crate) fn is_out_of_date(gone_since: Option<Timestamp>, lifted_at: Option<Timestamp>) -> bool {
    // Without a mark it never came back: `None` is before every instant.
    gone_since.is_some_and(|gone_since| lifted_at >= Some(gone_since))
}
