//! Retention: everything that is due, in one step.

use std::collections::BTreeSet;

use async_trait::async_trait;
use notification::{BatchId, ByteString, Name, State, Timestamp};

use super::Memory;
use super::books::Books;
use crate::{KeyUse, Prune, PruneStep, RetainedPart, Retention, StoreError};

#[async_trait]
impl Prune for Memory {
    async fn prune(&self, retention: &Retention, now: Timestamp) -> Result<PruneStep, StoreError> {
        Ok(self.change(|books| books.prune(retention, now)))
    }
}

impl Books {
    pub(super) fn prune(&mut self, retention: &Retention, now: Timestamp) -> PruneStep {
        let mut step = PruneStep::default();
        let batches: Vec<BatchId> = self.batches.keys().copied().collect();
        for batch in batches {
            let count = self.batch(batch).entries.len() as u64;
            for (removed, part) in (1..).zip(RetainedPart::ALL) {
                let is_over = self.over_at(batch, part, retention).is_some_and(|at| at <= now);
                let Some(stored) = self.batches.get_mut(&batch).filter(|it| it.removed < removed)
                else {
                    continue;
                };
                if !is_over {
                    continue;
                }
                stored.removed = removed;
                match part {
                    RetainedPart::Content => step.removed.contents += count,
                    RetainedPart::Recipient => step.removed.recipients += count,
                    RetainedPart::Outcome => {
                        step.removed.outcomes += count;
                        self.remove_batch(batch);
                    }
                }
            }
        }
        step.removed.idempotency_keys = self.prune_keys(retention, now);
        if let Some(lifetime) = retention.suppression_events {
            let before = self.events.len();
            let last = self.events.last().map(|event| event.position);
            self.events.retain(|it| it.at.plus(lifetime) > now || Some(it.position) == last);
            step.removed.suppression_events = (before - self.events.len()) as u64;
        }
        step.removed.acts = self.prune_acts(retention, now);
        step
    }

    /// The time at which `part` of the last member of a batch is over; `None` if one is pending, or kept for ever.
    fn over_at(
        &self,
        batch: BatchId,
        part: RetainedPart,
        retention: &Retention,
    ) -> Option<Timestamp> {
        let stored = self.batches.get(&batch)?;
        let of_tenant = retention.of(&stored.envelope.lane.tenant);
        let mut over_at = Timestamp::from_millis(0);
        for entry in &stored.entries {
            if !entry.state.is_terminal() {
                return None;
            }
            for end in entry.attempts.iter().filter(|it| it.state.is_terminal()) {
                over_at = over_at.max(end.at.plus(of_tenant.lifetimes(end.state).of(part)?));
            }
        }
        Some(over_at)
    }

    fn remove_batch(&mut self, batch: BatchId) {
        let Some(stored) = self.batches.remove(&batch) else { return };
        let count = |ended: &mut std::collections::BTreeMap<State, u64>| {
            for entry in &stored.entries {
                *ended.entry(entry.state).or_default() += 1;
            }
        };
        count(self.tombstones.entry(stored.envelope.lane.tenant.clone()).or_default());
        for page in &mut self.log {
            page.retain(|entry| entry.id.batch() != batch);
        }
        if let Some(id) = stored.envelope.broadcast {
            count(self.broadcast_tombstones.entry(id).or_default());
            if !self.batches.values().any(|it| it.envelope.broadcast == Some(id)) {
                self.broadcasts.remove(&id);
                self.broadcast_tombstones.remove(&id);
            }
        }
    }

    fn prune_keys(&mut self, retention: &Retention, now: Timestamp) -> u64 {
        let Some(lifetime) = retention.idempotency_keys else { return 0 };
        let has_content =
            |batch: &BatchId| self.batches.get(batch).is_some_and(|it| it.removed == 0);
        let is_over = |used: &KeyUse| match used {
            KeyUse::Notification(id) => {
                id.accepted_at().plus(lifetime) <= now && !has_content(&id.batch())
            }
            KeyUse::Broadcast(id) => {
                let of_this =
                    |(_, it): &(&BatchId, &super::books::Batch)| it.envelope.broadcast == Some(*id);
                let sealed_at = self.broadcasts.get(id).and_then(|it| it.sealed_at);
                sealed_at.is_none_or(|at| at.plus(lifetime) <= now)
                    && !self.batches.iter().filter(of_this).any(|(batch, _)| has_content(batch))
            }
        };
        let over: BTreeSet<(Name, ByteString)> = self
            .keys
            .iter()
            .filter(|(_, (used, _))| is_over(used))
            .map(|(key, _)| key.clone())
            .collect();
        self.keys.retain(|key, _| !over.contains(key));
        over.len() as u64
    }
}
