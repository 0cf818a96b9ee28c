//! The answer to `GET /v1/status`: what was accepted, what came of it, and who works on it.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feed::{FeedPlan, FeedProgress, FeedSource, SourceCounts};
use notification::{Account, Name, Pauses, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    ClusterStatus, LaneEvidence, LaneStatus, ParkedChannel, ReadStore, StoreError, WorkerStatus,
};

use crate::ApiState;
use crate::pauses::{PauseAnswer, in_order};
use crate::space::SpaceAnswer;
use crate::view::show;

/// The answer to `GET /v1/status`.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct StatusAnswer {
    /// Of the engine, or of the program that read the store.
    pub version: String,
    /// Of the engine; none where the store itself was read.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub started_at: Option<String>,
    /// How many were accepted, and how many are in each state.
    pub totals: Account,
    /// The earliest due time of a pending chunk that is not claimed and whose lane is not paused; it may lie ahead.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub oldest_due_at: Option<String>,
    /// For how long that has been due: 0 where it lies ahead.
    pub lag_seconds: f64,
    /// Where work stands.
    pub lanes: Vec<LaneAnswer>,
    /// The pending notifications of channels that this engine does not have; none where the store itself was read.
    #[serde(default)]
    pub parked: Vec<ParkedAnswer>,
    /// Pauses that hold.
    #[serde(default)]
    pub pauses: Vec<PauseAnswer>,
    /// Sources that this engine reads, since its start; none where the store itself was read.
    #[serde(default)]
    pub sources: Vec<SourceAnswer>,
    /// The feed of the suppression list, where there is one.
    pub suppression_feed: Option<SuppressionFeed>,
    /// The feeds of delivery events.
    #[serde(default)]
    pub feeds: Vec<FeedAnswer>,
    /// The room that the store takes.
    #[serde(default)]
    pub space: Option<SpaceAnswer>,
    /// Workers of the cluster; none with the embedded store.
    pub cluster: Option<ClusterAnswer>,
}

/// A lane with work.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct LaneAnswer {
    /// The configured channel.
    #[schemars(with = "notification::Name")]
    pub channel: String,
    /// The provider, or the host of the recipients.
    pub destination: String,
    /// `urgent`, `normal` or `bulk`.
    #[schemars(with = "notification::Priority")]
    pub priority: String,
    /// Whose notifications these are; those of several tenants in a lane that is older than lanes of tenants.
    #[serde(default)]
    #[schemars(with = "notification::Name")]
    pub tenant: String,
    /// Deliveries under way.
    pub claimed: u64,
    /// The earliest due time of a pending chunk that is not claimed.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub next_due_at: Option<String>,
    /// Attempts at what this process claims that may be under way at a time, as of the last answer.
    #[serde(default)]
    pub limit: Option<usize>,
    /// How long its answers took on the wire lately, on the mean, in milliseconds.
    #[serde(default)]
    pub latency_ms: Option<f64>,
    /// Messages a minute to its destination, by what it refused for the rate.
    #[serde(default)]
    pub rate_per_minute: Option<u32>,
    /// When its destination last answered, whatever the answer was.
    #[serde(default)]
    #[schemars(with = "Option<notification::Timestamp>")]
    pub answered_at: Option<String>,
    /// While every attempt fails: the next one is not made before.
    #[serde(default)]
    #[schemars(with = "Option<notification::Timestamp>")]
    pub closed_until: Option<String>,
    /// True if it waits for a channel that this engine does not have.
    #[serde(default)]
    pub parked: bool,
    /// True if all of it is paused.
    #[serde(default)]
    pub paused: bool,
}

/// The pending notifications of a channel that is not configured; they are sent when it is again.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct ParkedAnswer {
    /// The channel.
    #[schemars(with = "notification::Name")]
    pub channel: String,
    /// Lanes in which something waits.
    pub lanes: u64,
    /// Notifications that wait, due or not.
    pub notifications: u64,
    /// The earliest due time of these; it may lie ahead.
    #[schemars(with = "notification::Timestamp")]
    pub next_due_at: String,
    /// True if there may be more of both: counting ends at 10,000 lanes or chunks.
    pub at_least: bool,
}

