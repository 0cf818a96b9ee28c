//! The errors of ingest.

use std::time::Duration;

use store::StoreError;

use super::invalid_field::InvalidField;

/// Something of which each tenant has a share while it hands notifications in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngestShare {
    /// Bytes of requests: [`INGEST_TENANT_BYTES`](notification::limits::INGEST_TENANT_BYTES).
    Bytes,
    /// Pieces of rendering that wait: [`RENDER_WAITING_OF_TENANT`](super::limits::RENDER_WAITING_OF_TENANT).
    Rendering,
}

/// Reason for which ingest accepted nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// An invalid field of the request.
    #[error("{0}")]
    Invalid(#[from] InvalidField),
    /// The tenant has too much under way at the moment.
    #[error(
        "too much of this tenant is being taken in: try again in {} s, with fewer requests at a time",
        retry_after.as_secs()
    )]
    TenantOverloaded {
        /// The exhausted share.
        share: IngestShare,
        /// Time after which a caller should try again.
        retry_after: Duration,
    },
    /// Too much is being taken in at the moment, of all tenants together.
    #[error("too much is being taken in: try again in {} s", retry_after.as_secs())]
    Overloaded {
        /// Time after which a caller should try again.
        retry_after: Duration,
    },
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
