//! Listeners, threads and connections.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::ServerConfig;
use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

use crate::Error;
use crate::apns::Apns;
use crate::faults::{CommonFaults, Dice};
use crate::fcm::{self, Fcm};
use crate::journal::{self, Journal};
use crate::options::SimulatorOptions;
use crate::provider::{Provider, SimProtocol};
use crate::smtp::MailServer;
use crate::webhook::Webhook;
use crate::webpush::WebPush;
use crate::{http1, http2, tls};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Bytes that are read from a socket at a time: hundreds of requests.
const SOCKET_BYTES: usize = 64 * 1024;
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const ALPN_HTTP2: &str = "h2";
const ALPN_HTTP1: &str = "http/1.1";

/// Starts providers; see [`Simulator::start`].
#[derive(Debug, Clone, Copy)]
pub struct Simulator;

/// A simulator at work. Dropping it stops it, too.
#[derive(Debug)]
pub struct Running {
    /// Where the APNs provider listens.
    pub apns: SocketAddr,
    /// Where the webhook provider listens.
    pub webhook: SocketAddr,
    /// Where the push service listens, if there is one.
    pub web_push: Option<SocketAddr>,
    /// Where FCM and its token endpoint listen, if they do.
    pub fcm: Option<SocketAddr>,
    /// The service account that may ask for FCM's tokens.
    pub fcm_account: PathBuf,
    /// Where the mail server listens, if there is one.
    pub smtp: Option<SocketAddr>,
    /// The certificate (PEM) that clients have to trust.
    pub ca: PathBuf,
    /// The journal.
    pub journal: PathBuf,
    ended: watch::Receiver<bool>,
    stop: Arc<watch::Sender<bool>>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
}

/// All that one thread needs, before it has a runtime.
struct ServerThread {
    options: Arc<SimulatorOptions>,
    journal: Arc<std::fs::File>,
    common: Arc<CommonFaults>,
    apns: SimEndpoint,
    webhook: SimEndpoint,
    web_push: Option<(SimEndpoint, WebPush)>,
    fcm: Option<(SimEndpoint, Fcm)>,
    smtp: Option<SimEndpoint>,
    apns_protocol: Apns,
    webhook_protocol: Webhook,
    number: u64,
}

/// Ends all threads when one ends, by a panic as well: a part of the provider is none.
struct StopAll(Arc<watch::Sender<bool>>);

/// A listening socket and its TLS.
struct SimEndpoint {
    listener: StdListener,
    tls: Arc<ServerConfig>,
}

impl Simulator {
    /// Opens the journal, makes or loads the certificates, listens, and starts the threads.
    ///
    /// All providers accept connections when this returns. A failing write of the journal ends
    /// the simulator: [`Running::wait`] returns it.
    ///
    /// # Errors
    /// When a file, an address or a secret cannot be used.
    pub fn start(options: SimulatorOptions) -> Result<Running, Error> {
        let options = Arc::new(options);
        let apns_tls = tls::server_config(&options.tls_dir, &[ALPN_HTTP2])?;
        let any_tls = tls::server_config(&options.tls_dir, &[ALPN_HTTP2, ALPN_HTTP1])?;
        let threads = options.threads.get();
        let (apns_address, apns) = listen(options.apns, threads)?;
        let (webhook_address, webhook) = listen(options.webhook, threads)?;
        let web_push = options.web_push.map(|address| listen(address, threads)).transpose()?;
        let (web_push_address, web_push) = web_push.unzip();
        let mut web_push = web_push.unwrap_or_default().into_iter();
        let fcm = options.fcm.map(|address| listen(address, threads)).transpose()?;
        let (fcm_address, fcm) = fcm.unzip();
        let mut fcm = fcm.unwrap_or_default().into_iter();
        // For all threads: a token that one of them gives is brought to any, and the quota is the project's.
        let fcm_shared =
            options.fcm.map(|_| fcm::FcmState::new(&options)).transpose()?.map(Arc::new);
        let smtp = options.smtp.map(|address| listen(address, threads)).transpose()?;
        let (smtp_address, smtp) = smtp.unzip();
        let mut smtp = smtp.unwrap_or_default().into_iter();
        let journal = Arc::new(journal::open(&options.journal)?);
        let common = Arc::new(CommonFaults::new(&options.faults));
        let (stop, ended) = watch::channel(false);
        let mut running = Running {
            apns: apns_address,
            webhook: webhook_address,
            web_push: web_push_address,
            fcm: fcm_address,
            fcm_account: fcm::account_path(&options.tls_dir),
            smtp: smtp_address,
            ca: tls::ca_path(&options.tls_dir),
            journal: options.journal.clone(),
            ended,
            stop: Arc::new(stop),
            threads: Vec::new(),
        };
        for (number, (apns, webhook)) in (0..).zip(apns.into_iter().zip(webhook)) {
            let endpoint = |listener| SimEndpoint { listener, tls: Arc::clone(&any_tls) };
            let web_push = web_push.next().map(|listener| {
                let protocol = WebPush::new(options.web_push_key.as_deref())?;
                Ok((endpoint(listener), protocol))
            });
            let fcm = fcm.next().zip(fcm_shared.clone());
            let apns_key = options.apns_public_key.as_deref();
            let (secret, key) = (&options.webhook_secret, &options.webhook_public_key);
            running.spawn(ServerThread {
                apns: SimEndpoint { listener: apns, tls: Arc::clone(&apns_tls) },
                webhook: endpoint(webhook),
                web_push: web_push.transpose()?,
                fcm: fcm.map(|(listener, shared)| (endpoint(listener), Fcm::new(shared))),
                smtp: smtp.next().map(endpoint),
                apns_protocol: Apns::new(apns_key, options.apns_token_interval)?,
                webhook_protocol: Webhook::new(secret.as_deref(), key.as_deref())?,
                options: Arc::clone(&options),
                journal: Arc::clone(&journal),
                common: Arc::clone(&common),
                number,
            })?;
        }
        Ok(running)
    }
}

