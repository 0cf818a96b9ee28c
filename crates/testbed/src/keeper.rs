//! A directory and the processes that work in it: both end with their owner, even when the owner is killed.
//!
//! The owner holds the writing end of a pipe whose reading end belongs to a small shell. The kernel closes the pipe
//! when the owner ends, in whatever way; the shell then ends the processes it was told of, and removes the directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A private directory with named processes.
#[derive(Debug)]
pub struct Keeper {
    directory: PathBuf,
    last_signal: Signal,
    processes: BTreeMap<&'static str, Child>,
    shell: Child,
    pipe: Option<ChildStdin>,
}

/// Reads lines of process numbers, each line in place of the former. At the end of the pipe it signals the last
/// line's processes, kills after 5 s what is left of them, and removes the directory.
const SHELL: &str = r#"
trap '' INT TERM HUP
while read -r line; do processes=$line; done
for process in $processes; do kill -s "$2" "$process"; done
for process in $processes; do
    tries=0
    while [ $tries -lt 100 ] && kill -0 "$process"; do sleep 0.05; tries=$((tries + 1)); done
    [ $tries -lt 100 ] || kill -s KILL "$process"
done
rm -rf "$1"
"#;

/// How long a server may take until it is ready. A broker needs 4 s to 10 s, and on a machine with other things to do more than
/// a minute; one that ends is told at once.
const START_PATIENCE: Duration = Duration::from_mins(5);
/// Between two looks at a process that starts.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How much of its log a process that failed is quoted with, lines.
const QUOTED_LINES: usize = 12;

// === impl Keeper ===

impl Keeper {
    /// Makes a directory with `prefix` in its name. `last_signal` ends the processes when their owner is gone.
    ///
    /// # Errors
    /// When the directory cannot be made, or there is no `sh`.
    pub fn new(prefix: &str, last_signal: Signal) -> Result<Self> {
        Self::new_in(&std::env::temp_dir(), prefix, last_signal)
    }

    /// [`new`](Self::new) with the directory in `parent`.
    ///
    /// # Errors
    /// When the directory cannot be made, or there is no `sh`.
    pub fn new_in(parent: &Path, prefix: &str, last_signal: Signal) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let mut shell = Command::new("sh")
            .args(["-c", SHELL, "keeper"])
            .arg(directory.path())
            .arg(last_signal.as_raw().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal that a terminal sends to the whole group must not end it before the owner.
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let pipe = shell.stdin.take();
        let directory = directory.keep();
        Ok(Self { directory, last_signal, processes: BTreeMap::new(), shell, pipe })
    }

    /// Where everything is, until this is dropped.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts `command` as `name`, with its output in the file `name.log` of the directory.
    ///
    /// # Errors
    /// When it cannot be started, or one of that name runs, which would never be ended.
    pub fn start(&mut self, name: &'static str, command: &mut Command) -> Result<u32> {
        if let Some(process) = self.processes.get_mut(name)
            && process.try_wait()?.is_none()
        {
            bail!("{name} runs already: end it before it is started again");
        }
        let log = File::options().create(true).append(true).open(self.log(name))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let process = child.id();
        self.processes.insert(name, child);
        self.tell()?;
        Ok(process)
    }

    /// Waits until `is_ready` says so.
    ///
    /// # Errors
    /// With the end of its log when the process ends before, or is not ready within five minutes.
    pub fn await_ready(
        &mut self,
        name: &'static str,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<()> {
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        while !is_ready() {
            let process = self.processes.get_mut(name).context("it was not started")?;
            if let Some(status) = process.try_wait()? {
                bail!("{name} ended with {status}; its log ends with:\n{}", self.quote(name));
            }
            if clock.monotonic().duration_since(started) > START_PATIENCE {
                bail!(
                    "{name} is not ready after {START_PATIENCE:?}; its log ends with:\n{}",
                    self.quote(name)
                );
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Sends `signal` to the process `name`, and waits until it is gone. Nothing happens when it is not running.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn end(&mut self, name: &'static str, signal: Signal) -> Result<()> {
        self.end_by(name, |process| kill_process(process, signal))
    }

    /// Kills the process `name` with those that it has started, and waits until it is gone.
    ///
    /// # Errors
    /// When they cannot be signalled.
    pub fn kill_group(&mut self, name: &'static str) -> Result<()> {
        // Each process leads a group of its own.
        self.end_by(name, |process| kill_process_group(process, Signal::KILL))
    }

    fn end_by(
        &mut self,
        name: &'static str,
        send: impl FnOnce(Pid) -> rustix::io::Result<()>,
    ) -> Result<()> {
        let Some(mut process) = self.processes.remove(name) else { return Ok(()) };
        if process.try_wait()?.is_none() {
            send(Pid::from_raw(i32::try_from(process.id())?).context("a number above 0")?)?;
            process.wait()?;
        }
        self.tell()
    }

    /// The number of the process `name`, while it runs.
    pub fn process(&self, name: &str) -> Option<u32> {
        self.processes.get(name).map(Child::id)
    }

    /// Tells the shell what runs now.
    fn tell(&mut self) -> Result<()> {
        let numbers: Vec<String> =
            self.processes.values().map(|child| child.id().to_string()).collect();
        let pipe = self.pipe.as_mut().context("the pipe is open until the end")?;
        writeln!(pipe, "{}", numbers.join(" ")).context("the shell that ends the servers is gone")
    }

    /// The file with the output of the process `name`.
    pub fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    fn quote(&self, name: &str) -> String {
        let log = std::fs::read(self.log(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines
            .iter()
            .skip(lines.len().saturating_sub(QUOTED_LINES))
            .copied()
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let names: Vec<&'static str> = self.processes.keys().copied().collect();
        for name in names {
            // A process that cannot be signalled is gone, or is the shell's to end.
            let _gone = self.end(name, self.last_signal);
        }
        drop(self.pipe.take());
        let _removed = self.shell.wait();
    }
}
