//! Until when this process may act on what it was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Clock;

/// Until when this process may start new attempts. Renewed while others know that it is alive; a process that was
/// stopped, cut off or suspended finds it ended, before it does anything of which nobody would know: it is measured in
/// the time since boot, which goes on for others while this machine is suspended. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Tenure {
    /// `None`: nobody else could take over.
    shared: Option<Arc<Shared>>,
}

/// Never ends: for a process that has its work for itself.
pub static UNLIMITED: Tenure = Tenure::unlimited();

#[derive(Debug, Default)]
struct Shared {
    /// Milliseconds since boot.
    until: AtomicU64,
    number: AtomicU64,
}

// === impl Tenure ===

impl Tenure {
    /// Never ends: the process has its work for itself.
    pub const fn unlimited() -> Self {
        Self { shared: None }
    }

    /// Ended already, to be renewed.
    pub fn ended() -> Self {
        Self { shared: Some(Arc::default()) }
    }

    /// Tenure `number` lasts until `from + span`, unless it lasts longer already; `from` is a time since boot. A new number
    /// ends all before it.
    pub fn renew(&self, number: u64, from: Duration, span: Duration) {
        if let Some(shared) = &self.shared {
            shared.number.store(number, Ordering::Relaxed);
            let until = (from + span).as_millis();
            shared.until.fetch_max(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Ends it at once.
    pub fn end(&self) {
        if let Some(shared) = &self.shared {
            shared.until.store(0, Ordering::Relaxed);
        }
    }

    /// Whether tenure `number` lasts now.
    pub fn holds(&self, number: u64, clock: Clock) -> bool {
        self.shared.as_ref().is_none_or(|shared| {
            if number != shared.number.load(Ordering::Relaxed) {
                return false;
            }
            clock.boot().as_millis() < u128::from(shared.until.load(Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tenure_lasts_as_long_as_it_was_renewed_for() {
        let clock = Clock::starting_at(Duration::ZERO);
        let tenure = Tenure::ended();
        assert!(!tenure.holds(7, clock));
        tenure.renew(7, clock.boot(), Duration::from_secs(5));
        tenure.renew(7, clock.boot(), Duration::from_secs(3));
        tokio::time::advance(Duration::from_millis(4_999)).await;
        assert!(tenure.holds(7, clock), "a late answer to an early renewal shortens nothing");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!tenure.holds(7, clock));
        tenure.renew(7, clock.boot(), Duration::from_secs(5));
        tenure.end();
        assert!(!tenure.holds(7, clock));
        tenure.renew(8, clock.boot(), Duration::from_secs(5));
        assert!(tenure.holds(8, clock) && !tenure.holds(7, clock));
        assert!(Tenure::unlimited().holds(7, clock));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenure_ends_while_the_machine_is_suspended() {
        let (clock, steering) = Clock::starting_at(Duration::ZERO).steered();
        let tenure = Tenure::ended();
        tenure.renew(7, clock.boot(), Duration::from_secs(5));
        steering.step(-60_000);
        steering.suspend(Duration::from_millis(4_999));
        assert!(tenure.holds(7, clock), "a clock that is set says nothing of it");
        steering.suspend(Duration::from_millis(1));
        assert!(!tenure.holds(7, clock));
    }
}
