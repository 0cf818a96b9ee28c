//! A pool before a server.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use flow::Clock;
use http::HeaderName;
use net::endpoint::Endpoint;
use net::exchange::{Failure, Permit, Reply, Unsent};
use net::http2::{Dial, Http2Pool, Priming};
use net::request_head::SharedHead;
use net::{tcp, tls, tries};
use notification::Priority;
use rustls::RootCertStore;
use testbed::{Http2Limits, Http2Program, Http2Server, ServerIdentity};
use tokio::sync::Notify;
use tokio::task::LocalSet;

use crate::samples::{self, Sample, SampleHead};

/// A server, and the client that speaks to it.
#[derive(Debug)]
pub(crate) struct Client {
    pool: Http2Pool,
    address: Rc<SharedHead>,
    answers: Cell<usize>,
    /// Told at each answer.
    progress: Notify,
}

/// Fields by which the servers describe a request, and bytes in front of an answer and behind it.
static READ_FIELDS: [HeaderName; 8] = [
    HeaderName::from_static("content-length"),
    HeaderName::from_static("link"),
    HeaderName::from_static("x-end"),
    HeaderName::from_static("x-hash"),
    HeaderName::from_static("x-length"),
    HeaderName::from_static("x-number"),
    HeaderName::from_static("x-path"),
    HeaderName::from_static("x-token"),
];
/// Time-out of a story, far above the few seconds that each takes.
const HANG: Duration = Duration::from_mins(3);
/// Connections of a pool.
const CONNECTIONS: usize = 4;
/// How often a request is sent again that was certainly not processed, each time with the tries of the pool. The engine does so
/// after a while, without an end.
const ROUNDS: usize = 50;

/// Requests that may always be sent.
#[derive(Debug, Clone, Copy)]
struct Always;

/// The certificate of all servers.
static CERTIFIED: LazyLock<rcgen::CertifiedKey<rcgen::KeyPair>> =
    LazyLock::new(|| rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap());

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

/// Starts `program` with `limits`.
pub(crate) fn start(program: Http2Program, limits: Http2Limits) -> Http2Server {
    let (certificate, key) = (CERTIFIED.cert.pem(), CERTIFIED.signing_key.serialize_pem());
    let identity = ServerIdentity { certificate: &certificate, key: &key };
    Http2Server::start(program, identity, limits).unwrap()
}

/// Runs `story` with a client of the server on `port`, to its end.
pub(crate) fn run<Story: AsyncFnOnce(&Client) -> Told, Told>(port: u16, story: Story) -> Told {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        let client = Client::of(port);
        let told = story(&client).await;
        client.pool.close().await;
        told
    }))
}

// === impl Client ===

impl Client {
    fn of(port: u16) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CERTIFIED.cert.der().clone()).unwrap();
        let origin = format!("https://127.0.0.1:{port}");
        let dial = Dial {
            provider: "judge",
            origin: Endpoint::parse(&origin).unwrap().origin,
            tls: tls::client_trusting(roots, &[b"h2"], None).unwrap(),
            reach: std::sync::Arc::new(tcp::Anywhere),
            priming: Priming::Unprimed,
            read_fields: &READ_FIELDS,
        };
        let pool = Http2Pool::new(dial, CONNECTIONS, Clock::system(), 1);
        let address = samples::address(&format!("127.0.0.1:{port}"));
        Self { pool, address, answers: Cell::new(0), progress: Notify::new() }
    }

    /// Sends a request, again and again while it is certain that it was not processed.
    pub(crate) async fn ask(&self, sample: &Sample) -> Result<Reply, Failure<Infallible>> {
        let head = SampleHead { address: &self.address, sample };
        let mut rounds = 0;
        loop {
            rounds += 1;
            let outcome = tries::exchange(&self.pool, Always, &sample.body, &head, None).await;
            match outcome {
                Err(Failure::Unsent(Unsent::Declined(_))) if rounds < ROUNDS => {}
                Ok((reply, _stream)) => {
                    self.answers.set(self.answers.get() + 1);
                    self.progress.notify_waiters();
                    return Ok(reply);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Sends all of them together, and waits for what becomes of each.
    pub(crate) async fn ask_all(
        &self,
        samples: &[Sample],
    ) -> Vec<Result<Reply, Failure<Infallible>>> {
        let asking = futures_util::future::join_all(samples.iter().map(|sample| self.ask(sample)));
        tokio::time::timeout(HANG, asking).await.expect("a request has no end")
    }

    /// Waits until there were `answers`.
    pub(crate) async fn answered(&self, answers: usize) {
        while self.answers.get() < answers {
            self.progress.notified().await;
        }
    }
}
