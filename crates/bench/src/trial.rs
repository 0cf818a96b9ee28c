//! One run: a simulator, an engine, a workload, and as many kills as the run wants.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::client::{AuditOutput, feed};
use crate::port::HeldPort;
use crate::process::{EngineProcess, EngineRole, EngineSettings, SimulatorProcess};
use crate::tally::{JournalBooks, JournalTail};
use crate::usage::Usage;
use crate::workload::{Workload, WorkloadGuarantee};

/// A run under way.
#[derive(Debug)]
pub struct Trial {
    setup: Setup,
    /// Address of the store; `None` is a directory of its own.
    store: Option<String>,
    simulator: SimulatorProcess,
    port: HeldPort,
    engine: EngineProcess,
    /// The resources that killed engines had used.
    used_before: Usage,
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The binary under test.
    pub binary: PathBuf,
    /// Where everything goes; should be empty.
    pub directory: PathBuf,
    /// Settings of the engine, as its environment has them: `BELFRY__CHANNELS__IOS__CONCURRENCY`.
    pub engine_settings: Vec<(String, String)>,
    /// Passed to the simulator.
    pub simulator_flags: Vec<String>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// The engine's own account.
    pub audit: AuditOutput,
    /// The provider's books.
    pub books: JournalBooks,
    /// The resources that all engines of the run used together; the peak of memory is the highest of any.
    pub engine: Usage,
    /// The resources that the simulator used.
    pub simulator: Usage,
}

/// An import under way.
#[derive(Debug)]
pub struct ImportRun(std::thread::JoinHandle<Result<()>>);

/// Between two looks at another process.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two looks at the books, where something is done at a number of requests.
const LOOK_OFTEN: Duration = Duration::from_millis(20);

// === impl Setup ===

impl Setup {
    /// A run of `binary` in `directory` with the engine's own defaults.
    pub fn new(binary: impl Into<PathBuf>, directory: &Path, simulator_flags: &[&str]) -> Self {
        Self {
            binary: binary.into(),
            directory: directory.to_owned(),
            engine_settings: Vec::new(),
            simulator_flags: simulator_flags.iter().map(|&flag| flag.to_owned()).collect(),
        }
    }
}

// === impl Trial ===

impl Trial {
    /// Starts a simulator, and an engine that sends to it.
    ///
    /// # Errors
    /// When one of them does not start.
    pub fn start(setup: Setup) -> Result<Self> {
        Self::start_on(setup, None)
    }

    /// [`start`](Self::start) with the store at the address `store`, if there is one.
    ///
    /// # Errors
    /// When one of them does not start.
    pub fn start_on(setup: Setup, store: Option<String>) -> Result<Self> {
        let simulator =
            SimulatorProcess::start(&setup.binary, &setup.directory, &setup.simulator_flags)?;
        let port = HeldPort::any()?;
        let engine = start_engine(&setup, store.as_deref(), &port, &simulator)?;
        Ok(Self { setup, store, simulator, port, engine, used_before: Usage::default() })
    }

    /// The simulator, for its addresses and its books.
    pub fn simulator(&self) -> &SimulatorProcess {
        &self.simulator
    }

    /// The engine, for its address and what it uses.
    pub fn engine(&self) -> &EngineProcess {
        &self.engine
    }

