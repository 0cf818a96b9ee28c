//! Drafts on their way into batches.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use notification::{
    BatchId, ByteString, CommonLabels, Content, ContentAddress, Draft, Envelope, Idempotency,
    ItemTraces, Name, NotificationId, Timestamp, content_address, limits,
};

use super::codec::{ItemContent, encode_items};
use super::labels::BatchLabels;
use crate::ingest::BatchItem;
use crate::{Admission, BroadcastOpened, KeyUse, RecipientGroup, StoreError};

/// Packs the drafts of a transaction into batches.
#[derive(Debug, Default)]
pub(crate) struct BatchPacker {
    pub(crate) batches: Vec<BatchBuilder>,
    /// The batch that takes more of an envelope.
    open: HashMap<Envelope, usize>,
    last: usize,
    /// Keys that are new in this transaction.
    pub(crate) keys: HashMap<(Name, ByteString), ([u8; 32], NotificationId)>,
}

/// A batch that takes in items until it is full or written.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    pub(crate) id: BatchId,
    pub(crate) envelope: Envelope,
    pub(crate) accepted_at: Timestamp,
    pub(crate) items: Vec<(ByteString, Content)>,
    pub(crate) labels: BatchLabels,
    pub(crate) traces: ItemTraces,
    /// True if the items are notifications by which feeds hand events on: a batch has no others then.
    pub(crate) is_of_feed: bool,
    bytes: usize,
    /// True if contents are stored with the batch, and not with the broadcast.
    has_contents: bool,
    /// True if all items have the same content so far.
    is_shared: bool,
    /// Contents of items and fallbacks, once an item has fallbacks: each is written once.
    listed: HashSet<ContentAddress>,
}

/// A broadcast that is open.
#[derive(Debug)]
pub(crate) struct OpenedBroadcast {
    /// The envelope that its batches share; the destination is left empty.
    pub(crate) envelope: Envelope,
    /// Its idempotency key, and the fingerprint of its content.
    pub(crate) key: Option<(ByteString, [u8; 32])>,
    /// Its tags and metadata, which all of its notifications have.
    pub(crate) common: Option<Arc<CommonLabels>>,
}

/// Length prefixes of one item, at most.
const PREFIX_BYTES: usize = 15;

/// A store, as packing needs it.
pub(crate) trait Batches {
    /// The store's id.
    fn store_id(&self) -> u16;

    /// The use of `key`, and the fingerprint of that, if it was used.
    fn key_use(&self, tenant: &Name, key: &str) -> Result<Option<(KeyUse, [u8; 32])>, StoreError>;

    /// The number of the next batch.
    fn next_batch(&mut self) -> BatchId;
}

// === impl BatchPacker ===

