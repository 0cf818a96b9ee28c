//! What went wrong, and what can be done about it.

use tokio_postgres::error::SqlState;

use crate::StoreError;

/// What to do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The connection is of no more use: make another, and do it again.
    Reconnect,
    /// Somebody else was in the way: do it again.
    Repeat,
    /// Neither would help.
    GiveUp,
}

/// What to do after `error`.
pub(super) fn remedy(error: &tokio_postgres::Error) -> Remedy {
    let Some(code) = error.code() else { return Remedy::Reconnect };
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::LOCK_NOT_AVAILABLE
        | SqlState::UNIQUE_VIOLATION
        | SqlState::QUERY_CANCELED => Remedy::Repeat,
        SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS
        | SqlState::READ_ONLY_SQL_TRANSACTION
        | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        | SqlState::DISK_FULL
        | SqlState::OUT_OF_MEMORY => Remedy::Reconnect,
        ref other if other.code().starts_with("08") => Remedy::Reconnect,
        _ => Remedy::GiveUp,
    }
}

/// An error in one line, with its causes.
pub(super) fn in_words(error: &tokio_postgres::Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

/// The address cannot be read. It may hold a password, so it is not repeated.
pub(super) fn bad_url(error: &tokio_postgres::Error) -> StoreError {
    StoreError::Refused(format!(
        "{}: write the address of the database as postgres://user:password@host:port/database",
        in_words(error)
    ))
}

/// Of a question, which stores nothing. Writers look at the [`remedy`] themselves.
impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        match remedy(&error) {
            Remedy::Reconnect | Remedy::Repeat => Self::Unavailable(in_words(&error)),
            Remedy::GiveUp => Self::Broken(in_words(&error)),
        }
    }
}
