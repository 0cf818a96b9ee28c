//! How the program ends: exit codes, and the one line that says why.

use std::io;
use std::process::ExitCode;

/// Documented at the end of `--help`. Those from 64 on are the ones of `sysexits.h`.
pub(crate) const HELP: &str = "\
Exit codes:
   0  done
   1  failed
   2  wrong use of the command line
  65  bad input: a row, a field, an identifier
  69  the engine (or the source of a relay) cannot be reached, or the connection was lost
  73  a file cannot be created
  78  the configuration is wrong";

/// Why a command failed, when that has an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CliError {
    kind: FailureKind,
    message: String,
}

/// The exit code of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Nothing more special.
    Failed = 1,
    /// Wrong use of the command line.
    Usage = 2,
    /// Bad input data.
    BadInput = 65,
    /// The engine cannot be reached.
    Unreachable = 69,
    /// A file cannot be created.
    CannotCreate = 73,
    /// The configuration is wrong.
    Config = 78,
}

// === impl CliError ===

impl CliError {
    /// A failure of `kind`; the message is lower case and says what to do.
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Its exit code.
    pub(crate) fn kind(&self) -> FailureKind {
        self.kind
    }
}

// === impl FailureKind ===

impl From<FailureKind> for ExitCode {
    fn from(kind: FailureKind) -> Self {
        Self::from(kind as u8)
    }
}

/// Prints why a command failed, and gives its exit code. The reader of our output may stop at any time
/// (`belfry log | head`): that is no failure.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    if io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    for line in format!("{error:#}").lines() {
        complain(line);
    }
    let failure = error.chain().find_map(|cause| cause.downcast_ref::<CliError>());
    failure.map_or(FailureKind::Failed, |failure| failure.kind).into()
}

/// One line on standard error. When even that fails, the error is dropped.
pub(crate) fn complain(line: &str) {
    use io::Write as _;
    writeln!(io::stderr().lock(), "belfry: {line}").ok();
}
