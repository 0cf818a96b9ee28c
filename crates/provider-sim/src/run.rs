//! The simulator as a command.

use std::io::{self, Write};

use tokio::signal::unix::{SignalKind, signal};

use crate::Error;
use crate::options::Options;
use crate::server::{Running, Simulator};

/// Runs until SIGTERM or SIGINT. Prints one line of JSON on standard output when ready:
/// `{"apns":"127.0.0.1:2197","webhook":"127.0.0.1:8443","smtp":"127.0.0.1:2525","ca":"...","journal":"..."}`.
///
/// # Errors
/// Those of [`Simulator::start`], and a journal that can no longer be written.
pub fn run(options: Options) -> Result<(), Error> {
    let running = Simulator::start(options)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    runtime
        .block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            announce(&running)?;
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

fn announce(running: &Running) -> io::Result<()> {
    let ready = serde_json::json!({
        "apns": running.apns.to_string(),
        "webhook": running.webhook.to_string(),
        "smtp": running.smtp.to_string(),
        "ca": running.ca,
        "journal": running.journal,
    });
    let mut output = io::stdout().lock();
    writeln!(output, "{ready}")?;
    output.flush()
}