impl BatchPacker {
    /// Packs the drafts of one caller, or refuses them all. The caller stores the packed batches.
    pub(crate) fn pack(
        &mut self,
        store: &mut impl Batches,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        // Before any draft is placed: batches are shared by callers, and a refusal must leave nothing in them.
        self.check_keys(store, &drafts, now)?;
        let mut admissions = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let Some(idempotency) = &draft.idempotency else {
                admissions.push(Admission::Accepted(self.place(store, draft, now)));
                continue;
            };
            let key = (draft.envelope.lane.tenant.clone(), idempotency.key.clone());
            let fingerprint = idempotency.fingerprint;
            // A key that came in earlier in this transaction is not in the store yet.
            let known = match self.keys.get(&key) {
                Some(&(_, id)) => Some(id),
                None => match store.key_use(&key.0, &key.1)? {
                    Some((KeyUse::Notification(id), _)) => Some(id),
                    // `check_keys` has refused the key of a broadcast.
                    Some((KeyUse::Broadcast(_), _)) | None => None,
                },
            };
            if let Some(id) = known {
                admissions.push(Admission::Replayed(id));
                continue;
            }
            let id = self.place(store, draft, now);
            self.keys.insert(key, (fingerprint, id));
            admissions.push(Admission::Accepted(id));
        }
        Ok(admissions)
    }

    /// Refuses a list in which any key was used for something else, or was not used although it is too late for a first use.
    fn check_keys(
        &self,
        store: &impl Batches,
        drafts: &[Draft],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut seen: HashMap<(&Name, &ByteString), [u8; 32]> = HashMap::new();
        for (index, draft) in drafts.iter().enumerate() {
            let Some(idempotency) = &draft.idempotency else { continue };
            let (tenant, key) = (&draft.envelope.lane.tenant, &idempotency.key);
            let before = match self.keys.get(&(tenant.clone(), key.clone())) {
                Some(&(fingerprint, _)) => fingerprint,
                None => match store.key_use(tenant, key)? {
                    Some((KeyUse::Notification(_), fingerprint)) => fingerprint,
                    Some((KeyUse::Broadcast(_), _)) => return Err(StoreError::KeyReused { index }),
                    None => first_use(seen.entry((tenant, key)), idempotency, (index, now))?,
                },
            };
            if before != idempotency.fingerprint {
                return Err(StoreError::KeyReused { index });
            }
        }
        Ok(())
    }

    /// Gives the draft its place in a batch.
    fn place(&mut self, store: &mut impl Batches, draft: Draft, now: Timestamp) -> NotificationId {
        let Draft { envelope, recipient, content, idempotency, labels, trace } = draft;
        let item = BatchItem { recipient, content, labels, trace };
        let is_of_feed = idempotency.is_some_and(|idempotency| idempotency.is_of_feed());
        let fits = |batch: &BatchBuilder| batch.is_of_feed == is_of_feed && batch.fits(&item);
        // Most drafts follow others with their envelope: to compare it costs less than to hash it.
        let last = self.batches.get(self.last).filter(|batch| batch.envelope == envelope);
        let position = match last {
            Some(batch) if fits(batch) => self.last,
            _ => match self.open.get(&envelope) {
                Some(&open) if self.batches.get(open).is_some_and(fits) => open,
                _ => {
                    let position = self.batches.len();
                    let batch = BatchBuilder::new(store.next_batch(), envelope.clone(), now, true);
                    let batch = BatchBuilder { is_of_feed, ..batch };
                    self.open.insert(envelope, position);
                    self.batches.push(batch);
                    position
                }
            },
        };
        self.last = position;
        #[expect(clippy::indexing_slicing, reason = "the position was found or made just now")]
        let batch = &mut self.batches[position];
        let index = batch.push(item);
        // By the batch's time, which may be that of another caller: it is the one in the row, and an id that has another is not
        // found.
        NotificationId::new(batch.accepted_at, store.store_id(), batch.id, index)
    }
}

// === impl OpenedBroadcast ===

impl OpenedBroadcast {
    /// The envelope of the recipients in `group`.
    pub(crate) fn envelope_of(&self, group: &RecipientGroup) -> Envelope {
        let mut envelope = self.envelope.clone();
        envelope.lane.destination = Arc::clone(&group.destination);
        envelope
    }
}

// === impl BatchBuilder ===

impl BatchBuilder {
    /// A batch without items. Without contents, its items are all sent their broadcast's.
    pub(crate) fn new(
        id: BatchId,
        envelope: Envelope,
        accepted_at: Timestamp,
        has_contents: bool,
    ) -> Self {
        let (items, bytes, listed) = (Vec::new(), 0, HashSet::new());
        Self {
            id,
            envelope,
            accepted_at,
            items,
            labels: BatchLabels::default(),
            traces: ItemTraces::NONE,
            is_of_feed: false,
            bytes,
            has_contents,
            is_shared: true,
            listed,
        }
    }

    /// The content of all, when they have one in common that is not their broadcast's.
    pub(crate) fn shared_content(&self) -> Option<&Content> {
        let (_, first) = self.items.first()?;
        (self.is_shared && self.has_contents).then_some(first)
    }

