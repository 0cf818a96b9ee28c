//! A channel that answers as the test wrote it down, in paused time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use channel::{
    Attempt, Channel, ChannelError, Concurrency, Invalid, Job, LearnedBounds, SendBounds, Sender,
    Start, Tools, drive,
};
use flow::Timing;
use notification::{Answer, ChunkId};
use tokio::time::Instant;

/// Answers per recipient, in order; when they are used up, accepted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    state: Arc<Mutex<State>>,
    latency: Duration,
    /// Milliseconds over which the answers to attempts that begin together are spread.
    spread: u64,
    concurrency: usize,
    per_minute: u32,
    /// Attempts that are let through in a second, with a token bucket for one; 0 is no limit.
    a_second: u32,
    /// Instead of the token bucket, a distance between any two attempts.
    is_spaced: bool,
    /// True if the number of attempts under way is learned.
    is_learned: bool,
    /// The sender thread that has opened this, by turns.
    thread: usize,
}

#[derive(Debug, Default)]
struct State {
    answers: BTreeMap<String, VecDeque<Answer>>,
    attempts: Vec<String>,
    attempted_at: Vec<Instant>,
    /// Sender threads of the attempts, in order.
    attempted_by: Vec<usize>,
    threads: usize,
    /// Number of the attempt and chunk of each job.
    jobs: BTreeSet<(u16, ChunkId)>,
    under_way: usize,
    under_way_max: usize,
    is_defective: bool,
    /// Result of every attempt while the channel is away.
    outage: Option<Attempt>,
    accepted_at: Vec<Instant>,
    /// When the token bucket is full again.
    full_at: Option<Instant>,
    /// Attempts after which the sender panics.
    breaks_after: Option<usize>,
}

// === impl Script ===

impl Script {
    /// A channel whose every answer takes `latency`.
    pub(crate) fn new(latency: Duration, concurrency: usize) -> Self {
        Self { latency, concurrency, ..Self::default() }
    }

    /// A channel to a push service, which learns how many attempts it may have under way.
    pub(crate) fn learned(latency: Duration) -> Self {
        Self { latency, is_learned: true, ..Self::default() }
    }

    /// The channel for a destination that takes `per_minute` attempts in a minute.
    pub(crate) fn per_minute(self, per_minute: u32) -> Self {
        Self { per_minute, ..self }
    }

    /// The channel whose answers come one after the other, within `spread`, to attempts that begin together.
    pub(crate) fn spread(self, spread: Duration) -> Self {
        Self { spread: u64::try_from(spread.as_millis()).unwrap(), ..self }
    }

    /// The channel for a destination that takes `a_second` attempts in a second and says so of no other way than by refusing more.
    pub(crate) fn rate_limited(self, a_second: u32) -> Self {
        Self { a_second, ..self }
    }

    /// The same, where attempts have to keep their distance, also after a pause.
    pub(crate) fn spaced(self, a_second: u32) -> Self {
        Self { a_second, is_spaced: true, ..self }
    }

    /// Number of chunks that were sent, by attempt: of the first, the second, ...
    pub(crate) fn chunks_by_attempt(&self) -> Vec<usize> {
        let mut chunks = BTreeMap::<u16, usize>::new();
        for (attempt, _) in &self.state.lock().unwrap().jobs {
            *chunks.entry(*attempt).or_default() += 1;
        }
        chunks.into_values().collect()
    }

    /// Times of the attempts, in order.
    pub(crate) fn attempted_at(&self) -> Vec<Instant> {
        self.state.lock().unwrap().attempted_at.clone()
    }

    /// Sender threads of the attempts, by number, in order.
    pub(crate) fn attempted_by(&self) -> Vec<usize> {
        self.state.lock().unwrap().attempted_by.clone()
    }

    /// Writes down the next answers to attempts for `recipient`.
    pub(crate) fn answers(&self, recipient: &str, answers: impl IntoIterator<Item = Answer>) {
        let mut state = self.state.lock().unwrap();
        state.answers.entry(recipient.to_owned()).or_default().extend(answers);
    }

    /// Recipients in the order of attempts.
    pub(crate) fn attempts(&self) -> Vec<String> {
        self.state.lock().unwrap().attempts.clone()
    }

    /// Number of attempts for `recipient`.
    pub(crate) fn attempts_for(&self, recipient: &str) -> usize {
        self.attempts().iter().filter(|attempted| *attempted == recipient).count()
    }

    /// The most attempts that were under way together.
    pub(crate) fn under_way_max(&self) -> usize {
        self.state.lock().unwrap().under_way_max
    }

