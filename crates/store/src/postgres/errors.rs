//! Errors of the database: which of them are repeated, which refuse one request, which end the store, and how they are told.
//!
//! What the data of one request leads to refuses that request alone: the group that it was in is divided until it is found, and
//! the others are committed. Who asked says what follows. A caller is answered, and the engine goes on. Reaping, slices of
//! broadcasts, feeds and the outbox are tried again with the next beat or look; a mark that cannot be written hands the
//! deliveries back, since nothing was sent. Two kinds of request end the process, once everything beside them is done: a
//! settlement, because its outcomes are known here alone, and to go on without them would send again and again what was
//! sent; and a claim, because what it meets is stored, and an engine that accepts and delivers nothing must not look well.

use std::iter::successors;
use std::{error, io};

use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Error};

use crate::StoreError;

/// The way in which a writer goes on after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorRemedy {
    /// The connection, or the server behind it, is of no use now: connect anew, and do it again.
    Lost,
    /// Another transaction was in the way: do it again.
    Again,
    /// A key that another transaction was the first to use, which the next look finds: do it again. One that stays is of a
    /// constraint that is not ours.
    Duplicate,
    /// The server writes nothing, for its disk is full or its transaction numbers are spent: what comes in is refused, and what is
    /// under way is done again once it writes.
    Full,
    /// A value of one request is refused: so is that request, and no other.
    Invalid,
    /// One request cannot be carried out, and the fault is not in its values: others can be.
    Undone,
    /// None of that would help.
    Fatal,
}

// === impl ErrorRemedy ===

impl ErrorRemedy {
    /// The way in which a writer goes on after `error`.
    pub(super) fn of(error: &Error) -> Self {
        match error.as_db_error() {
            Some(told) if is_out_of_numbers(told.code(), told.routine()) => Self::Full,
            Some(told) => Self::of_code(told.code()),
            None => Self::without_code(error),
        }
    }

    /// True if the same may succeed when it is done again.
    pub(super) const fn passes(self) -> bool {
        matches!(self, Self::Lost | Self::Again | Self::Duplicate | Self::Full)
    }

    /// States of the server, see <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
    fn of_code(code: &SqlState) -> Self {
        match *code {
            // Among them the limits of the session itself.
            SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::QUERY_CANCELED => Self::Again,
            SqlState::UNIQUE_VIOLATION => Self::Duplicate,
            SqlState::DISK_FULL => Self::Full,
            // The last is what a value too long for an index is told by.
            SqlState::CHECK_VIOLATION | SqlState::PROGRAM_LIMIT_EXCEEDED => Self::Invalid,
            // After a failover the address may still lead to a standby.
            SqlState::READ_ONLY_SQL_TRANSACTION
            | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            | SqlState::IO_ERROR => Self::Lost,
            // No value of a request can help it.
            SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED => Self::Fatal,
            _ => match code.code().get(..2) {
                // Connections, resources that ran out, and operators who shut it down.
                Some("08" | "53" | "57") => Self::Lost,
                Some("22") => Self::Invalid,
                // Rows that a statement met more than once, constraints, and exceptions that triggers raise.
                Some("21" | "23" | "44" | "54" | "P0") => Self::Undone,
                _ => Self::Fatal,
            },
        }
    }

    fn without_code(error: &Error) -> Self {
        // The library has no question for its own time-outs: they are known by their words.
        let is_of_link = error.is_closed()
            || io_error(error).is_some()
            || error.to_string() == silence().to_string();
        if is_of_link { Self::Lost } else { Self::Fatal }
    }
}

/// True if the server has no number left for a transaction, or for a row that several lock, until it is vacuumed. It tells that with
/// the code of values that are too large, and in the language of its messages: the function that gave the error tells them
/// apart (`GetNewTransactionId` in varsup.c, `GetNewMultiXactId` in multixact.c).
/// <https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND>
fn is_out_of_numbers(code: &SqlState, routine: Option<&str>) -> bool {
    *code == SqlState::PROGRAM_LIMIT_EXCEEDED
        && matches!(routine, Some("GetNewTransactionId" | "GetNewMultiXactId"))
}

