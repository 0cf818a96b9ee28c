//! The engine and the simulator as child processes, started as a user would start them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

/// A running provider simulator. Killed when dropped.
#[derive(Debug)]
pub struct Simulator {
    child: Running,
    /// Where it listens and what it writes.
    pub ready: SimulatorReady,
}

/// The line a simulator prints when it is ready.
#[derive(Debug, Clone, Deserialize)]
pub struct SimulatorReady {
    /// Address of the APNs provider.
    pub apns: String,
    /// Address of the webhook provider.
    pub webhook: String,
    /// The certificate authority to trust.
    pub ca: PathBuf,
    /// The books.
    pub journal: PathBuf,
}

/// A running engine. Killed when dropped.
#[derive(Debug)]
pub struct Engine {
    child: Running,
    binary: PathBuf,
    config: PathBuf,
    listen: String,
}

/// What differs between the engines of a run.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings<'a> {
    /// The released binary.
    pub binary: &'a Path,
    /// Where its configuration, key, log and data go.
    pub directory: &'a Path,
    /// Where it listens; port 0 takes any free one.
    pub listen: &'a str,
    /// Added to the environment: `BELFRY__SECTION__KEY` overrides the configuration.
    pub environment: &'a [(String, String)],
}

/// What a process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user and kernel mode.
    pub cpu: Duration,
    /// Peak resident memory, bytes.
    pub memory_bytes_max: u64,
}

#[derive(Debug, Deserialize)]
struct EngineReady {
    listen: String,
}

/// A child that does not outlive its handle.
#[derive(Debug)]
struct Running(Child);

// === impl Simulator ===

impl Simulator {
    /// Starts a simulator with its books in `directory`, on free ports of the loopback interface.
    ///
    /// # Errors
    /// When it does not start; its own message is in `provider-sim.log` beside the books.
    pub fn start(binary: &Path, directory: &Path, flags: &[String]) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let mut command = Command::new(binary);
        command.args(["provider-sim", "--apns", "127.0.0.1:0", "--webhook", "127.0.0.1:0"]);
        command.arg("--journal").arg(directory.join("provider.journal"));
        command.arg("--tls-dir").arg(directory.join("tls")).args(flags);
        let (child, ready) = start(&mut command, &directory.join("provider-sim.log"))?;
        Ok(Self { child, ready })
    }

    /// What it has used so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn usage(&self) -> Result<Usage> {
        self.child.usage()
    }
}

// === impl Engine ===

impl Engine {
    /// Writes a configuration for `simulator` and starts an engine with it. What a former engine left in
    /// the directory is taken over.
    ///
    /// # Errors
    /// When it does not start; its own message is in `belfry.log` in the directory.
    pub fn start(settings: EngineSettings<'_>, simulator: &SimulatorReady) -> Result<Self> {
        std::fs::create_dir_all(settings.directory)?;
        let config = settings.directory.join("belfry.toml");
        std::fs::write(&config, configuration(settings, simulator)?)?;
        let mut command = Command::new(settings.binary);
        command.arg("serve").arg("--config").arg(&config);
        command.envs(settings.environment.iter().map(|(name, value)| (name, value)));
        let (child, ready): (_, EngineReady) =
            start(&mut command, &settings.directory.join("belfry.log"))?;
        Ok(Self { child, binary: settings.binary.to_owned(), config, listen: ready.listen })
    }

    /// A command of the same binary that talks to this engine.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(name).arg("--config").arg(&self.config);
        command.arg("--url").arg(format!("http://{}", self.listen));
        command
    }

    /// Where it listens.
    pub fn listen(&self) -> &str {
        &self.listen
    }

    /// Ends it as a power cut would: SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn kill(&mut self) -> Result<()> {
        self.child.0.kill()?;
        self.child.0.wait()?;
        Ok(())
    }

    /// Ends it as an operator would: SIGTERM, and waits until it has drained.
    ///
    /// # Errors
    /// When it ends with another code than 0.
    pub fn stop(&mut self) -> Result<()> {
        kill_process(self.child.pid()?, Signal::TERM)?;
        let status = self.child.0.wait()?;
        anyhow::ensure!(status.success(), "the engine ended with {status}");
        Ok(())
    }

    /// What it has used so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn usage(&self) -> Result<Usage> {
        self.child.usage()
    }
}

// === impl Usage ===

impl Usage {
    /// Both together: the sum of the times, the higher of the peaks.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            memory_bytes_max: self.memory_bytes_max.max(other.memory_bytes_max),
        }
    }
}

// === impl Running ===

impl Running {
    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(i32::try_from(self.0.id())?).context("a process has a positive number")
    }

    fn usage(&self) -> Result<Usage> {
        let pid = self.0.id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let after_name = stat.rsplit_once(')').context("unexpected /proc/PID/stat")?.1;
        let ticks: Vec<u64> = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak_kib =
            peak.and_then(|text| text.split_whitespace().next()).and_then(|text| text.parse().ok());
        Ok(Usage {
            // The kernel reports in ticks of 10 ms on every architecture we build for.
            cpu: Duration::from_millis(10 * ticks.iter().sum::<u64>()),
            memory_bytes_max: 1024 * peak_kib.unwrap_or(0_u64),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it is gone already, which is what is wanted.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Starts `command` and reads the one line it prints when it is ready.
fn start<Ready: for<'de> Deserialize<'de>>(
    command: &mut Command,
    log: &Path,
) -> Result<(Running, Ready)> {
    let stderr = std::fs::File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let mut child = Running(command.spawn().with_context(|| format!("cannot start {command:?}"))?);
    let stdout = child.0.stdout.take().context("stdout is piped")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line.is_empty() {
        let status = child.0.wait()?;
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let last = said.lines().last().unwrap_or("nothing");
        bail!("{command:?} ended with {status}; it said: {last}");
    }
    Ok((
        child,
        serde_json::from_str(&line).with_context(|| format!("unexpected first line: {line}"))?,
    ))
}

fn configuration(settings: EngineSettings<'_>, simulator: &SimulatorReady) -> Result<String> {
    let key = settings.directory.join("apns-key.p8");
    if !key.exists() {
        std::fs::write(&key, rcgen::KeyPair::generate()?.serialize_pem())?;
    }
    Ok(format!(
        r#"# Written by the harness.
[server]
listen = "{listen}"

[store]
directory = "{data}"

[channels.ios]
kind = "apns"
endpoint = "https://{apns}"
ca_file = "{ca}"
key_file = "{key}"
key_id = "BELFRYKEY1"
team_id = "BELFRYTEAM"
topic = "org.belfry.demo"

[channels.hooks]
kind = "webhook"
secrets = ["whsec_YmVsZnJ5IGRlbW86IG5vdCBhIHJlYWwgc2VjcmV0ISE="]
allow_networks = ["127.0.0.0/8"]
ca_file = "{ca}"
"#,
        listen = settings.listen,
        data = settings.directory.join("data").display(),
        apns = simulator.apns,
        ca = simulator.ca.display(),
        key = key.display(),
    ))
}
