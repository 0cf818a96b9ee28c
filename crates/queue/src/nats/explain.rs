//! Explanations of what NATS says to a queue of tickets.

use async_nats::jetstream::ErrorCode;
use stream::connect::{NatsAddress, is_denial};

use super::topology::NatsError;
use crate::broker::error::BrokerError;

/// Explanation of `error`, with the remedy; `last_error` is the server's last one.
pub(super) fn explain(
    address: &NatsAddress,
    error: &NatsError,
    last_error: Option<&str>,
) -> BrokerError {
    if let Some(last_error) = last_error.filter(|text| is_denial(text)) {
        return BrokerError(format!(
            "NATS at {address} denies a right ({last_error}): let the user publish to $JS.API.>, $JS.ACK.> and the \
             subjects that begin with the prefix, and subscribe to _INBOX.>"
        ));
    }
    BrokerError(match error {
        NatsError::JetStream(ErrorCode::JETSTREAM_NOT_ENABLED, _) | NatsError::NoJetStream => {
            format!(
                "NATS at {address} runs without JetStream: start it with -js or a jetstream block in its configuration"
            )
        }
        NatsError::JetStream(ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT, _) => {
            format!(
                "NATS at {address} has no JetStream for this account: enable it in the account's configuration"
            )
        }
        NatsError::JetStream(_code, text) => {
            format!("NATS at {address} refused something ({text})")
        }
        NatsError::Lost => return BrokerError(address.explain_loss().to_string()),
        NatsError::Other(text) => {
            format!("NATS at {address} did not do what it was asked ({text})")
        }
        NatsError::Mismatch(text) => format!(
            "NATS at {address} has a stream or consumer of that name that cannot carry tickets ({text}): delete it, \
             tickets in it are issued anew; or choose another prefix"
        ),
    })
}
