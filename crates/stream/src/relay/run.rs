//! The loop: begins what may begin, and settles what has ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use flow::{Clock, LogThrottle};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::held::HeldCount;
use super::options::{RelayCounts, RelayEnd, RelayError, RelayGuarantee, RelayOptions};
use super::waiting::{HeldMessage, RelayItem, WaitingItems};
use super::window::{PutPass, PutWindow, pause};
use crate::dead_letter::letter_record;
use crate::record_map::RecordMap;
use crate::{PutError, Record, Source, StreamError, StreamMessage, StreamReceipt, Target};

/// A source, a target, and what lies between.
#[derive(Debug)]
pub struct StreamRelay {
    /// Where messages come from.
    pub source: Arc<dyn Source>,
    /// Where records go.
    pub target: Arc<dyn Target>,
    /// Where what is refused goes; without it the relay ends with the first that is.
    pub dead_letters: Option<Arc<dyn Target>>,
    /// The map from messages to records.
    pub map: Arc<dyn RecordMap>,
    /// Options.
    pub options: RelayOptions,
    /// Messages so far, for others to read.
    pub counts: Arc<RelayCounts>,
    /// The time.
    pub clock: Clock,
    /// Jitter of pauses.
    pub random: fastrand::Rng,
}

/// A relay that runs.
#[derive(Debug)]
pub(super) struct RelayRun {
    pub(super) relay: StreamRelay,
    pub(super) held: HeldCount,
    pub(super) waiting: WaitingItems,
    pub(super) window: PutWindow,
    /// Each is to be acknowledged; the record is there if it is to be put after that.
    pub(super) to_acknowledge: Vec<(HeldMessage, Option<Record>)>,
    /// Messages that are to go to the dead letters, each with the reason.
    pub(super) refused: VecDeque<(HeldMessage, String)>,
    /// All calls that are under way.
    pub(super) calls: JoinSet<EndedCall>,
    pub(super) fetching: Option<AbortHandle>,
    pub(super) acknowledging: usize,
    pub(super) burying: CallPause,
    /// Of fetches.
    pub(super) source: CallPause,
    /// Since when the source says that something must be changed.
    pub(super) refused_since: Option<Instant>,
    pub(super) is_reached: bool,
    pub(super) started: Instant,
    /// Since when the source is asked and gives nothing.
    pub(super) vain_since: Option<Instant>,
    pub(super) end: Option<Result<RelayEnd, RelayError>>,
    pub(super) log: [LogThrottle; 4],
}

/// A call to the source, the target or the dead letters that has ended.
#[derive(Debug)]
pub(super) enum EndedCall {
    Fetched(Result<Vec<StreamMessage>, StreamError>),
    Put(Vec<HeldMessage>, Vec<Record>, Vec<Result<(), PutError>>, PutPass),
    Acknowledged(Vec<(HeldMessage, Option<Record>)>, Vec<Result<(), StreamError>>),
    Buried(Vec<(HeldMessage, String)>, Vec<Result<(), PutError>>),
    GivenBack(Vec<HeldMessage>),
}

/// The kinds of trouble that are told, each with a throttle of its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum RelayTrouble {
    Source,
    Target,
    Letters,
    Acknowledgements,
}

/// Calls one at a time, and fewer of them while they fail.
#[derive(Debug, Default)]
pub(super) struct CallPause {
    is_under_way: bool,
    failures: u16,
    until: Option<Instant>,
}

/// The longest wait of a fetch.
const FETCH_WAIT: Duration = Duration::from_secs(10);
/// Calls of acknowledgements under way at a time. Where order counts before the put (at most once) it is one.
const ACKNOWLEDGEMENTS: usize = 8;
/// Messages that are enough for another call beside one that is under way, and the most of one.
const ACKNOWLEDGE_BESIDE: usize = 80;
const ACKNOWLEDGE_MOST: usize = 5_000;
/// A look at what may begin, at least.
const LOOK_EVERY: Duration = Duration::from_mins(1);
// === impl StreamRelay ===

