//! The CPU time of the sending thread for one message over the Web Push channel, and how much of that is the key
//! agreement.
//!
//! ```text
//! cargo run --release -p channel --example webpush_speed -- \
//!     --endpoint https://127.0.0.1:8443 --ca-file cert.pem [--requests 200000] [--body-bytes 100] [--threads 1] [--chunks 2]
//! ```
//!
//! The server must answer 200 or 201 to `/push/0` to `/push/999`, each another subscription.

#[path = "speed/arguments.rs"]
mod arguments;
mod speed;

use std::error::Error;
use std::time::Duration;

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use channel::webpush::{VapidKey, WebPushChannel};
use serde_json::Value;

use arguments::Arguments;
use speed::{Load, chunk, measure, say, thread_cpu};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AGREEMENTS: u32 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut settings = serde_json::json!({
        "key": VapidKey::generate().ok_or("no random numbers")?.private.expose(),
        "subject": "mailto:nobody@example.com",
        "allow_networks": ["127.0.0.0/8"],
    });
    let arguments = Arguments { requests: 200_000, body_bytes: 100, threads: 1, chunks: 2 };
    let Arguments { requests, body_bytes, threads, chunks } = arguments.read(&mut settings)?;
    // No setting: it comes with each subscription.
    let endpoint = settings.as_object_mut().and_then(|settings| settings.remove("endpoint"));
    let endpoint = endpoint.as_ref().and_then(Value::as_str).unwrap_or("https://127.0.0.1:8443");
    let channel = WebPushChannel::new(&serde_json::from_value(settings)?)?;
    let auth = BASE64_URL_SAFE_NO_PAD.encode([7; 16]);
    let recipients = (0..1000).filter_map(|number| {
        let key = VapidKey::generate()?.public;
        Some(format!("{endpoint}/push/{number}#p256dh={key}&auth={auth}"))
    });
    let content = format!("\"{}\"", "x".repeat(body_bytes.saturating_sub(2)));
    let chunk = chunk(&content, recipients);
    let before = key_exchange_cpu()?;
    let load = Load { warm_up: 2_500 * chunks, requests, chunks_at_a_time: chunks, threads };
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
