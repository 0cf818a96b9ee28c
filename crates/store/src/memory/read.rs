//! Answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use notification::{
    Account, BatchId, BroadcastId, Labels, Lane, Name, NotificationId, State, Timestamp,
};

use super::Memory;
use super::books::{Books, Broadcast, MemoryChunk};
use crate::rows::due::{LANES_PER_PAGE, span_of};
use crate::rows::lane_list::{ChosenLanes, FoundLane, LANES_LOOKED_AT, LaneChooser};
use crate::rows::parked::Counted;
use crate::rows::paused::PUT_AWAY;
use crate::rows::progress::{BroadcastParts, PendingChunk};
use crate::{
    Audit, BroadcastFilter, BroadcastPage, BroadcastStatus, Filter, History, KeyUse, LaneList,
    LanePace, LaneStatus, ListOrder, ListedBroadcast, LogPage, LogPosition, Page, ParkedChannel,
    Patience, ReadStore, StoreError, TenantReads, WaitingCounts,
};

/// It answers at once: no question waits for another one.
impl TenantReads for Arc<Memory> {
    fn of_tenant(&self, _: &Name, _: Patience) -> Arc<dyn ReadStore> {
        Self::clone(self) as _
    }
}

impl Books {
    pub(super) fn find(&self, id: NotificationId) -> Option<History> {
        let (batch, index) = self.place(id)?;
        self.history(batch, index)
    }

    fn history(&self, batch: BatchId, index: u16) -> Option<History> {
        let stored = self.batches.get(&batch)?;
        let entry = stored.entries.get(usize::from(index))?;
        let chunk = self.chunk_with(batch, index).and_then(|chunk| self.chunks.get(&chunk));
        let due_at = chunk.filter(|_| entry.state == State::Pending).map(|it| it.due_at);
        let is_erased = entry.recipient.is_empty();
        let mut history = History {
            id: self.id(batch, index),
            envelope: stored.envelope.clone(),
            accepted_at: stored.accepted_at,
            recipient: (stored.removed < 2 && !is_erased).then(|| entry.recipient.clone()),
            content: (stored.removed < 1 && !is_erased).then(|| entry.content.clone()),
            labels: if stored.removed < 2 { entry.labels.clone() } else { Labels::default() },
            state: entry.state,
            next_attempt_at: due_at.filter(|at| *at < PUT_AWAY),
            attempts: entry.attempts.clone(),
            fallback_id: None,
        };
        if let Some(key) = history.fallback_key()
            && let Some((KeyUse::Notification(id), _)) =
                self.keys.get(&(stored.envelope.lane.tenant.clone(), key))
        {
            history.fallback_id = Some(*id);
        }
        Some(history)
    }

    pub(super) fn list(
        &self,
        filter: &Filter,
        after: Option<NotificationId>,
        items: usize,
    ) -> Page<History> {
        let after = after.map(|id| (id.batch(), id.index()));
        let accepted = self.batches.iter().filter(|(_, batch)| self.is_accepted(batch));
        let mut all: Vec<(BatchId, u16)> = accepted
            .flat_map(|(&number, batch)| {
                (0..=u16::MAX).take(batch.entries.len()).map(move |index| (number, index))
            })
            .collect();
        if filter.order == ListOrder::NewestFirst {
            all.reverse();
        }
        let is_behind = |place: &(BatchId, u16)| {
            after.is_none_or(|after| match filter.order {
                ListOrder::OldestFirst => *place > after,
                ListOrder::NewestFirst => *place < after,
            })
        };
        let matching = all
            .into_iter()
            .filter(is_behind)
            .filter_map(|(batch, index)| self.history(batch, index))
            .filter(|history| filter.matches(history));
        let items: Vec<History> = matching.take(items).collect();
        let next = items.last().map(|history| history.id);
        Page { items, next }
    }

