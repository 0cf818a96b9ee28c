//! The endpoints: hosts of the loopback network, each an address of its own, that share one listening socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use flow::Clock;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::name_server;

/// How a dead endpoint is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// Takes connections and never answers: a connection is an attempt.
    Silent,
    /// Takes no connection, so attempts cannot be counted.
    Refuse,
    /// Answers every request at once with 503: a request is an attempt.
    Unavailable,
    /// The mail server of a domain of its own, which greets byte by byte: a connection is an attempt.
    Tarpit,
}

/// Hosts with one port, which are served for as long as this lives.
#[derive(Debug)]
pub(super) struct LocalEndpoints {
    hosts: Hosts,
    port: u16,
    /// Their threads end when these are dropped.
    served: Vec<oneshot::Sender<()>>,
    /// Bound and not listened to: the kernel refuses connections, and gives the port to no other program.
    unserved: Option<TcpSocket>,
    /// Knows the domains of which these are the mail servers. Without one they are webhooks.
    name_server: Option<SocketAddr>,
}

/// Addresses of the loopback network that follow one another.
#[derive(Debug, Clone, Copy)]
struct Hosts {
    first: u32,
    count: u64,
}

/// The first arrival of each notification to a healthy endpoint.
#[derive(Debug)]
pub(super) struct Arrivals {
    clock: Clock,
    start: Instant,
    /// Nanoseconds after `start`, 0 for none yet.
    nanos: Vec<AtomicU64>,
    repeated: AtomicU64,
}

/// How often each dead endpoint was attempted.
#[derive(Debug)]
pub(super) struct AttemptCounts(Vec<AtomicU64>);

/// Behaviour of the host of a number towards a connection.
#[derive(Debug, Clone)]
enum Service {
    /// Answers 200 to each request, and notes when it came.
    Note(Arc<Arrivals>),
    /// Answers 503 to each request, and counts it.
    TurnAway(Arc<AttemptCounts>),
    /// Counts the connection, and holds it until the other side closes it.
    Hold(Arc<AttemptCounts>),
    /// Counts the connection, and greets it as a mail server, so slowly that no line ends.
    Drip(Arc<AttemptCounts>),
}

const HEALTHY: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
const DEAD: Ipv4Addr = Ipv4Addr::new(127, 2, 0, 1);
/// The content of all mail.
const MAIL: &str = r#"{"from":"news@client.example","subject":"Hello","text":"Hello"}"#;
/// Connections that are established before they are accepted, at most: all that a storm brings.
const BACKLOG: u32 = 4096;
/// When no more files can be opened, until the next try. Connections wait in the backlog meanwhile, and are counted later.
const PAUSE: Duration = Duration::from_millis(50);
/// The greeting of a tarpit, over and over, and the time between two of its bytes.
const GREETING: &[u8] = b"220-one moment please\r\n";
const DRIP_EVERY: Duration = Duration::from_secs(5);

// === impl Death ===

impl Death {
    /// The word for one endpoint that is dead in this way.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "dead",
            Self::Refuse => "refusing",
            Self::Unavailable => "answering 503",
            Self::Tarpit => "tarpits",
        }
    }
}

// === impl LocalEndpoints ===

impl LocalEndpoints {
    /// Endpoints that answer every request at once, and note when it arrived.
    pub(super) fn healthy(count: u64, arrivals: Arc<Arrivals>) -> Result<Self> {
        Self::serve(Hosts::new(HEALTHY, count)?, Service::Note(arrivals))
    }

