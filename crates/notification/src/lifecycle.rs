//! The life of a notification: one table. `docs/lifecycle.md` is generated from it.

use std::fmt::Write as _;

use crate::terms::{Guarantee, words};

/// Where a notification stands. Every accepted one is in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Stored, and due now or later.
    Pending,
    /// Claimed under a lease; no byte has been sent.
    Claimed,
    /// May be on the wire. At most once: durably marked so before the first byte.
    Begun,
    /// The provider accepted it.
    Delivered,
    /// The provider will not accept it as it is. An operator may send it again.
    Refused,
    /// Its `expires_at` passed, or would have before its next attempt.
    Expired,
    /// It was withdrawn in time. An operator may send it again.
    Cancelled,
    /// Its recipient is on the suppression list; the provider was not asked.
    Suppressed,
    /// At most once, begun, and without an outcome: whether the provider has it is not known. In a store that was restored from a
    /// backup also what waited then: it may have been sent since.
    InDoubt,
    /// Every attempt is used up, or it was quarantined. An operator may send it again.
    Dead,
}

/// An event in the life of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// Dispatch leased it.
    Claim,
    /// Deliver may send its first byte.
    Begin,
    /// Verdict: accepted.
    Accept,
    /// Verdict: refused.
    Refuse,
    /// Verdict: deferred, and an attempt is left.
    Defer,
    /// Verdict: unknown, and an attempt is left.
    LoseAnswer,
    /// The last attempt was deferred or its answer lost.
    Exhaust,
    /// It could not be started in time and was given back.
    HandBack,
    /// The lease ended without an outcome: a crash, a stall.
    LoseLease,
    /// `expires_at` passed before it was sent, or would before it can be tried again.
    Expire,
    /// The caller withdrew it.
    Cancel,
    /// Its recipient is on the suppression list.
    Suppress,
    /// The process ended whenever it was sent.
    Quarantine,
    /// An operator sends it again.
    Requeue,
    /// Its store was lost, and one of an earlier time took its place.
    Restore,
    /// An operator found out that it was delivered.
    ResolveDelivered,
    /// An operator found out that it was not delivered.
    ResolveDead,
}

words!(State, "a state of the lifecycle",
    Pending = 0, "pending";
    Claimed = 1, "claimed";
    Begun = 2, "begun";
    Delivered = 3, "delivered";
    Refused = 4, "refused";
    Expired = 5, "expired";
    Cancelled = 6, "cancelled";
    Suppressed = 7, "suppressed";
    InDoubt = 8, "in_doubt";
    Dead = 9, "dead";
);

words!(Event, "an event of the lifecycle",
    Claim = 0, "claim";
    Begin = 1, "begin";
    Accept = 2, "accept";
    Refuse = 3, "refuse";
    Defer = 4, "defer";
    LoseAnswer = 5, "lose_answer";
    Exhaust = 6, "exhaust";
    HandBack = 7, "hand_back";
    LoseLease = 8, "lose_lease";
    Expire = 9, "expire";
    Cancel = 10, "cancel";
    Suppress = 11, "suppress";
    Quarantine = 12, "quarantine";
    Requeue = 13, "requeue";
    Restore = 14, "restore";
    ResolveDelivered = 15, "resolve_delivered";
    ResolveDead = 16, "resolve_dead";
);

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Where it stood.
    pub from: State,
    /// The event.
    pub event: Event,
    /// Where it stands under `at_least_once`; `None` when the event cannot happen there.
    pub at_least_once: Option<State>,
    /// Where it stands under `at_most_once`.
    pub at_most_once: Option<State>,
}

/// Every transition there is. What is not listed cannot happen.
pub const TRANSITIONS: &[Transition] = &[
    both(State::Pending, Event::Claim, State::Claimed),
    both(State::Pending, Event::Expire, State::Expired),
    both(State::Pending, Event::Cancel, State::Cancelled),
    both(State::Pending, Event::Suppress, State::Suppressed),
    both(State::Claimed, Event::Begin, State::Begun),
    both(State::Claimed, Event::HandBack, State::Pending),
    both(State::Claimed, Event::Expire, State::Expired),
    both(State::Claimed, Event::LoseLease, State::Pending),
    both(State::Claimed, Event::Quarantine, State::Dead),
    both(State::Begun, Event::Accept, State::Delivered),
    both(State::Begun, Event::Refuse, State::Refused),
    both(State::Begun, Event::Defer, State::Pending),
    both(State::Begun, Event::Exhaust, State::Dead),
    // A mark covers a slice: what of it had no stream yet is handed back, or expires, unsent (decision 0021).
    both(State::Begun, Event::HandBack, State::Pending),
    both(State::Begun, Event::Expire, State::Expired),
    split(State::Begun, Event::LoseAnswer, Some(State::Pending), Some(State::InDoubt)),
    split(State::Begun, Event::LoseLease, Some(State::Pending), Some(State::InDoubt)),
    // At most once, what has begun is in doubt after the first crash, and never sent again without an operator.
    split(State::Begun, Event::Quarantine, Some(State::Dead), None),
    split(State::Pending, Event::Restore, Some(State::Pending), Some(State::InDoubt)),
    split(State::Claimed, Event::Restore, Some(State::Pending), Some(State::InDoubt)),
    split(State::Begun, Event::Restore, Some(State::Pending), Some(State::InDoubt)),
    both(State::Dead, Event::Requeue, State::Pending),
    // It was pending, and may be sent as its guarantee lets what is pending (decision 0034).
    both(State::Cancelled, Event::Requeue, State::Pending),
    both(State::Refused, Event::Requeue, State::Pending),
    // It may be sent twice then: only with the caller's word for it, which the log keeps (decision 0056).
    split(State::InDoubt, Event::Requeue, None, Some(State::Pending)),
    // Nothing is sent: an operator writes down what the provider or the recipient has told (decision 0057).
    split(State::InDoubt, Event::ResolveDelivered, None, Some(State::Delivered)),
    split(State::InDoubt, Event::ResolveDead, None, Some(State::Dead)),
];

