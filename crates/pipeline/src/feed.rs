//! Feed: tells an application which recipients are gone, as notifications on a channel of Belfry's own.
//!
//! What is handed on next is fixed in the store before it is taken in, and the key of the notification names it. So
//! whoever goes on after a crash, or does the same at the same time, takes in the same once.

use std::sync::Arc;
use std::time::Duration;

use notification::{ByteString, Idempotency, Name, limits};
use serde::Serialize;
use store::{Change, ErrorKind, EventPosition, FeedCursor, Ledger, StoreError, SuppressionEvent};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::Intake;
use crate::ingest::Terms;

/// Hands the changes of the suppression list on.
#[derive(Debug)]
pub struct Feed {
    /// Its name in the store, which remembers how far it is.
    pub name: Name,
    /// Where the changes are.
    pub ledger: Arc<dyn Ledger>,
    /// Bumped when the store changed.
    pub changes: watch::Receiver<u64>,
    /// Whether others change it too, whose word may be lost.
    pub is_shared: bool,
    /// What takes notifications in.
    pub intake: Arc<Intake>,
    /// Whose they are.
    pub tenant: Name,
    /// On which channel.
    pub channel: Name,
    /// For whom.
    pub to: ByteString,
}

/// A change, as applications read it.
#[derive(Debug, Serialize)]
pub struct EventLine {
    position: String,
    at: String,
    channel: String,
    to: String,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

/// What one notification tells.
#[derive(Debug, Serialize)]
struct Content {
    r#type: &'static str,
    until: String,
    events: Vec<EventLine>,
}

/// What came of handing something on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handed {
    /// It is taken in, and there may be more.
    Some,
    /// There is nothing new.
    Nothing,
    /// The channel does not take it.
    Refused,
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
enum Pause {
    UntilChanged,
    For(Duration),
}

/// Changes in one notification.
const EVENTS: usize = 500;
/// Bytes of changes in one notification: the rest is for what stands around them.
const CONTENT_BYTES: usize = limits::PAYLOAD_BYTES - 1_024;
/// Before an idempotency key that is ours. No caller's key has a control character.
const OUR_KEYS: char = '\u{1}';

/// From a change to the look at it: what changes meanwhile is one notification.
const GATHER: Duration = Duration::from_secs(1);
/// Between two looks without a word from a store that several processes change.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(15);
/// Between two tries to take in what is refused, or while the store is away.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(15);

// === impl Feed ===

impl Feed {
    /// Runs until `stopping` turns true.
    ///
    /// # Errors
    /// When the store failed, or cannot be read.
    pub async fn run(mut self, mut stopping: watch::Receiver<bool>) -> Result<(), StoreError> {
        while !*stopping.borrow() {
            // What changes from here on wakes the wait below, also if it changes during the look.
            self.changes.mark_unchanged();
            let pause = self.hand_on().await?;
            tokio::select! {
                () = self.wait(pause) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        }
        Ok(())
    }

    /// Hands on everything there is, and says how long to wait if the store says nothing.
    async fn hand_on(&self) -> Result<Pause, StoreError> {
        loop {
            match self.hand_on_some().await {
                Ok(Handed::Some) => {}
                Ok(Handed::Nothing) => return Ok(Pause::UntilChanged),
                Ok(Handed::Refused) => return Ok(Pause::For(TRY_AGAIN_AFTER)),
                // The store says itself that it is away.
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    return Ok(Pause::For(TRY_AGAIN_AFTER));
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn hand_on_some(&self) -> Result<Handed, StoreError> {
        let name = || self.name.clone();
        let cursor = self.ledger.feed(name()).await?;
        let events = self.events(cursor).await?;
        let Some(last) = events.last() else { return Ok(Handed::Nothing) };
        let until = last.position;
        let fixed = FeedCursor { until: Some(until), ..cursor };
        if fixed != cursor && self.ledger.move_feed(name(), cursor, fixed).await? != fixed {
            // Somebody else was first: what is fixed now is read anew.
            return Ok(Handed::Some);
        }
        if !self.take_in(cursor.position, until, events).await? {
            return Ok(Handed::Refused);
        }
        let done = FeedCursor { position: until, until: None };
        self.ledger.move_feed(name(), fixed, done).await?;
        Ok(Handed::Some)
    }

    /// What is to be handed on next: what is fixed, or else as much as fits into one notification.
    async fn events(&self, cursor: FeedCursor) -> Result<Vec<SuppressionEvent>, StoreError> {
        let page = self.ledger.suppression_events(cursor.position, EVENTS).await?;
        let (mut events, mut position) = (page.events, page.next);
        let Some(until) = cursor.until else {
            let ends = events.iter().scan(0, |end, event| {
                *end += json_bytes(event);
                Some(*end)
            });
            let count = ends.take_while(|end| *end <= CONTENT_BYTES).count();
            events.truncate(count);
            return Ok(events);
        };
        while position < until {
            let page = self.ledger.suppression_events(position, EVENTS).await?;
            if page.next == position {
                return Err(StoreError::Damaged(format!("no change of the list at {until}")));
            }
            position = page.next;
            events.extend(page.events);
        }
        events.retain(|event| event.position <= until);
        Ok(events)
    }

    /// Takes a notification in, once; false when it is refused.
    async fn take_in(
        &self,
        from: EventPosition,
        until: EventPosition,
        events: Vec<SuppressionEvent>,
    ) -> Result<bool, StoreError> {
        let events = events.into_iter().map(EventLine::from).collect();
        let content = Content { r#type: "suppressions", until: until.to_string(), events };
        let json = serde_json::to_vec(&content)
            .map_err(|error| StoreError::Damaged(format!("a change of the list: {error}")))?;
        let terms = Terms {
            channel: self.channel.as_str().into(),
            content: json.into(),
            ..Terms::default()
        };
        let checked = self.intake.check(&self.tenant, &terms, self.to.clone(), self.intake.now());
        let mut draft = match checked {
            Ok(draft) => draft,
            Err(fault) => {
                tracing::error!(%fault, channel = %self.channel, "the suppression feed cannot be sent: it waits");
                return Ok(false);
            }
        };
        // The positions say all: an application that moved gets the same under another address.
        let key = format!("{OUR_KEYS}feed {} {from} {until}", self.name).into();
        draft.idempotency = Some(Idempotency { key, fingerprint: [0; 32] });
        self.intake.accept_all(vec![draft]).await?;
        Ok(true)
    }

    async fn wait(&mut self, pause: Pause) {
        let changed = async {
            if self.changes.changed().await.is_err() {
                // The store is closing, and so is everything else.
                std::future::pending::<()>().await;
            }
            sleep(GATHER).await;
        };
        match pause {
            Pause::For(span) => sleep(span).await,
            Pause::UntilChanged if self.is_shared => tokio::select! {
                () = changed => {}
                () = sleep(LOOK_AT_LEAST_EVERY) => {}
            },
            Pause::UntilChanged => changed.await,
        }
    }
}

// === impl EventLine ===

impl EventLine {
    /// The same for people. The provider's words are as they came.
    pub fn to_text(&self) -> String {
        let Self { position, at, channel, to, change, reason, status, since } = self;
        let text = format!("{position} {at} {change} {channel} {to}");
        match (reason, status, since) {
            (Some(reason), Some(status), Some(since)) => {
                format!("{text} since {since}: {status} {reason}")
            }
            _ => text,
        }
    }
}

impl From<SuppressionEvent> for EventLine {
    fn from(event: SuppressionEvent) -> Self {
        let SuppressionEvent { position, at, channel, recipient, change } = event;
        let (position, at) = (position.to_string(), at.to_string());
        let (channel, to) = (channel.to_string(), recipient.to_string());
        match change {
            Change::Suppressed { reason, status, since } => Self {
                position,
                at,
                channel,
                to,
                change: "suppressed",
                reason: Some(reason),
                status: Some(status),
                since: Some(since.to_string()),
            },
            Change::Lifted => Self {
                position,
                at,
                channel,
                to,
                change: "lifted",
                reason: None,
                status: None,
                since: None,
            },
        }
    }
}

/// The most bytes that a change takes in a content: in a recipient a character takes two at most, for none has control
/// characters; in the provider's words up to six.
fn json_bytes(event: &SuppressionEvent) -> usize {
    let words = match &event.change {
        Change::Suppressed { reason, .. } => reason.len(),
        Change::Lifted => 0,
    };
    2 * event.recipient.len() + 6 * words + 512
}