/// True if a transaction was refused because there was no room for its notifications. Other limits of a statement have
/// the same code: ask only after a statement or a commit that notifies.
pub(super) fn is_notify_queue_full(error: &Error) -> bool {
    error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED)
}

/// The answer to the one request that `kind` is the error of, in the database's words.
pub(super) fn refusal(kind: ErrorRemedy, told: String) -> StoreError {
    match kind {
        ErrorRemedy::Invalid => StoreError::Invalid(told),
        // The lock that is in the way may be gone when the caller asks again.
        ErrorRemedy::Again => StoreError::Unavailable(told),
        ErrorRemedy::Lost
        | ErrorRemedy::Duplicate
        | ErrorRemedy::Full
        | ErrorRemedy::Undone
        | ErrorRemedy::Fatal => StoreError::Undone(told),
    }
}

/// The refusal of new work while the server writes nothing.
pub(super) fn no_space(told: &str) -> StoreError {
    StoreError::NoSpace(format!(
        "the database takes no writes ({told}): nothing was stored, and what was stored before is delivered as far as it \
         can be; free some space there, or vacuum it, as it says"
    ))
}

/// A server that says nothing any more, in the words of the library, which makes such an error for itself only.
pub(super) fn silence() -> Error {
    Error::__private_api_timeout()
}

/// Says why a store cannot be opened, and what to do. It names no password.
pub(super) fn at_start(error: &Error, config: &Config) -> StoreError {
    let (user, place) = (config.get_user().unwrap_or("?"), place(config));
    // An address without a database means the one that is named like the role.
    let database = config.get_dbname().unwrap_or(user);
    let told = in_words(error);
    let advice = match error.code() {
        Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            format!(
                "PostgreSQL at {place} does not let the role {user} in: check the role, its password, and pg_hba.conf"
            )
        }
        Some(&SqlState::INVALID_CATALOG_NAME) => format!(
            "there is no database {database} at {place}: create it (CREATE DATABASE {database} OWNER {user}), or name \
             another one"
        ),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => format!(
            "the role {user} may not connect to the database {database}: \
             GRANT CONNECT ON DATABASE {database} TO {user}"
        ),
        Some(&SqlState::TOO_MANY_CONNECTIONS) => format!(
            "PostgreSQL at {place} takes no more connections: raise max_connections, or close some"
        ),
        Some(&SqlState::CANNOT_CONNECT_NOW) => {
            format!("PostgreSQL at {place} is starting or stopping: try again in a moment")
        }
        Some(_) => format!("PostgreSQL at {place} refuses"),
        None => match io_error(error).map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => {
                format!(
                    "nothing listens at {place}: start PostgreSQL there, or correct the address"
                )
            }
            // What the library says of a server that may not be written to.
            Some(io::ErrorKind::PermissionDenied) => format!(
                "PostgreSQL at {place} is a standby, or read-only: name the primary, or all of them (host1,host2)"
            ),
            Some(_) => format!(
                "PostgreSQL at {place} cannot be reached: check the address and the network"
            ),
            None => format!("PostgreSQL at {place} cannot be used"),
        },
    };
    let told = format!("{advice} ({told})");
    // What another try may find better is worth one.
    match ErrorRemedy::of(error) {
        ErrorRemedy::Lost | ErrorRemedy::Again | ErrorRemedy::Duplicate | ErrorRemedy::Full => {
            StoreError::Unavailable(told)
        }
        ErrorRemedy::Invalid | ErrorRemedy::Undone | ErrorRemedy::Fatal => {
            StoreError::Refused(told)
        }
    }
}

/// The address cannot be read. It may hold a password, so it is not repeated.
pub(super) fn bad_url(error: &Error) -> StoreError {
    StoreError::Refused(format!(
        "the address of the database cannot be read ({}): write it as postgres://role:password@host:port/database",
        in_words(error)
    ))
}

