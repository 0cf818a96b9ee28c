//! The CPU time of the sending thread for one request over the APNs channel.
//!
//! ```text
//! cargo run --release -p channel --example apns_speed -- \
//!     --endpoint https://127.0.0.1:8443 --ca-file cert.pem --key-file key.p8 [--requests 1000000] [--body-bytes 130] [--threads 1] [--chunks 8]
//! ```
//!
//! The server must answer 200 to `/3/device/<token>` for the tokens 0 to 999, written with 64 digits.

mod speed;

use std::error::Error;
use std::path::PathBuf;

use channel::apns::{ApnsChannel, ProviderTokens, Settings};

use speed::{Load, chunk, measure, put, say};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug)]
struct Arguments {
    settings: Settings,
    requests: usize,
    body_bytes: usize,
    threads: usize,
    /// Chunks of 1,000 under way at a time, on each thread.
    chunks: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { settings, requests, body_bytes, threads, chunks } = Arguments::read()?;
    let frame = r#"{"aps":{"alert":""}}"#.len();
    let alert = "x".repeat(body_bytes.saturating_sub(frame));
    let tokens = (0..1000).map(|number| format!("{number:064}"));
    let chunk = chunk(&format!(r#"{{"aps":{{"alert":"{alert}"}}}}"#), tokens);
    let load = Load { warm_up: 2_500 * chunks, requests, chunks_at_a_time: chunks, threads };
    say(&measure(&ApnsChannel::new(&settings, &ProviderTokens::default())?, &chunk, load)?
        .to_string());
    Ok(())
}

// === impl Arguments ===

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let (mut requests, mut body_bytes, mut threads, mut chunks) = (1_000_000, 130, 1, 8);
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
                "--threads" => threads = value.parse()?,
                "--chunks" => chunks = value.parse()?,
                "--endpoint" => put(&mut settings, "endpoint", value),
                "--ca-file" => put(&mut settings, "ca_file", PathBuf::from(value)),
                "--key-file" => put(&mut settings, "key_file", PathBuf::from(value)),
                "--concurrency" => put(&mut settings, "concurrency", value.parse::<usize>()?),
                _ => return Err(format!("{flag} is unknown").into()),
            }
        }
        Ok(Self {
            settings: serde_json::from_value(settings)?,
            requests,
            body_bytes,
            threads,
            chunks,
        })
    }
}