// === impl Running ===

impl Running {
    /// Waits until the simulator has been stopped, or has failed.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that every sender is gone, which is an end as well.
        drop(ended.wait_for(|ended| *ended).await);
    }

    /// Closes every connection, waits for the threads, and returns what ended them.
    ///
    /// # Errors
    /// A failed write of the journal, or a panic.
    pub fn stop(mut self) -> Result<(), Error> {
        self.stop.send_replace(true);
        self.join()
    }

    /// Blocks until the simulator ends by itself: only ever by a failure.
    ///
    /// # Errors
    /// A failed write of the journal, or a panic.
    pub fn wait(mut self) -> Result<(), Error> {
        self.join()
    }

    fn spawn(&mut self, worker: ServerThread) -> Result<(), Error> {
        let stop = StopAll(Arc::clone(&self.stop));
        let ended = self.ended.clone();
        let run = move || {
            // Held to the end of the thread, also if that is a panic.
            let _stop = stop;
            worker.run(ended)
        };
        let name = format!("provider-sim-{}", self.threads.len());
        self.threads.push(thread::Builder::new().name(name).spawn(run).map_err(Error::Start)?);
        Ok(())
    }

    fn join(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            // The first failure is the cause: when one thread ends, the others are ended.
            result = result.and(thread.join().unwrap_or(Err(Error::Panicked)));
        }
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Err(error) = self.join() {
            tracing::error!(%error, "provider-sim failed");
        }
    }
}

// === impl StopAll ===