    /// Sets `name` in the environment of engines that are started from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.setup.engine_settings.push((name.to_owned(), value.to_owned()));
    }

    /// Sends one content to the tokens of `numbers`, as one broadcast, and waits until it is accepted.
    ///
    /// # Errors
    /// With the command's own words when it fails.
    pub fn broadcast(
        &self,
        numbers: std::ops::Range<u64>,
        content: &str,
        guarantee: WorkloadGuarantee,
    ) -> Result<()> {
        self.engine.client().broadcast(numbers, content, guarantee)
    }

    /// Sends every webhook of `workload` to its own endpoint, and waits until they are accepted.
    ///
    /// # Errors
    /// With the command's own words when it fails.
    pub fn webhooks(&self, workload: &Workload) -> Result<()> {
        let address = &self.simulator.ready.webhook;
        let rows = workload.webhooks.iter().map(|webhook| {
            let to = format!("https://{address}{}", webhook.path);
            format!(r#"{{"channel":"hooks","to":"{to}","content":{}}}"#, webhook.payload)
        });
        self.submit(rows)
    }

    /// Hands over notifications, one JSON object each, and waits until they are accepted.
    ///
    /// # Errors
    /// With the command's own words when it fails.
    pub fn submit(&self, rows: impl Iterator<Item = String>) -> Result<()> {
        let mut command = self.engine.client().command("import");
        command.args(["-", "--format", "ndjson"]);
        feed(command, rows)
    }

    /// Starts to import the tokens of `numbers`, row by row, each with a key that makes a repetition
    /// harmless. Goes on while the engine is killed, and may fail by that.
    pub fn import(
        &self,
        numbers: std::ops::Range<u64>,
        guarantee: WorkloadGuarantee,
        key: &str,
    ) -> ImportRun {
        let (client, key) = (self.engine.client().clone(), key.to_owned());
        ImportRun(std::thread::spawn(move || client.import(numbers, guarantee, &key)))
    }

    /// Ends the engine by SIGKILL.
    ///
    /// # Errors
    /// When it was gone before.
    pub fn kill(&mut self) -> Result<()> {
        // While it is there: the kernel forgets what it used together with the process.
        let used = self.engine.usage()?;
        self.engine.kill()?;
        self.used_before = self.used_before.and(used);
        Ok(())
    }

    /// Starts the engine again, at the same address and on the same data.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&mut self) -> Result<()> {
        let store = self.store.as_deref();
        self.engine = start_engine(&self.setup, store, &self.port, &self.simulator)?;
        Ok(())
    }

    /// The account in the engine's store, whether an engine runs or not.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn audit(&self) -> Result<AuditOutput> {
        self.engine.client().audit()
    }

    /// The provider's books so far, once nothing more is being written into them.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn books(&self, workload: &Workload) -> Result<JournalBooks> {
        JournalBooks::read_settled(&self.simulator.ready.journal, workload)
    }

    /// Notifications that have no outcome yet.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub fn pending(&self) -> Result<u64> {
        self.engine.client().pending()
    }

    /// Waits until nothing is pending, and calls `look` between two looks.
    ///
    /// # Errors
    /// When the engine does not answer, or does not finish within `patience`.
    pub fn drain(&self, patience: Duration, mut look: impl FnMut() -> Result<()>) -> Result<()> {
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        while self.pending()? > 0 {
            if clock.monotonic().duration_since(started) > patience {
                bail!("{} notifications are still pending after {patience:?}", self.pending()?);
            }
            look()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Waits until the provider has had `count` requests, and calls `look` with their number between two looks.
    ///
    /// # Errors
    /// When the engine is gone, or the books cannot be read, or show fewer after `patience`.
    pub fn wait_for_lines(
        &mut self,
        count: u64,
        patience: Duration,
        mut look: impl FnMut(u64),
    ) -> Result<()> {
        let mut journal = self.journal()?;
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        loop {
            let lines = journal.lines()?;
            look(lines);
            if lines >= count {
                return Ok(());
            }
            self.engine.ensure_running()?;
            if clock.monotonic().duration_since(started) > patience {
                bail!("{lines} of {count} requests at the provider after {patience:?}");
            }
            std::thread::sleep(LOOK_OFTEN);
        }
    }

    /// Waits until the provider has had `count` requests to `recipient`.
    ///
    /// # Errors
    /// When the books cannot be read, or show fewer after `patience`.
    pub fn wait_for_requests(
        &self,
        recipient: &str,
        count: usize,
        patience: Duration,
    ) -> Result<()> {
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        loop {
            let books = std::fs::read_to_string(&self.simulator.ready.journal)?;
            let seen = books.matches(recipient).count();
            if seen >= count {
                return Ok(());
            }
            if clock.monotonic().duration_since(started) > patience {
                bail!("{seen} of {count} requests to {recipient} after {patience:?}");
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Puts a simulator with other flags in the place of the first, with the same books. Engines that are started from now
    /// on send to it.
    ///
    /// # Errors
    /// When the first was gone, or the other does not start.
    pub fn replace_simulator(&mut self, flags: &[&str]) -> Result<()> {
        self.setup.simulator_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self.simulator.kill()?;
        let Setup { binary, directory, simulator_flags, .. } = &self.setup;
        self.simulator = SimulatorProcess::start(binary, directory, simulator_flags)?;
        Ok(())
    }

    /// A counter of the simulator's books.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn journal(&self) -> Result<JournalTail> {
        JournalTail::open(&self.simulator.ready.journal)
    }

    /// Stops the engine in good order, and counts.
    ///
    /// # Errors
    /// When the engine does not end well, or something cannot be counted.
    pub fn finish(mut self, workload: &Workload) -> Result<Finished> {
        // Before the stop: the kernel forgets it together with the process.
        let used = self.engine.usage()?;
        self.engine.stop()?;
        let audit = self.audit()?;
        let books = JournalBooks::read(&self.simulator.ready.journal, workload)?;
        let simulator = self.simulator.usage()?;
        Ok(Finished { audit, books, engine: self.used_before.and(used), simulator })
    }
}

// === impl ImportRun ===

impl ImportRun {
    /// Waits until every row is accepted.
    ///
    /// # Errors
    /// With the command's own words when some were not; a repetition accepts the rest.
    pub fn wait(self) -> Result<()> {
        self.0.join().unwrap_or_else(|_panic| bail!("the import panicked"))
    }
}

fn start_engine(
    setup: &Setup,
    store: Option<&str>,
    port: &HeldPort,
    simulator: &SimulatorProcess,
) -> Result<EngineProcess> {
    let settings = EngineSettings {
        binary: &setup.binary,
        directory: &setup.directory,
        listen: port.listen(),
        environment: &setup.engine_settings,
        role: EngineRole::Serve,
        store,
        queue: None,
    };
    EngineProcess::start(settings, &simulator.ready)
}
