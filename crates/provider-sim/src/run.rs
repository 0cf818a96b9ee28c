//! The simulator as a command.

use std::io::{self, Write};

use tokio::signal::unix::{SignalKind, signal};

use crate::Error;
use crate::options::SimulatorOptions;
use crate::server::{Running, Simulator};
use crate::webpush::subscription;

/// Runs until SIGTERM or SIGINT. Prints one line of JSON on standard output when ready:
/// `{"apns":"127.0.0.1:2197","webhook":"127.0.0.1:8443","ca":"...","journal":"..."}`, and with a push service
/// `"web_push":"127.0.0.1:8444","subscriptions":[...]` in it, and with FCM
/// `"fcm":"127.0.0.1:8445","fcm_service_account":"..."`, and with a mail server `"smtp":"127.0.0.1:2525"`.
///
/// # Errors
/// Those of [`Simulator::start`], and a journal that can no longer be written.
pub fn run(options: SimulatorOptions) -> Result<(), Error> {
    let subscriptions = options.web_push_subscriptions;
    let running = Simulator::start(options)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    runtime
        .block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            // After the signals are watched: a reader of the line may end the process at once.
            announce(&running, subscriptions)?;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = running.ended() => {}
            }
            Ok(())
        })
        .map_err(Error::Start)?;
    running.stop()
}

fn announce(running: &Running, subscriptions: u64) -> io::Result<()> {
    let mut ready = serde_json::json!({
        "apns": running.apns.to_string(),
        "webhook": running.webhook.to_string(),
        "ca": running.ca,
        "journal": running.journal,
    });
    if let (Some(address), Some(fields)) = (running.web_push, ready.as_object_mut()) {
        let subscriptions =
            (0..subscriptions).map(|number| subscription(address, number)).collect();
        fields.insert("web_push".to_owned(), address.to_string().into());
        fields.insert("subscriptions".to_owned(), subscriptions);
    }
    if let (Some(address), Some(fields)) = (running.fcm, ready.as_object_mut()) {
        fields.insert("fcm".to_owned(), address.to_string().into());
        fields.insert("fcm_service_account".to_owned(), serde_json::json!(running.fcm_account));
    }
    if let (Some(address), Some(fields)) = (running.smtp, ready.as_object_mut()) {
        fields.insert("smtp".to_owned(), address.to_string().into());
    }
    let mut output = io::stdout().lock();
    writeln!(output, "{ready}")?;
    output.flush()
}
