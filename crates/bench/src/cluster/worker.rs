//! One engine of a cluster: it keeps its place, its links and its address over all its processes.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use testbed::Proxy;

use crate::client::BenchClient;
use crate::port::HeldPort;
use crate::process::{EngineProcess, EngineRole, EngineSettings, SimulatorReady};

/// One engine. What befalls it goes through here.
#[derive(Debug)]
pub struct ClusterWorker {
    /// Its name in the output: `consume-3`.
    pub name: String,
    /// Its role.
    pub role: EngineRole,
    pub(super) binary: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) settings: Vec<(String, String)>,
    pub(super) simulator: SimulatorReady,
    pub(super) store: Access,
    pub(super) broker: Option<Access>,
    pub(super) port: HeldPort,
    pub(super) client: OnceLock<BenchClient>,
    pub(super) engine: Mutex<Option<EngineProcess>>,
}

/// How a worker reaches a server.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) url: String,
    /// `None` when nothing is to befall the link.
    pub(super) link: Option<Proxy>,
}

/// How long a start may take when servers and links break meanwhile.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two starts: what a service manager waits.
const START_EVERY: Duration = Duration::from_millis(500);

// === impl ClusterWorker ===

impl ClusterWorker {
    /// Starts a process; again and again when it ends before it is ready, as a service manager does.
    ///
    /// # Errors
    /// With the last one's words, when none gets ready in time.
    pub fn start(&self) -> Result<()> {
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        let mut engine = self.engine();
        loop {
            match self.start_once() {
                Ok(fresh) => {
                    *engine = Some(fresh);
                    return Ok(());
                }
                Err(error) if clock.monotonic().duration_since(started) > PATIENCE => {
                    return Err(error.context(format!("{} does not start", self.name)));
                }
                Err(_not_yet) => std::thread::sleep(START_EVERY),
            }
        }
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// When it had ended by itself.
    pub fn kill(&self) -> Result<()> {
        self.check()?;
        match self.engine().take() {
            Some(mut engine) => engine.kill(),
            None => bail!("{} is not running", self.name),
        }
    }

    /// SIGTERM, and waits until it has drained.
    ///
    /// # Errors
    /// When it had ended by itself, or ends with another code than 0.
    pub fn stop(&self) -> Result<()> {
        self.check()?;
        match self.engine().take() {
            Some(mut engine) => engine.stop().with_context(|| self.name.clone()),
            None => bail!("{} is not running", self.name),
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.engine()
            .as_ref()
            .with_context(|| format!("{} is not running", self.name))?
            .signal(signal)
    }

    /// Only this run ends it.
    ///
    /// # Errors
    /// With the end of its log, when it ended by itself.
    pub fn check(&self) -> Result<()> {
        let ended = self.engine().as_mut().map_or(Ok(None), EngineProcess::ended)?;
        let Some(status) = ended else { return Ok(()) };
        let end = last_lines(&self.log(), 5, |_| true);
        bail!("{} ended by itself with {status}; its log ends with:\n{end}", self.name)
    }

    /// The last warnings and errors of its log, but for those that come by the dozen while a server is away.
    pub(super) fn warnings(&self) -> String {
        let is_of_outage = |line: &str| line.contains("no connection") || line.contains("cannot");
        let is_told =
            |line: &str| line.contains(" ERROR ") || line.contains(" WARN ") && !is_of_outage(line);
        last_lines(&self.log(), 20, is_told)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("belfry.log")).unwrap_or_default()
    }

    /// Where it listens, also while it does not run.
    pub fn listen(&self) -> &str {
        self.port.listen()
    }

    /// Commands for it, also while it does not run.
    ///
    /// # Errors
    /// When it was never started.
    pub fn client(&self) -> Result<&BenchClient> {
        self.client.get().with_context(|| format!("{} was never started", self.name))
    }

    /// The running engine.
    pub fn engine(&self) -> MutexGuard<'_, Option<EngineProcess>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_once(&self) -> Result<EngineProcess> {
        let settings = EngineSettings {
            binary: &self.binary,
            directory: &self.directory,
            listen: self.port.listen(),
            environment: &self.settings,
            role: self.role,
            store: Some(&self.store.url),
            queue: self.broker.as_ref().map(|broker| broker.url.as_str()),
        };
        let engine = EngineProcess::start(settings, &self.simulator)?;
        // Once: the address is held, so it is that of every later process.
        self.client.get_or_init(|| engine.client().clone());
        Ok(engine)
    }
}

/// The last `count` of the lines of `log` that `is_wanted`.
fn last_lines(log: &str, count: usize, is_wanted: impl Fn(&str) -> bool) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| is_wanted(line)).collect();
    lines.iter().skip(lines.len().saturating_sub(count)).copied().collect::<Vec<_>>().join("\n")
}
