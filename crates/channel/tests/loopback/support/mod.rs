//! The shared parts of the tests against servers on loopback.

pub(crate) mod frames;
pub(crate) mod jobs;
pub(crate) mod mail;
pub(crate) mod ssrf;
pub(crate) mod tokens;

use std::rc::Rc;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A listener on loopback that speaks TLS with a certificate of its own.
pub(crate) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    /// The file of its certificate, to be trusted.
    pub(crate) ca_file: tempfile::NamedTempFile,
}

impl TlsListener {
    /// Listens; `protocol` is one or several with commas between, and an empty one leaves ALPN out.
    pub(crate) async fn bind(protocol: &[u8]) -> Rc<Self> {
        Self::bind_with(protocol, ConfigBuilder::<ServerConfig, _>::with_no_client_auth).await
    }

    /// This server, which lets in only clients with a certificate that `authority` has signed.
    pub(crate) async fn bind_asking(
        protocol: &[u8],
        authority: CertificateDer<'static>,
    ) -> Rc<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = verifier.build().unwrap();
        Self::bind_with(protocol, |builder| builder.with_client_cert_verifier(verifier)).await
    }

    async fn bind_with(
        protocol: &[u8],
        ask: impl FnOnce(
            ConfigBuilder<ServerConfig, WantsVerifier>,
        ) -> ConfigBuilder<ServerConfig, WantsServerCert>,
    ) -> Rc<Self> {
        let names = ["127.0.0.1", "*.push.test"].map(str::to_owned);
        Self::bind_as(rcgen::generate_simple_self_signed(names).unwrap(), protocol, ask).await
    }

    /// Listens with the certificate of a CA as its own.
    pub(crate) async fn bind_as_authority() -> Rc<Self> {
        let signing_key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let cert = parameters.self_signed(&signing_key).unwrap();
        let made = rcgen::CertifiedKey { cert, signing_key };
        let ask = ConfigBuilder::<ServerConfig, _>::with_no_client_auth;
        Self::bind_as(made, b"http/1.1", ask).await
    }

    async fn bind_as(
        made: rcgen::CertifiedKey<rcgen::KeyPair>,
        protocol: &[u8],
        ask: impl FnOnce(
            ConfigBuilder<ServerConfig, WantsVerifier>,
        ) -> ConfigBuilder<ServerConfig, WantsServerCert>,
    ) -> Rc<Self> {
        let ca_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca_file.path(), made.cert.pem()).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(rustls::DEFAULT_VERSIONS).unwrap();
        let mut config = ask(builder)
            .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
            .unwrap();
        if !protocol.is_empty() {
            let protocols = protocol.split(|byte| *byte == b',');
            config.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Rc::new(Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)), ca_file })
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("https://{}", self.listener.local_addr().unwrap())
    }

    pub(crate) async fn accept(&self) -> TlsStream<TcpStream> {
        self.try_accept().await.unwrap()
    }

    pub(crate) async fn try_accept(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let (stream, _) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        self.acceptor.accept(stream).await
    }

    /// Accepts without TLS.
    pub(crate) async fn accept_plain(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Goes on with TLS.
    pub(crate) async fn encrypt(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Accepts and goes away before a word of TLS.
    pub(crate) async fn reject(&self) {
        drop(self.listener.accept().await.unwrap());
    }
}
