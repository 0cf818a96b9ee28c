//! Postfix, with TLS, SMTPUTF8 and its checks of addresses.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::DOMAIN;
use super::root::{MailUser, Rights, Root};

/// A running Postfix that delivers everything for one domain to one maildir.
#[derive(Debug)]
pub struct Postfix {
    root: Root,
}

pub(super) const PACKAGE: &str = "postfix";
const OWNER: &str = "postfix";
const OWNER_NUMBER: u32 = 20_301;
const DROP: &str = "postdrop";
const USERS: &[MailUser] = &[
    MailUser { name: OWNER, number: OWNER_NUMBER },
    MailUser { name: DROP, number: 20_302 },
    MailUser { name: "nobody", number: 65_534 },
];
const MAILBOXES: &str = "/var/mail";
const LOG: &str = "/var/log/postfix.log";
/// Directories of the queue that its owner alone uses.
const QUEUES: &[&str] = &[
    "active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "private",
    "saved", "trace",
];

// === impl Postfix ===

impl Postfix {
    /// Starts a server. It offers STARTTLS with the certificate and key that are in `identity` (PEM).
    ///
    /// # Errors
    /// When it is not unpacked, this process is not root's, or the server does not start; its log is quoted.
    pub fn start(identity: &Path) -> Result<Self> {
        let mut root = Root::of(PACKAGE, USERS)?;
        make_queue(&root)?;
        let identity = fs::read(identity).context("cannot read the certificate and key")?;
        root.write("/etc/postfix/identity.pem", identity)?;
        configure(&root)?;
        let mut command = root.command("/usr/lib/postfix/sbin/master");
        // In the foreground: it ends with who started it.
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
        self.root.count(&format!("{MAILBOXES}/all"))
    }

    /// The mails that were delivered so far, as they are.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn delivered(&self) -> Result<Vec<Vec<u8>>> {
        self.root.mails(&format!("{MAILBOXES}/all"))
    }

    /// Its log.
    pub fn log(&self) -> String {
        self.root.read(LOG)
    }
}

/// Makes the directories that `postfix check` would make, with the owners and rights of `postfix-files`.
fn make_queue(root: &Root) -> Result<()> {
    root.make("/var/spool/postfix", Rights { owner: "root", mode: 0o755 })?;
    root.make("/var/spool/postfix/pid", Rights { owner: "root", mode: 0o755 })?;
    for name in QUEUES {
        root.make(&format!("/var/spool/postfix/{name}"), Rights { owner: OWNER, mode: 0o700 })?;
    }
    for name in ["maildrop", "public"] {
        root.make(&format!("/var/spool/postfix/{name}"), Rights { owner: OWNER, mode: 0o730 })?;
    }
    for directory in ["/var/lib/postfix", MAILBOXES] {
        root.make(directory, Rights { owner: OWNER, mode: 0o755 })?;
    }
    Ok(())
}

fn configure(root: &Root) -> Result<()> {
    let parameters = format!(
        "compatibility_level = 3.6\nmaillog_file = {LOG}\nmyhostname = mx.{DOMAIN}\nmydestination =\ninet_interfaces = 127.0.0.1\n\
         inet_protocols = ipv4\nvirtual_mailbox_domains = {DOMAIN}\nvirtual_mailbox_base = {MAILBOXES}\n\
         virtual_mailbox_maps = regexp:/etc/postfix/mailboxes\nvirtual_uid_maps = static:{OWNER_NUMBER}\n\
         virtual_gid_maps = static:{OWNER_NUMBER}\nvirtual_minimum_uid = 1\nmynetworks = 127.0.0.0/8\n\
         smtpd_relay_restrictions = permit_auth_destination, reject\nsmtpd_recipient_restrictions =\n\
         smtpd_tls_security_level = may\nsmtpd_tls_chain_files = /etc/postfix/identity.pem\nsmtpd_forbid_bare_newline = yes\n\
         smtputf8_enable = yes\nstrict_rfc821_envelopes = yes\nalias_maps =\nalias_database =\n"
    );
    root.write("/etc/postfix/main.cf", parameters)?;
    // All names have a mailbox but one.
    root.write("/etc/postfix/mailboxes", "if !/^nobody@/\n/^.*@/ all/\nendif\n")?;
    let services = format!(
        "127.0.0.1:{} inet n - n - - smtpd\npickup unix n - n 60 1 pickup\ncleanup unix n - n - 0 cleanup\nqmgr unix n - n 300 1 qmgr\n\
         rewrite unix - - n - - trivial-rewrite\nbounce unix - - n - 0 bounce\ndefer unix - - n - 0 bounce\ntrace unix - - n - 0 bounce\n\
         verify unix - - n - 1 verify\nflush unix n - n 1000? 0 flush\nproxymap unix - - n - - proxymap\nerror unix - - n - - error\n\
         retry unix - - n - - error\ndiscard unix - - n - - discard\nvirtual unix - n n - - virtual\nanvil unix - - n - 1 anvil\n\
         scache unix - - n - 1 scache\ntlsmgr unix - - n 1000? 1 tlsmgr\npostlog unix-dgram n - n - 1 postlogd\n",
        root.port()
    );
    root.write("/etc/postfix/master.cf", services)
}
