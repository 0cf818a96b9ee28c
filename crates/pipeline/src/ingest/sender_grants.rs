//! Grants of senders: the addresses that a caller's mail may be from, and the endpoints that its webhooks may go to.

use std::collections::BTreeSet;

use channel::Channel;
pub use channel::{EndpointPrefix, FromPattern};

use super::InvalidField;

/// The senders that a caller is granted. Each bounds the channels alone that have such senders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SenderGrants {
    /// Addresses in `From` of mail; `None` is all of them.
    pub from: Option<BTreeSet<FromPattern>>,
    /// Endpoints of webhooks; `None` is all of them.
    pub endpoints: Option<BTreeSet<EndpointPrefix>>,
}

// === impl SenderGrants ===

impl SenderGrants {
    /// True if every sender is granted.
    pub const fn are_all(&self) -> bool {
        self.from.is_none() && self.endpoints.is_none()
    }

    /// Checks a payload that `channel` has accepted.
    ///
    /// # Errors
    /// Its sender is not granted.
    pub(super) fn check_payload(
        &self,
        channel: &dyn Channel,
        payload: &[u8],
    ) -> Result<(), InvalidField> {
        let Some(granted) = &self.from else { return Ok(()) };
        match channel.sender_address(payload) {
            Some(address) if !granted.iter().any(|pattern| pattern.covers(&address)) => {
                Err(InvalidField::not_granted("/content/from", address, granted))
            }
            _ => Ok(()),
        }
    }

    /// Checks a recipient that `channel` has accepted.
    ///
    /// # Errors
    /// Its endpoint is not granted.
    pub(super) fn check_recipient(
        &self,
        channel: &dyn Channel,
        recipient: &str,
    ) -> Result<(), InvalidField> {
        let Some(granted) = &self.endpoints else { return Ok(()) };
        match channel.endpoint_of(recipient) {
            Some(endpoint) if !granted.iter().any(|prefix| prefix.covers(&endpoint)) => {
                Err(InvalidField::not_granted("/to", recipient, granted))
            }
            _ => Ok(()),
        }
    }
}
