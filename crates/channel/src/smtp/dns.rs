//! Where the mail of a domain goes, by DNS.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};

use crate::{ChannelError, Resolve};

/// Finds the mail exchangers of domains, and the addresses of hosts.
///
/// Both say [`io::ErrorKind::NotFound`] when the answer is that there is nothing, so that no other will come; any other
/// error means that there is no answer for now.
#[async_trait]
pub trait ResolveMail: Resolve {
    /// The MX records of `domain`, in any order: none when it has none, `NotFound` when there is no such domain.
    async fn exchangers(&self, domain: &str) -> io::Result<Vec<Exchanger>>;
}

/// An MX record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchanger {
    /// Lower ones come first.
    pub preference: u16,
    /// A host's name without the final dot, unchecked. Empty where the domain takes no mail (RFC 7505).
    pub host: String,
}

/// Asks name servers.
pub(super) struct Dns(TokioResolver);

// === impl Dns ===

impl Dns {
    /// Asks `name_servers`, or those of this machine when there are none. Connects to nothing.
    pub(super) fn new(name_servers: &[SocketAddr]) -> Result<Self, ChannelError> {
        let refuse = |error: &dyn std::fmt::Display| {
            let why = "name some, since those of this machine cannot be used";
            ChannelError::setting("name_servers", format!("{why}: {error}"))
        };
        let builder = if name_servers.is_empty() {
            TokioResolver::builder_tokio().map_err(|error| refuse(&error))?
        } else {
            let servers = name_servers.iter().map(|address| {
                // TCP as well: an answer that is cut off over UDP is asked for over it (RFC 7766, section 5).
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                for connection in &mut server.connections {
                    connection.port = address.port();
                }
                server
            });
            let config = ResolverConfig::from_name_servers(servers.collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        builder.build().map(Self).map_err(|error| refuse(&error))
    }
}

#[async_trait]
impl Resolve for Dns {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        // The dot keeps the resolver from trying the search domains of this machine.
        let name = format!("{name}.");
        let (v4, v6) = tokio::join!(
            self.0.lookup(name.as_str(), RecordType::A),
            self.0.lookup(name.as_str(), RecordType::AAAA),
        );
        let (mut addresses, mut failure) = (Vec::new(), None);
        for found in [v4, v6] {
            match found {
                Ok(found) => {
                    let found = found.answers().iter().filter_map(|record| record.data.ip_addr());
                    addresses.extend(found.map(|address| SocketAddr::new(address, port)));
                }
                Err(error) if error.is_no_records_found() => {}
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            // One family is enough; that there is nothing takes the word of both.
            Some(error) if addresses.is_empty() => Err(io::Error::other(error)),
            _ if addresses.is_empty() => Err(nothing()),
            _ => Ok(addresses),
        }
    }
}

#[async_trait]
impl ResolveMail for Dns {
    async fn exchangers(&self, domain: &str) -> io::Result<Vec<Exchanger>> {
        let found = match self.0.mx_lookup(format!("{domain}.")).await {
            Ok(found) => found,
            Err(error) if error.is_nx_domain() => return Err(nothing()),
            // Then the domain itself is the host (RFC 5321, section 5.1).
            Err(error) if error.is_no_records_found() => return Ok(Vec::new()),
            Err(error) => return Err(io::Error::other(error)),
        };
        let mut exchangers = Vec::new();
        for record in found.answers() {
            if let RData::MX(mx) = &record.data {
                // The root, which a null MX names (RFC 7505, section 3), becomes the empty text.
                let host = mx.exchange.to_string().trim_end_matches('.').to_owned();
                exchangers.push(Exchanger { preference: mx.preference, host });
            }
        }
        Ok(exchangers)
    }
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Dns").finish_non_exhaustive()
    }
}

fn nothing() -> io::Error {
    io::ErrorKind::NotFound.into()
}
