//! The suppression list and its changes.

use std::collections::{BTreeMap, HashMap, HashSet};

use async_trait::async_trait;
use notification::{ByteString, Name, Timestamp};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::columns::{is_text, signed};
use super::listed::{ListReading, Unseen};
use super::read::{Snapshot, instant, unsigned};
use super::request::WriterRequest;
use super::transaction::{RunError, Transaction};
use crate::rows::{codes, listing};
use crate::{
    Change, EventPosition, FeedCursor, Lift, StoreError, Suppression, SuppressionEvent,
    SuppressionPage,
};

/// Adds recipients to the list.
#[derive(Debug)]
pub(super) struct AddSuppressions {
    pub(super) suppressions: Vec<Suppression>,
    pub(super) now: Timestamp,
}

/// A report that a recipient must not be tried, by a provider or an operator.
#[derive(Debug)]
pub(super) struct SuppressionReport {
    pub(super) reported: Suppression,
    /// Time since which the recipient has been unregistered, if its provider gave one.
    pub(super) gone_since: Option<Timestamp>,
    /// Time of the report, by the store's clock.
    pub(super) at: Timestamp,
}

/// Entries of the list by column.
#[derive(Debug, Default)]
struct EntryColumns<'a> {
    channels: Vec<&'a str>,
    recipients: Vec<&'a str>,
    reasons: Vec<&'a str>,
    statuses: Vec<i32>,
    sinces: Vec<i64>,
}

