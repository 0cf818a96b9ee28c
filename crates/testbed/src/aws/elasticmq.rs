//! `ElasticMQ`: SQS, standard and FIFO, with its queues in files or in memory.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::{answers, place};
use crate::keeper::Keeper;
use crate::{find, running_server};

/// A running server. It takes any credentials and any region.
#[derive(Debug)]
pub struct ElasticMq {
    keeper: Keeper,
    port: u16,
    storage: ElasticMqStorage,
}

/// Where the queues are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElasticMqStorage {
    /// They outlive the process, which starts quickly and is slow.
    Files,
    /// They end with the process, which gets fast with the work that it does.
    Memory,
}

const SERVER: &str = "elasticmq";

/// The address of the server that the tests of this process share: the one that `BELFRY_TEST_SQS_URL` names, or one that is started
/// by the first call. Queues in it need names of their own ([`unique_prefix`](crate::unique_prefix)).
///
/// # Errors
/// When it does not start.
pub fn shared_url() -> Result<String> {
    static SHARED: OnceLock<Result<ElasticMq, String>> = OnceLock::new();
    if let Some(url) = running_server("BELFRY_TEST_SQS_URL") {
        return Ok(url);
    }
    let shared = SHARED.get_or_init(|| ElasticMq::start().map_err(|error| format!("{error:#}")));
    shared.as_ref().map(ElasticMq::url).map_err(|error| anyhow::anyhow!("{error}"))
}

// === impl ElasticMq ===

impl ElasticMq {
    /// Starts an empty server.
    ///
    /// # Errors
    /// When it was not fetched, there is no Java, or it does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        Self::start_with(ElasticMqStorage::Files)
    }

    /// Starts an empty server that keeps nothing and takes as much as it can, for measurements.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_in_memory() -> Result<Self> {
        Self::start_with(ElasticMqStorage::Memory)
    }

    fn start_with(storage: ElasticMqStorage) -> Result<Self> {
        let keeper = Keeper::new("belfry-elasticmq-", Signal::KILL)?;
        let mut server = Self { keeper, port: find::free_port()?, storage };
        server.write_configuration()?;
        server.start_again()?;
        Ok(server)
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.keeper.end(SERVER, Signal::KILL)
    }

    /// Starts it again after [`kill`](Self::kill), with its queues and what it had confirmed, at the same address.
    ///
    /// # Errors
    /// When it does not start; its log is quoted.
    pub fn start_again(&mut self) -> Result<()> {
        let java = find::program("java", &[], &["/usr/lib/jvm/*/bin"])?;
        let libraries = place("elasticmq", "")?.join("*");
        let directory = self.keeper.directory();
        let mut command = Command::new(java);
        command.arg("-XX:+UseSerialGC");
        match self.storage {
            // It is to start quickly, and lives for seconds.
            ElasticMqStorage::Files => command.args(["-XX:TieredStopAtLevel=1", "-Xmx256m"]),
            ElasticMqStorage::Memory => command.arg("-Xmx1g"),
        };
        let mut file = OsStr::new("-Dconfig.file=").to_owned();
        file.push(directory.join("elasticmq.conf"));
        command.arg(file).arg("-cp").arg(libraries).arg("org.elasticmq.server.Main");
        self.keeper.start(SERVER, &mut command)?;
        let port = self.port;
        self.keeper.await_ready(SERVER, || answers(port).unwrap_or(false))
    }

    /// Kills it, removes every queue, and starts it empty at the same address.
    ///
    /// # Errors
    /// As [`start_again`](Self::start_again).
    pub fn wipe(&mut self) -> Result<()> {
        self.kill()?;
        let directory = self.keeper.directory().join("data");
        std::fs::remove_dir_all(&directory).context("cannot remove the queues")?;
        std::fs::create_dir(&directory)?;
        self.start_again()
    }

    fn write_configuration(&self) -> Result<()> {
        let directory = self.keeper.directory();
        let (port, data) = (self.port, directory.join("data"));
        std::fs::create_dir(&data)?;
        let data = data.display();
        let storage = match self.storage {
            ElasticMqStorage::Memory => String::new(),
            // What it confirms is in the file by then: no delay of writes.
            ElasticMqStorage::Files => format!(
                r#"
queues-storage {{ enabled = true, path = "{data}/queues.conf" }}
messages-storage {{ enabled = true, driver-class = "org.h2.Driver", uri = "jdbc:h2:{data}/messages;WRITE_DELAY=0" }}
"#
            ),
        };
        // Its own bound of a message is the quarter of what SQS has now, so it does not check bounds.
        let text = format!(
            r#"
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = relaxed }}
rest-stats {{ enabled = false }}
{storage}"#
        );
        Ok(std::fs::write(directory.join("elasticmq.conf"), text)?)
    }
}
