//! A process of the comparison, on some of the processors.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process::RunningProcess;
use crate::processor_share::ProcessorShare;
use crate::usage::Usage;

/// A process that ends with the holder of this, however that one ends.
#[derive(Debug)]
pub struct PinnedProcess {
    process: RunningProcess,
    /// Its stderr.
    log: File,
    /// Dropped after the process was ended.
    share: Option<ProcessorShare>,
}

// === impl PinnedProcess ===

impl PinnedProcess {
    /// Starts `binary` with `arguments`, on the first `processors` alone.
    ///
    /// # Errors
    /// When it does not start, or there is no `taskset` (of util-linux).
    pub fn start(binary: &Path, arguments: &[&str], processors: usize) -> Result<Self> {
        let last = processors.saturating_sub(1);
        let mut command = Command::new("taskset");
        command.args(["-c", &format!("0-{last}")]).arg(binary).args(arguments);
        let log = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?);
        let process = RunningProcess::start(&mut command);
        Ok(Self {
            process: process.context("taskset is needed, which is a part of util-linux")?,
            log,
            share: None,
        })
    }

    /// Gives it `percent` of the time of one processor from now on.
    ///
    /// # Errors
    /// As [`ProcessorShare::of`], and when it has ended.
    pub fn limit_to(&mut self, percent: u32) -> Result<()> {
        let share = ProcessorShare::of(percent)?;
        share.add(self.id())?;
        self.share = Some(share);
        Ok(())
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The resources that it has used so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn usage(&self) -> Result<Usage> {
        self.process.usage()
    }

    /// Threads that it has now.
    ///
    /// # Errors
    /// When it has ended.
    pub fn threads(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        let count = line.context("/proc/PID/status says how many threads there are")?;
        Ok(count.trim().parse()?)
    }

    /// Refuses one that has ended: it runs until it is killed.
    ///
    /// # Errors
    /// When it has ended, with its own words.
    pub fn ensure_runs(&mut self) -> Result<()> {
        match self.process.ended()? {
            None => Ok(()),
            Some(status) => {
                let mut said = String::new();
                self.log.rewind()?;
                self.log.read_to_string(&mut said)?;
                bail!("a process that was measured ended with {status}: {}", said.trim())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ends_says_why() {
        let script = ["-c", "echo no such queue >&2; exit 3"];
        let mut process = PinnedProcess::start(Path::new("sh"), &script, 1).unwrap();
        let _status = process.process.wait().unwrap();
        let error = process.ensure_runs().unwrap_err().to_string();
        assert!(error.contains("exit status: 3: no such queue"), "{error}");
    }

    #[test]
    fn threads_are_counted() {
        let process = PinnedProcess::start(Path::new("sleep"), &["60"], 1).unwrap();
        assert_eq!(process.threads().unwrap(), 1);
    }
}
