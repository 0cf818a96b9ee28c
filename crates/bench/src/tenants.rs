//! Two tenants of one engine, and how long one of them waits.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flow::Clock;

use crate::caller::LoadCaller;
use crate::client::feed;
use crate::process::{EngineProcess, EngineRole, EngineSettings, SimulatorProcess};
use crate::workload::token;

/// The API key of the tenant `first`, who also sees what concerns both.
pub const FIRST_KEY: &str = "bench-key-of-the-first-tenant";
/// The API key of the tenant `second`.
pub const SECOND_KEY: &str = "bench-key-of-the-second-tenant";

/// The SHA-256 of both keys, as a configuration has them.
const KEYS: &str = r#"[
    {name = "first", tenant = "first", scopes = ["send", "read", "operate"], sha256 = "86cb40e2b054137c1d55b81f34f832c8d55001bd50412337bc297f6c8e8abc7b"},
    {name = "second", tenant = "second", sha256 = "d9ced8669579c2b10c83f00c39ec012ee18cdfd5957dbdee79d21aa58715a1b5"},
]"#;

const NEWS: &str = r#"{"aps":{"alert":"news"}}"#;
/// Between two looks at whether a notification is settled.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A notification that is not settled by then ends the measurement.
const SETTLED_WITHIN: Duration = Duration::from_mins(5);

/// How long one notification took from its POST.
#[derive(Debug, Clone, Copy)]
pub struct Waited {
    /// To the answer.
    pub accepted: Duration,
    /// To a read that found it delivered.
    pub settled: Duration,
}

/// Starts an engine with both keys, on the store at the address `store`, or else on a directory of its own.
///
/// # Errors
/// When it does not start.
pub fn start_engine(
    binary: &Path,
    directory: &Path,
    simulator: &SimulatorProcess,
    store: Option<&str>,
) -> Result<EngineProcess> {
    let settings = EngineSettings {
        binary,
        directory,
        listen: "127.0.0.1:0",
        environment: &[("BELFRY__SERVER__KEYS".to_owned(), KEYS.to_owned())],
        role: EngineRole::Serve,
        store,
        queue: None,
    };
    EngineProcess::start(settings, &simulator.ready)
}

/// Sends one content to the tokens of `numbers` as a broadcast of the tenant with this `key`, and waits until it is accepted.
///
/// # Errors
/// With the command's own words when it fails.
pub fn broadcast(engine: &EngineProcess, key: &str, numbers: Range<u64>) -> Result<()> {
    let mut command = engine.client().command("send");
    command.args(["--channel", "ios", "--to-file", "-", "--json", "--content", NEWS]);
    command.env("BELFRY_API_KEY", key);
    feed(command, numbers.map(token))
}

/// Sends the token of `number` a notification of this priority for [`SECOND_KEY`], and waits until it is delivered. Gives the
/// status of the answer when that is another one than 201.
///
/// # Errors
/// When the connection breaks, or it is not delivered within five minutes.
pub fn deliver(
    caller: &mut LoadCaller,
    number: u64,
    priority: &str,
) -> Result<Result<Waited, u16>> {
    let clock = Clock::system();
    let to = token(number);
    let body = format!(
        r#"{{"channel":"ios","to":"{to}","priority":"{priority}","content":{{"aps":{{"alert":"code"}}}}}}"#
    );
    let started = clock.monotonic();
    let waited = || clock.monotonic().duration_since(started);
    let (status, answer) = caller.request(SECOND_KEY, "POST /v1/notifications", &body)?;
    if status != 201 {
        return Ok(Err(status));
    }
    let accepted = waited();
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    let id = answer.get("id").and_then(serde_json::Value::as_str).context("no id")?;
    let line = format!("GET /v1/notifications/{id}");
    loop {
        let (_, answer) = caller.request(SECOND_KEY, &line, "")?;
        let settled = waited();
        if answer.contains(r#""state":"delivered""#) {
            return Ok(Ok(Waited { accepted, settled }));
        }
        ensure!(settled < SETTLED_WITHIN, "not settled after {settled:?}: {answer}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// How often, and percentiles in milliseconds; sorts `times`.
pub fn percentiles(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |percent: usize| {
        let rank = times.len().saturating_sub(1) * percent / 100;
        times.get(rank).copied().unwrap_or_default().as_secs_f64() * 1e3
    };
    let (count, p50, p99, max) = (times.len(), at(50), at(99), at(100));
    format!("{count:6} times: p50 {p50:8.2} ms, p99 {p99:8.2} ms, max {max:8.2} ms")
}
