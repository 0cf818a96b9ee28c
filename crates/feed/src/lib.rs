//! Feeds: hand events to an application, as notifications on a webhook channel. Events are changes of the suppression list, or
//! outcomes of deliveries ([`FeedSource`]).
//!
//! Notifications are submitted one after the other: the next when the application has accepted the last, so events arrive in
//! order and none is skipped. The range of events of the next notification is fixed in the store before it is submitted, and its
//! idempotency key names that range. A process that continues after a crash, or runs the same feed at the same time, therefore
//! submits each notification once.

mod ahead;
mod dead_letters;
mod event;
mod progress;
mod shape;
mod source;

use std::sync::Arc;
use std::time::Duration;

use flow::LogThrottle;
use notification::{ByteString, Idempotency, Name, NotificationId, State, Timestamp};
use pipeline::Intake;
use pipeline::ingest::Submission;
use store::{
    Admission, Attempted, EVENT_ROWS, ErrorKind, EventPosition, FeedCursor, History, KeyUse,
    Operations, ReadStore, StoreError,
};
use tokio::sync::watch;
use tokio::time::sleep;

use ahead::{EventsAhead, RangeEvents};
use event::FeedEvent;

pub use dead_letters::DeadLetters;
pub use event::FeedSource;
pub use progress::{FeedPlan, FeedProgress};
pub use shape::{MessageShape, RecordCarrier};
pub use source::{SourceCounts, SourceReader, SourceTrouble};

/// Hands the events of a source on.
#[derive(Debug)]
pub struct Feed {
    /// Name of the feed in the store, under which its cursor is kept.
    pub name: Name,
    /// The events that it hands on.
    pub source: FeedSource,
    /// Store from which events and cursor are read.
    pub reads: Arc<dyn ReadStore>,
    /// Operations by which the cursor is moved.
    pub operations: Arc<dyn Operations>,
    /// Counter that is raised with each change of the store.
    pub changes: watch::Receiver<u64>,
    /// True if other processes change the store too; their notices may be lost, so the feed also looks at intervals.
    pub is_shared: bool,
    /// Intake that accepts the feed's notifications.
    pub intake: Arc<Intake>,
    /// Tenant of the feed's notifications.
    pub tenant: Name,
    /// Channel of the feed's notifications.
    pub channel: Name,
    /// Recipient of the feed's notifications.
    pub recipient: ByteString,
}

/// A feed that runs.
#[derive(Debug)]
struct FeedRun {
    feed: Feed,
    under_way: Option<NotificationUnderWay>,
    /// The position up to which no event follows the cursor, and the rows of the log that were passed to learn that.
    passed: Option<PassedOver>,
    /// Events that were read and not handed on.
    ahead: Option<EventsAhead>,
    /// Limit on log lines about a standstill.
    log_throttle: LogThrottle,
    /// True from a log line about a standstill until the application accepts again.
    is_stall_logged: bool,
}

/// Rows of the log behind a cursor that have no events for the feed.
#[derive(Debug, Clone, Copy)]
struct PassedOver {
    cursor: FeedCursor,
    until: EventPosition,
    rows: usize,
}

/// The notification that is being handed on.
#[derive(Debug, Clone, Copy)]
struct NotificationUnderWay {
    /// Cursor under which the notification was submitted.
    cursor: FeedCursor,
    until: EventPosition,
    id: NotificationId,
    /// Time of the first of its events, or of the restart after which it was found.
    since: Timestamp,
    /// Times that its state was read.
    looks: u32,
}

/// Time until the next step.
#[derive(Debug, Clone, Copy)]
enum StepWait {
    Not,
    UntilChanged,
    For(Duration),
    /// Until so long after something changed, or for this long at most.
    UntilChangedOrFor {
        after: Duration,
        most: Duration,
    },
}

