//! What one request over the APNs channel costs the sending thread, in CPU time.
//!
//! ```text
//! cargo run --release -p channel --example apns_speed -- \
//!     --endpoint https://127.0.0.1:8443 --ca-file cert.pem --key-file key.p8 [--requests 1000000] [--body-bytes 130]
//! ```
//!
//! The server must answer 200 to `/3/device/<token>` for the tokens 0 to 999, written with 64 digits.
//! Chunks of 1,000 are sent, eight at a time, as deliver does it.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use channel::apns::{ApnsChannel, Settings};
use channel::{Channel as _, Job, Reports, Sender, Tools};
use flow::{Clock, Fixed, Gate};
use futures_util::StreamExt as _;
use notification::{
    BatchId, ByteString, Bytes, Chunk, ChunkId, Content, Delivery, Envelope, Epoch, Guarantee,
    Lane, Priority, Report, Timestamp, Verdict,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CHUNKS_AT_A_TIME: usize = 8;

#[derive(Debug)]
struct Arguments {
    settings: Settings,
    requests: usize,
    body_bytes: usize,
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
    let clock = Clock::system();
    let channel = ApnsChannel::new(&arguments.settings)?;
    let sender = channel.open(Tools { clock, seed: 1 })?;
    let gate = Gate::new(Box::new(Fixed(channel.concurrency())));
    let chunk = chunk(clock, arguments.body_bytes)?;
    let run = async |requests: usize| {
        let accepted = Accepted::default();
        let jobs = futures_util::stream::iter(0..requests / chunk.deliveries.len());
        jobs.for_each_concurrent(CHUNKS_AT_A_TIME, |_| {
            send(&*sender, &gate, &chunk, &accepted, clock)
        })
        .await;
        accepted.0.get()
    };
    let local = tokio::task::LocalSet::new();
    let warm_up = local.run_until(run(20_000)).await;
    let (started, cpu_started) = (clock.monotonic(), thread_cpu()?);
    let accepted = local.run_until(run(arguments.requests)).await;
    let (took, cpu) = (clock.monotonic() - started, thread_cpu()?.saturating_sub(cpu_started));
    local.run_until(sender.close()).await;
    #[expect(clippy::print_stdout, reason = "an example that measures has nothing else to say")]
    {
        println!("warm-up     {warm_up} accepted");
        println!("accepted    {accepted} of {}", arguments.requests);
        println!("per second  {:.0}", per(arguments.requests, took.as_secs_f64()));
        println!(
            "CPU         {:.2} us per request",
            1e6 / per(arguments.requests, cpu.as_secs_f64())
        );
    }
    Ok(())
}

async fn send(sender: &dyn Sender, gate: &Gate, chunk: &Chunk, reports: &Accepted, clock: Clock) {
    let mut chunk = chunk.clone();
    chunk.lease_until = channel::timestamp(clock).plus(Duration::from_mins(2));
    let (_running, stopping) = tokio::sync::watch::channel(false);
    let deliveries = &chunk.deliveries;
    let stopping = &stopping;
    let (chunk, tenure) = (&chunk, &flow::tenure::UNLIMITED);
    sender.send(Job { chunk, deliveries, gate, reports, clock, stopping, tenure }).await;
}

fn chunk(clock: Clock, body_bytes: usize) -> Result<Chunk, Box<dyn Error>> {
    let frame = r#"{"aps":{"alert":""}}"#.len();
    let alert = "x".repeat(body_bytes.saturating_sub(frame));
    let payload = Bytes::from(format!(r#"{{"aps":{{"alert":"{alert}"}}}}"#));
    let deliveries = (0..1000).map(|index: u16| Delivery {
        index,
        recipient: ByteString::from(format!("{index:064}")),
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
                channel: "ios".parse()?,
                destination: Arc::from("apns"),
                priority: Priority::Normal,
            },
            guarantee: Guarantee::AtLeastOnce,
            due_at: Timestamp::from_millis(0),
            expires_at: None,
            broadcast: None,
        },
        attempt: 1,
        content: Some(Content { payload, options: Bytes::new(), fallback: None }),
        deliveries: deliveries.collect(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn per(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// The CPU time of this thread, as Linux counts it.
fn thread_cpu() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().ok_or("an empty schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

// === impl Arguments ===

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let (mut requests, mut body_bytes) = (1_000_000, 130);
        let mut settings = serde_json::json!({
            "key_id": "KEY0123456",
            "team_id": "TEAM012345",
            "topic": "com.example.app",
        });
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--requests" => requests = value.parse()?,
                "--body-bytes" => body_bytes = value.parse()?,
                "--endpoint" => put(&mut settings, "endpoint", value),
                "--ca-file" => put(&mut settings, "ca_file", PathBuf::from(value)),
                "--key-file" => put(&mut settings, "key_file", PathBuf::from(value)),
                "--concurrency" => put(&mut settings, "concurrency", value.parse::<usize>()?),
                _ => return Err(format!("{flag} is unknown").into()),
            }
        }
        Ok(Self { settings: serde_json::from_value(settings)?, requests, body_bytes })
    }
}

fn put(settings: &mut serde_json::Value, name: &str, value: impl serde::Serialize) {
    if let (Some(fields), Ok(value)) = (settings.as_object_mut(), serde_json::to_value(value)) {
        fields.insert(name.to_owned(), value);
    }
}
