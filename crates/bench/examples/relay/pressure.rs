//! A target that is stopped for a minute, with much waiting at the source.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bench::Usage;

use crate::{kafka, pinned, row};

/// While the target is stopped.
const STOPPED: Duration = Duration::from_mins(1);
/// Before it is stopped.
const BEFORE: Duration = Duration::from_secs(2);
const SQS_MESSAGES: usize = 20_000;
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn run(binary: &Path) -> Result<()> {
    from_kafka(binary)?;
    from_sqs(binary)
}

/// From one node to another, which is stopped (SIGSTOP): a million wait.
fn from_kafka(binary: &Path) -> Result<()> {
    let (from, to) = (kafka::Rig::start()?, kafka::Rig::start()?);
    from.fill(kafka::MESSAGES)?;
    to.create("to")?;
    let (from_url, to_url) =
        (format!("{}/from?group=g", from.node.url()), format!("{}/to", to.node.url()));
    let process = to.node.process().context("the node runs")?;
    // Stopped before the relay begins: all of the million wait.
    signal(process, "-STOP")?;
    let running = pinned(binary, &["relay", "--direct", "--from", &from_url, "--to", &to_url], 2)?;
    watch("Kafka", running.id(), STOPPED)?;
    signal(process, "-CONT")?;
    while to.count("to")? < i64::from(kafka::MESSAGES) {
        thread::sleep(LOOK_EVERY);
    }
    let usage = Usage::of_process(running.id())?;
    let count = to.count("to")?;
    println!(
        "Kafka: all came, {count} of {}; {} MiB at most",
        kafka::MESSAGES,
        usage.memory_bytes_max >> 20
    );
    Ok(())
}

/// From SQS to Kinesis, which is stopped: what is in hand is more than its visibility (30 s) old.
fn from_sqs(binary: &Path) -> Result<()> {
    let mut rig = row::Rig::start()?;
    rig.fill(SQS_MESSAGES)?;
    let process = rig.streams.process().context("moto runs")?;
    let (from, to) = (row::from_url(&rig.queues.url()), row::to_url(&rig.streams.url()));
    let running = pinned(binary, &["relay", "--direct", "--from", &from, "--to", &to], 2)?;
    thread::sleep(BEFORE);
    signal(process, "-STOP")?;
    thread::sleep(LOOK_EVERY);
    let before = rig.attributes()?;
    watch("SQS", running.id(), STOPPED)?;
    println!("SQS: visible and in hand {before:?} at first, {:?} after it", rig.attributes()?);
    signal(process, "-CONT")?;
    while rig.left()? > 0 {
        thread::sleep(Duration::from_secs(1));
    }
    println!("SQS: all came, {} records of {SQS_MESSAGES} messages", rig.records()?);
    Ok(())
}

fn watch(what: &str, process: u32, span: Duration) -> Result<()> {
    for _ in 0..span.as_secs() / LOOK_EVERY.as_secs() {
        thread::sleep(LOOK_EVERY);
        let usage = Usage::of_process(process)?;
        println!(
            "{what}, stopped: {} MiB, {} MiB at most",
            usage.memory_bytes >> 20,
            usage.memory_bytes_max >> 20
        );
    }
    Ok(())
}

fn signal(process: u32, signal: &str) -> Result<()> {
    let process = process.to_string();
    let sent = std::process::Command::new("kill").args([signal, &process]).status()?;
    anyhow::ensure!(sent.success(), "kill {signal} {process}");
    Ok(())
}