impl StreamRelay {
    /// Relays until `stopping` turns true, or as the options say. What is being put then is waited for and acknowledged, the rest is given
    /// back, and all connections are closed.
    ///
    /// # Errors
    /// When a message or the source is refused. What was not taken was given back.
    pub async fn run(self, stopping: watch::Receiver<bool>) -> Result<RelayEnd, RelayError> {
        let now = self.clock.monotonic();
        let mut run = RelayRun {
            held: HeldCount::new(self.options.buffer),
            waiting: WaitingItems::new(self.target.keeps_order()),
            window: PutWindow::new(self.target.limits().records),
            to_acknowledge: Vec::new(),
            refused: VecDeque::new(),
            calls: JoinSet::new(),
            fetching: None,
            acknowledging: 0,
            burying: CallPause::default(),
            source: CallPause::default(),
            refused_since: None,
            is_reached: false,
            started: now,
            vain_since: None,
            end: None,
            log: [const { LogThrottle::new(Duration::from_secs(10)) }; 4],
            relay: self,
        };
        let ended = run.until_end(stopping).await;
        let StreamRelay { source, target, dead_letters, .. } = run.relay;
        // An acknowledgement that failed may be saved with the next one.
        source.acknowledge(&[]).await;
        source.close().await;
        target.close().await;
        if let Some(dead_letters) = dead_letters {
            dead_letters.close().await;
        }
        ended
    }
}

// === impl RelayRun ===

