//! One of four engines is killed under load: `takeover BINARY [SECONDS=30]`.
//!
//! Prints when the partitions of the killed engine had other owners, and, from the provider's journal, how many were
//! delivered in each second before and after, when the first notification of each of its partitions was delivered by
//! another, behind what that one had claimed before, and the lowest second of the other three, relative to their part.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bench::cluster::{Backing, Cluster, ClusterSetup};
use bench::rate::{median, per_window};
use bench::{EngineRole, Workload, WorkloadGuarantee};
use provider_sim::journal::Reader;

const ENGINES: usize = 4;
const LATENCY_MS: u64 = 50;
/// Attempts under way at a time in one engine: few enough that the provider is the limit, not this machine.
const CONCURRENCY: u64 = 100;
/// Delivered per second and engine.
const RATE: u64 = CONCURRENCY * 1000 / LATENCY_MS;
/// Under load, before the kill.
const BEFORE: Duration = Duration::from_secs(10);
/// The first of these is warming up.
const WARM_UP: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(5);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: takeover BINARY [SECONDS]";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let seconds: u64 = arguments.next().map_or(Ok(30), |text| text.parse()).context(usage)?;
    let after = Duration::from_secs(seconds);
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::start(&setup(binary, directory.path().to_owned()))?;
    // Work for all of it, and some that is left at the end.
    let tokens = ENGINES as u64 * RATE * (BEFORE + after).as_secs();
    let clock = flow::Clock::system();
    let content = r#"{"aps":{"alert":"news"}}"#;
    cluster.operator().broadcast(0..tokens, content, WorkloadGuarantee::AtLeastOnce)?;
    let began = clock.wall();
    std::thread::sleep(BEFORE);

    let victim = cluster.workers().last().context("there are engines")?;
    let orphans = unclaimed_of(&cluster, victim.listen())?;
    ensure!(
        !orphans.is_empty(),
        "the killed engine had no partition with work that nobody had claimed"
    );
    victim.kill()?;
    let killed_us = u64::try_from(clock.wall().as_micros())?;
    let owned_us = await_owners(&cluster, victim.listen(), killed_us)?;
    std::thread::sleep(after.saturating_sub(Duration::from_micros(owned_us)));
    let until_us = u64::try_from(clock.wall().as_micros())?;
    let first_us = first_deliveries(&cluster, &orphans, killed_us)?;

    victim.start()?;
    cluster.drain(tokens, PATIENCE)?;
    cluster.stop()?;
    let tally = cluster.books(&Workload { tokens, webhooks: Vec::new() })?.tally();
    ensure!(tally.missing == 0, "{} are lost", tally.missing);
    let from_us = u64::try_from((began + WARM_UP).as_micros())?;
    let before = per_window(&tally.accepted_at_us, WINDOW, from_us, killed_us);
    let meanwhile = per_window(&tally.accepted_at_us, WINDOW, killed_us, until_us);
    let owned = Duration::from_micros(owned_us).as_secs_f64();
    writeln!(std::io::stdout(), "its partitions had other owners after {owned:.1} s")?;
    report(&before, &meanwhile, &first_us, killed_us)?;
    writeln!(std::io::stdout(), "duplicates (in flight at the kill): {}", tally.duplicates)?;
    Ok(())
}

fn setup(binary: PathBuf, directory: PathBuf) -> ClusterSetup {
    let setting = |name: &str, value: u64| (format!("BELFRY__{name}"), value.to_string());
    ClusterSetup {
        binary,
        directory,
        backing: Backing::Postgres,
        roles: [EngineRole::Serve; ENGINES].to_vec(),
        has_links: false,
        engine_settings: vec![setting("CHANNELS__IOS__CONCURRENCY", CONCURRENCY)],
        store_settings: Vec::new(),
        simulator_flags: vec!["--latency".into(), format!("{LATENCY_MS}ms")],
    }
}

