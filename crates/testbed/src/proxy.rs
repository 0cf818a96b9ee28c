//! A link between a client and a server that can be broken in the ways links break.
//!
//! A proxy listens on the loopback interface and passes bytes to one server. It has a thread of its own, so that tests
//! may block while it runs. Its states are those of a link, not of a connection:
//!
//! - passing: every connection reaches the server;
//! - cut: every connection is closed, new ones are refused;
//! - half open: connections stay and new ones are accepted, but bytes of both directions vanish;
//! - frozen: as half open to look at, but nothing vanishes: what waited arrives late when the link passes again.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::find;

/// A running proxy. Its connections are closed when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    link: Arc<ProxyLink>,
    thread: Option<JoinHandle<()>>,
}

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// The treatment of bytes and connections by a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Passing,
    Cut,
    HalfOpen,
    Frozen,
    Ended,
}

/// The state of the link at one time.
#[derive(Debug, Clone, Copy)]
struct ProxyState {
    mode: Mode,
    /// Rises with every change; the listener reports the highest that it has followed.
    version: u64,
    /// Connections of an earlier generation are closed.
    generation: u64,
}

/// The state that the owner, the listener and the connections share.
#[derive(Debug)]
struct ProxyLink {
    server: String,
    state: watch::Sender<ProxyState>,
    followed: Mutex<u64>,
    has_followed: Condvar,
    passed: [AtomicU64; 2],
    limit: Mutex<Option<RateLimit>>,
}

/// How much may still pass before the next cut.
#[derive(Debug, Clone, Copy)]
struct RateLimit {
    direction: Direction,
    left: usize,
}

const BUFFER_BYTES: usize = 64 * 1024;

// === impl Proxy ===

impl Proxy {
    /// Starts a passing link to the server of `url`, which has the form `scheme://[user@]host:port[/...]`.
    ///
    /// # Errors
    /// When `url` has no host and port, or no port is free.
    pub fn before(url: &str) -> Result<Self> {
        Self::at(find::free_port()?, url)
    }

