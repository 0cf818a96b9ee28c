//! The suppression list and its changes.

use std::collections::HashSet;

use async_trait::async_trait;
use notification::{ByteString, Name, Timestamp};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::read::{Snapshot, instant, unsigned};
use super::round::{Failure, Round, signed};
use super::writer::Ask;
use super::xid::Xid;
use crate::rows::model;
use crate::{
    Change, EventPosition, FeedCursor, Lift, StoreError, Suppression, SuppressionEvent,
    SuppressionPage,
};

/// Adds to the list.
#[derive(Debug)]
pub(super) struct Suppress(pub(super) Vec<Suppression>);

/// Takes off the list.
#[derive(Debug)]
pub(super) struct TakeOff {
    pub(super) lifts: Vec<Lift>,
    pub(super) now: Timestamp,
}

/// Moves a feed on.
#[derive(Debug)]
pub(super) struct MoveFeed {
    pub(super) feed: Name,
    pub(super) from: FeedCursor,
    pub(super) to: FeedCursor,
}

/// Suppressing on a provider's word and taking off exclude each other: either sees what the other did.
const LOCK_FOR_SUPPRESSING: &str = "SELECT pg_advisory_xact_lock_shared(4782301, 2)";
const LOCK_FOR_LIFTING: &str = "SELECT pg_advisory_xact_lock(4782301, 2)";

/// In one order everywhere, so that two processes never wait for each other.
const SUPPRESS: &str = "WITH new AS ( \
         SELECT DISTINCT ON (channel, recipient) new.* \
         FROM unnest($1::text[], $2::text[], $3::text[], $4::int4[], $5::int8[], $6::int8[], $7::int8[]) \
             WITH ORDINALITY AS new (channel, recipient, reason, status, since, gone_since, at, place) \
         LEFT JOIN suppression_lift AS lift USING (channel, recipient) \
         WHERE lift.lifted_at IS NULL \
            OR (gone_since IS NULL OR lift.lifted_at < gone_since) AND comes_after(lift.txid) \
         ORDER BY channel, recipient, place \
     ), added AS ( \
         INSERT INTO suppression (channel, recipient, reason, status, since) \
         SELECT channel, recipient, reason, status, since FROM new ORDER BY channel, recipient \
         ON CONFLICT DO NOTHING RETURNING channel, recipient \
     ) \
     INSERT INTO suppression_event (at, channel, recipient, reason, status, since) \
     SELECT at, channel, recipient, reason, status, since FROM added JOIN new USING (channel, recipient) \
     ORDER BY place";

const LIFT: &str = "WITH gone AS ( \
         DELETE FROM suppression WHERE channel = $1 AND recipient = $2 AND ($3::int8 IS NULL OR since <= $3) \
         RETURNING comes_after(txid) \
     ) \
     INSERT INTO suppression_event (at, channel, recipient) SELECT $4::int8, $1, $2 FROM gone";
const MARK: &str = "INSERT INTO suppression_lift (channel, recipient, lifted_at) VALUES ($1, $2, $3) \
     ON CONFLICT (channel, recipient) DO UPDATE \
     SET lifted_at = greatest(suppression_lift.lifted_at, excluded.lifted_at), txid = pg_current_xact_id()";

const SELECT_FEED: &str = "SELECT txid, event, until_txid, until, tries FROM feed WHERE name = $1";
const LOCK_FEED: &str =
    "SELECT txid, event, until_txid, until, tries FROM feed WHERE name = $1 FOR UPDATE";

#[async_trait]
impl Ask for Suppress {
    type Answer = ();

    async fn ask(&self, round: &mut Round<'_>) -> Result<(), Failure> {
        Ok(round.suppress(self.0.iter().map(|one| (one, None, one.since))).await?)
    }
}

#[async_trait]
impl Ask for TakeOff {
    type Answer = Vec<bool>;

    async fn ask(&self, round: &mut Round<'_>) -> Result<Self::Answer, Failure> {
        round.execute(LOCK_FOR_LIFTING, &[]).await?;
        let mut are_lifted = Vec::with_capacity(self.lifts.len());
        for lift in &self.lifts {
            let is_listable = is_text(&lift.recipient);
            are_lifted.push(is_listable && round.lift(lift, self.now).await?);
        }
        Ok(are_lifted)
    }
}

