//! What one request over the FCM channel costs the sending thread, in CPU time.
//!
//! ```text
//! cargo run --release -p channel --example fcm_speed -- --endpoint https://127.0.0.1:8443 \
//!     --token-uri https://127.0.0.1:8445/token --ca-file ca.pem --service-account-file account.json \
//!     [--requests 1000000] [--body-bytes 130]
//! ```
//!
//! The server must answer 200 to `/v1/projects/provider-sim/messages:send`, whatever is sent to it. `scripts/http2-speed.sh` does
//! all of it, with h2load as the floor.

use std::error::Error;

use channel::fcm::{FcmChannel, Settings};

mod support;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = support::Arguments::read(serde_json::json!({ "messages_per_minute": 0 }))?;
    let settings: Settings = serde_json::from_value(arguments.settings)?;
    let channel = FcmChannel::new(&settings)?;
    // Of the length that real tokens have.
    let recipient = |number: u16| format!("dQw4w9WgXcQ:{number:0130}");
    let frame = r#"{"message":{"token":"","notification":{"title":""}}}"#.len() + recipient(0).len();
    let title = "x".repeat(arguments.body_bytes.saturating_sub(frame));
    let payload = format!(r#"{{"notification":{{"title":"{title}"}}}}"#);
    support::measure(&channel, arguments.requests, payload, recipient).await
}