/// Batches that are not claimed, of the partitions of the engine that listens at `listen`: batch to partition.
fn unclaimed_of(cluster: &Cluster, listen: &str) -> Result<HashMap<u64, u16>> {
    let rows = cluster.database().query(&format!(
        "SELECT c.batch, c.partition FROM belfry.chunk c JOIN belfry.partition p ON p.id = c.partition \
         JOIN belfry.worker w ON w.id = p.owner WHERE c.lease_until IS NULL AND w.listen = '{listen}'"
    ))?;
    let parse = |row: &str| {
        let (batch, partition) = row.split_once('|').context("two columns")?;
        Ok((batch.parse()?, partition.parse()?))
    };
    rows.lines().map(parse).collect()
}

/// Waits until each partition has an owner other than the engine that listened at `listen`; microseconds since `from_us`.
fn await_owners(cluster: &Cluster, listen: &str, from_us: u64) -> Result<u64> {
    let clock = flow::Clock::system();
    loop {
        let orphans = cluster.database().query(&format!(
            "SELECT count(*) FROM belfry.partition p LEFT JOIN belfry.worker w ON w.id = p.owner \
             WHERE w.id IS NULL OR w.listen = '{listen}'"
        ))?;
        let waited_us = u64::try_from(clock.wall().as_micros())?.saturating_sub(from_us);
        if orphans.trim() == "0" {
            return Ok(waited_us);
        }
        ensure!(waited_us < 60_000_000, "partitions without an owner after a minute: {orphans}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// When the first notification of each partition of `orphans` was delivered after `from_us`. Its last owner had claimed
/// a few of them between our look and its end; those are delivered before `from_us`, or by another.
fn first_deliveries(
    cluster: &Cluster,
    orphans: &HashMap<u64, u16>,
    from_us: u64,
) -> Result<BTreeMap<u16, u64>> {
    let mut first = BTreeMap::new();
    let mut journal = Reader::open(&cluster.simulator().ready.journal)?;
    while let Some(record) = journal.next_record()? {
        // A request that was on its way at the kill is read at once.
        if record.received_us < from_us + LATENCY_MS * 1000 {
            continue;
        }
        let batch = batch_of(record.id).with_context(|| record.id.to_owned())?;
        if let Some(partition) = orphans.get(&batch) {
            first.entry(*partition).or_insert(record.received_us);
        }
    }
    Ok(first)
}

/// The batch in an identifier: 46 bits above the lowest 16.
fn batch_of(id: &str) -> Option<u64> {
    let hex: String = id.chars().filter(|letter| *letter != '-').collect();
    let low = u64::from_str_radix(hex.get(16..)?, 16).ok()?;
    Some((low >> 16) & ((1 << 46) - 1))
}

fn report(
    before: &[u64],
    meanwhile: &[u64],
    first_us: &BTreeMap<u16, u64>,
    killed_us: u64,
) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let usual = median(before);
    let rest = (usual * (ENGINES as u64 - 1) / ENGINES as u64).max(1);
    let lowest = meanwhile.iter().min().copied().unwrap_or(0);
    let mut taken_us: Vec<u64> = first_us.values().map(|first| first - killed_us).collect();
    taken_us.sort_unstable();
    let seconds =
        |us: Option<&u64>| us.map_or(f64::NAN, |us| Duration::from_micros(*us).as_secs_f64());
    writeln!(out, "delivered per second before the kill: {before:?}")?;
    writeln!(out, "delivered per second after the kill:  {meanwhile:?}")?;
    writeln!(
        out,
        "{} partitions of the killed engine with waiting work: served again after {:.1} s (first) to {:.1} s (last)",
        taken_us.len(),
        seconds(taken_us.first()),
        seconds(taken_us.last()),
    )?;
    writeln!(
        out,
        "the other {} delivered {rest} per second before; lowest second after the kill: {lowest}, {} %",
        ENGINES - 1,
        100 * lowest / rest,
    )?;
    Ok(())
}
