//! Recipients and contents of a run. Recipients carry their number, so that the journal can be counted without a list.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// The guarantee, by the number of the recipient's workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadGuarantee {
    /// Lost never, repeated only if in flight.
    AtLeastOnce,
    /// Repeated never.
    AtMostOnce,
}

/// Device tokens `0..tokens` and webhook payloads.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Number of device tokens.
    pub tokens: u64,
    /// One notification each.
    pub webhooks: Vec<WebhookPayload>,
}

/// A payload for an endpoint of its own.
#[derive(Debug, Clone)]
pub struct WebhookPayload {
    /// The endpoint's path at the simulator, unique within the workload.
    pub path: String,
    /// The payload (JSON).
    pub payload: String,
}

/// One event of the package.
#[derive(Debug, Deserialize)]
struct WebhookEvent {
    name: String,
    examples: Vec<serde_json::Value>,
}

/// The digits of a token that say its number.
const NUMBER_DIGITS: usize = 16;

// === impl WorkloadGuarantee ===

impl WorkloadGuarantee {
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
    /// Reads the examples of an `index.json` of the npm package `@octokit/webhooks-examples`, each as one
    /// webhook: a list of events, each with a name and examples.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no example at all.
    pub fn webhooks_from(index: &Path) -> Result<Vec<WebhookPayload>> {
        let file = std::fs::read(index).with_context(|| index.display().to_string())?;
        let events: Vec<WebhookEvent> =
            serde_json::from_slice(&file).with_context(|| index.display().to_string())?;
        let webhooks: Vec<WebhookPayload> =
            events.iter().flat_map(WebhookEvent::webhooks).collect();
        anyhow::ensure!(!webhooks.is_empty(), "{} holds no example", index.display());
        Ok(webhooks)
    }
}

// === impl WebhookEvent ===

impl WebhookEvent {
    fn webhooks(&self) -> impl Iterator<Item = WebhookPayload> {
        self.examples.iter().enumerate().map(|(number, example)| WebhookPayload {
            path: format!("/github/{}/{number}", self.name),
            payload: example.to_string(),
        })
    }
}

/// The device token with this number: 64 hex digits that look like any other.
pub fn token(number: u64) -> String {
    let mut text = String::with_capacity(4 * NUMBER_DIGITS);
    push_hex(&mut text, number);
    let mut state = number;
    for _ in 0..3 {
        // SplitMix64: spreads numbers over the token as a provider's own tokens are spread.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        push_hex(&mut text, mixed ^ (mixed >> 31));
    }
    text
}

/// Appends the sixteen digits of `value`.
fn push_hex(text: &mut String, value: u64) {
    let nibbles = value.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    text.extend(nibbles.filter_map(|nibble| char::from_digit(u32::from(nibble), 16)));
}

/// The number of a token made by [`token`].
pub fn number_of(token: &str) -> Option<u64> {
    u64::from_str_radix(token.get(..NUMBER_DIGITS)?, 16).ok()
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
