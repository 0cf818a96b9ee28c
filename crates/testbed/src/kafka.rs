//! An Apache Kafka node, broker and controller in one process (`KRaft`).
//!
//! `scripts/fetch-kafka.sh` puts it into the build folder, with a formatted data directory that each node begins with a copy of, and
//! an archive of its classes.
//!
//! A client of Kafka asks for the addresses of the brokers and connects to these, so a proxy cannot simply be put before one. A node
//! has further listeners that tell the address of a proxy as their own: [`Kafka::proxy`] starts it there.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use crate::http2::ServerIdentity;
use crate::keeper::Keeper;
use crate::{NotInstalled, Proxy, find, running_server};

/// A running node with one user, who comes by SASL PLAIN or SCRAM, and its topics in a private directory.
#[derive(Debug)]
pub struct Kafka {
    keeper: Keeper,
    port: u16,
    tls_port: u16,
    behind_proxies: Vec<BehindProxy>,
    proxies: AtomicUsize,
}

/// A listener, and the address that it tells as its own.
#[derive(Debug, Clone, Copy)]
struct BehindProxy {
    port: u16,
    advertised_port: u16,
}

const SERVER: &str = "kafka";
const USER: &str = "belfry";
const PASSWORD: &str = "a-password";
/// Proxies that may be put before one node, each once.
const PROXIES: usize = 6;

/// A request for the versions of the protocol, as any client may make before it says who it is: length, number of the request,
/// version 0, number of the call, no name of the client.
const VERSIONS_REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];

/// Settings that all nodes have. One partition of each inner topic is enough for one broker, and no group waits for further members.
const SETTINGS: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENT
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.partitions=1
num.network.threads=1
num.io.threads=2
background.threads=1
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304
";

/// The node that the tests of this process share, started by the first call. Topics and groups in it need names of their own
/// ([`unique_prefix`](crate::unique_prefix)).
///
/// # Errors
/// When it does not start.
pub fn shared() -> Result<&'static Kafka> {
    static SHARED: OnceLock<Result<Kafka, String>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| Kafka::start().map_err(|error| format!("{error:#}")));
    shared.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
}

/// The address of the node that the tests of this process share: the one that `BELFRY_TEST_KAFKA_URL` names, or [`shared`].
///
/// # Errors
/// When it does not start.
pub fn shared_url() -> Result<String> {
    running_server("BELFRY_TEST_KAFKA_URL").map_or_else(|| shared().map(Kafka::url), Ok)
}

// === impl Kafka ===

impl Kafka {
    /// Starts an empty node.
    ///
    /// # Errors
    /// When it was not fetched, there is no Java, or it does not start; its log is quoted.
    pub fn start() -> Result<Self> {
        Self::start_with("", None)
    }

