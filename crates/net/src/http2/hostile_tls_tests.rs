//! The [server](super::scripted_server) of the hostile scripts behind TLS on loopback, before the pool and its driver, with tokio's
//! time paused. Its bytes leave in pieces down to single ones, TLS of both versions ends in every way that it can, and the
//! connection with it: cut inside a record, reset, half closed. Each connection that the pool makes is a script of its own.
//!
//! The variables of `hostile_tests` hold here too; a script here counts as a hundred of those.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{ErrorKind, Read as _, Write as _};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use flow::Clock;
use http::HeaderMap;
use notification::Priority;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use socket2::SockRef;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinSet, LocalSet};

use super::scripted_server::{ClientVerdict, ScriptedServer, Served};
use super::testing::{PING, SETTINGS, TestHead, for_each_seed, frame, setting};
use super::{Dial, Http2Pool, Priming, StreamQueue};
use crate::endpoint::Endpoint;
use crate::exchange::{Failure, Permit, Reply, Unsent};
use crate::tries;
use crate::{tcp, tls};

const SCRIPTS: u64 = 200;
/// How many of the other scripts one of these takes as long as.
const COST: u64 = 100;
const REQUESTS: usize = 12;
/// A request has three tries, and the script of a connection takes a minute at most.
const HANG: Duration = Duration::from_mins(10);
/// How long a server reads on when it has ended its side.
const LINGER: Duration = Duration::from_secs(5);
const TURN: Duration = Duration::from_millis(1);

/// A certificate, and the servers that have it, with TLS 1.2 and 1.3.
struct Identity {
    certificate: rustls::pki_types::CertificateDer<'static>,
    servers: [Arc<ServerConfig>; 2],
}

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let server = |version| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[version]).unwrap().with_no_client_auth();
        let key = certified.signing_key.serialize_der().try_into().unwrap();
        let mut config = builder.with_single_cert(vec![certificate.clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    let servers = [server(&rustls::version::TLS12), server(&rustls::version::TLS13)];
    Identity { certificate, servers }
});

/// The server's side of a connection.
struct Peer {
    socket: TcpStream,
    tls: ServerConnection,
    server: ScriptedServer,
    random: Rng,
    /// Bytes of TLS that have not left.
    records: Vec<u8>,
    /// How many of them leave at a time, at most.
    piece_max: usize,
    /// Nothing comes any more.
    is_deaf: bool,
}

/// Requests that may always be sent.
#[derive(Debug, Clone, Copy)]
struct Always;

// === impl Always ===

impl Permit for Always {
    type Refusal = Infallible;

    fn priority(self) -> Priority {
        Priority::Normal
    }

    fn is_at_most_once(self) -> bool {
        false
    }

    async fn begin(self) -> Result<(), Infallible> {
        Ok(())
    }
}

// === impl Peer ===

impl Peer {
    fn new(socket: TcpStream, mut random: Rng) -> Self {
        let config = random.choice(&IDENTITY.servers).unwrap();
        let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
        tls.set_buffer_limit(None);
        let mut server = ScriptedServer::new(random.fork());
        server.output = frame(SETTINGS, 0, 0, &setting(3, random.u32(1..20)));
        let piece_max = random.choice([1, 40, 20_000]).unwrap();
        Self { socket, tls, server, random, records: Vec::new(), piece_max, is_deaf: false }
    }

    /// Plays its script to the end of the connection, and gives its account.
    async fn play(mut self) -> ScriptedServer {
        for _ in 0..self.random.usize(20..200) {
            match self.random.u8(..20) {
                0..8 if !self.tls.is_handshaking() => self.server.act(),
                8 => tokio::time::sleep(Duration::from_millis(self.random.u64(..3_000))).await,
                _ => {}
            }
            self.hear();
            let some = self.random.usize(..=self.server.output.len());
            self.say(some);
            if self.tls.is_handshaking() || self.random.u8(..4) > 0 {
                self.send(self.records.len()).await;
            }
            tokio::time::sleep(TURN).await;
            if self.is_deaf {
                break;
            }
        }
        self.end().await;
        self.server.process_all();
        self.server
    }

