//! From a destination to a server: the relay, or the mail exchangers of a domain (RFC 5321, section 5.1).

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use net::connection_counts::ConnectFault;
use net::endpoint::Host;
use net::guard::Guard;
use net::tcp::{self, Anywhere, ConnectError};
use tokio::net::TcpStream;

use super::config::{Relay, TlsMode};
use super::dns::ResolveMail;
use super::session::{NoConnection, SessionConfig, SmtpServer, SmtpSession};

/// Connects to the servers of destinations.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) session_config: SessionConfig,
    pub(super) servers: Servers,
}

/// The servers that take a channel's mail.
#[derive(Debug)]
pub(super) enum Servers {
    /// One server for all destinations.
    Relay(Relay),
    /// The mail exchangers of each domain.
    Exchangers(Exchangers),
}

/// The mail exchangers of domains.
#[derive(Debug)]
pub(super) struct Exchangers {
    pub(super) resolver: Arc<dyn ResolveMail>,
    /// Decides which addresses may be connected to: callers choose the domains.
    pub(super) guard: Guard,
    pub(super) port: u16,
}

/// How long a server may leave sent bytes unread or unacknowledged: more than the 3 minutes that a block of a message has (RFC 5321,
/// section 4.5.3.2.5), in which a server may well look at what it got so far.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_mins(4);
/// How long TCP may take, with the name's resolution.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long everything after it may take until mail can be sent. RFC 5321 has five minutes for the greeting alone, which
/// is all that an attempt has; a server that needs more than this will not be faster afterwards.
const SESSION_TIMEOUT: Duration = Duration::from_secs(90);
/// Exchangers of one domain that are called within an attempt (two are the least, RFC 5321, section 5.1), and those that
/// are looked up for it.
const CALLED_MAX: usize = 2;
const LOOKED_UP_MAX: usize = 8;

// === impl Router ===

impl Router {
    /// Makes a connection over which mail for `destination` can be sent.
    pub(super) async fn connect(
        &self,
        destination: &str,
        random: &RefCell<fastrand::Rng>,
    ) -> Result<SmtpSession, NoConnection> {
        match &self.servers {
            Servers::Relay(relay) => {
                let server =
                    SmtpServer { name: relay.host.clone(), is_implicit: relay.is_implicit };
                let host = match relay.host.parse() {
                    Ok(address) => Host::Address(address),
                    Err(_) => Host::Name(relay.host.clone()),
                };
                let connect =
                    || dial(tcp::connect(&host, relay.port, &Anywhere, UNACKNOWLEDGED_MAX));
                self.begin(&server, connect).await
            }
            Servers::Exchangers(exchangers) => {
                let hosts = exchangers.of(destination, random).await?;
                self.connect_to_one_of(exchangers, hosts).await
            }
        }
    }

    /// Connects to the first of `hosts` that takes mail. If there is none, what may pass is told before what will not: the
    /// host of which it is said can take the mail another time.
    async fn connect_to_one_of(
        &self,
        exchangers: &Exchangers,
        hosts: Vec<String>,
    ) -> Result<SmtpSession, NoConnection> {
        let (mut passing, mut lasting) = (Vec::new(), None);
        for host in hosts.into_iter().take(LOOKED_UP_MAX) {
            // In one spelling: what is learned of the limits of a host is found by its name.
            let server = SmtpServer { name: host.to_ascii_lowercase(), is_implicit: false };
            match self.begin(&server, async || exchangers.dial(&host).await).await {
                Ok(connection) => return Ok(connection),
                // RFC 7504: this host takes no mail at all.
                Err(NoConnection::Busy(reply)) if reply.code == 521 => {
                    let why = format!("{host} takes no mail: {}", reply.detail());
                    lasting.get_or_insert(NoConnection::NoHost(ConnectFault::Protocol, why));
                }
                Err(why @ (NoConnection::NoHost(..) | NoConnection::NullMx(_))) => {
                    lasting.get_or_insert(why);
                }
                Err(
                    why @ (NoConnection::Unreachable(..)
                    | NoConnection::Busy(_)
                    | NoConnection::NotLoggedIn(_)
                    | NoConnection::Misconfigured(..)),
                ) => passing.push(why),
            }
            if passing.len() == CALLED_MAX {
                break;
            }
        }
        let no_host = || {
            let why = "the domain has no mail server".to_owned();
            NoConnection::NoHost(ConnectFault::Resolve, why)
        };
        Err(passing.pop().or(lasting).unwrap_or_else(no_host))
    }

