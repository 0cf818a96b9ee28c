//! The decision from reports to one settlement: each report is judged by the lifecycle, and equal outcomes form one group.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use notification::{
    Answer, Chunk, ChunkId, Disposition, Draft, Epoch, Event, OutcomeGroup, Report, Settlement,
    State, Timestamp, Verdict,
};

use super::RetryPolicy;

/// The decisions about one chunk that are written together.
#[derive(Debug)]
pub(super) struct Decision {
    chunk: Arc<Chunk>,
    policy: RetryPolicy,
    places: usize,
    latency: Option<Duration>,
    rate_per_minute: Option<NonZeroU32>,
    groups: Vec<OutcomeGroup>,
    /// The report that opened the group at the same position, and when that delivery expires, if it was not answered for good; equal
    /// ones join it.
    openers: Vec<(Report, Option<Timestamp>)>,
    /// Times of retries, by event and requested wait: equal outcomes are tried again together.
    retries: Vec<((Event, Option<Duration>), Timestamp)>,
}

// === impl Decision ===

impl Decision {
    pub(super) fn new(chunk: Arc<Chunk>, policy: RetryPolicy) -> Self {
        Self {
            chunk,
            policy,
            places: 0,
            latency: None,
            rate_per_minute: None,
            groups: Vec::new(),
            openers: Vec::new(),
            retries: Vec::new(),
        }
    }