    pub(super) fn broadcast(&self, id: BroadcastId) -> Option<BroadcastStatus> {
        let broadcast = self.broadcasts.get(&id)?;
        let (mut account, members) = (Account::default(), self.members_of(id)?);
        let mut parts = BroadcastParts::new(0);
        if let Some(gone) = self.broadcast_tombstones.get(&id) {
            add_counts(gone, &mut account);
        }
        for &(batch, index) in &members {
            account.accepted += 1;
            account.add(self.history(batch, index)?.state, 1);
            if let Some(piece) =
                self.chunk_with(batch, index).and_then(|chunk| self.chunks.get(&chunk))
            {
                let MemoryChunk { attempt, due_at, lease_until, .. } = *piece;
                let is_ready = lease_until.is_none();
                let chunk = PendingChunk { count: 1, attempt, due_at, is_ready };
                parts.add_chunk(self.lane_of(piece), chunk);
            }
        }
        for (batch, index) in members {
            let lane = &self.batch(batch).envelope.lane;
            for attempted in self.history(batch, index)?.attempts {
                parts.add_logged(&lane, &attempted, 1);
            }
        }
        let parts = parts.into_parts(&mut account);
        Some(BroadcastStatus {
            id,
            tenant: broadcast.draft.tenant.clone(),
            channel: broadcast.draft.channel.clone(),
            accepted_at: broadcast.sealed_at?,
            due_at: broadcast.draft.due_at,
            expires_at: broadcast.draft.expires_at,
            labels: broadcast.draft.labels.clone(),
            account,
            parts,
        })
    }

    pub(super) fn broadcasts(
        &self,
        filter: &BroadcastFilter,
        after: Option<BroadcastId>,
        items: usize,
    ) -> Result<BroadcastPage, StoreError> {
        let (before, end) = filter.numbers_behind(after);
        let listed = |(id, broadcast): (&BroadcastId, &Broadcast)| {
            let Broadcast { draft, sealed_at, recipients } = broadcast;
            let is_behind = before < id.0.cast_signed() && id.0.cast_signed() < end;
            let accepted_at =
                (*sealed_at).filter(|_| is_behind && draft.tenant == filter.tenant)?;
            Some(Ok(ListedBroadcast {
                id: *id,
                channel: draft.channel.clone(),
                priority: draft.priority,
                guarantee: draft.guarantee,
                accepted_at,
                due_at: draft.due_at,
                expires_at: draft.expires_at,
                accepted: *recipients,
                labels: draft.labels.clone(),
            }))
        };
        let mut rows: Vec<_> = self.broadcasts.iter().filter_map(listed).collect();
        if filter.order == ListOrder::NewestFirst {
            rows.reverse();
        }
        BroadcastPage::of(filter, items, rows)
    }

    pub(super) fn audit(&self) -> Audit {
        let mut chunks_of: BTreeMap<(BatchId, u16), u64> = BTreeMap::new();
        for piece in self.chunks.values() {
            for &index in &piece.members {
                *chunks_of.entry((piece.batch, index)).or_default() += 1;
            }
        }
        let mut problems = Vec::new();
        for (&number, batch) in self.batches.iter().filter(|(_, batch)| self.is_accepted(batch)) {
            for (index, entry) in (0..=u16::MAX).zip(&batch.entries) {
                let chunks = chunks_of.get(&(number, index)).copied().unwrap_or(0);
                if chunks != u64::from(!entry.state.is_terminal()) {
                    let id = self.id(number, index);
                    problems.push(format!("{id} is {} and in {chunks} chunks", entry.state));
                }
            }
        }
        Audit {
            account: self.account(),
            tenants: self.accounts(),
            unassigned: self.unassigned(),
            problem_count: problems.len() as u64,
            problems,
        }
    }

