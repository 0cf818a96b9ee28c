//! A target of `belfry relay --direct` that is stopped for a minute, with much waiting at the source: `relay_pressure BINARY`.
//!
//! A million records wait in Kafka, and 20,000 messages in SQS. Memory of the relay is printed while its target is stopped (SIGSTOP), and
//! what came when it went on.

#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bench::Usage;
use bench::rows::stream::{KafkaRig, MESSAGES, PinnedProcess, StreamRig, from_url, to_url};

/// While the target is stopped.
const STOPPED: Duration = Duration::from_mins(1);
/// Before it is stopped.
const BEFORE: Duration = Duration::from_secs(2);
const SQS_MESSAGES: usize = 20_000;
const LOOK_EVERY: Duration = Duration::from_secs(5);

fn main() -> Result<()> {
    let binary = std::env::args_os().nth(1).context("usage: relay_pressure BINARY")?;
    from_kafka(Path::new(&binary))?;
    from_sqs(Path::new(&binary))
}

/// From one node to another, which is stopped (SIGSTOP): a million wait.
fn from_kafka(binary: &Path) -> Result<()> {
    let (from, to) = (KafkaRig::start()?, KafkaRig::start()?);
    from.fill(MESSAGES)?;
    to.create("to")?;
    let (from_url, to_url) = (format!("{}/from?group=g", from.url()), format!("{}/to", to.url()));
    let process = to.process().context("the node runs")?;
    // Stopped before the relay begins: all of the million wait.
    signal(process, "-STOP")?;
    let running = PinnedProcess::start(
        binary,
        &["relay", "--direct", "--from", &from_url, "--to", &to_url],
        2,
    )?;
    watch("Kafka", running.id(), STOPPED)?;
    signal(process, "-CONT")?;
    while to.count("to")? < i64::from(MESSAGES) {
        thread::sleep(LOOK_EVERY);
    }
    let usage = Usage::of_process(running.id())?;
    let count = to.count("to")?;
    println!(
        "Kafka: all came, {count} of {}; {} MiB at most",
        MESSAGES,
        usage.memory_bytes_max >> 20
    );
    Ok(())
}

/// From SQS to Kinesis, which is stopped: what is in hand is more than its visibility (30 s) old.
fn from_sqs(binary: &Path) -> Result<()> {
    let rig = StreamRig::start()?;
    rig.fill(SQS_MESSAGES)?;
    let process = rig.target_process().context("moto runs")?;
    let (queues, streams) = rig.endpoints();
    let (from, to) = (from_url(&queues), to_url(&streams));
    let running =
        PinnedProcess::start(binary, &["relay", "--direct", "--from", &from, "--to", &to], 2)?;
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
    println!("SQS: all came, {:?} of {SQS_MESSAGES} messages", rig.arrived()?);
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