/// A stream of another system that an engine reads notifications from.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct SourceAnswer {
    /// Its name in the configuration.
    pub name: String,
    /// Messages fetched, those that came again too.
    pub read: u64,
    /// Stored as notifications.
    pub accepted: u64,
    /// Stored before, and come again.
    pub repeated: u64,
    /// No notifications: put to the dead letters, or dropped where there are none.
    pub dead_lettered: u64,
    /// Acknowledged to the source.
    pub acknowledged: u64,
    /// Since when something keeps it from its work.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub waiting_since: Option<String>,
    /// The last error of that.
    pub waits_for: Option<String>,
}

/// How far the feed of the suppression list is.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct SuppressionFeed {
    /// It has taken everything up to here.
    #[schemars(with = "store::EventPosition")]
    pub position: String,
    /// When the first change happened that it has not taken; none when it has all of them.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub waiting_since: Option<String>,
    /// How long ago that was: 0 when it has all of them.
    pub lag_seconds: f64,
}

/// How far a feed of delivery events is.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct FeedAnswer {
    /// Its name.
    pub name: String,
    /// How far it is.
    #[serde(flatten)]
    pub progress: SuppressionFeed,
}

/// The processes that share a store.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct ClusterAnswer {
    /// All that have not left, the dead included until they are reaped.
    pub workers: Vec<WorkerAnswer>,
    /// Partitions without an owner.
    pub partitions_free: u16,
    /// Rows of the outbox that were put aside, counted to 10,000.
    pub outbox_rejected: u64,
    /// Rows of the outbox that were committed and are not taken yet, counted to 10,000.
    #[serde(default)]
    pub outbox_waiting: u64,
    /// How long ago the first of these was inserted: 0 where none waits, and for rows from before schema 33.
    #[serde(default)]
    pub outbox_oldest_seconds: f64,
}

/// One of them.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field means what the store's field of that name means")]
pub struct WorkerAnswer {
    pub id: i64,
    pub name: String,
    pub role: String,
    pub version: String,
    pub listen: Option<String>,
    #[schemars(with = "notification::Timestamp")]
    pub started_at: String,
    pub alive_for_seconds: f64,
    pub standing_by: bool,
    pub partitions: u16,
    pub claimed: u64,
    pub settled: u64,
    pub settled_per_second: f64,
}

/// The status of the engine as of now.
pub(crate) async fn current(shared: &ApiState) -> Result<StatusAnswer, StoreError> {
    let now = shared.intake.now();
    let (started_at, feeds) = (Some(shared.started_at), &shared.feeds);
    let mut status = StatusAnswer::read(&*shared.reads, started_at, feeds, now).await?;
    let channels = shared.intake.channel_names();
    for lane in &mut status.lanes {
        lane.parked = !channels.contains(lane.channel.as_str());
    }
    let space = shared.reads.space().await?;
    status.space = space.map(|space| SpaceAnswer::new(space, Some(&shared.growth), now));
    let parked = shared.reads.parked(channels).await?;
    status.parked = parked.into_iter().map(ParkedAnswer::from).collect();
    status.sources =
        shared.sources.iter().map(|(name, counts)| SourceAnswer::new(name, counts)).collect();
    Ok(status)
}

/// The earliest due time of a pending chunk that is not claimed and whose lane is not paused; it may lie ahead.
pub(crate) fn oldest_due(lanes: &[LaneStatus], pauses: &Pauses) -> Option<Timestamp> {
    let lanes = lanes.iter().filter(|status| !pauses.covers_lane(&status.lane));
    lanes.filter_map(|status| status.next_due_at).min()
}

/// For how long what is due at `oldest` has been due.
pub(crate) fn lag(oldest: Option<Timestamp>, now: Timestamp) -> Duration {
    oldest.map_or(Duration::ZERO, |due| now.since(due))
}

// === impl StatusAnswer ===

