//! A directory to work in, the binary, and a double of the engine that speaks its HTTP contract.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;

/// The requests that the double got.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Method and path.
    pub(crate) target: String,
    /// The header of that name, if it came.
    pub(crate) authorization: Option<String>,
    /// The body; null when it was empty.
    pub(crate) body: Value,
    /// The other end of the connection that it came by.
    pub(crate) connection: Option<SocketAddr>,
}

/// The answers of the double.
pub(crate) enum Reply {
    /// Answers with a status and JSON.
    Json(u16, Value),
    /// Answers that it has too much to do, for no time at all.
    Busy,
    /// Closes the connection.
    Hang,
}

/// A double of the engine; serves until the test ends.
pub(crate) struct Engine {
    /// Where it listens.
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A directory with the binary at hand.
pub(crate) struct Workspace {
    directory: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error, line by line.
    pub(crate) err: Vec<String>,
}

// === impl Engine ===

impl Engine {
    /// Answers every request with what `reply` makes of it.
    pub(crate) fn start(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (reply, log) = (Arc::new(reply), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (reply, log) = (Arc::clone(&reply), Arc::clone(&log));
                std::thread::spawn(move || serve(&stream.unwrap(), &*reply, &log));
            }
        });
        Self { url, requests }
    }

    /// Everything it got.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(
    stream: &TcpStream,
    reply: &dyn Fn(&Request) -> Reply,
    log: &Mutex<Vec<Request>>,
) -> Option<()> {
    let mut input = BufReader::new(stream);
    loop {
        let connection = stream.peer_addr().ok()?;
        let request = Request { connection: Some(connection), ..read_request(&mut input)? };
        log.lock().unwrap().push(request.clone());
        let (head, body) = match reply(&request) {
            Reply::Json(status, body) => (format!("{status} Said"), body.to_string()),
            Reply::Busy => ("503 Busy\r\nretry-after: 0".to_owned(), String::new()),
            Reply::Hang => return None,
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
        (&mut &*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn read_request(input: &mut impl std::io::BufRead) -> Option<Request> {
    let mut lines = input.lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let target = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<String> = lines.collect();
    let header = |name: &str| {
        let mut pairs = headers.iter().filter_map(|line| line.split_once(": "));
        pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let length: usize = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Some(Request { target, authorization: header("authorization"), body, connection: None })
}

// === impl Workspace ===

impl Workspace {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// The path of `name` within it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Reads a file.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Makes an empty store where the default configuration has it.
    pub(crate) fn make_store(&self) {
        let synchronous = store::sqlite::Synchronous::Normal;
        let options = store::sqlite::Options { synchronous, ..store::sqlite::Options::new(1) };
        let now = notification::Timestamp::from_millis(1_800_000_000_000);
        store::sqlite::Sqlite::open(&self.path("data"), options, now).unwrap();
    }

    /// Runs `belfry` in the directory, with an environment that says nothing of Belfry.
    pub(crate) fn belfry(&self, arguments: &[&str]) -> Ended {
        let mut command = self.command(arguments);
        Ended::new(&command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs `belfry` with `input` on its standard input.
    pub(crate) fn belfry_reading(&self, arguments: &[&str], input: Vec<u8>) -> Ended {
        self.belfry_fed(arguments, move |mut stdin| drop(stdin.write_all(&input)))
    }

    /// Runs `belfry` with `input` on its standard input, and more to come for as long as it runs.
    pub(crate) fn belfry_reading_on(&self, arguments: &[&str], input: Vec<u8>) -> Ended {
        self.belfry_fed(arguments, move |mut stdin| {
            drop(stdin.write_all(&input));
            stdin
        })
    }

    /// Runs `belfry` and `feed` beside it. It may stop reading early, and that is its right.
    fn belfry_fed<T: Send + 'static>(
        &self,
        arguments: &[&str],
        feed: impl FnOnce(ChildStdin) -> T + Send + 'static,
    ) -> Ended {
        let mut command = self.command(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || feed(stdin));
        let ended = Ended::new(&child.wait_with_output().unwrap());
        writer.join().unwrap();
        ended
    }

    /// `belfry` in the directory, with an environment that says nothing of Belfry.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belfry"));
        command.args(arguments).current_dir(self.directory.path()).env_clear();
        command
    }
}

// === impl Ended ===

impl Ended {
    pub(crate) fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            code: output.status.code().unwrap(),
            out: text(&output.stdout),
            err: text(&output.stderr).lines().map(str::to_owned).collect(),
        }
    }
}
