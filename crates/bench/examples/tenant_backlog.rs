//! The wait of one tenant beside the backlog of another in the same lane but for the tenant, `tenant_backlog BINARY
//! sqlite|postgres WAITING LATENCY_MS[+JITTER_MS] [SECONDS=20] [CAPACITY]`.
//!
//! One tenant posts normal notifications one at a time, and reads each until it is settled: alone, and while a broadcast of
//! another tenant to `WAITING` recipients of the same provider is being sent, which answers after `LATENCY_MS` and up to `JITTER_MS`
//! more, and serves `CAPACITY` requests at a time: without that bound the broadcast takes the machine's processors. Without jitter
//! its answers come in waves, and a request that has missed one waits for the whole next. Fails when the broadcast was over before
//! the measurement.

use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::{EngineProcess, JournalBooks, LoadCaller, SimulatorProcess, Workload, tenants, token};
use flow::Clock;
use testbed::{PostgresOptions, PostgresServer};

/// Between two measurements.
const PAUSE: Duration = Duration::from_millis(20);

/// Notifications that were sent one at a time.
#[derive(Debug)]
struct Measured {
    /// Of the recipients.
    numbers: Range<u64>,
    /// When each was posted, microseconds since the Unix epoch.
    posted_us: Vec<u128>,
    /// How long each took from its POST to a read that found it delivered.
    settled: Vec<Duration>,
}

fn main() -> Result<()> {
    let usage = "usage: tenant_backlog BINARY sqlite|postgres WAITING LATENCY_MS[+JITTER_MS] [SECONDS] [CAPACITY]";
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let postgres = match arguments.next().as_deref() {
        Some("sqlite") => None,
        Some("postgres") => Some(PostgresServer::start_with(PostgresOptions::default())?),
        _ => bail!(usage),
    };
    let waiting: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let latency = arguments.next().context(usage)?;
    let (latency, jitter) = latency.split_once('+').unwrap_or((&latency, "0"));
    let seconds = arguments.next().map_or(Ok(20), |text| text.parse()).context(usage)?;
    let time = Duration::from_secs(seconds);

    let database = postgres.as_ref().map(PostgresServer::create_database).transpose()?;
    let directory = tempfile::tempdir()?;
    let mut flags = Vec::new();
    for (name, ms) in [("--latency", latency), ("--latency-jitter", jitter)] {
        flags.extend([name.to_owned(), format!("{ms}ms")]);
    }
    flags.extend(arguments.next().into_iter().flat_map(|count| ["--capacity".to_owned(), count]));
    let simulator = SimulatorProcess::start(&binary, directory.path(), &flags)?;
    let store = database.as_ref().map(testbed::Database::url);
    let mut engine = tenants::start_engine(&binary, directory.path(), &simulator, store)?;
    let alone = Measured::over(time, &engine, waiting)?;
    broadcast(&engine, directory.path(), waiting)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "pending before              {}", pending(&engine)?)?;
    let beside = Measured::over(time, &engine, alone.numbers.end)?;
    let left = pending(&engine)?;
    writeln!(out, "pending after               {left}")?;
    engine.stop()?;
    let workload = Workload { tokens: beside.numbers.end, webhooks: Vec::new() };
    let books = JournalBooks::read(&simulator.ready.journal, &workload)?;
    for (name, measured) in [("alone", alone), ("beside", beside)] {
        let (mut arrived, mut settled) = (measured.until_arrival(&books)?, measured.settled);
        writeln!(out, "{name:6} to the provider   {}", tenants::percentiles(&mut arrived))?;
        writeln!(out, "{name:6} to settled        {}", tenants::percentiles(&mut settled))?;
    }
    ensure!(left > 0, "the broadcast was over: give more recipients, or fewer seconds");
    Ok(())
}

// === impl Measured ===

impl Measured {
    /// Measures one tenant for so long, with the recipients from the number `first` on.
    fn over(time: Duration, engine: &EngineProcess, first: u64) -> Result<Self> {
        let clock = Clock::system();
        let began = clock.monotonic();
        let (numbers, posted_us, settled) = (first..first, Vec::new(), Vec::new());
        let mut measured = Self { numbers, posted_us, settled };
        let mut caller = LoadCaller::connect(engine.listen())?;
        while clock.monotonic().duration_since(began) < time {
            std::thread::sleep(PAUSE);
            measured.posted_us.push(clock.wall().as_micros());
            match tenants::deliver(&mut caller, measured.numbers.end, "normal")? {
                Ok(waited) => measured.settled.push(waited.settled),
                Err(status) => bail!("refused with {status}"),
            }
            measured.numbers.end += 1;
        }
        Ok(measured)
    }

    /// How long each took from its POST to the provider.
    fn until_arrival(&self, books: &JournalBooks) -> Result<Vec<Duration>> {
        let tally = books.tally_of(self.numbers.clone());
        let sent = self.numbers.end - self.numbers.start;
        ensure!(tally.accepted == sent && tally.duplicates == 0, "{tally:?}");
        // One at a time, so the order of posting is the order of arrival.
        let both = tally.accepted_at_us.iter().zip(&self.posted_us);
        let waits = both.map(|(got, sent)| u128::from(*got).saturating_sub(*sent));
        Ok(waits.map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))).collect())
    }
}

/// Has a broadcast of the other tenant accepted.
fn broadcast(engine: &EngineProcess, directory: &Path, recipients: u64) -> Result<()> {
    let list = directory.join("recipients");
    let mut file = BufWriter::new(std::fs::File::create(&list)?);
    for number in 0..recipients {
        writeln!(file, "{}", token(number))?;
    }
    file.flush()?;
    let mut send = engine.client().command("send");
    send.args(["--channel", "ios", "--content", r#"{"aps":{"alert":"news"}}"#, "--to-file"]);
    let output = send.arg(&list).env("BELFRY_API_KEY", tenants::FIRST_KEY).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn pending(engine: &EngineProcess) -> Result<u64> {
    let mut caller = LoadCaller::connect(engine.listen())?;
    let (_, status) = caller.request(tenants::FIRST_KEY, "GET /v1/status", "")?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    status.pointer("/totals/pending").and_then(serde_json::Value::as_u64).context("no totals")
}