    /// Endpoints that are dead in this way.
    pub(super) fn dead(count: u64, death: Death, attempts: Arc<AttemptCounts>) -> Result<Self> {
        let hosts = Hosts::new(DEAD, count)?;
        match death {
            Death::Silent => Self::serve(hosts, Service::Hold(attempts)),
            Death::Unavailable => Self::serve(hosts, Service::TurnAway(attempts)),
            Death::Refuse => {
                let socket = bind()?;
                let port = socket.local_addr()?.port();
                let (served, unserved) = (Vec::new(), Some(socket));
                Ok(Self { hosts, port, served, unserved, name_server: None })
            }
            Death::Tarpit => {
                let mut endpoints = Self::serve(hosts, Service::Drip(attempts))?;
                let (address, served) = serve_names(hosts)?;
                endpoints.name_server = Some(address);
                endpoints.served.push(served);
                Ok(endpoints)
            }
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.hosts.count
    }

    /// Whether attempts at them can be counted.
    pub(super) fn are_counted(&self) -> bool {
        self.unserved.is_none()
    }

    /// The URL of the endpoint `number`, counted from 0 and round and round, without a path.
    pub(super) fn url(&self, number: u64) -> String {
        format!("http://{}:{}", self.hosts.address(number % self.hosts.count.max(1)), self.port)
    }

    /// The recipient `recipient` of the endpoint `number`.
    pub(super) fn recipient(&self, number: u64, recipient: u64) -> String {
        match self.name_server {
            None => format!("{}/{recipient}", self.url(number)),
            Some(_) => format!("r{recipient}@{}", name_server::domain(number)),
        }
    }

    /// The channel that leads to them, and a content for it.
    pub(super) const fn channel(&self) -> (&'static str, &'static str) {
        match self.name_server {
            None => ("hooks", "0"),
            Some(_) => ("mail", MAIL),
        }
    }

    /// The settings with which the engine gets to them.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let mut all = vec![("HOOKS__ALLOW_HTTP", "true".to_owned())];
        if let Some(name_server) = self.name_server {
            all.extend([
                ("MAIL__KIND", "smtp".to_owned()),
                ("MAIL__ROUTE", "mx".to_owned()),
                ("MAIL__HELO", "client.example".to_owned()),
                ("MAIL__MX_PORT", self.port.to_string()),
                ("MAIL__NAME_SERVERS", format!(r#"["{name_server}"]"#)),
                ("MAIL__ALLOW_NETWORKS", r#"["127.0.0.0/8"]"#.to_owned()),
            ]);
        }
        let all = all.into_iter();
        all.map(|(name, value)| (format!("BELFRY__CHANNELS__{name}"), value)).collect()
    }

    /// A thread of its own for each kind: what dead endpoints get must not delay the note of an arrival.
    fn serve(hosts: Hosts, service: Service) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(async { bind()?.listen(BACKLOG) })?;
        let port = listener.local_addr()?.port();
        let served = until_dropped(runtime, accept(listener, hosts, service));
        Ok(Self { hosts, port, served: vec![served], unserved: None, name_server: None })
    }
}

/// A socket on a free port of every address of the loopback interface, and of no other interface.
fn bind() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind_device(Some(b"lo"))?;
    socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    Ok(socket)
}

/// Answers questions for the domains of `hosts`, on a thread of its own, until the sender is dropped.
fn serve_names(hosts: Hosts) -> Result<(SocketAddr, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let socket = runtime.block_on(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = socket.local_addr()?;
    let of_number = move |number| (number < hosts.count).then(|| hosts.address(number));
    Ok((address, until_dropped(runtime, name_server::answer(socket, of_number))))
}

/// Does `work` on a thread of its own until the sender is dropped.
fn until_dropped(
    runtime: Runtime,
    work: impl Future<Output = ()> + Send + 'static,
) -> oneshot::Sender<()> {
    let (served, dropped) = oneshot::channel();
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = work => {}
                _ = dropped => {}
            }
        });
    });
    served
}