/// An error with its causes, in one line. The server's detail of a row that is refused is left out: it shows the row, with contents
/// and recipients, which no log may have.
pub(super) fn in_words(error: &Error) -> String {
    if let Some(told) = error.as_db_error() {
        let kind = ErrorRemedy::of_code(told.code());
        let shows_row =
            matches!(kind, ErrorRemedy::Duplicate | ErrorRemedy::Invalid | ErrorRemedy::Undone);
        let detail = told.detail().filter(|_| !shows_row);
        let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
        return format!("{}{detail}, SQLSTATE {}", told.message(), told.code().code());
    }
    let mut words = error.to_string();
    for cause in causes(error) {
        let more = cause.to_string();
        // Some errors have their cause in their own words already.
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
    }
    words
}

/// Places of the servers, as the address names them.
fn place(config: &Config) -> String {
    let ports = config.get_ports();
    // One port may stand for all hosts.
    let port = |position: usize| ports.get(position).or(ports.first()).copied().unwrap_or(5432);
    let name = |(position, host): (usize, &Host)| match host {
        Host::Tcp(host) => format!("{host}:{}", port(position)),
        #[cfg(unix)]
        Host::Unix(path) => format!("{}:{}", path.display(), port(position)),
    };
    let places: Vec<String> = config.get_hosts().iter().enumerate().map(name).collect();
    if places.is_empty() { "an unnamed host".to_owned() } else { places.join(",") }
}

fn io_error(error: &Error) -> Option<&io::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The errors that led to `error`, the nearest first.
pub(super) fn causes<'e>(
    error: &'e (dyn error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn error::Error + 'static)> {
    successors(error.source(), |cause| cause.source())
}

/// Of what stores nothing: a question, a look at the schema.
impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match ErrorRemedy::of(&error) {
            ErrorRemedy::Lost | ErrorRemedy::Again | ErrorRemedy::Duplicate => {
                Self::Unavailable(in_words(&error))
            }
            ErrorRemedy::Full => no_space(&in_words(&error)),
            kind @ (ErrorRemedy::Invalid | ErrorRemedy::Undone) => refusal(kind, in_words(&error)),
            ErrorRemedy::Fatal => Self::Broken(in_words(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_the_server_says_what_to_do() {
        let check = |code: &str, expect: ErrorRemedy| {
            assert_eq!(ErrorRemedy::of_code(&SqlState::from_code(code)), expect, "{code}");
        };
        for code in ["40001", "40P01", "55P03", "57014"] {
            check(code, ErrorRemedy::Again);
        }
        check("23505", ErrorRemedy::Duplicate);
        for code in
            ["08006", "08P01", "53200", "53300", "57P01", "57P02", "57P03", "25006", "25P03"]
        {
            check(code, ErrorRemedy::Lost);
        }
        check("53100", ErrorRemedy::Full);
        for code in ["22000", "22021", "22P02", "22003", "23514", "54000"] {
            check(code, ErrorRemedy::Invalid);
        }
        for code in ["21000", "23502", "23503", "44000", "54001", "P0001"] {
            check(code, ErrorRemedy::Undone);
        }
        for code in ["42P01", "42501", "XX001", "28P01", "0A000", "25P02", "2200H"] {
            check(code, ErrorRemedy::Fatal);
        }
    }

    #[test]
    fn numbers_that_are_spent_are_no_fault_of_a_value() {
        let check = |code: &str, routine, expect: bool| {
            assert_eq!(is_out_of_numbers(&SqlState::from_code(code), routine), expect);
        };
        check("54000", Some("GetNewTransactionId"), true);
        check("54000", Some("GetNewMultiXactId"), true);
        check("54000", Some("index_form_tuple_context"), false);
        check("54000", Some("_bt_check_third_page"), false);
        check("54000", None, false);
        check("22000", Some("GetNewTransactionId"), false);
    }

    #[test]
    fn a_place_names_hosts_and_no_password() {
        let check = |url: &str, expect: &str| {
            assert_eq!(place(&url.parse().unwrap()), expect);
        };
        check("postgres://me:secret@here:5/db", "here:5");
        check("postgres://me:secret@here,there/db", "here:5432,there:5432");
        check("postgres://me:secret@here:1,there:2/db", "here:1,there:2");
    }
}
