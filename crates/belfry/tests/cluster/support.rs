//! Processes of one cluster, a provider that counts, and what is asked of them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bench::workload::token;
use bench::{
    AuditOutput, JournalBooks, JournalTail, KillGuard, SimulatorProcess, Workload,
    WorkloadGuarantee,
};
use flow::Clock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks at another process. Most looks start a command or read a file: without a pause they would take the processor from
/// the engines.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A provider, a store, and perhaps a broker: what processes are started with.
pub(crate) struct Cluster {
    pub(crate) directory: TempDir,
    simulator: SimulatorProcess,
    environment: Vec<(&'static str, String)>,
    tokens: u64,
}

/// A process. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    config: PathBuf,
    listen: String,
    log: PathBuf,
    /// Dropped after the child was ended.
    _watch: KillGuard,
}

// === impl Cluster ===

impl Cluster {
    /// A cluster on the store at `store`, with a provider that counts `tokens`.
    pub(crate) fn new(store: &str, tokens: u64, simulator_flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let flags: Vec<String> = simulator_flags.iter().map(|&flag| flag.to_owned()).collect();
        let simulator = SimulatorProcess::start(belfry(), directory.path(), &flags).unwrap();
        let environment = vec![("BELFRY__STORE__URL", store.to_owned())];
        Self { directory, simulator, environment, tokens }
    }

    /// An engine on its own, with its store in a directory.
    pub(crate) fn on_disk(tokens: u64, simulator_flags: &[&str]) -> Self {
        let mut cluster = Self::new("", tokens, simulator_flags);
        let data = cluster.directory.path().join("data").display().to_string();
        cluster.environment = vec![("BELFRY__STORE__DIRECTORY", data)];
        cluster
    }

    /// This cluster with a broker, in which no other test has these names.
    pub(crate) fn with_queue(self, url: &str) -> Self {
        self.with("BELFRY__QUEUE__URL", url).with("BELFRY__QUEUE__PREFIX", testbed::unique_prefix())
    }

    /// This cluster with a variable in the environment of its processes.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Starts `belfry ROLE` and waits until it works.
    pub(crate) fn start(&self, role: &str, name: &str) -> Process {
        let mut process = self.start_unready(role, name, "127.0.0.1:0");
        process.await_ready();
        process
    }

    /// Starts `belfry ROLE` with this soft limit of open files and waits until it works. The hard limit stays.
    pub(crate) fn start_with_open_files(&self, role: &str, name: &str, limit: &str) -> Process {
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"ulimit -Sn "$0" && exec "$@""#, limit]).arg(belfry());
        let mut process = self.spawn(shell, role, name, "127.0.0.1:0");
        process.await_ready();
        process
    }

    /// Starts `belfry ROLE`, and waits for nothing.
    pub(crate) fn start_unready(&self, role: &str, name: &str, listen: &str) -> Process {
        self.spawn(Command::new(belfry()), role, name, listen)
    }

    /// Starts `command`, to which the arguments of a process are added.
    fn spawn(&self, mut command: Command, role: &str, name: &str, listen: &str) -> Process {
        let config = self.directory.path().join(format!("{name}.toml"));
        std::fs::write(&config, self.configuration(listen)).unwrap();
        let log = self.directory.path().join(format!("{name}.log"));
        let stderr = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        command.arg(role).arg("--config").arg(&config).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let child = command.spawn().unwrap();
        Process {
            _watch: KillGuard::over(&child).unwrap(),
            child,
            config,
            listen: listen.to_owned(),
            log,
        }
    }

    /// A command of the same configuration that talks to `process`.
    pub(crate) fn command(&self, process: &Process, name: &str) -> Command {
        let mut command = Command::new(belfry());
        command.arg(name).arg("--config").arg(&process.config).stdin(Stdio::null());
        command.envs(self.environment.iter().cloned());
        if !["audit", "events", "log"].contains(&name) {
            command.arg("--url").arg(format!("http://{}", process.listen));
        }
        command
    }

