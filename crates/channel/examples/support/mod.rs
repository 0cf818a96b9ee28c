//! What the examples that measure a channel share: a chunk, a run over it, and what it cost.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use channel::{Channel, Job, Reports, Sender, Tools};
use flow::{Clock, Fixed, Gate};
use futures_util::StreamExt as _;
use notification::{
    BatchId, ByteString, Bytes, Chunk, ChunkId, Content, Delivery, Envelope, Epoch, Guarantee,
    Lane, Priority, Report, Timestamp, Verdict,
};

/// As deliver does it.
const CHUNKS_AT_A_TIME: usize = 8;
const WARM_UP: usize = 20_000;

/// Flags and their values.
#[derive(Debug)]
pub struct Arguments {
    /// How many requests to measure.
    pub requests: usize,
    /// Bytes of each payload.
    pub body_bytes: usize,
    /// Settings of the channel, by name.
    pub settings: serde_json::Value,
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

/// Sends chunks of 1,000 to `recipient` of 0 to 999, eight at a time, and prints what that cost the sending thread.
///
/// # Errors
/// When the channel does not open, or Linux does not say what a thread has used.
pub async fn measure(
    channel: &dyn Channel,
    requests: usize,
    payload: String,
    recipient: impl Fn(u16) -> String,
) -> Result<(), Box<dyn Error>> {
    let clock = Clock::system();
    let sender = channel.open(Tools { clock, seed: 1 })?;
    let gate = Gate::new(Box::new(Fixed(channel.concurrency())));
    let chunk = chunk(clock, payload, recipient)?;
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
    let warm_up = local.run_until(run(WARM_UP)).await;
    let (started, cpu_started) = (clock.monotonic(), thread_cpu()?);
    let accepted = local.run_until(run(requests)).await;
    let (took, cpu) = (clock.monotonic() - started, thread_cpu()?.saturating_sub(cpu_started));
    local.run_until(sender.close()).await;
    #[expect(clippy::print_stdout, reason = "an example that measures has nothing else to say")]
    {
        println!("warm-up     {warm_up} accepted");
        println!("accepted    {accepted} of {requests}");
        println!("per second  {:.0}", per(requests, took.as_secs_f64()));
        println!("CPU         {:.2} us per request", 1e6 / per(requests, cpu.as_secs_f64()));
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

fn chunk(
    clock: Clock,
    payload: String,
    recipient: impl Fn(u16) -> String,
) -> Result<Chunk, Box<dyn Error>> {
    let deliveries = (0..1000).map(|index: u16| Delivery {
        index,
        recipient: ByteString::from(recipient(index)),
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
                channel: "measured".parse()?,
                destination: Arc::from("provider"),
                priority: Priority::Normal,
            },
            guarantee: Guarantee::AtLeastOnce,
            due_at: Timestamp::from_millis(0),
            expires_at: None,
            broadcast: None,
        },
        attempt: 1,
        content: Some(Content { payload: Bytes::from(payload), options: Bytes::new() }),
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
    /// Reads the command line: `--requests`, `--body-bytes`, and whatever else as a setting of that name.
    ///
    /// # Errors
    /// When a flag has no value, or a number is none.
    pub fn read(mut settings: serde_json::Value) -> Result<Self, Box<dyn Error>> {
        let (mut requests, mut body_bytes) = (1_000_000, 130);
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--requests" => requests = value.parse()?,
                "--body-bytes" => body_bytes = value.parse()?,
                _ => {
                    let name = flag.trim_start_matches('-').replace('-', "_");
                    let value = value.parse::<u64>().map_or_else(|_| value.into(), Into::into);
                    settings.as_object_mut().ok_or("settings are an object")?.insert(name, value);
                }
            }
        }
        Ok(Self { requests, body_bytes, settings })
    }
}
