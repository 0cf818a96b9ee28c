//! What one mail over the SMTP channel costs, beside Postfix's own `smtp-source`: throughput, and CPU time of the sender.
//!
//! ```text
//! cargo run --release -p channel --example smtp_speed -- [--mails 100000] [--connections 16] [--body-bytes 2048] [--rounds 5]
//! ```
//!
//! Both send to one `smtp-sink`, in turn, mails with as many bytes in their bodies. `smtp-source` is a process, counted as a
//! whole; the channel is a thread, counted as that. Chunks of 1,000 are sent, eight at a time, as deliver does it.

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use channel::smtp::{Settings, SmtpChannel};
use channel::{Channel as _, Job, Reports, Sender, Tools};
use flow::{Clock, Fixed, Gate};
use futures_util::StreamExt as _;
use notification::{
    BatchId, ByteString, Bytes, Chunk, ChunkId, Content, Delivery, Envelope, Epoch, Guarantee,
    Lane, Priority, Report, Timestamp, Verdict,
};
use testbed::SmtpSink;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CHUNKS_AT_A_TIME: usize = 8;

#[derive(Debug)]
struct Arguments {
    mails: usize,
    connections: usize,
    body_bytes: usize,
    rounds: usize,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    per_second: f64,
    cpu_us: f64,
}

#[derive(Debug, Default)]
struct Accepted(std::cell::Cell<usize>);

