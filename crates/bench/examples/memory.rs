//! The memory that large contents take: `memory BINARY sqlite|postgres [CHUNKS=3000]`.
//!
//! Two loads, each on an engine and a store of its own, with a provider that answers after two seconds: CHUNKS chunks of
//! four webhooks with a content of their own, 1 MiB together, for 250 hosts; and one broadcast of a quarter of a mebibyte to
//! CHUNKS hosts, which are as many chunks of one. Prints the resident memory of the engine's process when it is idle, the
//! most while the load comes in, the most while it is delivered, and what is left at the end. Fails when the most is more
//! than 256 MiB above the idle process: half of `notification::limits::MEMORY_BYTES`, since large contents fill the bounds on bytes
//! before those on deliveries.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::{EngineProcess, EngineRole, EngineSettings, LoadCaller, SimulatorProcess, Usage};
use flow::Clock;
use testbed::{PostgresOptions, PostgresServer};

/// From a request to its answer.
const LATENCY: Duration = Duration::from_secs(2);
/// Hosts of the chunks with contents of their own.
const HOSTS: u64 = 250;
/// Notifications of one such chunk, and of one request: what 16 MiB have room for.
const OF_CHUNK: u64 = 4;
const OF_REQUEST: u64 = 15 * OF_CHUNK;
/// Bytes of a content: four of them are 1 MiB but for what a batch has beside its contents.
const CONTENT_BYTES: usize = 255 * 1024;
const CALLERS: u64 = 4;
/// The bound.
const BOUND: u64 = 256 << 20;
/// Until everything is delivered.
const PATIENCE: Duration = Duration::from_mins(15);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// From the last load to the last look: a process that gives memory back does so within some seconds.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// No key is configured, so any will do.
const KEY: &str = "none";

/// The load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    OwnContents,
    Broadcast,
}

/// A provider that accepts everything, slowly.
#[derive(Debug)]
struct Provider {
    port: u16,
    answered: Arc<AtomicU64>,
}

/// Looks at a process until it is told to stop.
#[derive(Debug)]
struct Watcher {
    most: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: memory BINARY sqlite|postgres [CHUNKS]";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let postgres = match arguments.next().as_deref() {
        Some("sqlite") => None,
        Some("postgres") => Some(PostgresServer::start_with(PostgresOptions::default())?),
        _ => bail!(usage),
    };
    let chunks = arguments.next().map_or(Ok(3_000), |text| text.parse()).context(usage)?;
    let mut most = 0;
    for load in [Load::OwnContents, Load::Broadcast] {
        most = most.max(measure(&binary, postgres.as_ref(), load, chunks)?);
    }
    ensure!(most <= BOUND, "{} MiB are more than {}", most >> 20, BOUND >> 20);
    Ok(())
}

/// How many bytes the engine took at most, above what it takes when idle.
fn measure(
    binary: &Path,
    postgres: Option<&PostgresServer>,
    load: Load,
    chunks: u64,
) -> Result<u64> {
    let database = postgres.map(PostgresServer::create_database).transpose()?;
    let directory = tempfile::tempdir()?;
    let provider = Provider::start()?;
    // It writes what a configuration needs, and is sent nothing.
    let simulator = SimulatorProcess::start(binary, directory.path(), &[])?;
    let setting =
        |name: &str, value: &str| (format!("BELFRY__CHANNELS__HOOKS__{name}"), value.to_owned());
    let settings = EngineSettings {
        binary,
        directory: directory.path(),
        listen: "127.0.0.1:0",
        environment: &[setting("ALLOW_HTTP", "true")],
        role: EngineRole::Serve,
        store: database.as_ref().map(testbed::Database::url),
        queue: None,
    };
    let mut engine = EngineProcess::start(settings, &simulator.ready)?;
    std::thread::sleep(AFTERWARDS);
    let idle = engine.usage()?.memory_bytes;
    let clock = Clock::system();
    let started = clock.monotonic();
    let watcher = Watcher::over(&engine);
    let count = match load {
        Load::OwnContents => post_own_contents(engine.listen(), provider.port, chunks)?,
        Load::Broadcast => post_broadcast(engine.listen(), provider.port, chunks)?,
    };
    let most_in = watcher.most.swap(0, Ordering::Relaxed);
    let took_in = clock.monotonic().duration_since(started);
    let started = clock.monotonic();
    while provider.answered.load(Ordering::Relaxed) < count || engine.client().pending()? > 0 {
        ensure!(engine.ended()?.is_none(), "the engine ended by itself");
        let answered = provider.answered.load(Ordering::Relaxed);
        let is_patient = clock.monotonic().duration_since(started) < PATIENCE;
        ensure!(is_patient, "{answered} of {count} after {PATIENCE:?}");
        std::thread::sleep(LOOK_EVERY);
    }
    let took_out = clock.monotonic().duration_since(started);
    let most_out = watcher.most.load(Ordering::Relaxed);
    std::thread::sleep(AFTERWARDS);
    watcher.stopped.store(true, Ordering::Relaxed);
    let Usage { memory_bytes: left, memory_bytes_max, .. } = engine.usage()?;
    engine.stop()?;
    let mib = |bytes: u64| bytes >> 20;
    writeln!(
        std::io::stdout(),
        "{load:?}, {count} notifications: idle {} MiB; most while they came in for {took_in:.1?} {} MiB; most while they were \
         delivered for {took_out:.1?} {} MiB; at the end {} MiB. The most, {} MiB, is {} MiB above idle",
        mib(idle),
        mib(most_in),
        mib(most_out),
        mib(left),
        mib(memory_bytes_max),
        mib(memory_bytes_max - idle),
    )?;
    Ok(memory_bytes_max - idle)
}

