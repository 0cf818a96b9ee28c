//! E-mail over SMTP (RFC 5321), to a relay or to the mail exchangers of each recipient's domain.
//!
//! ```text
//! SmtpChannel (shared)      settings, TLS, DKIM key
//!   └─ SmtpSender (one per sender thread)
//!        ├─ Composer        content -> Mail, once per chunk; Mail -> AddressedMail per recipient (request, mime, dkim)
//!        └─ SessionPool     up to `connections_max` connections per destination, one mail at a time on each
//!             ├─ Router     destination -> server: the relay, or MX (route, dns)
//!             ├─ SessionConfig  greeting, EHLO, STARTTLS, AUTH (session)
//!             └─ transact   MAIL RCPT DATA, message and dot (transaction), each reply's meaning (response)
//! ```
//!
//! One recipient per mail: a verdict belongs to one notification, and no recipient learns of another.
//!
//! A connection ends in one of two halves of a mail. Before the last byte of the message is handed over nothing came of it,
//! and it is tried again; after that only the server's reply tells, for which it has ten minutes, and without it the
//! verdict is unknown. Every mail of a notification has the same `Message-ID`, so that receivers can drop a repetition.

pub(crate) mod address;
mod channel;
mod config;
mod dkim;
mod dns;
mod form;
mod mime;
mod pool;
mod request;
mod response;
mod route;
mod session;
mod session_limits;
#[cfg(test)]
mod suppression_tests;
mod transaction;
mod wire;

pub use channel::SmtpChannel;
pub use config::{Dkim, MailRoute, Mechanism, Settings, TlsMode};
pub use dns::{Exchanger, ResolveMail};
