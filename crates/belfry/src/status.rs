//! `belfry status`: what was accepted, what came of it, and who works on it. Asked of an engine, or of the store.

mod broadcast;

use std::fmt::{self, Write as _};
use std::time::Duration;

use api::{
    BroadcastAnswer, ClusterAnswer, FeedAnswer, LaneAnswer, ParkedAnswer, PauseAnswer,
    SourceAnswer, SpaceAnswer, StatusAnswer, SuppressionFeed, WorkerAnswer,
};
use channel::Secret;
use clap::Args;
use feed::FeedPlan;
use notification::BroadcastId;
use serde::Serialize;
use store::OUTBOX_ROWS_COUNTED;

use crate::args::secret;
use crate::client::Client;
use crate::config::{Flags, StoreConfig};
use crate::exit::{CliError, FailureKind};
use crate::{account, output, reader};

pub(crate) use broadcast::text as broadcast_text;

/// `belfry status`
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show one broadcast (`bc_` and a number), and when it will be complete
    #[arg(value_name = "BROADCAST", conflicts_with = "store")]
    pub(crate) broadcast: Option<BroadcastId>,
    #[arg(
        long,
        value_name = "STORE",
        value_parser = secret,
        help = "Ask the store and no engine: a directory (SQLite), or postgres://USER@HOST/DATABASE"
    )]
    pub(crate) store: Option<Secret>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print again every second, until interrupted, or until the broadcast is complete
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Between two prints of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// Columns of text, each as wide as its widest cell.
struct TextTable<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

/// Whom to ask.
pub(crate) enum StatusSource {
    /// An engine, by its API.
    Engine(Client),
    /// The store itself: the engines need not answer, or be there.
    Store {
        /// Which one.
        store: StoreConfig,
        /// The feeds that are configured.
        feeds: Vec<FeedPlan>,
    },
}

/// Prints the status once, or every second.
pub(crate) fn run(args: &StatusArgs, source: &StatusSource) -> anyhow::Result<()> {
    loop {
        let is_over = if let Some(id) = args.broadcast {
            let status = source.read_broadcast(id)?;
            show(args, &status, &broadcast_text(&status)?)?;
            status.totals.pending == 0
        } else {
            let status = source.read()?;
            show(args, &status, &status_text(&status)?)?;
            false
        };
        if !args.watch || is_over {
            return Ok(());
        }
        std::thread::sleep(WATCH_PERIOD);
    }
}

fn show(args: &StatusArgs, status: &impl Serialize, text: &str) -> anyhow::Result<()> {
    if args.json { output::json(status) } else { output::print(text) }
}

// === impl StatusArgs ===

impl StatusArgs {
    /// The settings among them, for when the store is read directly.
    pub(crate) fn flags(&self) -> Option<Flags> {
        self.store.clone().map(|store| Flags { store: Some(store), queue: None })
    }
}

// === impl StatusSource ===

impl StatusSource {
    fn read_broadcast(&self, id: BroadcastId) -> anyhow::Result<BroadcastAnswer> {
        match self {
            Self::Engine(client) => client.get(&format!("/v1/broadcasts/{id}")),
            // The command line refuses both together.
            Self::Store { .. } => {
                Err(CliError::new(FailureKind::Usage, "a broadcast is asked of an engine").into())
            }
        }
    }

    fn read(&self) -> anyhow::Result<StatusAnswer> {
        match self {
            Self::Engine(client) => client.get("/v1/status"),
            Self::Store { store, feeds } => reader::ask(store, async |reads| {
                let now = pipeline::timestamp(flow::Clock::system());
                Ok(StatusAnswer::read(reads, None, feeds, now).await?)
            }),
        }
    }
}

// === impl TextTable ===

impl<const COLUMNS: usize> TextTable<COLUMNS> {
    fn new(heads: [&str; COLUMNS]) -> Self {
        Self { rows: vec![heads.map(str::to_owned)] }
    }

