//! Secrets stay secret: canaries wherever a secret may stand, and a look for them in everything that comes out.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "all of it is test code: a failure here fails the test"
)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const WEBHOOK_SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_WEBHOOK_SECRET: &str = "C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A directory with a configuration full of secrets.
struct Workspace {
    directory: TempDir,
    /// What must be seen nowhere.
    canaries: Vec<String>,
    /// Everything that any command printed.
    printed: String,
}

/// An engine, ended with its handle.
struct Engine {
    child: Child,
    listen: String,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Workspace {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, canaries: Vec::new(), printed: String::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belfry"));
        command.current_dir(self.directory.path()).args(arguments).env_remove("BELFRY_MASTER_KEY");
        command
    }

    fn run(&mut self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        self.keep(&output);
        output
    }

    fn keep(&mut self, output: &Output) {
        self.printed.push_str(&String::from_utf8_lossy(&output.stdout));
        self.printed.push_str(&String::from_utf8_lossy(&output.stderr));
    }

    /// Seals `secret`, from which `canary` must not be seen.
    fn seal(&mut self, name: &str, secret: &str, canary: &str) -> String {
        self.canaries.push(canary.to_owned());
        let mut command = self.command(&["credential", "seal", name, "--key-file", "master.key"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(secret.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        self.keep(&output);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn start(&self) -> Engine {
        let log = File::create(self.path("log")).unwrap();
        let mut command = self.command(&["serve"]);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        let listen = ready["listen"].as_str().unwrap().to_owned();
        Engine { child, listen }
    }

    fn wait_for(&self, words: &str, times: usize) {
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        while fs::read_to_string(self.path("log")).unwrap().matches(words).count() < times {
            let waited = clock.monotonic().duration_since(started);
            assert!(
                waited < PATIENCE,
                "no {words:?}: {}",
                fs::read_to_string(self.path("log")).unwrap()
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the log of deliveries has so many lines.
    fn wait_for_attempts(&mut self, lines: usize) {
        let clock = flow::Clock::system();
        let started = clock.monotonic();
        loop {
            let log = self.run(&["log", "--json"]).stdout;
            if String::from_utf8(log).unwrap().lines().count() >= lines {
                return;
            }
            assert!(clock.monotonic().duration_since(started) < PATIENCE, "nothing was attempted");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Looks for canaries in everything but the files that have them.
    fn look(&self, except: &[&str]) {
        let mut texts = vec![("what was printed".to_owned(), self.printed.clone().into_bytes())];
        collect(self.directory.path(), except, &mut texts);
        for (place, bytes) in texts {
            for canary in &self.canaries {
                let canary = canary.as_bytes();
                let is_seen = bytes.windows(canary.len()).any(|window| window == canary);
                assert!(!is_seen, "{place} shows {:?}", String::from_utf8_lossy(canary));
            }
        }
    }
}

fn collect(directory: &Path, except: &[&str], texts: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), except, texts);
        } else if !except.contains(&name.as_str()) {
            texts.push((name, fs::read(entry.path()).unwrap()));
        }
    }
}

fn hang_up(engine: &Engine) {
    let pid = Pid::from_raw(i32::try_from(engine.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
}

/// A second line of a PEM text: some of the key.
fn canary_of(pem: &str) -> String {
    pem.lines().nth(1).unwrap().to_owned()
}

/// A key of the API, and its hash.
fn make_api_key(workspace: &mut Workspace) -> (String, String) {
    let made = workspace.run(&["api-key", "ops", "--tenant", "default"]);
    let made = [made.stdout, made.stderr].concat();
    let made = String::from_utf8(made).unwrap();
    workspace.printed.clear();
    let words = made.split(|character: char| character.is_whitespace() || character == '"');
    let api_key =
        words.clone().find_map(|word| word.strip_prefix("BELFRY_API_KEY=")).unwrap().to_owned();
    workspace.canaries.push(api_key.clone());
    let sha256 = words.clone().find(|word| word.len() == 64).unwrap().to_owned();
    (api_key, sha256)
}

/// Has the engine read configurations that are wrong.
fn reload_in_vain(workspace: &mut Workspace, engine: &Engine, wrong: &[String]) {
    for text in wrong {
        workspace.write("belfry.toml", text);
        let log = fs::read_to_string(workspace.path("log")).unwrap();
        hang_up(engine);
        workspace.wait_for("not reloaded", log.matches("not reloaded").count() + 1);
        let checked = workspace.run(&["check-config"]);
        assert_eq!(checked.status.code(), Some(78));
    }
}

#[test]
fn no_secret_is_seen_in_what_comes_out() {
    let mut workspace = Workspace::new();
    assert!(workspace.run(&["credential", "key", "master.key"]).status.success());
    let master_key = fs::read_to_string(workspace.path("master.key")).unwrap();
    workspace.canaries.push(master_key.trim_end().to_owned());
    let (api_key, sha256) = make_api_key(&mut workspace);
    let apple = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let sealed_apple = workspace.seal("apple", &apple, &canary_of(&apple));
    let browser = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let sealed_browser = workspace.seal("web", &browser, &canary_of(&browser));
    workspace.write("web.sealed", &sealed_browser);
    let webhook = format!("whsec_{WEBHOOK_SECRET}");
    let sealed_webhook = workspace.seal("hooks", &webhook, WEBHOOK_SECRET);
    let config = |secrets: &str, credential: &str| {
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n\
             [[server.keys]]\nname = \"ops\"\ntenant = \"default\"\noperator = true\nsha256 = \"{sha256}\"\n\
             [delivery]\nsenders = 1\n[log]\nlevel = \"trace\"\n\
             [credentials]\nkey_file = \"master.key\"\n\
             [credentials.apple]\nkey = \"{sealed_apple}\"\nkey_id = \"ABCDE12345\"\nteam_id = \"TEAM012345\"\n\
             [channels.ios]\nkind = \"apns\"\ncredential = \"{credential}\"\ntopic = \"a.b\"\nendpoint = \"https://127.0.0.1:1\"\n\
             [channels.hooks]\nkind = \"webhook\"\nsecrets = {secrets}\nallow_http = true\nallow_networks = [\"127.0.0.0/8\"]\n\
             [channels.web]\nkind = \"webpush\"\nkey_file = \"web.sealed\"\nsubject = \"mailto:a@example.com\"\n"
        )
    };
    workspace.canaries.push(OTHER_WEBHOOK_SECRET.to_owned());
    let both = format!("[\"{sealed_webhook}\", \"whsec_{OTHER_WEBHOOK_SECRET}\"]");
    workspace.write("belfry.toml", &config(&both, "apple"));
    let checked = workspace.run(&["check-config"]);
    assert!(checked.status.success(), "{}", workspace.printed);

    let engine = workspace.start();
    let url = format!("http://{}", engine.listen);
    let call = ["--url", url.as_str(), "--api-key", api_key.as_str()];
    let token = "ab".repeat(32);
    for (channel, to) in [("ios", token.as_str()), ("hooks", "http://127.0.0.1:1/x")] {
        let send = ["send", "--channel", channel, "--to", to, "--content", "{\"aps\":{}}"];
        let ended = workspace.run(&[send.as_slice(), &call].concat());
        assert!(ended.status.success(), "{}", workspace.printed);
    }
    workspace.wait_for_attempts(2);
    // What is wrong is told and changes nothing.
    let wrong = [
        config(&format!("\"whsec_{OTHER_WEBHOOK_SECRET}\""), "apple"),
        config(&format!("[\"{OTHER_WEBHOOK_SECRET}\"]"), "apple"),
        config(&format!("[\"{sealed_webhook}A\"]"), "nobody"),
        format!("{}\nkey = {OTHER_WEBHOOK_SECRET}", config(&both, "apple")),
    ];
    reload_in_vain(&mut workspace, &engine, &wrong);
    workspace.write("belfry.toml", &config(&format!("[\"{sealed_webhook}\"]"), "apple"));
    hang_up(&engine);
    workspace.wait_for("reloaded: what is sent", 1);
    for command in [["status", "--json"], ["log", "--json"], ["audit", "--json"]] {
        let with_call = if command[0] == "status" { call.as_slice() } else { &[] };
        workspace.run(&[command.as_slice(), with_call].concat());
    }
    let place = "postgres://belfry:canary-in-a-url@127.0.0.1:1/belfry";
    workspace.canaries.push("canary-in-a-url".to_owned());
    workspace.run(&["status", "--store", place]);
    workspace.run(&["log", "--store", "postgres://belfry:canary-in-a-url@:bad:/belfry"]);
    workspace.run(&[
        "produce",
        "--store",
        place,
        "--queue",
        "http://u:canary-in-a-url@127.0.0.1:1",
    ]);
    drop(engine);
    workspace.look(&["belfry.toml", "master.key"]);
}
