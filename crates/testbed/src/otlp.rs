//! A receiver of traces by OTLP: that of the OpenTelemetry Collector, in a program that `scripts/build-otlp-receiver.sh` builds.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::find;
use crate::keeper::Keeper;

/// A receiver that runs.
#[derive(Debug)]
pub struct OtlpReceiver {
    keeper: Keeper,
    port: u16,
}

const SERVER: &str = "otlp-receiver";

// === impl OtlpReceiver ===

impl OtlpReceiver {
    /// Starts one. Builds the program first if it is not there.
    ///
    /// # Errors
    /// When it cannot be built, or does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        let built = find::build_folder()?;
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-otlp-receiver.sh");
        // It does nothing when the program is there, and waits when it is being built.
        let output = Command::new(script).env("CARGO_TARGET_DIR", &built).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the receiver of OTLP cannot be built: {said}");
        let port = find::free_port()?;
        let mut keeper = Keeper::new("belfry-otlp-", Signal::TERM)?;
        let mut command = Command::new(built.join("servers").join(SERVER).join("receiver"));
        keeper.start(SERVER, command.arg(format!("127.0.0.1:{port}")))?;
        keeper.await_ready(SERVER, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(Self { keeper, port })
    }

    /// Where it takes traces.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/traces", self.port)
    }

    /// Requests that it had so far, a line of JSON for each request (OTLP's encoding, `ExportTraceServiceRequest`).
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn received(&self) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(self.keeper.log(SERVER)).context("its output")?;
        Ok(log.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect())
    }
}