#[async_trait]
impl Ask for MoveFeed {
    type Answer = FeedCursor;

    async fn ask(&self, round: &mut Round<'_>) -> Result<FeedCursor, Failure> {
        let feed = self.feed.as_str();
        let start = "INSERT INTO feed (name) VALUES ($1) ON CONFLICT DO NOTHING";
        round.execute(start, &[&feed]).await?;
        let current = cursor_at(&round.row(LOCK_FEED, &[&feed]).await?)?;
        if current != self.from {
            return Ok(current);
        }
        let update = "UPDATE feed \
             SET txid = $2, event = $3, until_txid = $4, until = $5, tries = $6 WHERE name = $1";
        let FeedCursor { position, until, tries } = self.to;
        let transaction = |position: EventPosition| position.transaction.cast_signed();
        let event = |position: EventPosition| position.event.cast_signed();
        let (until_transaction, until_event) = (until.map(transaction), until.map(event));
        let (transaction, event) = (transaction(position), event(position));
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&feed, &transaction, &event, &until_transaction, &until_event, &i64::from(tries)];
        round.execute(update, &parameters).await?;
        Ok(self.to)
    }
}

// === impl Round ===

impl Round<'_> {
    /// Lists recipients, each with since when its provider saw it gone, if it said, and the present time; not who came back
    /// after that. One that is listed already keeps its reason.
    pub(super) async fn suppress(
        &mut self,
        suppressions: impl Iterator<Item = (&Suppression, Option<Timestamp>, Timestamp)>,
    ) -> Result<(), Error> {
        let (mut channels, mut recipients, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        let (mut statuses, mut sinces) = (Vec::new(), Vec::new());
        let (mut gone_sinces, mut ats) = (Vec::new(), Vec::new());
        for (one, gone_since, at) in suppressions.filter(|(one, ..)| is_text(&one.recipient)) {
            channels.push(one.channel.as_str());
            recipients.push(&*one.recipient);
            reasons.push(one.reason.replace('\0', "\u{fffd}"));
            statuses.push(i32::from(one.status));
            sinces.push(one.since.millis());
            gone_sinces.push(gone_since.map(Timestamp::millis));
            ats.push(at.millis());
        }
        if channels.is_empty() {
            return Ok(());
        }
        self.execute(LOCK_FOR_SUPPRESSING, &[]).await?;
        let added = self
            .execute(
                SUPPRESS,
                &[&channels, &recipients, &reasons, &statuses, &sinces, &gone_sinces, &ats],
            )
            .await?;
        self.effects.woke |= added > 0;
        Ok(())
    }

    async fn lift(&mut self, lift: &Lift, now: Timestamp) -> Result<bool, Error> {
        let (channel, recipient): (&str, &str) = (lift.channel.as_str(), &lift.recipient);
        let covered = lift.registered_at.map(Timestamp::millis);
        let gone = self.execute(LIFT, &[&channel, &recipient, &covered, &now.millis()]).await?;
        if gone > 0 || covered.is_some() {
            let lifted_at = covered.unwrap_or(now.millis());
            self.execute(MARK, &[&channel, &recipient, &lifted_at]).await?;
        }
        self.effects.woke |= gone > 0;
        Ok(gone > 0)
    }

    /// Which of `recipients`, each on its channel, are on the list: their positions.
    pub(super) async fn suppressed_of(
        &mut self,
        recipients: &[(&str, &str)],
    ) -> Result<HashSet<usize>, Error> {
        let is_used: bool =
            self.row("SELECT EXISTS (SELECT FROM suppression)", &[]).await?.try_get(0)?;
        if !is_used || recipients.is_empty() {
            return Ok(HashSet::new());
        }
        let (channels, names): (Vec<&str>, Vec<&str>) = recipients.iter().copied().unzip();
        let select = "SELECT wanted.place FROM unnest($1::text[], $2::text[]) WITH ORDINALITY \
             AS wanted (channel, recipient, place) JOIN suppression USING (channel, recipient)";
        let rows = self.rows(select, &[&channels, &names]).await?;
        let place = |row: &Row| {
            let place: i64 = row.try_get(0)?;
            Ok(usize::try_from(place - 1).unwrap_or(usize::MAX))
        };
        rows.iter().map(place).collect()
    }
}

// === impl Snapshot ===