    pub(super) fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// The groups, each with whether it is of attempts that sent nothing.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&OutcomeGroup, bool)> {
        let are_unsent = self.openers.iter().map(|(report, _)| match report {
            Report::Attempted(answer) => answer.is_unsent,
            Report::HandedBack { .. } | Report::Expired => false,
        });
        self.groups.iter().zip(are_unsent)
    }

    /// Attempts that may be under way to the lane's destination, how long its answers take, and the rate that is learned from them,
    /// as of the last reports.
    pub(super) fn set_board(
        &mut self,
        places: usize,
        latency: Option<Duration>,
        rate_per_minute: Option<NonZeroU32>,
    ) {
        (self.places, self.latency, self.rate_per_minute) = (places, latency, rate_per_minute);
    }

    /// Decides about one delivery. The wait until a retry is the same for all deliveries of a batch, after an attempt of the same number, with
    /// the same event and the same wait asked for by the provider, whatever its detail: it is drawn from `salt` and all of these.
    /// It is counted from the end of a [step](flow::Backoff::step), so those that fail within one step are one chunk again, also
    /// when they are settled apart, and other batches spread.
    pub(super) fn add(&mut self, index: u16, mut report: Report, now: Timestamp, salt: u64) {
        // The time since when a recipient is gone differs by recipient: it is kept apart, so that equal reports form one group.
        let gone_since = match &mut report {
            Report::Attempted(answer) => answer.gone_since.take(),
            Report::HandedBack { .. } | Report::Expired => None,
        };
        let gone_since = gone_since.map(|since| (index, since));
        let ends = if is_final(&report) { None } else { self.chunk.expires_at(index) };
        let opener = (report, ends);
        let known = self.openers.iter().position(|known| *known == opener);
        if let Some(group) = known.and_then(|position| self.groups.get_mut(position)) {
            group.indexes.push(index);
            group.gone_since.extend(gone_since);
            return;
        }
        let mut group = self.open(index, &opener.0, now, salt);
        group.gone_since.extend(gone_since);
        self.groups.push(group);
        self.openers.push(opener);
    }

    /// Adds the settlements to write: none when nothing was decided, and one for each chunk of the store that has a decision.
    pub(super) fn add_settlements(&self, at: Timestamp, settlements: &mut Vec<Settlement>) {
        if self.chunk.origins.is_empty() {
            if !self.groups.is_empty() {
                let mut settlement = self.settlement_of(self.chunk.claim_of(0), at);
                for group in &self.groups {
                    settlement.fallbacks.extend(self.fallbacks(group, &group.indexes, at));
                    settlement.groups.push(in_order(group.clone()));
                }
                settlements.push(settlement);
            }
            return;
        }
        let mut by_chunk = BTreeMap::<ChunkId, Settlement>::new();
        for group in &self.groups {
            let mut parts = BTreeMap::<ChunkId, OutcomeGroup>::new();
            for &index in &group.indexes {
                let Some(from) = self.chunk.origin(index) else { continue };
                let part = parts.entry(from.chunk).or_insert_with(|| like(group));
                part.indexes.push(from.index);
                part.gone_since.extend(group.gone_since.get(&index).map(|at| (from.index, *at)));
                let claim = (from.chunk, from.epoch);
                let settlement = by_chunk.entry(from.chunk);
                let settlement = settlement.or_insert_with(|| self.settlement_of(claim, at));
                settlement.fallbacks.extend(self.fallbacks(group, &[index], at));
            }
            for (chunk, part) in parts {
                if let Some(settlement) = by_chunk.get_mut(&chunk) {
                    settlement.groups.push(in_order(part));
                }
            }
        }
        settlements.extend(by_chunk.into_values());
    }

    /// A settlement of a claim, without any outcome.
    fn settlement_of(&self, (chunk, epoch): (ChunkId, Epoch), at: Timestamp) -> Settlement {
        Settlement {
            chunk,
            epoch,
            at,
            groups: Vec::new(),
            places: self.places,
            latency: self.latency,
            rate_per_minute: self.rate_per_minute,
            fallbacks: Vec::new(),
        }
    }

    /// The fallbacks of the deliveries at `indexes` of `group`, if they were refused: only a definite answer of the provider leads
    /// here.
    fn fallbacks<'a>(
        &'a self,
        group: &OutcomeGroup,
        indexes: &'a [u16],
        at: Timestamp,
    ) -> impl Iterator<Item = Draft> + 'a {
        let is_refused = group.disposition == Disposition::Ended(State::Refused);
        let indexes = if is_refused { indexes } else { &[] };
        indexes.iter().filter_map(move |&index| {
            let deliveries = &self.chunk.deliveries;
            // They are in ascending order of their indexes, as the store made them.
            let place = deliveries.binary_search_by_key(&index, |delivery| delivery.index).ok()?;
            self.chunk.draft_in_place_of(deliveries.get(place)?, at)
        })
    }

    fn open(&mut self, index: u16, report: &Report, now: Timestamp, salt: u64) -> OutcomeGroup {
        let group = |disposition, status, detail, suppress| OutcomeGroup {
            disposition,
            status,
            detail,
            suppress,
            gone_since: BTreeMap::new(),
            indexes: vec![index],
        };
        match report {
            Report::Expired => {
                group(self.end(Event::Expire), 0, "expired before it was sent".into(), false)
            }
            Report::HandedBack { after } => {
                let at = now.plus(*after);
                // Ended now: the claim that finds it due could do nothing else.
                if self.has_expired(index, at) {
                    let detail = "it could not be sent before it expired";
                    return group(self.end(Event::Expire), 0, detail.into(), false);
                }
                group(Disposition::HandedBack { at }, 0, Cow::Borrowed(""), false)
            }
            Report::Attempted(answer) => {
                let suppress = answer.verdict == Verdict::Refused { gone: true };
                let disposition = self.judge(index, answer, now, salt);
                let detail = if disposition == Disposition::TooLate {
                    too_late(&answer.detail)
                } else {
                    answer.detail.clone()
                };
                group(disposition, answer.status, detail, suppress)
            }
        }
    }

    fn judge(&mut self, index: u16, answer: &Answer, now: Timestamp, salt: u64) -> Disposition {
        let lost = answer.may_have_acted;
        match answer.verdict {
            Verdict::Accepted => self.end(Event::Accept),
            Verdict::Refused { .. } => self.end(Event::Refuse),
            // An answer to an attempt that may have been acted on is as good as none: at most once, there is no retry.
            Verdict::Deferred { after } if lost => {
                self.again(index, (Event::LoseAnswer, after), now, salt)
            }
            Verdict::Deferred { after } => self.again(index, (Event::Defer, after), now, salt),
            Verdict::Unknown => self.again(index, (Event::LoseAnswer, None), now, salt),
        }
    }

    /// Disposition of a delivery that may be tried again: a retry, if the lifecycle leads back to pending and an attempt is left.
    fn again(
        &mut self,
        index: u16,
        (event, asked): (Event, Option<Duration>),
        now: Timestamp,
        salt: u64,
    ) -> Disposition {
        if State::Begun.after(event, self.chunk.envelope.guarantee) != Some(State::Pending) {
            return self.end(event);
        }
        // The attempt that has just ended is counted.
        if self.chunk.attempt >= self.policy.attempts {
            return self.end(Event::Exhaust);
        }
        let known = self.retries.iter().find(|(cause, _)| *cause == (event, asked));
        let at = known.map_or_else(|| self.retry_at(event, asked, now, salt), |(_, at)| *at);
        if known.is_none() {
            self.retries.push(((event, asked), at));
        }
        if self.has_expired(index, at) { Disposition::TooLate } else { Disposition::Retry { at } }
    }

    /// Time of the next attempt at a delivery that failed at `now`.
    fn retry_at(
        &self,
        event: Event,
        asked: Option<Duration>,
        now: Timestamp,
        salt: u64,
    ) -> Timestamp {
        let Chunk { batch, attempt, .. } = *self.chunk;
        let mut hasher = DefaultHasher::new();
        (salt, batch, attempt, event, asked).hash(&mut hasher);
        let mut random = fastrand::Rng::with_seed(hasher.finish());
        let backoff = self.policy.backoff;
        let step = i64::try_from(backoff.step(attempt, asked).as_millis()).unwrap_or(1).max(1);
        let passed = now.millis().rem_euclid(step);
        let to_end = u64::try_from(step - passed).unwrap_or(0);
        // The end of the step is up to a fifth of the longest wait away, so the rest is drawn for the other four.
        let drawn = backoff.delay(attempt, asked, &mut random);
        let least = asked.unwrap_or_default();
        let drawn = least + drawn.saturating_sub(least) / 5 * 4;
        now.plus(Duration::from_millis(to_end)).plus(drawn)
    }

    /// True if the delivery at `index` has expired by `at`.
    fn has_expired(&self, index: u16, at: Timestamp) -> bool {
        // At that instant it is not to be sent any more.
        self.chunk.expires_at(index).is_some_and(|expires_at| expires_at <= at)
    }

    fn end(&self, event: Event) -> Disposition {
        let state = State::Begun.after(event, self.chunk.envelope.guarantee);
        debug_assert!(state.is_some_and(State::is_terminal), "{event} ends a begun delivery");
        // The table has a state for each of these. If it had none, dead is the end that an operator sees and can undo.
        Disposition::Ended(state.unwrap_or(State::Dead))
    }
}

/// True if the disposition of a report is the same whenever its delivery expires.
fn is_final(report: &Report) -> bool {
    match report {
        Report::Attempted(answer) => {
            matches!(answer.verdict, Verdict::Accepted | Verdict::Refused { .. })
        }
        Report::Expired => true,
        Report::HandedBack { .. } => false,
    }
}

/// A group like `group` without a delivery.
fn like(group: &OutcomeGroup) -> OutcomeGroup {
    let OutcomeGroup { disposition, status, suppress, ref detail, .. } = *group;
    let (gone_since, indexes) = (BTreeMap::new(), Vec::new());
    OutcomeGroup { disposition, status, detail: detail.clone(), suppress, gone_since, indexes }
}

/// Reports come in the order of answers; a settlement lists its indexes in ascending order.
fn in_order(mut group: OutcomeGroup) -> OutcomeGroup {
    group.indexes.sort_unstable();
    group
}

/// Detail of a deferral after which no attempt follows, with the reason.
fn too_late(detail: &str) -> Cow<'static, str> {
    let end = "the next attempt would come after it expired";
    if detail.is_empty() { end.into() } else { format!("{detail}; {end}").into() }
}
