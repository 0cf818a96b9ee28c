//! TLS as all channels use it: aws-lc-rs, the machine's own roots, and one more if the settings name it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ChannelError;
use crate::endpoint::Host;
use crate::settings::Secret;

/// A certificate of ours, with its key.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Where it was read.
    place: Place,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Where a setting has its PEM text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pem<'a> {
    /// In a file.
    File(&'a Path),
    /// In the setting of this name.
    Text(&'static str, &'a Secret),
}

/// What is named when a PEM text is wrong.
#[derive(Debug)]
enum Place {
    File(String),
    Setting(&'static str),
}

// === impl Identity ===

impl Identity {
    /// Reads a certificate with its chain, and its key.
    pub(crate) fn read(certificate: Pem<'_>, key: Pem<'_>) -> Result<Self, ChannelError> {
        let chain: Vec<_> = match certificate {
            Pem::File(path) => CertificateDer::pem_file_iter(path).and_then(Iterator::collect),
            Pem::Text(_, text) => {
                CertificateDer::pem_slice_iter(text.expose().as_bytes()).collect()
            }
        }
        .map_err(|error| certificate.place().refuse(format!("cannot be read: {}", say(&error))))?;
        if chain.is_empty() {
            return Err(certificate.place().refuse("holds no certificate".to_owned()));
        }
        let private = match key {
            Pem::File(path) => PrivateKeyDer::from_pem_file(path),
            Pem::Text(_, text) => PrivateKeyDer::from_pem_slice(text.expose().as_bytes()),
        };
        let private = private.map_err(|error| {
            key.place().refuse(format!("the key cannot be read: {}", say(&error)))
        })?;
        Ok(Self { place: certificate.place(), chain, key: private })
    }
}

// === impl Pem ===

impl<'a> Pem<'a> {
    /// Where `setting` or its file has it; nothing when both are set, or neither.
    pub(crate) fn of(
        setting: &'static str,
        text: Option<&'a Secret>,
        file: Option<&'a PathBuf>,
    ) -> Option<Self> {
        match (text, file) {
            (Some(text), None) => Some(Self::Text(setting, text)),
            (None, Some(path)) => Some(Self::File(path)),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    fn place(self) -> Place {
        match self {
            Self::File(path) => Place::File(path.display().to_string()),
            Self::Text(setting, _) => Place::Setting(setting),
        }
    }
}

// === impl Place ===

impl Place {
    fn refuse(self, message: String) -> ChannelError {
        match self {
            Self::File(path) => ChannelError::File { path, message },
            Self::Setting(setting) => ChannelError::Setting { setting, message },
        }
    }
}

/// A client that trusts the machine's roots and those of `ca_file`, and offers `protocols` by ALPN.
///
/// A machine without roots is an error unless `ca_file` brings some: every connection would fail.
pub(crate) fn client(
    ca_file: Option<&Path>,
    protocols: &[&[u8]],
) -> Result<Arc<ClientConfig>, ChannelError> {
    client_with(ca_file, protocols, None)
}

/// The same, which shows itself as `identity` to whoever asks.
pub(crate) fn client_with(
    ca_file: Option<&Path>,
    protocols: &[&[u8]],
    identity: Option<Identity>,
) -> Result<Arc<ClientConfig>, ChannelError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "root certificates of this machine could not be read");
    }
    let (_added, _ignored) = roots.add_parsable_certificates(native.certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    if roots.is_empty() {
        return Err(ChannelError::Setting {
            setting: "ca_file",
            message: "this machine has no root certificates: install them (the package is often \
                      called ca-certificates), or name a PEM file here"
                .to_owned(),
        });
    }
    let builder = builder(provider())?.with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { place, chain, key }) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| place.refuse(format!("cannot be used with its key: {error}")))?,
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Speaks TLS over `stream` with `host`, which has to prove that it is that.
pub(crate) async fn shake_hands(
    config: &Arc<ClientConfig>,
    host: &Host,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = match host {
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
        Host::Address(address) => ServerName::from(*address),
    };
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}

/// What ended a handshake, or a connection before its first answer, in words that say what to do about it.
pub(crate) fn explain(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(inner) = inner else { return error.to_string() };
    let words = inner.to_string();
    let not_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    let wants_certificate = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
    if *inner == not_tls {
        "this port does not speak TLS".to_owned()
    } else if *inner == wants_certificate {
        "the server demands a client certificate (alert certificate_required)".to_owned()
    } else if words.contains("CaUsedAsEndEntity") {
        // The verifier's own word, which its library has behind a general type.
        "this certificate is a CA's own: the server needs one for its name that the CA has signed"
            .to_owned()
    } else {
        words
    }
}

/// The alert by which a server says that it refuses the handshake: it has not read, and never will, what was sent behind it.
/// With TLS 1.3 a client has sent its request by the time it hears that its certificate is not accepted.
pub(crate) fn refusal<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut of_io = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    of_io.find(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        matches!(inner, Some(rustls::Error::AlertReceived(alert)) if is_of_handshake(*alert))
    })
}

/// Not those that may end a connection at any time.
const fn is_of_handshake(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::HandshakeFailure
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
            | AlertDescription::CertificateRequired
    )
}

/// A client that takes any certificate. For opportunistic encryption only, where the alternative is none (RFC 7435): it keeps
/// out who listens, and not who stands in between.
pub(crate) fn client_without_proof() -> Result<Arc<ClientConfig>, ChannelError> {
    let provider = provider();
    let verifier = AnyCertificate(provider.signature_verification_algorithms);
    let builder =
        builder(provider)?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// Checks that the server has the key of the certificate it shows, and nothing else.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// What is wrong with a PEM text, without the line that is: all of a key may stand on it.
pub(crate) fn say(error: &pem::Error) -> String {
    let is_about_lines = matches!(
        error,
        pem::Error::IllegalSectionStart { .. } | pem::Error::MissingSectionEnd { .. }
    );
    if is_about_lines {
        "-----BEGIN ...----- and -----END ...----- must stand on lines of their own".to_owned()
    } else {
        error.to_string()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, ChannelError> {
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .map_err(|error| ChannelError::Setting { setting: "tls", message: error.to_string() })
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), ChannelError> {
    let refuse = |message: String| ChannelError::File { path: path.display().to_string(), message };
    let mut found = 0;
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    for certificate in certificates {
        let certificate =
            certificate.map_err(|error| refuse(format!("is not valid PEM: {error}")))?;
        roots
            .add(certificate)
            .map_err(|error| refuse(format!("holds a certificate that cannot be used: {error}")))?;
        found += 1;
    }
    if found == 0 {
        return Err(refuse(
            "holds no certificate: a PEM file with one or more is needed".to_owned(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_refused_by_its_name() {
        let error = client(Some(Path::new("Cargo.toml")), &[]).unwrap_err();
        assert!(error.to_string().starts_with("Cargo.toml: holds no certificate"), "{error}");
        let error = client(Some(Path::new("/nowhere.pem")), &[]).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere.pem: cannot be read"), "{error}");
    }
}
