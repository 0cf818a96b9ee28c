//! 1, 2 and 4 consumers against a provider that takes 100 ms, with no setting changed:
//! `scaling BINARY postgres|rabbitmq|nats [REPETITIONS=3] [SECONDS=10]`.
//!
//! PostgreSQL alone has 1, 2 and 4 engines that do everything. Delivered per second in the middle of each run, counted
//! from the provider's journal; the repetitions take turns.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bench::cluster::{Backing, Cluster, ClusterSetup};
use bench::rate::{between, median};
use bench::{Workload, WorkloadGuarantee};

const CONSUMERS: [usize; 3] = [1, 2, 4];
const LATENCY_MS: u64 = 100;
/// Attempts under way at a time in one consumer: few enough that the provider is the limit, not this machine.
const CONCURRENCY: u64 = 200;
const PATIENCE: Duration = Duration::from_mins(5);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: scaling BINARY postgres|rabbitmq|nats [REPETITIONS] [SECONDS]";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let backing: Backing = arguments.next().context(usage)?.parse().context(usage)?;
    let mut number =
        |default: u64| arguments.next().map_or(Ok(default), |text| text.parse().context(usage));
    let (repetitions, seconds) = (number(3)?, number(10)?);
    let mut out = std::io::stdout().lock();
    let mut rates = CONSUMERS.map(|consumers| (consumers, Vec::new()));
    for _ in 0..repetitions {
        for (consumers, rates) in &mut rates {
            rates.push(run(&binary, backing, *consumers, seconds)?);
            writeln!(out, "{backing:?}, {consumers} consumers: {rates:?} delivered per second")?;
        }
    }
    let alone = rates.first().map_or(0, |(_, rates)| median(rates)).max(1);
    for (consumers, rates) in &rates {
        let hundredths = 100 * median(rates) / alone;
        let bound = *consumers as u64 * CONCURRENCY * 1000 / LATENCY_MS;
        writeln!(
            out,
            "{backing:?}, {consumers} consumers: median {} per second, {}.{:02} times one; the provider allows {bound}",
            median(rates),
            hundredths / 100,
            hundredths % 100,
        )?;
    }
    Ok(())
}

fn run(binary: &Path, backing: Backing, consumers: usize, seconds: u64) -> Result<u64> {
    let directory = tempfile::tempdir()?;
    let setting = |name: &str, value: u64| (format!("BELFRY__{name}"), value.to_string());
    let cluster = Cluster::start(&ClusterSetup {
        binary: binary.to_owned(),
        directory: directory.path().to_owned(),
        backing,
        roles: match backing {
            Backing::Postgres => backing.roles(0, consumers),
            Backing::RabbitMq | Backing::Nats | Backing::Kafka => backing.roles(1, consumers),
        },
        has_links: false,
        engine_settings: vec![setting("CHANNELS__IOS__CONCURRENCY", CONCURRENCY)],
        store_settings: Vec::new(),
        simulator_flags: vec!["--latency".into(), format!("{LATENCY_MS}ms")],
    })?;
    let tokens = seconds * consumers as u64 * CONCURRENCY * 1000 / LATENCY_MS;
    let content = r#"{"aps":{"alert":"news"}}"#;
    cluster.operator().broadcast(0..tokens, content, WorkloadGuarantee::AtLeastOnce)?;
    cluster.drain(tokens, PATIENCE)?;
    cluster.stop()?;
    let tally = cluster.books(&Workload { tokens, webhooks: Vec::new() })?.tally();
    ensure!(tally.accepted == tokens && tally.duplicates == 0, "{tally:?}");
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and far below 2^52"
    )]
    Ok(between(&tally.accepted_at_us, 0.1, 0.8).round() as u64)
}