/// Takes recipients off the list.
#[derive(Debug)]
pub(super) struct LiftSuppressions {
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

/// Channel and recipient of an entry.
type Key = (Name, ByteString);

/// Suppressing and lifting exclude each other: the later one sees what the earlier one did.
const LOCK_FOR_SUPPRESSING: &str = "SELECT pg_advisory_xact_lock_shared(4782301, 2)";
pub(super) const LOCK_FOR_LIFTING: &str = "SELECT pg_advisory_xact_lock(4782301, 2)";

const MARKS: &str = "SELECT place, lifted_at, comes_after(txid) \
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS reported (channel, recipient, place) \
     JOIN suppression_lift USING (channel, recipient)";
/// Recipients that are not listed yet, each as in its first report. In one order everywhere, so that two processes never
/// deadlock.
const ADD: &str = "INSERT INTO suppression (channel, recipient, reason, status, since) \
     SELECT DISTINCT ON (channel, recipient) channel, recipient, reason, status, since \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::int4[], $5::int8[]) \
         WITH ORDINALITY AS reported (channel, recipient, reason, status, since, place) \
     ORDER BY channel, recipient, place \
     ON CONFLICT DO NOTHING RETURNING channel, recipient";
/// The entries that were listed before. The lock keeps them from being lifted meanwhile.
const LISTED: &str = "SELECT channel, recipient, reason, status, since, comes_after(txid) FROM suppression \
     WHERE (channel, recipient) IN (SELECT * FROM unnest($1::text[], $2::text[])) \
     ORDER BY channel, recipient FOR UPDATE";
/// The number of a transaction here, as with the marks, is that of one that told of it.
const REPLACE: &str = "UPDATE suppression \
     SET reason = new.reason, status = new.status, since = new.since, \
         txid = CASE WHEN new.is_told THEN transaction_number() ELSE suppression.txid END \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::int4[], $5::int8[], $6::bool[]) \
         AS new (channel, recipient, reason, status, since, is_told) \
     WHERE suppression.channel = new.channel AND suppression.recipient = new.recipient";
const TELL: &str = "INSERT INTO suppression_event (at, channel, recipient, reason, status, since) \
     SELECT at, channel, recipient, reason, status, since \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::int4[], $5::int8[], $6::int8[]) \
         WITH ORDINALITY AS told (channel, recipient, reason, status, since, at, place) ORDER BY place";

const LIFT: &str = "WITH gone AS ( \
         DELETE FROM suppression WHERE channel = $1 AND recipient = $2 \
             AND ($3::int8 IS NULL OR since <= $3 AND status <> 0) \
         RETURNING comes_after(txid) \
     ) \
     INSERT INTO suppression_event (at, channel, recipient) SELECT $4::int8, $1, $2 FROM gone";
const MARK: &str = "INSERT INTO suppression_lift (channel, recipient, lifted_at, txid) \
     VALUES ($1, $2, $3, CASE WHEN $4 THEN transaction_number() ELSE 0 END) \
     ON CONFLICT (channel, recipient) DO UPDATE \
     SET lifted_at = greatest(suppression_lift.lifted_at, excluded.lifted_at), \
         txid = greatest(suppression_lift.txid, excluded.txid)";

/// The transactions of which nothing is seen now, and entries that those added of which nothing was seen before.
const SELECT_ADDED: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8 \
       + (SELECT value FROM meta WHERE key = 'transaction_shift'), \
     ARRAY(SELECT number::text::int8 + value FROM meta, \
       (SELECT pg_snapshot_xip(pg_current_snapshot()) UNION ALL SELECT pg_current_xact_id_if_assigned()) AS running (number) \
       WHERE key = 'transaction_shift' AND number IS NOT NULL), \
     added.channel, added.recipient \
     FROM (SELECT) AS now LEFT JOIN LATERAL ( \
       (SELECT channel, recipient FROM suppression WHERE txid >= $1 ORDER BY txid LIMIT $3) UNION ALL \
       (SELECT channel, recipient FROM suppression WHERE txid = ANY ($2) ORDER BY txid LIMIT $3)) AS added ON true";
const SELECT_PAGE: &str = "SELECT channel, recipient FROM suppression WHERE (channel, recipient) > ($1, $2) \
     ORDER BY channel, recipient LIMIT $3";

const SELECT_FEED: &str = "SELECT txid, event, until_txid, until, tries FROM feed WHERE name = $1";
const LOCK_FEED: &str =
    "SELECT txid, event, until_txid, until, tries FROM feed WHERE name = $1 FOR UPDATE";

#[async_trait]
impl WriterRequest for AddSuppressions {
    type Answer = ();

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<(), RunError> {
        let report = |reported: &Suppression| SuppressionReport {
            reported: reported.clone(),
            // An operator's report is never out of date: to register anew is not to consent.
            gone_since: None,
            at: self.now,
        };
        transaction.suppress(self.suppressions.iter().map(report).collect()).await
    }
}

#[async_trait]
impl WriterRequest for LiftSuppressions {
    type Answer = Vec<bool>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Answer, RunError> {
        transaction.execute(LOCK_FOR_LIFTING, &[]).await?;
        let mut are_lifted = Vec::with_capacity(self.lifts.len());
        for lift in &self.lifts {
            // A recipient with a NUL is never on the list, and a query for it would fail the whole transaction.
            let is_listable = is_text(&lift.recipient);
            are_lifted.push(is_listable && transaction.lift(lift, self.now).await?);
        }
        Ok(are_lifted)
    }
}

#[async_trait]
impl WriterRequest for MoveFeed {
    type Answer = FeedCursor;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<FeedCursor, RunError> {
        let feed = self.feed.as_str();
        // So that there is a row to lock: of two processes that move a new feed only one may find it at its start.
        let start = "INSERT INTO feed (name) VALUES ($1) ON CONFLICT DO NOTHING";
        transaction.execute(start, &[&feed]).await?;
        let current = cursor_at(&transaction.row(LOCK_FEED, &[&feed]).await?)?;
        if current != self.from {
            return Ok(current);
        }
        let update = "UPDATE feed \
             SET txid = $2, event = $3, until_txid = $4, until = $5, tries = $6 WHERE name = $1";
        let FeedCursor { position, until, tries } = self.to;
        let txid = |position: EventPosition| position.transaction.cast_signed();
        let event = |position: EventPosition| position.event.cast_signed();
        let (until_txid, until_event) = (until.map(txid), until.map(event));
        let (txid, event) = (txid(position), event(position));
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&feed, &txid, &event, &until_txid, &until_event, &i64::from(tries)];
        transaction.execute(update, &parameters).await?;
        Ok(self.to)
    }
}

// === impl Transaction ===

