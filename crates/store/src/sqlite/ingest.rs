//! The way in: the drafts of all callers of a round, packed into shared batches.

use std::collections::HashMap;

use notification::{
    BatchId, BroadcastId, ByteString, Content, Draft, Envelope, Name, NotificationId, Timestamp,
    limits,
};
use rusqlite::{OptionalExtension, params};

use super::codec::encode_items;
use super::lanes::LaneId;
use super::round::{NewChunk, Round, signed};
use crate::{Admission, StoreError};

/// Batches that still fill up in this round.
#[derive(Debug, Default)]
pub(super) struct Packing {
    batches: Vec<Filling>,
    /// The batch that takes more of an envelope.
    open: HashMap<Envelope, usize>,
    last: usize,
    /// Keys that are new in this round.
    keys: HashMap<(Name, ByteString), ([u8; 32], NotificationId)>,
}

/// A batch that is not written yet.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) id: BatchId,
    pub(super) envelope: Envelope,
    pub(super) accepted_at: Timestamp,
    items: Vec<(ByteString, Content)>,
    bytes: usize,
    /// Whether all items have the same content so far.
    is_shared: bool,
}

/// What a key was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Notification(NotificationId),
    Broadcast(BroadcastId),
}

/// Length prefixes of one item, at most.
const PREFIX_BYTES: usize = 15;

// === impl Round ===

impl Round<'_> {
    /// Takes the drafts of one caller in, or refuses them all. They are stored by [`Round::store_packed`].
    pub(super) fn pack(
        &mut self,
        packing: &mut Packing,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        self.check_keys(packing, &drafts)?;
        let mut admissions = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let Some(idempotency) = &draft.idempotency else {
                admissions.push(Admission::Accepted(self.place(packing, draft, now)));
                continue;
            };
            let key = (draft.envelope.tenant.clone(), idempotency.key.clone());
            let fingerprint = idempotency.fingerprint;
            let known = match packing.keys.get(&key) {
                Some(&(_, id)) => Some(id),
                None => match self.known_key(&key.0, &key.1)? {
                    Some((Known::Notification(id), _)) => Some(id),
                    Some((Known::Broadcast(_), _)) | None => None,
                },
            };
            if let Some(id) = known {
                admissions.push(Admission::Replayed(id));
                continue;
            }
            let id = self.place(packing, draft, now);
            packing.keys.insert(key, (fingerprint, id));
            admissions.push(Admission::Accepted(id));
        }
        Ok(admissions)
    }

    /// Refuses a list in which any key was used for something else.
    fn check_keys(&self, packing: &Packing, drafts: &[Draft]) -> Result<(), StoreError> {
        let mut seen: HashMap<(&Name, &ByteString), [u8; 32]> = HashMap::new();
        for (index, draft) in drafts.iter().enumerate() {
            let Some(idempotency) = &draft.idempotency else { continue };
            let (tenant, key) = (&draft.envelope.tenant, &idempotency.key);
            let before = match packing.keys.get(&(tenant.clone(), key.clone())) {
                Some(&(fingerprint, _)) => fingerprint,
                None => match self.known_key(tenant, key)? {
                    Some((Known::Notification(_), fingerprint)) => fingerprint,
                    Some((Known::Broadcast(_), _)) => return Err(StoreError::KeyReused { index }),
                    None => *seen.entry((tenant, key)).or_insert(idempotency.fingerprint),
                },
            };
            if before != idempotency.fingerprint {
                return Err(StoreError::KeyReused { index });
            }
        }
        Ok(())
    }

    /// What `key` was used for, if it was.
    pub(super) fn known_key(
        &self,
        tenant: &Name,
        key: &str,
    ) -> Result<Option<(Known, [u8; 32])>, StoreError> {
        let mut select = self.sql(
            "SELECT fingerprint, notification, broadcast FROM idempotency \
             WHERE tenant = ?1 AND key = ?2",
        )?;
        let row = select.query_row(params![tenant.as_str(), key], |row| {
            let known = match row.get::<_, Option<[u8; 16]>>(1)? {
                Some(bytes) => Known::Notification(NotificationId::from_bytes(bytes)),
                None => Known::Broadcast(BroadcastId(row.get::<_, i64>(2)?.cast_unsigned())),
            };
            Ok((known, row.get(0)?))
        });
        Ok(row.optional()?)
    }

    /// Gives the draft its place in a batch.
    fn place(&mut self, packing: &mut Packing, draft: Draft, now: Timestamp) -> NotificationId {
        let Draft { envelope, recipient, content, idempotency: _ } = draft;
        let fits = |batch: &Filling| batch.fits(&recipient, &content);
        let last = packing.batches.get(packing.last).filter(|batch| batch.envelope == envelope);
        let position = match last {
            Some(batch) if fits(batch) => packing.last,
            _ => match packing.open.get(&envelope) {
                Some(&open) if packing.batches.get(open).is_some_and(fits) => open,
                _ => {
                    let position = packing.batches.len();
                    let batch = Filling::new(self.next_batch(), envelope.clone(), now);
                    packing.open.insert(envelope, position);
                    packing.batches.push(batch);
                    position
                }
            },
        };
        packing.last = position;
        #[expect(clippy::indexing_slicing, reason = "the position was found or made just now")]
        let batch = &mut packing.batches[position];
        let index = batch.push(recipient, content);
        NotificationId::new(batch.accepted_at, self.desk.realm, batch.id, index)
    }

    pub(super) fn next_batch(&mut self) -> BatchId {
        let id = BatchId(self.desk.next_batch);
        self.desk.next_batch += 1;
        id
    }

    /// Writes what was packed in this round, due from now on.
    pub(super) fn store_packed(&mut self, packing: Packing) -> Result<(), StoreError> {
        for batch in &packing.batches {
            let lane = self.lane_number(&batch.envelope.lane)?;
            self.store_batch(batch, lane)?;
            self.add_chunk(&NewChunk {
                batch: batch.id,
                lane,
                due_at: batch.envelope.due_at,
                attempt: 1,
                crashes: 0,
                count: batch.items.len(),
                members: None,
            })?;
            self.count_accepted(batch.items.len());
        }
        let mut insert = self.sql(
            "INSERT INTO idempotency (tenant, key, fingerprint, notification) \
             VALUES (?1, ?2, ?3, ?4)",
        )?;
        for ((tenant, key), (fingerprint, id)) in packing.keys {
            insert.execute(params![tenant.as_str(), &*key, fingerprint, id.to_bytes()])?;
        }
        Ok(())
    }

    /// Writes one batch, and nothing that would make it due.
    pub(super) fn store_batch(&self, batch: &Filling, lane: LaneId) -> Result<(), StoreError> {
        let envelope = &batch.envelope;
        let shared = match batch.items.first() {
            Some((_, content)) if batch.is_shared && envelope.broadcast.is_none() => Some(content),
            _ => None,
        };
        let items = batch.items.iter().map(|(recipient, content)| (recipient, content));
        self.sql(
            "INSERT INTO batch (id, lane, guarantee, accepted_at, due_at, expires_at, broadcast, \
             count, tenant, options, payload, items) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            batch.id.0.cast_signed(),
            lane,
            envelope.guarantee.code(),
            batch.accepted_at.millis(),
            envelope.due_at.millis(),
            envelope.expires_at.map(Timestamp::millis),
            envelope.broadcast.map(|id| id.0.cast_signed()),
            signed(batch.items.len()),
            envelope.tenant.as_str(),
            shared.map(|content| &*content.options),
            shared.map(|content| &*content.payload),
            encode_items(items, !batch.is_shared, batch.bytes + 2),
        ])?;
        Ok(())
    }
}

