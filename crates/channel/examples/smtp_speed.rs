//! The cost of one mail over the SMTP channel, beside Postfix's own `smtp-source`: throughput, and CPU time of the sender.
//!
//! ```text
//! cargo run --release -p channel --example smtp_speed -- [--mails 100000] [--connections 16] [--body-bytes 2048] [--rounds 5]
//! ```
//!
//! All send to one `smtp-sink`, in turn, mails with as many bytes in their bodies. `smtp-source` is a process, counted as a
//! whole; the channel is a thread, counted as that. Encryption ends in a thread between the channel and the sink, which is
//! not counted. Then what a connection costs, by sending one mail over each, and what a check of a content costs.

mod speed;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use channel::Channel as _;
use channel::smtp::SmtpChannel;
use flow::Clock;
use notification::Chunk;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use testbed::SmtpSink;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use speed::{Load, chunk, measure, put, say, thread_cpu};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CHECKS: u32 = 20_000;

#[derive(Debug)]
struct Arguments {
    mails: usize,
    connections: usize,
    body_bytes: usize,
    rounds: usize,
}

/// Mails per second, and CPU time per mail in microseconds.
#[derive(Debug, Clone, Copy)]
struct Cost {
    per_second: f64,
    cpu_us: f64,
}

/// A way to send.
struct Way {
    name: &'static str,
    settings: Value,
    /// One mail over each connection.
    is_single: bool,
}

/// Where encryption ends.
#[derive(Debug, Clone, Copy)]
struct Doors {
    starttls: SocketAddr,
    implicit: SocketAddr,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read()?;
    let sink = SmtpSink::start()?;
    let directory = tempfile::tempdir()?;
    let doors = open_doors(directory.path(), sink.port())?;
    let content = content(arguments.body_bytes);
    let recipients = (0..1000).map(|number| format!("reader{number}@example.org"));
    let chunk = chunk(&content, recipients);
    let ways = ways(&arguments, directory.path(), sink.port(), doors)?;
    let mut floors = Vec::new();
    let mut costs: Vec<Vec<Cost>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 1..=arguments.rounds {
        say(&format!("round {round} of {}", arguments.rounds));
        floors.push(source(&arguments, sink.port(), Clock::system())?);
        for (way, costs) in ways.iter().zip(&mut costs) {
            costs.push(send(&arguments, way, &chunk)?);
        }
    }
    let floor = median(&floors);
    show("smtp-source", floor, floor);
    for (way, costs) in ways.iter().zip(&costs) {
        show(way.name, median(costs), floor);
    }
    let check_us = check_cpu(&ways, content.as_bytes())?.as_secs_f64() * 1e6;
    say(&format!("a check of a content takes {check_us:.2} us"));
    Ok(())
}

fn content(body_bytes: usize) -> String {
    let line = "a line of a mail with a usual length, about seventy characters of it.\n";
    let text = line.repeat(body_bytes.div_ceil(line.len()));
    json!({ "subject": "A subject of the usual length", "text": text }).to_string()
}

fn ways(
    arguments: &Arguments,
    directory: &Path,
    sink: u16,
    doors: Doors,
) -> Result<Vec<Way>, Box<dyn Error>> {
    let plain = json!({
        "relay": format!("smtp://127.0.0.1:{sink}"), "helo": "client.example", "from": "news@example.com",
        "connections_max": arguments.connections,
    });
    let with = |more: &[(&str, Value)]| {
        let mut settings = plain.clone();
        for (name, value) in more {
            put(&mut settings, name, value);
        }
        settings
    };
    let encrypted = |relay: String| {
        let ca_file = json!(directory.join("door.pem"));
        with(&[("relay", json!(relay)), ("tls", json!("require")), ("ca_file", ca_file)])
    };
    let signed = |kind: &str, algorithm| -> Result<Value, Box<dyn Error>> {
        let path = directory.join(kind);
        std::fs::write(&path, rcgen::KeyPair::generate_for(algorithm)?.serialize_pem())?;
        let dkim = json!({ "domain": "example.com", "selector": "s", "key_file": path });
        Ok(with(&[("dkim", dkim)]))
    };
    let starttls = encrypted(format!("smtp://{}", doors.starttls));
    let implicit = encrypted(format!("smtps://{}", doors.implicit));
    let single = |settings: &Value| {
        let mut settings = settings.clone();
        put(&mut settings, "deliveries_per_connection", 1);
        settings
    };
    let way = |name, settings| Way { name, settings, is_single: false };
    let way_of_one = |name, settings| Way { name, settings: single(settings), is_single: true };
    Ok(vec![
        way_of_one("1 mail per connection", &plain),
        way_of_one("1 per connection, STARTTLS", &starttls),
        way_of_one("1 per connection, implicit TLS", &implicit),
        way("STARTTLS", starttls),
        way("implicit TLS", implicit),
        way("DKIM, Ed25519", signed("ed25519", &rcgen::PKCS_ED25519)?),
        way("DKIM, RSA-2048", signed("rsa", &rcgen::PKCS_RSA_SHA256)?),
        way("channel", plain),
    ])
}

/// Sends with the channel.
fn send(arguments: &Arguments, way: &Way, chunk: &Chunk) -> Result<Cost, Box<dyn Error>> {
    let requests = if way.is_single { arguments.mails / 10 } else { arguments.mails };
    // As deliver does it.
    let load = Load { warm_up: 2_000, requests, chunks_at_a_time: 8, threads: 1 };
    let measured = measure(&channel(way)?, chunk, load)?;
    if measured.accepted != requests {
        return Err(format!("{}: not all were accepted\n{measured}", way.name).into());
    }
    Ok(Cost { per_second: measured.per_second, cpu_us: measured.cpu_us })
}

