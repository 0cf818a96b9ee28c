//! Mail servers of the distribution: Postfix, whole, and its sink, which takes mail and forgets it.
//!
//! Postfix runs as on a machine of its own, with configuration, queue and data in a private directory, on one port of the
//! loopback interface. Its master gives up root's rights per service, so it has to be started by root; the queue stays
//! below a directory that its user can reach.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::find;
use crate::keeper::Keeper;

/// A running Postfix that delivers everything for one domain to one maildir.
#[derive(Debug)]
pub struct Postfix {
    keeper: Keeper,
    port: u16,
}

/// A running `smtp-sink`.
#[derive(Debug)]
pub struct SmtpSink {
    _keeper: Keeper,
    port: u16,
}

/// The domain that [`Postfix`] takes mail for.
pub const DOMAIN: &str = "belfry.test";

const SERVER: &str = "postfix";
const SINK: &str = "smtp-sink";
const PATIENCE: Duration = Duration::from_secs(30);
const PLACES: &[&str] = &["/usr/sbin", "/usr/local/sbin"];
const DAEMONS: &[&str] = &["/usr/lib/postfix/sbin", "/usr/libexec/postfix"];

// === impl Postfix ===

impl Postfix {
    /// Starts a server. It offers STARTTLS with the certificate and key that are in `identity` (PEM).
    ///
    /// # Errors
    /// When the package is missing, this process is not root's, or the server does not start; its log is quoted.
    pub fn start(identity: &Path) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "Postfix has to be started by root, for it gives each of its services a user: run the tests as root"
        );
        let master = find::program("master", &["smtpd"], DAEMONS)?;
        let keeper = Keeper::new("belfry-postfix-", Signal::TERM)?;
        let mut server = Self { keeper, port: find::free_port()? };
        server.configure(&master, identity)?;
        let mut command = Command::new(&master);
        // In the foreground: it ends with who started it.
        command
            .arg("-d")
            .arg("-c")
            .arg(server.directory("etc"))
            .env("MAIL_CONFIG", server.directory("etc"));
        server.keeper.start(SERVER, &mut command)?;
        let port = server.port;
        server
            .keeper
            .await_ready(SERVER, PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(server)
    }

    /// Its port of 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The mails that were delivered so far, as they are.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn delivered(&self) -> Result<Vec<Vec<u8>>> {
        let maildir = self.directory("mail").join("all/new");
        if !maildir.exists() {
            return Ok(Vec::new());
        }
        let mut mails = Vec::new();
        for entry in fs::read_dir(maildir)? {
            mails.push(fs::read(entry?.path())?);
        }
        Ok(mails)
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory("postfix.out")).unwrap_or_default()
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.keeper.directory().join(name)
    }

    fn configure(&self, master: &Path, identity: &Path) -> Result<()> {
        // Its services run as other users, and have to reach what is theirs.
        fs::set_permissions(self.keeper.directory(), fs::Permissions::from_mode(0o755))?;
        for name in ["etc", "queue", "data", "mail"] {
            fs::create_dir_all(self.directory(name))?;
        }
        let daemons = master.parent().context("a program lies in a directory")?.display();
        let (queue, data, mail) =
            (self.directory("queue"), self.directory("data"), self.directory("mail"));
        let user = run(Command::new("id").args(["-u", "postfix"]))?;
        let group = run(Command::new("id").args(["-g", "postfix"]))?;
        for directory in [&data, &mail] {
            run(Command::new("chown").arg(format!("{user}:{group}")).arg(directory))?;
        }
        let parameters = format!(
            "compatibility_level = 3.6\nqueue_directory = {queue}\ndata_directory = {data}\ndaemon_directory = {daemons}\n\
             maillog_file = {log}\nmaillog_file_prefixes = {own}\nmyhostname = mx.{DOMAIN}\nmydestination =\ninet_interfaces = 127.0.0.1\n\
             inet_protocols = ipv4\nvirtual_mailbox_domains = {DOMAIN}\nvirtual_mailbox_base = {mail}\n\
             virtual_mailbox_maps = regexp:{etc}/mailboxes\nvirtual_uid_maps = static:{user}\nvirtual_gid_maps = static:{group}\n\
             virtual_minimum_uid = 1\nmynetworks = 127.0.0.0/8\nsmtpd_relay_restrictions = permit_auth_destination, reject\n\
             smtpd_recipient_restrictions =\nsmtpd_tls_security_level = may\nsmtpd_tls_chain_files = {identity}\n\
             smtpd_forbid_bare_newline = yes\nsmtputf8_enable = yes\nstrict_rfc821_envelopes = yes\nalias_maps =\nalias_database =\n",
            queue = queue.display(),
            data = data.display(),
            mail = mail.display(),
            log = self.directory("postfix.out").display(),
            own = self.keeper.directory().display(),
            etc = self.directory("etc").display(),
            identity = identity.display(),
        );
        fs::write(self.directory("etc").join("main.cf"), parameters)?;
        // Everybody has a mailbox but nobody.
        let mailboxes = "if !/^nobody@/\n/^.*@/ all/\nendif\n";
        fs::write(self.directory("etc").join("mailboxes"), mailboxes)?;
        let services = format!(
            "127.0.0.1:{} inet n - n - - smtpd\npickup unix n - n 60 1 pickup\ncleanup unix n - n - 0 cleanup\nqmgr unix n - n 300 1 qmgr\n\
             rewrite unix - - n - - trivial-rewrite\nbounce unix - - n - 0 bounce\ndefer unix - - n - 0 bounce\ntrace unix - - n - 0 bounce\n\
             verify unix - - n - 1 verify\nflush unix n - n 1000? 0 flush\nproxymap unix - - n - - proxymap\nerror unix - - n - - error\n\
             retry unix - - n - - error\ndiscard unix - - n - - discard\nvirtual unix - n n - - virtual\nanvil unix - - n - 1 anvil\n\
             scache unix - - n - 1 scache\ntlsmgr unix - - n 1000? 1 tlsmgr\npostlog unix-dgram n - n - 1 postlogd\n",
            self.port
        );
        fs::write(self.directory("etc").join("master.cf"), services)?;
        // Makes the queue, with its owners.
        let postfix = find::program("postfix", &[], PLACES)?;
        run(Command::new(postfix).arg("-c").arg(self.directory("etc")).arg("check"))?;
        Ok(())
    }
}

// === impl SmtpSink ===

impl SmtpSink {
    /// Starts a sink.
    ///
    /// # Errors
    /// When the package is missing, or it does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        let program = find::program(SINK, &[], PLACES)?;
        let mut keeper = Keeper::new("belfry-smtp-sink-", Signal::KILL)?;
        let port = find::free_port()?;
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        command.arg(format!("127.0.0.1:{port}")).arg("1000");
        keeper.start(SINK, &mut command)?;
        keeper.await_ready(SINK, PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(Self { _keeper: keeper, port })
    }

    /// Its port of 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

/// What `command` prints, without the line's end.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
