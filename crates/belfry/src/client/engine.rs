//! One engine, and connections to it: HTTP/1.1 that is kept alive, over TCP, TLS or a Unix socket.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use flow::Tasks;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use net::setting::{SettingError, SettingText};
use net::tls::Identity;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::args::TlsFiles;
use crate::exit::{CliError, FailureKind};

use super::EngineAnswer;

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may take; the engine answers an overload sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// An answer is read up to this: it names an identifier per notification, and more.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// A request body: known in whole, or made while it is sent.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// The address of the engine, and the API key to call it with.
pub(crate) struct EngineApi {
    url: String,
    place: EnginePlace,
    authority: HeaderValue,
    authorization: Option<HeaderValue>,
}

/// Where the engine listens.
enum EnginePlace {
    Tcp { host: String, port: u16, tls: Option<EngineTls> },
    Unix(PathBuf),
}

/// The beginning of the address of a Unix socket; its path follows.
const UNIX: &str = "unix:";

/// An open connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct EngineConnection {
    sender: SendRequest<RequestBody>,
    _driver: Tasks,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nothing was sent.
    #[error("cannot reach the engine at {url}: {reason}; is `belfry serve` running there?")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// The failure.
        reason: String,
    },
    /// The engine may or may not have done what it was asked.
    #[error("lost the connection to the engine before it answered: {0}")]
    Lost(String),
}

#[derive(Clone)]
struct EngineTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

// === impl EngineApi ===

impl EngineApi {
    /// The engine at `url`, called with `key` if there is one. By https it is trusted by this machine's roots and those in `files`, and
    /// is shown the certificate in them if it asks for one.
    ///
    /// # Errors
    /// When `url` is no address, a file cannot be used, or a certificate is given and `url` is not https.
    pub(crate) fn new(url: &str, key: Option<String>, files: TlsFiles<'_>) -> anyhow::Result<Self> {
        let (place, authority) = EnginePlace::of(url, files)?;
        if files.identity.is_some() && !place.has_tls() {
            let message = format!(
                "a client certificate is shown by https alone, and {url} is not https: leave --client-cert and --client-key \
                 (BELFRY_CLIENT_CERT, BELFRY_CLIENT_KEY) out, or call https"
            );
            return Err(CliError::new(FailureKind::Usage, message).into());
        }
        let authorization = key.map(|key| HeaderValue::try_from(format!("Bearer {key}")));
        let authorization = authorization.transpose().map_err(|_| {
            CliError::new(FailureKind::Usage, "the API key has characters that no key has")
        })?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), place, authority, authorization })
    }

    /// Makes one call: over `idle` if it is still open, else over a new connection, which is left in `idle`.
    pub(crate) async fn call(
        &self,
        idle: &mut Option<EngineConnection>,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<EngineAnswer, CallError> {
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let mut request = self.request(method, path, body);
        // Taken out: a call that fails leaves no connection behind.
        if let Some(mut connection) = idle.take() {
            match connection.send(request).await {
                Ok(response) => return read(response, connection, idle).await,
                // The engine had closed the idle connection: nothing was sent, so it is sent anew without doubt.
                Err(FailedSend { unsent: Some(unsent), .. }) => request = *unsent,
                Err(FailedSend { reason, .. }) => return Err(CallError::Lost(reason)),
            }
        }
        let mut connection = self.open().await?;
        match connection.send(request).await {
            Ok(response) => read(response, connection, idle).await,
            Err(FailedSend { unsent: Some(_), reason }) => Err(self.unreachable(reason)),
            Err(FailedSend { reason, .. }) => Err(CallError::Lost(reason)),
        }
    }

    /// Posts lines of JSON that are made while they are sent, for as long as that takes.
    pub(crate) async fn upload(
        &self,
        path: &str,
        body: RequestBody,
    ) -> Result<EngineAnswer, CallError> {
        // Over a fresh connection: a body that is made while it is sent cannot be sent a second time.
        let mut connection = self.open().await?;
        let mut request = self.request(Method::POST, path, body);
        let lines = HeaderValue::from_static("application/x-ndjson");
        request.headers_mut().insert(CONTENT_TYPE, lines);
        // Without a time limit: the engine answers after the last line, and the input may be a pipe that fills slowly.
        let sent = connection.sender.send_request(request).await;
        let response = sent.map_err(|error| CallError::Lost(words(&error)))?;
        // Not kept: a command that uploads makes no other call.
        read(response, connection, &mut None).await
    }

    async fn open(&self) -> Result<EngineConnection, CallError> {
        let opened = timeout(CONNECT_TIMEOUT, self.connect()).await;
        let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        opened.map_err(|error| self.unreachable(error.to_string()))
    }

    fn unreachable(&self, reason: String) -> CallError {
        CallError::Unreachable { url: self.url.clone(), reason }
    }

    fn request(&self, method: Method, path: &str, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // Paths are made of our own words and of identifiers that were parsed.
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(HOST, self.authority.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        request
    }

    async fn connect(&self) -> io::Result<EngineConnection> {
        let (host, port, tls) = match &self.place {
            EnginePlace::Unix(path) => {
                return EngineConnection::open(TokioIo::new(UnixStream::connect(path).await?))
                    .await;
            }
            EnginePlace::Tcp { host, port, tls } => (host, *port, tls),
        };
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        // Small requests must not wait for the acknowledgement of the one before.
        stream.set_nodelay(true)?;
        match tls {
            None => EngineConnection::open(TokioIo::new(stream)).await,
            Some(tls) => {
                let stream = tls.connector.connect(tls.name.clone(), stream).await?;
                EngineConnection::open(TokioIo::new(stream)).await
            }
        }
    }
}

// === impl EnginePlace ===

impl EnginePlace {
    /// The place at `url`, and the host that its requests name.
    fn of(url: &str, files: TlsFiles<'_>) -> anyhow::Result<(Self, HeaderValue)> {
        if let Some(path) = url.strip_prefix(UNIX) {
            // `unix:///run/api.sock` is the same place, as other programs write it.
            let path = path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
            return Ok((Self::Unix(path.into()), HeaderValue::from_static("localhost")));
        }
        let refuse = || {
            let message = format!(
                "{url:?} is not an address such as http://127.0.0.1:8473 or unix:/run/belfry/api.sock"
            );
            CliError::new(FailureKind::Usage, message)
        };
        let uri: Uri = url.parse().map_err(|_| refuse())?;
        // Calls name their paths from the root: one in the address would be lost.
        let authority = uri.authority().filter(|_| uri.path() == "/").ok_or_else(refuse)?;
        // An IPv6 address stands in brackets in a URL, and without them in a socket address.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, usual_port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(EngineTls::new(&host, files)?), 443),
            _ => return Err(refuse().into()),
        };
        let port = net::endpoint::port_of(authority, usual_port).map_err(|malformed| {
            CliError::new(FailureKind::Usage, format!("{url:?} {malformed}"))
        })?;
        Ok((Self::Tcp { host, port, tls }, HeaderValue::try_from(authority.as_str())?))
    }

    fn has_tls(&self) -> bool {
        matches!(self, Self::Tcp { tls: Some(_), .. })
    }
}

