//! The state of a member of a consumer group: what waits to be fetched, what is in hand, and how far each partition is.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use krafka::consumer::{
    Consumer, ConsumerRebalanceListener, ConsumerRecord, OffsetAndMetadata, TopicPartition,
};
use krafka::error::{ErrorCode, KrafkaError};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::client::explain;
use super::offsets::OffsetLog;
use super::settings::KafkaSettings;
use crate::{StreamError, StreamMessage, StreamReceipt};

/// Decides about messages in hand of partitions that go to another member.
pub trait Departure: Send + Sync + fmt::Debug {
    /// The partitions of these messages leave. Gives those that are done and do not have to come again. The rest comes again, to
    /// the next member; none of their receipts is of any effect from now on.
    fn leaving(&self, receipts: &[StreamReceipt]) -> Vec<StreamReceipt>;
}

/// The state that the source, its task and the group's changes share.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) settings: KafkaSettings,
    departure: Option<Arc<dyn Departure>>,
    state: Mutex<MemberState>,
    /// Something can be fetched, or there is trouble.
    pub(super) arrived: Notify,
    /// A caller waits, or the source is closed.
    pub(super) asked: Notify,
    /// Held while positions are committed: each commit sees what the one before has done.
    committing: tokio::sync::Mutex<()>,
    consumer: ConsumerSlot,
}

/// The consumer of the present connection. It holds the member in turn, so it is taken out in the end.
#[derive(Default)]
struct ConsumerSlot(Mutex<Option<Arc<Consumer>>>);

#[derive(Debug, Default)]
struct MemberState {
    partitions: BTreeMap<i32, OffsetLog>,
    /// Taken from the broker, to be fetched next.
    waiting: VecDeque<TakenMessage>,
    in_hand: BTreeMap<u64, TakenMessage>,
    last_receipt: u64,
    /// Calls that wait for messages.
    callers: usize,
    trouble: Option<StreamError>,
    /// Times that messages were lost to another member without a commit.
    losses: u64,
    /// True if partitions left this member, and none were assigned since.
    awaits_partitions: bool,
    closed: bool,
}

#[derive(Debug, Clone)]
struct TakenMessage {
    partition: i32,
    offset: i64,
    key: Option<Bytes>,
    body: Option<Bytes>,
}

/// Counts as a caller that waits, until it is dropped.
#[derive(Debug)]
pub(super) struct WaitingCaller<'a>(&'a Member);

/// Follows the changes of the group.
#[derive(Debug)]
pub(super) struct GroupChanges(pub(super) Arc<Member>);

/// Time for the last commit of a partition that goes to another member, who waits for it.
const LAST_COMMIT: Duration = Duration::from_secs(2);

// === impl Member ===

impl Member {
    pub(super) fn new(settings: KafkaSettings, departure: Option<Arc<dyn Departure>>) -> Self {
        Self {
            settings,
            departure,
            state: Mutex::default(),
            arrived: Notify::new(),
            asked: Notify::new(),
            committing: tokio::sync::Mutex::default(),
            consumer: ConsumerSlot::default(),
        }
    }

    /// Sets the consumer that commits go by from now on, and gives the one before.
    pub(super) fn replace_consumer(
        &self,
        consumer: Option<Arc<Consumer>>,
    ) -> Option<Arc<Consumer>> {
        std::mem::replace(&mut *self.consumer.lock(), consumer)
    }

    /// The consumer of the present connection.
    pub(super) fn consumer(&self) -> Option<Arc<Consumer>> {
        self.consumer.lock().clone()
    }

