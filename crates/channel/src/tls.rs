//! TLS as all channels use it: aws-lc-rs, the machine's own roots, and one more if the settings name it.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::ChannelError;

/// A client that trusts the machine's roots and those of `ca_file`, and offers `protocols` by ALPN.
///
/// A machine without roots is an error unless `ca_file` brings some: every connection would fail.
pub(crate) fn client(
    ca_file: Option<&Path>,
    protocols: &[&[u8]],
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
    let mut config = builder(provider())?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
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
