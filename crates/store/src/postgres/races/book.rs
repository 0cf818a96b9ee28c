//! The book of a schedule: the answers that callers got, and findings that contradict them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use notification::{
    BroadcastId, ByteString, Chunk, ChunkId, Disposition, Epoch, Guarantee, NotificationId,
    Settlement, State, Ticket,
};

use super::applications::Rows;
use super::feed::Feed;
use super::moves::GivenTime;
use super::taken_back::TakenBack;
use crate::{Admission, Lift, Mark, MarkAnswer, Settled, StoreError};

/// All answers of a schedule.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Milliseconds since the schedule began, as callers have it.
    pub(super) now: i64,
    /// Rises with every call and every answer.
    moment: u64,
    /// Notifications that were answered as accepted.
    pub(super) accepted: BTreeSet<NotificationId>,
    /// Notifications that were answered as ended, how, and when that was answered.
    pub(super) ended: BTreeMap<NotificationId, (State, u64)>,
    /// Marks that were refused for good, and the workers that requested them.
    pub(super) refused: Vec<(Mark, u64)>,
    /// Notifications that were too late to be cancelled.
    pub(super) too_late: BTreeSet<NotificationId>,
    /// The answers to each key: whose content, and whether it was the first.
    keys: BTreeMap<&'static str, Vec<(u8, bool, NotificationId)>>,
    pub(super) broadcasts: BTreeMap<BroadcastId, Broadcast>,
    /// Claims that were answered, by engine.
    pub(super) held: Vec<Held>,
    /// Tickets that were answered.
    pub(super) tickets: Vec<Ticket>,
    /// Every claim, and when it was answered.
    claims: HashMap<(ChunkId, Epoch), u64>,
    /// Attempt and claim under which an at-most-once delivery may be on the wire.
    pub(super) begun: HashMap<NotificationId, (u16, ChunkId, Epoch)>,
    /// Recipients that must not be claimed, and the answer since which.
    pub(super) listed: BTreeMap<ByteString, u64>,
    /// Calls under way that take a recipient off the list, and when the last one was made or answered.
    lifting: BTreeMap<ByteString, (usize, u64)>,
    /// Notifications that were said to be cancelled, one by one or as part of something.
    pub(super) cancelled: u64,
    /// True if a scope was cancelled: its answer does not name the notifications.
    pub(super) met_a_scope: bool,
    /// Number of times that a recipient was taken off the list.
    pub(super) lifted: BTreeMap<ByteString, usize>,
    pub(super) taken_back: BTreeMap<NotificationId, TakenBack>,
    /// Notifications that a call has resolved while answers about them were to come: of these the last end is not known.
    pub(super) unordered: BTreeSet<NotificationId>,
    /// Times that notifications were given.
    pub(super) given: BTreeMap<NotificationId, GivenTime>,
    /// Notifications that were said to be erased.
    pub(super) erased: BTreeSet<NotificationId>,
    /// Assignments of totals that were said to be applied, by the number of those before.
    pub(super) assigned: BTreeSet<i64>,
    pub(super) feed: Feed,
    pub(super) rows: Rows,
    /// Moment at which each engine was last declared dead.
    silenced: BTreeMap<usize, u64>,
    pub(super) findings: Vec<String>,
}

/// A broadcast.
#[derive(Debug, Default)]
pub(super) struct Broadcast {
    /// Engine that opened it.
    pub(super) engine: usize,
    /// The recipients added, as far as that was answered.
    pub(super) added: u64,
    /// The number of recipients answered when it was sealed.
    pub(super) sealed: Option<u64>,
    /// The count answered when it was cancelled.
    pub(super) cancelled: u64,
}

/// A chunk that an engine has claimed.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) engine: usize,
    pub(super) chunk: Chunk,
    /// The indexes that its holder has not settled.
    pub(super) rest: BTreeSet<u16>,
    /// True if the holder was declared dead since it claimed the chunk: another engine may have ended the claim.
    is_void: bool,
    /// Settlements under way.
    pub(super) settling: usize,
    /// Last index up to which its holder has requested to begin.
    marked: Option<u16>,
}

// === impl Book ===

