//! Support of the tests of all channels: answers, checks of contents, and the comparison of what channels do with what
//! `docs/suppressions.md` says of the answers that put a recipient on the suppression list.

use std::collections::BTreeSet;

use flow::Timing;
use http::HeaderMap;
use net::exchange::Reply;
use notification::{Report, Verdict};

use crate::{Attempt, Invalid};

const PAGE: &str = include_str!("../../../docs/suppressions.md");

/// The answers in the page's row of `kind` on which the column number `column` says that the recipient is not registered any more.
fn documented(kind: &str, column: usize) -> BTreeSet<&'static str> {
    let start = format!("| `{kind}` |");
    let row = PAGE.lines().find(|line| line.starts_with(&start)).expect("the page has the row");
    let cell = row.split('|').nth(column + 1).expect("the row has the column");
    cell.split('`').skip(1).step_by(2).collect()
}

/// Whether the recipient is not tried again.
pub(crate) fn is_unregistered(attempt: &Attempt) -> bool {
    let Report::Attempted(answer) = &attempt.report else { return false };
    answer.verdict == Verdict::Refused { gone: true }
}

/// Checks that of `answers`, each with its name, exactly those retire a recipient that the page says.
pub(crate) fn check_suppressions(
    kind: &str,
    column: usize,
    answers: impl IntoIterator<Item = (String, Attempt)>,
) {
    let unregistered = answers.into_iter().filter(|(_, attempt)| is_unregistered(attempt));
    let found: BTreeSet<String> = unregistered.map(|(name, _)| name).collect();
    let documented: BTreeSet<String> =
        documented(kind, column).into_iter().map(str::to_owned).collect();
    assert_eq!(
        found, documented,
        "{kind}: what the channel does, and what docs/suppressions.md says"
    );
}

/// An answer.
pub(crate) fn reply(status: u16, headers: HeaderMap, body: impl Into<Vec<u8>>) -> Reply {
    Reply { status, headers, body: body.into(), timing: Timing::default() }
}

/// Compares what `check` says of a payload and its options with what is expected: nothing, or a pointer and some words of the
/// message.
pub(crate) fn content_check(
    check: impl Fn(&[u8], &[u8]) -> Result<(), Invalid>,
) -> impl Fn(&str, &str, Option<(&str, &str)>) {
    move |payload, options, expect| match (check(payload.as_bytes(), options.as_bytes()), expect) {
        (Ok(()), None) => {}
        (Err(invalid), Some((pointer, message))) => {
            assert_eq!(invalid.pointer, pointer, "{invalid}");
            assert!(invalid.message.contains(message), "{invalid}");
        }
        (found, _) => panic!("{payload:.40} {options}: {found:?}"),
    }
}