    fn push(&mut self, cells: [&str; COLUMNS]) {
        self.rows.push(cells.map(str::to_owned));
    }
}

/// Without a line feed at the end.
impl<const COLUMNS: usize> fmt::Display for TextTable<COLUMNS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (number, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(widths).map(|(cell, width)| {
                let is_number = number > 0 && cell.bytes().all(|byte| byte.is_ascii_digit());
                if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            let feed = if number == 0 { "" } else { "\n" };
            write!(formatter, "{feed}{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// How far a feed is.
fn feed_text(progress: &SuppressionFeed) -> String {
    let SuppressionFeed { position, waiting_since, lag_seconds } = progress;
    match waiting_since {
        Some(since) => format!(
            "{lag_seconds:.1} s behind, since {since}: the application has all up to {position}"
        ),
        None => format!("up to date, at {position}"),
    }
}

/// The room that the store takes, and when there is none left.
fn space_text(space: &SpaceAnswer) -> String {
    let SpaceAnswer { used_bytes, left_bytes, grows_per_day, full_in_days } = space;
    let left = left_bytes.map(|left| format!(", {} left", output::bytes(left)));
    let growth = match grows_per_day {
        None => String::new(),
        Some(bytes) if *bytes > 0 => {
            let grows = output::bytes(bytes.unsigned_abs());
            let full = full_in_days.map(|days| format!(": full in {days:.0} days"));
            format!("; grows by {grows} a day{}", full.unwrap_or_default())
        }
        Some(_) => "; does not grow".to_owned(),
    };
    format!("{} used{}{growth}", output::bytes(*used_bytes), left.unwrap_or_default())
}

fn status_text(status: &StatusAnswer) -> Result<String, fmt::Error> {
    let mut text = match &status.started_at {
        Some(started_at) => format!("belfry {}, running since {started_at}\n", status.version),
        None => format!("belfry {}, as the store has it\n", status.version),
    };
    account::push_text(&status.totals, &mut text)?;
    if status.lag_seconds > 0.0 {
        writeln!(text, "due for    {:>10.1} s, the one that waits longest", status.lag_seconds)?;
    }
    if let Some(progress) = &status.suppression_feed {
        writeln!(text, "feed       {}", feed_text(progress))?;
    }
    for FeedAnswer { name, progress } in &status.feeds {
        writeln!(text, "feed       {name}: {}", feed_text(progress))?;
    }
    if let Some(space) = &status.space {
        writeln!(text, "disk       {}", space_text(space))?;
    }
    for parked in &status.parked {
        writeln!(text, "{}", parked_text(parked))?;
    }
    for PauseAnswer { tenant, scope, since, .. } in &status.pauses {
        writeln!(text, "paused     {scope} of {tenant}, since {since}")?;
    }
    for SourceAnswer { name, waiting_since, waits_for, .. } in &status.sources {
        if let (Some(since), Some(reason)) = (waiting_since, waits_for) {
            writeln!(text, "source     {name} waits since {since}: {}", output::plain(reason))?;
        }
    }
    if !status.sources.is_empty() {
        writeln!(text, "\n{}", sources_text(&status.sources))?;
    }
    if !status.lanes.is_empty() {
        writeln!(text, "\n{}", lanes_text(&status.lanes))?;
    }
    if let Some(cluster) = &status.cluster {
        write!(text, "\n{}", cluster_text(cluster)?)?;
    }
    Ok(text)
}

fn sources_text(sources: &[SourceAnswer]) -> TextTable<6> {
    let mut table =
        TextTable::new(["source", "read", "accepted", "repeated", "dead letters", "acknowledged"]);
    for source in sources {
        let SourceAnswer { name, read, accepted, repeated, dead_lettered, acknowledged, .. } =
            source;
        let counts = [read, accepted, repeated, dead_lettered, acknowledged].map(u64::to_string);
        let [read, accepted, repeated, dead, acknowledged] = &counts;
        table.push([name, read, accepted, repeated, dead, acknowledged]);
    }
    table
}

fn lanes_text(lanes: &[LaneAnswer]) -> TextTable<11> {
    let mut table = TextTable::new([
        "lane",
        "destination",
        "priority",
        "tenant",
        "under way",
        "limit",
        "latency",
        "learned rate",
        "next due",
        "last answer",
        "closed until",
    ]);
    let none = || "-".to_owned();
    for lane in lanes {
        let next = match lane.next_due_at.as_deref() {
            Some(_) if lane.parked => "parked: no such channel",
            Some(_) if lane.paused => "paused",
            next => next.unwrap_or("-"),
        };
        table.push([
            &lane.channel,
            &lane.destination,
            &lane.priority,
            &lane.tenant,
            &lane.claimed.to_string(),
            &lane.limit.map_or_else(none, |limit| limit.to_string()),
            &lane.latency_ms.map_or_else(none, |latency| format!("{latency:.1} ms")),
            &lane.rate_per_minute.map_or_else(none, |rate| format!("{rate}/min")),
            next,
            lane.answered_at.as_deref().unwrap_or("-"),
            lane.closed_until.as_deref().unwrap_or("-"),
        ]);
    }
    table
}

fn parked_text(parked: &ParkedAnswer) -> String {
    let ParkedAnswer { channel, lanes, notifications, next_due_at, at_least } = parked;
    let bound = if *at_least { "at least " } else { "" };
    let lanes = if *lanes == 1 { "1 lane".to_owned() } else { format!("{lanes} lanes") };
    format!(
        "parked     {bound}{notifications} in {lanes}, the first due {next_due_at}: there is no channel {channel}"
    )
}

fn cluster_text(cluster: &ClusterAnswer) -> Result<String, fmt::Error> {
    let heads = [
        "worker",
        "role",
        "version",
        "listens",
        "since",
        "state",
        "partitions",
        "under way",
        "per s",
    ];
    let mut workers = TextTable::new(heads);
    for worker in &cluster.workers {
        workers.push([
            &worker.name,
            &worker.role,
            &worker.version,
            worker.listen.as_deref().unwrap_or("-"),
            &worker.started_at,
            state(worker),
            &worker.partitions.to_string(),
            &worker.claimed.to_string(),
            &format!("{:.0}", worker.settled_per_second),
        ]);
    }
    let mut text = format!("{workers}\n");
    if cluster.partitions_free > 0 {
        writeln!(text, "{} partitions have no owner", cluster.partitions_free)?;
    }
    if cluster.outbox_rejected > 0 {
        let rejected = cluster.outbox_rejected;
        writeln!(text, "{rejected} outbox rows were put aside: see belfry.outbox_rejected")?;
    }
    if cluster.outbox_waiting > 0 {
        let (rows, oldest) = (cluster.outbox_waiting, cluster.outbox_oldest_seconds);
        let at_least = if rows >= OUTBOX_ROWS_COUNTED.into() { "at least " } else { "" };
        writeln!(
            text,
            "{at_least}{rows} outbox rows wait to be taken, the first was inserted {oldest:.1} s ago"
        )?;
    }
    Ok(text)
}

fn state(worker: &WorkerAnswer) -> &'static str {
    match worker {
        // First: its own words date from the last time that it was heard of.
        _ if worker.alive_for_seconds <= 0.0 => "overdue",
        _ if worker.standing_by => "standing by",
        _ => "alive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_a_table_with_what_needs_a_look_below_it() {
        let status = serde_json::json!({
            "version": "0.1.0", "started_at": "2026-11-21T08:30:00.000Z",
            "totals": {"accepted": 5, "delivered": 2, "refused": 0, "expired": 0, "cancelled": 0, "suppressed": 0,
                "in_doubt": 0, "dead": 0, "pending": 3},
            "oldest_due_at": "2026-11-21T08:30:01.000Z", "lag_seconds": 3.25,
            "suppression_feed": {"position": "7-2", "waiting_since": "2026-11-21T08:29:00.000Z", "lag_seconds": 64.2},
            "lanes": [
                {"channel": "hooks", "destination": "g", "priority": "bulk", "tenant": "shop", "claimed": 1, "next_due_at": null,
                    "closed_until": "2026-11-21T08:31:00.000Z"},
                {"channel": "ios", "destination": "h", "priority": "bulk", "tenant": "default", "claimed": 1200, "next_due_at": null,
                    "limit": 1000, "latency_ms": 82.34, "rate_per_minute": 5820,
                    "answered_at": "2026-11-21T08:30:02.000Z"},
            ],
            "parked": [
                {"channel": "fcm", "lanes": 1, "notifications": 2, "next_due_at": "2026-11-21T08:30:01.000Z", "at_least": false},
                {"channel": "old", "lanes": 7, "notifications": 10000, "next_due_at": "2026-11-20T08:30:01.000Z", "at_least": true},
            ],
            "sources": [{"name": "orders", "read": 12, "accepted": 9, "repeated": 2, "dead_lettered": 1, "acknowledged": 11,
                "waiting_since": "2026-11-21T08:29:30.000Z", "waits_for": "no such queue"}],
            "pauses": [{"tenant": "shop", "scope": "channel/hooks", "since": "2026-11-21T08:20:00.000Z"}],
            "cluster": {"partitions_free": 2, "outbox_rejected": 1, "outbox_waiting": 7, "outbox_oldest_seconds": 61.25, "workers": [
                {"id": 1, "name": "a-7", "role": "serve", "version": "0.1.0", "listen": "127.0.0.1:8473",
                    "started_at": "2026-11-21T08:30:00.000Z", "alive_for_seconds": 9.5, "standing_by": false,
                    "partitions": 62, "claimed": 1200, "settled": 7, "settled_per_second": 81000.4},
                {"id": 2, "name": "bb-17", "role": "consume", "version": "0.1.0", "listen": null,
                    "started_at": "2026-11-21T08:30:02.000Z", "alive_for_seconds": 0.0, "standing_by": false,
                    "partitions": 0, "claimed": 0, "settled": 0, "settled_per_second": 0.0},
            ]},
        });
        let status: StatusAnswer = serde_json::from_value(status).unwrap();
        let text = status_text(&status).unwrap();
        let (_, rest) = text.split_once("pending               3\n").unwrap();
        assert_eq!(
            rest,
            "due for           3.2 s, the one that waits longest\n\
             feed       64.2 s behind, since 2026-11-21T08:29:00.000Z: the application has all up to 7-2\n\
             parked     2 in 1 lane, the first due 2026-11-21T08:30:01.000Z: there is no channel fcm\n\
             parked     at least 10000 in 7 lanes, the first due 2026-11-20T08:30:01.000Z: there is no channel old\n\
             paused     channel/hooks of shop, since 2026-11-21T08:20:00.000Z\n\
             source     orders waits since 2026-11-21T08:29:30.000Z: no such queue\n\n\
             source  read  accepted  repeated  dead letters  acknowledged\n\
             orders    12         9         2             1            11\n\n\
             lane   destination  priority  tenant   under way  limit  latency  learned rate  next due  last answer               closed until\n\
             hooks  g            bulk      shop             1  -      -        -             -         -                         2026-11-21T08:31:00.000Z\n\
             ios    h            bulk      default       1200   1000  82.3 ms  5820/min      -         2026-11-21T08:30:02.000Z  -\n\n\
             worker  role     version  listens         since                     state    partitions  under way  per s\n\
             a-7     serve    0.1.0    127.0.0.1:8473  2026-11-21T08:30:00.000Z  alive            62       1200  81000\n\
             bb-17   consume  0.1.0    -               2026-11-21T08:30:02.000Z  overdue           0          0      0\n\
             2 partitions have no owner\n\
             1 outbox rows were put aside: see belfry.outbox_rejected\n\
             7 outbox rows wait to be taken, the first was inserted 61.2 s ago\n"
        );
    }
}
