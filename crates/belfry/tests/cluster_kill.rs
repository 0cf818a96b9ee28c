//! Several processes on real servers, under random faults, counted at the provider. `scripts/cluster-kill-test.sh` runs
//! many rounds, here is a short one for each combination of servers.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bench::cluster::Backing;
use bench::cluster::round::Round;

fn round(backing: Backing, seed: u64) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let round = Round {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_belfry")),
        directory: directory.path().to_owned(),
        backing,
        seed,
        faults: 4,
        within: Duration::from_secs(6),
    };
    let plan = round.plan();
    let survived = round.run().with_context(|| format!("seed {seed}, {plan:#?}"))?;
    assert_eq!(survived.faults, plan.len(), "{survived:?}");
    Ok(())
}

// The seeds are of rounds that meet much in little time.

/// One engine is cut off the database, one killed, one stopped past its lease; PostgreSQL is stopped hard, and is away past every lease.
#[test]
fn a_cluster_on_postgres_alone_keeps_every_promise() {
    round(Backing::Postgres, 28).unwrap();
}

/// A consumer is cut off the broker, another killed, a producer stopped past its lease; the broker loses everything.
#[test]
fn a_cluster_with_rabbitmq_keeps_every_promise() {
    round(Backing::RabbitMq, 11).unwrap();
}

/// PostgreSQL is stopped hard and is away past every lease; a consumer is killed, another cut off the broker; the broker loses
/// everything.
#[test]
fn a_cluster_with_nats_keeps_every_promise() {
    round(Backing::Nats, 46).unwrap();
}

/// As behind the other brokers.
#[test]
fn a_cluster_with_kafka_keeps_every_promise() {
    round(Backing::Kafka, 46).unwrap();
}
