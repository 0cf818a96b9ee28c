//! Mail servers of the distribution: [`Postfix`], [`OpenSmtpd`] and [`Exim`], whole, and Postfix's sink, which takes mail and
//! forgets it.
//!
//! Their packages exclude each other, so none is installed: `scripts/unpack-servers.sh` unpacks them into the build folder,
//! and each server runs in a root directory of its own (`chroot`), where its users, its queue and its configuration lie where
//! its package puts them. Limits are those of the distribution. A server gives up root's rights per service, so it has to be
//! started by root.

mod exim;
mod open_smtpd;
mod postfix;
mod root;
mod sink;

pub use exim::Exim;
pub use open_smtpd::OpenSmtpd;
pub use postfix::Postfix;
pub use sink::SmtpSink;

/// The domain that the servers take mail for.
pub const DOMAIN: &str = "belfry.test";
