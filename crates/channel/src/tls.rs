//! TLS as all channels use it: aws-lc-rs, the machine's own roots, and one more if the settings name it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ChannelError;
use crate::endpoint::Host;

/// A certificate of ours, with its key.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Where it was read.
    path: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

// === impl Identity ===

impl Identity {
    /// Reads a certificate with its chain, and its key; both PEM.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, ChannelError> {
        let refuse = |path: &Path, message: String| ChannelError::File {
            path: path.display().to_string(),
            message,
        };
        let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| refuse(certificate, format!("cannot be read: {error}")))?;
        if chain.is_empty() {
            return Err(refuse(certificate, "holds no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| refuse(key, format!("the key cannot be read: {error}")))?;
        Ok(Self { path: certificate.display().to_string(), chain, key })
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
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .map_err(|error| ChannelError::Setting { setting: "tls", message: error.to_string() })?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { path, chain, key }) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| ChannelError::File {
                path,
                message: format!("cannot be used with its key: {error}"),
            })?
        }
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
