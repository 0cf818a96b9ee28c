//! From a destination to a server: the relay, or the mail exchangers of a domain (RFC 5321, section 5.1).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use tokio::net::TcpStream;

use super::UNACKNOWLEDGED_MAX;
use super::config::{Relay, Tls};
use super::session::{Connection, Manners, NoConnection, Server};
use crate::ChannelError;
use crate::endpoint::Host;
use crate::guard::{Forbidden, Guard};
use crate::tcp::{self, Anywhere, ConnectError, Reach};

/// Knows the way to destinations.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) manners: Manners,
    pub(super) way: Way,
}

/// A way.
#[derive(Debug)]
pub(super) enum Way {
    /// To one server.
    Relay(Relay),
    /// To the servers of each domain.
    Exchangers(Box<Exchangers>),
}

/// Finds the mail exchangers of domains.
pub(super) struct Exchangers {
    resolver: TokioResolver,
    /// Passes the addresses that may be connected to: a recipient's domain is a stranger's choice.
    guard: Guard,
    port: u16,
}

/// How long TCP may take, with the name's resolution.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long everything after it may take until mail can be sent. RFC 5321 has five minutes for the greeting alone, which
/// is all that an attempt has; who needs more than this will not be faster afterwards.
const SESSION_TIMEOUT: Duration = Duration::from_secs(90);
/// Exchangers of one domain that are tried within an attempt.
const EXCHANGERS_MAX: usize = 2;

// === impl Router ===

impl Router {
    /// Makes a connection over which mail for `destination` can be sent.
    pub(super) async fn connect(&self, destination: &str) -> Result<Connection, NoConnection> {
        match &self.way {
            Way::Relay(relay) => {
                let server = Server { name: relay.host.clone(), is_implicit: relay.is_implicit };
                let host = match relay.host.parse() {
                    Ok(address) => Host::Address(address),
                    Err(_) => Host::Name(relay.host.clone()),
                };
                self.begin(&server, async || dial(&host, relay.port, &Anywhere).await).await
            }
            Way::Exchangers(exchangers) => {
                let mut last =
                    NoConnection::Unreachable("the domain has no mail server".to_owned());
                for host in exchangers.of(destination).await?.into_iter().take(EXCHANGERS_MAX) {
                    let server = Server { name: host.clone(), is_implicit: false };
                    match self.begin(&server, async || exchangers.dial(&host).await).await {
                        Ok(connection) => return Ok(connection),
                        Err(why) => last = why,
                    }
                }
                Err(last)
            }
        }
    }

    async fn begin(
        &self,
        server: &Server,
        dial: impl AsyncFn() -> Result<TcpStream, NoConnection>,
    ) -> Result<Connection, NoConnection> {
        let begun = self.begin_with(&self.manners, server, dial().await?).await;
        if self.manners.tls == Tls::Opportunistic
            && let Err(NoConnection::Misconfigured(why)) = &begun
        {
            tracing::debug!(server = server.name, why, "sends without encryption");
            let plain = Manners { tls: Tls::Off, ..self.manners.clone() };
            return self.begin_with(&plain, server, dial().await?).await;
        }
        begun
    }

    async fn begin_with(
        &self,
        manners: &Manners,
        server: &Server,
        tcp: TcpStream,
    ) -> Result<Connection, NoConnection> {
        let begin = Box::pin(manners.begin(tcp, server));
        tokio::time::timeout(SESSION_TIMEOUT, begin).await.unwrap_or_else(|_elapsed| {
            let name = &server.name;
            Err(NoConnection::Unreachable(format!("{name} was not ready for mail within 90 s")))
        })
    }
}

// === impl Exchangers ===

impl Exchangers {
    /// Asks `name_servers`, or those of this machine when there are none. Connects to nothing.
    pub(super) fn new(
        name_servers: &[SocketAddr],
        guard: Guard,
        port: u16,
    ) -> Result<Self, ChannelError> {
        let refuse = |error: &dyn std::fmt::Display| ChannelError::Setting {
            setting: "name_servers",
            message: format!("name some, since those of this machine cannot be used: {error}"),
        };
        let builder = if name_servers.is_empty() {
            TokioResolver::builder_tokio().map_err(|error| refuse(&error))?
        } else {
            let servers = name_servers.iter().map(|address| {
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                for connection in &mut server.connections {
                    connection.port = address.port();
                }
                server
            });
            let config = ResolverConfig::from_name_servers(servers.collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let resolver = builder.build().map_err(|error| refuse(&error))?;
        Ok(Self { resolver, guard, port })
    }

    /// The hosts that take mail for `domain`, the preferred one first.
    async fn of(&self, domain: &str) -> Result<Vec<String>, NoConnection> {
        let gone = |why: &str| Err(NoConnection::Gone(format!("{domain} {why}")));
        let lookup = match self.resolver.mx_lookup(format!("{domain}.")).await {
            Ok(lookup) => lookup,
            Err(error) if error.is_nx_domain() => return gone("does not exist"),
            // No exchanger: the domain itself is the host.
            Err(error) if error.is_no_records_found() => return Ok(vec![domain.to_owned()]),
            Err(error) => return Err(NoConnection::Unreachable(format!("{domain}: {error}"))),
        };
        let mut hosts: Vec<(u16, String)> = Vec::new();
        for record in lookup.answers() {
            if let RData::MX(mx) = &record.data {
                let host = mx.exchange.to_string().trim_end_matches('.').to_ascii_lowercase();
                hosts.push((mx.preference, host));
            }
        }
        hosts.sort();
        match hosts.as_slice() {
            [] => Ok(vec![domain.to_owned()]),
            [(_, root)] if root.is_empty() => gone("takes no mail (null MX, RFC 7505)"),
            _ => Ok(hosts.into_iter().map(|(_, host)| host).collect()),
        }
    }

    /// Connects to `host`, if all of its addresses may be connected to.
    async fn dial(&self, host: &str) -> Result<TcpStream, NoConnection> {
        dial(&Host::Name(host.to_owned()), self.port, self).await
    }
}

#[async_trait]
impl Reach for Exchangers {
    async fn resolve(&self, host: &Host, port: u16) -> io::Result<Vec<SocketAddr>> {
        let found = self.resolver.lookup_ip(format!("{host}.")).await.map_err(io::Error::other)?;
        Ok(found.iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        self.guard.check(address)
    }
}

impl std::fmt::Debug for Exchangers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Exchangers").field("port", &self.port).finish_non_exhaustive()
    }
}

async fn dial(host: &Host, port: u16, reach: &dyn Reach) -> Result<TcpStream, NoConnection> {
    let connecting = tcp::connect(host, port, reach, UNACKNOWLEDGED_MAX);
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(ConnectError::Forbidden(forbidden))) => Err(NoConnection::Forbidden(forbidden)),
        Ok(Err(ConnectError::Failed(why))) => Err(NoConnection::Unreachable(why)),
        Err(_elapsed) => Err(NoConnection::Unreachable("no connection within 30 s".to_owned())),
    }
}
