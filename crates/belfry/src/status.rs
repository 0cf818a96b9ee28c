//! `belfry status`: what the engine has accepted, and what came of it.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::account::AccountLines;
use crate::cli::StatusArgs;
use crate::client::Client;
use crate::output;

/// Between two prints of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize, Deserialize)]
struct Status {
    version: String,
    started_at: String,
    totals: AccountLines,
    lanes: Vec<Lane>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Lane {
    channel: String,
    destination: String,
    priority: String,
    claimed: u64,
    next_due_at: Option<String>,
}

/// Prints the status once, or every second.
pub(crate) fn run(args: &StatusArgs, client: &Client) -> anyhow::Result<ExitCode> {
    loop {
        let status: Status = client.get("/v1/status")?;
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

// === impl Status ===

impl Status {
    fn to_text(&self) -> Result<String, std::fmt::Error> {
        let mut text = format!("belfry {}, running since {}\n", self.version, self.started_at);
        self.totals.push_text(&mut text)?;
        for Lane { channel, destination, priority, claimed, next_due_at } in &self.lanes {
            write!(text, "lane {channel} {destination} {priority}: {claimed} under way")?;
            match next_due_at {
                Some(instant) => writeln!(text, ", next due {instant}")?,
                None => writeln!(text)?,
            }
        }
        Ok(text)
    }
}