/// Age of the first event at which a notification is formed: later ones up to then go with it.
const GATHER: Duration = Duration::from_secs(1);
/// Time between two looks without a notice from a store that several processes change.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(15);
/// Time between two tries to submit a notification that is refused, or while the store is away.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(15);
/// Time to the first look at the notification under way; doubled with each look, so that a long one costs few.
const FIRST_LOOK: Duration = Duration::from_millis(25);
/// From a change of the store to the first look at the notification under way; doubled three times at most, so that a busy store is
/// not read without a pause.
const LOOK_AFTER: Duration = Duration::from_millis(1);
const LOOK_AFTER_DOUBLINGS: u32 = 3;
const LOOK_DOUBLINGS: u32 = 6;
/// The longest time between two looks at a notification whose attempt is far off: a cancellation is logged within it.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Time to the next notification for an application that refused one; doubled with each refusal, up to four minutes.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);
const REFUSAL_DOUBLINGS: u32 = 8;
/// An event that waits longer than this is worth a line in the log.
const STALLED_AFTER: Duration = Duration::from_mins(1);
/// Time between two log lines about a standstill.
const WARN_EVERY: Duration = Duration::from_mins(5);

// === impl Feed ===

impl Feed {
    /// Runs until `stopping` turns true.
    ///
    /// # Errors
    /// When the store failed, or cannot be read.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        let mut run = FeedRun {
            feed: self,
            under_way: None,
            passed: None,
            ahead: None,
            log_throttle: LogThrottle::new(WARN_EVERY),
            is_stall_logged: false,
        };
        while !*stopping.borrow() {
            // A change from here on wakes the wait below, also if it happens during the step.
            run.feed.changes.mark_unchanged();
            let pause = match run.step().await {
                Ok(pause) => pause,
                Err(error) if error.kind() == ErrorKind::Fatal => return Err(error),
                Err(error) => {
                    // The store itself logs that it is away.
                    if error.kind() != ErrorKind::Unavailable && run.is_warning_due() {
                        let feed = &run.feed.name;
                        tracing::error!(%feed, %error, "the feed waits");
                    }
                    StepWait::For(TRY_AGAIN_AFTER)
                }
            };
            tokio::select! {
                () = run.feed.wait(pause) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }
        Ok(())
    }

    /// Finds where a feed begins that was never moved, and keeps that: what comes later is told.
    async fn begin(&self, cursor: FeedCursor) -> Result<StepWait, StoreError> {
        let end = self.reads.events_end().await?;
        self.move_on(cursor, FeedCursor { position: end, ..cursor }).await
    }

    /// Moves the feed, unless another process was first; either way it goes on from where it is then.
    async fn move_on(&self, from: FeedCursor, to: FeedCursor) -> Result<StepWait, StoreError> {
        self.operations.move_feed(self.name.clone(), from, to).await?;
        Ok(StepWait::Not)
    }

    /// The events after `position`, until `until`, or the end of as many as one notification takes; `None` when they cannot be read
    /// that far.
    async fn events(
        &self,
        position: EventPosition,
        until: EventPosition,
    ) -> Result<Option<RangeEvents>, StoreError> {
        let (most, now) = (self.source.events_max(), self.intake.clock().monotonic());
        let mut ahead = EventsAhead::new(position, position, most, now);
        while ahead.next < until && !ahead.is_full() {
            let mut page = self.source.page(&*self.reads, ahead.next, ahead.room()).await?;
            // There are events up to `until`, for the cursor names it: another transaction hides them for now.
            if page.next == ahead.next {
                return Ok(None);
            }
            // The last page may reach beyond the fixed range: those events belong to the next notification.
            page.events.retain(|event| event.position <= until);
            ahead.add(page.events, page.next);
        }
        Ok(Some(ahead.into_range(until)))
    }

    async fn wait(&mut self, pause: StepWait) {
        let changed = async {
            if self.changes.changed().await.is_err() {
                // The store is closing, and so is everything else.
                std::future::pending::<()>().await;
            }
        };
        match pause {
            StepWait::Not => {}
            StepWait::For(span) => sleep(span).await,
            StepWait::UntilChangedOrFor { after, most } => {
                let looking = async {
                    changed.await;
                    sleep(after).await;
                };
                tokio::select! {
                    () = looking => {}
                    () = sleep(most) => {}
                }
            }
            StepWait::UntilChanged if self.is_shared => tokio::select! {
                () = changed => {}
                () = sleep(LOOK_AT_LEAST_EVERY) => {}
            },
            StepWait::UntilChanged => changed.await,
        }
    }
}

