//! Why a broker did not do what it was asked.

/// Why there is no link, or none any more, or why a ticket was not taken, in words for the operator: what is wrong, and
/// what to do. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BrokerError(pub String);
