//! The ledger of shared quotas: a row for each quota and process, written with the exchange that gives a share. Beside it lies the
//! [ledger of learned rates](super::rate_ledger).
//!
//! It has a session of its own, which is made by the first exchange: an exchange that is held up keeps no process from saying that it
//! is alive, and no writer from writing.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow::quota_share::{HELD_FOR, Share, ShareAsk, Stake, divide};
use flow::shared_rate::{TurnAnswer, TurnAsk};
use notification::Timestamp;
use tokio::sync::{Mutex, watch};
use tokio_postgres::Error;

use super::Postgres;
use super::connection::{Connector, PostgresSession};
use super::rate_ledger::take_turns;
use crate::{Peers, QuotaLedger, StoreError};

/// The way to the ledger.
#[derive(Debug)]
pub(super) struct LedgerLink {
    connector: Connector,
    peers: watch::Receiver<Peers>,
    session: Mutex<Option<LedgerSession>>,
}

#[derive(Debug)]
struct LedgerSession {
    session: PostgresSession,
    exchanges: u64,
    turns_taken: u64,
}

/// One exchange after the other, of all processes.
const LOCK_SHARES: &str = "SELECT pg_advisory_xact_lock(4782301, 3)";
const FORGET_SHARES: &str = "DELETE FROM quota_share WHERE until < now()";
const SHARES_OF_OTHERS: &str = "SELECT key, number, wants, held FROM quota_share \
     WHERE key = ANY($1) AND holder <> $2 AND until >= clock_timestamp()";
const HOLD_SHARES: &str = "INSERT INTO quota_share (key, holder, number, wants, held, until) \
     SELECT key, $2, number, wants, held, clock_timestamp() + lasts * interval '1 millisecond' \
     FROM unnest($1::text[], $3::int8[], $4::int8[], $5::int8[], $6::int8[]) AS asked (key, number, wants, held, lasts) \
     ON CONFLICT (key, holder) DO UPDATE \
     SET number = excluded.number, wants = excluded.wants, held = excluded.held, until = excluded.until";
/// Exchanges of a session after which rows that count no more are removed: those of processes that were killed.
const FORGET_EVERY: u64 = 64;

// === impl LedgerLink ===

impl LedgerLink {
    pub(super) fn new(connector: Connector, peers: watch::Receiver<Peers>) -> Self {
        Self { connector, peers, session: Mutex::default() }
    }

    /// A session on which anything failed, or whose exchange was given up, is not used again.
    async fn exchange(
        &self,
        holder: i64,
        asks: &[(Arc<str>, ShareAsk)],
    ) -> Result<Vec<Share>, Error> {
        let mut place = self.session.lock().await;
        let mut link = self.link(&mut place).await?;
        let shares = link.exchange(holder, asks).await?;
        *place = Some(link);
        Ok(shares)
    }

    async fn take_turns(
        &self,
        asks: &[(Arc<str>, TurnAsk)],
        now: Duration,
    ) -> Result<Vec<TurnAnswer>, Error> {
        let mut place = self.session.lock().await;
        let mut link = self.link(&mut place).await?;
        let forgets = link.turns_taken.is_multiple_of(FORGET_EVERY);
        link.turns_taken += 1;
        let answers = take_turns(&mut link.session, asks, now, forgets).await?;
        *place = Some(link);
        Ok(answers)
    }

    async fn link(&self, place: &mut Option<LedgerSession>) -> Result<LedgerSession, Error> {
        if let Some(link) = place.take() {
            return Ok(link);
        }
        let session = self.connector.connect(None).await?;
        Ok(LedgerSession { session, exchanges: 0, turns_taken: 0 })
    }
}

// === impl LedgerSession ===

impl LedgerSession {
    async fn exchange(
        &mut self,
        holder: i64,
        asks: &[(Arc<str>, ShareAsk)],
    ) -> Result<Vec<Share>, Error> {
        let forgets = self.exchanges.is_multiple_of(FORGET_EVERY);
        self.exchanges += 1;
        let lock = self.session.prepared(LOCK_SHARES).await?;
        let forget = self.session.prepared(FORGET_SHARES).await?;
        let select = self.session.prepared(SHARES_OF_OTHERS).await?;
        let write = self.session.prepared(HOLD_SHARES).await?;
        let transaction = self.session.client.transaction().await?;
        transaction.execute(&lock, &[]).await?;
        if forgets {
            transaction.execute(&forget, &[]).await?;
        }
        let keys: Vec<&str> = asks.iter().map(|(key, _)| &**key).collect();
        let mut others = HashMap::<String, Vec<Stake>>::new();
        for row in transaction.query(&select, &[&keys, &holder]).await? {
            let amount = |column| Ok::<_, Error>(row.try_get::<_, i64>(column)?.unsigned_abs());
            let number = u32::try_from(amount(1)?).unwrap_or(u32::MAX);
            let number = NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
            let stake = Stake { number, wants: amount(2)?, held: amount(3)? };
            others.entry(row.try_get(0)?).or_default().push(stake);
        }
        let share = |(key, ask): &(Arc<str>, ShareAsk)| {
            divide(ask, others.get(&**key).map_or(&[], Vec::as_slice))
        };
        let shares: Vec<Share> = asks.iter().map(share).collect();
        let stakes = || asks.iter().map(|(_, ask)| ask.stake);
        let numbers: Vec<i64> = stakes().map(|stake| i64::from(stake.number.get())).collect();
        let wants: Vec<i64> = stakes().map(|stake| stake.wants.cast_signed()).collect();
        let held: Vec<i64> = shares.iter().map(|share| share.held.cast_signed()).collect();
        let lasts: Vec<i64> =
            asks.iter().zip(&shares).map(|(asked, of)| lasts(asked, of)).collect();
        transaction.execute(&write, &[&keys, &holder, &numbers, &wants, &held, &lasts]).await?;
        transaction.commit().await?;
        Ok(shares)
    }
}

/// Milliseconds for which a row counts. Where nothing is held, until as much may go at once as after an hour of silence.
fn lasts((_, ask): &(Arc<str>, ShareAsk), share: &Share) -> i64 {
    let span = if share.held == 0 && ask.stake.wants == 0 { ask.full_in } else { HELD_FOR };
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[async_trait]
impl QuotaLedger for Postgres {
    async fn exchange(
        &self,
        holder: i64,
        asks: Vec<(Arc<str>, ShareAsk)>,
        _now: Timestamp,
    ) -> Result<Vec<Share>, StoreError> {
        Ok(self.ledger.exchange(holder, &asks).await?)
    }

    async fn take_turns(
        &self,
        asks: Vec<(Arc<str>, TurnAsk)>,
        now: Duration,
    ) -> Result<Vec<TurnAnswer>, StoreError> {
        Ok(self.ledger.take_turns(&asks, now).await?)
    }

    fn peers(&self) -> watch::Receiver<Peers> {
        self.ledger.peers.clone()
    }
}
