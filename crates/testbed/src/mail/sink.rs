//! The sink that Postfix has for measuring clients: it takes mail and forgets it.

use std::process::Command;

use anyhow::Result;

use super::root::{MailUser, Root};

/// A running `smtp-sink`.
#[derive(Debug)]
pub struct SmtpSink {
    root: Root,
}

const OWNER: &str = "nobody";
/// Connections that may wait to be accepted.
const BACKLOG: &str = "1000";

// === impl SmtpSink ===

impl SmtpSink {
    /// Starts a sink.
    ///
    /// # Errors
    /// When Postfix is not unpacked, this process is not root's, or it does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        let mut root =
            Root::of(super::postfix::PACKAGE, &[MailUser { name: OWNER, number: 65_534 }])?;
        // It looks there for what its library is configured with.
        root.write("/etc/postfix/main.cf", "")?;
        let mut command = root.command("/usr/sbin/smtp-sink");
        command.args(["-u", OWNER]).arg(format!("127.0.0.1:{}", root.port())).arg(BACKLOG);
        root.start(&mut command)?;
        Ok(Self { root })
    }

    /// Its port of 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.root.port()
    }

    /// `smtp-source` of the same package, ready to send this sink `mails` with bodies of so many bytes over so many connections, each of
    /// which is kept for all of its mails.
    pub fn source(&self, mails: u64, connections: u64, bytes: u64) -> Command {
        let number = |count: u64| count.to_string();
        let mut command = self.root.command("/usr/sbin/smtp-source");
        command.args([
            "-d",
            "-s",
            &number(connections),
            "-m",
            &number(mails),
            "-l",
            &number(bytes),
        ]);
        command.args(["-f", "news@example.com", "-t", "reader@example.org"]);
        command.arg(format!("inet:127.0.0.1:{}", self.port()));
        command
    }
}
