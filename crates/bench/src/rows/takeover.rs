//! `partitions-takeover`: what the original could not do. One of several engines on PostgreSQL is killed under load: its partitions must
//! have other owners within the lease, and what waited in them must be delivered within a second of that; and partitions must be filled
//! evenly, whatever the ids of an application are.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use provider_sim::journal::Reader;

use super::job::as_float;
use super::{Bench, PATIENCE, missing};
use crate::cluster::{Backing, Cluster, ClusterSetup};
use crate::process::EngineRole;
use crate::report::{Check, Point, RowReport, Unit};
use crate::workload::{Workload, WorkloadGuarantee};

const ENGINES: usize = 4;
const LATENCY_MS: u64 = 50;
/// Attempts under way at a time in one engine: few enough that the provider is the limit, not this machine.
const CONCURRENCY: u64 = 100;
/// Delivered per second and engine.
const RATE: u64 = CONCURRENCY * 1000 / LATENCY_MS;
/// Under load, before the kill and after it.
const BEFORE: Duration = Duration::from_secs(6);
const AFTER: Duration = Duration::from_secs(16);
/// A worker's lease on its partitions, seconds, and how soon after its end the first of what waited is delivered.
const LEASE: f64 = 10.0;
const SOON: f64 = 1.0;
/// Notifications that make a destination a busy one.
const WHILE_COLD: u64 = 20_000;
/// How far the fullest and the emptiest partition may be from the mean.
const UNEVEN: f64 = 0.1;
const CONTENT: &str = r#"{"aps":{"alert":"news"}}"#;

/// The figures of one kill; times since the kill, seconds.
#[derive(Debug, Clone, Copy)]
struct Takeover {
    owned: f64,
    /// The first delivery of what had waited unclaimed in the partitions of the killed engine.
    delivered: f64,
    lost: u64,
}

/// The report, or why it is left out.
pub(super) fn run(bench: &Bench) -> Result<Result<RowReport, String>> {
    let title = "One of four engines on PostgreSQL is killed under load: seconds until others deliver its work";
    let mut report = bench.report("partitions-takeover", title, Unit::Seconds);
    report.configuration = vec![
        ("engines".into(), ENGINES.to_string()),
        ("provider".into(), format!("APNs, {LATENCY_MS} ms, {CONCURRENCY} attempts an engine")),
        ("lease".into(), format!("{LEASE:.0} s")),
    ];
    let mut runs = Vec::new();
    for run in 1..=bench.repetitions {
        bench.say(format!("takeover, run {run}"));
        match kill_one(bench) {
            Ok(run) => runs.push(run),
            Err(error) => return missing("partitions-takeover", error).map(Err),
        }
    }
    let of = |value: fn(&Takeover) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    let lost = runs.iter().map(|run| run.lost).sum();
    let point = |setting: &str, values: &[f64]| Point {
        lost,
        ..Point::of_runs(setting, Unit::Seconds, values)
    };
    let (owned, delivered) = (of(|run| run.owned), of(|run| run.delivered));
    report.points.push(point("its partitions have other owners", &owned));
    report.points.push(point("what waited in them is delivered", &delivered));
    let greatest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    report.checks.push(Check::at_most(
        "partitions move within the lease, s",
        greatest(&owned),
        LEASE + SOON,
    ));
    let behind: Vec<f64> = owned.iter().zip(&delivered).map(|(owned, done)| done - owned).collect();
    report.checks.push(Check::at_most(
        "and their work is delivered so soon after that, s",
        greatest(&behind),
        SOON,
    ));
    report.checks.push(Check::at_most(
        "partitions differ from their mean, as a part of it",
        evenness(bench)?,
        UNEVEN,
    ));
    report.notes.push(
        "attempts under way at the kill are repeated: they are not counted as doubled here".into(),
    );
    Ok(Ok(report))
}

/// Notifications that wait in each partition.
fn waiting(cluster: &Cluster) -> Result<Vec<u64>> {
    let counts = cluster.database().query(
        "SELECT coalesce(sum(c.count), 0) FROM belfry.partition p LEFT JOIN belfry.chunk c ON c.partition = p.id \
         GROUP BY p.id ORDER BY p.id",
    )?;
    Ok(counts.lines().map(|line| line.trim().parse()).collect::<Result<_, _>>()?)
}

fn kill_one(bench: &Bench) -> Result<Takeover> {
    let directory = bench.directory()?;
    let cluster = Cluster::start(&setup(bench.binary().to_owned(), directory.path().to_owned()))?;
    // Work for all of it, and some that is left at the end.
    let tokens = ENGINES as u64 * RATE * (BEFORE + AFTER).as_secs();
    let clock = flow::Clock::system();
    cluster.operator().broadcast(0..tokens, CONTENT, WorkloadGuarantee::AtLeastOnce)?;
    std::thread::sleep(BEFORE);
    let victim = cluster.workers().last().context("there are engines")?;
    let orphans = unclaimed_of(&cluster, victim.listen())?;
    ensure!(!orphans.is_empty(), "the killed engine had no partition with unclaimed work");
    victim.kill()?;
    let killed_us = u64::try_from(clock.wall().as_micros())?;
    let owned_us = await_owners(&cluster, victim.listen(), killed_us)?;
    std::thread::sleep(AFTER.saturating_sub(Duration::from_micros(owned_us)));
    let first_us = first_deliveries(&cluster, &orphans, killed_us)?;
    victim.start()?;
    cluster.drain(tokens, PATIENCE)?;
    cluster.stop()?;
    let tally = cluster.books(&Workload { tokens, webhooks: Vec::new() })?.tally();
    let first = first_us.values().min().context("nothing of the killed engine was delivered")?;
    let seconds = |micros: u64| Duration::from_micros(micros).as_secs_f64();
    Ok(Takeover {
        owned: seconds(owned_us),
        delivered: seconds(first.saturating_sub(killed_us)),
        lost: tally.missing,
    })
}

/// How far the fullest or the emptiest partition is from the mean, as a part of it: one-offs with ids that all leave the same rest
/// when they are divided, which would all be one thread's.
fn evenness(bench: &Bench) -> Result<f64> {
    let directory = bench.directory()?;
    let setup = ClusterSetup {
        roles: vec![EngineRole::Serve],
        simulator_flags: vec!["--latency".into(), "60s".into()],
        ..setup(bench.binary().to_owned(), directory.path().to_owned())
    };
    let cluster = Cluster::start(&setup)?;
    let import = |numbers: std::ops::Range<u64>| {
        let prefix = format!("skewed-{}-", numbers.start);
        cluster.operator().import(numbers, WorkloadGuarantee::AtLeastOnce, &prefix)
    };
    // A destination that has had little until now is one partition's; from then on it is spread.
    import(0..WHILE_COLD)?;
    let cold = waiting(&cluster)?;
    import(WHILE_COLD..WHILE_COLD + bench.size.pick(2_000_000, 4_000_000))?;
    let counts = waiting(&cluster)?;
    let counts: Vec<u64> = counts.iter().zip(&cold).map(|(all, cold)| all - cold).collect();
    let mean = as_float(counts.iter().sum()) / as_float(counts.len().max(1) as u64);
    let far = counts.iter().map(|count| (as_float(*count) - mean).abs() / mean.max(1.0));
    Ok(far.fold(0.0, f64::max))
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
