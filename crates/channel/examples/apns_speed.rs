//! What one request over the APNs channel costs the sending thread, in CPU time.
//!
//! ```text
//! cargo run --release -p channel --example apns_speed -- \
//!     --endpoint https://127.0.0.1:8443 --ca-file cert.pem --key-file key.p8 [--requests 1000000] [--body-bytes 130]
//! ```
//!
//! The server must answer 200 to `/3/device/<token>` for the tokens 0 to 999, written with 64 digits.

use std::error::Error;

use channel::apns::{ApnsChannel, Settings, Tokens};

mod support;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = support::Arguments::read(serde_json::json!({
        "key_id": "KEY0123456",
        "team_id": "TEAM012345",
        "topic": "com.example.app",
    }))?;
    let settings: Settings = serde_json::from_value(arguments.settings)?;
    let channel = ApnsChannel::new(&settings, &Tokens::default())?;
    let alert = "x".repeat(arguments.body_bytes.saturating_sub(r#"{"aps":{"alert":""}}"#.len()));
    let payload = format!(r#"{{"aps":{{"alert":"{alert}"}}}}"#);
    support::measure(&channel, arguments.requests, payload, |number| format!("{number:064}")).await
}
