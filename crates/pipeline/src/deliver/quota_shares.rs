//! The task that keeps this process's shares of quotas up to date while other processes send under them, and books its turns where a
//! rate was learned. A process that is alone has all of every number, and asks nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use flow::quota_share::{PART_LASTS, ROUND, Share, ShareAsk};
use flow::{Clock, LogThrottle};
use notification::limits;
use store::{Peers, QuotaLedger, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::LaneQuotas;

/// Keeps the shares of one process.
#[derive(Debug)]
pub struct QuotaShares {
    /// The quotas of this process.
    pub quotas: Arc<LaneQuotas>,
    /// The ledger of all processes.
    pub ledger: Arc<dyn QuotaLedger>,
    /// A number for this process that no other one has.
    pub holder: i64,
    /// Clock of the process.
    pub clock: Clock,
}

/// How this process has the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SharingMode {
    /// It has all of them.
    Alone,
    /// It has shares of them, and asks for some from this time on.
    Shared(Instant),
}

/// Time after which a process that joins others asks for a share. By then each of those has had a heartbeat, in which it saw this
/// one, and has told the ledger what it goes by; or it may start no attempt any more.
const JOIN_WAIT: Duration = Duration::from_secs(limits::WORKER_LEASE.as_secs() / 2 + 1);
/// How long an answer about turns is waited for. Each question has another one behind it before long.
const TURNS_WAIT: Duration = Duration::from_secs(2);
/// Least time between two questions.
const ROUND_MIN: Duration = Duration::from_millis(20);

// === impl QuotaShares ===

impl QuotaShares {
    /// Takes up how this process has the numbers. Before anything is sent.
    pub fn begin(&self) {
        if self.ledger.peers().borrow().are_there {
            self.quotas.share_anew();
        }
    }

    /// Keeps the shares until `stopping` turns true, and then gives them back: no attempt begins any more.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        let mut peers = self.ledger.peers();
        let known = *peers.borrow_and_update();
        let mut throttle = LogThrottle::default();
        let mut mode = if known.are_there { self.join() } else { SharingMode::Alone };
        let mut worker = known.worker;
        while !*stopping.borrow_and_update() {
            let now = *peers.borrow_and_update();
            mode = self.follow(mode, now, worker);
            worker = now.worker;
            let next = match mode {
                SharingMode::Alone => None,
                SharingMode::Shared(from) => {
                    let turns = self.ask_turns(&mut throttle).await;
                    let has_joined = self.clock.monotonic() >= from;
                    let shares =
                        if has_joined { self.ask(&mut throttle).await } else { Some(from) };
                    shares.into_iter().chain(turns).min()
                }
            };
            let round = async {
                match (mode, next) {
                    (_, Some(next)) => sleep_until(next).await,
                    (SharingMode::Shared(_), None) => self.quotas.is_wanted().await,
                    (SharingMode::Alone, None) => std::future::pending().await,
                }
            };
            let early = async {
                let SharingMode::Shared(_) = mode else { return std::future::pending().await };
                sleep_until(self.clock.monotonic() + ROUND_MIN).await;
                self.quotas.is_wanted().await;
            };
            tokio::select! {
                () = round => {}
                () = early => {}
                // The store is gone only when the process is on its way out.
                changed = peers.changed() => if changed.is_err() { break },
                _ = stopping.changed() => {}
            }
        }
        if matches!(mode, SharingMode::Shared(_)) {
            let asks = self.quotas.give_back();
            // What is not given back ends by itself before long.
            let _unheard = timeout(ROUND, self.exchange(asks)).await;
        }
        Ok(())
    }

    /// How this process has the numbers after its peers have become `now`.
    fn follow(&self, mode: SharingMode, now: Peers, worker: i64) -> SharingMode {
        match mode {
            // Taken for gone meanwhile: the others may have all of it.
            _ if now.are_there && now.worker != worker => {
                self.quotas.share_anew();
                self.join()
            }
            SharingMode::Alone if now.are_there => {
                self.quotas.share();
                SharingMode::Shared(self.clock.monotonic())
            }
            SharingMode::Shared(_) if !now.are_there => {
                self.quotas.keep_all();
                SharingMode::Alone
            }
            SharingMode::Alone | SharingMode::Shared(_) => mode,
        }
    }

    fn join(&self) -> SharingMode {
        SharingMode::Shared(self.clock.monotonic() + JOIN_WAIT)
    }

    /// Asks about all quotas in use; says when to ask again, or `None` if none is in use.
    async fn ask(&self, throttle: &mut LogThrottle) -> Option<Instant> {
        let asked_at = self.clock.monotonic();
        let asks = self.quotas.asks();
        if asks.is_empty() {
            return None;
        }
        let keys: Vec<Arc<str>> = asks.iter().map(|(key, _)| Arc::clone(key)).collect();
        let next = match timeout(PART_LASTS, self.exchange(asks)).await {
            Ok(Ok(shares)) => {
                let shares: HashMap<_, _> = keys.into_iter().zip(shares).collect();
                self.quotas.hear(&shares, asked_at)
            }
            Ok(Err(error)) => {
                if throttle.admits(self.clock) {
                    tracing::warn!(%error, "this process cannot ask for its share of quotas");
                }
                None
            }
            Err(_elapsed) => None,
        };
        let round = asked_at + ROUND;
        Some(next.unwrap_or(round).max(asked_at + ROUND_MIN).min(round))
    }

    /// Asks about the rates that are learned, and for turns; says when to ask again, or `None` if there is nothing to ask.
    async fn ask_turns(&self, throttle: &mut LogThrottle) -> Option<Instant> {
        let (asked_at, now) = (self.clock.monotonic(), self.clock.wall());
        let asks = self.quotas.turn_asks();
        if asks.is_empty() {
            return None;
        }
        let keys: Vec<Arc<str>> = asks.iter().map(|(key, _)| Arc::clone(key)).collect();
        match timeout(TURNS_WAIT, self.ledger.take_turns(asks, now)).await {
            Ok(Ok(answers)) => {
                let answers: Vec<_> = keys.into_iter().zip(answers).collect();
                self.quotas.hear_turns(&answers, asked_at);
            }
            Ok(Err(error)) => {
                if throttle.admits(self.clock) {
                    tracing::warn!(%error, "this process cannot share the rates that it learns");
                }
            }
            Err(_elapsed) => {}
        }
        Some(asked_at + ROUND)
    }

    async fn exchange(&self, asks: Vec<(Arc<str>, ShareAsk)>) -> Result<Vec<Share>, StoreError> {
        self.ledger.exchange(self.holder, asks, channel::timestamp(self.clock)).await
    }
}