    async fn begin(
        &self,
        server: &SmtpServer,
        dial: impl AsyncFn() -> Result<TcpStream, NoConnection>,
    ) -> Result<SmtpSession, NoConnection> {
        let begun = self.begin_with(&self.session_config, server, dial().await?).await;
        if self.session_config.tls == TlsMode::Opportunistic
            && let Err(NoConnection::Misconfigured(_, why)) = &begun
        {
            tracing::debug!(server = server.name, why, "sends without encryption");
            // Over a new connection: one whose handshake failed speaks neither protocol any more.
            let plain = SessionConfig { tls: TlsMode::Off, ..self.session_config.clone() };
            return self.begin_with(&plain, server, dial().await?).await;
        }
        begun
    }

    async fn begin_with(
        &self,
        session_config: &SessionConfig,
        server: &SmtpServer,
        tcp: TcpStream,
    ) -> Result<SmtpSession, NoConnection> {
        let begin = Box::pin(session_config.begin(tcp, server));
        let mut connection =
            tokio::time::timeout(SESSION_TIMEOUT, begin).await.unwrap_or_else(|_elapsed| {
                let why = format!("{} was not ready for mail within 90 s", server.name);
                Err(NoConnection::Unreachable(ConnectFault::Timeout, why))
            })?;
        connection.host = server.name.as_str().into();
        Ok(connection)
    }
}

// === impl Exchangers ===

impl Exchangers {
    /// The hosts that take mail for `domain`, the preferred one first, those of one preference in any order.
    async fn of(
        &self,
        domain: &str,
        random: &RefCell<fastrand::Rng>,
    ) -> Result<Vec<String>, NoConnection> {
        let mut found = match self.resolver.exchangers(domain).await {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Our own name servers' word, which may be wrong for a while: the recipient is not listed for it.
                let why = format!("{domain} does not exist");
                return Err(NoConnection::NoHost(ConnectFault::Resolve, why));
            }
            Err(error) => {
                let why = format!("{domain}: {error}");
                return Err(NoConnection::Unreachable(ConnectFault::Resolve, why));
            }
        };
        if found.is_empty() {
            // The domain itself is the host.
            return Ok(vec![domain.to_owned()]);
        }
        if found.iter().all(|exchanger| exchanger.host.is_empty()) {
            let why = format!("{domain} takes no mail (null MX, RFC 7505)");
            return Err(NoConnection::NullMx(why));
        }
        // The sort is stable, so hosts of one preference stay in random order, as RFC 5321, section 5.1, demands.
        random.borrow_mut().shuffle(&mut found);
        found.sort_by_key(|exchanger| exchanger.preference);
        Ok(found.into_iter().map(|exchanger| exchanger.host).collect())
    }

    /// Connects to `host`, if it is a name and all of its addresses may be connected to.
    async fn dial(&self, host: &str) -> Result<TcpStream, NoConnection> {
        let no_host =
            |why: &str| Err(NoConnection::NoHost(ConnectFault::Resolve, format!("{host:?} {why}")));
        let Ok(Host::Name(name)) = Host::parse(host) else {
            return no_host("is to take the mail, and is not the name of a host");
        };
        let looking_up = self.resolver.resolve(&name, self.port);
        let addresses = match tokio::time::timeout(CONNECT_TIMEOUT, looking_up).await {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return no_host("is to take the mail, and has no address");
            }
            Ok(Err(error)) => {
                let why = format!("{name}: {error}");
                return Err(NoConnection::Unreachable(ConnectFault::Resolve, why));
            }
            Err(_elapsed) => {
                let why = format!("{name}: no address within 30 s");
                return Err(NoConnection::Unreachable(ConnectFault::Timeout, why));
            }
        };
        // These very addresses are checked and connected to.
        dial(tcp::connect_to(addresses, &self.guard, UNACKNOWLEDGED_MAX)).await
    }
}

async fn dial(
    connecting: impl Future<Output = Result<TcpStream, ConnectError>>,
) -> Result<TcpStream, NoConnection> {
    let unreachable = |fault, why| Err(NoConnection::Unreachable(fault, why));
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(ConnectError::Forbidden(forbidden))) => {
            Err(NoConnection::NoHost(ConnectFault::Forbidden, forbidden.to_string()))
        }
        Ok(Err(ConnectError::Unresolved(why))) => unreachable(ConnectFault::Resolve, why),
        Ok(Err(ConnectError::Failed(why))) => unreachable(ConnectFault::Connect, why),
        Err(_elapsed) => unreachable(ConnectFault::Timeout, "no connection within 30 s".to_owned()),
    }
}
