//! The effect of one tenant's hostile requests on another tenant: `hostile_previews BINARY sqlite|postgres [SECONDS=60]`.
//!
//! Three phases: quiet, for comparison; eight callers of one tenant that send the worst previews without a pause; and 32
//! streams of one tenant that are idle but for an empty line every few seconds. In each, another tenant calls
//! `GET /healthz` and posts urgent notifications one at a time, which are read until they are settled. Prints percentiles
//! of each, what the hostile callers were answered, and the engine's warnings about leases and heartbeats. Fails when
//! the engine has ended by itself.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench::tenants::{FIRST_KEY, SECOND_KEY};
use bench::workload::token;
use bench::{EngineProcess, LoadCaller, SimulatorProcess, tenants};
use flow::Clock;
use testbed::{PostgresOptions, PostgresServer};

const HOSTILE_CALLERS: usize = 8;
const IDLE_STREAMS: usize = 32;
/// Between two empty lines of an idle stream.
const STREAM_PAUSE: Duration = Duration::from_secs(3);
/// Of the phases without hostile previews; shorter when `SECONDS` is.
const SIDE_PHASE: Duration = Duration::from_secs(15);
/// Between two measurements.
const PAUSE: Duration = Duration::from_millis(20);

/// Parts of the engine's warnings that say that a lease or a heartbeat was missed.
const MISSED: &[&str] = &[
    "cannot say that it is alive",
    "took over from workers",
    "taking over from workers",
    "when its lease ends",
    "when their leases end",
];

/// The latencies of the other tenant.
#[derive(Debug, Default)]
struct Seen {
    healthz: Vec<Duration>,
    accepted: Vec<Duration>,
    settled: Vec<Duration>,
    /// Posts that were answered with something else than 201.
    refused: Answers,
}

/// How many answers of each status; 0 stands for a connection that broke.
type Answers = BTreeMap<u16, u64>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: hostile_previews BINARY sqlite|postgres [SECONDS]";
    let binary = PathBuf::from(arguments.next().context(usage)?);
    let postgres = match arguments.next().as_deref() {
        Some("sqlite") => None,
        Some("postgres") => Some(PostgresServer::start_with(PostgresOptions::default())?),
        _ => bail!(usage),
    };
    let seconds = arguments.next().map_or(Ok(60), |text| text.parse()).context(usage)?;
    let hostile_phase = Duration::from_secs(seconds);
    let side_phase = hostile_phase.min(SIDE_PHASE);
    let database = postgres.as_ref().map(PostgresServer::create_database).transpose()?;
    let directory = tempfile::tempdir()?;
    let simulator = SimulatorProcess::start(&binary, directory.path(), &[])?;
    let store = database.as_ref().map(testbed::Database::url);
    let mut engine = tenants::start_engine(&binary, directory.path(), &simulator, store)?;
    let address = engine.listen().to_owned();

    let (seen, _) = phase(&address, side_phase, &[])?;
    seen.show("quiet")?;
    ensure_alive(&mut engine)?;

    let bodies = previews();
    let previewing = |number: usize| {
        let (address, bodies) = (&address, &bodies);
        move |is_over: &AtomicBool| preview_on(address, bodies, number, is_over)
    };
    let hostile: Vec<_> = (0..HOSTILE_CALLERS).map(previewing).collect();
    let hostile: Vec<Hostile<'_>> = hostile.iter().map(|it| it as Hostile<'_>).collect();
    let (seen, answers) = phase(&address, hostile_phase, &hostile)?;
    seen.show(&format!("{HOSTILE_CALLERS} callers with hostile previews"))?;
    say(&format!("  their answers by status (0: broken off): {answers:?}"))?;
    ensure_alive(&mut engine)?;

    let streaming = |is_over: &AtomicBool| stream_idly(&address, is_over);
    let streams = [&streaming as Hostile<'_>; IDLE_STREAMS];
    let (seen, answers) = phase(&address, side_phase, &streams)?;
    seen.show(&format!("{IDLE_STREAMS} idle streams"))?;
    say(&format!("  their answers by status (0: none yet): {answers:?}"))?;
    ensure_alive(&mut engine)?;
    engine.stop()?;
    show_missed(directory.path())
}

/// Sends hostile requests until told to stop.
type Hostile<'a> = &'a (dyn Fn(&AtomicBool) -> Result<Answers> + Sync);

/// Measures for `time` while `hostile` callers do what they do.
fn phase(address: &str, time: Duration, hostile: &[Hostile<'_>]) -> Result<(Seen, Answers)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> =
            hostile.iter().map(|caller| scope.spawn(|| caller(&is_over))).collect();
        let healthz = scope.spawn(|| call_healthz(address, &is_over));
        let posts = scope.spawn(|| post_and_await(address, &is_over));
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        let seen = Seen { healthz: joined(healthz)?, ..joined(posts)? };
        let mut answers = Answers::new();
        for caller in callers {
            for (status, count) in joined(caller)? {
                *answers.entry(status).or_default() += count;
            }
        }
        Ok((seen, answers))
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a caller panicked"))
}

// ----- the other tenant -----

fn call_healthz(address: &str, is_over: &AtomicBool) -> Result<Vec<Duration>> {
    let (clock, mut times) = (Clock::system(), Vec::new());
    let mut caller = LoadCaller::connect(address)?;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        let started = clock.monotonic();
        let (status, answer) = caller.request(SECOND_KEY, "GET /healthz", "")?;
        ensure!(status == 200, "GET /healthz: {status} {answer}");
        times.push(clock.monotonic().duration_since(started));
    }
    Ok(times)
}

