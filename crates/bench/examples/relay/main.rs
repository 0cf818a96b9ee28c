//! `belfry relay --direct` beside what it replaces: `relay row|copy|pressure BINARY [ROUNDS=3]`.
//!
//! - `row`: SQS to Kinesis, beside a pool of threads with one blocking call each (receive one, put one, delete one), 6 threads and then 3, on
//!   the same servers (`ElasticMQ` and moto), in turn; each for 10 s, on one processor and on two. Counted at the queue.
//! - `copy`: a million records from one Kafka topic to another, beside a plain copy with the same client library (poll, enqueue, wait,
//!   commit), in turn. Counted by the offsets of the target.
//! - `pressure`: a million records wait in Kafka, and 20,000 messages in SQS, while the target is stopped for a minute.

#![expect(clippy::print_stdout, reason = "a measurement prints")]
#![expect(clippy::cast_precision_loss, reason = "figures for people, of thousands and millions")]

mod counting;
mod kafka;
mod pool;
mod pressure;
mod row;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// A process that ends with the holder of this.
#[derive(Debug)]
struct Running(Child);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let rounds = |text: Option<&&str>| text.map_or(Ok(3), |text| text.parse::<usize>());
    match words.as_slice() {
        ["row", binary, rest @ ..] => row::run(Path::new(binary), rounds(rest.first())?),
        ["copy", binary, rest @ ..] => kafka::run(Path::new(binary), rounds(rest.first())?),
        ["pressure", binary] => pressure::run(Path::new(binary)),
        // What is measured beside the relay, in a process of its own.
        ["pool", from, to, threads] => pool::run(from, to, threads.parse()?),
        ["plain-copy", from, to] => kafka::plain_copy(from, to),
        _other => bail!("usage: relay row|copy|pressure BINARY [ROUNDS]"),
    }
}

/// This program.
fn myself() -> Result<PathBuf> {
    std::env::current_exe().context("the program has no path")
}

/// Starts `binary` with `arguments`, on the first `processors` alone.
fn pinned(binary: &Path, arguments: &[&str], processors: usize) -> Result<Running> {
    let list = if processors == 1 { "0".to_owned() } else { format!("0-{}", processors - 1) };
    let mut command = Command::new("taskset");
    command.args(["-c", &list]).arg(binary).args(arguments);
    spawn(command)
}

fn spawn(mut command: Command) -> Result<Running> {
    Ok(Running(command.stdout(Stdio::null()).spawn().context("taskset is needed")?))
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

// === impl Running ===

impl Running {
    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}
