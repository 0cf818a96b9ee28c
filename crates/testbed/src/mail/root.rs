//! A root directory with one server in it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::find;
use crate::keeper::Keeper;

/// A copy of what a package holds, as the root directory of a server that runs on one port of 127.0.0.1.
#[derive(Debug)]
pub(super) struct Root {
    keeper: Keeper,
    directory: PathBuf,
    port: u16,
}

/// A user of a server, with a group of the same name and number. The numbers need no entry in the machine's own tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct MailUser {
    pub(super) name: &'static str,
    pub(super) number: u32,
}

/// Owner and mode of a directory of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rights {
    pub(super) owner: &'static str,
    pub(super) mode: u32,
}

/// The one process that is told to end.
const SERVER: &str = "server";
/// Owner of files that no server writes.
const ROOT: MailUser = MailUser { name: "root", number: 0 };
/// The kind of a file of the configuration.
const READABLE: u32 = 0o644;

// === impl Root ===

impl Root {
    /// A root directory with the programs of `package`, and with `users` beside root.
    ///
    /// # Errors
    /// When the package is not unpacked, or this process is not root's.
    pub(super) fn of(package: &str, users: &[MailUser]) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "{package} has to be started by root, for it gives each of its services a user: run the tests as root"
        );
        let servers = find::build_folder()?.join("servers");
        let unpacked = servers.join(package);
        ensure!(
            unpacked.join("usr").is_dir(),
            "{package} is not unpacked in {}: run scripts/setup-servers.sh",
            servers.display()
        );
        // Beside what was unpacked: its files can be linked from there, and no other disk has to take them.
        let keeper = Keeper::new_in(&servers, &format!("running-{package}-"), Signal::TERM)?;
        let directory = keeper.directory().join("root");
        run(Command::new("cp").arg("-al").arg(unpacked.canonicalize()?).arg(&directory))?;
        let root = Self { keeper, directory, port: find::free_port()? };
        root.furnish(users)?;
        Ok(root)
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Writes a file of the configuration. Never into one that was linked: that would change it for all.
    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path(path);
        fs::create_dir_all(path.parent().context("a file lies in a directory")?)?;
        if path.exists() {
            fs::remove_file(&path)?;
        }
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(READABLE))?)
    }

    /// Makes a directory for the server.
    pub(super) fn make(&self, path: &str, rights: Rights) -> Result<()> {
        fs::create_dir_all(self.path(path))?;
        let owner = self.number_of(rights.owner)?;
        std::os::unix::fs::chown(self.path(path), Some(owner), Some(owner))?;
        Ok(fs::set_permissions(self.path(path), fs::Permissions::from_mode(rights.mode))?)
    }

    /// `program` with the root directory as its own.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.directory).arg(program);
        command
    }

    /// Starts the server, which is to stay in the foreground, and waits until it listens.
    pub(super) fn start(&mut self, command: &mut Command) -> Result<()> {
        self.keeper.start(SERVER, command)?;
        let port = self.port;
        let is_ready = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        self.keeper.await_ready(SERVER, is_ready)
    }

    /// The output of the server.
    pub(super) fn output(&self) -> String {
        let path = self.keeper.directory().join(format!("{SERVER}.log"));
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The text of the file at `path`; empty when there is none.
    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// How many mails are in the maildir at `path`.
    pub(super) fn count(&self, path: &str) -> Result<usize> {
        let maildir = self.path(path).join("new");
        Ok(if maildir.exists() { fs::read_dir(maildir)?.count() } else { 0 })
    }

    /// The mails in the maildir at `path`, as they are.
    pub(super) fn mails(&self, path: &str) -> Result<Vec<Vec<u8>>> {
        let maildir = self.path(path).join("new");
        if !maildir.exists() {
            return Ok(Vec::new());
        }
        fs::read_dir(maildir)?.map(|entry| Ok(fs::read(entry?.path())?)).collect()
    }

    /// Where `path` of the root directory lies for us.
    fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path.trim_start_matches('/'))
    }

    fn number_of(&self, user: &str) -> Result<u32> {
        let line = format!("{user}:x:");
        let users = self.read("/etc/passwd");
        let found = users.lines().find_map(|entry| entry.strip_prefix(&line));
        let number = found.and_then(|rest| rest.split(':').next());
        Ok(number.with_context(|| format!("there is no user {user}"))?.parse()?)
    }

    /// Makes the files that every program expects.
    fn furnish(&self, users: &[MailUser]) -> Result<()> {
        let (mut passwords, mut groups) = (String::new(), String::new());
        for MailUser { name, number } in std::iter::once(&ROOT).chain(users) {
            writeln!(passwords, "{name}:x:{number}:{number}::/:/bin/sh")?;
            writeln!(groups, "{name}:x:{number}:")?;
        }
        self.write("/etc/passwd", passwords)?;
        self.write("/etc/group", groups)?;
        self.write("/etc/hosts", "127.0.0.1 localhost\n")?;
        self.write("/etc/mailname", format!("mx.{}\n", super::DOMAIN))?;
        let shared = Rights { owner: ROOT.name, mode: 0o1777 };
        for directory in ["/tmp", "/var/tmp"] {
            self.make(directory, shared)?;
        }
        for directory in ["/dev", "/run", "/var", "/var/log", "/var/mail", "/var/spool"] {
            self.make(directory, Rights { owner: ROOT.name, mode: 0o755 })?;
        }
        std::os::unix::fs::symlink("/run", self.path("/var/run"))?;
        for (name, minor) in [("null", "3"), ("urandom", "9")] {
            let device = self.path("/dev").join(name);
            run(Command::new("mknod").args(["-m", "666"]).arg(device).args(["c", "1", minor]))?;
        }
        Ok(())
    }
}

/// Runs `command` to its end.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
    Ok(())
}
