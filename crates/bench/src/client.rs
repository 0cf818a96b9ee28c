//! Requests to an engine by its command line.

use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::workload::{WorkloadGuarantee, token};

/// Commands of one binary, with one configuration, for one engine. Outlives the engine.
#[derive(Debug, Clone)]
pub struct BenchClient {
    /// The binary under test.
    pub binary: PathBuf,
    /// The engine's configuration.
    pub config: PathBuf,
    /// Where the engine listens: `http://127.0.0.1:8473`.
    pub url: String,
}

/// The output of `belfry audit --json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the fields are the command's own, described in its help")]
pub struct AuditOutput {
    pub accepted: u64,
    pub delivered: u64,
    pub refused: u64,
    pub expired: u64,
    pub cancelled: u64,
    pub suppressed: u64,
    pub in_doubt: u64,
    pub dead: u64,
    pub pending: u64,
    pub balanced: bool,
}

#[derive(Debug, Deserialize)]
struct StatusCounts {
    totals: TotalCounts,
}

#[derive(Debug, Deserialize)]
struct TotalCounts {
    pending: u64,
}

// === impl BenchClient ===

impl BenchClient {
    /// A command for the engine.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(name).arg("--config").arg(&self.config).arg("--url").arg(&self.url);
        command
    }

    /// Sends one content to the tokens of `numbers`, as one broadcast, and waits until it is accepted.
    ///
    /// # Errors
    /// With the command's own words when it fails.
    pub fn broadcast(
        &self,
        numbers: Range<u64>,
        content: &str,
        guarantee: WorkloadGuarantee,
    ) -> Result<()> {
        let mut command = self.command("send");
        command.args(["--channel", "ios", "--to-file", "-", "--json", "--content", content]);
        command.args(["--guarantee", guarantee.as_str()]);
        feed(command, numbers.map(token))
    }

    /// Imports the tokens of `numbers`, row by row, each with a key that makes a repetition harmless.
    ///
    /// # Errors
    /// With the command's own words when some were not accepted; a repetition accepts the rest.
    pub fn import(
        &self,
        numbers: Range<u64>,
        guarantee: WorkloadGuarantee,
        key: &str,
    ) -> Result<()> {
        let rows = numbers.map(|number| {
            let (to, guarantee) = (token(number), guarantee.as_str());
            let content = format!(r#"{{"aps":{{"alert":"{number}"}}}}"#);
            format!(
                r#"{{"channel":"ios","to":"{to}","guarantee":"{guarantee}","content":{content}}}"#
            )
        });
        let mut command = self.command("import");
        command.args(["-", "--format", "ndjson", "--idempotency-prefix", key]);
        feed(command, rows)
    }

    /// The account in the engine's store, whether an engine runs or not.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit(&self) -> Result<AuditOutput> {
        // An account that does not balance makes the command fail, and is still an account.
        // Without the engine's address, by which the command would ask the engine.
        let mut command = Command::new(&self.binary);
        command.args(["audit", "--json", "--config"]).arg(&self.config);
        let output = command.output()?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Status of the engine, its lanes and the cluster, as text.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub fn status(&self) -> Result<String> {
        let output = self.command("status").output()?;
        Ok(String::from_utf8_lossy(&checked(output)?).into_owned())
    }

    /// Notifications that have no outcome yet.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub fn pending(&self) -> Result<u64> {
        let output = self.command("status").arg("--json").output()?;
        let status: StatusCounts = serde_json::from_slice(&checked(output)?)?;
        Ok(status.totals.pending)
    }
}

/// Runs `command` with `lines` as its standard input.
pub(crate) fn feed(mut command: Command, lines: impl Iterator<Item = String>) -> Result<()> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input =
        BufWriter::with_capacity(1 << 18, child.stdin.take().context("stdin is piped")?);
    for line in lines {
        // A command that gave up closes its input; what it says about that comes below.
        if writeln!(input, "{line}").is_err() {
            break;
        }
    }
    drop(input);
    checked(child.wait_with_output()?).map(drop)
}

fn checked(output: Output) -> Result<Vec<u8>> {
    let said = String::from_utf8_lossy(&output.stderr);
    // The last line is the reason: what comes before it tells of progress.
    anyhow::ensure!(
        output.status.success(),
        "{}",
        said.lines().last().unwrap_or("it said nothing")
    );
    Ok(output.stdout)
}
