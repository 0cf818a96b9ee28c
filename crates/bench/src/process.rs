//! The engine and the simulator as child processes, started as a user would start them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::client::BenchClient;
use crate::usage::Usage;

/// A running provider simulator. Killed when dropped.
#[derive(Debug)]
pub struct SimulatorProcess {
    child: RunningProcess,
    /// Its addresses, and the files that it writes.
    pub ready: SimulatorReady,
}

/// The line a simulator prints when it is ready.
#[derive(Debug, Clone, Deserialize)]
pub struct SimulatorReady {
    /// Address of the APNs provider.
    pub apns: String,
    /// Address of the webhook provider.
    pub webhook: String,
    /// Address of the push service for browsers, if it was asked for.
    #[serde(default)]
    pub web_push: Option<String>,
    /// Web Push subscriptions, if it has a push service and was asked for some.
    #[serde(default)]
    pub subscriptions: Vec<serde_json::Value>,
    /// Address of FCM and its token endpoint, if they were asked for.
    #[serde(default)]
    pub fcm: Option<String>,
    /// The service account for it.
    #[serde(default)]
    pub fcm_service_account: PathBuf,
    /// Address of the mail server, if it was asked for.
    #[serde(default)]
    pub smtp: Option<String>,
    /// The certificate authority to trust.
    pub ca: PathBuf,
    /// The books.
    pub journal: PathBuf,
}

/// A running engine. Killed when dropped.
#[derive(Debug)]
pub struct EngineProcess {
    child: RunningProcess,
    client: BenchClient,
    listen: String,
}

/// The role of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineRole {
    /// Everything.
    Serve,
    /// Takes notifications in, and issues them.
    Produce,
    /// Delivers.
    Consume,
}

/// The settings that differ between the engines of a run.
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
    /// Its role.
    pub role: EngineRole,
    /// Address of the store; `None` is a directory of its own.
    pub store: Option<&'a str>,
    /// Address of the queue; `None` is within the process.
    pub queue: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
struct EngineReady {
    listen: String,
}

/// A child that does not outlive its handle, nor the process that holds it.
#[derive(Debug)]
pub(crate) struct RunningProcess {
    child: Child,
    /// Dropped after the child was ended.
    _watch: KillGuard,
}

/// Kills a process when the holder of this ends in whatever way, by SIGKILL too: the kernel closes a pipe then.
#[derive(Debug)]
pub struct KillGuard(Child);

/// Waits for the end of its input.
const WATCH: &str = r#"trap '' INT TERM HUP; read -r line; kill -s KILL "$1""#;

// === impl SimulatorProcess ===

impl SimulatorProcess {
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

    /// Ends it by SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()
    }

    /// Sends it a signal: between SIGSTOP and SIGCONT it answers nothing.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.child.signal(signal)
    }

    /// The resources it has used so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn usage(&self) -> Result<Usage> {
        self.child.usage()
    }
}

// === impl EngineRole ===

impl EngineRole {
    /// The command for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Produce => "produce",
            Self::Consume => "consume",
        }
    }

    /// True if callers reach it.
    pub const fn is_called(self) -> bool {
        matches!(self, Self::Serve | Self::Produce)
    }
}

// === impl EngineProcess ===

impl EngineProcess {
    /// Writes a configuration for `simulator` and starts an engine with it. What a former engine left in
    /// the directory is taken over.
    ///
    /// # Errors
    /// When it does not start; its own message is in `belfry.log` in the directory.
    pub fn start(settings: EngineSettings<'_>, simulator: &SimulatorReady) -> Result<Self> {
        let config = configure(settings, simulator)?;
        let mut command = Command::new(settings.binary);
        command.arg(settings.role.as_str()).arg("--config").arg(&config);
        command.envs(settings.environment.iter().map(|(name, value)| (name, value)));
        let (child, ready): (_, EngineReady) =
            start(&mut command, &settings.directory.join("belfry.log"))?;
        let url = format!("http://{}", ready.listen);
        let client = BenchClient { binary: settings.binary.to_owned(), config, url };
        Ok(Self { child, client, listen: ready.listen })
    }

    /// Commands of the same binary for this engine.
    pub fn client(&self) -> &BenchClient {
        &self.client
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
        self.child.kill()
    }

    /// Ends it as an operator would: SIGTERM, and waits until it has drained.
    ///
    /// # Errors
    /// When it ends with another code than 0.
    pub fn stop(&mut self) -> Result<()> {
        self.child.signal(Signal::TERM)?;
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the engine ended with {status}");
        Ok(())
    }

    /// Sends it a signal: SIGSTOP, SIGCONT.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.child.signal(signal)
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.ended()
    }

    /// The resources it has used so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn usage(&self) -> Result<Usage> {
        self.child.usage()
    }

    /// Fails when it has ended by itself: nothing more comes of it.
    ///
    /// # Errors
    /// With its status; its own message is in `belfry.log` in the directory.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.child.ended()? {
            None => Ok(()),
            Some(status) => bail!("the engine ended with {status}; belfry.log says why"),
        }
    }

    /// Its number, for a thread that looks at it.
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

