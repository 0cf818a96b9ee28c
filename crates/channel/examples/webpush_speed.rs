//! The CPU time of the sending thread for one message over the Web Push channel, and how much of that is the key
//! agreement.
//!
//! ```text
//! cargo run --release -p channel --example webpush_speed -- \
//!     --endpoint https://127.0.0.1:8443 --ca-file cert.pem [--requests 200000] [--body-bytes 100] [--threads 1]
//! ```
//!
//! The server must answer 200 or 201 to `/push/0` to `/push/999`, each another subscription.

mod speed;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use channel::webpush::{Settings, VapidKey, WebPushChannel};

use speed::{Load, chunk, measure, put, say, thread_cpu};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AGREEMENTS: u32 = 10_000;

#[derive(Debug)]
struct Arguments {
    settings: Settings,
    endpoint: String,
    requests: usize,
    body_bytes: usize,
    threads: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { settings, endpoint, requests, body_bytes, threads } = Arguments::read()?;
    let channel = WebPushChannel::new(&settings)?;
    let auth = BASE64_URL_SAFE_NO_PAD.encode([7; 16]);
    let recipients = (0..1000).filter_map(|number| {
        let key = VapidKey::generate()?.public;
        Some(format!("{endpoint}/push/{number}#p256dh={key}&auth={auth}"))
    });
    let content = format!("\"{}\"", "x".repeat(body_bytes.saturating_sub(2)));
    let chunk = chunk(&content, recipients);
    let before = key_exchange_cpu()?;
    let load = Load { warm_up: 5_000, requests, chunks_at_a_time: 2, threads };
    let measured = measure(&channel, &chunk, load)?;
    say(&measured.to_string());
    let floor_us = (before + key_exchange_cpu()?).as_secs_f64() / 2.0 * 1e6;
    let ratio = measured.cpu_us / floor_us;
    say(&format!(
        "key exchange  {floor_us:.2} us for a key pair and an agreement alone; a message costs {ratio:.2} times that"
    ));
    Ok(())
}

/// The time that a fresh key pair and an agreement with another's key take.
fn key_exchange_cpu() -> Result<Duration, Box<dyn Error>> {
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

// === impl Arguments ===

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let (mut requests, mut body_bytes, mut threads) = (200_000, 100, 1);
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
                "--threads" => threads = value.parse()?,
                "--endpoint" => endpoint = value,
                "--ca-file" => put(&mut settings, "ca_file", PathBuf::from(value)),
                "--concurrency" => put(&mut settings, "concurrency", value.parse::<usize>()?),
                _ => return Err(format!("{flag} is unknown").into()),
            }
        }
        Ok(Self {
            settings: serde_json::from_value(settings)?,
            endpoint,
            requests,
            body_bytes,
            threads,
        })
    }
}
