//! TLS: aws-lc-rs, the machine's own trusted roots, and those of one more file if the settings name it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::endpoint::Host;
use crate::setting::{SettingError, SettingText};

/// A client certificate with its chain and its key.
#[derive(Debug)]
pub struct Identity<'a> {
    certificate: SettingText<'a>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

// === impl Identity ===

impl<'a> Identity<'a> {
    /// Reads a certificate with its chain, and its key.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn read(certificate: SettingText<'a>, key: SettingText<'_>) -> Result<Self, SettingError> {
        let chain: Vec<_> = match certificate {
            SettingText::File(path) => {
                CertificateDer::pem_file_iter(path).and_then(Iterator::collect)
            }
            SettingText::Text(_, text) => {
                CertificateDer::pem_slice_iter(text.expose().as_bytes()).collect()
            }
        }
        .map_err(|error| certificate.refuse(format!("cannot be read: {}", explain_pem(&error))))?;
        if chain.is_empty() {
            return Err(certificate.refuse("holds no certificate"));
        }
        let private = match key {
            SettingText::File(path) => PrivateKeyDer::from_pem_file(path),
            SettingText::Text(_, text) => PrivateKeyDer::from_pem_slice(text.expose().as_bytes()),
        };
        let private = private.map_err(|error| {
            key.refuse(format!("the key cannot be read: {}", explain_pem(&error)))
        })?;
        Ok(Self { certificate, chain, key: private })
    }

    /// The second of Unix time until which the certificate is good; `None` where it cannot be read as X.509.
    pub fn not_after(&self) -> Option<i64> {
        Some(validity(self.chain.first()?)?.1)
    }
}

/// The seconds of Unix time from and until which a certificate is good.
pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Option<(i64, i64)> {
    let (_rest, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

/// The roots that this machine trusts, and those in `ca_file` (PEM). Empty where there are none.
///
/// # Errors
/// When the file cannot be used.
pub fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, SettingError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "root certificates of this machine could not be read");
    }
    // A machine's store may hold certificates that cannot be parsed. One of them must not end all connections.
    let (_added, _ignored) = roots.add_parsable_certificates(native.certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    Ok(roots)
}

/// A client that trusts the machine's roots and those of `ca_file`, offers `protocols` by ALPN, and shows itself as
/// `identity` where a server asks for a certificate.
///
/// # Errors
/// When the file or the identity cannot be used, and on a machine without roots unless `ca_file` has some: every connection
/// would fail.
pub fn client(
    ca_file: Option<&Path>,
    protocols: &[&[u8]],
    identity: Option<Identity<'_>>,
) -> Result<Arc<ClientConfig>, SettingError> {
    let roots = roots(ca_file)?;
    if roots.is_empty() {
        let message = "this machine has no root certificates: install them (the package is often \
                       called ca-certificates), or name a PEM file here";
        return Err(SettingError::Setting { setting: "ca_file", message: message.to_owned() });
    }
    client_trusting(roots, protocols, identity)
}

/// A client that trusts `roots`; otherwise as [`client`].
///
/// # Errors
/// When the identity cannot be used.
pub fn client_trusting(
    roots: RootCertStore,
    protocols: &[&[u8]],
    identity: Option<Identity<'_>>,
) -> Result<Arc<ClientConfig>, SettingError> {
    let builder = builder(provider())?.with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, chain, key }) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| certificate.refuse(format!("cannot be used with its key: {error}")))?,
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Begins TLS over `stream` with `host`, whose certificate has to be valid for it as far as `config` verifies certificates.
///
/// # Errors
/// When the handshake fails; [`explain`] says why.
pub async fn shake_hands<Stream: AsyncRead + AsyncWrite + Unpin>(
    config: &Arc<ClientConfig>,
    host: &Host,
    stream: Stream,
) -> io::Result<TlsStream<Stream>> {
    let name = match host {
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
        Host::Address(address) => ServerName::from(*address),
    };
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}

/// Describes the error that ended a handshake, or a connection before its first answer, and what helps.
pub fn explain(error: &io::Error) -> String {
    let Some(inner) = inner(error) else { return error.to_string() };
    let words = inner.to_string();
    let not_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    let wants_certificate = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
    if *inner == not_tls {
        "this port does not speak TLS".to_owned()
    } else if *inner == wants_certificate {
        "the server demands a client certificate (alert certificate_required)".to_owned()
    } else if words.contains("CaUsedAsEndEntity") {
        // The verifier's own word; its library has it behind a general type.
        "this certificate is a CA's own: the server needs one for its name that the CA has signed"
            .to_owned()
    } else {
        words
    }
}

/// True if `error`, of a handshake, is about TLS itself; otherwise the connection failed.
pub fn is_of_tls(error: &io::Error) -> bool {
    inner(error).is_some()
}

/// The alert by which a server refuses the handshake: it has not read, and never will, what was sent behind it.
/// With TLS 1.3 a client has sent its request by the time it hears that its certificate is not accepted.
pub fn refusal<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    // What the stream failed with is wrapped by the library of HTTP.
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut of_io = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    of_io.find(|error| {
        matches!(inner(error), Some(rustls::Error::AlertReceived(alert)) if is_of_handshake(*alert))
    })
}

fn inner(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// True if a server sends `alert` in answer to a handshake only, and not at any time.
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

/// A client that accepts any certificate. For opportunistic encryption only, where the alternative is none (RFC 7435): it keeps
/// out eavesdroppers, and no active attacker.
///
/// # Errors
/// When the library lacks what it needs.
pub fn client_without_verification() -> Result<Arc<ClientConfig>, SettingError> {
    let provider = provider();
    let verifier = AnyCertificate(provider.signature_verification_algorithms);
    let builder =
        builder(provider)?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// Verifies that the server has the key of the certificate that it shows, and nothing else.
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
        // Verified all the same: otherwise any machine in between could show the server's certificate without its key.
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

/// Describes what is wrong with a PEM text, without quoting the line: all of a key may stand on it.
pub fn explain_pem(error: &pem::Error) -> String {
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

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, SettingError> {
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .map_err(|error| SettingError::Setting { setting: "tls", message: error.to_string() })
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), SettingError> {
    let refuse = |message: String| SettingText::File(path).refuse(message);
    let mut found = 0;
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    // A file that the settings name has to be right as a whole: what is left out would show only in a handshake.
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
        let error = client(Some(Path::new("Cargo.toml")), &[], None).unwrap_err();
        assert!(error.to_string().starts_with("Cargo.toml: holds no certificate"), "{error}");
        let error = client(Some(Path::new("/nowhere.pem")), &[], None).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere.pem: cannot be read"), "{error}");
    }
}