impl StatusAnswer {
    /// Asks `reads` as of `now`, for a process that runs since `started_at`, or for one that only looks; and about
    /// `feeds`.
    pub async fn read(
        reads: &dyn ReadStore,
        started_at: Option<Timestamp>,
        feeds: &[FeedPlan],
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let (mut suppression_feed, mut answers) = (None, Vec::new());
        for feed in feeds {
            let progress = SuppressionFeed::new(FeedProgress::read(reads, feed).await?, now);
            match feed.source {
                FeedSource::Suppressions => suppression_feed = Some(progress),
                FeedSource::Deliveries { .. } => {
                    answers.push(FeedAnswer { name: show(&feed.name), progress });
                }
            }
        }
        let (lanes, pauses) = (reads.lanes().await?.lanes, reads.pauses().await?);
        let oldest = oldest_due(&lanes, &pauses);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: started_at.map(show),
            totals: reads.totals().await?,
            oldest_due_at: oldest.map(show),
            lag_seconds: lag(oldest, now).as_secs_f64(),
            lanes: lanes.into_iter().map(|lane| LaneAnswer::new(lane, &pauses)).collect(),
            // The store itself knows of no channels.
            parked: Vec::new(),
            pauses: in_order(&pauses),
            sources: Vec::new(),
            suppression_feed,
            feeds: answers,
            space: reads.space().await?.map(|space| SpaceAnswer::new(space, None, now)),
            cluster: reads.cluster().await?.map(ClusterAnswer::from),
        })
    }
}

// === impl LaneAnswer ===

impl LaneAnswer {
    fn new(status: LaneStatus, pauses: &Pauses) -> Self {
        let LaneEvidence { answered_at, closed_until, limit, latency, rate_per_minute } =
            status.evidence;
        let millis = |latency: Duration| latency.as_secs_f64() * 1_000.0;
        Self {
            paused: pauses.covers_lane(&status.lane),
            channel: show(status.lane.channel),
            destination: show(status.lane.destination),
            priority: show(status.lane.priority),
            tenant: show(status.lane.tenant),
            claimed: status.claimed,
            next_due_at: status.next_due_at.map(show),
            limit: limit.map(NonZeroUsize::get),
            latency_ms: latency.map(millis),
            rate_per_minute: rate_per_minute.map(NonZeroU32::get),
            answered_at: answered_at.map(show),
            closed_until: closed_until.map(show),
            // The store itself knows of no channels.
            parked: false,
        }
    }
}

// === impl ParkedAnswer ===

impl From<ParkedChannel> for ParkedAnswer {
    fn from(parked: ParkedChannel) -> Self {
        let ParkedChannel { channel, lanes, notifications, next_due_at, is_at_least } = parked;
        let (channel, next_due_at) = (show(channel), show(next_due_at));
        Self { channel, lanes, notifications, next_due_at, at_least: is_at_least }
    }
}

// === impl SourceAnswer ===

impl SourceAnswer {
    fn new(name: &Name, counts: &SourceCounts) -> Self {
        let SourceCounts { read, accepted, repeated, dead, acknowledged, .. } = counts;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let trouble = counts.trouble();
        Self {
            name: show(name),
            read: count(read),
            accepted: count(accepted),
            repeated: count(repeated),
            dead_lettered: count(dead),
            acknowledged: count(acknowledged),
            waiting_since: trouble.as_ref().map(|trouble| show(trouble.since)),
            waits_for: trouble.map(|trouble| trouble.reason),
        }
    }
}

// === impl SuppressionFeed ===

impl SuppressionFeed {
    fn new(standing: FeedProgress, now: Timestamp) -> Self {
        Self {
            position: standing.position.to_string(),
            waiting_since: standing.waiting_since.map(show),
            lag_seconds: standing.lag(now).as_secs_f64(),
        }
    }
}

// === impl ClusterAnswer ===

impl From<ClusterStatus> for ClusterAnswer {
    fn from(status: ClusterStatus) -> Self {
        let ClusterStatus { workers, partitions_free, outbox } = status;
        Self {
            workers: workers.into_iter().map(WorkerAnswer::from).collect(),
            partitions_free,
            outbox_rejected: outbox.rejected,
            outbox_waiting: outbox.waiting,
            outbox_oldest_seconds: outbox.oldest.as_secs_f64(),
        }
    }
}

// === impl WorkerAnswer ===

impl From<WorkerStatus> for WorkerAnswer {
    fn from(status: WorkerStatus) -> Self {
        Self {
            id: status.id,
            name: status.name,
            role: match (status.produces, status.consumes) {
                (true, true) => "serve",
                (true, false) => "produce",
                (false, _) => "consume",
            }
            .to_owned(),
            version: status.version,
            listen: status.listen,
            started_at: show(status.started_at),
            alive_for_seconds: status.alive_for.as_secs_f64(),
            standing_by: status.is_standing_by,
            partitions: status.partitions,
            claimed: status.claimed,
            settled: status.settled,
            settled_per_second: status.settled_per_second,
        }
    }
}
