//! `/v1/estimate`: how long a broadcast would take that is not created yet.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use flow::forecast::duration_of;
use notification::{Name, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{LanePace, LaneStatus, ParkedChannel};

use crate::ApiState;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::query::Query;
use crate::scope::tenant_of;
use crate::view::show;

/// How long so many notifications would take that were accepted now, as far as that is known from what went there before. An interval
/// is meant to hold four times out of five.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct ProspectAnswer {
    /// By which channel.
    #[schemars(with = "notification::Name")]
    pub channel: String,
    /// Where to, if that is known.
    pub destination: Option<String>,
    /// How many.
    pub recipients: u64,
    /// Notifications of the channel that wait or are under way: they may come before them.
    pub ahead: u64,
    /// True if there may be more of these: counting ends at 10,000 chunks.
    pub ahead_at_least: bool,
    /// When the pace was measured that this goes by.
    #[schemars(with = "Option<notification::Timestamp>")]
    pub measured_at: Option<String>,
    /// How long they take at least: if they go first.
    pub least_seconds: Option<f64>,
    /// How long they take at most: if all that waits goes first. None also when that was too much to count.
    pub most_seconds: Option<f64>,
    /// Why nothing can be told.
    pub unknown: Option<String>,
}

/// Parameters of a request.
pub(crate) const PARAMETERS: [&str; 4] = ["channel", "destination", "recipients", "tenant"];
/// Destinations that are named in a problem.
const NAMED: usize = 10;

pub(crate) async fn read(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &PARAMETERS)?;
    let channel: Name = query.required("channel")?;
    let recipients: NonZeroU64 = query.required("recipients")?;
    let destination: Option<String> = query.parse("destination")?;
    let tenant = tenant_of(&mut query, &caller)?;
    let mut others = shared.intake.channel_names();
    if !others.remove(&channel) {
        return Err(Problem::parameter(format!(
            "parameter channel: there is no channel {channel}"
        )));
    }
    let is_there = |of: &str| destination.as_deref().is_none_or(|destination| of == destination);
    let reads = shared.reads_of(&caller);
    let mut paces = reads.paces().await?;
    paces.retain(|pace| pace.lane.channel == channel && is_there(&pace.lane.destination));
    let known: BTreeSet<&str> = paces.iter().map(|pace| &*pace.lane.destination).collect();
    if known.len() > 1 {
        let some = known.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
        let detail = format!("the channel has several destinations: name one, as {some}");
        return Err(Problem::parameter(detail));
    }
    let mut lanes = reads.lanes().await?.lanes;
    lanes.retain(|lane| lane.lane.channel == channel && is_there(&lane.lane.destination));
    // Of all channels but this one, nothing is to be counted.
    let waiting = reads.parked(others).await?;
    let waiting = waiting.into_iter().find(|parked| parked.channel == channel);
    let pauses = reads.pauses().await?;
    let is_paused = pauses.since_of_all(&tenant, &channel, None).is_some();
    let known = ChannelEvidence { lanes, waiting, paces, is_paused };
    let destination = destination.or_else(|| known.destination());
    let channel = show(channel);
    Ok(Json(known.answer(channel, destination, recipients.get(), shared.intake.now()))
        .into_response())
}

/// Evidence of a channel, or of one of its destinations.
struct ChannelEvidence {
    lanes: Vec<LaneStatus>,
    waiting: Option<ParkedChannel>,
    /// Of one destination.
    paces: Vec<LanePace>,
    is_paused: bool,
}

// === impl ChannelEvidence ===

impl ChannelEvidence {
    fn destination(&self) -> Option<String> {
        self.paces.first().map(|pace| show(&pace.lane.destination))
    }

    fn answer(
        &self,
        channel: String,
        destination: Option<String>,
        recipients: u64,
        now: Timestamp,
    ) -> ProspectAnswer {
        let claimed: u64 = self.lanes.iter().map(|lane| lane.claimed).sum();
        let waiting = self.waiting.as_ref();
        let ahead = claimed + waiting.map_or(0, |waiting| waiting.notifications);
        let ahead_at_least = waiting.is_some_and(|waiting| waiting.is_at_least);
        // The lane that went fastest shows what the destination takes: others may have shared it.
        let total = |pace: &&LanePace| {
            let sum = pace.answered.iter().copied().map(u64::from).sum::<u64>();
            sum / (pace.answered.len() as u64).max(1)
        };
        let pace = self.paces.iter().max_by_key(total);
        let taken = pace.and_then(|pace| duration_of(recipients, ahead, &pace.answered));
        let unknown = self.why_unknown(now).or_else(|| {
            taken.is_none().then_some(
                "nothing went there since the start of this process for long enough, with more to send than the destination took",
            )
        });
        let taken = taken.filter(|_| unknown.is_none());
        let most = taken.map(|(_, most)| most).filter(|_| !ahead_at_least);
        ProspectAnswer {
            channel,
            destination,
            recipients,
            ahead,
            ahead_at_least,
            measured_at: pace.map(|pace| show(pace.at)),
            least_seconds: taken.map(|(least, _)| least.as_secs_f64()),
            most_seconds: most.as_ref().map(Duration::as_secs_f64),
            unknown: unknown.map(str::to_owned),
        }
    }

    fn why_unknown(&self, now: Timestamp) -> Option<&'static str> {
        let is_closed =
            |lane: &LaneStatus| lane.evidence.closed_until.is_some_and(|until| until > now);
        if self.is_paused {
            Some("the channel is paused")
        } else if self.lanes.iter().any(is_closed) {
            Some("the destination does not answer, or defers all of it")
        } else {
            None
        }
    }
}