    /// Takes what the broker gave.
    pub(super) fn take(&self, records: Vec<ConsumerRecord>) {
        // What the broker gave are parts of its answer, of up to 2 MiB: one message in hand would keep all of that.
        let own = |part: Option<Bytes>| part.map(|part| Bytes::copy_from_slice(&part));
        let mut state = self.state();
        state.trouble = None;
        for record in records {
            let (partition, offset) = (record.partition, record.offset);
            state.partitions.entry(partition).or_default().take(offset);
            let (key, body) = (own(record.key), own(record.value));
            state.waiting.push_back(TakenMessage { partition, offset, key, body });
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Notes that nothing can be read now.
    pub(super) fn complain(&self, trouble: StreamError) {
        self.state().trouble = Some(trouble);
        self.arrived.notify_waiters();
    }

    /// Counts a caller, for as long as the result lives.
    pub(super) fn caller(&self) -> WaitingCaller<'_> {
        self.state().callers += 1;
        WaitingCaller(self)
    }

    /// True if a caller waits and nothing is here for it.
    pub(super) fn wants_more(&self) -> bool {
        let state = self.state();
        state.callers > 0 && state.waiting.is_empty()
    }

    /// Up to `messages` that wait; `None` while there is none and no trouble.
    pub(super) fn give(&self, messages: usize) -> Option<Result<Vec<StreamMessage>, StreamError>> {
        let mut state = self.state();
        if state.closed {
            return Some(Err(StreamError::Unavailable("the source is closed".to_owned())));
        }
        if state.waiting.is_empty() {
            return state.trouble.take().map(Err);
        }
        let given = state.waiting.len().min(messages);
        let taken: Vec<TakenMessage> = state.waiting.drain(..given).collect();
        let message = |taken: TakenMessage| {
            state.last_receipt += 1;
            let receipt = StreamReceipt(state.last_receipt);
            let (topic, partition, offset) = (&self.settings.topic, taken.partition, taken.offset);
            let id = format!("{topic}-{partition}-{offset}");
            let (key, body) = (taken.key.clone(), taken.body.clone());
            state.in_hand.insert(receipt.0, taken);
            StreamMessage { id, key, body, receipt }
        };
        Some(Ok(taken.into_iter().map(message).collect()))
    }

    /// Acknowledges, and commits what became due by it.
    pub(super) async fn acknowledge(
        &self,
        receipts: &[StreamReceipt],
    ) -> Vec<Result<(), StreamError>> {
        let (known, losses) = {
            let mut state = self.state();
            let known: Vec<bool> = receipts.iter().map(|receipt| state.settle(*receipt)).collect();
            (known, state.losses)
        };
        let committed = self.commit().await;
        let mut state = self.state();
        let was_lost = state.losses != losses;
        let answer = |(receipt, was_known): (&StreamReceipt, bool)| {
            if !was_known {
                return Err(gone());
            }
            committed.clone()?;
            // What left with its position committed is no longer here either.
            let is_here = state.in_hand.remove(&receipt.0).is_some();
            if is_here || !was_lost { Ok(()) } else { Err(gone()) }
        };
        receipts.iter().zip(known).map(answer).collect()
    }

    /// Acknowledges what is still here, and commits all that is due.
    pub(super) async fn settle(&self, receipts: &[StreamReceipt]) -> Result<(), StreamError> {
        {
            let mut state = self.state();
            for receipt in receipts {
                let _was_known = state.settle(*receipt);
                state.in_hand.remove(&receipt.0);
            }
        }
        self.commit().await
    }

    /// Puts messages back, to be fetched again before all others.
    pub(super) fn give_back(&self, receipts: &[StreamReceipt]) {
        let mut state = self.state();
        let mut back: Vec<TakenMessage> =
            receipts.iter().filter_map(|receipt| state.in_hand.remove(&receipt.0)).collect();
        back.sort_by_key(|taken| (taken.partition, taken.offset));
        for taken in back.into_iter().rev() {
            // One that was acknowledged, and whose commit failed, is open again.
            if let Some(log) = state.partitions.get_mut(&taken.partition) {
                log.take(taken.offset);
            }
            state.waiting.push_front(taken);
        }
        drop(state);
        self.arrived.notify_waiters();
    }

    /// True if partitions left this member, and none were assigned since.
    pub(super) fn awaits_partitions(&self) -> bool {
        self.state().awaits_partitions
    }

    /// Gives nothing from now on.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_waiters();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Forgets everything: it comes again.
    pub(super) fn forget_all(&self) {
        let partitions: Vec<i32> = self.state().partitions.keys().copied().collect();
        self.depart(&partitions);
        self.forget(&partitions, true);
        self.state().awaits_partitions = false;
    }

    /// Commits the positions that are due.
    async fn commit(&self) -> Result<(), StreamError> {
        let _committing = self.committing.lock().await;
        let due = self.state().due(|_partition| true);
        self.commit_positions(due).await
    }

    async fn commit_positions(&self, due: Vec<(i32, i64)>) -> Result<(), StreamError> {
        if due.is_empty() {
            return Ok(());
        }
        let Some(consumer) = self.consumer() else {
            return Err(StreamError::Unavailable("the source is not connected".to_owned()));
        };
        let offsets = due.iter().map(|(partition, offset)| {
            let partition = TopicPartition::new(self.settings.topic.clone(), *partition);
            (partition, OffsetAndMetadata::new(*offset))
        });
        let offsets: Vec<_> = offsets.collect();
        let mut committed = consumer.commit_offsets(offsets.clone()).await;
        if matches!(committed, Err(KrafkaError::Broker { code: ErrorCode::IllegalGeneration, .. }))
        {
            // It waited behind a join, and the group has another generation since. In the one that follows its own, no partition is
            // with another member before this one has given it up.
            committed = consumer.commit_offsets(offsets).await;
        }
        committed.map_err(|error| explain(&self.settings, &error))?;
        let mut state = self.state();
        for (partition, offset) in due {
            if let Some(log) = state.partitions.get_mut(&partition) {
                log.commit(offset);
            }
        }
        Ok(())
    }

    /// Asks what is done among the messages in hand of partitions that leave, and acknowledges it. Nothing more of them is given.
    fn depart(&self, partitions: &[i32]) {
        let leaves = |taken: &TakenMessage| partitions.contains(&taken.partition);
        let in_hand: Vec<StreamReceipt> = {
            let mut state = self.state();
            // At once with the look at what is in hand: what were given after it would be with both members.
            state.waiting.retain(|taken| !leaves(taken));
            let leaving = state.in_hand.iter().filter(|(_receipt, taken)| leaves(taken));
            leaving.map(|(receipt, _taken)| StreamReceipt(*receipt)).collect()
        };
        let Some(departure) = &self.departure else { return };
        let done = departure.leaving(&in_hand);
        let mut state = self.state();
        for receipt in done {
            let _was_known = state.settle(receipt);
        }
    }

    /// Forgets partitions that left this member, lost to another without a commit or not.
    fn forget(&self, partitions: &[i32], lost: bool) {
        let mut state = self.state();
        state.awaits_partitions = true;
        let stays = |taken: &TakenMessage| !partitions.contains(&taken.partition);
        state.waiting.retain(stays);
        state.in_hand.retain(|_receipt, taken| stays(taken));
        state.partitions.retain(|partition, _log| !partitions.contains(partition));
        state.losses += u64::from(lost);
    }

    fn state(&self) -> MutexGuard<'_, MemberState> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ConsumerSlot ===

impl ConsumerSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Consumer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConsumerSlot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ConsumerSlot").field(&self.lock().is_some()).finish()
    }
}