impl Drop for StopAll {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

// === impl ServerThread ===

impl ServerThread {
    fn run(self, mut ended: watch::Receiver<bool>) -> Result<(), Error> {
        let path = self.options.journal.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Start)?;
        let journal = Rc::new(Journal::new(self.journal, self.options.fsync));
        // Added later than the first two, whose dice fall as they did before.
        let dice = |provider: u64| match provider {
            0 | 1 => Dice::new(&self.options.faults, self.number * 2 + provider),
            _ => Dice::new(&self.options.faults, u64::MAX - self.number - (provider << 32)),
        };
        let provider = |protocol, dice| {
            let (options, journal) = (Arc::clone(&self.options), Rc::clone(&journal));
            Rc::new(Provider::new(options, journal, protocol, dice, Arc::clone(&self.common)))
        };
        let apns = provider(SimProtocol::Apns(self.apns_protocol), dice(0));
        let webhook = provider(SimProtocol::Webhook(self.webhook_protocol), dice(1));
        let web_push = self.web_push.map(|(endpoint, protocol)| {
            accept(endpoint, provider(SimProtocol::WebPush(protocol), dice(2)))
        });
        let fcm = self.fcm.map(|(endpoint, protocol)| {
            accept(endpoint, provider(SimProtocol::Fcm(protocol), dice(3)))
        });
        let smtp = self.smtp.map(|endpoint| {
            let (options, journal) = (Arc::clone(&self.options), Rc::clone(&journal));
            let mail = MailServer::new(options, journal, dice(4), Arc::clone(&self.common));
            accept_mail(endpoint, Rc::new(mail))
        });
        let tasks = LocalSet::new();
        let serving = tasks.run_until(async {
            tokio::select! {
                error = accept(self.apns, apns) => Err(Error::Start(error)),
                error = accept(self.webhook, webhook) => Err(Error::Start(error)),
                error = if_any(web_push) => Err(Error::Start(error)),
                error = if_any(fcm) => Err(Error::Start(error)),
                error = if_any(smtp) => Err(Error::Start(error)),
                error = journal.keep_writing() => Err(Error::Journal { path: path.clone(), source: error }),
                _ = ended.wait_for(|ended| *ended) => Ok(()),
            }
        });
        runtime.block_on(serving)?;
        // The connections are gone, and what they added last is not written yet.
        journal.write_rest().map_err(|source| Error::Journal { path, source })
    }
}

/// Waits for ever when there is nothing to wait for.
async fn if_any<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Accepts connections for ever; an error means that nothing can be accepted any more.
async fn accept(endpoint: SimEndpoint, provider: Rc<Provider>) -> io::Error {
    let acceptor = TlsAcceptor::from(endpoint.tls);
    accept_each(endpoint.listener, |tcp| serve(acceptor.clone(), tcp, Rc::clone(&provider))).await
}

/// Accepts connections that begin without TLS.
async fn accept_mail(endpoint: SimEndpoint, server: Rc<MailServer>) -> io::Error {
    accept_each(endpoint.listener, |tcp| {
        let connection = Rc::clone(&server).serve(tcp, Arc::clone(&endpoint.tls));
        async move { Ok(connection.await?) }
    })
    .await
}

async fn accept_each<Serving>(
    listener: StdListener,
    serve: impl Fn(TcpStream) -> Serving,
) -> io::Error
where
    Serving: Future<Output = Result<(), Box<dyn std::error::Error>>> + 'static,
{
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                let connection = serve(tcp);
                tokio::task::spawn_local(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%peer, %error, "connection ended");
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, or the client was gone before it was accepted.
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    tcp: TcpStream,
    provider: Rc<Provider>,
) -> Result<(), Box<dyn std::error::Error>> {
    // Answers are small, and must not wait for the acknowledgement of those before.
    tcp.set_nodelay(true)?;
    // TLS by itself reads 4 KiB at a time.
    let handshake = acceptor.accept(BufReader::with_capacity(SOCKET_BYTES, tcp));
    let tls = tokio::time::timeout(HANDSHAKE_LIMIT, handshake).await??;
    let (_, session) = tls.get_ref();
    // APNs speaks nothing else, whatever a client offers.
    if provider.is_apns() || session.alpn_protocol() == Some(ALPN_HTTP2.as_bytes()) {
        http2::serve(tls, provider).await?;
    } else {
        http1::serve(tls, provider).await?;
    }
    Ok(())
}

/// One listener per thread on the same address, which is given back; the kernel spreads the connections.
fn listen(address: SocketAddr, count: usize) -> Result<(SocketAddr, Vec<StdListener>), Error> {
    let failed = |source| Error::Listen { address, source };
    let mut address = address;
    let mut listeners = Vec::new();
    for _ in 0..count {
        let listener = bind(address, count > 1).map_err(failed)?;
        // Port 0 is now the one that the first listener got.
        address = listener.local_addr().map_err(failed)?;
        listeners.push(listener);
    }
    Ok((address, listeners))
}

fn bind(address: SocketAddr, is_shared: bool) -> io::Result<StdListener> {
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM, Some(SocketProtocol::TCP))?;
    // A restart listens at once, although connections of the process before still wait for their end (TIME_WAIT).
    socket.set_reuse_address(true)?;
    // Only where threads share the address: another simulator could listen there as well, and
    // take a part of the connections.
    socket.set_reuse_port(is_shared)?;
    // A runtime takes a socket over in this mode only.
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
