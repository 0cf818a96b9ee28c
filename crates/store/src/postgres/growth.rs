//! The plans of a session follow the growth of the tables.
//!
//! A writer's statements are planned once, and their plans suit the tables as they were then: of a table without a page, the
//! planner assumes that all ways through it cost the same, and may choose to read all of it. The first transaction of a session,
//! and every eighth after it, therefore queries the sizes of the tables in the message that begins it, and the session drops its
//! plans when a table has doubled or halved since they were last dropped. A transaction that has brought in many batches or lanes
//! queries once more before it goes on.
//!
//! Readers need none of this: each of their queries is planned anew.

use std::fmt::Write as _;

/// Sizes of tables when a session's plans were last dropped.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Pages of each of [`TABLES`], [`PAGES_MAX`] at most; `None` before the first answer.
    pages: Option<[u64; TABLES.len()]>,
    transactions: u32,
    looks: u32,
}

/// Tables that grow with the work.
pub(super) const TABLES: [&str; 14] = [
    "act",
    "batch",
    "broadcast",
    "chunk",
    "idempotency",
    "tenant_lane",
    "log",
    "outbox_rejected",
    "retention_later",
    "search_block",
    "suppression",
    "suppression_event",
    "suppression_lift",
    "undelivered",
];
/// Transactions of which one queries the sizes when it begins: ten sizes take longer than all the rest of an empty transaction.
pub(super) const ASK_EVERY: u32 = 8;
/// Pages of a table from which on plans stay as they are, however it grows. Its size is no longer queried with each look: the
/// server opens every GiB of it.
const PAGES_MAX: u64 = 4_096;
/// Bytes of a page.
const PAGE: u64 = 8_192;
/// Looks after which large tables are looked at again: they may have been emptied.
const LOOK_AT_ALL_EVERY: u32 = 32;
/// Rows that a transaction brings in with one statement before it looks at the sizes again.
pub(super) const MANY: u64 = 64;
pub(super) const FORGET_PLANS: &str = "DISCARD PLANS";

// === impl Sizes ===

impl Sizes {
    /// The query that a transaction sends when it begins: a [`question`](Self::question) with the first, and with every
    /// [`ASK_EVERY`]th after it.
    pub(super) fn question_at_begin(&mut self) -> Option<String> {
        let is_asked = self.transactions.is_multiple_of(ASK_EVERY);
        self.transactions = self.transactions.wrapping_add(1);
        is_asked.then(|| self.question())
    }

    /// The sizes to query, bytes of each table separated by spaces, as an expression of SQL: -1 for a table that is not looked at
    /// this time.
    pub(super) fn question(&mut self) -> String {
        let is_of_all = self.looks.is_multiple_of(LOOK_AT_ALL_EVERY);
        self.looks = self.looks.wrapping_add(1);
        let mut question = "concat_ws(' '".to_owned();
        for (table, pages) in TABLES.iter().zip(self.pages.unwrap_or_default()) {
            let is_large = pages == PAGES_MAX;
            let written = if is_large && !is_of_all {
                // No size: `learn` keeps the one that is known.
                write!(question, ", -1")
            } else {
                write!(question, ", pg_relation_size('{table}')")
            };
            debug_assert!(written.is_ok(), "a text takes whatever is written to it");
        }
        question + ")"
    }

    /// Learns the answer; says whether a table has doubled or halved.
    pub(super) fn learn(&mut self, answer: &str) -> bool {
        let mut bytes = answer.split(' ').map(str::parse::<u64>);
        let pages = self.pages.unwrap_or_default().map(|then| match bytes.next() {
            Some(Ok(bytes)) => bytes.div_ceil(PAGE).min(PAGES_MAX),
            // Its size was not queried.
            _ => then,
        });
        // The first answer comes with the session's first transaction, before any statement is planned.
        let Some(known) = self.pages else {
            self.pages = Some(pages);
            return false;
        };
        let is_other = known
            .iter()
            .zip(&pages)
            .any(|(&then, &now)| now != then && (now >= 2 * then || 2 * now <= then));
        if is_other {
            // Only now: compared with the last look, a table that grows slowly would never have doubled.
            self.pages = Some(pages);
        }
        is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a server whose tables have `pages` pages.
    fn answer(question: &str, pages: u64) -> String {
        let asked = question.split(", ").skip(1);
        let one = |part: &str| {
            let bytes = pages * PAGE;
            if part.starts_with("-1") { "-1".to_owned() } else { bytes.to_string() }
        };
        asked.map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn plans_are_forgotten_with_every_doubling_until_tables_are_large() {
        let mut sizes = Sizes::default();
        let mut grow = |pages: u64| {
            let question = sizes.question();
            sizes.learn(&answer(&question, pages))
        };
        assert!(!grow(0), "nothing is planned yet");
        let forgotten: Vec<u64> = (0..20_000).filter(|pages| grow(*pages)).collect();
        assert_eq!(forgotten, (0..=12).map(|power| 1 << power).collect::<Vec<u64>>());
    }

    #[test]
    fn a_size_about_a_power_of_two_is_no_reason_to_forget_again() {
        let mut sizes = Sizes::default();
        let forgotten = [64, 63, 64, 65, 64, 33, 32, 33, 31, 63, 64].map(|pages| {
            let question = sizes.question();
            sizes.learn(&answer(&question, pages))
        });
        let expected = [false, false, false, false, false, false, true, false, false, false, true];
        assert_eq!(forgotten, expected);
    }

    #[test]
    fn the_first_transaction_asks_and_then_every_eighth() {
        let mut sizes = Sizes::default();
        let asking: Vec<usize> = (0..25).filter(|_| sizes.question_at_begin().is_some()).collect();
        assert_eq!(asking, [0, 8, 16, 24]);
    }

    #[test]
    fn large_tables_are_looked_at_now_and_then() {
        let mut sizes = Sizes::default();
        let question = sizes.question();
        sizes.learn(&answer(&question, 1_000_000));
        for _ in 1..LOOK_AT_ALL_EVERY {
            let question = sizes.question();
            assert!(!question.contains("pg_relation_size"), "{question}");
            assert!(!sizes.learn(&answer(&question, 0)));
        }
        let question = sizes.question();
        assert!(sizes.learn(&answer(&question, 0)), "they were emptied");
    }
}