impl Transaction<'_> {
    /// Lists the recipients of reports, one report after the other, by the rule of [`listing`].
    pub(super) async fn suppress(
        &mut self,
        mut reports: Vec<SuppressionReport>,
    ) -> Result<(), RunError> {
        reports.retain(|report| is_text(&report.reported.recipient));
        if reports.is_empty() {
            return Ok(());
        }
        // Before the marks are read: a recipient that is lifted after that would be listed again by a report that is older.
        self.execute(LOCK_FOR_SUPPRESSING, &[]).await?;
        let reports = self.without_outdated(reports).await?;
        // Before the listed ones are read: a recipient that another transaction lists is waited for, and is there then.
        let new = self.add(&reports).await?;
        let mut entries = self.listed_among(&reports, &new).await?;
        let (mut told, mut ats, mut replaced) = (Vec::new(), Vec::new(), BTreeMap::new());
        for report in &reports {
            let key = key_of(&report.reported);
            let after = match entries.get(&key) {
                None => report.reported.clone(),
                Some(listed) => listing::merged(listed, &report.reported),
            };
            let before = entries.insert(key.clone(), after.clone());
            let is_news = before.as_ref().is_none_or(|before| listing::is_news(before, &after));
            // `add` has written a new entry as in its first report; only a change by a report is written again.
            if before.is_some_and(|before| before != after) {
                *replaced.entry(key).or_insert(false) |= is_news;
            }
            if is_news {
                told.push(after);
                ats.push(report.at.millis());
            }
        }
        let are_told: Vec<bool> = replaced.values().copied().collect();
        let replaced = replaced.keys().filter_map(|key| entries.get(key));
        self.write_entries(REPLACE, EntryColumns::new(replaced), &are_told).await?;
        self.write_entries(TELL, EntryColumns::new(told.iter()), &ats).await?;
        // Feeds wait for the same changes as claims.
        self.effects.woke |= !told.is_empty();
        Ok(())
    }

    /// Writes entries, with one more column.
    async fn write_entries(
        &mut self,
        sql: &'static str,
        columns: EntryColumns<'_>,
        more: &(dyn ToSql + Sync),
    ) -> Result<(), Error> {
        if columns.channels.is_empty() {
            return Ok(());
        }
        let [channels, recipients, reasons, statuses, sinces] = columns.parameters();
        let parameters = [channels, recipients, reasons, statuses, sinces, more];
        self.execute(sql, &parameters).await.map(drop)
    }

    /// The reports that are not out of date, as texts that PostgreSQL can keep.
    async fn without_outdated(
        &mut self,
        reports: Vec<SuppressionReport>,
    ) -> Result<Vec<SuppressionReport>, RunError> {
        let EntryColumns { channels, recipients, .. } =
            EntryColumns::new(reports.iter().map(|report| &report.reported));
        let mut marks = HashMap::new();
        for row in self.rows(MARKS, &[&channels, &recipients]).await? {
            let place: i64 = row.try_get(0)?;
            marks.insert(usize::try_from(place - 1).unwrap_or(usize::MAX), instant(&row, 1)?);
        }
        let valid = reports.into_iter().enumerate().filter(|(place, report)| {
            !listing::is_out_of_date(report.gone_since, marks.get(place).copied())
        });
        let as_text = |mut report: SuppressionReport| {
            // A reason may be in a provider's own words, and no text of PostgreSQL has a NUL: it would fail the settlement.
            report.reported.reason = report.reported.reason.replace('\0', "\u{fffd}");
            report
        };
        Ok(valid.map(|(_, report)| as_text(report)).collect())
    }

    /// Lists the recipients that are not listed, each as in its first report; returns which these were.
    async fn add(&mut self, reports: &[SuppressionReport]) -> Result<HashSet<Key>, RunError> {
        if reports.is_empty() {
            return Ok(HashSet::new());
        }
        let columns = EntryColumns::new(reports.iter().map(|report| &report.reported));
        let rows = self.rows(ADD, &columns.parameters()).await?;
        let key =
            |row: &Row| Ok((codes::name(row.try_get(0)?)?, row.try_get::<_, String>(1)?.into()));
        rows.iter().map(key).collect()
    }

    /// The entries of the recipients reported that are not `new`, locked.
    async fn listed_among(
        &mut self,
        reports: &[SuppressionReport],
        new: &HashSet<Key>,
    ) -> Result<HashMap<Key, Suppression>, RunError> {
        let listed = reports
            .iter()
            .map(|report| &report.reported)
            .filter(|reported| !new.contains(&key_of(reported)));
        let EntryColumns { channels, recipients, .. } = EntryColumns::new(listed);
        if channels.is_empty() {
            return Ok(HashMap::new());
        }
        let entry = |row: &Row| {
            let entry = Suppression {
                channel: codes::name(row.try_get(0)?)?,
                recipient: row.try_get::<_, String>(1)?.into(),
                reason: row.try_get(2)?,
                status: status_at(row, 3)?,
                since: instant(row, 4)?,
            };
            Ok((key_of(&entry), entry))
        };
        self.rows(LISTED, &[&channels, &recipients]).await?.iter().map(entry).collect()
    }

    pub(super) async fn lift(&mut self, lift: &Lift, now: Timestamp) -> Result<bool, Error> {
        let (channel, recipient): (&str, &str) = (lift.channel.as_str(), &lift.recipient);
        let covered = lift.registered_at.map(Timestamp::millis);
        // Readers go by the transactions' numbers: where this one's is lower than that of the change before it, `comes_after`
        // fails the statement, and the transaction is done again with a later one.
        let gone = self.execute(LIFT, &[&channel, &recipient, &covered, &now.millis()]).await?;
        self.state.takes_off_list |= gone > 0;
        // A mark for one that is not listed, too: a refusal that is older than the registration may still come.
        if gone > 0 || covered.is_some() {
            let lifted_at = covered.unwrap_or(now.millis());
            self.execute(MARK, &[&channel, &recipient, &lifted_at, &(gone > 0)]).await?;
        }
        self.effects.woke |= gone > 0;
        Ok(gone > 0)
    }

    /// Positions of those `recipients`, each on its channel, that are on the list, with the detail for the log.
    pub(super) async fn suppressed_of(
        &mut self,
        recipients: &[(&str, &str)],
    ) -> Result<HashMap<usize, String>, Error> {
        if recipients.is_empty() {
            return Ok(HashMap::new());
        }
        self.read_listed(ListReading::DEFAULT).await?;
        let listed = &self.state.listed;
        let texts = (1_i64..).zip(recipients).filter(|(_, (channel, recipient))| {
            // One with a NUL is never on the list, and a query for it would fail the claim of all others.
            listed.may_contain(channel, recipient) && is_text(recipient)
        });
        let (places, (channels, names)): (Vec<i64>, (Vec<&str>, Vec<&str>)) =
            texts.map(|(place, &text)| (place, text)).unzip();
        if places.is_empty() {
            return Ok(HashMap::new());
        }
        let select = "SELECT wanted.place, reason, since FROM unnest($1::text[], $2::text[], $3::int8[]) \
             AS wanted (channel, recipient, place) JOIN suppression USING (channel, recipient)";
        let rows = self.rows(select, &[&channels, &names, &places]).await?;
        let detail = |row: &Row| {
            let place = usize::try_from(row.try_get::<_, i64>(0)? - 1).unwrap_or(usize::MAX);
            let since = Timestamp::from_millis(row.try_get(2)?);
            Ok((place, Suppression::log_detail(row.try_get(1)?, since)))
        };
        rows.iter().map(detail).collect()
    }

    /// Reads what was added to the list by now, and more of the list if not all of it was read.
    pub(super) async fn read_listed(&mut self, reading: ListReading) -> Result<(), Error> {
        // Before the list is read the numbers alone are of use: by them it is told what is added meanwhile.
        let before = Unseen { from: i64::MAX, running: Vec::new() };
        let Unseen { from, running } = self.state.listed.unseen.clone().unwrap_or(before);
        let parameters: [&(dyn ToSql + Sync); 3] = [&from, &running, &signed(reading.added + 1)];
        let mut added = self.rows(SELECT_ADDED, &parameters).await?;
        // There is a row without an entry if none was added.
        let Some(now) = added.first() else { return Ok(()) };
        let unseen = Unseen { from: now.try_get(0)?, running: now.try_get(1)? };
        added.retain(|row| !matches!(row.try_get::<_, Option<&str>>(2), Ok(None)));
        self.state.listed.add(&added, unseen, reading)?;
        let Some((channel, recipient)) = self.state.listed.unread_behind.clone() else {
            return Ok(());
        };
        let page = self.rows(SELECT_PAGE, &[&channel, &recipient, &signed(reading.page)]).await?;
        self.state.listed.read(&page, reading)
    }
}

// === impl EntryColumns ===

impl<'a> EntryColumns<'a> {
    fn new(entries: impl Iterator<Item = &'a Suppression>) -> Self {
        let mut columns = Self::default();
        for Suppression { channel, recipient, reason, status, since } in entries {
            columns.channels.push(channel.as_str());
            columns.recipients.push(recipient);
            columns.reasons.push(reason);
            columns.statuses.push(i32::from(*status));
            columns.sinces.push(since.millis());
        }
        columns
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.channels, &self.recipients, &self.reasons, &self.statuses, &self.sinces]
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
        found.map(|found| codes::name(&found)).transpose()
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
            .query(
                select,
                &[&transaction.cast_signed(), &event.cast_signed(), &horizon, &signed(events)],
            )
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

fn key_of(entry: &Suppression) -> Key {
    (entry.channel.clone(), entry.recipient.clone())
}

fn event_at(row: &Row) -> Result<SuppressionEvent, StoreError> {
    let transaction = unsigned(row, 0)?;
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
        channel: codes::name(row.try_get(3)?)?,
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
