//! Who is told what. Recipients carry their number, so that the journal can be counted without a list.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// What a crash may cost, by the number of the recipient's workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// Lost never, repeated only if in flight.
    AtLeastOnce,
    /// Repeated never.
    AtMostOnce,
}

/// Device tokens `0..tokens` and webhook payloads.
#[derive(Debug, Clone)]
pub struct Workload {
    /// How many device tokens.
    pub tokens: u64,
    /// One notification each.
    pub webhooks: Vec<Webhook>,
}

/// A payload for an endpoint of its own.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The endpoint's path at the simulator, unique within the workload.
    pub path: String,
    /// The payload (JSON).
    pub payload: String,
}

/// The digits of a token that say its number.
const NUMBER_DIGITS: usize = 16;

// === impl Guarantee ===

impl Guarantee {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AtLeastOnce => "at_least_once",
            Self::AtMostOnce => "at_most_once",
        }
    }
}

// === impl Workload ===

impl Workload {
    /// Reads every `*.payload.json` below `directory` as one webhook.
    ///
    /// # Errors
    /// When the directory or a file cannot be read, or holds no payload at all.
    pub fn webhooks_from(directory: &Path) -> Result<Vec<Webhook>> {
        let mut files = Vec::new();
        collect(directory, &mut files)?;
        files.sort();
        anyhow::ensure!(!files.is_empty(), "no *.payload.json below {}", directory.display());
        let read = |(number, file): (usize, &PathBuf)| {
            let name =
                file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            let payload =
                std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            let payload: serde_json::Value =
                serde_json::from_str(&payload).with_context(|| file.display().to_string())?;
            Ok(Webhook { path: format!("/github/{name}/{number}"), payload: payload.to_string() })
        };
        files.iter().enumerate().map(read).collect()
    }
}

/// The device token with this number: 64 hex digits that look like any other.
pub fn token(number: u64) -> String {
    let mut text = format!("{number:0NUMBER_DIGITS$x}");
    let mut state = number;
    for _ in 0..3 {
        // SplitMix64: spreads numbers over the token as a provider's own tokens are spread.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let _infallible = write!(text, "{:016x}", mixed ^ (mixed >> 31));
    }
    text
}

/// The number of a token made by [`token`].
pub fn number_of(token: &str) -> Option<u64> {
    u64::from_str_radix(token.get(..NUMBER_DIGITS)?, 16).ok()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.to_string_lossy().ends_with("payload.json") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_its_number() {
        for number in [0, 1, 999_999, u64::MAX] {
            assert_eq!(token(number).len(), 64);
            assert_eq!(number_of(&token(number)), Some(number));
        }
        assert_eq!(number_of("short"), None);
    }
}
