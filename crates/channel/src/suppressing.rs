//! What `docs/suppressions.md` says of the answers that put a recipient on the suppression list, for the tests that compare
//! it with what channels do.

use std::collections::BTreeSet;

use notification::{Report, Verdict};

use crate::Attempt;

const PAGE: &str = include_str!("../../../docs/suppressions.md");

/// The answers in the page's row of `kind` on which the column number `column` says that the recipient is gone.
fn documented(kind: &str, column: usize) -> BTreeSet<&'static str> {
    let start = format!("| `{kind}` |");
    let row = PAGE.lines().find(|line| line.starts_with(&start)).expect("the page has the row");
    let cell = row.split('|').nth(column + 1).expect("the row has the column");
    cell.split('`').skip(1).step_by(2).collect()
}

/// Whether the recipient is not tried again.
pub(crate) fn is_gone(attempt: &Attempt) -> bool {
    let Report::Attempted(answer) = &attempt.report else { return false };
    answer.verdict == Verdict::Refused { gone: true }
}

/// Checks that of `answers`, each with its name, exactly those retire a recipient that the page says.
pub(crate) fn check(
    kind: &str,
    column: usize,
    answers: impl IntoIterator<Item = (String, Attempt)>,
) {
    let gone = answers.into_iter().filter(|(_, attempt)| is_gone(attempt));
    let found: BTreeSet<String> = gone.map(|(name, _)| name).collect();
    let documented: BTreeSet<String> =
        documented(kind, column).into_iter().map(str::to_owned).collect();
    assert_eq!(
        found, documented,
        "{kind}: what the channel does, and what docs/suppressions.md says"
    );
}