// === impl FeedRun ===

impl FeedRun {
    /// Performs the next step; returns the time to wait after it.
    async fn step(&mut self) -> Result<StepWait, StoreError> {
        let cursor = self.feed.reads.feed(self.feed.name.clone()).await?;
        if self.feed.source.is_unstarted(cursor.position) {
            return self.feed.begin(cursor).await;
        }
        let Some(until) = cursor.until else { return self.fix(cursor).await };
        // Another process may have moved the feed since: the notification under way here is then settled.
        let known = self.under_way.filter(|under_way| under_way.cursor == cursor);
        let Some(under_way) = known else {
            return self.begin_hand_on(cursor, until).await;
        };
        self.under_way = Some(NotificationUnderWay { looks: under_way.looks + 1, ..under_way });
        self.look_at(under_way).await
    }

    /// Submits the notification of the events from `cursor` to `until`, and looks at it if it was submitted before.
    async fn begin_hand_on(
        &mut self,
        cursor: FeedCursor,
        until: EventPosition,
    ) -> Result<StepWait, StoreError> {
        let events = match self.events_of(cursor.position, until).await? {
            Some(RangeEvents::All(events)) => events,
            Some(RangeEvents::UpTo(end)) => return self.shorten(cursor, until, end).await,
            None => return Ok(StepWait::For(TRY_AGAIN_AFTER)),
        };
        let Some((under_way, is_new)) = self.take_in(cursor, until, events).await? else {
            return Ok(StepWait::For(TRY_AGAIN_AFTER));
        };
        self.under_way = Some(under_way);
        if is_new {
            // Its acceptance is a change as well, which tells nothing of its end; an end that is missed here is seen a look later.
            self.feed.changes.mark_unchanged();
            return Ok(look_in(0));
        }
        self.look_at(under_way).await
    }

    /// Has the notification of the events after `cursor` end at `end`, before `until`: with the filter that the feed had when the range
    /// was fixed they fitted. One that was submitted then is followed as it is, or its events would be told twice.
    async fn shorten(
        &mut self,
        cursor: FeedCursor,
        until: EventPosition,
        end: EventPosition,
    ) -> Result<StepWait, StoreError> {
        let Feed { name, reads, tenant, intake, .. } = &self.feed;
        let key = key_of(name, cursor, until).key;
        let Some(KeyUse::Notification(id)) = reads.key_use(tenant.clone(), key).await? else {
            return self.feed.move_on(cursor, FeedCursor { until: Some(end), ..cursor }).await;
        };
        let since = intake.now();
        let under_way = NotificationUnderWay { cursor, until, id, since, looks: 0 };
        self.under_way = Some(under_way);
        self.look_at(under_way).await
    }

    /// Fixes the events of the next notification after `cursor`: as many as there are and fit into one.
    async fn fix(&mut self, cursor: FeedCursor) -> Result<StepWait, StoreError> {
        let passed = self.passed.take().filter(|passed| passed.cursor == cursor);
        let (from, rows) = passed.map_or((cursor.position, 0), |it| (it.until, it.rows));
        let Feed { source, reads, intake, .. } = &self.feed;
        let at = intake.clock().monotonic();
        let ahead = self.ahead.take().filter(|ahead| ahead.is_behind(cursor.position, at));
        let none = || EventsAhead::new(cursor.position, from, source.events_max(), at);
        let mut ahead = ahead.unwrap_or_else(none);
        let page = source.page(&**reads, ahead.next, ahead.room()).await?;
        ahead.add(page.events, page.next);
        let Some([first, last]) = ahead.ends() else {
            return self.pass_over(cursor, from, page.next, rows + page.rows).await;
        };
        let (now, until) = (intake.now(), last.position);
        // An event from the future comes of a clock that was set: it has no age.
        let age = if first.at > now { GATHER } else { now.since(first.at) };
        // A pause gathers nothing where more events wait than fit.
        if !ahead.is_full() && age < GATHER {
            return Ok(StepWait::For(GATHER.saturating_sub(age)));
        }
        self.ahead = Some(ahead);
        self.feed.move_on(cursor, FeedCursor { until: Some(until), ..cursor }).await
    }

