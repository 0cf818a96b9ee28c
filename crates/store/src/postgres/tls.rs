//! TLS to the database: rustls with aws-lc-rs, the machine's own roots, and those of one more file.
//!
//! The address's `sslmode` decides on TLS: `disable`, `prefer` (the default) or `require`. Where it is used, the certificate and
//! the host name in it are verified, always. A login by SCRAM is bound to the server's certificate (`tls-server-end-point`, RFC
//! 5929), so that a server in between cannot pass it on.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_lc_rs::digest::{Algorithm, SHA256, SHA384, SHA512, digest};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::StoreError;

/// Makes a handshake for each connection. Clones share the trusted roots.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
}

/// A handshake, to be made with a server of that name.
pub(super) struct Handshake {
    connector: TlsConnector,
    /// Name of the server. A socket in a directory has none that a certificate could hold: an error where TLS is made, which is
    /// not there.
    server: io::Result<ServerName<'static>>,
}

/// An encrypted connection.
pub(super) struct PostgresTlsStream<S> {
    inner: TlsStream<S>,
}

/// Protocol name as registered for PostgreSQL; servers require it where TLS comes first (`sslnegotiation=direct`).
const PROTOCOL: &[u8] = b"postgresql";
const SEQUENCE: u8 = 0x30;

/// A client that trusts the machine's roots and those in `ca_file` (PEM).
///
/// # Errors
/// [`StoreError::Refused`] when the file cannot be used.
pub(super) fn connector(ca_file: Option<&Path>) -> Result<Tls, StoreError> {
    // A machine without roots may still reach its database without TLS.
    let config = net::tls::roots(ca_file)
        .and_then(|roots| net::tls::client_trusting(roots, &[PROTOCOL], None))
        .map_err(|error| StoreError::Refused(error.to_string()))?;
    Ok(Tls { config })
}

// === impl Tls ===

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = PostgresTlsStream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, io::Error> {
        let server = ServerName::try_from(domain.to_owned()).map_err(io::Error::other);
        Ok(Handshake { connector: TlsConnector::from(Arc::clone(&self.config)), server })
    }
}

// === impl Handshake ===

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = PostgresTlsStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<PostgresTlsStream<S>, io::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connected = self.connector.connect(self.server?, stream).await;
            connected.map(|inner| PostgresTlsStream { inner }).map_err(|error| explain(&error))
        })
    }
}

/// Says what to do about a certificate that is not trusted.
fn explain(error: &io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let remedy = match cause {
        Some(rustls::Error::InvalidCertificate(_)) => {
            ": name the file with its CA's certificate, reach it by the name in its certificate, or say \
             sslmode=disable in its address"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{error}{remedy}"))
}

// === impl PostgresTlsStream ===

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for PostgresTlsStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.inner.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let end_point = certificate.and_then(|certificate| end_point(certificate));
        end_point.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PostgresTlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PostgresTlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// The certificate's digest, by the algorithm that it was signed with (RFC 5929, section 4.1); `None` where none is
/// defined.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (parts, _) = element(certificate, SEQUENCE)?;
    let (_signed, rest) = element(parts, SEQUENCE)?;
    let (algorithm, _signature) = element(rest, SEQUENCE)?;
    Some(digest(digest_of(algorithm)?, certificate).as_ref().to_vec())
}

/// The digest of a signature algorithm; SHA-256 stands in for a weaker one.
fn digest_of(algorithm: &[u8]) -> Option<&'static Algorithm> {
    const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    // RFC 8017, appendix A.2.4: 4 is MD5, 5 SHA-1, 11 SHA-256, 12 SHA-384, 13 SHA-512.
    // RFC 5758, section 3.2: 2 is SHA-256, 3 SHA-384, 4 SHA-512.
    let rsa = algorithm.strip_prefix(RSA).and_then(<[u8]>::first);
    let ecdsa = algorithm.strip_prefix(ECDSA).and_then(<[u8]>::first);
    match (rsa, ecdsa) {
        (Some(4 | 5 | 11), _) | (_, Some(2)) => Some(&SHA256),
        (Some(12), _) | (_, Some(3)) => Some(&SHA384),
        (Some(13), _) | (_, Some(4)) => Some(&SHA512),
        _ => None,
    }
}

