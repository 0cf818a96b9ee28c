//! The CPU time of the sending thread for one request over the FCM channel.
//!
//! ```text
//! cargo run --release -p channel --example fcm_speed -- --endpoint https://127.0.0.1:8443 \
//!     --token-uri https://127.0.0.1:8445/token --ca-file ca.pem --service-account-file account.json \
//!     [--requests 1000000] [--body-bytes 320] [--threads 1] [--chunks 8]
//! ```
//!
//! The server must answer 200 to `/v1/projects/provider-sim/messages:send`, whatever is sent to it.
//! `scripts/http2-speed.sh` does all of it, with h2load as the floor.

#[path = "speed/arguments.rs"]
mod arguments;
mod speed;

use std::error::Error;

use channel::fcm::{FcmChannel, Settings};

use arguments::Arguments;
use speed::{Load, chunk, measure, say};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut settings = serde_json::json!({ "messages_per_minute": 0 });
    let arguments = Arguments { requests: 1_000_000, body_bytes: 320, threads: 1, chunks: 8 };
    let Arguments { requests, body_bytes, threads, chunks } = arguments.read(&mut settings)?;
    let settings: Settings = serde_json::from_value(settings)?;
    // As long as real ones are.
    let tokens = (0..1000).map(|number| format!("dQw4w9WgXcQ:{number:0130}"));
    let frame = r#"{"message":{"token":"","notification":{"title":""}}}"#.len() + 142;
    let title = "x".repeat(body_bytes.saturating_sub(frame));
    let chunk = chunk(&format!(r#"{{"notification":{{"title":"{title}"}}}}"#), tokens);
    let load = Load { warm_up: 2_500 * chunks, requests, chunks_at_a_time: chunks, threads };
    say(&measure(&FcmChannel::new(&settings)?, &chunk, load)?.to_string());
    Ok(())
}
