//! `belfry status`: what was accepted, what came of it, and who works on it. Asked of an engine, or of the store.

use std::fmt::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::account::AccountLines;
use crate::cli::StatusArgs;
use crate::client::Client;
use crate::config::StoreConfig;
use crate::{ledger, output};

/// Between two prints of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize, Deserialize)]
struct Status {
    version: String,
    started_at: Option<String>,
    totals: AccountLines,
    oldest_due_at: Option<String>,
    lag_seconds: f64,
    lanes: Vec<Lane>,
    cluster: Option<Cluster>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Lane {
    channel: String,
    destination: String,
    priority: String,
    claimed: u64,
    next_due_at: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Cluster {
    workers: Vec<Worker>,
    partitions_free: u16,
    outbox_rejected: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Worker {
    id: i64,
    name: String,
    role: String,
    version: String,
    listen: Option<String>,
    started_at: String,
    alive_for_seconds: f64,
    standing_by: bool,
    partitions: u16,
    claimed: u64,
    settled: u64,
    settled_per_second: f64,
}

/// Columns of text, each as wide as its widest cell.
struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

/// Whom to ask.
pub(crate) enum Source {
    /// An engine, by its API.
    Engine(Client),
    /// The store itself: the engines need not answer, or be there.
    Store(StoreConfig),
}

/// Prints the status once, or every second.
pub(crate) fn run(args: &StatusArgs, source: &Source) -> anyhow::Result<ExitCode> {
    loop {
        let status = source.read()?;
        if args.json {
            output::json(&status)?;
        } else {
            output::print(&status.to_text()?)?;
        }
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(WATCH_PERIOD);
    }
}

// === impl Source ===

impl Source {
    fn read(&self) -> anyhow::Result<Status> {
        match self {
            Self::Engine(client) => client.get("/v1/status"),
            Self::Store(config) => ledger::ask(config, async |ledger| {
                let now = pipeline::timestamp(flow::Clock::system());
                let status = api::Status::read(ledger, None, now).await?;
                Ok(serde_json::from_value(serde_json::to_value(status)?)?)
            }),
        }
    }
}

// === impl Status ===

impl Status {
    fn to_text(&self) -> Result<String, fmt::Error> {
        let mut text = match &self.started_at {
            Some(started_at) => format!("belfry {}, running since {started_at}\n", self.version),
            None => format!("belfry {}, as the store has it\n", self.version),
        };
        self.totals.push_text(&mut text)?;
        if self.lag_seconds > 0.0 {
            writeln!(text, "due for    {:>10.1} s, the one that waits longest", self.lag_seconds)?;
        }
        if !self.lanes.is_empty() {
            let mut lanes =
                Table::new(["lane", "destination", "priority", "under way", "next due"]);
            for Lane { channel, destination, priority, claimed, next_due_at } in &self.lanes {
                let next = next_due_at.as_deref().unwrap_or("-");
                lanes.push([channel, destination, priority, &claimed.to_string(), next]);
            }
            writeln!(text, "\n{lanes}")?;
        }
        if let Some(cluster) = &self.cluster {
            write!(text, "\n{}", cluster.to_text()?)?;
        }
        Ok(text)
    }
}

// === impl Cluster ===

impl Cluster {
    fn to_text(&self) -> Result<String, fmt::Error> {
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
        let mut workers = Table::new(heads);
        for worker in &self.workers {
            workers.push([
                &worker.name,
                &worker.role,
                &worker.version,
                worker.listen.as_deref().unwrap_or("-"),
                &worker.started_at,
                worker.state(),
                &worker.partitions.to_string(),
                &worker.claimed.to_string(),
                &format!("{:.0}", worker.settled_per_second),
            ]);
        }
        let mut text = format!("{workers}\n");
        if self.partitions_free > 0 {
            writeln!(text, "{} partitions have no owner", self.partitions_free)?;
        }
        if self.outbox_rejected > 0 {
            let rejected = self.outbox_rejected;
            writeln!(text, "{rejected} outbox rows were put aside: see belfry.outbox_rejected")?;
        }
        Ok(text)
    }
}

// === impl Worker ===

impl Worker {
    fn state(&self) -> &'static str {
        match self {
            _ if self.alive_for_seconds <= 0.0 => "overdue",
            _ if self.standing_by => "standing by",
            _ => "alive",
        }
    }
}

// === impl Table ===

impl<const COLUMNS: usize> Table<COLUMNS> {
    fn new(heads: [&str; COLUMNS]) -> Self {
        Self { rows: vec![heads.map(str::to_owned)] }
    }

    fn push(&mut self, cells: [&str; COLUMNS]) {
        self.rows.push(cells.map(str::to_owned));
    }
}

/// Without a line feed at the end.
impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
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
            "lanes": [{"channel": "ios", "destination": "h", "priority": "bulk", "claimed": 1200, "next_due_at": null}],
            "cluster": {"partitions_free": 2, "outbox_rejected": 1, "workers": [
                {"id": 1, "name": "a-7", "role": "serve", "version": "0.1.0", "listen": "127.0.0.1:8473",
                    "started_at": "2026-11-21T08:30:00.000Z", "alive_for_seconds": 9.5, "standing_by": false,
                    "partitions": 62, "claimed": 1200, "settled": 7, "settled_per_second": 81000.4},
                {"id": 2, "name": "bb-17", "role": "consume", "version": "0.1.0", "listen": null,
                    "started_at": "2026-11-21T08:30:02.000Z", "alive_for_seconds": 0.0, "standing_by": false,
                    "partitions": 0, "claimed": 0, "settled": 0, "settled_per_second": 0.0},
            ]},
        });
        let status: Status = serde_json::from_value(status).unwrap();
        let text = status.to_text().unwrap();
        let (_, rest) = text.split_once("pending               3\n").unwrap();
        assert_eq!(
            rest,
            "due for           3.2 s, the one that waits longest\n\n\
             lane  destination  priority  under way  next due\n\
             ios   h            bulk           1200  -\n\n\
             worker  role     version  listens         since                     state    partitions  under way  per s\n\
             a-7     serve    0.1.0    127.0.0.1:8473  2026-11-21T08:30:00.000Z  alive            62       1200  81000\n\
             bb-17   consume  0.1.0    -               2026-11-21T08:30:02.000Z  overdue           0          0      0\n\
             2 partitions have no owner\n\
             1 outbox rows were put aside: see belfry.outbox_rejected\n"
        );
    }
}