// === impl EngineConnection ===

/// Why a request has no answer.
struct FailedSend {
    /// The request, if nothing of it was sent.
    unsent: Option<Box<Request<RequestBody>>>,
    reason: String,
}

impl EngineConnection {
    async fn open<S>(stream: S) -> io::Result<Self>
    where
        S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(stream).await.map_err(io::Error::other)?;
        let mut driver = Tasks::default();
        driver.spawn("connection to the engine", async {
            // The request that waits for an answer gets the error too.
            connection.await.ok();
        });
        Ok(Self { sender, _driver: driver })
    }

    async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, FailedSend> {
        let sent = async {
            // A connection that was closed while it was idle says so here, before anything is written.
            if let Err(error) = self.sender.ready().await {
                let unsent = Some(Box::new(request));
                return Err(FailedSend { unsent, reason: words(&error) });
            }
            self.sender.try_send_request(request).await.map_err(|mut error| {
                let unsent = error.take_message().map(Box::new);
                FailedSend { unsent, reason: words(&error.into_error()) }
            })
        };
        timeout(ANSWER_TIMEOUT, sent).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
            // It may have left by then, so what became of it is unknown.
            Err(FailedSend { unsent: None, reason })
        })
    }
}

/// The words of `error`. With TLS 1.3 a server refuses a client's certificate, or asks for one, when a request is on its way.
fn words(error: &hyper::Error) -> String {
    let Some(refusal) = net::tls::refusal(error) else { return error.to_string() };
    let explained = net::tls::explain(refusal);
    if explained.contains("demands a client certificate") {
        format!("{explained}: name one by --client-cert, and its key by --client-key")
    } else {
        format!("{explained}: does it trust the authority of the certificate of --client-cert?")
    }
}

async fn read(
    response: Response<Incoming>,
    connection: EngineConnection,
    idle: &mut Option<EngineConnection>,
) -> Result<EngineAnswer, CallError> {
    let (head, body) = response.into_parts();
    // A time of its own: the one that `send` waits ends with the head.
    let body = timeout(ANSWER_TIMEOUT, Limited::new(body, ANSWER_BYTES).collect()).await;
    let body = body.map_err(|_| CallError::Lost("the answer did not end".to_owned()))?;
    let body = body.map_err(|error| CallError::Lost(error.to_string()))?.to_bytes();
    // Only with the whole answer read is the connection good for another call.
    *idle = Some(connection);
    Ok(EngineAnswer::new(&head, body))
}

// === impl CallError ===

impl From<CallError> for CliError {
    fn from(error: CallError) -> Self {
        Self::new(FailureKind::Unreachable, error.to_string())
    }
}

// === impl EngineTls ===

impl EngineTls {
    fn new(host: &str, TlsFiles { ca, identity }: TlsFiles<'_>) -> anyhow::Result<Self> {
        let refuse = |error: SettingError| CliError::new(FailureKind::Usage, error.to_string());
        let read = |(certificate, key)| {
            Identity::read(SettingText::File(certificate), SettingText::File(key))
        };
        let identity = identity.map(read).transpose().map_err(refuse)?;
        let roots = net::tls::roots(ca).map_err(refuse)?;
        let config = net::tls::client_trusting(roots, &[], identity).map_err(refuse)?;
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Self { connector: TlsConnector::from(config), name })
    }
}
