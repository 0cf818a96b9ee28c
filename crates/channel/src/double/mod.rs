//! A channel whose provider is a script: for tests of whatever uses channels, under paused time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use flow::Timing;
use notification::{Answer, ByteString, Bytes, Delivery, NotificationId, Timestamp};

use crate::{
    Attempt, Channel, ChannelError, Concurrency, Invalid, Job, LearnedBounds, SendBounds, Sender,
    Start, Tools, drive, timestamp,
};

/// The answer of the scripted provider to one attempt, once [`Double::set_latency`] has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It answers this.
    Answer(Answer),
    /// It answers this, as push-back.
    PushBack(Answer),
    /// It cuts the connection: the answer is lost.
    CutOff,
    /// It never answers.
    Silence,
    /// It cannot be reached; nothing is sent.
    Unreachable,
    /// It has no room; nothing is sent.
    Full,
    /// The channel itself fails, after sending.
    Panic,
}

/// Something that reached the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The notification.
    pub id: NotificationId,
    /// Its recipient.
    pub recipient: ByteString,
    /// Its payload.
    pub payload: Bytes,
    /// The number of the attempt.
    pub attempt: u16,
    /// When.
    pub at: Timestamp,
}

/// A scripted channel. Clones share the script and the record.
///
/// A recipient that starts with `!` is refused by [`Channel::destination`]; what stands before the first `@`
/// is ignored there, and what follows is the destination (`double` when there is none).
#[derive(Debug, Clone, Default)]
pub struct Double {
    script: Arc<Mutex<Script>>,
}

#[derive(Debug)]
struct Script {
    latency: Duration,
    concurrency: Concurrency,
    steps: HashMap<ByteString, VecDeque<Step>>,
    otherwise: Step,
    sent: Vec<Sent>,
}

// === impl Double ===

impl Double {
    /// Accepts everything at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long every attempt takes, from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.script().latency = latency;
    }

    /// Sets the step of recipients without steps of their own, from now on.
    pub fn set_otherwise(&self, step: Step) {
        self.script().otherwise = step;
    }

    /// Sets the steps of the next attempts for `recipient`, one each.
    pub fn expect(&self, recipient: &str, steps: impl IntoIterator<Item = Step>) {
        self.script().steps.entry(ByteString::from(recipient)).or_default().extend(steps);
    }

    /// Everything that reached the provider, in the order in which it did.
    pub fn sent(&self) -> Vec<Sent> {
        self.script().sent.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the next step for `delivery` sends it.
    fn reaches_provider(&self, delivery: &Delivery) -> bool {
        let script = self.script();
        let own = script.steps.get(&delivery.recipient).and_then(VecDeque::front);
        !matches!(own.unwrap_or(&script.otherwise), Step::Unreachable | Step::Full)
    }

    /// Takes the next step for `delivery`, and records what it sends.
    fn step(&self, job: Job<'_>, delivery: &Delivery, payload: &Bytes) -> (Step, Duration) {
        let mut script = self.script();
        let own = script.steps.get_mut(&delivery.recipient).and_then(VecDeque::pop_front);
        let step = own.unwrap_or_else(|| script.otherwise.clone());
        if !matches!(step, Step::Unreachable | Step::Full) {
            script.sent.push(Sent {
                id: job.chunk.notification_id(delivery.index),
                recipient: delivery.recipient.clone(),
                payload: payload.clone(),
                attempt: job.chunk.attempt,
                at: timestamp(job.clock),
            });
        }
        (step, script.latency)
    }

    async fn attempt(&self, job: Job<'_>, delivery: &Delivery) -> Result<Attempt, Attempt> {
        let content = job.chunk.content_of(delivery).ok_or_else(Attempt::without_content)?;
        // Asked before the step is taken: what never reaches the provider must not be marked as begun.
        if self.reaches_provider(delivery) {
            Start::of(&job, delivery).begin().await.map_err(Attempt::not_started)?;
        }
        let (step, latency) = self.step(job, delivery, &content.payload);
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let timing = Timing { on_wire: latency, ..Timing::default() };
        Ok(match step {
            Step::Answer(answer) => Attempt::answered(answer).timed(timing),
            Step::PushBack(answer) => Attempt::pushed_back(answer).timed(timing),
            Step::CutOff => Attempt::lost("cut off, as scripted"),
            Step::Silence => std::future::pending().await,
            Step::Unreachable => Attempt::unsent("unreachable, as scripted", None),
            Step::Full => Attempt::handed_back(Duration::from_secs(1)),
            #[expect(clippy::panic, reason = "what the test asked for")]
            Step::Panic => panic!("as scripted"),
        })
    }
}

impl Channel for Double {
    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        if recipient.starts_with('!') {
            return Err(Invalid::new("must not start with an exclamation mark"));
        }
        Ok(recipient.split_once('@').map_or("double", |(_, destination)| destination).into())
    }

    fn check_content(&self, payload: &[u8], _options: &[u8]) -> Result<(), Invalid> {
        if payload.is_empty() {
            return Err(Invalid::new("must not be empty"));
        }
        Ok(())
    }

    fn bounds(&self) -> SendBounds {
        SendBounds::new(self.script().concurrency, LearnedBounds::SMALL, 0)
    }

    fn open(&self, _tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait(?Send)]
impl Sender for Double {
    async fn send(&self, job: Job<'_>) {
        drive(job, |delivery| self.attempt(job, delivery)).await;
    }

    async fn close(&self) {}
}

// === impl Script ===

impl Default for Script {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO,
            concurrency: Concurrency::Fixed(1000),
            steps: HashMap::new(),
            otherwise: Step::Answer(Answer::accepted(200)),
            sent: Vec::new(),
        }
    }
}
