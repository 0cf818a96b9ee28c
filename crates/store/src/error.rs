//! The errors of a store.

/// Failure of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The idempotency key of the draft at `index` was used for something else; nothing was stored.
    #[error("the idempotency key of item {index} was used before with other content")]
    KeyReused {
        /// Position in the request.
        index: usize,
    },
    /// The draft at `index` came too late, and its idempotency key was not used before; nothing was stored.
    #[error("item {index} came too late, and its idempotency key was not used before")]
    BoundPassed {
        /// Position in the request.
        index: usize,
        /// The bound that had passed.
        bound: notification::PassedBound,
        /// The time of the request.
        now: notification::Timestamp,
    },
    /// There is no such broadcast, or it is sealed or abandoned already.
    #[error("there is no open broadcast {0}")]
    NoOpenBroadcast(notification::BroadcastId),
    /// The database refuses a value of the request: nothing of it was stored, and the store goes on.
    #[error("the database refuses a value of the request, and nothing of it was stored: {0}")]
    Invalid(String),
    /// The request came to nothing in the database, by no fault of its values; nothing of it was stored, and the store goes on.
    #[error("the request failed in the database, and nothing of it was stored: {0}")]
    Undone(String),
    /// The store is owned by another process.
    #[error("{0}")]
    InUse(String),
    /// The store was written by a newer or a damaged version.
    #[error("{0}")]
    Schema(String),
    /// The database could not be reached, or other transactions were in the way, for so long that the request was given up; it certainly did
    /// nothing.
    #[error("the store is not available, and nothing was stored: {0}")]
    Unavailable(String),
    /// As many questions of the tenant wait as may: this one was not asked, and those of other tenants are answered.
    #[error("too many questions of this tenant wait for an answer")]
    TenantReads,
    /// As many questions of all tenants together wait as may: this one was not asked.
    #[error("too many questions wait for an answer")]
    TenantsReads,
    /// The disk is nearly full: nothing was stored, and earlier notifications are delivered meanwhile.
    #[error("{0}")]
    NoSpace(String),
    /// The database refuses the login, or cannot be used as it is.
    #[error("{0}")]
    Refused(String),
    /// A row cannot be read back.
    #[error("damaged: {0}")]
    Damaged(String),
    /// A write, sync or read failed, or one failed before: nothing more is accepted, restart to recover.
    #[error("the store failed and takes no more work until a restart: {0}")]
    Broken(String),
}

/// The kind of an error, which says how a caller goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong.
    Request,
    /// Temporary: the request may succeed later.
    Unavailable,
    /// The request came to nothing, and others do not: the store goes on.
    Failed,
    /// The process cannot go on with this store.
    Fatal,
}

// === impl StoreError ===

impl StoreError {
    /// The error as that of a request without which the process cannot go on.
    #[cfg(feature = "postgres")]
    pub(crate) fn ending(self) -> Self {
        if matches!(self, Self::Invalid(_) | Self::Undone(_)) {
            return Self::Broken(self.to_string());
        }
        self
    }

    /// The kind of an error, which says how a caller goes on.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::KeyReused { .. }
            | Self::BoundPassed { .. }
            | Self::NoOpenBroadcast(_)
            | Self::Invalid(_) => ErrorKind::Request,
            Self::Undone(_) => ErrorKind::Failed,
            Self::Unavailable(_) | Self::TenantReads | Self::TenantsReads | Self::NoSpace(_) => {
                ErrorKind::Unavailable
            }
            Self::InUse(_)
            | Self::Refused(_)
            | Self::Schema(_)
            | Self::Damaged(_)
            | Self::Broken(_) => ErrorKind::Fatal,
        }
    }
}
