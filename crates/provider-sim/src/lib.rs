//! Local providers, APNs, FCM, webhooks, Web Push and mail, that speak the real protocols and keep their own books.
//!
//! It serves the demo, the tests, the benchmark and a user's staging, and it is the independent
//! judge of the engine: it shares no code with what it checks, and what it counts is what arrived.
//! It runs on the same cores as what it measures, so a request has to cost almost nothing.
//!
//! The way of a request, module by module:
//! ```text
//! server    one thread = one single-threaded runtime, one listener per provider
//! smtp      ESMTP, beside all of the following but the dice and the journal
//! http2     a server of its own, one task per connection       http1    hyper, all but APNs
//! provider  outage, then the protocol's checks, then dead recipients, then seeded faults
//!             apns, fcm, webhook, webpush: the checks         faults: the dice
//! capacity  when the answer leaves, if only so many are served at the same time
//! journal   one line, written (and with --fsync on disk) before the answer leaves
//! ```

mod options;
mod run;

mod server;

mod http1;
mod http2;

mod exchange;
mod fields;
mod provider;
mod rate_limit;

mod apns;
mod capacity;
mod faults;
mod fcm;
mod smtp;
mod webhook;
mod webpush;

pub mod journal;

mod clock;
mod tls;

pub use capacity::CapacityStep;
pub use faults::is_dead;
pub use options::{Faults, SimulatorOptions};
pub use run::run;
pub use server::{Running, Simulator};
pub use webpush::subscription;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The failure that keeps the simulator from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be bound.
    #[error("cannot listen on {address}: {source}; choose a free port, or port 0 for any")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The journal could not be opened, repaired or written.
    #[error("cannot use the journal {}: {source}", path.display())]
    Journal {
        /// The journal file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process writes to the same journal.
    #[error(
        "the journal {} is in use by another provider-sim: stop it or name another file",
        path.display()
    )]
    JournalInUse {
        /// The journal file.
        path: PathBuf,
    },
    /// A line in the middle of a journal is not a record.
    #[error("line {line} of the journal is not a record: it was edited or damaged")]
    JournalLine {
        /// Line number, from 1.
        line: u64,
    },
    /// A journal could not be read.
    #[error("cannot read the journal: {0}")]
    JournalRead(io::Error),
    /// The certificate directory could not be used.
    #[error("cannot use the certificates in {}: {reason}; remove it to make new ones", path.display())]
    Certificates {
        /// The directory given by `--tls-dir`.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The key that verifies provider tokens is unusable.
    #[error("cannot use {} as the public key of the provider tokens: {reason}", path.display())]
    PublicKey {
        /// The file given by `--apns-public-key`.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The service account cannot be made or read.
    #[error("cannot use the service account {}: {reason}; remove it to make a new one", path.display())]
    Account {
        /// The file in `--tls-dir`.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The webhook secret is not of the form the standard prescribes.
    #[error("the webhook secret must be `whsec_` and the base64 of 24 to 64 bytes")]
    WebhookSecret,
    /// The public key is not of the form the standard prescribes.
    #[error("the webhook public key must be `whpk_` and the base64 of 32 bytes")]
    WebhookPublicKey,
    /// The key that browsers have subscribed with is unusable.
    #[error("the Web Push key must be the base64url of an uncompressed point on P-256, 65 bytes")]
    WebPushKey,
    /// A thread, a runtime or a signal handler could not be set up.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// A serving thread ended by a panic.
    #[error("a serving thread panicked: this is a defect, see the log")]
    Panicked,
}
