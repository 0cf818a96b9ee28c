//! HTTP/2 servers of others, over TLS: nghttpd, nginx, `HAProxy`, and small programs for Node.js,
//! Go's `net/http` and Netty.
//!
//! They answer requests by the first part of a path, each as far as it can ([`Http2Program`] says who does what):
//!
//! - `/echo/…` reads the whole request, and tells in header fields what came: `x-path`, `x-number` and `x-token` as they were
//!   sent, `x-length` and `x-hash` of the body (FNV-1a, 32 bits, hexadecimal).
//! - `/early/…` is answered as above before the body was read.
//! - `/held/…` is not answered before the server begins to end, but with [`HELD`] a second after the request by some.
//! - `/large/…` has an answer of [`LARGE_BYTES`].
//! - `/trailers/…` has what comes in front of an answer and behind it: heads of 103, and a field behind the body.
//!
//! Each notes the path of a request when it acts on it, or has answered it ([`Http2Server::requests`]).

mod go;
mod haproxy;
mod netty;
mod nghttpd;
mod nginx;
mod node;

use std::ffi::OsString;
use std::net::TcpStream;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::find;
use crate::keeper::Keeper;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http2Program {
    /// Of nghttp2. It serves files and echoes nothing: `/length/N` is a file of `N` bytes, up to [`LENGTHS`]. `/trailers/0` has
    /// padded frames and a trailer.
    Nghttpd,
    /// `/echo/` without a hash, `/early/` without a length too, `/held/` after a second, `/large/0`, `/trailers/0` without 103.
    /// It passes `/echo/` on to itself: once it has begun to end, with 502.
    Nginx,
    /// `/echo/` and `/early/` without length and hash, `/held/` after a second and without a field. Its table has at least 4 KiB.
    Haproxy,
    /// All paths; `/held/` is never answered. It says no GOAWAY here: version 20 often crashes then, with streams under way
    /// (glibc finds its heap corrupted).
    Node,
    /// All paths; `/held/` as `/echo/`.
    Go,
    /// All paths; `/held/` as `/echo/`. Its heads and bodies are padded. Debian's offers no TLS 1.3.
    Netty,
}

/// Limits that a server is started with; `None` is its own default. It refuses to start with what it has no setting for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Http2Limits {
    /// Streams of a connection at a time.
    pub streams: Option<u32>,
    /// The window that a stream begins with, bytes.
    pub window_bytes: Option<u32>,
    /// The table of header fields that requests may use, bytes.
    pub table_bytes: Option<u32>,
    /// Requests of a connection, after which it ends.
    pub requests: Option<u32>,
}

/// A certificate for 127.0.0.1 and its key, PEM.
#[derive(Debug, Clone, Copy)]
pub struct ServerIdentity<'a> {
    /// The certificate.
    pub certificate: &'a str,
    /// Its key.
    pub key: &'a str,
}

/// A running HTTP/2 server.
#[derive(Debug)]
pub struct Http2Server {
    program: Http2Program,
    keeper: Keeper,
    port: u16,
    command_line: Vec<OsString>,
}

/// The status of an answer to `/held/…` that comes after a second.
pub const HELD: u16 = 504;
/// The body of an answer to `/large/…`, bytes. nghttpd has none.
pub const LARGE_BYTES: usize = 300_000;
/// The largest file of nghttpd's `/length/…`, bytes, and how many there are.
pub const LENGTHS: usize = 2_000;

const SERVER: &str = "http2-server";

// === impl Http2Program ===

impl Http2Program {
    /// Toolchain that the server is built with, if the machine lacks it: `scripts/setup-servers.sh` installs no Go toolchain and no JDK.
    pub fn lacks(self) -> Option<&'static str> {
        match self {
            Self::Go => go::toolchain().is_err().then_some("a Go toolchain"),
            Self::Netty => netty::toolchain().is_err().then_some("a JDK"),
            Self::Nghttpd | Self::Nginx | Self::Haproxy | Self::Node => None,
        }
    }
}

