//! A large backlog: memory, and the time from the start of the process to the first send:
//! `backlog BINARY COUNT`.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bench::{Setup, Trial, WorkloadGuarantee};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: backlog BINARY COUNT";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let count: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let directory = tempfile::tempdir()?;
    let mut trial = Trial::start(Setup {
        binary,
        directory: directory.path().to_owned(),
        engine_settings: Vec::new(),
        // A provider so slow that the backlog stays.
        simulator_flags: vec!["--latency".into(), "20s".into()],
    })?;
    let clock = flow::Clock::system();
    let started = clock.monotonic();
    trial.broadcast(0..count, r#"{"aps":{"alert":"backlog"}}"#, WorkloadGuarantee::AtLeastOnce)?;
    let took = clock.monotonic().duration_since(started);
    let memory_in = trial.engine().usage()?.memory_bytes_max >> 20;
    trial.kill()?;

    let mut journal = trial.journal()?;
    let before = journal.lines()?;
    let started = clock.monotonic();
    trial.restart()?;
    let ready = clock.monotonic().duration_since(started);
    while journal.lines()? == before {
        std::thread::sleep(Duration::from_millis(1));
    }
    let first = clock.monotonic().duration_since(started);
    std::thread::sleep(Duration::from_secs(3));
    let memory = trial.engine().usage()?.memory_bytes_max >> 20;
    let pending = trial.pending()?;
    writeln!(
        std::io::stdout(),
        "{pending} pending: taken in within {took:.1?} (peak {memory_in} MiB); after a kill: ready after \
         {ready:.1?}, first send after {first:.1?}, peak {memory} MiB"
    )?;
    Ok(())
}