    /// The last event of the notification behind `position`, if enough was read to know that it is full.
    fn full_behind(&self, position: EventPosition) -> Option<EventPosition> {
        let now = self.feed.intake.clock().monotonic();
        let ahead = self.ahead.as_ref().filter(|it| it.is_behind(position, now) && it.is_full())?;
        ahead.ends().map(|[_, last]| last.position)
    }

    /// Notes that nothing between `from` and `next` is for the feed. Kept in memory, so that a feed of a quiet tenant beside busy
    /// ones reads no row twice, and in the store once it is much, so that a restart does not read all of it again.
    async fn pass_over(
        &mut self,
        cursor: FeedCursor,
        from: EventPosition,
        next: EventPosition,
        rows: usize,
    ) -> Result<StepWait, StoreError> {
        if rows >= EVENT_ROWS {
            return self.feed.move_on(cursor, FeedCursor { position: next, ..cursor }).await;
        }
        self.passed = Some(PassedOver { cursor, until: next, rows });
        Ok(if next == from { StepWait::UntilChanged } else { StepWait::Not })
    }

    /// The events between two positions, the last included, as far as they fit into one notification; `None` if they cannot be read
    /// yet.
    async fn events_of(
        &mut self,
        position: EventPosition,
        until: EventPosition,
    ) -> Result<Option<RangeEvents>, StoreError> {
        let now = self.feed.intake.clock().monotonic();
        let ahead = self.ahead.as_mut().and_then(|ahead| ahead.take(position, until, now));
        if let Some(events) = ahead {
            return Ok(Some(RangeEvents::All(events)));
        }
        // Of no use any more.
        self.ahead = None;
        let events = self.feed.events(position, until).await?;
        // Another transaction may hide them for a moment. Either way no other notification need wait for it.
        if events.is_none() && self.is_warning_due() {
            let feed = &self.feed.name;
            tracing::error!(%feed, %position, %until, "the feed waits for events that cannot be read");
        }
        Ok(events)
    }

    /// Submits the notification of `events`, those from `cursor` to `until`, once, and tells whether this is the first time; `None` if
    /// the channel refuses it.
    async fn take_in(
        &mut self,
        cursor: FeedCursor,
        until: EventPosition,
        events: Vec<FeedEvent>,
    ) -> Result<Option<(NotificationUnderWay, bool)>, StoreError> {
        let position = cursor.position;
        let since = events.first().map_or(self.feed.intake.now(), |event| event.at);
        let Feed { name, source, intake, tenant, channel, recipient, .. } = &self.feed;
        let json = source.content(name, position, until, &events)?;
        let submission = Submission {
            channel: channel.as_str().into(),
            content: json.into(),
            ..Submission::default()
        };
        let now = intake.now();
        // Checked without a key: a key with a control character is refused, so that no caller has one like the feed's.
        let mut draft = match intake.check(tenant, &submission, recipient.clone(), now) {
            Ok(draft) => draft,
            // A reload may bring the channel back: the feed keeps its place until then.
            Err(fault) => {
                let (feed, channel) = (name.clone(), channel.clone());
                if self.is_warning_due() {
                    tracing::error!(%feed, %fault, %channel, "the feed cannot be sent: it waits");
                }
                return Ok(None);
            }
        };
        draft.idempotency = Some(key_of(name, cursor, until));
        let admissions = intake.accept_all(vec![draft]).await?;
        let under_way = |admission| {
            let (id, is_new) = match admission {
                Admission::Accepted(id) => (id, true),
                Admission::Replayed(id) => (id, false),
            };
            (NotificationUnderWay { cursor, until, id, since, looks: 0 }, is_new)
        };
        Ok(admissions.into_iter().next().map(under_way))
    }