// === impl Http2Server ===

impl Http2Server {
    /// Starts a server.
    ///
    /// # Errors
    /// When it is missing, it has no such limit, or it does not start; its log is quoted.
    pub fn start(
        program: Http2Program,
        identity: ServerIdentity<'_>,
        limits: Http2Limits,
    ) -> Result<Self> {
        // Workers end with their master, which is told to be quick.
        let keeper = Keeper::new("belfry-http2-", Signal::TERM)?;
        let (directory, port) = (keeper.directory().to_owned(), find::free_port()?);
        std::fs::write(directory.join("certificate.pem"), identity.certificate)?;
        std::fs::write(directory.join("key.pem"), identity.key)?;
        let place = ServerPlace { directory, port };
        let command_line = match program {
            Http2Program::Nghttpd => nghttpd::command_line(&place, limits),
            Http2Program::Nginx => nginx::command_line(&place, limits),
            Http2Program::Haproxy => haproxy::command_line(&place, limits),
            Http2Program::Node => node::command_line(&place, limits),
            Http2Program::Go => go::command_line(&place, limits),
            Http2Program::Netty => netty::command_line(&place, limits),
        }?;
        let mut server = Self { program, keeper, port, command_line };
        server.start_again()?;
        Ok(server)
    }

    /// Its port of 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Ends it gracefully: it takes no further connections and tells its clients to go, answers what is under way, and is
    /// waited for. nghttpd and Node.js end at once.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn end(&mut self) -> Result<()> {
        self.keeper.end(
            SERVER,
            match self.program {
                Http2Program::Nginx => Signal::QUIT,
                Http2Program::Haproxy => Signal::USR1,
                Http2Program::Nghttpd
                | Http2Program::Node
                | Http2Program::Go
                | Http2Program::Netty => Signal::TERM,
            },
        )
    }

    /// Ends it by SIGKILL, and the processes that it has started.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.keeper.kill_group(SERVER)
    }

    /// Starts it again after [`end`](Self::end) or [`kill`](Self::kill), at the same address.
    ///
    /// # Errors
    /// When it does not start; its log is quoted.
    pub fn start_again(&mut self) -> Result<()> {
        let [program, arguments @ ..] = self.command_line.as_slice() else {
            anyhow::bail!("a command line begins with a program")
        };
        let mut command = find::command_of(program.as_ref());
        command.args(arguments);
        self.keeper.start(SERVER, &mut command)?;
        let port = self.port;
        let is_ready = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        self.keeper.await_ready(SERVER, is_ready)
    }

    /// The paths of the requests that it has noted, in the order of its log, since it was started first. All of them are there
    /// when it has ended gracefully, except that `HAProxy` leaves lines out when it has much to say.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn requests(&self) -> Result<Vec<String>> {
        let mark = match self.program {
            // It notes every header field.
            Http2Program::Nghttpd => " :path: ",
            Http2Program::Nginx
            | Http2Program::Haproxy
            | Http2Program::Node
            | Http2Program::Go
            | Http2Program::Netty => "request: ",
        };
        let log = std::fs::read(self.keeper.log(SERVER)).context("there is no log")?;
        let log = String::from_utf8_lossy(&log);
        Ok(log.lines().filter_map(|line| Some(line.split_once(mark)?.1.to_owned())).collect())
    }
}

/// Where a server has its files, `certificate.pem` and `key.pem` among them, and its port.
#[derive(Debug)]
struct ServerPlace {
    directory: PathBuf,
    port: u16,
}

// === impl ServerPlace ===

impl ServerPlace {
    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The path of a new file with this text.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.file(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

// === impl Http2Limits ===

impl Http2Limits {
    /// Refuses a limit that a server has no setting for.
    fn refuse(limit: Option<u32>, what: &str) -> Result<()> {
        ensure!(limit.is_none(), "this server has no setting for {what}");
        Ok(())
    }
}