/// Times from the POST to its answer, and to a read that finds the notification settled.
fn post_and_await(address: &str, is_over: &AtomicBool) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut caller = LoadCaller::connect(address)?;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        match tenants::deliver(&mut caller, seen.accepted.len() as u64, "urgent")? {
            Ok(waited) => {
                seen.accepted.push(waited.accepted);
                seen.settled.push(waited.settled);
            }
            Err(status) => *seen.refused.entry(status).or_default() += 1,
        }
    }
    Ok(seen)
}

// ----- the hostile tenant -----

/// Sends the previews in turn, beginning with that of `number`.
fn preview_on(
    address: &str,
    bodies: &[String],
    number: usize,
    is_over: &AtomicBool,
) -> Result<Answers> {
    let mut answers = Answers::new();
    let mut caller = LoadCaller::connect(address)?;
    for body in bodies.iter().cycle().skip(number) {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let answered = caller.request(FIRST_KEY, "POST /v1/preview", body);
        if answered.is_err() {
            // A server that answers early may close the connection. One that is gone ends the phase.
            caller = LoadCaller::connect(address)?;
        }
        let status = answered.map_or(0, |(status, _)| status);
        *answers.entry(status).or_default() += 1;
    }
    Ok(answers)
}

/// Holds a stream open, with an empty line now and then, and says how it was answered.
fn stream_idly(address: &str, is_over: &AtomicBool) -> Result<Answers> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!(
        "POST /v1/notifications HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {FIRST_KEY}\r\n\
         content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    while !is_over.load(Ordering::Relaxed) {
        // One that was refused is closed by the server, and stays so.
        if stream.write_all(b"1\r\n\n\r\n").is_err() {
            break;
        }
        std::thread::sleep(STREAM_PAUSE);
    }
    stream.set_read_timeout(Some(PAUSE))?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).unwrap_or(0);
    let answer = String::from_utf8_lossy(answer.get(..length).unwrap_or_default()).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(Answers::from([(status.unwrap_or(0), 1)]))
}

/// Bodies of the previews that take longest: refused for their steps, and just within the bounds.
fn previews() -> Vec<String> {
    let numbers: Vec<u64> = (0..7_000).map(|number| number * 7_919 % 7_000).collect();
    let object = |value: u64| (0..3_000).map(|key| (format!("{key:04}"), value.into())).collect();
    let objects: serde_json::Map<String, serde_json::Value> = object(1);
    let items = vec![serde_json::json!({"name": "A thing of some length", "price": 12.5}); 600];
    let numbers = serde_json::json!({"xs": numbers, "text": "n&".repeat(1_500)});
    let objects = serde_json::json!({"a": objects.clone(), "b": objects});
    let items = serde_json::json!({"xs": items});
    let looped =
        |inner: &str| format!("{{% for x in xs %}}{{% if {inner} %}}{{% endif %}}{{% endfor %}}");
    let many = |inner: &str, word: &str| vec![inner; 40].join(word);
    let templates = [
        (looped("-1 in xs"), &numbers),
        (looped(&many("'x' in xs", " or ")), &numbers),
        (format!("{{% if {} %}}{{% endif %}}", many("a != b", " or ")).repeat(10), &objects),
        (looped("xs|sort|unique|length < 0"), &numbers),
        (looped("text|length < 0"), &numbers),
        (looped("text|upper|lower|e == ''"), &numbers),
        (looped("x > 5"), &numbers),
        ("{{ xs|sort|length }}".to_owned(), &numbers),
        ("{% for x in xs %}{{ x.name|upper }} {{ x.price }}{% endfor %}".to_owned(), &items),
    ];
    let body = |(template, variables): &(String, &serde_json::Value)| {
        let content = serde_json::json!({"aps": {"alert": template}});
        let to = token(0);
        serde_json::json!({"channel": "ios", "to": to, "content": content, "variables": variables})
            .to_string()
    };
    templates.iter().map(body).collect()
}

// ----- what is printed -----

impl Seen {
    fn show(mut self, phase: &str) -> Result<()> {
        say(phase)?;
        for (name, times) in [
            ("GET /healthz", &mut self.healthz),
            ("POST to its answer", &mut self.accepted),
            ("POST to settled", &mut self.settled),
        ] {
            say(&format!("  {name:20} {}", tenants::percentiles(times)))?;
        }
        if !self.refused.is_empty() {
            say(&format!("  POSTs refused, by status: {:?}", self.refused))?;
        }
        Ok(())
    }
}

fn ensure_alive(engine: &mut EngineProcess) -> Result<()> {
    match engine.ended()? {
        None => Ok(()),
        Some(status) => bail!("the engine ended by itself with {status}"),
    }
}

/// The engine's warnings about leases and heartbeats: how many, and the first ones.
fn show_missed(directory: &Path) -> Result<()> {
    let log = std::fs::read_to_string(directory.join("belfry.log"))?;
    let is_missed = |line: &&str| MISSED.iter().any(|part| line.contains(part));
    let missed: Vec<&str> = log.lines().filter(is_missed).collect();
    say(&format!("warnings about leases and heartbeats: {}", missed.len()))?;
    missed.iter().take(10).try_for_each(|line| say(&format!("  {line}")))
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
