//! A certificate authority of our own and one server certificate, made once and kept.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::BufReader;
use tokio::net::TcpStream;

use crate::Error;

/// The transport of a connection.
pub(crate) type TlsStream = tokio_rustls::server::TlsStream<BufReader<TcpStream>>;

const CA_FILE: &str = "ca.pem";
const LEAF_FILE: &str = "leaf.pem";
const LEAF_KEY_FILE: &str = "leaf-key.pem";

/// Where clients find the certificate to trust.
pub(crate) fn ca_path(directory: &Path) -> PathBuf {
    directory.join(CA_FILE)
}

/// The TLS side of a listener offering `protocols` by ALPN, best first.
pub(crate) fn server_config(
    directory: &Path,
    protocols: &[&str],
) -> Result<Arc<ServerConfig>, Error> {
    let failed = |reason: String| Error::Certificates { path: directory.to_owned(), reason };
    let files = [CA_FILE, LEAF_FILE, LEAF_KEY_FILE].map(|name| directory.join(name));
    // All anew if one is missing: the authority's key is not kept, so nothing can be signed for the others.
    if !files.iter().all(|file| file.exists()) {
        create(directory).map_err(failed)?;
    }
    let chain = CertificateDer::pem_file_iter(directory.join(LEAF_FILE))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(directory.join(LEAF_KEY_FILE))
        .map_err(|error| failed(error.to_string()))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| failed(error.to_string()))?;
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

/// Writes all three files, what clients wait for last. The authority's key is not kept: nothing
/// else must ever be signed by what test machines trust.
fn create(directory: &Path) -> Result<(), String> {
    let (ca, leaf, leaf_key) = generate().map_err(|error| error.to_string())?;
    let write = || {
        fs::create_dir_all(directory)?;
        let mut key_options = fs::OpenOptions::new();
        key_options.write(true).create(true).truncate(true).mode(0o600);
        key_options.open(directory.join(LEAF_KEY_FILE))?.write_all(leaf_key.as_bytes())?;
        fs::write(directory.join(LEAF_FILE), leaf)?;
        fs::write(directory.join(CA_FILE), ca)
    };
    write().map_err(|error: std::io::Error| error.to_string())
}

/// The authority's certificate, the leaf, and the leaf's key, all PEM.
fn generate() -> Result<(String, String, String), rcgen::Error> {
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "Belfry provider-sim authority");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;

    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()])?;
    leaf.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    leaf.distinguished_name.push(DnType::CommonName, "Belfry provider-sim");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let leaf_key = KeyPair::generate()?;
    let leaf_certificate = leaf.signed_by(&leaf_key, &Issuer::new(ca, &ca_key))?;
    Ok((ca_certificate.pem(), leaf_certificate.pem(), leaf_key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_made_once_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        server_config(directory.path(), &["h2"]).unwrap();
        let first = fs::read(ca_path(directory.path())).unwrap();
        server_config(directory.path(), &["h2"]).unwrap();
        assert_eq!(first, fs::read(ca_path(directory.path())).unwrap());
    }

    #[test]
    fn a_damaged_certificate_is_named() {
        let directory = tempfile::tempdir().unwrap();
        server_config(directory.path(), &["h2"]).unwrap();
        fs::write(directory.path().join(LEAF_KEY_FILE), "not a key").unwrap();
        let error = server_config(directory.path(), &["h2"]).unwrap_err();
        assert!(matches!(error, Error::Certificates { .. }), "{error}");
    }
}
