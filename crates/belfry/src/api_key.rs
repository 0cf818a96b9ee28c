//! `belfry api-key`: makes a key, prints it once, and prints what the configuration keeps of it.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::anyhow;
use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::cli::ApiKeyArgs;
use crate::output;

/// More than anybody can guess: 256 bits.
const KEY_BYTES: usize = 32;

/// Prints the key and its table. The key goes to standard output and nowhere else.
pub(crate) fn run(args: &ApiKeyArgs) -> anyhow::Result<ExitCode> {
    let mut random = [0; KEY_BYTES];
    rand::fill(&mut random).map_err(|_| anyhow!("the system has no random numbers"))?;
    // The prefix lets scanners of leaked secrets know whose it is.
    let key = format!("belfry_{}", URL_SAFE_NO_PAD.encode(random));
    output::print(&format!(
        "# The key, for the caller. It is kept nowhere and cannot be shown again.\n\
         # BELFRY_API_KEY={key}\n\
         # For the configuration of the engine:\n\
         [[server.keys]]\n\
         name = \"{}\"\n\
         tenant = \"{}\"\n\
         sha256 = \"{}\"\n",
        args.name,
        args.tenant,
        sha256_hex(&key)?
    ))
}

/// The SHA-256 of `key`, 64 hexadecimal digits.
pub(crate) fn sha256_hex(key: &str) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for byte in digest::digest(&digest::SHA256, key.as_bytes()).as_ref() {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}
