//! The way in.

use std::collections::HashMap;
use std::sync::Arc;

use notification::{
    BatchId, BroadcastId, ByteString, Draft, Envelope, Idempotency, Lane, Name, Timestamp, limits,
};

use super::books::{Books, Broadcast};
use crate::ingest::BatchItem;
use crate::rows::packing::{check_bound, first_use, used_before};
use crate::{Admission, BroadcastDraft, BroadcastOpened, KeyUse, RecipientGroup, StoreError};

impl Books {
    pub(super) fn ingest(
        &mut self,
        drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Admission>, StoreError> {
        // Before anything is stored: all of a list is accepted, or nothing.
        self.check_keys(&drafts, now)?;
        let mut admissions = Vec::new();
        let mut stored = Vec::new();
        let mut filling: HashMap<(Envelope, bool), BatchId> = HashMap::new();
        for draft in drafts {
            let key = key_of(&draft);
            if let Some(key) = &key
                && let Some((KeyUse::Notification(id), _)) = self.keys.get(key)
            {
                admissions.push(Admission::Replayed(*id));
                continue;
            }
            let is_of_feed = draft.idempotency.as_ref().is_some_and(Idempotency::is_of_feed);
            let place = (draft.envelope.clone(), is_of_feed);
            let batch = match filling.get(&place) {
                Some(&batch) if self.batch(batch).entries.len() < limits::BATCH_ITEMS => batch,
                Some(_) | None => {
                    let batch = self.store(draft.envelope.clone(), now, []);
                    if let Some(stored) = self.batches.get_mut(&batch) {
                        stored.is_of_feed = is_of_feed;
                    }
                    filling.insert(place, batch);
                    stored.push(batch);
                    batch
                }
            };
            let Draft { recipient, content, idempotency, labels, trace, .. } = draft;
            let id = self.append(batch, BatchItem { recipient, content, labels, trace });
            if let (Some(key), Some(idempotency)) = (key, idempotency) {
                self.keys.insert(key, (KeyUse::Notification(id), idempotency.fingerprint));
            }
            admissions.push(Admission::Accepted(id));
        }
        for batch in stored {
            self.release(batch);
        }
        Ok(admissions)
    }

    /// Accepts what stands in for notifications that end in this transaction.
    #[expect(clippy::expect_used, reason = "only fallbacks have such keys")]
    pub(super) fn accept_fallbacks(&mut self, mut drafts: Vec<Draft>, now: Timestamp) {
        for draft in &mut drafts {
            if let Some(of) = draft.content.fallback.as_ref().and_then(|fallback| fallback.of) {
                draft.labels = self.entry(of.batch(), of.index()).labels.clone();
            }
        }

        self.ingest(drafts, now).expect("a fallback is accepted once");
    }

    /// Refuses a list in which any key was used for something else, or was not used although it is too late for a first use.
    fn check_keys(&self, drafts: &[Draft], now: Timestamp) -> Result<(), StoreError> {
        let mut seen = HashMap::new();
        for (index, draft) in drafts.iter().enumerate() {
            let (Some(key), Some(idempotency)) = (key_of(draft), &draft.idempotency) else {
                continue;
            };
            let before = match self.keys.get(&key) {
                Some((KeyUse::Notification(_), fingerprint)) => *fingerprint,
                Some((KeyUse::Broadcast(_), _)) => return Err(StoreError::KeyReused { index }),
                None => first_use(seen.entry(key), idempotency, (index, now))?,
            };
            if before != idempotency.fingerprint {
                return Err(StoreError::KeyReused { index });
            }
        }
        Ok(())
    }

    pub(super) fn open_broadcast(
        &mut self,
        draft: BroadcastDraft,
        now: Timestamp,
    ) -> Result<BroadcastOpened, StoreError> {
        if let (Some(key), Some(idempotency)) = (broadcast_key(&draft), &draft.idempotency)
            && let Some(used) = self.keys.get(&key)
        {
            return used_before(*used, idempotency);
        }
        check_bound(draft.idempotency.as_ref(), now)?;
        let id = BroadcastId(self.next_number());
        self.broadcasts.insert(id, Broadcast { draft, sealed_at: None, recipients: 0 });
        Ok(BroadcastOpened::Opened(id))
    }

    pub(super) fn add_recipients(
        &mut self,
        id: BroadcastId,
        groups: Vec<RecipientGroup>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let draft = self.open(id)?.draft.clone();
        for group in groups {
            let lane = Lane {
                channel: draft.channel.clone(),
                destination: Arc::clone(&group.destination),
                priority: draft.priority,
                tenant: draft.tenant.clone(),
            };
            let envelope = Envelope {
                lane,
                guarantee: draft.guarantee,
                due_at: draft.due_at,
                expires_at: draft.expires_at,
                broadcast: Some(id),
            };
            let has_contents = group.has_contents();
            let with_content = |item: BatchItem| {
                let content = if has_contents { item.content } else { draft.content.clone() };
                BatchItem { content, ..item }
            };
            let mut items = group.items(draft.labels.common.clone()).map(with_content).peekable();
            while items.peek().is_some() {
                let of_batch = items.by_ref().take(limits::BATCH_ITEMS);
                self.store(envelope.clone(), now, of_batch);
            }
        }
        Ok(())
    }

    pub(super) fn seal_broadcast(
        &mut self,
        id: BroadcastId,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let draft = self.open(id)?.draft.clone();
        if let (Some(key), Some(idempotency)) = (broadcast_key(&draft), &draft.idempotency) {
            if self.keys.contains_key(&key) {
                return Err(StoreError::KeyReused { index: 0 });
            }
            self.keys.insert(key, (KeyUse::Broadcast(id), idempotency.fingerprint));
        }
        let of_this = |(_, batch): &(_, &super::books::Batch)| batch.envelope.broadcast == Some(id);
        let batches: Vec<_> = self.batches.iter().filter(of_this).map(|(&id, _)| id).collect();
        let mut count = 0;
        for batch in batches {
            count += self.batch(batch).entries.len() as u64;
            self.release(batch);
        }
        if let Some(broadcast) = self.broadcasts.get_mut(&id) {
            (broadcast.sealed_at, broadcast.recipients) = (Some(now), count);
        }
        Ok(count)
    }

    pub(super) fn abandon_broadcast(&mut self, id: BroadcastId) -> Result<(), StoreError> {
        self.open(id)?;
        self.broadcasts.remove(&id);
        self.batches.retain(|_, batch| batch.envelope.broadcast != Some(id));
        Ok(())
    }

    fn open(&self, id: BroadcastId) -> Result<&Broadcast, StoreError> {
        let broadcast = self.broadcasts.get(&id).filter(|broadcast| broadcast.sealed_at.is_none());
        broadcast.ok_or(StoreError::NoOpenBroadcast(id))
    }
}

fn key_of(draft: &Draft) -> Option<(Name, ByteString)> {
    let idempotency = draft.idempotency.as_ref()?;
    Some((draft.envelope.lane.tenant.clone(), idempotency.key.clone()))
}

fn broadcast_key(draft: &BroadcastDraft) -> Option<(Name, ByteString)> {
    let idempotency = draft.idempotency.as_ref()?;
    Some((draft.tenant.clone(), idempotency.key.clone()))
}
