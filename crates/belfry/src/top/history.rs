//! The answers of an engine over the last minutes, and the rates that follow from them.

use std::collections::VecDeque;
use std::time::Duration;

use api::StatusAnswer;
use notification::Account;
use tokio::time::Instant;

/// Samples that are kept: ten minutes.
const SAMPLES: usize = 600;
/// Time over which a rate is the mean of.
const RATE_OVER: Duration = Duration::from_secs(5);

/// The answers of an engine.
#[derive(Debug, Default)]
pub(super) struct StatusHistory {
    /// The last answer.
    pub(super) status: Option<StatusAnswer>,
    /// Why there is no newer one.
    pub(super) silence: Option<String>,
    samples: VecDeque<(Instant, Account)>,
}

/// Notifications a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TopRates {
    pub(super) accepted: f64,
    pub(super) delivered: f64,
    /// Ended in any other way.
    pub(super) otherwise: f64,
}

// === impl StatusHistory ===

impl StatusHistory {
    /// Takes an answer that came at `at`.
    pub(super) fn note(&mut self, at: Instant, status: StatusAnswer) {
        // An engine that was started anew on another store counts from another number on.
        if self.samples.back().is_some_and(|(_, last)| last.accepted > status.totals.accepted) {
            self.samples.clear();
        }
        self.samples.push_back((at, status.totals));
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        self.status = Some(status);
        self.silence = None;
    }

    /// Notes that the engine has not answered.
    pub(super) fn note_silence(&mut self, error: &anyhow::Error) {
        self.silence = Some(format!("{error:#}"));
    }

    /// The rates over the last seconds; `None` while there is one sample.
    pub(super) fn rates(&self) -> Option<TopRates> {
        let (until, last) = self.samples.back()?;
        let within = |(at, _): &&(Instant, Account)| until.duration_since(*at) <= RATE_OVER;
        let (since, first) = self.samples.iter().find(within)?;
        TopRates::between((*since, first), (*until, last))
    }

    /// Deliveries a second between each two samples, the last ones, at most `count`, oldest first.
    pub(super) fn delivered(&self, count: usize) -> Vec<u64> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        let of_all: Vec<u64> = pairs
            .map(|((since, first), (until, last))| {
                let rates = TopRates::between((*since, first), (*until, last)).unwrap_or_default();
                whole(rates.delivered)
            })
            .collect();
        of_all.iter().skip(of_all.len().saturating_sub(count)).copied().collect()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is no negative number, and far below the bound"
)]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

// === impl TopRates ===

impl TopRates {
    fn between(
        (since, first): (Instant, &Account),
        (until, last): (Instant, &Account),
    ) -> Option<Self> {
        let seconds = until.duration_since(since).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let rate = |of: fn(&Account) -> u64| {
            // Fewer than before: some were requeued.
            let more = of(last).saturating_sub(of(first));
            u32::try_from(more).map_or(f64::from(u32::MAX), f64::from) / seconds
        };
        let otherwise = |account: &Account| {
            let Account { refused, expired, cancelled, suppressed, in_doubt, dead, .. } = account;
            refused + expired + cancelled + suppressed + in_doubt + dead
        };
        Some(Self {
            accepted: rate(|account| account.accepted),
            delivered: rate(|account| account.delivered),
            otherwise: rate(otherwise),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::status;
    use super::*;

    #[test]
    fn rates_are_means_of_the_last_seconds() {
        let begun = Clock::system().monotonic();
        let mut history = StatusHistory::default();
        for second in 0..20_u64 {
            let mut status = status();
            // Twice as fast in the last ten seconds.
            status.totals.accepted = 1_000 + second * 100 + second.saturating_sub(10) * 100;
            status.totals.delivered = second * 50;
            history.note(begun + Duration::from_secs(second), status);
        }
        let rates = history.rates().unwrap();
        assert_eq!(rates, TopRates { accepted: 200.0, delivered: 50.0, otherwise: 0.0 });
        assert_eq!(history.delivered(3), [50, 50, 50]);
    }

    #[test]
    fn an_engine_with_another_store_begins_anew() {
        let begun = Clock::system().monotonic();
        let mut history = StatusHistory::default();
        history.note(begun, status());
        let mut other = status();
        other.totals = Account::default();
        history.note(begun + Duration::from_secs(1), other);
        assert_eq!(history.rates(), None);
    }

    use flow::Clock;
}