    /// Moves the feed on if the application has accepted the notification, and submits it anew if it has ended otherwise.
    async fn look_at(&mut self, under_way: NotificationUnderWay) -> Result<StepWait, StoreError> {
        let NotificationUnderWay { cursor, until, id, since, looks } = under_way;
        let Some(history) = self.feed.reads.find(id).await? else {
            // Retention has removed it, and with it how it ended: at least once, it is handed on anew.
            tracing::warn!(%id, "a notification of a feed was removed before its end was seen: it is sent anew");
            return self
                .feed
                .move_on(cursor, FeedCursor { tries: cursor.tries + 1, ..cursor })
                .await;
        };
        let now = self.feed.intake.now();
        if history.state == State::Delivered {
            if std::mem::take(&mut self.is_stall_logged) {
                let feed = &self.feed.name;
                tracing::info!(%feed, "the application takes the feed again");
            }
            let done = FeedCursor { position: until, until: self.full_behind(until), tries: 0 };
            return self.feed.move_on(cursor, done).await;
        }
        let is_stalled = history.state.is_terminal() || now.since(since) >= STALLED_AFTER;
        if is_stalled && self.is_warning_due() {
            warn_of_stall(&self.feed.name, &history, now.since(since));
        }
        if !history.state.is_terminal() {
            let next = history.next_attempt_at.map_or(Duration::ZERO, |at| at.since(now));
            return Ok(match next {
                Duration::ZERO => look_in(looks + 1),
                next => StepWait::For(next.min(LONGEST_WAIT).max(FIRST_LOOK)),
            });
        }
        // The log says when it ended, so a restart does not begin the wait anew.
        let ended_at = history.attempts.last().map_or(since, |attempted| attempted.at);
        let wait = AFTER_REFUSAL * (1 << cursor.tries.min(REFUSAL_DOUBLINGS));
        let wait = ended_at.plus(wait).since(now);
        if !wait.is_zero() {
            return Ok(StepWait::For(wait));
        }
        // The tries are part of the key: with the same key the ended notification would be replayed.
        self.feed.move_on(cursor, FeedCursor { tries: cursor.tries + 1, ..cursor }).await
    }

    /// True if a line about a standstill may be logged now; the caller then logs it.
    fn is_warning_due(&mut self) -> bool {
        let is_due = self.log_throttle.admits(self.feed.intake.clock());
        self.is_stall_logged |= is_due;
        is_due
    }
}

/// The key of the notification of the events from `cursor` to `until`. It holds the positions alone: an application that moved gets
/// the same notification under another address.
fn key_of(feed: &Name, cursor: FeedCursor, until: EventPosition) -> Idempotency {
    let FeedCursor { position, tries, .. } = cursor;
    Idempotency::of_feed(&format!("{feed} {position} {until} {tries}"))
}

/// The wait before the look at a notification under way, after so many. Its end is a change of the store, so the next range need not
/// wait for the longest time.
fn look_in(looks: u32) -> StepWait {
    let after = LOOK_AFTER * (1 << looks.min(LOOK_AFTER_DOUBLINGS));
    StepWait::UntilChangedOrFor { after, most: FIRST_LOOK * (1 << looks.min(LOOK_DOUBLINGS)) }
}

/// Logs that the feed stands still, with advice; without the endpoint, which is a secret.
fn warn_of_stall(feed: &Name, History { id, state, attempts, .. }: &History, waiting: Duration) {
    let status = attempts.last().map_or(0, |&Attempted { status, .. }| status);
    let advice = if *state == State::Suppressed {
        "its endpoint is on the suppression list: lift it"
    } else if state.is_terminal() {
        "the application has not taken it, and gets it anew"
    } else {
        "the application does not take it, and is asked again"
    };
    let waiting_seconds = waiting.as_secs();
    tracing::warn!(%feed, %id, %state, status, waiting_seconds, "the feed stands still: {advice}; nothing is skipped");
}
