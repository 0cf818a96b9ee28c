//! The error of a broker.

/// Reason for a missing or lost link or a refused ticket, in words for the operator: the defect and the remedy. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BrokerError(pub String);