#[async_trait(?Send)]
impl Reports for Accepted {
    async fn report(&self, reports: Vec<(u16, Report)>) {
        let accepted = |(_, report): &&(u16, Report)| matches!(report, Report::Attempted(answer) if answer.verdict == Verdict::Accepted);
        self.0.set(self.0.get() + reports.iter().filter(accepted).count());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read()?;
    let sink = SmtpSink::start()?;
    let clock = Clock::system();
    let settings: Settings = serde_json::from_value(serde_json::json!({
        "relay": format!("smtp://127.0.0.1:{}", sink.port()),
        "helo": "client.example",
        "from": "news@example.com",
        "connections_max": arguments.connections,
    }))?;
    let channel = SmtpChannel::new(&settings)?;
    let sender = channel.open(Tools { clock, seed: 1 })?;
    let chunk = chunk(clock, arguments.body_bytes)?;
    let local = tokio::task::LocalSet::new();
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for round in 0..=arguments.rounds {
        let floor = source(&arguments, sink.port(), clock)?;
        let own = local.run_until(ours_once(&arguments, &*sender, &chunk, clock)).await?;
        // The first round warms up.
        if round > 0 {
            show(&format!("round {round}"), floor, own);
            floors.push(floor);
            ours.push(own);
        }
    }
    local.run_until(sender.close()).await;
    show("median", median(&floors), median(&ours));
    Ok(())
}

/// Sends with the channel.
async fn ours_once(
    arguments: &Arguments,
    sender: &dyn Sender,
    chunk: &Chunk,
    clock: Clock,
) -> Result<Measured, Box<dyn Error>> {
    let gate = Gate::new(Box::new(Fixed(arguments.connections)));
    let accepted = Accepted::default();
    let (started, cpu_started) = (clock.monotonic(), thread_cpu()?);
    let jobs = futures_util::stream::iter(0..arguments.mails / chunk.deliveries.len());
    jobs.for_each_concurrent(CHUNKS_AT_A_TIME, |_| send(sender, &gate, chunk, &accepted, clock))
        .await;
    let (took, cpu) = (clock.monotonic() - started, thread_cpu()?.saturating_sub(cpu_started));
    if accepted.0.get() != arguments.mails {
        return Err(format!("{} of {} were accepted", accepted.0.get(), arguments.mails).into());
    }
    Ok(Measured::new(arguments.mails, took, cpu))
}

/// Sends with `smtp-source`.
fn source(arguments: &Arguments, port: u16, clock: Clock) -> Result<Measured, Box<dyn Error>> {
    let number = |count: usize| count.to_string();
    let mut command = Command::new("/usr/sbin/smtp-source");
    // One session per connection, as we do it.
    command.args(["-d", "-s", &number(arguments.connections), "-m", &number(arguments.mails)]);
    command.args(["-l", &number(arguments.body_bytes), "-f", "news@example.com"]);
    command.args(["-t", "reader@example.org"]).arg(format!("inet:127.0.0.1:{port}"));
    let (started, cpu_started) = (clock.monotonic(), children_cpu()?);
    let status = command.status()?;
    let (took, cpu) = (clock.monotonic() - started, children_cpu()?.saturating_sub(cpu_started));
    if !status.success() {
        return Err(format!("smtp-source ended with {status}: is postfix installed?").into());
    }
    Ok(Measured::new(arguments.mails, took, cpu))
}

async fn send(sender: &dyn Sender, gate: &Gate, chunk: &Chunk, reports: &Accepted, clock: Clock) {
    let mut chunk = chunk.clone();
    chunk.lease_until = channel::timestamp(clock).plus(notification::limits::LEASE);
    let (_running, stopping) = tokio::sync::watch::channel(false);
    let deliveries = &chunk.deliveries;
    let stopping = &stopping;
    let (chunk, tenure) = (&chunk, &flow::tenure::UNLIMITED);
    sender.send(Job { chunk, deliveries, gate, reports, clock, stopping, tenure }).await;
}

fn chunk(clock: Clock, body_bytes: usize) -> Result<Chunk, Box<dyn Error>> {
    let line = "a line of a mail with a usual length, about seventy characters of it.\n";
    let text = line.repeat(body_bytes.div_ceil(line.len()));
    let payload = serde_json::json!({ "subject": "A subject of the usual length", "text": text });
    let deliveries = (0..1000).map(|index: u16| Delivery {
        index,
        recipient: ByteString::from(format!("reader{index}@example.org")),
        content: None,
    });
    Ok(Chunk {
        id: ChunkId(1),
        epoch: Epoch(1),
        lease_until: Timestamp::MAX,
        tenure: 0,
        batch: BatchId(1),
        realm: 1,
        accepted_at: channel::timestamp(clock),
        envelope: Envelope {
            tenant: "default".parse()?,
            lane: Lane {
                channel: "mail".parse()?,
                destination: Arc::from("relay"),
                priority: Priority::Normal,
            },
            guarantee: Guarantee::AtLeastOnce,
            due_at: Timestamp::from_millis(0),
            expires_at: None,
            broadcast: None,
        },
        attempt: 1,
        content: Some(Content { payload: Bytes::from(payload.to_string()), ..Content::default() }),
        deliveries: deliveries.collect(),
    })
}

#[expect(clippy::print_stdout, reason = "an example that measures has nothing else to say")]
fn show(what: &str, floor: Measured, own: Measured) {
    println!(
        "{what:8}  smtp-source {:7.0}/s {:6.1} us CPU   channel {:7.0}/s {:6.1} us CPU   CPU ratio {:.2}",
        floor.per_second,
        floor.cpu_us,
        own.per_second,
        own.cpu_us,
        own.cpu_us / floor.cpu_us
    );
}

fn median(measured: &[Measured]) -> Measured {
    let middle = |of: fn(&Measured) -> f64| {
        let mut values: Vec<f64> = measured.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Measured { per_second: middle(|one| one.per_second), cpu_us: middle(|one| one.cpu_us) }
}

/// The CPU time of this thread, as Linux counts it.
fn thread_cpu() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().ok_or("an empty schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// The CPU time of the processes that this one waited for, in ticks of 10 ms.
fn children_cpu() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit_once(')').ok_or("an odd stat")?.1;
    let ticks = |number: usize| -> Result<u64, Box<dyn Error>> {
        Ok(fields.split_whitespace().nth(number).ok_or("a short stat")?.parse()?)
    };
    Ok(Duration::from_millis(10 * (ticks(13)? + ticks(14)?)))
}

// === impl Measured ===

impl Measured {
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    fn new(mails: usize, took: Duration, cpu: Duration) -> Self {
        let mails = mails as f64;
        Self { per_second: mails / took.as_secs_f64(), cpu_us: 1e6 * cpu.as_secs_f64() / mails }
    }
}

// === impl Arguments ===

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let mut arguments = Self { mails: 100_000, connections: 16, body_bytes: 2048, rounds: 5 };
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?.parse()?;
            match flag.as_str() {
                "--mails" => arguments.mails = value,
                "--connections" => arguments.connections = value,
                "--body-bytes" => arguments.body_bytes = value,
                "--rounds" => arguments.rounds = value,
                _ => return Err(format!("{flag} is unknown").into()),
            }
        }
        Ok(arguments)
    }
}
