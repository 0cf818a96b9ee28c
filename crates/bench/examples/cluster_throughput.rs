//! A million notifications end to end on one machine, with the servers, the engines and the provider on its cores:
//! `cluster_throughput BINARY postgres|rabbitmq|nats [NOTIFICATIONS=1000000] [RUNS=3] [broadcast|import]`.
//!
//! PostgreSQL alone has one engine that does everything; with a broker one produces and one consumes. Everything is
//! counted from the provider's journal. CPU is of whole process trees.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::cluster::{Backing, Cluster, ClusterSetup};
use bench::rate::{between, median};
use bench::{Workload, WorkloadGuarantee};

/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(20);
/// Settings that an operator would choose for such a load on such a machine; commits stay durable.
const STORE_SETTINGS: &[(&str, &str)] = &[("shared_buffers", "1GB"), ("max_wal_size", "8GB")];
/// Rows of one `import`, of which this many run at a time.
const IMPORTS: u64 = 2;

#[derive(Debug, Clone, Copy)]
enum Way {
    Broadcast,
    Import,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: cluster_throughput BINARY postgres|rabbitmq|nats [NOTIFICATIONS] [RUNS] [broadcast|import]";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let backing: Backing = arguments.next().context(usage)?.parse().context(usage)?;
    let mut number =
        |default: u64| arguments.next().map_or(Ok(default), |text| text.parse().context(usage));
    let (notifications, runs) = (number(1_000_000)?, number(3)?);
    let way = match arguments.next().as_deref() {
        None | Some("broadcast") => Way::Broadcast,
        Some("import") => Way::Import,
        Some(_) => bail!(usage),
    };
    let mut per_minute = Vec::new();
    for _ in 0..runs {
        per_minute.push(run(binary.clone(), backing, notifications, way)?);
    }
    let median = median(&per_minute);
    writeln!(
        std::io::stdout(),
        "{backing:?}, {way:?}: median {median} per minute, end to end, of {per_minute:?}"
    )?;
    Ok(())
}

/// One run on fresh servers. Returns the notifications per minute from the first byte of the request to the last
/// delivery.
fn run(binary: PathBuf, backing: Backing, notifications: u64, way: Way) -> Result<u64> {
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::start(&ClusterSetup {
        binary,
        directory: directory.path().to_owned(),
        backing,
        roles: match backing {
            Backing::Postgres => backing.roles(1, 0),
            Backing::RabbitMq | Backing::Nats | Backing::Kafka => backing.roles(1, 1),
        },
        has_links: false,
        engine_settings: Vec::new(),
        store_settings: STORE_SETTINGS.to_vec(),
        simulator_flags: Vec::new(),
    })?;
    let before = cluster.cpu()?;
    let clock = flow::Clock::system();
    let began_us = u64::try_from(clock.wall().as_micros())?;
    ask(&cluster, notifications, way)?;
    let accepted_us = u64::try_from(clock.wall().as_micros())?;
    let mut journal = cluster.journal()?;
    let started = clock.monotonic();
    while journal.lines()? < notifications {
        ensure!(
            clock.monotonic().duration_since(started) < PATIENCE,
            "not done after {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    cluster.drain(notifications, PATIENCE)?;
    let cpu = cluster.cpu()?;
    cluster.stop()?;
    let tally = cluster.books(&Workload { tokens: notifications, webhooks: Vec::new() })?.tally();
    ensure!(tally.accepted == notifications && tally.duplicates == 0, "{tally:?}");

    let last_us = tally.accepted_by_us(1.0).context("nothing was delivered")?;
    let end_to_end = per_second(notifications, last_us - began_us);
    let each = |group: fn(&bench::cluster::Cpu) -> Duration| {
        group(&cpu).saturating_sub(group(&before)).as_secs_f64() * 1e6 / as_float(notifications)
    };
    writeln!(
        std::io::stdout(),
        "{backing:?}, {way:?}: {end_to_end:.0}/s end to end ({:.0} a minute); taken in {:.0}/s; delivered {:.0}/s first \
         to last, {:.0}/s in the middle; CPU us each: engines {:.1}, PostgreSQL {:.1}, broker {:.1}, provider {:.1}",
        60.0 * end_to_end,
        per_second(notifications, accepted_us - began_us),
        between(&tally.accepted_at_us, 0.0, 1.0),
        between(&tally.accepted_at_us, 0.1, 0.9),
        each(|cpu| cpu.engines),
        each(|cpu| cpu.store),
        each(|cpu| cpu.broker),
        each(|cpu| cpu.simulator),
    )?;
    Ok(60_000_000 * notifications / (last_us - began_us))
}

fn ask(cluster: &Cluster, notifications: u64, way: Way) -> Result<()> {
    let client = cluster.operator();
    match way {
        Way::Broadcast => client.broadcast(
            0..notifications,
            r#"{"aps":{"alert":"news"}}"#,
            WorkloadGuarantee::AtLeastOnce,
        ),
        Way::Import => std::thread::scope(|scope| {
            let share = notifications.div_ceil(IMPORTS);
            let imports: Vec<_> = (0..IMPORTS)
                .map(|i| {
                    let numbers = i * share..((i + 1) * share).min(notifications);
                    scope.spawn(move || {
                        client.import(
                            numbers,
                            WorkloadGuarantee::AtLeastOnce,
                            &format!("part-{i}-"),
                        )
                    })
                })
                .collect();
            imports.into_iter().try_for_each(|import| {
                import.join().unwrap_or_else(|_| bail!("an import panicked"))
            })
        }),
    }
}

fn per_second(count: u64, span_us: u64) -> f64 {
    as_float(count) * 1e6 / as_float(span_us.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "counts of millions fit a double")]
fn as_float(count: u64) -> f64 {
    count as f64
}
