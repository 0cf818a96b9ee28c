//! Exim, which delivers the first ten mails of a connection at once and queues the rest.

use anyhow::Result;

use super::DOMAIN;
use super::root::{MailUser, Rights, Root, run};

/// A running Exim that delivers everything for one domain to one maildir.
#[derive(Debug)]
pub struct Exim {
    root: Root,
}

const PACKAGE: &str = "exim4-daemon-light";
const PROGRAM: &str = "/usr/sbin/exim4";
const OWNER: &str = "Debian-exim";
const USERS: &[MailUser] =
    &[MailUser { name: OWNER, number: 20_201 }, MailUser { name: "mail", number: 20_202 }];
const MAILDIR: &str = "/var/mail/all";

// === impl Exim ===

impl Exim {
    /// Starts a server with the distribution's limits.
    ///
    /// # Errors
    /// When it is not unpacked, this process is not root's, or the server does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        let mut root = Root::of(PACKAGE, USERS)?;
        for directory in ["/var/spool/exim4", "/var/log/exim4"] {
            root.make(directory, Rights { owner: OWNER, mode: 0o750 })?;
        }
        root.make(MAILDIR, Rights { owner: "mail", mode: 0o700 })?;
        let configuration = format!(
            "primary_hostname = mx.{DOMAIN}\ndaemon_smtp_ports = {port}\nlocal_interfaces = 127.0.0.1\n\
             tls_advertise_hosts =\nkeep_environment =\nacl_smtp_rcpt = recipient\n\
             begin acl\nrecipient:\n  accept domains = {DOMAIN}\n  deny message = relay not permitted\n\
             begin routers\nreaders:\n  driver = accept\n  domains = {DOMAIN}\n  transport = inbox\n\
             begin transports\ninbox:\n  driver = appendfile\n  directory = {MAILDIR}\n  maildir_format\n\
               user = mail\n  group = mail\n",
            port = root.port(),
        );
        root.write("/etc/exim4/exim4.conf", configuration)?;
        let mut command = root.command(PROGRAM);
        root.start(command.arg("-bdf"))?;
        Ok(Self { root })
    }

    /// Its port of 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.root.port()
    }

    /// Delivers what is queued, and gives how many mails were delivered so far.
    ///
    /// # Errors
    /// When the queue cannot be run, or the mailbox cannot be read.
    pub fn arrived(&self) -> Result<usize> {
        run(self.root.command(PROGRAM).arg("-qff"))?;
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
        self.root.read("/var/log/exim4/mainlog")
    }
}