// === impl Filling ===

impl Filling {
    pub(super) fn new(id: BatchId, envelope: Envelope, accepted_at: Timestamp) -> Self {
        Self { id, envelope, accepted_at, items: Vec::new(), bytes: 0, is_shared: true }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether one more stays within the bounds of a batch.
    pub(super) fn fits(&self, recipient: &ByteString, content: &Content) -> bool {
        let (bytes, _) = self.with(recipient, content);
        self.items.is_empty()
            || (self.items.len() < limits::BATCH_ITEMS && bytes <= limits::BATCH_BYTES)
    }

    /// Adds one, and says where it stands.
    pub(super) fn push(&mut self, recipient: ByteString, content: Content) -> u16 {
        let index = u16::try_from(self.items.len()).unwrap_or(u16::MAX);
        (self.bytes, self.is_shared) = self.with(&recipient, &content);
        self.items.push((recipient, content));
        index
    }

    /// The bytes of all items, and whether they share their content, with one more.
    fn with(&self, recipient: &ByteString, content: &Content) -> (usize, bool) {
        let content_bytes = content.payload.len() + content.options.len();
        let grown = self.bytes + recipient.len() + PREFIX_BYTES;
        match self.items.first() {
            None => (recipient.len() + PREFIX_BYTES, true),
            Some((_, first)) if self.is_shared && is_same(first, content) => (grown, true),
            Some((_, first)) if self.is_shared => {
                let first_bytes = first.payload.len() + first.options.len();
                (grown + first_bytes * self.items.len() + content_bytes, false)
            }
            Some(_) => (grown + content_bytes, false),
        }
    }
}

/// Equal, and found so at once when they are the same bytes in memory.
fn is_same(one: &Content, other: &Content) -> bool {
    let same_place = one.payload.as_ptr() == other.payload.as_ptr()
        && one.payload.len() == other.payload.len()
        && one.options == other.options;
    same_place || one == other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Shape, at};
    use crate::sqlite::open::{Options, open};

    #[test]
    fn callers_of_one_round_share_batches_and_a_refused_one_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut opened = open(directory.path(), Options::new(1), at(0)).unwrap();
        let mut round = Round::begin(&opened.connection, &mut opened.desk).unwrap();
        let mut packing = Packing::default();
        let keyed = |content| Shape { key: Some(("key", content)), ..Shape::default() }.drafts(1);
        let mut pack = |drafts| round.pack(&mut packing, drafts, at(0));
        let first = pack(keyed(1)).unwrap()[0];
        let Admission::Accepted(first) = first else { panic!("{first:?}") };
        assert_eq!(pack(keyed(1)).unwrap(), [Admission::Replayed(first)]);
        let mut refused = Shape::default().drafts(5);
        refused.extend(keyed(2));
        assert_eq!(pack(refused), Err(StoreError::KeyReused { index: 5 }));
        let last = pack(Shape::default().drafts(1)).unwrap()[0];
        let Admission::Accepted(last) = last else { panic!("{last:?}") };
        assert_eq!((last.batch(), last.index()), (first.batch(), 1));
        round.store_packed(packing).unwrap();
        round.commit().unwrap();
        let count = "SELECT sum(count) FROM batch";
        assert_eq!(opened.connection.query_row(count, [], |row| row.get(0)), Ok(2));
    }
}
