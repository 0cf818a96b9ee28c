//! Streams as a channel: opens a target for each destination, and turns its verdicts into reports.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use ::stream::{OpenTargets, PutError, Record};
use async_trait::async_trait;
use flow::{Clock, Timing};
use notification::{Answer, Delivery, limits};

use super::config::Settings;
use super::content::{RecordContent, check_content};
use super::outbox::TargetOutbox;
use super::pending::PutOutcome;
use super::recipient::parse;
use crate::{
    Attempt, Channel, ChannelError, Invalid, Job, LearnedBounds, SendBounds, Sender, Start, Tools,
    drive, own_or_shared,
};

/// The openers of targets of each system, by its name in recipients.
pub type StreamSystems = BTreeMap<&'static str, Arc<dyn OpenTargets>>;

/// The content that the deliveries of a chunk share, if they do.
type SharedContent<'a> = Option<&'a Result<RecordContent, Invalid>>;

/// A channel to targets of streams.
#[derive(Debug, Clone)]
pub struct StreamChannel {
    systems: Arc<StreamSystems>,
    bounds: SendBounds,
}

#[derive(Debug)]
struct StreamSender {
    channel: StreamChannel,
    clock: Clock,
    outboxes: RefCell<HashMap<Arc<str>, OpenOutbox>>,
    /// Counts the uses of outboxes.
    uses: Cell<u64>,
}

#[derive(Debug)]
struct OpenOutbox {
    outbox: Rc<TargetOutbox>,
    used: u64,
}

/// Records under way at a time, where that is learned. Not fewer than a batch of the largest targets: less would make more calls of
/// the same load.
const LEARNED: LearnedBounds = LearnedBounds { first: 1_000, min: 500, max: limits::LANE_WINDOW };
/// Targets that a sender thread keeps open, each with a connection. Beyond it those that were not used for longest are closed.
const OUTBOXES: usize = 64;

// === impl StreamChannel ===

impl StreamChannel {
    /// A channel with `settings`, to the targets of `systems`. Connects to nothing.
    ///
    /// # Errors
    /// When there is no system, or a setting makes no sense.
    pub fn new(settings: &Settings, systems: StreamSystems) -> Result<Self, ChannelError> {
        settings.check()?;
        if systems.is_empty() {
            let message = "a stream channel needs a section for a system: `nats`, `amqp`, `kafka`, `sqs` or `kinesis`";
            return Err(ChannelError::setting("nats", message));
        }
        let Settings { concurrency, messages_per_minute, .. } = settings;
        let bounds = SendBounds::new(*concurrency, LEARNED, *messages_per_minute);
        Ok(Self { systems: Arc::new(systems), bounds })
    }

    /// The opener of the target that `recipient` names, and its name there.
    fn target<'a>(&self, recipient: &'a str) -> Result<(&dyn OpenTargets, &'a str), Invalid> {
        let (system, name) = parse(recipient)?;
        let open = self.systems.get(system).ok_or_else(|| {
            Invalid::new(format!("this channel has no section `{system}` in the configuration"))
        })?;
        Ok((&**open, name))
    }
}

impl Channel for StreamChannel {
    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        let (open, name) = self.target(recipient)?;
        open.check(name).map_err(|error| Invalid::new(error.to_string()))?;
        Ok(recipient.into())
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        check_content(payload, options)
    }

    fn bounds(&self) -> SendBounds {
        self.bounds
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        Ok(Box::new(StreamSender {
            channel: self.clone(),
            clock: tools.clock,
            outboxes: RefCell::default(),
            uses: Cell::default(),
        }))
    }
}

// === impl StreamSender ===

#[async_trait(?Send)]
impl Sender for StreamSender {
    async fn send(&self, job: Job<'_>) {
        let shared = job.chunk.content.as_ref().map(RecordContent::new);
        let outbox = self.outbox(&job.chunk.envelope.lane.destination);
        drive(job, |delivery| self.attempt(job, (shared.as_ref(), outbox.as_ref()), delivery))
            .await;
        drop(outbox);
        self.close_idle().await;
    }

    async fn close(&self) {
        for (_, open) in self.outboxes.take() {
            open.outbox.close().await;
        }
    }
}

impl StreamSender {
    async fn attempt(
        &self,
        job: Job<'_>,
        (shared, outbox): (SharedContent<'_>, Result<&Rc<TargetOutbox>, &Invalid>),
        delivery: &Delivery,
    ) -> Result<Attempt, Attempt> {
        let own = delivery.content.as_deref().map(RecordContent::new);
        let content = own_or_shared(own.as_ref(), shared)?;
        // The settings may have changed since it was handed in.
        let outbox = outbox.map_err(|invalid| Attempt::from(invalid.clone()))?;
        let mut buffer = [0; 36];
        let id = job.chunk.notification_id(delivery.index).encode(&mut buffer).to_owned();
        let record = Record { key: content.key.clone(), body: content.body.clone(), id };
        // Before it joins those that wait for a put, which takes them all at once: the wait is that of a put at most.
        Start::of(&job, delivery).begin().await.map_err(Attempt::not_started)?;
        Ok(interpret(outbox.put(record).await))
    }

    /// The way to the target `destination`, which is opened when it is not.
    fn outbox(&self, destination: &Arc<str>) -> Result<Rc<TargetOutbox>, Invalid> {
        let used = self.uses.get() + 1;
        self.uses.set(used);
        let mut outboxes = self.outboxes.borrow_mut();
        if let Some(open) = outboxes.get_mut(destination) {
            open.used = used;
            return Ok(Rc::clone(&open.outbox));
        }
        let (open, name) = self.channel.target(destination)?;
        let target = open.open(name).map_err(|error| Invalid::new(error.to_string()))?;
        let outbox = Rc::new(TargetOutbox::open(target, self.clock));
        let open = OpenOutbox { outbox: Rc::clone(&outbox), used };
        outboxes.insert(Arc::clone(destination), open);
        Ok(outbox)
    }

    /// Closes what is beyond [`OUTBOXES`] and used by no job.
    async fn close_idle(&self) {
        while let Some(outbox) = self.take_idle() {
            outbox.close().await;
        }
    }

    fn take_idle(&self) -> Option<Rc<TargetOutbox>> {
        let mut outboxes = self.outboxes.borrow_mut();
        if outboxes.len() <= OUTBOXES {
            return None;
        }
        let idle = outboxes.iter().filter(|(_, open)| Rc::strong_count(&open.outbox) == 1);
        let oldest = idle.min_by_key(|(_, open)| open.used)?.0;
        let oldest = Arc::clone(oldest);
        outboxes.remove(&oldest).map(|open| open.outbox)
    }
}

/// The meaning of a target's verdict.
fn interpret(PutOutcome { taken, on_wire }: PutOutcome) -> Attempt {
    let timing = Timing { on_wire, ..Timing::default() };
    match taken {
        Ok(()) => Attempt::answered(Answer::accepted(200)).timed(timing),
        Err(PutError::Refused(why)) => {
            Attempt::answered(Answer::refused(0, false, why)).timed(timing)
        }
        Err(PutError::Throttled { after, why }) => {
            Attempt::pushed_back(Answer::deferred(0, after, why)).timed(timing)
        }
        Err(PutError::NotTaken(why)) => Attempt::unsent(why, None),
        Err(PutError::Unknown(why)) => Attempt::lost(why),
    }
}