// ----- what comes in -----

fn host(number: u64) -> String {
    // 127.0.0.1 is the simulator's.
    let number = number + 256;
    format!("127.{}.{}.{}", number >> 16, (number >> 8) & 0xff, number & 0xff)
}

/// A JSON text of [`CONTENT_BYTES`].
fn content(number: u64) -> String {
    let letters = "x".repeat(CONTENT_BYTES - 32);
    format!(r#"{{"n":"{number:016}{letters}"}}"#)
}

/// Returns how many notifications these are.
fn post_own_contents(address: &str, port: u16, chunks: u64) -> Result<u64> {
    let count = chunks * OF_CHUNK;
    let next = AtomicU64::new(0);
    let call = || {
        let mut caller = LoadCaller::connect(address)?;
        loop {
            let from = next.fetch_add(OF_REQUEST, Ordering::Relaxed);
            if from >= count {
                return Ok(());
            }
            let item = |number: u64| {
                let (host, content) = (host(number / OF_CHUNK % HOSTS), content(number));
                format!(r#"{{"channel":"hooks","to":"http://{host}:{port}/","content":{content}}}"#)
            };
            let items: Vec<String> = (from..(from + OF_REQUEST).min(count)).map(item).collect();
            post_until_taken(
                &mut caller,
                "POST /v1/notifications",
                &format!("[{}]", items.join(",")),
            )?;
        }
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        let joined =
            callers.into_iter().map(|it| it.join().unwrap_or_else(|_| bail!("a caller panicked")));
        joined.collect::<Result<()>>()
    })?;
    Ok(count)
}

fn post_broadcast(address: &str, port: u16, chunks: u64) -> Result<u64> {
    let mut caller = LoadCaller::connect(address)?;
    let recipients: Vec<String> =
        (0..chunks).map(|number| format!(r#""http://{}:{port}/""#, host(number))).collect();
    let body = format!(
        r#"{{"channel":"hooks","content":{},"recipients":[{}]}}"#,
        content(0),
        recipients.join(",")
    );
    post_until_taken(&mut caller, "POST /v1/broadcasts", &body)?;
    Ok(chunks)
}

/// Repeats what was turned away because too much is coming in.
fn post_until_taken(caller: &mut LoadCaller, line: &str, body: &str) -> Result<()> {
    loop {
        let (status, answer) = caller.request(KEY, line, body)?;
        match status {
            201 => return Ok(()),
            429 | 503 => std::thread::sleep(LOOK_EVERY),
            _ => bail!("{line}: {status} {answer}"),
        }
    }
}

// ----- the provider -----

impl Provider {
    /// Listens on every loopback address, so that there are as many hosts as a load wants.
    fn start() -> Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        let port = listener.local_addr()?.port();
        let answered = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&answered);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let is_local = stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
                if is_local {
                    let count = Arc::clone(&count);
                    // One that the engine gave up is closed, and counts nothing.
                    let answer = move || answer_slowly(&stream, &count);
                    let thread = std::thread::Builder::new().stack_size(1 << 18);
                    let _spawned = thread.spawn(answer);
                }
            }
        });
        Ok(Self { port, answered })
    }
}

/// Answers every request of a connection.
fn answer_slowly(mut stream: &TcpStream, answered: &AtomicU64) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            ensure!(reader.read_line(&mut line)? > 0, "closed");
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
        std::thread::sleep(LATENCY);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

// ----- the process -----

impl Watcher {
    fn over(engine: &EngineProcess) -> Self {
        let process = engine.process();
        let watcher = Self { most: Arc::default(), stopped: Arc::default() };
        let (most, stopped) = (Arc::clone(&watcher.most), Arc::clone(&watcher.stopped));
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed)
                && let Ok(usage) = Usage::of_process(process)
            {
                most.fetch_max(usage.memory_bytes, Ordering::Relaxed);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        watcher
    }
}
