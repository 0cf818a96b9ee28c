//! `OpenSMTPD`, which takes 100 mails in a session unless it is told otherwise.

use anyhow::Result;

use super::DOMAIN;
use super::root::{MailUser, Rights, Root};

/// A running `OpenSMTPD` that delivers everything for one domain to one maildir.
#[derive(Debug)]
pub struct OpenSmtpd {
    root: Root,
}

const PACKAGE: &str = "opensmtpd";
const USERS: &[MailUser] = &[
    MailUser { name: "opensmtpd", number: 20_101 },
    MailUser { name: "opensmtpq", number: 20_102 },
    MailUser { name: MAILBOX_OWNER, number: 20_103 },
];
const MAILBOX_OWNER: &str = "reader";
const MAILDIR: &str = "/var/mail/all";

// === impl OpenSmtpd ===

impl OpenSmtpd {
    /// Starts a server with the distribution's limits.
    ///
    /// # Errors
    /// When it is not unpacked, this process is not root's, or the server does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        let mut root = Root::of(PACKAGE, USERS)?;
        root.make("/var/lib/opensmtpd/empty", Rights { owner: "root", mode: 0o755 })?;
        root.make(MAILDIR, Rights { owner: MAILBOX_OWNER, mode: 0o700 })?;
        let configuration = format!(
            "listen on 127.0.0.1 port {port}\n\
             table readers {{ \"@\" = \"{MAILBOX_OWNER}\" }}\n\
             action \"inbox\" maildir \"{MAILDIR}\" virtual <readers>\n\
             match from any for domain \"{DOMAIN}\" action \"inbox\"\n",
            port = root.port(),
        );
        root.write("/etc/smtpd.conf", configuration)?;
        let mut command = root.command("/usr/sbin/smtpd");
        // In the foreground, with its log on standard error.
        root.start(command.arg("-d"))?;
        Ok(Self { root })
    }

    /// Its port of 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.root.port()
    }

    /// How many mails were delivered so far.
    ///
    /// # Errors
    /// When the mailbox cannot be read.
    pub fn arrived(&self) -> Result<usize> {
        self.root.count(MAILDIR)
    }

    /// The mails that were delivered so far, as they are.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn delivered(&self) -> Result<Vec<Vec<u8>>> {
        self.root.mails(MAILDIR)
    }

    /// Its log.
    pub fn log(&self) -> String {
        self.root.output()
    }
}
