//! What one message over the Web Push channel costs the sending thread, in CPU time, and how much of that is the key
//! agreement.
//!
//! ```text
//! cargo run --release -p channel --example webpush_speed -- \
//!     --endpoint https://127.0.0.1:8443 --ca-file cert.pem [--requests 200000] [--body-bytes 100]
//! ```
//!
//! The server must answer 200 or 201 to `/push/0` to `/push/999`. Chunks of 1,000, each for another subscription, are sent,
//! two at a time, as deliver does it.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use channel::webpush::{Settings, VapidKey, WebPushChannel};
use channel::{Channel as _, Job, Reports, Sender, Tools};
use flow::{Clock, Fixed, Gate};
use futures_util::StreamExt as _;
use notification::{
    BatchId, ByteString, Bytes, Chunk, ChunkId, Content, Delivery, Envelope, Epoch, Guarantee,
    Lane, Priority, Report, Timestamp, Verdict,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CHUNKS_AT_A_TIME: usize = 2;
const AGREEMENTS: u32 = 20_000;

#[derive(Debug)]
struct Arguments {
    settings: Settings,
    endpoint: String,
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
    let channel = WebPushChannel::new(&arguments.settings)?;
    let sender = channel.open(Tools { clock, seed: 1 })?;
    let gate = Gate::new(Box::new(Fixed(channel.concurrency())));
    let chunk = chunk(clock, &arguments)?;
    let run = async |requests: usize| {
        let accepted = Accepted::default();
        let jobs = futures_util::stream::iter(0..requests / chunk.deliveries.len());
        jobs.for_each_concurrent(CHUNKS_AT_A_TIME, |_| {
            send(&*sender, &gate, &chunk, &accepted, clock)
        })
        .await;
        accepted.0.get()
    };
    let agreement = agreement_cpu()?;
    let local = tokio::task::LocalSet::new();
    let warm_up = local.run_until(run(5_000)).await;
    let (started, cpu_started) = (clock.monotonic(), thread_cpu()?);
    let accepted = local.run_until(run(arguments.requests)).await;
    let (took, cpu) = (clock.monotonic() - started, thread_cpu()?.saturating_sub(cpu_started));
    local.run_until(sender.close()).await;
    let per_request = 1e6 / per(arguments.requests, cpu.as_secs_f64());
    let per_agreement = agreement.as_secs_f64() * 1e6;
    #[expect(clippy::print_stdout, reason = "an example that measures has nothing else to say")]
    {
        println!("warm-up     {warm_up} accepted");
        println!("accepted    {accepted} of {}", arguments.requests);
        println!("per second  {:.0}", per(arguments.requests, took.as_secs_f64()));
        println!("CPU         {per_request:.2} us per message");
        println!("of that     {per_agreement:.2} us for a key pair and an agreement");
    }
    Ok(())
}

/// What a fresh key pair and an agreement with another's key take.
fn agreement_cpu() -> Result<Duration, Box<dyn Error>> {
    let theirs = PrivateKey::generate(&ECDH_P256)?.compute_public_key()?;
    let started = thread_cpu()?;
    for _ in 0..AGREEMENTS {
        let ours = PrivateKey::generate(&ECDH_P256)?;
        std::hint::black_box(ours.compute_public_key()?);
        let theirs = UnparsedPublicKey::new(&ECDH_P256, theirs.as_ref());
        agree(&ours, theirs, "no agreement", |secret| {
            std::hint::black_box(secret);
            Ok(())
        })?;
    }
    Ok(thread_cpu()?.saturating_sub(started) / AGREEMENTS)
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

fn chunk(clock: Clock, arguments: &Arguments) -> Result<Chunk, Box<dyn Error>> {
    let text = "x".repeat(arguments.body_bytes.saturating_sub(2));
    let auth = BASE64_URL_SAFE_NO_PAD.encode([7; 16]);
    let delivery = |index: u16| -> Result<Delivery, Box<dyn Error>> {
        let key = VapidKey::generate().ok_or("no random numbers")?.public;
        let recipient = format!("{}/push/{index}#p256dh={key}&auth={auth}", arguments.endpoint);
        Ok(Delivery { index, recipient: ByteString::from(recipient), content: None })
    };
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
                channel: "browsers".parse()?,
                destination: Arc::from("push"),
                priority: Priority::Normal,
            },
            guarantee: Guarantee::AtLeastOnce,
            due_at: Timestamp::from_millis(0),
            expires_at: None,
            broadcast: None,
        },
        attempt: 1,
        content: Some(Content {
            payload: Bytes::from(format!("\"{text}\"")),
            options: Bytes::new(),
        }),
        deliveries: (0..1000).map(delivery).collect::<Result<_, _>>()?,
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
        let (mut requests, mut body_bytes) = (200_000, 100);
        let mut endpoint = "https://127.0.0.1:8443".to_owned();
        let mut settings = serde_json::json!({
            "key": VapidKey::generate().ok_or("no random numbers")?.private.expose(),
            "subject": "mailto:nobody@example.com",
            "allow_networks": ["127.0.0.0/8"],
        });
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--requests" => requests = value.parse()?,
                "--body-bytes" => body_bytes = value.parse()?,
                "--endpoint" => endpoint = value,
                "--ca-file" => put(&mut settings, "ca_file", PathBuf::from(value)),
                "--concurrency" => put(&mut settings, "concurrency", value.parse::<usize>()?),
                _ => return Err(format!("{flag} is unknown").into()),
            }
        }
        Ok(Self { settings: serde_json::from_value(settings)?, endpoint, requests, body_bytes })
    }
}

fn put(settings: &mut serde_json::Value, name: &str, value: impl serde::Serialize) {
    if let (Some(fields), Ok(value)) = (settings.as_object_mut(), serde_json::to_value(value)) {
        fields.insert(name.to_owned(), value);
    }
}