// === impl RunningProcess ===

impl RunningProcess {
    /// Starts `command`.
    ///
    /// # Errors
    /// When its program cannot be started.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { _watch: KillGuard::over(&child)?, child })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Its standard output, once, where that is a pipe.
    pub(crate) fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        Ok(kill_process(pid.context("a process has a positive number")?, signal)?)
    }

    /// The resources that it has used so far; those of one that has ended are known until it is waited for.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of_process(self.child.id())
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // Both fail only when it is gone already, which is what is wanted.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

// === impl KillGuard ===

impl KillGuard {
    /// Watches over `process`.
    ///
    /// # Errors
    /// When there is no `sh`.
    pub fn over(process: &Child) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH, "watch"]).arg(process.id().to_string());
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A signal that a terminal sends to the whole group must not end it before its holder.
        let shell = shell.process_group(0).spawn().context("cannot start sh")?;
        Ok(Self(shell))
    }
}

impl Drop for KillGuard {
    fn drop(&mut self) {
        // Before its pipe is closed: the number may be another's by now.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Starts `command` and reads the one line it prints when it is ready.
fn start<Ready: for<'de> Deserialize<'de>>(
    command: &mut Command,
    log: &Path,
) -> Result<(RunningProcess, Ready)> {
    // A process that is started again goes on in the log of the one before.
    let stderr = std::fs::File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    // Guarded before its line is waited for: this process may be killed meanwhile.
    let mut running = RunningProcess::start(command)?;
    let stdout = running.take_output().context("stdout is piped")?;
    let mut line = String::new();
    // That line is all that either command writes there, so the pipe may be closed behind it.
    BufReader::new(stdout).read_line(&mut line)?;
    if line.is_empty() {
        let status = running.wait()?;
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let last = said.lines().last().unwrap_or("nothing");
        bail!("{command:?} ended with {status}; it said: {last}");
    }
    Ok((
        running,
        serde_json::from_str(&line).with_context(|| format!("unexpected first line: {line}"))?,
    ))
}

/// Writes the configuration of an engine into its directory.
///
/// # Errors
/// When it cannot be written.
pub fn configure(settings: EngineSettings<'_>, simulator: &SimulatorReady) -> Result<PathBuf> {
    std::fs::create_dir_all(settings.directory)?;
    let key = settings.directory.join("apns-key.p8");
    if !key.exists() {
        std::fs::write(&key, rcgen::KeyPair::generate()?.serialize_pem())?;
    }
    let store = match settings.store {
        Some(url) => format!("url = \"{url}\""),
        None => format!("directory = \"{}\"", settings.directory.join("data").display()),
    };
    let queue =
        settings.queue.map(|url| format!("\n[queue]\nurl = \"{url}\"\n")).unwrap_or_default();
    let fcm = simulator.fcm.as_ref().map(|address| fcm_channel(address, simulator));
    let mail = simulator.smtp.as_ref().map(|address| mail_channel(address, simulator));
    let browsers = simulator.web_push.as_ref().map(|_| push_channel(&key, simulator));
    let text = format!(
        r#"# Written by the harness.
[server]
listen = "{listen}"

[store]
{store}
{queue}
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
{fcm}{mail}{browsers}"#,
        listen = settings.listen,
        fcm = fcm.unwrap_or_default(),
        apns = simulator.apns,
        mail = mail.unwrap_or_default(),
        browsers = browsers.unwrap_or_default(),
        ca = simulator.ca.display(),
        key = key.display(),
    );
    let config = settings.directory.join("belfry.toml");
    std::fs::write(&config, text)?;
    Ok(config)
}

fn fcm_channel(address: &str, simulator: &SimulatorReady) -> String {
    let SimulatorReady { ca, fcm_service_account, .. } = simulator;
    format!(
        r#"
[channels.android]
kind = "fcm"
endpoint = "https://{address}"
token_uri = "https://{address}/token"
service_account_file = "{account}"
ca_file = "{ca}"
"#,
        account = fcm_service_account.display(),
        ca = ca.display(),
    )
}

/// The channel to a simulator's push service. Any key of P-256 will do, such as that of APNs.
fn push_channel(key: &Path, simulator: &SimulatorReady) -> String {
    format!(
        r#"
[channels.web]
kind = "webpush"
key_file = "{key}"
subject = "mailto:news@belfry.example"
allow_networks = ["127.0.0.0/8"]
ca_file = "{ca}"
"#,
        key = key.display(),
        ca = simulator.ca.display()
    )
}

/// The channel to a simulator's mail server.
fn mail_channel(address: &str, simulator: &SimulatorReady) -> String {
    format!(
        r#"
[channels.mail]
kind = "smtp"
relay = "smtp://{address}"
tls = "require"
ca_file = "{ca}"
from = "Belfry <news@belfry.example>"
"#,
        ca = simulator.ca.display()
    )
}
