//! The one service account of the simulator, made at the first start and kept.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256};
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use serde_json::Value;

use crate::Error;

const ACCOUNT_FILE: &str = "fcm-service-account.json";

/// Where clients find the account.
pub(crate) fn account_path(directory: &Path) -> PathBuf {
    directory.join(ACCOUNT_FILE)
}

/// The key that the account's assertions are signed for. Makes the account if there is none in `directory`.
pub(super) fn public_key(directory: &Path) -> Result<ParsedPublicKey, Error> {
    let path = account_path(directory);
    let failed = |reason: String| Error::Account { path: path.clone(), reason };
    if !path.exists() {
        create(directory, &path).map_err(failed)?;
    }
    let read = || {
        let json: Value =
            serde_json::from_slice(&fs::read(&path).map_err(|error| error.to_string())?)
                .map_err(|error| error.to_string())?;
        let pem = json.get("private_key").and_then(Value::as_str).ok_or("it has no private_key")?;
        let key = KeyPair::from_pem(pem).map_err(|error| error.to_string())?;
        ParsedPublicKey::new(
            &RSA_PKCS1_2048_8192_SHA256,
            rcgen::PublicKeyData::subject_public_key_info(&key),
        )
        .map_err(|_| "its private_key is not an RSA key".to_owned())
    };
    read().map_err(|reason: String| Error::Account { path: path.clone(), reason })
}

fn create(directory: &Path, path: &Path) -> Result<(), String> {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)
        .map_err(|error| error.to_string())?;
    let account = serde_json::json!({
        "type": "service_account",
        "project_id": "provider-sim",
        "private_key_id": "0123456789abcdef0123456789abcdef01234567",
        "private_key": key.serialize_pem(),
        "client_email": "push@provider-sim.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    });
    let write = || {
        fs::create_dir_all(directory)?;
        let mut options = fs::OpenOptions::new();
        // As a real account's, the key is for its owner alone.
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path)?.write_all(account.to_string().as_bytes())
    };
    write().map_err(|error: std::io::Error| error.to_string())
}
