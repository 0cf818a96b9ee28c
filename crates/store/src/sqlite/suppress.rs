//! The suppression list and its changes.

use notification::{ByteString, Delivery, Name, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::read::Snapshot;
use super::rows::signed;
use super::transaction::Transaction;
use crate::rows::codes;
use crate::rows::listing::{self, SuppressedMembers};
use crate::rows::recipient_filter::RecipientFilter;
use crate::{
    Change, EventPosition, FeedCursor, Lift, StoreError, Suppression, SuppressionEvent,
    SuppressionPage,
};

// === impl Transaction ===

impl Transaction<'_> {
    /// Lists a recipient that must not be tried, by the rule of [`listing`].
    pub(super) fn suppress(
        &mut self,
        reported: &Suppression,
        gone_since: Option<Timestamp>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (channel, recipient): (&str, &str) = (reported.channel.as_str(), &reported.recipient);
        let lifted_at =
            "SELECT lifted_at FROM suppression_lift WHERE channel = ?1 AND recipient = ?2";
        let lifted_at = self
            .sql(lifted_at)?
            .query_row([channel, recipient], |row| row.get(0))
            .optional()?
            .map(Timestamp::from_millis);
        if listing::is_out_of_date(gone_since, lifted_at) {
            return Ok(());
        }
        let listed = self.listed(reported)?;
        let entry =
            listed.as_ref().map_or_else(|| reported.clone(), |it| listing::merged(it, reported));
        if listed.as_ref() == Some(&entry) {
            return Ok(());
        }
        let Suppression { reason, status, since, .. } = &entry;
        let upsert = "INSERT INTO suppression (channel, recipient, reason, status, since) \
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (channel, recipient) \
             DO UPDATE SET reason = excluded.reason, status = excluded.status, since = excluded.since";
        let since = since.millis();
        self.sql(upsert)?.execute(params![channel, recipient, reason, status, since])?;
        // If the transaction is undone, the filter says "perhaps" for nothing, which costs a look-up.
        self.state.suppressed.insert(channel, recipient);
        if listed.is_some_and(|listed| !listing::is_news(&listed, &entry)) {
            return Ok(());
        }
        let insert = "INSERT INTO suppression_event (at, channel, recipient, reason, status, since) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let at = at.millis();
        self.sql(insert)?.execute(params![at, channel, recipient, reason, status, since])?;
        // Feeds wait for the same changes as claims.
        self.woke = true;
        Ok(())
    }

    /// The entry of the recipient that is reported.
    fn listed(&self, reported: &Suppression) -> Result<Option<Suppression>, StoreError> {
        let select = "SELECT reason, status, since FROM suppression \
             WHERE channel = ?1 AND recipient = ?2";
        let (channel, recipient): (&str, &str) = (reported.channel.as_str(), &reported.recipient);
        let listed = self.sql(select)?.query_row([channel, recipient], |row| {
            Ok(Suppression {
                reason: row.get(0)?,
                status: row.get(1)?,
                since: Timestamp::from_millis(row.get(2)?),
                ..reported.clone()
            })
        });
        Ok(listed.optional()?)
    }

    pub(super) fn lift(&mut self, lift: &Lift, now: Timestamp) -> Result<bool, StoreError> {
        let Lift { channel, recipient, registered_at } = lift;
        let (channel, recipient): (&str, &str) = (channel.as_str(), recipient);
        let covered = registered_at.map(Timestamp::millis);
        let delete = "DELETE FROM suppression \
             WHERE channel = ?1 AND recipient = ?2 AND (?3 IS NULL OR since <= ?3 AND status <> 0)";
        let is_lifted = self.sql(delete)?.execute(params![channel, recipient, covered])? > 0;
        if is_lifted {
            let insert =
                "INSERT INTO suppression_event (at, channel, recipient) VALUES (?1, ?2, ?3)";
            self.sql(insert)?.execute(params![now.millis(), channel, recipient])?;
            self.woke = true;
        }
        if is_lifted || registered_at.is_some() {
            // An application may report registrations in any order: the latest one counts.
            let upsert = "INSERT INTO suppression_lift (channel, recipient, lifted_at) \
                 VALUES (?1, ?2, ?3) ON CONFLICT (channel, recipient) \
                 DO UPDATE SET lifted_at = max(lifted_at, excluded.lifted_at)";
            let lifted_at = registered_at.unwrap_or(now).millis();
            self.sql(upsert)?.execute(params![channel, recipient, lifted_at])?;
        }
        Ok(is_lifted)
    }

    pub(super) fn move_feed(
        &mut self,
        feed: &Name,
        from: FeedCursor,
        to: FeedCursor,
    ) -> Result<FeedCursor, StoreError> {
        let current = feed_at(self.connection, feed)?;
        if current != from {
            return Ok(current);
        }
        let upsert = "INSERT INTO feed (name, event, until, tries) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (name) DO UPDATE \
             SET event = excluded.event, until = excluded.until, tries = excluded.tries";
        let number = |position: EventPosition| position.event.cast_signed();
        self.sql(upsert)?.execute(params![
            feed.as_str(),
            number(to.position),
            to.until.map(number),
            to.tries
        ])?;
        Ok(to)
    }

    /// Members, of `deliveries`, whose recipient must not be tried, each with the detail for the log.
    pub(super) fn suppressed_of(
        &self,
        channel: &Name,
        deliveries: &[Delivery],
    ) -> Result<SuppressedMembers, StoreError> {
        let mut suppressed = SuppressedMembers::default();
        if self.state.suppressed.is_empty() {
            return Ok(suppressed);
        }
        let select = "SELECT reason, since FROM suppression WHERE channel = ?1 AND recipient = ?2";
        let mut select = self.sql(select)?;
        for delivery in deliveries {
            let recipient: &str = &delivery.recipient;
            if !self.state.suppressed.may_contain(channel.as_str(), recipient) {
                continue;
            }
            let detail = |row: &Row<'_>| {
                let since = Timestamp::from_millis(row.get(1)?);
                Ok(Suppression::log_detail(row.get_ref(0)?.as_str()?, since))
            };
            let found = select.query_row([channel.as_str(), recipient], detail).optional()?;
            suppressed.extend(found.map(|detail| (delivery.index, detail)));
        }
        Ok(suppressed)
    }
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn suppressions(
        &self,
        channel: &Name,
        after: Option<&ByteString>,
        items: usize,
    ) -> Result<Vec<Suppression>, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT recipient, reason, status, since FROM suppression \
             WHERE channel = ?1 AND recipient > ?2 ORDER BY recipient LIMIT ?3",
        )?;
        let after: &str = after.map_or("", |after| after);
        let rows = select.query_map(params![channel.as_str(), after, signed(items)], |row| {
            Ok(Suppression {
                channel: channel.clone(),
                recipient: row.get::<_, String>(0)?.into(),
                reason: row.get(1)?,
                status: row.get(2)?,
                since: Timestamp::from_millis(row.get(3)?),
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(super) fn suppressed_channel(
        &self,
        after: Option<&Name>,
    ) -> Result<Option<Name>, StoreError> {
        let select = "SELECT min(channel) FROM suppression WHERE channel > ?1";
        let after = after.map_or("", Name::as_str);
        let found: Option<String> =
            self.connection.prepare_cached(select)?.query_row([after], |row| row.get(0))?;
        found.map(|found| codes::name(&found)).transpose()
    }

    pub(super) fn suppression_events(
        &self,
        position: EventPosition,
        events: usize,
    ) -> Result<SuppressionPage, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT id, at, channel, recipient, reason, status, since FROM suppression_event \
             WHERE id > ?1 ORDER BY id LIMIT ?2",
        )?;
        let mut rows = select.query(params![position.event.cast_signed(), signed(events)])?;
        let mut page = SuppressionPage { events: Vec::new(), next: position };
        while let Some(row) = rows.next()? {
            page.next =
                EventPosition { transaction: 0, event: row.get::<_, i64>(0)?.cast_unsigned() };
            let recipient: String = row.get(3)?;
            if recipient.is_empty() {
                // It was erased.
                continue;
            }
            let change = match row.get::<_, Option<i64>>(6)? {
                Some(since) => Change::Suppressed {
                    reason: row.get(4)?,
                    status: row.get(5)?,
                    since: Timestamp::from_millis(since),
                },
                None => Change::Lifted,
            };
            page.events.push(SuppressionEvent {
                position: page.next,
                at: Timestamp::from_millis(row.get(1)?),
                channel: codes::name(row.get_ref(2)?.as_str()?)?,
                recipient: recipient.into(),
                change,
            });
        }
        Ok(page)
    }

    pub(super) fn feed(&self, feed: &Name) -> Result<FeedCursor, StoreError> {
        feed_at(&self.connection, feed)
    }
}

/// Cursor of the feed named `feed`.
fn feed_at(connection: &Connection, feed: &Name) -> Result<FeedCursor, StoreError> {
    let select = "SELECT event, until, tries FROM feed WHERE name = ?1";
    let mut select = connection.prepare_cached(select)?;
    let position = |event: i64| EventPosition { transaction: 0, event: event.cast_unsigned() };
    let found = select.query_row([feed.as_str()], |row| {
        let until: Option<i64> = row.get(1)?;
        let until = until.map(position);
        Ok(FeedCursor { position: position(row.get(0)?), until, tries: row.get(2)? })
    });
    Ok(found.optional()?.unwrap_or_default())
}

/// A filter of all recipients on the list.
pub(super) fn listed_recipients(connection: &Connection) -> Result<RecipientFilter, StoreError> {
    let mut filter = RecipientFilter::default();
    let mut select = connection.prepare("SELECT channel, recipient FROM suppression")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        filter.insert(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
    }
    Ok(filter)
}
