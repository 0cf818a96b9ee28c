//! What becomes of the suppression list when somebody says that a recipient must not be tried. Arithmetic only: the backend
//! writes it down. The rule of the two databases; it is the table of [`crate::Ledger::suppress`].

use std::collections::BTreeMap;

use notification::{State, Timestamp};

use super::codec::{LogLine, LogRow};
use crate::Suppression;

/// Members that are not sent, and what the log says of each.
pub(crate) type Suppressed = BTreeMap<u16, String>;

/// What a recipient's entry is when `said` was said of it as well.
pub(crate) fn merged(listed: &Suppression, said: &Suppression) -> Suppression {
    let words = if said.is_by_operator() { said } else { listed };
    Suppression {
        reason: words.reason.clone(),
        status: words.status,
        since: listed.since.max(said.since),
        ..listed.clone()
    }
}

/// Whether the list says something else than it did. An earlier event's `since` may grow without a word.
pub(crate) fn is_news(before: &Suppression, after: &Suppression) -> bool {
    (&before.reason, before.status) != (&after.reason, after.status)
}

/// The log of those that are not sent, which is found at `at`.
pub(crate) fn log_row(suppressed: &Suppressed, at: Timestamp) -> LogRow {
    let mut indexes: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
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

/// Whether the recipient came back, as of `lifted_at`, after the instant at which its provider saw it gone.
pub(crate) fn is_out_of_date(gone_since: Option<Timestamp>, lifted_at: Option<Timestamp>) -> bool {
    gone_since.is_some_and(|gone_since| lifted_at >= Some(gone_since))
}
