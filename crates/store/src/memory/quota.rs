//! The ledger of shared quotas: rows of all who ask, as long as they count; and of learned rates, a row for each destination.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use flow::quota_share::{HELD_FOR, Share, ShareAsk, Stake, divide};
use flow::shared_rate::{RateRow, TurnAnswer, TurnAsk, take_turn};
use notification::Timestamp;
use tokio::sync::watch;

use super::Memory;
use crate::{Peers, QuotaLedger, StoreError};

/// Stakes by quota and process, and until when each counts.
#[derive(Debug, Default)]
pub(super) struct Ledger(BTreeMap<(Arc<str>, i64), (Stake, Timestamp)>);

/// Rows of destinations.
#[derive(Debug, Default)]
pub(super) struct RateRows(BTreeMap<Arc<str>, RateRow>);

// === impl RateRows ===

impl RateRows {
    fn take_turn(&mut self, (key, ask): &(Arc<str>, TurnAsk), now: Duration) -> TurnAnswer {
        self.0.retain(|_, row| row.until > now);
        let (row, answer) = take_turn(self.0.get(key).copied(), ask, now);
        if let Some(row) = row {
            self.0.insert(Arc::clone(key), row);
        }
        answer
    }
}

// === impl Ledger ===

impl Ledger {
    fn give(&mut self, holder: i64, (key, ask): &(Arc<str>, ShareAsk), now: Timestamp) -> Share {
        self.0.retain(|_, (_, until)| *until > now);
        let is_other = |other: &(Arc<str>, i64)| other.0 == *key && other.1 != holder;
        let others = self.0.iter().filter(|(place, _)| is_other(place));
        let others: Vec<Stake> = others.map(|(_, (stake, _))| *stake).collect();
        let share = divide(ask, &others);
        let is_over = share.held == 0 && ask.stake.wants == 0;
        let until = now.plus(if is_over { ask.full_in } else { HELD_FOR });
        let stake = Stake { held: share.held, ..ask.stake };
        self.0.insert((Arc::clone(key), holder), (stake, until));
        share
    }
}

// === impl Memory ===

impl Memory {
    /// Has [`QuotaLedger::peers`] answer `peers` from now on.
    pub fn show_peers(&self, peers: Peers) {
        self.peers.send_replace(peers);
    }
}

#[async_trait]
impl QuotaLedger for Memory {
    async fn exchange(
        &self,
        holder: i64,
        asks: Vec<(Arc<str>, ShareAsk)>,
        now: Timestamp,
    ) -> Result<Vec<Share>, StoreError> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(asks.iter().map(|ask| ledger.give(holder, ask, now)).collect())
    }

    async fn take_turns(
        &self,
        asks: Vec<(Arc<str>, TurnAsk)>,
        now: Duration,
    ) -> Result<Vec<TurnAnswer>, StoreError> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(asks.iter().map(|ask| rates.take_turn(ask, now)).collect())
    }

    fn peers(&self) -> watch::Receiver<Peers> {
        self.peers.subscribe()
    }
}