// === impl State ===

impl State {
    /// True if a notification stays here for ever, unless an operator requeues or resolves it.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Claimed | Self::Begun)
    }

    /// True if an operator may send it again from here.
    pub const fn may_be_requeued(self) -> bool {
        matches!(self, Self::Dead | Self::Cancelled | Self::Refused | Self::InDoubt)
    }

    /// Where `event` leads from here under `guarantee`; `None` when it cannot happen.
    pub fn after(self, event: Event, guarantee: Guarantee) -> Option<Self> {
        let row = TRANSITIONS.iter().find(|row| row.from == self && row.event == event)?;
        match guarantee {
            Guarantee::AtLeastOnce => row.at_least_once,
            Guarantee::AtMostOnce => row.at_most_once,
        }
    }
}

/// `docs/lifecycle.md`, generated by `make docs` and compared in a test.
pub fn to_markdown() -> String {
    let mut page = String::from(
        "# The life of a notification\n\n\
         Generated by `make docs` from `crates/notification/src/lifecycle.rs`; do not edit.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> pending: accepted\n",
    );
    for row in TRANSITIONS {
        for (state, note) in row.targets() {
            let _infallible = writeln!(page, "    {} --> {state}: {}{note}", row.from, row.event);
        }
    }
    for &state in State::ALL.iter().filter(|state| state.is_terminal()) {
        let _infallible = writeln!(page, "    {state} --> [*]");
    }
    page.push_str("```\n\n| from | event | at_least_once | at_most_once |\n|---|---|---|---|\n");
    let name = |state: Option<State>| state.map_or("cannot happen", State::as_str);
    for row in TRANSITIONS {
        let (least, most) = (name(row.at_least_once), name(row.at_most_once));
        let _infallible = writeln!(page, "| {} | {} | {least} | {most} |", row.from, row.event);
    }
    page.push_str(
        "\nAccounting: accepted = delivered + refused + expired + cancelled + suppressed + in_doubt + dead\n\
         + still pending, where pending counts the three states that are not terminal.\n\n\
         To have another time (`belfry reschedule`) is no step: what is pending stays so, and is due then.\n",
    );
    page
}

// === impl Transition ===

impl Transition {
    fn targets(self) -> Vec<(State, &'static str)> {
        match (self.at_least_once, self.at_most_once) {
            (Some(least), Some(most)) if least == most => vec![(least, "")],
            (least, most) => least
                .map(|state| (state, " (at_least_once)"))
                .into_iter()
                .chain(most.map(|state| (state, " (at_most_once)")))
                .collect(),
        }
    }
}

const fn both(from: State, event: Event, to: State) -> Transition {
    split(from, event, Some(to), Some(to))
}

const fn split(
    from: State,
    event: Event,
    at_least_once: Option<State>,
    at_most_once: Option<State>,
) -> Transition {
    Transition { from, event, at_least_once, at_most_once }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_table() {
        let page = include_str!("../../../docs/lifecycle.md");
        assert_eq!(page, to_markdown(), "docs/lifecycle.md is old: run `make docs`");
    }

    #[test]
    fn no_pair_of_state_and_event_stands_twice() {
        for (position, row) in TRANSITIONS.iter().enumerate() {
            let same = |other: &&Transition| other.from == row.from && other.event == row.event;
            assert_eq!(TRANSITIONS.iter().skip(position).filter(same).count(), 1, "{row:?}");
        }
    }

    #[test]
    fn only_an_operator_leaves_a_terminal_state_and_everything_reaches_one() {
        for row in TRANSITIONS {
            let is_requeued = row.from.may_be_requeued() && row.event == Event::Requeue;
            let resolves = matches!(row.event, Event::ResolveDelivered | Event::ResolveDead);
            let is_resolved = row.from == State::InDoubt && resolves;
            assert_eq!(row.from.is_terminal(), is_requeued || is_resolved, "{row:?}");
        }
        for &guarantee in Guarantee::ALL {
            for &terminal in State::ALL.iter().filter(|state| state.is_terminal()) {
                let reachable = terminal != State::InDoubt || guarantee == Guarantee::AtMostOnce;
                let reached = TRANSITIONS
                    .iter()
                    .any(|row| row.from.after(row.event, guarantee) == Some(terminal));
                assert_eq!(reached, reachable, "{terminal} under {guarantee}");
            }
        }
    }

    #[test]
    fn at_most_once_never_returns_to_pending_once_an_answer_may_be_lost() {
        for event in [Event::LoseAnswer, Event::LoseLease] {
            assert_eq!(State::Begun.after(event, Guarantee::AtMostOnce), Some(State::InDoubt));
            assert_eq!(State::Begun.after(event, Guarantee::AtLeastOnce), Some(State::Pending));
        }
    }
}
