//! A quota whose learned rate is shared with other processes: its side of the exchange with their ledger.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::nanos::nanos_of;
use super::schedule::Schedule;
use super::turns::Turns;
use crate::shared_rate::{TurnAnswer, TurnAsk};

// === impl Schedule ===

impl Schedule {
    /// True if places are of turns alone.
    pub(super) fn goes_by_turns(&self, now: u64) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.are_in_force(now))
    }

    /// True if there is something that other processes have not been told.
    pub(super) fn has_news(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.have_news())
    }

    /// True if a place is worth waiting for: a turn was asked for less than `patience` ago.
    pub(super) fn awaits_turn(&mut self, now: u64, patience: u64) -> bool {
        let from = now.max(self.paused_until_nanos);
        self.turns.as_mut().is_some_and(|turns| turns.are_awaited(now, from, patience))
    }

    /// The time by which a rate is learned: it stands still while others have their turns.
    pub(super) fn learning_time(&mut self, now: u64) -> Duration {
        if let Some(turns) = &mut self.turns {
            if let Some(learned) = &mut self.learned {
                turns.go_alone(learned, now);
            }
            self.learning_lag_nanos += turns.of_others(now);
        }
        Duration::from_nanos(now.saturating_sub(self.learning_lag_nanos))
    }

    /// The question to the ledger; `None` if there is nothing to tell, and no turn is wanted. `wake` is notified when there is.
    pub(super) fn turn_ask(&mut self, wake: &Arc<Notify>, now: u64) -> Option<TurnAsk> {
        let at = self.learning_time(now);
        let learned = self.learned.as_ref()?;
        let turns = self.turns.get_or_insert_with(|| Box::new(Turns::new(wake, now)));
        let pause = Duration::from_nanos(self.paused_until_nanos.saturating_sub(now));
        turns.ask(learned, at, pause, now)
    }

    /// Goes by an answer to a question of `asked_at`.
    pub(super) fn hear_turn(&mut self, answer: &TurnAnswer, asked_at: u64, now: u64) {
        let at = self.learning_time(now);
        let (Some(turns), Some(learned)) = (&mut self.turns, &mut self.learned) else { return };
        turns.hear(answer, learned, at, (asked_at, now));
        let paused_for = nanos_of(answer.paused_for);
        if paused_for > 0 {
            self.paused_until_nanos = self.paused_until_nanos.max(asked_at + paused_for);
        }
        self.follow_learned(now);
    }

    /// Learns alone from now on: there is no other process.
    pub(super) fn learn_alone(&mut self, now: u64) {
        self.learning_time(now);
        self.turns = None;
        self.follow_learned(now);
    }
}