// === impl MemberState ===

impl MemberState {
    /// Marks a message in hand as acknowledged; false if there is none.
    fn settle(&mut self, receipt: StreamReceipt) -> bool {
        let Some(taken) = self.in_hand.get(&receipt.0) else { return false };
        if let Some(log) = self.partitions.get_mut(&taken.partition) {
            log.acknowledge(taken.offset);
        }
        true
    }

    fn due(&self, of: impl Fn(i32) -> bool) -> Vec<(i32, i64)> {
        let logs = self.partitions.iter().filter(|(partition, _log)| of(**partition));
        logs.filter_map(|(partition, log)| Some((*partition, log.due()?))).collect()
    }
}

// === impl WaitingCaller ===

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.state().callers -= 1;
    }
}

// === impl GroupChanges ===

impl ConsumerRebalanceListener for GroupChanges {
    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) {
        let count = partitions.len();
        tracing::debug!(topic = self.0.settings.topic, count, "partitions were assigned");
        if count > 0 {
            self.0.state().awaits_partitions = false;
        }
    }

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        let leaving: Vec<i32> = partitions.iter().map(TopicPartition::partition).collect();
        let member = &self.0;
        // A commit that is under way would otherwise put a position back that the next member has raised.
        let _committing = member.committing.lock().await;
        member.depart(&leaving);
        let due = member.state().due(|partition| leaving.contains(&partition));
        let committed = timeout(LAST_COMMIT, member.commit_positions(due)).await;
        let is_committed = matches!(committed, Ok(Ok(())));
        if !is_committed {
            let topic = &member.settings.topic;
            tracing::warn!(
                topic,
                "partitions left without a commit: their last messages come again"
            );
        }
        member.forget(&leaving, !is_committed);
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        let lost: Vec<i32> = partitions.iter().map(TopicPartition::partition).collect();
        tracing::debug!(topic = self.0.settings.topic, count = lost.len(), "partitions were lost");
        self.0.depart(&lost);
        self.0.forget(&lost, true);
    }
}

fn gone() -> StreamError {
    StreamError::Unavailable(
        "its partition went to another member: it comes again there".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group takes all partitions of a member in good order, too, when its leader sees none of the topic after a broker came back.
    #[tokio::test]
    async fn a_member_that_gave_its_partitions_up_waits_for_others_as_one_that_lost_them() {
        let settings = "kafka://localhost:9092/topic?group=g".parse().unwrap();
        let member = Arc::new(Member::new(settings, None));
        let changes = GroupChanges(Arc::clone(&member));
        let partitions = [TopicPartition::new("topic", 0)];
        changes.on_partitions_assigned(&partitions).await;
        assert!(!member.awaits_partitions());
        changes.on_partitions_revoked(&partitions).await;
        assert!(member.awaits_partitions());
        changes.on_partitions_assigned(&[]).await;
        assert!(member.awaits_partitions(), "there are none");
        changes.on_partitions_assigned(&partitions).await;
        assert!(!member.awaits_partitions());
        changes.on_partitions_lost(&partitions).await;
        assert!(member.awaits_partitions());
    }
}
