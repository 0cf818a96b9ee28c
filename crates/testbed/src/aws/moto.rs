//! moto: SQS, Kinesis and STS, in memory.

use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;
use rustix::process::Signal;

use super::{answers, place};
use crate::keeper::Keeper;
use crate::{find, running_server};

/// A running server. It takes any region, and any credentials unless it was started to check them.
#[derive(Debug)]
pub struct Moto {
    keeper: Keeper,
    port: u16,
}

const SERVER: &str = "moto";
/// Starts the server.
const LAUNCH: &str = include_str!("moto.py");

/// The address of the server that the tests of this process share: the one that `BELFRY_TEST_MOTO_URL` names, or one that is started
/// by the first call. Streams and queues in it need names of their own ([`unique_prefix`](crate::unique_prefix)).
///
/// # Errors
/// When it does not start.
pub fn shared_url() -> Result<String> {
    static SHARED: OnceLock<Result<Moto, String>> = OnceLock::new();
    if let Some(url) = running_server("BELFRY_TEST_MOTO_URL") {
        return Ok(url);
    }
    let shared = SHARED.get_or_init(|| Moto::start().map_err(|error| format!("{error:#}")));
    shared.as_ref().map(Moto::url).map_err(|error| anyhow::anyhow!("{error}"))
}

// === impl Moto ===

impl Moto {
    /// Starts an empty server that takes any credentials.
    ///
    /// # Errors
    /// When it was not fetched or does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts an empty server that refuses the credentials of users that it does not have, which are all.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_authentication() -> Result<Self> {
        Self::start_with(&[("INITIAL_NO_AUTH_ACTION_COUNT", "0")])
    }

    fn start_with(environment: &[(&str, &str)]) -> Result<Self> {
        let python = place(SERVER, "bin/python")?.join("bin/python");
        let mut keeper = Keeper::new("belfry-moto-", Signal::KILL)?;
        let port = find::free_port()?;
        let mut command = Command::new(python);
        command.args(["-c", LAUNCH, "-H", "127.0.0.1", "-p", &port.to_string()]);
        command.envs(environment.iter().copied());
        keeper.start(SERVER, &mut command)?;
        keeper.await_ready(SERVER, || answers(port).unwrap_or(false))?;
        Ok(Self { keeper, port })
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The server's process number while it runs, to measure or stop it.
    pub fn process(&self) -> Option<u32> {
        self.keeper.process(SERVER)
    }
}
