//! A PostgreSQL server, and databases in it.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Signal, geteuid};

use crate::keeper::Keeper;
use crate::{find, running_server, unique_prefix};

/// A running server with password authentication, in a private directory.
#[derive(Debug)]
pub struct PostgresServer {
    keeper: Keeper,
    programs: PathBuf,
    /// Whom the server runs as, when that is another user than ours.
    user: Option<PostgresUser>,
    arguments: Vec<String>,
    port: u16,
}

/// Further settings that a server is started with.
#[derive(Debug, Clone, Copy, Default)]
pub struct PostgresOptions<'a> {
    /// Settings as in `postgresql.conf`: name and value.
    pub settings: &'a [(&'a str, &'a str)],
    /// A certificate and its key, PEM, with which the server offers TLS.
    pub tls: Option<(&'a str, &'a str)>,
}

/// Makes databases in a server, ours or another's.
#[derive(Debug, Clone)]
pub struct Databases {
    /// The address of a database whose user may create databases.
    url: String,
}

/// A database of its own. Dropped with its handle.
#[derive(Debug)]
pub struct Database {
    url: String,
    name: String,
    origin: Databases,
}

/// The one line of `/etc/passwd` that matters.
#[derive(Debug, Clone, Copy)]
struct PostgresUser {
    id: u32,
    group: u32,
}

const SERVER: &str = "postgres";
const ROLE: &str = "belfry";
const PASSWORD: &str = "a-password";
/// Settings for tests that do not crash the server: what these save is most of the time of a `CREATE DATABASE`, and of a
/// commit.
pub const HASTE: &[(&str, &str)] =
    &[("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")];
/// The line of `postmaster.pid` that says how far the server is.
const STATE_LINE: usize = 7;

/// The server that the tests of this process share: the one that `BELFRY_TEST_POSTGRES_URL` names (its user must be
/// allowed to create databases), or one that is started by the first call, without fsync.
///
/// # Errors
/// When it does not start.
pub fn shared() -> Result<Databases> {
    static SHARED: OnceLock<Result<PostgresServer, String>> = OnceLock::new();
    if let Some(url) = running_server("BELFRY_TEST_POSTGRES_URL") {
        return Ok(Databases { url });
    }
    let start = || PostgresServer::start_with(PostgresOptions { settings: HASTE, tls: None });
    let shared = SHARED.get_or_init(|| start().map_err(|error| format!("{error:#}")));
    shared.as_ref().map(PostgresServer::databases).map_err(|error| anyhow::anyhow!("{error}"))
}

// === impl PostgresServer ===

