//! A simulator on loopback, and clients that know nothing of its code.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use provider_sim::journal::{JournalStatus, Reader, Summary};
use provider_sim::{Running, Simulator, SimulatorOptions};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const PAYLOAD: &str = r#"{"aps":{"alert":"hello"}}"#;

/// A simulator with its files in a directory of its own.
pub(crate) struct Sim {
    pub(crate) running: Running,
    pub(crate) directory: TempDir,
}

/// An HTTP/2 client on one connection.
pub(crate) struct Client {
    pub(crate) send: SendRequest<Bytes>,
    connection: JoinSet<Result<(), h2::Error>>,
}

/// A received answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// A record that owns its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) received_us: u64,
    pub(crate) status: JournalStatus,
    pub(crate) id: String,
    pub(crate) recipient: String,
}

// === impl Sim ===

impl Sim {
    pub(crate) fn start(change: impl FnOnce(&mut SimulatorOptions)) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), change)
    }

    pub(crate) fn start_in(directory: TempDir, change: impl FnOnce(&mut SimulatorOptions)) -> Self {
        let mut options = SimulatorOptions::default();
        options.apns.set_port(0);
        options.webhook.set_port(0);
        options.journal = directory.path().join("journal");
        options.tls_dir = directory.path().join("tls");
        change(&mut options);
        Self { running: Simulator::start(options).unwrap(), directory }
    }

    pub(crate) async fn apns(&self) -> Client {
        Client::over(tls(self.running.apns, &self.running.ca, "h2").await).await
    }

    pub(crate) async fn webhook(&self) -> Client {
        Client::over(tls(self.running.webhook, &self.running.ca, "h2").await).await
    }

    pub(crate) fn journal(&self) -> Vec<Line> {
        lines(&self.running.journal)
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary::read(&mut Reader::open(&self.running.journal).unwrap()).unwrap()
    }

    pub(crate) fn stop(self) -> TempDir {
        self.running.stop().unwrap();
        self.directory
    }
}

// === impl Client ===

impl Client {
    pub(crate) async fn over(tls: TlsStream<TcpStream>) -> Self {
        let (send, connection) = h2::client::handshake(tls).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        Self { send, connection: tasks }
    }

    /// Starts a request; the answer is awaited apart, so that several can be under way.
    pub(crate) async fn begin(
        &mut self,
        request: Request<()>,
        body: impl Into<Bytes>,
    ) -> Result<h2::client::ResponseFuture, h2::Error> {
        let body = body.into();
        let mut ready = self.send.clone().ready().await?;
        let (response, mut stream) = ready.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(body, true)?;
        }
        Ok(response)
    }

    pub(crate) async fn ask(
        &mut self,
        request: Request<()>,
        body: impl Into<Bytes>,
    ) -> Result<Answer, h2::Error> {
        answer(self.begin(request, body).await?).await
    }

    /// Sends a good APNs request and returns the status of its answer.
    pub(crate) async fn push(&mut self, id: &str, token: &str) -> Result<StatusCode, h2::Error> {
        Ok(self.ask(push(id, token), PAYLOAD).await?.status)
    }

    /// How the connection ended.
    pub(crate) async fn end(mut self) -> Result<(), h2::Error> {
        drop(self.send);
        self.connection.join_next().await.unwrap().unwrap()
    }
}

pub(crate) async fn answer(response: h2::client::ResponseFuture) -> Result<Answer, h2::Error> {
    let (parts, mut stream) = response.await?.into_parts();
    let mut body = BytesMut::new();
    while let Some(piece) = stream.data().await {
        body.extend_from_slice(&piece?);
    }
    let body = String::from_utf8(body.to_vec()).unwrap();
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

pub(crate) async fn tls(
    address: std::net::SocketAddr,
    ca: &Path,
    protocol: &str,
) -> TlsStream<TcpStream> {
    tls_over(TcpStream::connect(address).await.unwrap(), ca, protocol).await
}

/// Encrypts a connection that stands; an empty `protocol` leaves ALPN out.
pub(crate) async fn tls_over(tcp: TcpStream, ca: &Path, protocol: &str) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    if !protocol.is_empty() {
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    }
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

/// A good APNs request.
pub(crate) fn push(id: &str, token: &str) -> Request<()> {
    Request::post(format!("https://localhost/3/device/{token}"))
        .header("authorization", unsigned_token())
        .header("apns-topic", "org.example.app")
        .header("apns-push-type", "alert")
        .header("apns-id", id)
        .body(())
        .unwrap()
}

/// The `number`th device token and notification id.
pub(crate) fn device(number: usize) -> String {
    format!("{number:064x}")
}

pub(crate) fn id(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

pub(crate) fn unsigned_token() -> String {
    let signature = BASE64_URL_SAFE_NO_PAD.encode([0; 64]);
    format!("bearer {}.{signature}", claims("TEAM", now_s()))
}

/// An `authorization` header signed by `key`.
pub(crate) fn signed_token(key: &EcdsaKeyPair, team: &str, issued_s: u64) -> String {
    let claims = claims(team, issued_s);
    let signature = key.sign(&SystemRandom::new(), claims.as_bytes()).unwrap();
    format!("bearer {claims}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

fn claims(team: &str, issued_s: u64) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"KEY"}"#);
    let claims = BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"iss":"{team}","iat":{issued_s}}}"#));
    format!("{header}.{claims}")
}

pub(crate) fn signing_key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()
}

pub(crate) fn public_key_pem(key: &EcdsaKeyPair) -> String {
    let der: PublicKeyX509Der<'_> = key.public_key().as_der().unwrap();
    let body = BASE64_STANDARD.encode(der.as_ref());
    format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")
}

#[expect(clippy::disallowed_methods, reason = "what is signed has to be of this minute")]
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) fn lines(path: &Path) -> Vec<Line> {
    let mut reader = Reader::open(path).unwrap();
    let mut lines = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        lines.push(Line {
            received_us: record.received_us,
            status: record.status,
            id: record.id.to_owned(),
            recipient: record.recipient.to_owned(),
        });
    }
    lines
}
