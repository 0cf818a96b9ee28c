//! What the tests against servers on loopback share.

pub(crate) mod frames;
pub(crate) mod jobs;
pub(crate) mod mail;

use std::rc::Rc;
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A listener on loopback that speaks TLS with a certificate of its own.
pub(crate) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    /// The file of its certificate, to be trusted.
    pub(crate) ca_file: tempfile::NamedTempFile,
}

impl TlsListener {
    /// Listens; an empty `protocol` leaves ALPN out.
    pub(crate) async fn bind(protocol: &[u8]) -> Rc<Self> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let ca_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca_file.path(), made.cert.pem()).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
            .unwrap();
        if !protocol.is_empty() {
            config.alpn_protocols = vec![protocol.to_vec()];
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