    /// Takes what has come.
    fn hear(&mut self) {
        let mut bytes = [0; 4_096];
        while !self.is_deaf {
            let length = match self.socket.try_read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(length) => length,
                Err(_) => 0,
            };
            self.is_deaf = length == 0;
            let mut rest = &bytes[..length];
            while !rest.is_empty() && !self.is_deaf {
                let heard = self.tls.read_tls(&mut rest);
                // What cannot be decrypted ends TLS; the client heard something broken before.
                self.is_deaf = heard.is_err() || self.tls.process_new_packets().is_err();
                // An end is an error here, whatever was in front of it.
                let _end = self.tls.reader().read_to_end(&mut self.server.input);
                self.server.read();
            }
        }
    }

    /// Encrypts the first bytes of what the server has said.
    fn say(&mut self, bytes: usize) {
        let bytes: Vec<u8> = self.server.output.drain(..bytes).collect();
        self.tls.writer().write_all(&bytes).unwrap();
        self.take_records();
    }

    fn take_records(&mut self) {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.records).unwrap();
        }
    }

    /// Sends the first bytes of what is encrypted, piece by piece.
    async fn send(&mut self, bytes: usize) {
        let bytes: Vec<u8> = self.records.drain(..bytes).collect();
        for piece in bytes.chunks(self.piece_max) {
            // The client may be gone.
            if self.socket.write_all(piece).await.is_err() {
                self.is_deaf = true;
                return;
            }
            tokio::time::sleep(TURN).await;
        }
    }

    /// Ends the connection in one of the ways that connections end.
    async fn end(&mut self) {
        if self.random.bool() {
            let last_words = self.server.go_away();
            self.server.output.extend(last_words);
        }
        self.server.output.extend(frame(PING, 0, 0, &[2; 8]));
        self.say(self.server.output.len());
        let length = self.records.len();
        match self.random.u8(..6) {
            0 | 1 => {
                self.tls.send_close_notify();
                self.take_records();
                self.send(self.records.len()).await;
            }
            2 => self.send(length).await,
            3 => self.send(length.saturating_sub(1)).await,
            4 => {
                let some = self.random.usize(..=length);
                self.send(some).await;
            }
            _ => {
                if let Some(byte) = self.random.choice(&mut self.records) {
                    *byte ^= 1;
                }
                self.send(length).await;
            }
        }
        match self.random.u8(..3) {
            // It is reset when it is dropped, with what comes unread.
            0 => return SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).unwrap(),
            1 => drop(self.socket.shutdown().await),
            // Only TLS has ended on this side, if that.
            _ => {}
        }
        for _ in 0..LINGER.as_millis() / TURN.as_millis() {
            tokio::time::sleep(TURN).await;
            self.hear();
            if self.is_deaf {
                return;
            }
        }
    }
}

/// Serves every connection, each with a script of its own, until `closing`; gives their accounts when their clients are gone.
async fn serve(listener: TcpListener, mut random: Rng, closing: &Notify) -> Vec<ScriptedServer> {
    let mut peers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted.unwrap();
                socket.set_nodelay(true).unwrap();
                peers.spawn_local(Peer::new(socket, random.fork()).play());
            }
            () = closing.notified() => return peers.join_all().await,
        }
    }
}

fn path(number: usize) -> String {
    format!("/3/device/{number}")
}

/// Sends a request as channels do: at once if there is a stream for it, otherwise when it is its turn.
async fn send(
    pool: &Http2Pool,
    body: &Bytes,
    head: &TestHead,
    clock: Clock,
) -> Result<Reply, Failure<Infallible>> {
    const KEY: u16 = 7;
    let (mut since, outcomes) = (None, Rc::default());
    let sent_at = clock.monotonic();
    let mut queue = StreamQueue::new(pool, Priority::Normal);
    let stream = if let Some(stream) = queue.take() {
        Ok(stream)
    } else {
        queue.push(KEY, sent_at);
        poll_fn(|context| queue.poll_next(context)).await.2
    };
    let sent_at = clock.monotonic();
    if let Some(mut begun) = stream?.begun(head, body, (&outcomes, KEY)) {
        let (key, outcome) = outcomes.next().await;
        assert_eq!(key, KEY);
        match begun.conclude(outcome, head, sent_at) {
            Err(Failure::Unsent(Unsent::Declined(_))) => since = Some(sent_at),
            concluded => return concluded.map(|answer| answer.reply),
        }
    }
    tries::exchange(pool, Always, body, head, since).await.map(|(reply, _stream)| reply)
}