    pub(super) fn lanes(&self) -> LaneList {
        let (mut claimed, mut waiting) = (BTreeMap::<Lane, FoundLane>::new(), BTreeMap::new());
        // As `chunk_due`: an entry for each span and lane, with the earliest due time.
        let mut due = BTreeMap::new();
        for chunk in self.chunks.values() {
            let (lane, due_at) = (self.lane_of(chunk), chunk.due_at);
            if chunk.lease_until.is_some() {
                let claimed_of = self.claimed_items(lane) as u64;
                claimed.entry(lane.clone()).or_default().claimed = claimed_of;
            } else {
                earliest(&mut waiting, lane.clone(), due_at);
                earliest(&mut due, (span_of(due_at), lane.clone()), due_at);
            }
        }
        for (lane, found) in &mut claimed {
            found.next_due_at = waiting.get(lane).copied();
        }
        let mut chooser = LaneChooser::new(claimed);
        if !chooser.add_first(waiting.into_iter().take(LANES_LOOKED_AT).collect()) {
            let entry = |((_, lane), due_at)| (lane, due_at);
            chooser.add_due(due.into_iter().map(entry).take(LANES_PER_PAGE).collect());
        }
        let ChosenLanes { lanes, until } = chooser.choose();
        let status = |(lane, FoundLane { claimed, next_due_at })| {
            let evidence = self.evidence.get(&lane).copied().unwrap_or_default().into();
            LaneStatus { lane, claimed, next_due_at, evidence }
        };
        LaneList { lanes: lanes.into_iter().map(status).collect(), until }
    }

    pub(super) fn paces(&self) -> Vec<LanePace> {
        let pace = |(lane, answered, at): (&Lane, &[u32], _)| LanePace {
            lane: lane.clone(),
            answered: answered.to_vec(),
            at,
        };
        self.paces.known().map(pace).collect()
    }

    pub(super) fn parked(&self, offered: &BTreeSet<Name>) -> Vec<ParkedChannel> {
        let mut parked = BTreeMap::<Name, Counted>::new();
        for lane in self.chunks.values().map(|it| self.lane_of(it)).collect::<BTreeSet<&Lane>>() {
            let ready = self.chunks.values().filter(|it| it.lease_until.is_none());
            let waiting: Vec<_> = ready.filter(|it| self.lane_of(it) == lane).collect();
            let Some(due_at) = waiting.iter().map(|it| it.due_at).min() else { continue };
            let channel = parked.entry(lane.channel.clone()).or_default();
            channel.lanes += 1;
            channel.notifications += waiting.iter().map(|it| it.members.len() as u64).sum::<u64>();
            channel.next_due_at = Some(channel.next_due_at.map_or(due_at, |at| at.min(due_at)));
        }
        parked.retain(|channel, _| !offered.contains(channel));
        parked.into_iter().filter_map(|(channel, counted)| counted.of(channel)).collect()
    }

    pub(super) fn waiting_counts(&self, chunks_max: usize) -> WaitingCounts {
        let mut ready: Vec<_> =
            self.chunks.values().filter(|it| it.lease_until.is_none()).collect();
        ready.sort_by_key(|it| self.lane_of(it));
        let mut counts = WaitingCounts::default();
        for chunk in ready.iter().take(chunks_max) {
            let lane = self.lane_of(chunk);
            let key = (lane.channel.clone(), lane.priority);
            *counts.notifications.entry(key).or_default() += chunk.members.len() as u64;
        }
        counts.is_at_least = ready.len() >= chunks_max;
        counts
    }

    pub(super) fn log(&self, position: LogPosition, entries: usize) -> LogPage {
        let mut page = LogPage { entries: Vec::new(), next: position };
        let start = usize::try_from(position.0).unwrap_or(usize::MAX);
        for settled_together in self.log.iter().skip(start) {
            if page.entries.len() >= entries {
                break;
            }
            page.entries.extend_from_slice(settled_together);
            page.next.0 += 1;
        }
        page
    }
}

/// Notes that something of `key` is due at `due_at`.
fn earliest<Key: Ord>(due: &mut BTreeMap<Key, Timestamp>, key: Key, due_at: Timestamp) {
    let known = due.entry(key).or_insert(due_at);
    *known = due_at.min(*known);
}

fn add_counts(ended: &BTreeMap<State, u64>, account: &mut Account) {
    for (&state, &count) in ended {
        account.add(state, count);
        account.accepted += count;
    }
}