impl RelayRun {
    async fn until_end(
        &mut self,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<RelayEnd, RelayError> {
        loop {
            let now = self.relay.clock.monotonic();
            self.acknowledge();
            self.bury(now);
            self.put(now);
            self.fetch(now);
            if self.is_empty(now) {
                self.end_with(Ok(RelayEnd::Empty));
            }
            if self.is_over() {
                return self.end.take().unwrap_or(Ok(RelayEnd::Stopped));
            }
            let wake_at = self.wake_at(now);
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping), if self.end.is_none() => {
                    self.end_with(Ok(RelayEnd::Stopped));
                }
                Some(ended) = self.calls.join_next() => self.settle(ended),
                () = sleep_until(wake_at) => {}
            }
        }
    }

    fn fetch(&mut self, now: Instant) {
        let room = self.held.room();
        if self.fetching.is_some() || self.end.is_some() || room == 0 || !self.source.may_begin(now)
        {
            return;
        }
        let until_empty = self.relay.options.until_empty.unwrap_or(FETCH_WAIT);
        let wait = until_empty.clamp(Duration::from_secs(1), FETCH_WAIT);
        self.vain_since.get_or_insert(now);
        let source = Arc::clone(&self.relay.source);
        let fetching =
            self.calls.spawn(async move { EndedCall::Fetched(source.fetch(room, wait).await) });
        self.fetching = Some(fetching);
    }

    fn put(&mut self, now: Instant) {
        let mut limits = self.relay.target.limits();
        loop {
            limits.records = self.window.room(self.waiting.len(), now);
            let batch = match limits.records {
                0 => return,
                _some => self.waiting.take(limits, now),
            };
            if batch.is_empty() {
                return;
            }
            let pass = self.window.begin(batch.len());
            let (held, records): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|item| (item.held, item.record)).unzip();
            let repeated = held.iter().filter(|held| held.failures > 0).count();
            RelayCounts::add(&self.relay.counts.repeated, repeated);
            let target = Arc::clone(&self.relay.target);
            self.calls.spawn(async move {
                let answers = target.put(&records).await;
                EndedCall::Put(held, records, answers, pass)
            });
        }
    }

    fn acknowledge(&mut self) {
        let most = if self.is_at_most_once() { 1 } else { ACKNOWLEDGEMENTS };
        while !self.to_acknowledge.is_empty()
            && self.acknowledging < most
            && (self.acknowledging == 0 || self.to_acknowledge.len() >= ACKNOWLEDGE_BESIDE)
        {
            let count = self.to_acknowledge.len().min(ACKNOWLEDGE_MOST);
            let messages: Vec<_> = self.to_acknowledge.drain(..count).collect();
            let receipts = receipts(messages.iter().map(|(held, _)| held));
            let source = Arc::clone(&self.relay.source);
            self.acknowledging += 1;
            self.calls.spawn(async move {
                let answers = source.acknowledge(&receipts).await;
                EndedCall::Acknowledged(messages, answers)
            });
        }
    }

    fn bury(&mut self, now: Instant) {
        if self.refused.is_empty() || !self.burying.may_begin(now) {
            return;
        }
        let Some(target) = self.relay.dead_letters.clone() else { return };
        let limits = target.limits();
        let record = |(held, reason): &(HeldMessage, String)| {
            letter_record(None, &held.message, reason, limits)
        };
        let mut records: Vec<Record> =
            self.refused.iter().take(limits.records).map(record).collect();
        // One of a long reason may not fit: it goes alone, and is refused there.
        records.truncate(limits.fitting(&records).max(1));
        let letters: Vec<_> = self.refused.drain(..records.len()).collect();
        self.burying.is_under_way = true;
        self.calls.spawn(async move {
            let answers = target.put(&records).await;
            EndedCall::Buried(letters, answers)
        });
    }

    /// Gives messages back that were not acknowledged; those that were are lost.
    pub(super) fn give_back(&mut self, held: Vec<HeldMessage>) {
        let (lost, back): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|held| held.is_acknowledged);
        for held in lost {
            tracing::error!(id = held.message.id, "a message that was acknowledged is lost");
            RelayCounts::add(&self.relay.counts.lost, 1);
            self.done_with(&held);
        }
        if back.is_empty() {
            return;
        }
        let (source, receipts) = (Arc::clone(&self.relay.source), receipts(back.iter()));
        self.calls.spawn(async move {
            source.give_back(&receipts).await;
            EndedCall::GivenBack(back)
        });
    }

    /// Ends the relay: nothing more is fetched, and what is not under way is given back, unless it was acknowledged. The first failure
    /// is what is told.
    pub(super) fn end_with(&mut self, end: Result<RelayEnd, RelayError>) {
        if self.end.is_none() || (end.is_err() && matches!(self.end, Some(Ok(_)))) {
            self.end = Some(end);
        }
        if let Some(fetching) = &self.fetching {
            fetching.abort();
        }
        let waiting = self.waiting.drain();
        for item in self.back_at_end(waiting) {
            self.waiting.push(item);
        }
        let (acknowledged, refused): (Vec<_>, Vec<_>) =
            self.refused.drain(..).partition(|(held, _)| held.is_acknowledged);
        self.refused = acknowledged.into();
        let (first, last): (Vec<_>, Vec<_>) = std::mem::take(&mut self.to_acknowledge)
            .into_iter()
            .partition(|(_, record)| record.is_some());
        self.to_acknowledge = last;
        let back = refused.into_iter().map(|(held, _)| held);
        self.give_back(back.chain(first.into_iter().map(|(held, _)| held)).collect());
    }

    /// Gives back what was not acknowledged; the rest is still to be put.
    pub(super) fn back_at_end(&mut self, items: Vec<RelayItem>) -> Vec<RelayItem> {
        let (keep, back): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| item.held.is_acknowledged);
        self.give_back(back.into_iter().map(|item| item.held).collect());
        keep
    }

    fn is_over(&self) -> bool {
        let is_idle = self.calls.is_empty() && self.waiting.len() == 0;
        self.end.is_some() && is_idle && self.to_acknowledge.is_empty() && self.refused.is_empty()
    }

    /// True if the source gave nothing for the time that was asked for, and nothing is in hand.
    fn is_empty(&self, now: Instant) -> bool {
        let ends_at = self.vain_since.zip(self.relay.options.until_empty);
        self.end.is_none()
            && self.held.messages() == 0
            && ends_at.is_some_and(|(since, until_empty)| now >= since + until_empty)
    }

    /// When something may begin that waits for its time.
    fn wake_at(&self, now: Instant) -> Instant {
        let until_empty = self.vain_since.zip(self.relay.options.until_empty);
        let until_empty = until_empty.map(|(since, until_empty)| since + until_empty);
        let times = [
            self.window.paused_until(),
            self.waiting.next_retry(),
            self.source.until,
            self.burying.until,
            until_empty,
        ];
        let next = times.into_iter().flatten().filter(|at| *at > now).min();
        next.unwrap_or(now + LOOK_EVERY)
    }

    pub(super) fn is_at_most_once(&self) -> bool {
        self.relay.options.guarantee == RelayGuarantee::AtMostOnce
    }
}

// === impl CallPause ===

impl CallPause {
    fn may_begin(&self, now: Instant) -> bool {
        !self.is_under_way && self.until.is_none_or(|until| until <= now)
    }

    pub(super) fn succeed(&mut self) {
        *self = Self::default();
    }

    pub(super) fn fail(&mut self, now: Instant, random: &mut fastrand::Rng) {
        let failures = self.failures.saturating_add(1);
        *self = Self {
            is_under_way: false,
            failures,
            until: Some(now + pause(failures, None, random)),
        };
    }
}

fn receipts<'a>(held: impl Iterator<Item = &'a HeldMessage>) -> Vec<StreamReceipt> {
    held.map(|held| held.message.receipt).collect()
}
