//! The ledger of quotas that several processes share.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow::quota_share::{Share, ShareAsk};
use flow::shared_rate::{TurnAnswer, TurnAsk};
use notification::Timestamp;
use tokio::sync::watch;

use crate::StoreError;

/// This process among those that share the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peers {
    /// The number of this process: another one after it was taken for gone.
    pub worker: i64,
    /// True if another process that delivers shares the store, or did a moment ago.
    pub are_there: bool,
}

/// Divides the numbers of quotas among the processes that share the store ([`flow::quota_share`]), and books their turns where a rate was
/// learned ([`flow::shared_rate`]). For the task that keeps the quotas of a process.
#[async_trait]
pub trait QuotaLedger: Send + Sync + std::fmt::Debug {
    /// Gives the process `holder` its share of each of the quotas, and answers in order. No two exchanges overlap: what is given
    /// here is held when the next one looks. Of an exchange that fails it is unknown whether it took place. What is held counts for
    /// [`HELD_FOR`](flow::quota_share::HELD_FOR) from `now` on, which a database reads from its own clock.
    async fn exchange(
        &self,
        holder: i64,
        asks: Vec<(Arc<str>, ShareAsk)>,
        now: Timestamp,
    ) -> Result<Vec<Share>, StoreError>;

    /// Tells what was learned of each of the destinations, books turns, and answers in order. No two exchanges overlap. Of one that
    /// fails it is unknown whether it took place. `now` is since the Unix epoch, by the time that all processes go by; turns begin so
    /// long after it as the answer says.
    async fn take_turns(
        &self,
        asks: Vec<(Arc<str>, TurnAsk)>,
        now: Duration,
    ) -> Result<Vec<TurnAnswer>, StoreError>;

    /// Whether there are other processes. One that has just joined is seen by every other one within the time for which a worker
    /// may start attempts after its last heartbeat.
    fn peers(&self) -> watch::Receiver<Peers>;
}
