//! TLS of a server: aws-lc-rs, TLS 1.3 and 1.2, a certificate from files, and certificates of callers if they are asked for.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::setting::SettingError;
use crate::tls::{explain_pem, provider, validity};

/// The files that TLS of a server is made from, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsFiles {
    /// The certificate, and behind it those that lead to its authority (`certificate_file`).
    pub certificate: PathBuf,
    /// Its key (`key_file`).
    pub key: PathBuf,
    /// The authorities of callers' certificates (`client_ca_file`), if these are asked for.
    pub client_ca: Option<PathBuf>,
    /// True if callers without a certificate are let in beside those that have one.
    pub client_is_optional: bool,
}

/// The content of [`ServerTlsFiles`]. `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerTlsTexts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// TLS of a server, ready for use.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// For the acceptor of connections.
    pub config: Arc<ServerConfig>,
    /// The certificate is good from this second of Unix time on.
    pub not_before: i64,
    /// And until this one.
    pub not_after: i64,
}

/// The protocols that ALPN offers, the most wanted first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

// === impl ServerTlsFiles ===

impl ServerTlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// The first one that cannot be read, as its setting.
    pub fn read(&self) -> Result<ServerTlsTexts, SettingError> {
        let read = |setting: &'static str, path: &Path| {
            std::fs::read(path)
                .map_err(|error| refuse(setting, path, &format!("cannot be read: {error}")))
        };
        Ok(ServerTlsTexts {
            certificate: read("certificate_file", &self.certificate)?,
            key: read("key_file", &self.key)?,
            client_ca: self
                .client_ca
                .as_deref()
                .map(|path| read("client_ca_file", path))
                .transpose()?,
        })
    }

    /// TLS made from `texts`, which were read from these files.
    ///
    /// # Errors
    /// The first file that cannot be used, as its setting.
    pub fn build(&self, texts: &ServerTlsTexts) -> Result<ServerTls, SettingError> {
        let chain = certificates("certificate_file", &self.certificate, &texts.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&texts.key).map_err(|error| {
            refuse("key_file", &self.key, &format!("holds no key: {}", explain_pem(&error)))
        })?;
        let refuse_certificate =
            |message: &str| refuse("certificate_file", &self.certificate, message);
        let (not_before, not_after) = chain.first().and_then(validity).ok_or_else(|| {
            refuse_certificate("holds a certificate that cannot be read: it is no X.509")
        })?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .map_err(|error| refuse_certificate(&error.to_string()))?;
        let builder = match self.verifier(texts)? {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|error| self.explain(&error))?;
        config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(ServerTls { config: Arc::new(config), not_before, not_after })
    }

    fn verifier(
        &self,
        texts: &ServerTlsTexts,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, SettingError> {
        let (Some(path), Some(text)) = (&self.client_ca, &texts.client_ca) else { return Ok(None) };
        let refuse = |message: String| refuse("client_ca_file", path, &message);
        let mut roots = RootCertStore::empty();
        for certificate in certificates("client_ca_file", path, text)? {
            roots.add(certificate).map_err(|error| {
                refuse(format!("holds a certificate that cannot be used: {error}"))
            })?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let builder =
            if self.client_is_optional { builder.allow_unauthenticated() } else { builder };
        builder.build().map(Some).map_err(|error| refuse(format!("cannot be used: {error}")))
    }

    fn explain(&self, error: &rustls::Error) -> SettingError {
        let message = if matches!(error, rustls::Error::InconsistentKeys(_)) {
            format!(
                "the key is not that of the first certificate in {}: name the two that were made together, the certificate \
                 itself in front of those of its authorities",
                self.certificate.display()
            )
        } else {
            format!("cannot be used: {error}")
        };
        refuse("key_file", &self.key, &message)
    }
}

/// All certificates of a file; at least one.
fn certificates(
    setting: &'static str,
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, SettingError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let chain = chain.map_err(|error| {
        refuse(setting, path, &format!("is not valid PEM: {}", explain_pem(&error)))
    })?;
    if chain.is_empty() {
        return Err(refuse(setting, path, "holds no certificate: a PEM file is needed"));
    }
    Ok(chain)
}

fn refuse(setting: &'static str, path: &Path, message: &str) -> SettingError {
    SettingError::Setting { setting, message: format!("{}: {message}", path.display()) }
}

// === impl ServerTlsTexts ===

impl fmt::Debug for ServerTlsTexts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ServerTlsTexts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn with(files: &[(&str, &str)]) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            for (name, text) in files {
                std::fs::write(folder.0.path().join(name), text).unwrap();
            }
            folder
        }

        fn build(&self, key: &str, client_ca: Option<&str>) -> Result<ServerTls, String> {
            let place = |name: &str| self.0.path().join(name);
            let files = ServerTlsFiles {
                certificate: place("certificate.pem"),
                key: place(key),
                client_ca: client_ca.map(place),
                client_is_optional: false,
            };
            let built = files.read().and_then(|texts| files.build(&texts));
            built.map_err(|error| error.to_string())
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_by_its_setting() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let folder = Folder::with(&[
            ("certificate.pem", &certificate),
            ("key.pem", &key),
            ("other.pem", &other),
            ("empty.pem", ""),
        ]);
        let tls = folder.build("key.pem", Some("certificate.pem")).unwrap();
        assert!(tls.not_before < tls.not_after);
        assert_eq!(tls.config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        let check = |built: Result<ServerTls, String>, setting: &str, expect: &str| {
            let refused = built.unwrap_err();
            assert!(refused.starts_with(setting) && refused.contains(expect), "{refused}");
        };
        check(folder.build("nowhere.pem", None), "key_file: ", "cannot be read");
        check(folder.build("empty.pem", None), "key_file: ", "holds no key");
        check(
            folder.build("other.pem", None),
            "key_file: ",
            "is not that of the first certificate",
        );
        check(folder.build("key.pem", Some("key.pem")), "client_ca_file: ", "holds no certificate");
        check(Folder::with(&[]).build("key.pem", None), "certificate_file: ", "cannot be read");
    }
}