impl Book {
    /// The moment at which a call is made.
    pub(super) fn call(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(super) fn find(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// The answer of a request that may be refused; a store that fails is a finding.
    pub(super) fn answer<T>(&mut self, answer: Result<T, StoreError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(StoreError::KeyReused { .. } | StoreError::NoOpenBroadcast(_)) => None,
            Err(error) => {
                self.find(format!("the store failed: {error}"));
                None
            }
        }
    }

    pub(super) fn ingested(
        &mut self,
        key: Option<(&'static str, u8)>,
        answer: Result<Vec<Admission>, StoreError>,
    ) {
        if let (Some((key, content)), Err(StoreError::KeyReused { .. })) = (key, &answer) {
            let same = |used: &&(u8, bool, NotificationId)| used.0 == content;
            if self.keys.get(key).is_some_and(|used| used.iter().any(|used| same(&used))) {
                self.find(format!("the key {key} was accepted for content {content}, and refused"));
            }
        }
        for admission in self.answer(answer).unwrap_or_default() {
            let (is_new, id) = match admission {
                Admission::Accepted(id) => (true, id),
                Admission::Replayed(id) => (false, id),
            };
            if is_new && !self.accepted.insert(id) {
                self.find(format!("{id} was accepted twice"));
            }
            if let Some((key, content)) = key {
                let used = self.keys.entry(key).or_default();
                used.push((content, is_new, id));
                let is_one = used.iter().all(|other| (other.0, other.2) == (content, id));
                if !is_one || used.iter().filter(|other| other.1).count() > 1 {
                    let finding = format!("one key, several notifications: {key}: {used:?}");
                    self.find(finding);
                }
            }
        }
    }

    /// A claim of `engine`, made at `called`, that was answered with `chunks`.
    pub(super) fn claimed(&mut self, engine: usize, called: u64, chunks: Vec<Chunk>) {
        for chunk in chunks {
            self.claim(chunk.id, chunk.epoch);
            for delivery in &chunk.deliveries {
                let id = chunk.notification_id(delivery.index);
                if let Some((state, said)) = self.ended.get(&id)
                    && *said < called
                    && !self.may_be_taken_back(id)
                {
                    let finding = format!("{id} is claimed, and was said to be {state:?} before");
                    self.findings.push(finding);
                }
                self.check_time(id, called, chunk.lease_until);
                if delivery.recipient.is_empty() {
                    self.find(format!("{id} is claimed, and was erased"));
                }
                let is_listed = self.listed.get(&delivery.recipient).is_some_and(|at| *at < called);
                if is_listed && chunk.envelope.lane.channel.as_str() == "channel" {
                    self.find(format!("{id} is claimed, and its recipient was listed before"));
                }
            }
            let rest = chunk.deliveries.iter().map(|delivery| delivery.index).collect();
            let is_void = self.silenced.get(&engine).is_some_and(|at| *at > called);
            self.held.push(Held { engine, chunk, rest, is_void, settling: 0, marked: None });
        }
    }

    fn claim(&mut self, chunk: ChunkId, epoch: Epoch) {
        let moment = self.call();
        if self.claims.insert((chunk, epoch), moment).is_some() {
            self.find(format!("claimed twice: {chunk:?} {epoch:?}"));
        }
    }

    /// Checks a request that was made at `called` under a claim and done: a later claim of the chunk must not have been answered
    /// before.
    fn check_current(&mut self, what: &str, (chunk, epoch): (ChunkId, Epoch), called: u64) {
        let is_later = |(claim, answered): (&(ChunkId, Epoch), &u64)| {
            claim.0 == chunk && claim.1 > epoch && *answered < called
        };
        if self.claims.iter().any(is_later) {
            self.find(format!("{what} under a claim that was over: {chunk:?} {epoch:?}"));
        }
    }

    /// True if `id` has not ended by any answer, and is not claimed.
    pub(super) fn may_be_ready(&self, id: NotificationId) -> bool {
        let holds = |held: &Held| {
            id.batch() == held.chunk.batch && held.rest.contains(&id.index()) && !held.is_void
        };
        !self.ended.contains_key(&id) && !self.held.iter().any(holds)
    }

    /// All notifications that callers can name: accepted one by one, or claimed.
    pub(super) fn seen(&self) -> Vec<NotificationId> {
        let claimed = self.held.iter().flat_map(|held| {
            held.chunk.deliveries.iter().map(|it| held.chunk.notification_id(it.index))
        });
        let seen: BTreeSet<_> = self.accepted.iter().copied().chain(claimed).collect();
        seen.into_iter().collect()
    }

    /// Claims that nothing can have ended, as far as something is left of them.
    pub(super) fn valid_claims(&self) -> Vec<(ChunkId, Epoch)> {
        let is_valid = |held: &&Held| held.is_valid(self.now) && !held.rest.is_empty();
        self.held.iter().filter(is_valid).map(|held| (held.chunk.id, held.chunk.epoch)).collect()
    }

    /// True if a later claim of the chunk was answered.
    pub(super) fn is_over(&self, chunk: ChunkId, epoch: Epoch) -> bool {
        self.claims.keys().any(|claim| claim.0 == chunk && claim.1 > epoch)
    }

    pub(super) fn issued(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            self.claim(ticket.chunk, ticket.epoch);
            self.tickets.push(ticket);
        }
    }

    /// Notes the request of a mark; its moment, and the last index that its holder had requested before.
    pub(super) fn begin(&mut self, mark: Mark) -> (u64, Option<u16>) {
        let before = self.held_mut(mark.chunk, mark.epoch).and_then(|held| {
            let before = held.marked;
            held.marked = before.max(Some(mark.through));
            before
        });
        (self.call(), before)
    }

    /// Notes the answer to a mark of `chunk`, as [`Book::begin`] noted its request.
    pub(super) fn begun(
        &mut self,
        chunk: &Chunk,
        mark: Mark,
        (called, before): (u64, Option<u16>),
        answer: MarkAnswer,
    ) {
        if answer != MarkAnswer::Granted {
            self.refused.extend((answer == MarkAnswer::Stale).then_some((mark, chunk.worker)));
            return self.begun_in_vain(mark, before);
        }
        self.check_current("begun", (mark.chunk, mark.epoch), called);
        if chunk.envelope.guarantee == Guarantee::AtLeastOnce {
            return;
        }
        // A holder does not send deliveries that it has settled before its request.
        let is_held = |held: &&Held| (held.chunk.id, held.chunk.epoch) == (mark.chunk, mark.epoch);
        let rest = self.held.iter().find(is_held).map(|held| held.rest.clone()).unwrap_or_default();
        let may_be_sent = |index: u16| index <= mark.through && rest.contains(&index);
        for delivery in chunk.deliveries.iter().filter(|it| may_be_sent(it.index)) {
            let id = chunk.notification_id(delivery.index);
            if let Some((state, said)) = self.ended.get(&id)
                && *said < called
                && !self.may_be_taken_back(id)
            {
                let finding = format!("{id} was begun, and was said to be {state:?} before");
                self.findings.push(finding);
            }
            let now = (chunk.attempt, chunk.id, chunk.epoch);
            if let Some(before) = self.begun.insert(id, now)
                && before.0 == now.0
                && before != now
                && !self.may_be_taken_back(id)
            {
                self.find(format!("{id} was begun twice in one attempt: {before:?} {now:?}"));
            }
        }
    }

    /// Notes the request of a settlement; its moment.
    pub(super) fn settle(&mut self, settlement: &Settlement) -> u64 {
        if let Some(held) = self.held_mut(settlement.chunk, settlement.epoch) {
            held.settling += 1;
        }
        self.call()
    }

    /// Notes the answer to a settlement of `chunk`, requested at `called`.
    pub(super) fn settled(
        &mut self,
        chunk: &Chunk,
        settlement: &Settlement,
        called: u64,
        answer: Settled,
    ) {
        let now = self.now;
        let indexes = || settlement.groups.iter().flat_map(|group| &group.indexes);
        if let Some(held) = self.held_mut(settlement.chunk, settlement.epoch) {
            held.settling = held.settling.saturating_sub(1);
            let is_rest = indexes().all(|index| held.rest.contains(index));
            if answer == Settled::Stale && is_rest && held.is_valid(now) {
                let finding = format!("{settlement:?} was refused, and its claim was valid");
                self.findings.push(finding);
            } else if answer != Settled::Stale {
                indexes().for_each(|index| _ = held.rest.remove(index));
            }
        }
        if answer == Settled::Stale {
            return;
        }
        self.check_current("settled", (settlement.chunk, settlement.epoch), called);
        for group in settlement.groups.iter().filter(|group| group.suppress) {
            for delivery in chunk.deliveries.iter().filter(|it| group.indexes.contains(&it.index)) {
                self.suppressed(delivery.recipient.clone(), called);
            }
        }
        for group in &settlement.groups {
            for index in &group.indexes {
                let id = chunk.notification_id(*index);
                match group.disposition {
                    Disposition::Ended(state) => self.end(id, state),
                    Disposition::TooLate => self.end(id, State::Expired),
                    Disposition::HandedBack { .. } => _ = self.begun.remove(&id),
                    Disposition::Retry { .. } => {}
                }
            }
        }
    }

    pub(super) fn end(&mut self, id: NotificationId, state: State) {
        let moment = self.call();
        if self.unordered.contains(&id) {
            return;
        }
        if let Some(taken_back) = self.taken_back.get_mut(&id)
            && state.may_be_requeued()
            && taken_back.behind > 0
        {
            taken_back.behind -= 1;
            return;
        }
        let Some((before, _)) = self.ended.insert(id, (state, moment)) else { return };
        match self.taken_back.get_mut(&id) {
            Some(taken_back)
                if before.may_be_requeued() && taken_back.ahead < taken_back.under_way =>
            {
                taken_back.ahead += 1;
            }
            _ => self.find(format!("{id} ended twice: {before:?} and {state:?}")),
        }
    }

    /// An engine is declared dead: the other ones may end its claims from now on.
    pub(super) fn silence(&mut self, engine: usize) {
        let moment = self.call();
        self.silenced.insert(engine, moment);
        self.held
            .iter_mut()
            .filter(|held| held.engine == engine)
            .for_each(|held| held.is_void = true);
    }

    fn held_mut(&mut self, chunk: ChunkId, epoch: Epoch) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| (held.chunk.id, held.chunk.epoch) == (chunk, epoch))
    }

    /// Notes a refused mark, whose holder had requested one up to `before`.
    fn begun_in_vain(&mut self, mark: Mark, before: Option<u16>) {
        let now = self.now;
        let is_higher = before.is_none_or(|before| before < mark.through);
        let Some(held) = self.held_mut(mark.chunk, mark.epoch) else { return };
        if is_higher && held.is_valid(now) && !held.rest.is_empty() {
            self.find(format!("{mark:?} was refused, and its claim was valid"));
        }
    }

    pub(super) fn sealed(&mut self, id: BroadcastId, answer: Result<u64, StoreError>) {
        let Some(size) = self.answer(answer) else { return };
        let broadcast = self.broadcasts.entry(id).or_default();
        let (before, added) = (broadcast.sealed.replace(size), broadcast.added);
        if let Some(before) = before {
            self.find(format!("{id} was sealed twice: {before} and {size}"));
        }
        if size < added {
            self.find(format!("{id} was sealed with {size}, and {added} were added"));
        }
    }

    /// Notes that a call made at `called` has listed `recipient`. A recipient that was lifted meanwhile may be listed, or not.
    pub(super) fn suppressed(&mut self, recipient: ByteString, called: u64) {
        let (under_way, last) = self.lifting.get(&recipient).copied().unwrap_or_default();
        if under_way == 0 && last < called {
            let moment = self.call();
            self.listed.entry(recipient).or_insert(moment);
        }
    }

    /// A recipient that is about to be lifted may be claimed from now on.
    pub(super) fn lifting(&mut self, lift: &Lift) {
        self.listed.remove(&lift.recipient);
        let moment = self.call();
        let lifting = self.lifting.entry(lift.recipient.clone()).or_default();
        *lifting = (lifting.0 + 1, moment);
    }

    pub(super) fn lifted(&mut self, lift: &Lift, was_listed: bool) {
        let moment = self.call();
        let lifting = self.lifting.entry(lift.recipient.clone()).or_default();
        *lifting = (lifting.0.saturating_sub(1), moment);
        *self.lifted.entry(lift.recipient.clone()).or_default() += usize::from(was_listed);
    }
}

// === impl Held ===

impl Held {
    /// True if only its holder can have ended the claim.
    fn is_valid(&self, now: i64) -> bool {
        !self.is_void && self.settling == 0 && self.chunk.lease_until.millis() > now
    }
}