/// The content of the first DER element, which must have that tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let long = usize::from(short.saturating_sub(0x80));
    let (digits, rest) = rest.split_at_checked(long)?;
    let length = match short {
        0..=0x7f => usize::from(short),
        // Three digits are 16 MiB: no certificate is longer.
        0x81..=0x83 => digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)),
        _ => return None,
    };
    (first == tag).then_some(rest)?.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SignatureAlgorithm};
    use testbed::{PostgresOptions, PostgresServer};

    use super::super::connection::Connector;
    use super::*;

    /// A CA's certificate, and a server's that it signed, with its key.
    fn certificates(
        name: &str,
        algorithm: &'static SignatureAlgorithm,
    ) -> (String, String, String) {
        let ca_key = KeyPair::generate_for(algorithm).unwrap();
        let mut ca = CertificateParams::new([]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::from_params(&ca, &ca_key);
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new([name.to_owned()]).unwrap();
        (ca_pem, server.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Connects with `parameters` in the address to a server whose certificate is for `name`; true if TLS was used.
    async fn connect(
        name: &str,
        algorithm: &'static SignatureAlgorithm,
        parameters: &[&str],
    ) -> Vec<Result<bool, String>> {
        let (ca, certificate, key) = certificates(name, algorithm);
        let directory = tempfile::tempdir().unwrap();
        let ca_file = directory.path().join("ca.pem");
        std::fs::write(&ca_file, ca).unwrap();
        let tls = Some((certificate.as_str(), key.as_str()));
        let server = PostgresServer::start_with(PostgresOptions { settings: &[], tls }).unwrap();
        let mut answers = Vec::new();
        for parameters in parameters {
            let url = format!("{}?{parameters}", server.url());
            let connector = Connector::new(&url, "test", Some(&ca_file)).unwrap();
            let connected = connector.connect(None).await;
            answers.push(match connected {
                Ok(session) => {
                    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
                    Ok(session.client.query_one(sql, &[]).await.unwrap().get(0))
                }
                Err(error) => Err(super::super::errors::in_words(&error)),
            });
        }
        answers
    }

    #[tokio::test]
    async fn the_mode_decides_on_tls_and_the_login_is_bound_to_the_certificate() {
        let modes =
            ["sslmode=disable", "", "sslmode=require", "sslmode=require&channel_binding=require"];
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
            let answers = connect("127.0.0.1", algorithm, &modes).await;
            assert_eq!(answers, [Ok(false), Ok(true), Ok(true), Ok(true)], "{algorithm:?}");
        }
    }

    #[tokio::test]
    async fn a_socket_in_a_directory_is_reached_without_tls() {
        let server = PostgresServer::start().unwrap();
        let database = server.create_database().unwrap();
        for mode in ["disable", "prefer"] {
            let url = format!("{}&sslmode={mode}", server.socket_url(&database));
            let connector = Connector::new(&url, "test", None).unwrap();
            connector.connect(None).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_certificate_for_another_name_is_refused_with_advice() {
        let answers =
            connect("elsewhere.example", &rcgen::PKCS_ECDSA_P256_SHA256, &["", "sslmode=require"]);
        for answer in answers.await {
            let words = answer.unwrap_err();
            assert!(words.contains("not valid for name"), "{words}");
            assert!(words.contains("sslmode=disable"), "{words}");
        }
    }

    #[test]
    fn a_file_without_a_certificate_is_refused_by_its_name() {
        let check = |path: &str, expect: &str| {
            let error = connector(Some(Path::new(path))).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        };
        check("Cargo.toml", "Cargo.toml: holds no certificate");
        check("/nowhere.pem", "/nowhere.pem: cannot be read");
    }

    #[test]
    fn no_bytes_make_the_digest_panic() {
        for bytes in
            [&[][..], &[0x30], &[0x30, 0x84, 1, 1, 1, 1], &[0x30, 0x82, 1], &[0x30, 5, 0x30, 3]]
        {
            assert_eq!(end_point(bytes), None);
        }
    }
}