fn channel(way: &Way) -> Result<SmtpChannel, Box<dyn Error>> {
    Ok(SmtpChannel::new(&serde_json::from_value(way.settings.clone())?)?)
}

/// Sends with `smtp-source`.
fn source(arguments: &Arguments, port: u16, clock: Clock) -> Result<Cost, Box<dyn Error>> {
    let number = |count: usize| count.to_string();
    let mut command = Command::new("/usr/sbin/smtp-source");
    // One session per connection, as we do it.
    command.args(["-d", "-s", &number(arguments.connections), "-m", &number(arguments.mails)]);
    command.args(["-l", &number(arguments.body_bytes), "-f", "news@example.com"]);
    command.args(["-t", "reader@example.org"]).arg(format!("inet:127.0.0.1:{port}"));
    let (started, cpu_started) = (clock.monotonic(), children_cpu()?);
    let status = command.status()?;
    let (took, cpu) = (clock.monotonic() - started, children_cpu()?.saturating_sub(cpu_started));
    if !status.success() {
        return Err(format!("smtp-source ended with {status}: is postfix installed?").into());
    }
    Ok(Cost::new(arguments.mails, took, cpu))
}

/// The time that the check of a content takes that is rendered for one recipient.
fn check_cpu(ways: &[Way], content: &[u8]) -> Result<Duration, Box<dyn Error>> {
    let channel = channel(ways.last().ok_or("there is a way")?)?;
    let started = thread_cpu()?;
    for _ in 0..CHECKS {
        channel.check_content(std::hint::black_box(content), b"")?;
    }
    Ok(thread_cpu()?.saturating_sub(started) / CHECKS)
}

// === encryption ===

/// Opens doors to the sink at `sink`, behind which a thread of its own takes encryption off.
fn open_doors(directory: &Path, sink: u16) -> Result<Doors, Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    std::fs::write(directory.join("door.pem"), made.cert.pem())?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listen = || std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (starttls, implicit) = (listen()?, listen()?);
    let doors = Doors { starttls: starttls.local_addr()?, implicit: implicit.local_addr()? };
    starttls.set_nonblocking(true)?;
    implicit.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (starttls, implicit) =
                (TcpListener::from_std(starttls), TcpListener::from_std(implicit));
            if let (Ok(starttls), Ok(implicit)) = (starttls, implicit) {
                tokio::join!(
                    keep(starttls, &acceptor, sink, true),
                    keep(implicit, &acceptor, sink, false)
                );
            }
        });
    });
    Ok(doors)
}

/// Lets every client in.
async fn keep(door: TcpListener, acceptor: &TlsAcceptor, sink: u16, asks: bool) {
    while let Ok((stream, _)) = door.accept().await {
        let acceptor = acceptor.clone();
        tokio::task::spawn_local(async move {
            // Ends with either side; what is wrong shows in the mails that are not accepted.
            drop(pass(stream, &acceptor, sink, asks).await);
        });
    }
}

/// Passes one connection on. Where encryption has to be asked for, what comes before it is answered here.
async fn pass(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    sink: u16,
    asks: bool,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut behind = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, sink)).await?);
    behind.get_ref().set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    if asks {
        let mut line = String::new();
        behind.read_line(&mut line).await?;
        stream.write_all(line.as_bytes()).await?;
        for reply in ["250-door\r\n250 STARTTLS\r\n", "220 go\r\n"] {
            stream.read_line(&mut line).await?;
            stream.write_all(reply.as_bytes()).await?;
        }
    }
    let mut encrypted = acceptor.accept(stream.into_inner()).await?;
    tokio::io::copy_bidirectional(&mut encrypted, &mut behind).await.map(|_| ())
}

// === figures ===

fn show(what: &str, cost: Cost, floor: Cost) {
    let Cost { per_second, cpu_us } = cost;
    let ratio = cpu_us / floor.cpu_us;
    say(&format!("{what:30}  {per_second:7.0}/s  {cpu_us:6.1} us CPU  ratio {ratio:.2}"));
}

fn median(costs: &[Cost]) -> Cost {
    let middle = |of: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Cost { per_second: middle(|one| one.per_second), cpu_us: middle(|one| one.cpu_us) }
}

/// The CPU time of the processes that this one waited for, in ticks of 10 ms.
fn children_cpu() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit_once(')').ok_or("an odd stat")?.1;
    let ticks = |number: usize| -> Result<u64, Box<dyn Error>> {
        Ok(fields.split_whitespace().nth(number).ok_or("a short stat")?.parse()?)
    };
    Ok(Duration::from_millis(10 * (ticks(13)? + ticks(14)?)))
}

// === impl Cost ===

impl Cost {
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    fn new(mails: usize, took: Duration, cpu: Duration) -> Self {
        let mails = mails as f64;
        Self { per_second: mails / took.as_secs_f64(), cpu_us: 1e6 * cpu.as_secs_f64() / mails }
    }
}

// === impl Arguments ===

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let mut arguments = Self { mails: 100_000, connections: 16, body_bytes: 2048, rounds: 5 };
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?.parse()?;
            match flag.as_str() {
                "--mails" => arguments.mails = value,
                "--connections" => arguments.connections = value,
                "--body-bytes" => arguments.body_bytes = value,
                "--rounds" => arguments.rounds = value,
                _ => return Err(format!("{flag} is unknown").into()),
            }
        }
        Ok(arguments)
    }
}
