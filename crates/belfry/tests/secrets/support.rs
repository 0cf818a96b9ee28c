//! A directory to work in, the binary, and an engine that is told to read its configuration again.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bench::KillGuard;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const BELFRY: &str = env!("CARGO_BIN_EXE_belfry");
/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A directory with a configuration.
pub(crate) struct Workspace {
    pub(crate) directory: TempDir,
    /// Of every command in it.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Everything that any command printed, and any request was answered.
    pub(crate) printed: String,
}

/// An engine, ended with its handle.
pub(crate) struct Engine {
    child: Child,
    pub(crate) listen: String,
    /// Dropped after the child was ended.
    _watch: KillGuard,
}

// === impl Workspace ===

impl Workspace {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, environment: Vec::new(), printed: String::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BELFRY);
        command.current_dir(self.directory.path()).args(arguments).env_remove("BELFRY_MASTER_KEY");
        command.envs(self.environment.iter().cloned()).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&mut self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        self.keep(&output);
        output
    }

    /// Runs a command that must succeed; gives its output.
    pub(crate) fn get(&mut self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Seals `secret` under `name` with the key in `master.key`.
    pub(crate) fn seal(&mut self, name: &str, setting: &str, secret: &str) -> String {
        let arguments = ["credential", "seal", name, setting, "--key-file", "master.key"];
        let mut command = self.command(&arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(secret.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        self.keep(&output);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn keep(&mut self, output: &Output) {
        self.printed.push_str(&String::from_utf8_lossy(&output.stdout));
        self.printed.push_str(&String::from_utf8_lossy(&output.stderr));
    }

    /// Forgets the last time that `text` was printed.
    pub(crate) fn forget(&mut self, text: &str) {
        let place = self.printed.rfind(text).unwrap();
        self.printed.replace_range(place..place + text.len(), "");
    }

    /// Starts an engine with `belfry.toml`, whose log goes to `log`.
    pub(crate) fn start(&self) -> Engine {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = self.command(&["serve"]);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: serde_json::Value =
            serde_json::from_str(&ready).unwrap_or_else(|_| panic!("{}", self.read("log")));
        let listen = ready["listen"].as_str().unwrap().to_owned();
        Engine { _watch: KillGuard::over(&child).unwrap(), child, listen }
    }

    /// The answer to a request, head and body.
    pub(crate) fn call(&mut self, engine: &Engine, key: &str, request: &str, body: &str) -> String {
        let length = body.len();
        let request = format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let answer = exchange(&engine.listen, &request);
        self.printed.push_str(&answer);
        answer
    }

    /// Has the engine read its configuration again, and waits until it says what came of it; gives that.
    pub(crate) fn reload(&self, engine: &Engine) -> String {
        let before = self.read("log").len();
        engine.hang_up();
        let mut said = String::new();
        eventually("the engine tells of a reload", || {
            self.read("log").split_at(before).1.clone_into(&mut said);
            said.contains("reloaded") && said.ends_with('\n')
        });
        said
    }
}

// === impl Engine ===

impl Engine {
    pub(crate) fn hang_up(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The answer of the server at `address` to `request`, after which it closes the connection.
pub(crate) fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = flow::Clock::system();
    let started = clock.monotonic();
    while !is_so() {
        assert!(clock.monotonic().duration_since(started) < PATIENCE, "not in time: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A key of the API, and the table of the configuration that admits it as an operator's.
pub(crate) fn make_api_key(workspace: &mut Workspace, name: &str) -> (String, String) {
    let scopes = "send,read,cancel,suppress,operate,metrics";
    let table = workspace.get(&["api-key", name, "--tenant", "default", "--scopes", scopes]);
    // What makes a key shows it, once.
    workspace.printed.clear();
    let key = table.lines().find_map(|line| line.strip_prefix("# BELFRY_API_KEY=")).unwrap();
    (key.to_owned(), table)
}
