//! The ledger of learned rates: a row for each destination whose rate is shared, written with the exchange that books turns.
//!
//! It has the session of the [ledger of quotas](super::quota_ledger). Nothing here must outlive a crash: what is lost is learned again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use flow::shared_rate::{RateRow, SharedRate, TurnAnswer, TurnAsk, take_turn};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::connection::PostgresSession;

/// One exchange after the other, of all processes.
const LOCK_RATES: &str = "SELECT pg_advisory_xact_lock(4782301, 4)";
const LOSE_RATES: &str = "SET LOCAL synchronous_commit = off";
const FORGET_RATES: &str = "DELETE FROM learned_rate WHERE until < $1";
const RATES_OF: &str = "SELECT key, found, climbed, generation, began_at, refused_at, booked_until, paused_until, rests_until, until \
     FROM learned_rate WHERE key = ANY($1)";
const KEEP_RATES: &str = "INSERT INTO learned_rate \
       (key, found, climbed, generation, began_at, refused_at, booked_until, paused_until, rests_until, until) \
     SELECT * FROM unnest($1::text[], $2::float8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::int8[], $10::int8[]) \
     ON CONFLICT (key) DO UPDATE SET found = excluded.found, climbed = excluded.climbed, generation = excluded.generation, \
       began_at = excluded.began_at, refused_at = excluded.refused_at, booked_until = excluded.booked_until, paused_until = excluded.paused_until, \
       rests_until = excluded.rests_until, until = excluded.until";

/// Columns of rows to be written.
#[derive(Debug, Default)]
struct RateColumns {
    found: Vec<f64>,
    climbed: Vec<i64>,
    generation: Vec<i64>,
    began_at: Vec<i64>,
    refused_at: Vec<i64>,
    booked_until: Vec<i64>,
    paused_until: Vec<i64>,
    rests_until: Vec<i64>,
    until: Vec<i64>,
}

/// Answers `asks` of `now`. With `forgets`, rows that count no more are removed.
pub(super) async fn take_turns(
    session: &mut PostgresSession,
    asks: &[(Arc<str>, TurnAsk)],
    now: Duration,
    forgets: bool,
) -> Result<Vec<TurnAnswer>, Error> {
    let lock = session.prepared(LOCK_RATES).await?;
    let forget = session.prepared(FORGET_RATES).await?;
    let select = session.prepared(RATES_OF).await?;
    let write = session.prepared(KEEP_RATES).await?;
    let transaction = session.client.transaction().await?;
    transaction.batch_execute(LOSE_RATES).await?;
    transaction.execute(&lock, &[]).await?;
    if forgets {
        transaction.execute(&forget, &[&micros(now)]).await?;
    }
    let keys: Vec<&str> = asks.iter().map(|(key, _)| &**key).collect();
    let mut known = HashMap::<String, RateRow>::new();
    for row in transaction.query(&select, &[&keys]).await? {
        known.insert(row.try_get(0)?, read(&row)?);
    }
    let (mut answers, mut kept) = (Vec::with_capacity(asks.len()), Vec::new());
    let mut columns = RateColumns::default();
    for (key, ask) in asks {
        let (row, answer) = take_turn(known.get(&**key).copied(), ask, now);
        if let Some(row) = row {
            kept.push(&**key);
            columns.push(&row);
        }
        answers.push(answer);
    }
    if !kept.is_empty() {
        let parameters: [&(dyn ToSql + Sync); 10] = [
            &kept,
            &columns.found,
            &columns.climbed,
            &columns.generation,
            &columns.began_at,
            &columns.refused_at,
            &columns.booked_until,
            &columns.paused_until,
            &columns.rests_until,
            &columns.until,
        ];
        transaction.execute(&write, &parameters).await?;
    }
    transaction.commit().await?;
    Ok(answers)
}

fn read(row: &Row) -> Result<RateRow, Error> {
    let micros = |column| {
        Ok::<_, Error>(Duration::from_micros(row.try_get::<_, i64>(column)?.unsigned_abs()))
    };
    let generation = row.try_get::<_, i64>(3)?.unsigned_abs();
    Ok(RateRow {
        rate: SharedRate { found: row.try_get(1)?, climbed: micros(2)?, generation },
        began_at: micros(4)?,
        refused_at: micros(5)?,
        booked_until: micros(6)?,
        paused_until: micros(7)?,
        rests_until: micros(8)?,
        until: micros(9)?,
    })
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

// === impl RateColumns ===

impl RateColumns {
    fn push(&mut self, row: &RateRow) {
        self.found.push(row.rate.found);
        self.climbed.push(micros(row.rate.climbed));
        self.generation.push(row.rate.generation.cast_signed());
        self.began_at.push(micros(row.began_at));
        self.refused_at.push(micros(row.refused_at));
        self.booked_until.push(micros(row.booked_until));
        self.paused_until.push(micros(row.paused_until));
        self.rests_until.push(micros(row.rests_until));
        self.until.push(micros(row.until));
    }
}