impl Snapshot<'_> {
    pub(super) async fn suppressions(
        &self,
        channel: &Name,
        after: Option<&ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError> {
        let select = "SELECT recipient, reason, status, since FROM suppression \
             WHERE channel = $1 AND recipient > $2 ORDER BY recipient LIMIT $3";
        let after: &str = after.map_or("", |after| after);
        let rows =
            self.transaction.query(select, &[&channel.as_str(), &after, &signed(items)]).await?;
        let suppression = |row: &Row| {
            Ok(Suppression {
                channel: channel.clone(),
                recipient: row.try_get::<_, String>(0)?.into(),
                reason: row.try_get(1)?,
                status: status_at(row, 2)?,
                since: instant(row, 3)?,
            })
        };
        rows.iter().map(suppression).collect()
    }

    pub(super) async fn suppressed_channel(
        &self,
        after: Option<&Name>,
    ) -> Result<Option<Name>, StoreError> {
        let select = "SELECT min(channel) FROM suppression WHERE channel > $1";
        let after = after.map_or("", Name::as_str);
        let found: Option<String> =
            self.transaction.query_one(select, &[&after]).await?.try_get(0)?;
        found.map(|found| model::name(&found)).transpose()
    }

    /// Changes by transactions that were complete when the snapshot was taken, and before which none can follow; and whether
    /// it is sure that no more of them are.
    pub(super) async fn suppression_events(
        &self,
        position: EventPosition,
        events: usize,
    ) -> Result<(SuppressionPage, bool), StoreError> {
        let (horizon, is_sure) = self.horizon().await?;
        let select = "SELECT txid, id, at, channel, recipient, reason, status, since \
             FROM suppression_event WHERE (txid, id) > ($1, $2) AND txid < $3 ORDER BY txid, id LIMIT $4";
        let EventPosition { transaction, event } = position;
        let rows = self
            .transaction
            .query(select, &[&Xid(transaction), &event.cast_signed(), &horizon, &signed(events)])
            .await?;
        let events: Vec<SuppressionEvent> = rows.iter().map(event_at).collect::<Result<_, _>>()?;
        let next = events.last().map_or(position, |last| last.position);
        Ok((SuppressionPage { events, next }, is_sure))
    }

    pub(super) async fn feed(&self, feed: &Name) -> Result<FeedCursor, StoreError> {
        let row = self.transaction.query_opt(SELECT_FEED, &[&feed.as_str()]).await?;
        row.map_or(Ok(FeedCursor::default()), |row| cursor_at(&row))
    }
}

fn event_at(row: &Row) -> Result<SuppressionEvent, StoreError> {
    let Xid(transaction) = row.try_get(0)?;
    let change = match row.try_get::<_, Option<i64>>(7)? {
        Some(since) => Change::Suppressed {
            reason: row.try_get(5)?,
            status: status_at(row, 6)?,
            since: Timestamp::from_millis(since),
        },
        None => Change::Lifted,
    };
    Ok(SuppressionEvent {
        position: EventPosition { transaction, event: unsigned(row, 1)? },
        at: instant(row, 2)?,
        channel: model::name(row.try_get(3)?)?,
        recipient: row.try_get::<_, String>(4)?.into(),
        change,
    })
}

fn cursor_at(row: &Row) -> Result<FeedCursor, StoreError> {
    let until = match (row.try_get::<_, Option<i64>>(2)?, row.try_get::<_, Option<i64>>(3)?) {
        (Some(transaction), Some(event)) => Some(EventPosition {
            transaction: transaction.cast_unsigned(),
            event: event.cast_unsigned(),
        }),
        _ => None,
    };
    let position = EventPosition { transaction: unsigned(row, 0)?, event: unsigned(row, 1)? };
    let tries = u32::try_from(row.try_get::<_, i64>(4)?).unwrap_or(u32::MAX);
    Ok(FeedCursor { position, until, tries })
}

fn status_at(row: &Row, column: usize) -> Result<u16, StoreError> {
    let status: i32 = row.try_get(column)?;
    u16::try_from(status).map_err(|_| StoreError::Damaged("a status of a suppression".to_owned()))
}

/// Whether PostgreSQL can keep it as a text. Nobody can be sent to whose name has a NUL, so nobody is missed.
fn is_text(recipient: &str) -> bool {
    !recipient.contains('\0')
}