    /// Sets the result of every attempt from now on; with `None` the channel answers again.
    pub(crate) fn set_outage(&self, outage: Option<Attempt>) {
        self.state.lock().unwrap().outage = outage;
    }

    /// Times at which notifications were accepted, in order.
    pub(crate) fn accepted_at(&self) -> Vec<Instant> {
        self.state.lock().unwrap().accepted_at.clone()
    }

    /// Makes the sender itself panic, once.
    pub(crate) fn break_once(&self) {
        self.state.lock().unwrap().is_defective = true;
    }

    /// Makes the sender itself panic, once, as soon as there were `attempts`.
    pub(crate) fn break_after_attempts(&self, attempts: usize) {
        self.state.lock().unwrap().breaks_after = Some(attempts);
    }

    /// True if the sender is to panic now.
    fn is_breaking(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        let attempts = state.attempts.len();
        state.breaks_after.take_if(|after| attempts >= *after).is_some()
    }

    async fn attempt(&self, recipient: &str, at: Instant) -> Attempt {
        let (answer, outage, latency, is_over_rate) = {
            let mut state = self.state.lock().unwrap();
            let second = Duration::from_secs(1);
            let room = if self.is_spaced { second / self.a_second } else { second };
            let is_over_rate = self.a_second > 0 && !state.takes_token(at, self.a_second, room);
            state.attempts.push(recipient.to_owned());
            state.attempted_at.push(at);
            state.attempted_by.push(self.thread);
            state.under_way += 1;
            state.under_way_max = state.under_way_max.max(state.under_way);
            let answer = state.answers.get_mut(recipient).and_then(VecDeque::pop_front);
            // A prime, so that neighbours are answered far apart.
            let place = 7_919 * state.attempts.len() as u64 % self.spread.max(1);
            let latency = self.latency + Duration::from_millis(place);
            (answer, state.outage.clone(), latency, is_over_rate)
        };
        tokio::time::sleep(latency).await;
        let mut state = self.state.lock().unwrap();
        state.under_way -= 1;
        if let Some(outage) = outage {
            return outage;
        }
        let over_rate = |answer| {
            let timing = Timing { on_wire: latency, ..Timing::default() };
            Attempt::over_rate(answer).timed(timing)
        };
        if is_over_rate {
            return over_rate(Answer::deferred(429, Some(Duration::from_secs(1)), "too many"));
        }
        if let Some(answer) = answer.as_ref().filter(|answer| answer.status == 429) {
            return over_rate(answer.clone());
        }
        state.accepted_at.push(at + latency);
        drop(state);
        let answer = answer.unwrap_or_else(|| Answer::accepted(200));
        assert_ne!(answer.detail, "panic", "as the script says");
        Attempt::answered(answer)
    }
}

impl State {
    fn takes_token(&mut self, at: Instant, a_second: u32, room: Duration) -> bool {
        let full_at = self.full_at.unwrap_or(at).max(at) + Duration::from_secs(1) / a_second;
        let takes = full_at <= at + room;
        self.full_at = if takes { Some(full_at) } else { self.full_at };
        takes
    }
}

impl Channel for Script {
    fn destination(&self, _recipient: &str) -> Result<Arc<str>, Invalid> {
        Ok("here".into())
    }

    fn check_content(&self, _payload: &[u8], _options: &[u8]) -> Result<(), Invalid> {
        Ok(())
    }

    fn bounds(&self) -> SendBounds {
        if self.is_learned {
            return SendBounds::new(
                Concurrency::Auto,
                LearnedBounds::PUSH_SERVICE,
                self.per_minute,
            );
        }
        let concurrency = Concurrency::Fixed(self.concurrency);
        SendBounds::new(concurrency, LearnedBounds::SMALL, self.per_minute)
    }

    fn open(&self, _tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let mut state = self.state.lock().unwrap();
        state.threads += 1;
        Ok(Box::new(Self { thread: state.threads, ..self.clone() }))
    }
}

#[async_trait(?Send)]
impl Sender for Script {
    async fn send(&self, job: Job<'_>) {
        let is_defective = std::mem::take(&mut self.state.lock().unwrap().is_defective);
        assert!(!is_defective, "as the script says");
        self.state.lock().unwrap().jobs.insert((job.chunk.attempt, job.chunk.id));
        let attempt = async |delivery| {
            Start::of(&job, delivery).begin().await.map_err(Attempt::not_started)?;
            Ok(self.attempt(&delivery.recipient, job.clock.monotonic()).await)
        };
        let mut driving = pin!(drive(job, attempt));
        poll_fn(|context| {
            let polled = driving.as_mut().poll(context);
            assert!(!self.is_breaking(), "as the script says");
            polled
        })
        .await;
    }

    async fn close(&self) {}
}
