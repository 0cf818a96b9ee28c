//! A process of Belfry that is scraped, killed and started again, and what is asked of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bench::{KillGuard, LoadCaller};
use flow::Clock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::timeline::Scraped;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks at another process, which take its time.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A process with a configuration of its own. Killed when dropped.
pub(crate) struct Process {
    name: &'static str,
    role: &'static str,
    config: PathBuf,
    running: Option<Running>,
    /// Where it answered last.
    address: String,
}

struct Running {
    child: Child,
    /// Dropped after the child was ended.
    _watch: KillGuard,
}

// === impl Process ===

impl Process {
    /// `belfry ROLE` in `directory`, with the configuration `text`, started.
    pub(crate) fn start(
        directory: &Path,
        role: &'static str,
        name: &'static str,
        text: &str,
    ) -> Self {
        let config = directory.join(format!("{name}.toml"));
        std::fs::write(&config, text).unwrap();
        let mut process = Self { name, role, config, running: None, address: String::new() };
        process.start_again();
        process
    }

    /// Starts it and waits until it works.
    pub(crate) fn start_again(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_belfry"));
        command.arg(self.role).arg("--config").arg(&self.config);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let watch = KillGuard::over(&child).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{}", self.said());
        let ready: Value = serde_json::from_str(&line).unwrap();
        let places = ["/operator/listen", "/listen"];
        let address = places.iter().find_map(|place| ready.pointer(place)).unwrap();
        self.address = address.as_str().unwrap().to_owned();
        self.running = Some(Running { child, _watch: watch });
    }

    fn log(&self) -> PathBuf {
        self.config.with_extension("log")
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Drains it.
    pub(crate) fn stop(&mut self) {
        let mut running = self.running.take().unwrap();
        running.signal(Signal::TERM);
        assert!(running.child.wait().unwrap().success(), "{}", self.said());
    }

    /// Has it read the configuration `text`; whether it goes by it.
    pub(crate) fn reload(&self, text: &str) -> bool {
        let reloads = || {
            let of =
                |result| self.value(&format!("belfry_config_reloads_total{{result=\"{result}\"}}"));
            [of("done"), of("refused")]
        };
        let before = reloads();
        std::fs::write(&self.config, text).unwrap();
        self.running.as_ref().unwrap().signal(Signal::HUP);
        let after = self.eventually("it has read its configuration", |_| {
            Some(reloads()).filter(|after| *after != before)
        });
        after[0] > before[0]
    }

    /// Has it take `notifications`.
    pub(crate) fn send(&self, notifications: &[Value]) {
        let (status, answer) = self.post(notifications);
        assert_eq!(status, 201, "{answer}");
    }

    /// Its answer to `notifications`.
    pub(crate) fn post(&self, notifications: &[Value]) -> (u16, String) {
        let mut caller = LoadCaller::connect(&self.address).unwrap();
        let body = Value::from(notifications).to_string();
        caller.request("none", "POST /v1/notifications", &body).unwrap()
    }

    /// Has it do what `line` says, a method and a path; its answer must be a success.
    pub(crate) fn ask(&self, line: &str) {
        let mut caller = LoadCaller::connect(&self.address).unwrap();
        let (status, answer) = caller.request("none", line, "").unwrap();
        assert_eq!(status, 200, "{answer}");
    }

    /// Its metrics, under its name; none if it does not answer.
    pub(crate) fn scrape(&self) -> Scraped {
        (self.name, self.metrics())
    }

    fn metrics(&self) -> Option<String> {
        self.running.as_ref()?;
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let head = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, metrics) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        Some(metrics.to_owned())
    }

    /// Its metrics but for those of which there are many.
    fn shown(&self) -> String {
        let metrics = self.metrics().unwrap_or_default();
        let lines =
            metrics.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The present value of a series, none while it is missing.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        let metrics = self.metrics()?;
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }

    /// Waits until the value of `series` is as `condition` says.
    pub(crate) fn until(&self, series: &str, condition: impl Fn(f64) -> bool) {
        self.eventually(series, |process| process.value(series).filter(|value| condition(*value)));
    }

    /// Looks at it until `look` finds something.
    pub(crate) fn eventually<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let clock = Clock::system();
        let start = clock.monotonic();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let waited = clock.monotonic().duration_since(start);
            assert!(waited < PATIENCE, "never: {what}\n{}\n{}", self.shown(), self.said());
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

// === impl Running ===

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
