//! The dry run as a channel: draws a latency and a verdict per attempt, and waits.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flow::Timing;
use notification::{Answer, Delivery, limits};

use super::Settings;
use crate::{
    Attempt, Channel, ChannelError, Invalid, Job, LearnedBounds, SendBounds, Sender, Start, Tools,
    drive,
};

/// A channel that sends nothing.
#[derive(Debug, Clone)]
pub struct DryRunChannel {
    settings: Settings,
    destination: Arc<str>,
}

#[derive(Debug)]
struct DryRunSender {
    settings: Settings,
    random: RefCell<fastrand::Rng>,
}

// === impl DryRunChannel ===

impl DryRunChannel {
    /// A dry run that behaves as `settings` say.
    pub fn new(settings: Settings) -> Result<Self, ChannelError> {
        settings.check()?;
        Ok(Self { settings, destination: "dry-run".into() })
    }
}

impl Channel for DryRunChannel {
    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        if recipient.is_empty() || recipient.len() > limits::RECIPIENT_BYTES {
            let limit = limits::RECIPIENT_BYTES;
            return Err(Invalid::new(format!("must have 1 to {limit} bytes")));
        }
        Ok(Arc::clone(&self.destination))
    }

    fn check_content(&self, _payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        if options.is_empty() {
            return Ok(());
        }
        Err(Invalid::new("a dry run takes no options: leave them out"))
    }

    fn bounds(&self) -> SendBounds {
        let Settings { concurrency, messages_per_minute, .. } = self.settings;
        SendBounds::new(concurrency, LearnedBounds::PUSH_SERVICE, messages_per_minute)
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let random = RefCell::new(fastrand::Rng::with_seed(tools.seed));
        Ok(Box::new(DryRunSender { settings: self.settings.clone(), random }))
    }
}

// === impl DryRunSender ===

impl DryRunSender {
    /// How long the next attempt takes, and whether it fails.
    fn draw(&self) -> (Duration, bool) {
        let mut random = self.random.borrow_mut();
        let latency = self.settings.latency + self.settings.jitter.mul_f64(random.f64());
        (latency, random.f64() < self.settings.failure_rate)
    }

    async fn attempt(&self, job: Job<'_>, delivery: &Delivery) -> Result<Attempt, Attempt> {
        let (latency, fails) = self.draw();
        if job.chunk.content_of(delivery).is_none() {
            return Err(Attempt::without_content());
        }
        // A rehearsal asks for the mark of what is sent at most once as well.
        Start::of(&job, delivery).begin().await.map_err(Attempt::not_started)?;
        // Even a sleep of no length would go through the timer, which counts in whole milliseconds.
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let answer = if fails {
            Answer::deferred(503, None, "drawn by failure_rate")
        } else {
            Answer::accepted(200)
        };
        Ok(Attempt::answered(answer).timed(Timing { on_wire: latency, ..Timing::default() }))
    }
}

#[async_trait(?Send)]
impl Sender for DryRunSender {
    async fn send(&self, job: Job<'_>) {
        drive(job, |delivery| self.attempt(job, delivery)).await;
    }

    async fn close(&self) {}
}
