//! A RabbitMQ node.
//!
//! The distribution's package starts the broker as a service with fixed places and ports. Here the broker's own script
//! runs with everything in a private directory, and with a name server (epmd) of its own, which Erlang would otherwise
//! leave behind.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use crate::keeper::Keeper;
use crate::{find, running_server};

/// A running node with one user, and its queues in a private directory.
#[derive(Debug)]
pub struct RabbitMq {
    keeper: Keeper,
    port: u16,
    distribution_port: u16,
    names_port: u16,
}

const SERVER: &str = "rabbitmq-server";
const NAMES: &str = "epmd";
const USER: &str = "belfry";
const PASSWORD: &str = "a-password";
/// The header with which a client of AMQP 0-9-1 begins.
const AMQP_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";
/// The type of the frame with which the broker answers it (a method).
const METHOD_FRAME: u8 = 1;

/// The address of the node that the tests of this process share: the one that `BELFRY_TEST_RABBITMQ_URL` names, or
/// one that is started by the first call. Queues in it need names of their own
/// ([`unique_prefix`](crate::unique_prefix)).
///
/// # Errors
/// When it does not start.
pub fn shared_url() -> Result<String> {
    static SHARED: OnceLock<Result<RabbitMq, String>> = OnceLock::new();
    if let Some(url) = running_server("BELFRY_TEST_RABBITMQ_URL") {
        return Ok(url);
    }
    let shared = SHARED.get_or_init(|| RabbitMq::start().map_err(|error| format!("{error:#}")));
    shared.as_ref().map(RabbitMq::url).map_err(|error| anyhow::anyhow!("{error}"))
}

// === impl RabbitMq ===

impl RabbitMq {
    /// Starts an empty node.
    ///
    /// # Errors
    /// When the package is missing, or the node does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        Self::start_with("")
    }

    /// Starts an empty node with further lines of `rabbitmq.conf`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(configuration: &str) -> Result<Self> {
        let keeper = Keeper::new("belfry-rabbitmq-", Signal::KILL)?;
        let mut node = Self {
            keeper,
            port: find::free_port()?,
            distribution_port: find::free_port()?,
            names_port: find::free_port()?,
        };
        let directory = node.keeper.directory();
        let text = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\ndefault_user = {USER}\ndefault_pass = {PASSWORD}\n\
             disk_free_limit.absolute = 64MB\nlog.console = true\nlog.console.level = info\nlog.file = false\n\
             {configuration}\n",
            node.port
        );
        std::fs::write(directory.join("rabbitmq.conf"), text)?;
        std::fs::write(directory.join("enabled_plugins"), "[].\n")?;
        std::fs::write(directory.join("environment"), "")?;
        let mut names = Command::new(find::program(NAMES, &[], &["/usr/lib/erlang/bin"])?);
        names.args(["-address", "127.0.0.1", "-port"]).arg(node.names_port.to_string());
        node.keeper.start(NAMES, &mut names)?;
        let names_port = node.names_port;
        node.keeper.await_ready(NAMES, || TcpStream::connect(("127.0.0.1", names_port)).is_ok())?;
        node.start_again()?;
        Ok(node)
    }

    /// `amqp://user:password@127.0.0.1:port`, for the virtual host `/`.
    pub fn url(&self) -> String {
        format!("amqp://{USER}:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.keeper.end(SERVER, Signal::KILL)
    }

    /// Starts it again after [`kill`](Self::kill), with its queues and at the same address.
    ///
    /// # Errors
    /// When it does not start; its log is quoted.
    pub fn start_again(&mut self) -> Result<()> {
        let mut command = self.command(&broker_script()?);
        self.keeper.start(SERVER, &mut command)?;
        let port = self.port;
        self.keeper.await_ready(SERVER, || greets(port).unwrap_or(false))
    }

    /// Kills it, removes everything it knew, and starts it empty at the same address.
    ///
    /// # Errors
    /// As [`start_again`](Self::start_again).
    pub fn wipe(&mut self) -> Result<()> {
        self.kill()?;
        std::fs::remove_dir_all(self.keeper.directory().join("data"))
            .context("cannot remove the queues")?;
        self.start_again()
    }

    /// The broker's process number while it runs, to measure or stop it.
    pub fn process(&self) -> Option<u32> {
        self.keeper.process(SERVER)
    }

    /// The broker's script, which becomes the Erlang machine (it does so when it is told that systemd runs it), so
    /// that a signal reaches the right process.
    fn command(&self, script: &Path) -> Command {
        let directory = self.keeper.directory();
        let mut command = Command::new(script);
        command.current_dir(directory);
        let places = [
            ("HOME", ""),
            ("RABBITMQ_CONF_ENV_FILE", "environment"),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq.conf"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "enabled_plugins"),
            ("RABBITMQ_MNESIA_BASE", "data"),
            ("RABBITMQ_LOG_BASE", "log"),
            ("RABBITMQ_PID_FILE", "rabbitmq.pid"),
        ];
        command.envs(places.map(|(name, place)| (name, directory.join(place))));
        command
            .env("RABBITMQ_NODENAME", format!("belfry-{}@localhost", self.port))
            .env("RABBITMQ_NODE_PORT", self.port.to_string())
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_DIST_PORT", self.distribution_port.to_string())
            // Channels look every second for what was held too long; once a minute is usual.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1} -rabbit channel_tick_interval 1000",
            )
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", self.names_port.to_string())
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env("LC_ALL", "C.UTF-8");
        command
    }
}

/// The script that the package's own wrapper would run as another user.
fn broker_script() -> Result<PathBuf> {
    let places = ["/usr/lib/rabbitmq/bin", "/usr/lib/rabbitmq/lib/*/sbin", "/opt/rabbitmq/sbin"];
    find::program(SERVER, &["rabbitmq-env"], &places)
}

/// Whether the broker on `port` begins a conversation.
fn greets(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(AMQP_HEADER)?;
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    Ok(kind == [METHOD_FRAME])
}
