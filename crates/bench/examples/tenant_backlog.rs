//! The wait of one tenant beside the backlog of another in the same lane but for the tenant, `tenant_backlog BINARY
//! sqlite|postgres WAITING LATENCY_MS [SECONDS=20] [CAPACITY]`.
//!
//! One tenant posts normal notifications one at a time, and reads each until it is settled: alone, and while a broadcast of
//! another tenant to `WAITING` recipients of the same provider is being sent, which answers after `LATENCY_MS`, and serves `CAPACITY`
//! requests at a time: without that bound the broadcast takes the machine's processors. Fails when the broadcast was over before the
//! measurement.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::workload::token;
use bench::{EngineProcess, LoadCaller, SimulatorProcess, tenants};
use flow::Clock;
use testbed::{PostgresOptions, PostgresServer};

/// Between two measurements.
const PAUSE: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let usage =
        "usage: tenant_backlog BINARY sqlite|postgres WAITING LATENCY_MS [SECONDS] [CAPACITY]";
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let postgres = match arguments.next().as_deref() {
        Some("sqlite") => None,
        Some("postgres") => Some(PostgresServer::start_with(PostgresOptions::default())?),
        _ => bail!(usage),
    };
    let waiting: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let latency: u64 = arguments.next().context(usage)?.parse().context(usage)?;
    let seconds = arguments.next().map_or(Ok(20), |text| text.parse()).context(usage)?;
    let time = Duration::from_secs(seconds);

    let database = postgres.as_ref().map(PostgresServer::create_database).transpose()?;
    let directory = tempfile::tempdir()?;
    let mut flags = vec!["--latency".to_owned(), format!("{latency}ms")];
    flags.extend(arguments.next().into_iter().flat_map(|count| ["--capacity".to_owned(), count]));
    let simulator = SimulatorProcess::start(&binary, directory.path(), &flags)?;
    let store = database.as_ref().map(testbed::Database::url);
    let mut engine = tenants::start_engine(&binary, directory.path(), &simulator, store)?;
    let mut out = std::io::stdout().lock();
    let alone = measure(&engine, time)?;
    writeln!(out, "alone                       {alone}")?;
    broadcast(&engine, directory.path(), waiting)?;
    writeln!(out, "pending before              {}", pending(&engine)?)?;
    let beside = measure(&engine, time)?;
    writeln!(out, "beside the backlog          {beside}")?;
    let left = pending(&engine)?;
    writeln!(out, "pending after               {left}")?;
    ensure!(left > 0, "the broadcast was over: give more recipients, or fewer seconds");
    engine.stop()
}

/// Measures one tenant for so long.
fn measure(engine: &EngineProcess, time: Duration) -> Result<String> {
    let clock = Clock::system();
    let (began, mut settled) = (clock.monotonic(), Vec::new());
    let mut caller = LoadCaller::connect(engine.listen())?;
    while clock.monotonic().duration_since(began) < time {
        std::thread::sleep(PAUSE);
        match tenants::deliver(&mut caller, settled.len() as u64, "normal")? {
            Ok(waited) => settled.push(waited.settled),
            Err(status) => bail!("refused with {status}"),
        }
    }
    Ok(tenants::percentiles(&mut settled))
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