impl PostgresServer {
    /// Starts an empty server with the defaults of its version: what it has committed is on the disk.
    ///
    /// # Errors
    /// When the package is missing, or the server does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        Self::start_with(PostgresOptions::default())
    }

    /// Starts an empty server.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(options: PostgresOptions<'_>) -> Result<Self> {
        let initdb = find::program("initdb", &[SERVER], &["/usr/lib/postgresql/*/bin"])?;
        let programs = initdb.parent().context("a program lies in a directory")?.to_owned();
        // SIGQUIT is what `pg_ctl stop -m immediate` sends: the server's children and shared memory go with it.
        let keeper = Keeper::new("belfry-postgres-", Signal::QUIT)?;
        let user = unprivileged_user()?;
        let mut server =
            Self { keeper, programs, user, arguments: Vec::new(), port: find::free_port()? };
        server.own(server.keeper.directory())?;
        server.init()?;
        server.arguments = server.arguments_for(options)?;
        server.start_again()?;
        Ok(server)
    }

    /// `postgres://user:password@127.0.0.1:port/postgres`; the user is a superuser.
    pub fn url(&self) -> String {
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }

    /// Makes databases in this server.
    pub fn databases(&self) -> Databases {
        Databases { url: self.url() }
    }

    /// The address of `database` by the socket in the server's private directory: no password is asked for, and a
    /// statement takes less of the system's time than by TCP.
    pub fn socket_url(&self, database: &Database) -> String {
        let (directory, port) = (self.keeper.directory().display(), self.port);
        format!("postgres:///{}?user={ROLE}&host={directory}&port={port}", database.name)
    }

    /// Creates an empty database.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn create_database(&self) -> Result<Database> {
        self.databases().create()
    }

    /// Stops as `pg_ctl stop -m immediate` does: every process of the server ends at once, as in a crash, and the next
    /// start recovers from the log.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn stop_immediate(&mut self) -> Result<()> {
        self.keeper.end(SERVER, Signal::QUIT)
    }

    /// Starts it again after [`stop_immediate`](Self::stop_immediate), with its data and at the same address, and
    /// waits until it takes connections.
    ///
    /// # Errors
    /// When it does not start; its log is quoted.
    pub fn start_again(&mut self) -> Result<()> {
        let mut command = self.command(SERVER);
        command.args(&self.arguments);
        let process = self.keeper.start(SERVER, &mut command)?;
        let state = self.data().join("postmaster.pid");
        self.keeper.await_ready(SERVER, || is_ready(&state, process))
    }

    /// Starts it again after [`stop_immediate`](Self::stop_immediate) as a standby of no server: it answers questions
    /// about what it has, and takes no writes.
    ///
    /// # Errors
    /// As [`start_again`](Self::start_again).
    pub fn start_as_standby(&mut self) -> Result<()> {
        self.write_private("data/standby.signal", "")?;
        self.start_again()
    }

    /// The directory of `psql`, `pg_ctl` and the other programs of the server's version.
    pub fn bin_dir(&self) -> &Path {
        &self.programs
    }

    /// The server's first process while it runs, to measure it.
    pub fn process(&self) -> Option<u32> {
        self.keeper.process(SERVER)
    }

    /// The directory with its data.
    pub fn data(&self) -> PathBuf {
        self.keeper.directory().join("data")
    }

    fn init(&self) -> Result<()> {
        let password = self.write_private("password", PASSWORD)?;
        let mut command = self.command("initdb");
        command.args(["--no-sync", "--encoding", "UTF8", "--locale", "C", "--username", ROLE]);
        // The socket lies in the private directory: a client that reaches it needs no password.
        command.args(["--auth-local", "trust", "--auth-host", "scram-sha-256", "--pwfile"]);
        command.arg(password);
        let output = command.arg("-D").arg(self.data()).output()?;
        ensure!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn arguments_for(&self, options: PostgresOptions<'_>) -> Result<Vec<String>> {
        let mut settings = vec![
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", self.port.to_string()),
            ("unix_socket_directories", self.keeper.directory().display().to_string()),
            ("max_connections", "300".to_owned()),
        ];
        if let Some((certificate, key)) = options.tls {
            let path = |name, text| {
                Ok::<_, anyhow::Error>(self.write_private(name, text)?.display().to_string())
            };
            settings.push(("ssl", "on".to_owned()));
            settings.push(("ssl_cert_file", path("server.crt", certificate)?));
            settings.push(("ssl_key_file", path("server.key", key)?));
        }
        settings.extend(options.settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let flags =
            settings.iter().flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]);
        Ok(["-D".to_owned(), self.data().display().to_string()].into_iter().chain(flags).collect())
    }

    /// One of the server's programs, as the user that it may run as.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.keeper.directory()).env("LC_ALL", "C").env("TZ", "UTC");
        if let Some(user) = self.user {
            command.uid(user.id).gid(user.group);
        }
        command
    }

    /// A file that only the server reads.
    fn write_private(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.keeper.directory().join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        self.own(&path)?;
        Ok(path)
    }

    fn own(&self, path: &Path) -> Result<()> {
        let Some(user) = self.user else { return Ok(()) };
        chown(path, Some(user.id), Some(user.group))
            .with_context(|| format!("cannot give {} to the server's user", path.display()))
    }
}

// === impl Databases ===