    /// Sends one content to the tokens of `numbers` as one broadcast; gives its number.
    pub(crate) fn broadcast(
        &self,
        by: &Process,
        numbers: Range<u64>,
        guarantee: WorkloadGuarantee,
    ) -> String {
        let recipients = self.directory.path().join("recipients");
        let lines: Vec<String> = numbers.map(token).collect();
        std::fs::write(&recipients, lines.join("\n")).unwrap();
        let mut command = self.command(by, "send");
        command.args(["--channel", "ios", "--content", r#"{"aps":{}}"#]);
        command.args(["--guarantee", guarantee.as_str(), "--json", "--to-file"]).arg(recipients);
        let sent: Value = serde_json::from_str(&checked(&command.output().unwrap())).unwrap();
        sent["id"].as_str().unwrap().to_owned()
    }

    /// The account of all notifications, as `process` shows it.
    pub(crate) fn status(&self, process: &Process) -> Value {
        let output = self.command(process, "status").arg("--json").output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", process.said());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until `process` says that nothing is pending of `accepted` notifications.
    pub(crate) fn drained(&self, process: &Process, accepted: u64) {
        eventually("everything is settled", || {
            let totals = &self.status(process)["totals"];
            totals["pending"] == 0 && totals["accepted"] == accepted
        });
    }

    /// Checks this when a feed adds notifications of its own.
    pub(crate) fn drained_but_for_the_feed(&self, process: &Process, accepted: u64) {
        eventually("everything is settled", || {
            let totals = &self.status(process)["totals"];
            let count = |state: &str| totals[state].as_u64().unwrap();
            count("accepted") >= accepted && count("pending") <= 1
        });
    }

    /// The account, counted from the ground up.
    pub(crate) fn audit(&self, process: &Process) -> AuditOutput {
        let output = self.command(process, "audit").arg("--json").output().unwrap();
        serde_json::from_str(&checked(&output)).unwrap()
    }

    /// How many requests the provider has had.
    pub(crate) fn requests(&self) -> u64 {
        JournalTail::open(&self.simulator.ready.journal).unwrap().lines().unwrap()
    }

    /// When the provider had each request, in microseconds since the Unix epoch, in order.
    pub(crate) fn received(&self) -> Vec<u64> {
        let mut journal =
            provider_sim::journal::Reader::open(&self.simulator.ready.journal).unwrap();
        let mut received = Vec::new();
        while let Some(record) = journal.next_record().unwrap() {
            received.push(record.received_us);
        }
        received.sort_unstable();
        received
    }

    /// Waits until the provider has had so many requests, and no more.
    pub(crate) fn requested(&self, requests: u64) {
        assert_eq!(self.requested_at_least(requests), requests);
    }

    /// Waits until the provider has had so many requests, and gives their number.
    pub(crate) fn requested_at_least(&self, requests: u64) -> u64 {
        let mut journal = JournalTail::open(&self.simulator.ready.journal).unwrap();
        let mut lines = 0;
        eventually("the provider was asked", || {
            lines = journal.lines().unwrap();
            lines >= requests
        });
        lines
    }

    /// Stops the provider, or lets it go on.
    pub(crate) fn signal_provider(&self, signal: Signal) {
        self.simulator.signal(signal).unwrap();
    }

    /// The provider's books.
    pub(crate) fn books(&self) -> JournalBooks {
        let workload = Workload { tokens: self.tokens, webhooks: Vec::new() };
        JournalBooks::read(&self.simulator.ready.journal, &workload).unwrap()
    }

    fn configuration(&self, listen: &str) -> String {
        let key = self.directory.path().join("apns-key.p8");
        if !key.exists() {
            std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        }
        let ready = &self.simulator.ready;
        format!(
            "server.listen = \"{listen}\"\n[channels.ios]\nkind = \"apns\"\nendpoint = \"https://{}\"\n\
             ca_file = {:?}\nkey_file = {key:?}\nkey_id = \"BELFRYKEY1\"\nteam_id = \"BELFRYTEAM\"\n\
             topic = \"org.belfry.test\"\n\
             [channels.hooks]\nkind = \"webhook\"\nallow_http = true\nallow_networks = [\"127.0.0.0/8\"]\n\
             secrets = [\"whsec_YmVsZnJ5IGRlbW86IG5vdCBhIHJlYWwgc2VjcmV0ISE=\"]\n",
            ready.apns, ready.ca
        )
    }
}

// === impl Process ===

impl Process {
    /// Waits for the line that says that it works.
    pub(crate) fn await_ready(&mut self) {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{}", self.said());
        let ready: Value = serde_json::from_str(&line).unwrap();
        self.listen = ready["listen"].as_str().unwrap().to_owned();
    }

    /// Its log.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Its number and its name in the cluster.
    pub(crate) fn name(&self) -> String {
        let host = rustix::system::uname();
        format!("{}-{}", host.nodename().to_str().unwrap(), self.child.id())
    }

    /// Its limits of open files, soft and hard, as the kernel shows them.
    pub(crate) fn open_files(&self) -> (String, String) {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    }

    /// The status code of a `GET` without a key; `None` when it cannot be reached.
    pub(crate) fn get(&self, path: &str) -> Option<u16> {
        self.answer(path)?.split(' ').nth(1)?.parse().ok()
    }

    /// The body of the answer.
    pub(crate) fn fetch(&self, path: &str) -> Option<String> {
        let answer = self.answer(path)?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }

    /// The body of the answer to a `POST` of this JSON, with these further header lines.
    pub(crate) fn post(&self, path: &str, headers: &str, body: &Value) -> String {
        let body = body.to_string();
        let length = body.len();
        let head =
            format!("content-type: application/json\r\ncontent-length: {length}\r\n{headers}");
        let answer = self.asked(&format!("POST {path}"), &head, &body).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    fn answer(&self, path: &str) -> Option<String> {
        self.asked(&format!("GET {path}"), "", "")
    }

    fn asked(&self, what: &str, headers: &str, body: &str) -> Option<String> {
        let mut socket = TcpStream::connect(&self.listen).ok()?;
        let usual = "host: localhost\r\nconnection: close\r\n";
        write!(socket, "{what} HTTP/1.1\r\n{usual}{headers}\r\n{body}").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Has it go by another configuration, in which `from` has become `to`.
    pub(crate) fn reload(&self, from: &str, to: &str) {
        let reloads = || self.said().matches("reloaded: what is sent").count();
        let (before, text) = (reloads(), std::fs::read_to_string(&self.config).unwrap());
        assert!(text.contains(from), "{text}");
        std::fs::write(&self.config, text.replace(from, to)).unwrap();
        self.signal(Signal::HUP);
        eventually("it is reloaded", || reloads() > before);
    }

    /// Waits until it has ended, and gives its exit code.
    pub(crate) fn ended(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }

    /// Drains it.
    pub(crate) fn stop(mut self) {
        self.terminate();
        assert_eq!(self.ended(), 0, "{}", self.said());
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Looks at another process until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = Clock::system();
    let start = clock.monotonic();
    while !condition() {
        let waited = clock.monotonic().duration_since(start);
        assert!(waited < PATIENCE, "{waited:?} have passed, and still not: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Standard output of a command that did well.
pub(crate) fn checked(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn belfry() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_belfry"))
}
