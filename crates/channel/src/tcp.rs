//! TCP as all channels use it. The only way to a connection leads through [`Reach::check`], with the address that is
//! then connected to: a name that resolves to another address the next time gains nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::endpoint::Host;
use crate::guard::{Forbidden, Guard};

/// Finds the addresses of a host, and says which of them may be connected to.
#[async_trait]
pub(crate) trait Reach: Send + Sync + std::fmt::Debug {
    /// The addresses of `host`; by default as this machine resolves it.
    async fn resolve(&self, host: &Host, port: u16) -> io::Result<Vec<SocketAddr>> {
        match host {
            Host::Address(address) => Ok(vec![SocketAddr::new(*address, port)]),
            Host::Name(name) => Ok(tokio::net::lookup_host((name.as_str(), port)).await?.collect()),
        }
    }

    /// Whether `address` may be connected to.
    fn check(&self, address: IpAddr) -> Result<(), Forbidden>;

    /// Whether our own settings name what is reached, so that trouble with it is worth a line in the log; else a
    /// stranger chose it.
    fn is_ours(&self) -> bool {
        false
    }
}

/// Reaches everything: for what the settings name, who may name what they like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anywhere;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectError {
    /// It must not be connected to.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// It cannot be, for now.
    #[error("{0}")]
    Failed(String),
}

/// How long sent bytes may stay unacknowledged before the kernel gives the connection up. Keeps a peer that
/// vanished without a word from holding requests for the kernel's own quarter of an hour.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);

/// Connects to the first address of `host` that answers, if `reach` lets it. The caller bounds the time.
pub(crate) async fn connect(
    host: &Host,
    port: u16,
    reach: &dyn Reach,
) -> Result<TcpStream, ConnectError> {
    let addresses = reach
        .resolve(host, port)
        .await
        .map_err(|error| ConnectError::Failed(format!("the name cannot be resolved: {error}")))?;
    // One bad address condemns the name: whoever mixes them is not to be trusted with the others.
    for address in &addresses {
        reach.check(address.ip())?;
    }
    let failed = |error: io::Error| ConnectError::Failed(error.to_string());
    let stream = first_that_answers(addresses).await.map_err(failed)?;
    reach.check(stream.peer_addr().map_err(failed)?.ip())?;
    // Small requests must not wait for the acknowledgement of the one before.
    stream.set_nodelay(true).map_err(failed)?;
    SockRef::from(&stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX)).map_err(failed)?;
    Ok(stream)
}

async fn first_that_answers(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

// === impl Guard ===

#[async_trait]
impl Reach for Guard {
    async fn resolve(&self, host: &Host, port: u16) -> io::Result<Vec<SocketAddr>> {
        match host {
            Host::Address(address) => Ok(vec![SocketAddr::new(*address, port)]),
            Host::Name(name) => self.resolver().resolve(name, port).await,
        }
    }

    fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        Self::check(self, address)
    }
}

// === impl Anywhere ===

impl Reach for Anywhere {
    fn check(&self, _address: IpAddr) -> Result<(), Forbidden> {
        Ok(())
    }

    fn is_ours(&self) -> bool {
        true
    }
}