    /// The items as a row keeps them.
    pub(crate) fn encoded_items(&self) -> Vec<u8> {
        let items = self.items.iter().map(|(recipient, content)| (recipient, content));
        let own = if self.is_shared {
            ItemContent::Nothing
        } else if self.listed.is_empty() {
            ItemContent::Content
        } else {
            ItemContent::Fallback
        };
        encode_items(items, own, self.bytes + 2)
    }

    /// True if one more item stays within the bounds of a batch.
    pub(crate) fn fits(&self, item: &BatchItem) -> bool {
        let (bytes, _) = self.with(&item.recipient, &item.content);
        let bytes = bytes + self.labels.bytes_with(&item.labels);
        let bytes = bytes + self.traces.stored_bytes_with(item.trace);
        // A single item fits whatever its size: the bounds of a request are below those of a batch (`limits`).
        self.items.is_empty()
            || (self.items.len() < limits::BATCH_ITEMS && bytes <= limits::BATCH_BYTES)
    }

    /// Adds one, and says where it stands.
    pub(crate) fn push(&mut self, item: BatchItem) -> u16 {
        let BatchItem { recipient, content, labels, trace } = item;
        let index = u16::try_from(self.items.len()).unwrap_or(u16::MAX);
        (self.bytes, self.is_shared) = self.with(&recipient, &content);
        // With the first fallback all contents move to a table, those of the items before it as well.
        if content.fallback.is_some() && self.listed.is_empty() {
            self.listed =
                self.items.iter().flat_map(|(_, content)| addresses_of(content)).collect();
        }
        if content.fallback.is_some() || !self.listed.is_empty() {
            // An address stands for its content only while that is alive, and the items hold it from here on.
            self.listed.extend(addresses_of(&content));
        }
        self.items.push((recipient, content));
        self.labels.push(index, labels);
        self.traces.push(index, trace);
        index
    }

    /// The bytes of all items, and whether they share their content, with one more.
    fn with(&self, recipient: &ByteString, content: &Content) -> (usize, bool) {
        let content_bytes = content.bytes_stored();
        let grown = self.bytes + recipient.len() + PREFIX_BYTES;
        if content.fallback.is_some() || !self.listed.is_empty() {
            // The content that all items before had in common was not counted yet.
            let common = self.items.first().filter(|_| self.is_shared);
            let common = common.map_or(0, |(_, first)| first.bytes_stored());
            return (grown + common + self.bytes_with_fallbacks(content), false);
        }
        match self.items.first() {
            // While all share one content it stands beside the items, once, and is not counted.
            None => (grown, true),
            Some((_, first)) if self.is_shared && is_same(first, content) => (grown, true),
            Some((_, first)) if self.is_shared => {
                // Shared no longer: each item before has a copy of its own now.
                let first_bytes = first.bytes_stored();
                (grown + first_bytes * self.items.len() + content_bytes, false)
            }
            Some(_) => (grown + content_bytes, false),
        }
    }

    /// Bytes of addresses, and of contents that are not listed yet.
    fn bytes_with_fallbacks(&self, content: &Content) -> usize {
        let own = [(&content.payload, &content.options)].into_iter();
        let next = content.fallback.iter().flat_map(|fallback| &fallback.next);
        let addresses = next.clone().map(|next| next.address_bytes() + 2 * PREFIX_BYTES);
        let contents = own.chain(next.map(|next| (&next.payload, &next.options)));
        let new = contents
            .filter(|(payload, options)| !self.listed.contains(&content_address(payload, options)));
        addresses.sum::<usize>()
            + new.map(|(payload, options)| payload.len() + options.len()).sum::<usize>()
    }
}