    /// [`before`](Self::before), listening on `port`.
    ///
    /// # Errors
    /// When `url` has no host and port, or the port is taken.
    pub fn at(port: u16, url: &str) -> Result<Self> {
        let (start, server, end) =
            split(url).with_context(|| format!("{url} has no host and port"))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let state = ProxyState { mode: Mode::Passing, version: 1, generation: 0 };
        let link = Arc::new(ProxyLink {
            server: server.to_owned(),
            state: watch::Sender::new(state),
            followed: Mutex::new(0),
            has_followed: Condvar::new(),
            passed: [AtomicU64::new(0), AtomicU64::new(0)],
            limit: Mutex::new(None),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let listener = runtime.block_on(TcpListener::bind(address))?;
        let listening = Arc::clone(&link);
        let thread = std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || runtime.block_on(listen(&listening, address, listener)))?;
        Ok(Self { url: format!("{start}{address}{end}"), link, thread: Some(thread) })
    }

    /// The address of the server, by way of this link.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets everything pass. Connections that lost bytes in a half-open link are closed: no byte is ever missing in
    /// the middle of a conversation.
    pub fn pass(&self) {
        self.link.set(Mode::Passing);
    }

    /// Closes every connection and refuses new ones.
    pub fn cut(&self) {
        self.link.set(Mode::Cut);
    }

    /// Keeps connections and accepts new ones, and swallows every byte of both directions.
    pub fn half_open(&self) {
        self.link.set(Mode::HalfOpen);
    }

    /// Keeps connections and accepts new ones, and holds every byte of both directions back until [`pass`](Self::pass).
    pub fn freeze(&self) {
        self.link.set(Mode::Frozen);
    }

    /// Closes every connection once, as soon as `bytes` more bytes have passed in `direction`, over all connections;
    /// with 0, in place of the next byte. What has passed to the server is still processed by it; its answer is lost.
    /// New connections pass. Replaces a cut that is not yet due.
    pub fn cut_after_bytes(&self, direction: Direction, bytes: usize) {
        *lock(&self.link.limit) = Some(RateLimit { direction, left: bytes });
    }

    /// Whether a cut of [`cut_after_bytes`](Self::cut_after_bytes) is not yet due.
    pub fn is_cut_pending(&self) -> bool {
        lock(&self.link.limit).is_some()
    }

    /// Bytes that have passed in `direction` since the start: run once to measure, and then cut at each of them.
    pub fn passed(&self, direction: Direction) -> u64 {
        self.link.counter(direction).load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.link.state.send_modify(|state| state.mode = Mode::Ended);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

// === impl ProxyLink ===

impl ProxyLink {
    /// Returns when the listener has followed.
    fn set(&self, mode: Mode) {
        let mut version = 0;
        self.state.send_modify(|state| {
            let loses_connections =
                mode == Mode::Cut || (state.mode == Mode::HalfOpen && mode != Mode::HalfOpen);
            state.generation += u64::from(loses_connections);
            state.version += 1;
            state.mode = mode;
            version = state.version;
        });
        let followed = lock(&self.followed);
        let waited = self.has_followed.wait_while(followed, |followed| *followed < version);
        drop(waited);
    }

    fn follow(&self, version: u64) {
        *lock(&self.followed) = version;
        self.has_followed.notify_all();
    }

    fn counter(&self, direction: Direction) -> &AtomicU64 {
        let [to_server, to_client] = &self.passed;
        match direction {
            Direction::ToServer => to_server,
            Direction::ToClient => to_client,
        }
    }

    /// How many of `bytes` may pass, and whether the cut is due after them.
    fn admit(&self, direction: Direction, bytes: usize) -> (usize, bool) {
        let mut limit = lock(&self.limit);
        let Some(limited) = limit.as_mut().filter(|limited| limited.direction == direction) else {
            return (bytes, false);
        };
        let admitted = bytes.min(limited.left);
        limited.left -= admitted;
        let is_due = limited.left == 0;
        if is_due {
            *limit = None;
        }
        (admitted, is_due)
    }

    fn close_connections(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }
}

/// Accepts connections as the state of the link has it.
async fn listen(link: &Arc<ProxyLink>, address: SocketAddr, first: TcpListener) {
    let mut listener = Some(first);
    let mut state = link.state.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let now = *state.borrow_and_update();
        listener = match now.mode {
            Mode::Ended => return,
            Mode::Cut => None,
            Mode::Passing | Mode::HalfOpen | Mode::Frozen => match listener {
                Some(listener) => Some(listener),
                // When another program has taken the port, clients are refused, and the test says why.
                None => TcpListener::bind(address).await.ok(),
            },
        };
        link.follow(now.version);
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // First: a connection accepted after a change belongs to what it changed to.
            biased;
            _changed = state.changed() => {}
            accepted = accepted => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(serve(Arc::clone(link), client, now.generation));
                }
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

/// One connection, until it or its generation ends.
async fn serve(link: Arc<ProxyLink>, client: TcpStream, generation: u64) {
    let mut state = link.state.subscribe();
    let has_lost = |state: &ProxyState| state.generation != generation;
    // In a link that passes nothing, the server does not hear of the connection.
    let may_connect = |state: &ProxyState| has_lost(state) || matches!(state.mode, Mode::Passing);
    let is_lost = state.wait_for(may_connect).await.map_or(true, |state| has_lost(&state));
    if is_lost {
        return;
    }
    let Ok(server) = TcpStream::connect(&link.server).await else { return };
    let _delayed = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let pump = |direction| Pump { link: &link, direction };
    tokio::select! {
        _lost = state.wait_for(has_lost) => {}
        _ended = async {
            tokio::try_join!(
                pump(Direction::ToServer).run(&mut from_client, &mut to_server),
                pump(Direction::ToClient).run(&mut from_server, &mut to_client),
            )
        } => {}
    }
    drop((from_client, to_client));
    // Closing with unread bytes would reset the connection, and the server might not read what has passed.
    if to_server.shutdown().await.is_ok() {
        let mut rest = vec![0; BUFFER_BYTES];
        while from_server.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    }
}

/// One direction of one connection.
struct Pump<'a> {
    link: &'a ProxyLink,
    direction: Direction,
}

impl Pump<'_> {
    async fn run(self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> io::Result<()> {
        let mut state = self.link.state.subscribe();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = from.read(&mut buffer).await?;
            let is_moving = |state: &ProxyState| state.mode != Mode::Frozen;
            let mode = state.wait_for(is_moving).await.map_or(Mode::Ended, |state| state.mode);
            match mode {
                Mode::Passing if read == 0 => return to.shutdown().await,
                Mode::Passing => self.pass(buffer.get(..read).unwrap_or_default(), to).await?,
                // That the peer hung up vanishes, too.
                Mode::HalfOpen if read == 0 => std::future::pending().await,
                Mode::HalfOpen | Mode::Frozen => {}
                Mode::Cut | Mode::Ended => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
    }

    async fn pass(&self, bytes: &[u8], to: &mut OwnedWriteHalf) -> io::Result<()> {
        let (admitted, is_due) = self.link.admit(self.direction, bytes.len());
        to.write_all(bytes.get(..admitted).unwrap_or_default()).await?;
        self.link.counter(self.direction).fetch_add(admitted as u64, Ordering::SeqCst);
        if is_due {
            self.link.close_connections();
        }
        Ok(())
    }
}

/// The three parts of a URL: before host and port, host and port, and after them.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let authority_at = url.find("://")? + 3;
    let (_, rest) = url.split_at_checked(authority_at)?;
    let authority = rest.split(['/', '?']).next()?;
    let server = authority.rsplit('@').next()?;
    server.rsplit_once(':')?.1.parse::<u16>().ok()?;
    let server_at = authority_at + authority.len() - server.len();
    let (start, rest) = url.split_at_checked(server_at)?;
    let (server, end) = rest.split_at_checked(server.len())?;
    Some((start, server, end))
}

/// A panic elsewhere leaves numbers behind, which are as good as before.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_around_its_host_and_port() {
        let check = |url: &str, expect| assert_eq!(split(url), expect, "{url}");
        check("postgres://u:p@h:5432/db?x=1", Some(("postgres://u:p@", "h:5432", "/db?x=1")));
        check("nats://127.0.0.1:4222", Some(("nats://", "127.0.0.1:4222", "")));
        check("amqp://u:p%40@h:1", Some(("amqp://u:p%40@", "h:1", "")));
        check("postgres://h/db", None);
        check("h:1", None);
    }
}
