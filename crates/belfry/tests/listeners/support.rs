//! A directory to work in, an engine, and connections to it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bench::KillGuard;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const BELFRY: &str = env!("CARGO_BIN_EXE_belfry");
/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A channel that sends nothing.
pub(crate) const CHANNEL: &str = "[channels.rehearsal]\nkind = \"dry-run\"\n";

/// A directory with a configuration.
pub(crate) struct Workspace {
    directory: TempDir,
}

/// An engine, ended with its handle.
pub(crate) struct Engine {
    child: Child,
    /// Its first line of output.
    pub(crate) ready: Value,
    /// Dropped after the child was ended.
    _watch: KillGuard,
}

/// An authority that signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

pub(crate) type TlsConnection = StreamOwned<ClientConnection, TcpStream>;

// === impl Workspace ===

impl Workspace {
    /// A directory with this configuration.
    pub(crate) fn new(config: &str) -> Self {
        let workspace = Self { directory: tempfile::tempdir().unwrap() };
        workspace.write("belfry.toml", config);
        workspace
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file as a whole: a reader sees the old one or the new one.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let made = self.path(&format!("{name}.new"));
        fs::write(&made, text).unwrap();
        fs::rename(made, self.path(name)).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// `belfry` in the directory, with an environment that says nothing of Belfry.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BELFRY);
        command.current_dir(self.directory.path()).args(arguments).env_clear();
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed; gives its output.
    pub(crate) fn get(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts an engine whose log goes to `log`.
    pub(crate) fn start(&self) -> Engine {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut child =
            self.command(&["serve"]).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let watch = KillGuard::over(&child).unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready = serde_json::from_str(&ready).unwrap_or_else(|_| panic!("{}", self.log()));
        Engine { child, ready, _watch: watch }
    }

    /// Waits until the log has `text`.
    pub(crate) fn await_log(&self, text: &str) {
        eventually(text, || self.log().contains(text));
    }

    /// Makes a certificate for `localhost`, signed by `authority`, as `certificate.pem` and `key.pem`.
    pub(crate) fn certify(&self, authority: &Authority) {
        let (certificate, key) = authority.sign("localhost");
        // In this order, there is a moment in which they do not match.
        self.write("key.pem", &key);
        self.write("certificate.pem", &certificate);
    }
}

// === impl Engine ===

impl Engine {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Sends `signal` and waits for its end.
    pub(crate) fn end(mut self, signal: Signal) {
        self.signal(signal);
        self.child.wait().unwrap();
    }

    /// The address at `pointer` of its first line.
    pub(crate) fn address(&self, pointer: &str) -> String {
        self.ready.pointer(pointer).unwrap().as_str().unwrap().to_owned()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

// === impl Authority ===

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate, PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `name`, and its key, PEM.
    pub(crate) fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A client that trusts this authority alone, and shows `identity` if a certificate is asked for.
    pub(crate) fn client(&self, identity: Option<&(String, String)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(rustls::DEFAULT_VERSIONS).unwrap();
        let builder = builder.with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        })
    }

    /// Calls `address` by TLS with [`client`](Self::client).
    pub(crate) fn call(
        &self,
        address: &str,
        identity: Option<&(String, String)>,
    ) -> std::io::Result<TlsConnection> {
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(self.client(identity), name).unwrap();
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut stream = StreamOwned::new(connection, socket);
        stream.flush()?;
        Ok(stream)
    }
}

/// Asks for `path` and reads the answer, whose body ends with `end`.
pub(crate) fn get(
    stream: &mut (impl Read + Write),
    path: &str,
    end: &str,
) -> std::io::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    stream.flush()?;
    read_until(stream, end)
}

/// Reads until `end` has come, and gives everything so far.
pub(crate) fn read_until(stream: &mut impl Read, end: &str) -> std::io::Result<String> {
    let (mut text, mut piece) = (Vec::new(), [0; 16 * 1024]);
    while !String::from_utf8_lossy(&text).contains(end) {
        let length = stream.read(&mut piece)?;
        if length == 0 {
            let text = String::from_utf8_lossy(&text);
            return Err(std::io::Error::other(format!("ended without {end:?}: {text}")));
        }
        text.extend_from_slice(&piece[..length]);
    }
    Ok(String::from_utf8(text).unwrap())
}

/// Looks until `is_so`.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = flow::Clock::system();
    let started = clock.monotonic();
    while !is_so() {
        assert!(clock.monotonic().duration_since(started) < PATIENCE, "never: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