impl Databases {
    /// Creates an empty database.
    ///
    /// # Errors
    /// When the server refuses, or `psql` is missing.
    pub fn create(&self) -> Result<Database> {
        self.create_by("")
    }

    /// Creates a copy of `template`, which must have no connection meanwhile: a schema is copied in less time than
    /// it is migrated.
    ///
    /// # Errors
    /// When the server refuses, or `psql` is missing.
    pub fn create_like(&self, template: &Database) -> Result<Database> {
        self.create_by(&format!(" TEMPLATE {}", template.name))
    }

    fn create_by(&self, clause: &str) -> Result<Database> {
        let name = unique_prefix();
        query(&self.url, &format!("CREATE DATABASE {name}{clause}"))?;
        let url = with_database(&self.url, &name)?;
        Ok(Database { url, name, origin: self.clone() })
    }
}

// === impl Database ===

impl Database {
    /// Its address, with user and password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs statements by `psql`, which ends at the first error, and returns the rows: columns parted by `|`.
    ///
    /// # Errors
    /// With the server's words.
    pub fn query(&self, statements: &str) -> Result<String> {
        query(&self.url, statements)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A server that is gone, or was stopped by the test, needs no tidying.
        let _gone =
            query(&self.origin.url, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// Whom the server runs as: PostgreSQL refuses to run as root.
fn unprivileged_user() -> Result<Option<PostgresUser>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let user = ["postgres", "nobody"].iter().find_map(|name| user_named(&users, name));
    user.map(Some).context(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody",
    )
}

fn user_named(users: &str, name: &str) -> Option<PostgresUser> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2).map(str::parse);
    Some(PostgresUser { id: numbers.next()?.ok()?, group: numbers.next()?.ok()? })
}

/// Whether the server is up, as `pg_ctl start -w` checks it: the file names our process, and says that it takes connections.
fn is_ready(state: &Path, process: u32) -> bool {
    let state = std::fs::read_to_string(state).unwrap_or_default();
    let lines: Vec<&str> = state.lines().map(str::trim).collect();
    lines.first() == Some(&process.to_string().as_str()) && lines.get(STATE_LINE) == Some(&"ready")
}

fn query(url: &str, statements: &str) -> Result<String> {
    let psql = find::program("psql", &[], &["/usr/lib/postgresql/*/bin"])?;
    let mut command = Command::new(psql);
    command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"]);
    command.args(["--set", "ON_ERROR_STOP=1", "--command", statements, url]);
    let output = command.env("PGCONNECT_TIMEOUT", "10").output()?;
    if !output.status.success() {
        bail!("{statements}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// `url` with another database in it.
fn with_database(url: &str, name: &str) -> Result<String> {
    let (address, parameters) = url.split_once('?').map_or((url, ""), |(url, rest)| (url, rest));
    let (scheme, rest) =
        address.split_once("://").with_context(|| format!("{url} is not an address"))?;
    let authority = rest.split('/').next().unwrap_or_default();
    let mark = if parameters.is_empty() { "" } else { "?" };
    Ok(format!("{scheme}://{authority}/{name}{mark}{parameters}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_database_of_the_same_server_keeps_its_parameters() {
        let check =
            |url: &str, expect: &str| assert_eq!(with_database(url, "mine").unwrap(), expect);
        check("postgres://u:p@h:1/postgres", "postgres://u:p@h:1/mine");
        check("postgresql://h", "postgresql://h/mine");
        check("postgres://h:1/x?sslmode=require", "postgres://h:1/mine?sslmode=require");
        assert!(with_database("host=h", "mine").is_err());
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users =
            "root:x:0:0::/:/bin/sh\npostgres2:x:9:9::/:/bin/sh\npostgres:x:101:104::/:/bin/sh\n";
        let user = user_named(users, "postgres").unwrap();
        assert_eq!((user.id, user.group), (101, 104));
        assert!(user_named(users, "nobody").is_none());
    }
}