async fn accept(listener: TcpListener, hosts: Hosts, service: Service) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let address = stream.local_addr().map(|address| address.ip());
                if let Some(number) = address.ok().and_then(|address| hosts.number(address)) {
                    let service = service.clone();
                    // A connection that breaks is the other side's matter.
                    connections.spawn(async move { service.serve(stream, number).await.ok() });
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

// === impl Hosts ===

impl Hosts {
    fn new(first: Ipv4Addr, count: u64) -> Result<Self> {
        ensure!(count < 1 << 16, "{count} endpoints: at most 65,535 of a kind");
        Ok(Self { first: first.into(), count })
    }

    fn address(self, number: u64) -> Ipv4Addr {
        // Less than 2^16, as there are fewer hosts.
        Ipv4Addr::from(self.first + u32::try_from(number).unwrap_or_default())
    }

    fn number(self, address: IpAddr) -> Option<usize> {
        let IpAddr::V4(address) = address else { return None };
        let number = u32::from(address).checked_sub(self.first)?;
        if u64::from(number) < self.count { usize::try_from(number).ok() } else { None }
    }
}

// === impl Service ===

impl Service {
    async fn serve(self, stream: TcpStream, number: usize) -> Result<()> {
        stream.set_nodelay(true)?;
        match self {
            Self::Note(arrivals) => answer(stream, "200 OK", |body| arrivals.note(body)).await,
            Self::TurnAway(attempts) => {
                answer(stream, "503 Service Unavailable", |_| attempts.add(number)).await
            }
            Self::Hold(attempts) => {
                attempts.add(number);
                hold(stream).await
            }
            Self::Drip(attempts) => {
                attempts.add(number);
                drip(stream).await
            }
        }
    }
}

/// Answers every request of a connection, after `seen` has had its body.
async fn answer(stream: TcpStream, status: &str, seen: impl Fn(&[u8])) -> Result<()> {
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    let mut stream = BufReader::new(stream);
    let (mut line, mut body) = (String::new(), Vec::new());
    loop {
        let mut length = 0;
        loop {
            line.clear();
            ensure!(stream.read_line(&mut line).await? > 0, "closed");
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
        seen(&body);
        stream.write_all(answer.as_bytes()).await?;
    }
}

/// Reads until the other side closes the connection, and says nothing.
async fn hold(mut stream: TcpStream) -> Result<()> {
    let mut unheard = [0; 512];
    while stream.read(&mut unheard).await? > 0 {}
    Ok(())
}

/// Writes the greeting byte by byte until the other side closes the connection.
async fn drip(mut stream: TcpStream) -> Result<()> {
    for byte in GREETING.iter().cycle() {
        stream.write_u8(*byte).await?;
        tokio::time::sleep(DRIP_EVERY).await;
    }
    Ok(())
}

// === impl Arrivals ===

impl Arrivals {
    /// For the notifications `0..count`.
    pub(super) fn new(count: u64) -> Self {
        let clock = Clock::system();
        let nanos = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { clock, start: clock.monotonic(), nanos, repeated: AtomicU64::new(0) }
    }

    /// When the notification `number` arrived first.
    pub(super) fn of(&self, number: u64) -> Option<Instant> {
        let nanos = self.nanos.get(usize::try_from(number).ok()?)?.load(Ordering::Relaxed);
        (nanos > 0).then(|| self.start + Duration::from_nanos(nanos))
    }

    /// How many arrived again since this was asked last.
    pub(super) fn take_repeated(&self) -> u64 {
        self.repeated.swap(0, Ordering::Relaxed)
    }

    /// Notes the arrival of the notification whose number is the body.
    fn note(&self, body: &[u8]) {
        let nanos = self.clock.monotonic().duration_since(self.start).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let number = std::str::from_utf8(body).ok().and_then(|text| text.parse::<usize>().ok());
        let Some(place) = number.and_then(|number| self.nanos.get(number)) else { return };
        if place.compare_exchange(0, nanos, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.repeated.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// === impl AttemptCounts ===

impl AttemptCounts {
    /// For as many endpoints.
    pub(super) fn new(endpoints: u64) -> Self {
        Self((0..endpoints).map(|_| AtomicU64::new(0)).collect())
    }

    /// How many each got so far.
    pub(super) fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn add(&self, number: usize) {
        if let Some(count) = self.0.get(number) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
