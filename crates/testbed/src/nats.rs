//! A NATS server with JetStream.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use crate::keeper::Keeper;
use crate::{find, running_server};

/// A running server with JetStream, one user, and its streams in a private directory.
#[derive(Debug)]
pub struct Nats {
    keeper: Keeper,
    port: u16,
}

const SERVER: &str = "nats-server";
const USER: &str = "belfry";
const PASSWORD: &str = "a-password";

/// The address of the server that the tests of this process share: the one that `BELFRY_TEST_NATS_URL` names, or
/// one that is started by the first call. Streams in it need names of their own
/// ([`unique_prefix`](crate::unique_prefix)).
///
/// # Errors
/// When it does not start.
pub fn shared_url() -> Result<String> {
    static SHARED: OnceLock<Result<Nats, String>> = OnceLock::new();
    if let Some(url) = running_server("BELFRY_TEST_NATS_URL") {
        return Ok(url);
    }
    let shared = SHARED.get_or_init(|| Nats::start().map_err(|error| format!("{error:#}")));
    shared.as_ref().map(Nats::url).map_err(|error| anyhow::anyhow!("{error}"))
}

// === impl Nats ===

impl Nats {
    /// Starts an empty server.
    ///
    /// # Errors
    /// When the package is missing, or the server does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        Self::start_with("")
    }

    /// Starts an empty server with further lines of configuration.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(configuration: &str) -> Result<Self> {
        let keeper = Keeper::new("belfry-nats-", Signal::KILL)?;
        let mut nats = Self { keeper, port: find::free_port()? };
        let directory = nats.keeper.directory();
        let text = format!(
            "host: 127.0.0.1\nport: {}\njetstream {{ store_dir: \"{}\" }}\n\
             authorization {{ user: {USER}, password: {PASSWORD} }}\n{configuration}\n",
            nats.port,
            directory.join("data").display(),
        );
        std::fs::write(directory.join("nats.conf"), text)?;
        nats.start_again()?;
        Ok(nats)
    }

    /// `nats://user:password@127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("nats://{USER}:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.keeper.end(SERVER, Signal::KILL)
    }

    /// Starts it again after [`kill`](Self::kill), with its streams and at the same address.
    ///
    /// # Errors
    /// When it does not start; its log is quoted.
    pub fn start_again(&mut self) -> Result<()> {
        let program = find::program(SERVER, &[], &["/usr/sbin", "/usr/local/bin"])?;
        let mut command = Command::new(program);
        command.arg("-c").arg(self.keeper.directory().join("nats.conf"));
        self.keeper.start(SERVER, &mut command)?;
        let port = self.port;
        self.keeper.await_ready(SERVER, || greets(port).unwrap_or(false))
    }

    /// Kills it, removes every stream, and starts it empty at the same address.
    ///
    /// # Errors
    /// As [`start_again`](Self::start_again).
    pub fn wipe(&mut self) -> Result<()> {
        self.kill()?;
        std::fs::remove_dir_all(self.keeper.directory().join("data"))
            .context("cannot remove the streams")?;
        self.start_again()
    }

    /// The server's process number while it runs, to measure or stop it.
    pub fn process(&self) -> Option<u32> {
        self.keeper.process(SERVER)
    }
}

/// Whether the server on `port` says that JetStream is up.
fn greets(port: u16) -> Result<bool> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut greeting = String::new();
    BufReader::new(stream).read_line(&mut greeting)?;
    Ok(greeting.contains("\"jetstream\":true"))
}
