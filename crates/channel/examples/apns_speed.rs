//! The CPU time of the sending thread for one request over the APNs channel.
//!
//! ```text
//! cargo run --release -p channel --example apns_speed -- \
//!     --endpoint https://127.0.0.1:8443 --ca-file cert.pem --key-file key.p8 [--requests 1000000] [--body-bytes 130] [--threads 1] [--chunks 8]
//! ```
//!
//! The server must answer 200 to `/3/device/<token>` for the tokens 0 to 999, written with 64 digits.

#[path = "speed/arguments.rs"]
mod arguments;
mod speed;

use std::error::Error;

use channel::apns::{ApnsChannel, ProviderTokens, Settings};

use arguments::Arguments;
use speed::{Load, chunk, measure, say};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut settings = serde_json::json!({
        "key_id": "KEY0123456",
        "team_id": "TEAM012345",
        "topic": "com.example.app",
    });
    let arguments = Arguments { requests: 1_000_000, body_bytes: 130, threads: 1, chunks: 8 };
    let Arguments { requests, body_bytes, threads, chunks } = arguments.read(&mut settings)?;
    let settings: Settings = serde_json::from_value(settings)?;
    let frame = r#"{"aps":{"alert":""}}"#.len();
    let alert = "x".repeat(body_bytes.saturating_sub(frame));
    let tokens = (0..1000).map(|number| format!("{number:064}"));
    let chunk = chunk(&format!(r#"{{"aps":{{"alert":"{alert}"}}}}"#), tokens);
    let load = Load { warm_up: 2_500 * chunks, requests, chunks_at_a_time: chunks, threads };
    say(&measure(&ApnsChannel::new(&settings, &ProviderTokens::default())?, &chunk, load)?
        .to_string());
    Ok(())
}