    /// Starts an empty node with further lines of `server.properties`, and a listener for TLS if there is an `identity`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(settings: &str, identity: Option<ServerIdentity<'_>>) -> Result<Self> {
        let keeper = Keeper::new("belfry-kafka-", Signal::KILL)?;
        let (port, tls_port, controller_port) =
            (find::free_port()?, find::free_port()?, find::free_port()?);
        let mut behind_proxies = Vec::new();
        for _ in 0..PROXIES {
            let (port, advertised_port) = (find::free_port()?, find::free_port()?);
            behind_proxies.push(BehindProxy { port, advertised_port });
        }
        let proxies = AtomicUsize::new(0);
        let mut node = Self { keeper, port, tls_port, behind_proxies, proxies };
        let directory = node.keeper.directory();
        let mut text = SETTINGS.to_owned() + settings + "\n";
        if let Some(ServerIdentity { certificate, key }) = identity {
            let pem = directory.join("identity.pem");
            std::fs::write(&pem, format!("{key}\n{certificate}"))?;
            writeln!(text, "ssl.keystore.type=PEM\nssl.keystore.location={}", pem.display())?;
        }
        text += &node.listeners(controller_port, identity.is_some())?;
        writeln!(text, "log.dirs={}", directory.join("data").display())?;
        std::fs::write(directory.join("server.properties"), text)?;
        node.format()?;
        node.start_again()?;
        Ok(node)
    }

    /// `kafka://user:password@127.0.0.1:port`, by SASL PLAIN without TLS.
    pub fn url(&self) -> String {
        format!("kafka://{USER}:{PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// [`url`](Self::url) of the listener for TLS; the identity's certificate has to be one for `localhost`.
    pub fn tls_url(&self) -> String {
        format!("kafka://{USER}:{PASSWORD}@localhost:{}", self.tls_port)
    }

    /// Starts a proxy before it, by whose address a client stays with it.
    ///
    /// # Errors
    /// When as many as the node has listeners for were started before.
    pub fn proxy(&self) -> Result<Proxy> {
        let taken = self.proxies.fetch_add(1, Ordering::SeqCst);
        let listener = self.behind_proxies.get(taken);
        let listener = listener.with_context(|| format!("{PROXIES} proxies at most"))?;
        let server = format!("kafka://{USER}:{PASSWORD}@127.0.0.1:{}", listener.port);
        Proxy::at(listener.advertised_port, &server)
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        self.keeper.end(SERVER, Signal::KILL)
    }

    /// Starts it again after [`kill`](Self::kill), with its topics and at the same address.
    ///
    /// # Errors
    /// When it does not start; its log is quoted.
    pub fn start_again(&mut self) -> Result<()> {
        let place = place()?;
        let java = find::program("java", &[], &["/usr/bin", "/usr/lib/jvm/*/bin"])?;
        let mut command = Command::new(java);
        command
            // For a process that lives a minute: started quickly, and without threads that compile and collect beside it.
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m", "-Xmx384m"])
            .arg(format!("-XX:SharedArchiveFile={}", place.join("classes.jsa").display()))
            .args(["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
            .arg(classpath(&place)?)
            .arg("kafka.Kafka")
            .arg(self.keeper.directory().join("server.properties"));
        self.keeper.start(SERVER, &mut command)?;
        let port = self.port;
        self.keeper.await_ready(SERVER, || answers(port).unwrap_or(false))
    }

    /// Kills it, removes every topic and group, and starts it empty at the same address.
    ///
    /// # Errors
    /// As [`start_again`](Self::start_again).
    pub fn wipe(&mut self) -> Result<()> {
        self.kill()?;
        std::fs::remove_dir_all(self.keeper.directory().join("data"))
            .context("cannot remove the topics")?;
        self.format()?;
        self.start_again()
    }

    /// The node's process number while it runs, to measure or stop it.
    pub fn process(&self) -> Option<u32> {
        self.keeper.process(SERVER)
    }

    /// Copies the formatted directory.
    fn format(&self) -> Result<()> {
        let data = self.keeper.directory().join("data");
        std::fs::create_dir(&data)?;
        for entry in std::fs::read_dir(place()?.join("formatted"))? {
            let entry = entry?;
            std::fs::copy(entry.path(), data.join(entry.file_name()))?;
        }
        Ok(())
    }

    /// The settings of all listeners.
    fn listeners(&self, controller_port: u16, tls: bool) -> Result<String> {
        let mut all = vec![("CLIENT".to_owned(), "SASL_PLAINTEXT", self.port, self.port)];
        if tls {
            all.push(("TLS".to_owned(), "SASL_SSL", self.tls_port, self.tls_port));
        }
        for (number, listener) in self.behind_proxies.iter().enumerate() {
            let BehindProxy { port, advertised_port } = *listener;
            all.push((format!("PROXY{number}"), "SASL_PLAINTEXT", port, advertised_port));
        }
        let mut text = format!("controller.quorum.voters=1@127.0.0.1:{controller_port}\n");
        let mut listeners = format!("listeners=CONTROLLER://127.0.0.1:{controller_port}");
        let mut protocols = "listener.security.protocol.map=CONTROLLER:PLAINTEXT".to_owned();
        let mut advertised = Vec::new();
        for (name, protocol, port, advertised_port) in all {
            write!(listeners, ",{name}://127.0.0.1:{port}")?;
            write!(protocols, ",{name}:{protocol}")?;
            let host = if name == "TLS" { "localhost" } else { "127.0.0.1" };
            advertised.push(format!("{name}://{host}:{advertised_port}"));
            let prefix = format!("listener.name.{}", name.to_lowercase());
            let module = "org.apache.kafka.common.security";
            writeln!(
                text,
                "{prefix}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required \
                 username=\"{USER}\" password=\"{PASSWORD}\" user_{USER}=\"{PASSWORD}\";"
            )?;
            for hash in ["256", "512"] {
                let login = format!("{module}.scram.ScramLoginModule required;");
                writeln!(text, "{prefix}.scram-sha-{hash}.sasl.jaas.config={login}")?;
            }
        }
        let advertised = advertised.join(",");
        writeln!(text, "{listeners}\n{protocols}\nadvertised.listeners={advertised}")?;
        Ok(text)
    }
}

/// Where the version in use lies.
fn place() -> Result<PathBuf> {
    let link = find::build_folder()?.join("servers/kafka");
    Ok(link.canonicalize().map_err(|_absent| {
        NotInstalled::new("Kafka", &link.to_string_lossy(), "scripts/fetch-kafka.sh")
    })?)
}

/// The jars, in the order in which the archive of classes knows them.
fn classpath(place: &Path) -> Result<std::ffi::OsString> {
    let entries: std::io::Result<Vec<_>> = std::fs::read_dir(place.join("lib"))?.collect();
    let mut jars: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
    jars.sort();
    Ok(std::env::join_paths(jars)?)
}

/// Whether the node on `port` answers.
fn answers(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(&VERSIONS_REQUEST)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    // Behind its length comes the number of the call.
    Ok(answer.ends_with(&[0, 0, 0, 7]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_killed_and_comes_back_and_is_wiped() {
        let mut node = Kafka::start().unwrap();
        let first = node.process().unwrap();
        node.kill().unwrap();
        assert!(TcpStream::connect(("127.0.0.1", node.port)).is_err());
        node.start_again().unwrap();
        assert_ne!(node.process().unwrap(), first);
        node.wipe().unwrap();
        let proxy = node.proxy().unwrap();
        assert!(proxy.url().starts_with("kafka://belfry:a-password@127.0.0.1:"));
    }
}
