//! Signals that end a process in order.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, from when this is made.
#[derive(Debug)]
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

// === impl EndSignals ===

impl EndSignals {
    /// Takes them over: they end nothing by themselves from now on.
    pub(crate) fn new() -> io::Result<Self> {
        let (terminate, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt })
    }

    /// Waits for the next of them. One that came before is seen.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