/// Packs a group of a broadcast into batches with this `envelope`, all of them with the `common` labels.
pub(crate) fn pack_group(
    group: &RecipientGroup,
    (envelope, common): (&Envelope, &Option<Arc<CommonLabels>>),
    accepted_at: Timestamp,
    mut next_batch: impl FnMut() -> BatchId,
) -> Vec<BatchBuilder> {
    let mut batches: Vec<BatchBuilder> = Vec::new();
    for item in group.items(common.clone()) {
        if batches.last().is_none_or(|last| !last.fits(&item)) {
            let (id, has_contents) = (next_batch(), group.has_contents());
            batches.push(BatchBuilder::new(id, envelope.clone(), accepted_at, has_contents));
        }
        if let Some(last) = batches.last_mut() {
            last.push(item);
        }
    }
    batches
}

/// The fingerprint of the first draft of a list that has a key, which is the one at `index` unless there is an earlier one.
pub(crate) fn first_use<K>(
    seen: Entry<'_, K, [u8; 32]>,
    idempotency: &Idempotency,
    (index, now): (usize, Timestamp),
) -> Result<[u8; 32], StoreError> {
    match (seen, idempotency.passed) {
        (Entry::Vacant(_), Some(bound)) => Err(StoreError::BoundPassed { index, bound, now }),
        (seen, _) => Ok(*seen.or_insert(idempotency.fingerprint)),
    }
}

/// Refuses a broadcast that is too late for a first use of its key, which was not used before.
pub(crate) fn check_bound(
    idempotency: Option<&Idempotency>,
    now: Timestamp,
) -> Result<(), StoreError> {
    match idempotency.and_then(|idempotency| idempotency.passed) {
        Some(bound) => Err(StoreError::BoundPassed { index: 0, bound, now }),
        None => Ok(()),
    }
}

/// The answer to opening a broadcast under a key that was used before.
pub(crate) fn used_before(
    (known, fingerprint): (KeyUse, [u8; 32]),
    idempotency: &Idempotency,
) -> Result<BroadcastOpened, StoreError> {
    match known {
        KeyUse::Broadcast(id) if fingerprint == idempotency.fingerprint => {
            Ok(BroadcastOpened::Replayed(id))
        }
        KeyUse::Broadcast(_) | KeyUse::Notification(_) => Err(StoreError::KeyReused { index: 0 }),
    }
}

/// Addresses of a content and those of its fallbacks.
fn addresses_of(content: &Content) -> impl Iterator<Item = ContentAddress> {
    let next = content.fallback.iter().flat_map(|fallback| &fallback.next);
    let next = next.map(|next| content_address(&next.payload, &next.options));
    [content_address(&content.payload, &content.options)].into_iter().chain(next)
}

/// Equal, and found so at once when they are the same bytes in memory.
fn is_same(one: &Content, other: &Content) -> bool {
    // Also where they are empty, as those of a broadcast are: to compare no bytes at an address that is none takes some processors
    // a tenth of a microsecond.
    let same_place = one.payload.as_ptr_range() == other.payload.as_ptr_range()
        && one.options.as_ptr_range() == other.options.as_ptr_range()
        && one.fallback == other.fallback;
    same_place || one == other
}

#[cfg(test)]
mod tests {
    use notification::{Labels, TraceContext};

    use super::*;
    use crate::conformance::{Shape, at};

    #[test]
    fn traces_count_towards_the_bytes_of_a_batch() {
        let mut batch =
            BatchBuilder::new(BatchId(1), Shape::default().draft("1").envelope, at(0), true);
        let item = |bytes: usize, trace| {
            let content = Content { payload: vec![b'1'; bytes].into(), ..Content::default() };
            BatchItem { recipient: "1".into(), content, labels: Labels::default(), trace }
        };
        batch.push(item(1, None));
        // The second one makes contents of their own of both.
        let (without, _) = batch.with(&"1".into(), &item(2, None).content);
        let rest = limits::BATCH_BYTES - without + 2;
        assert!(batch.fits(&item(rest, None)) && !batch.fits(&item(rest + 1, None)));
        let trace = TraceContext::from_bytes(&[1; 24]);
        assert!(batch.fits(&item(rest - 26, trace)) && !batch.fits(&item(rest - 25, trace)));
    }
}