/// Sends a request after a while. One in five is given up when it takes long; all others have to end by themselves.
async fn ask(pool: Rc<Http2Pool>, number: usize, mut random: Rng) -> ClientVerdict {
    tokio::time::sleep(Duration::from_millis(random.u64(..4_000))).await;
    let body = Bytes::from(vec![b'x'; random.choice([0, 300, 20_000]).unwrap()]);
    let patience =
        if number.is_multiple_of(5) { Duration::from_millis(random.u64(..5_000)) } else { HANG };
    let head = TestHead::new(&path(number), HeaderMap::new());
    let clock = Clock::starting_at(Duration::ZERO);
    let begun = clock.monotonic();
    let ended = tokio::time::timeout(patience, send(&pool, &body, &head, clock)).await;
    // The timer looks at it as well, and finds an end that was reported nowhere.
    assert!(clock.monotonic() - begun < HANG, "request {number} has no end");
    match ended {
        Ok(Ok(reply)) => ClientVerdict::Answered(reply.status),
        Ok(Err(Failure::Unsent(_))) => ClientVerdict::NotProcessed,
        Ok(Err(Failure::Lost(_))) | Err(_) => ClientVerdict::Unknown,
    }
}

/// Plays the scripts of `seed`, and gives what became of the requests.
async fn play(seed: u64) -> Vec<ClientVerdict> {
    let mut random = Rng::with_seed(seed);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("https://{}", listener.local_addr().unwrap());
    let mut roots = RootCertStore::empty();
    roots.add(IDENTITY.certificate.clone()).unwrap();
    let dial = Dial {
        provider: "test",
        origin: Endpoint::parse(&origin).unwrap().origin,
        tls: tls::client_trusting(roots, &[b"h2"], None).unwrap(),
        reach: Arc::new(tcp::Anywhere),
        priming: random.choice([Priming::OneStream, Priming::Unprimed]).unwrap(),
        read_fields: &[],
    };
    let clock = Clock::starting_at(Duration::ZERO);
    let pool = Rc::new(Http2Pool::new(dial, random.usize(1..4), clock, seed));
    let closing = Notify::new();
    let serving = serve(listener, random.fork(), &closing);
    let asking = async {
        // Each in a task of its own: one that is not woken would be polled with the others.
        let requests = (0..REQUESTS)
            .map(|number| tokio::task::spawn_local(ask(Rc::clone(&pool), number, random.fork())));
        let requests: Vec<_> = requests.collect();
        let mut verdicts = Vec::new();
        for request in requests {
            verdicts.push(request.await.unwrap());
        }
        tokio::time::timeout(HANG, pool.close()).await.expect("the pool does not close");
        closing.notify_one();
        verdicts
    };
    let both = async { tokio::join!(serving, asking) };
    let (accounts, verdicts) = tokio::time::timeout(2 * HANG, both).await.expect("a server hangs");
    for (number, verdict) in verdicts.iter().enumerate() {
        let path = path(number);
        let streams = accounts.iter().flat_map(|account| account.streams.values());
        let served: Vec<&Served> = streams.filter(|served| served.path == path).collect();
        verdict.check(&path, &served);
    }
    verdicts
}

#[test]
fn verdicts_agree_with_the_servers_account_however_tls_and_its_connection_end() {
    let mut verdicts = HashMap::<_, usize>::new();
    let seeds = for_each_seed(SCRIPTS, COST, |seed| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        for verdict in LocalSet::new().block_on(&runtime, play(seed)) {
            *verdicts.entry(std::mem::discriminant(&verdict)).or_default() += 1;
        }
    });
    if seeds > 100 {
        assert_eq!(verdicts.len(), 3, "answered, not processed, and unknown: {verdicts:?}");
    }
}
