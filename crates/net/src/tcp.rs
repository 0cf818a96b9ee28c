//! TCP connections. [`connect_to`] is the only function that makes one, and it asks [`Reach::check`] with the very address that is
//! then connected to: a name that resolves to another address the next time gains nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::endpoint::Host;
use crate::guard::{Forbidden, Guard};

/// Finds the addresses of a name, and says which addresses may be connected to.
#[async_trait]
pub trait Reach: Send + Sync + std::fmt::Debug {
    /// The addresses of `name`, each with `port`; by default as this machine resolves it.
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((name, port)).await?.collect())
    }

    /// Admits `address` to be connected to.
    ///
    /// # Errors
    /// When it must not be connected to.
    fn check(&self, address: IpAddr) -> Result<(), Forbidden>;

    /// Whether the configuration names the target, so that an operator has to know of trouble with it; otherwise a caller chose
    /// it. Default: a caller did.
    fn is_configured(&self) -> bool {
        false
    }
}

/// Admits every address: for targets that the configuration names.
#[derive(Debug, Clone, Copy)]
pub struct Anywhere;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The target must not be connected to.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// The name of the target cannot be resolved for now, and why.
    #[error("{0}")]
    Unresolved(String),
    /// The target cannot be connected to for now, and why.
    #[error("{0}")]
    Failed(String),
}

/// How long sent bytes of a request may stay unacknowledged before the kernel ends the connection. Without it a peer that
/// disappeared would hold requests for the kernel's own quarter of an hour.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);

/// How long an address may be silent before the next one is tried beside it (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to the first address of `host` that answers, if `reach` admits all of them. The caller bounds the time. The
/// connection ends when bytes stay unacknowledged for `unacknowledged_max`, a peer that stopped reading included.
///
/// # Errors
/// When an address must not be connected to, or none answers.
pub async fn connect(
    host: &Host,
    port: u16,
    reach: &dyn Reach,
    unacknowledged_max: Duration,
) -> Result<TcpStream, ConnectError> {
    let addresses = match host {
        Host::Address(address) => vec![SocketAddr::new(*address, port)],
        Host::Name(name) => reach.resolve(name, port).await.map_err(|error| {
            ConnectError::Unresolved(format!("the name cannot be resolved: {error}"))
        })?,
    };
    connect_to(addresses, reach, unacknowledged_max).await
}

/// Connects to the first of `addresses`, which are those of one host, that answers; otherwise as [`connect`].
///
/// # Errors
/// When an address must not be connected to, or none answers.
pub async fn connect_to(
    addresses: Vec<SocketAddr>,
    reach: &dyn Reach,
    unacknowledged_max: Duration,
) -> Result<TcpStream, ConnectError> {
    // One address that is not admitted condemns the name: its owner mixes them on purpose.
    for address in &addresses {
        reach.check(address.ip())?;
    }
    let failed = |error: io::Error| ConnectError::Failed(error.to_string());
    let stream = first_that_answers(addresses).await.map_err(failed)?;
    // Asked of the connection that stands as well: so the rule holds whatever became of the addresses above.
    reach.check(stream.peer_addr().map_err(failed)?.ip())?;
    // Small requests must not wait for the acknowledgement of the one before.
    stream.set_nodelay(true).map_err(failed)?;
    SockRef::from(&stream).set_tcp_user_timeout(Some(unacknowledged_max)).map_err(failed)?;
    Ok(stream)
}

/// Connects to one address after the other, each with a head start before the next, so that an address that answers nothing
/// does not hide the rest.
async fn first_that_answers(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut left = addresses.into_iter();
    let mut dialling = FuturesUnordered::new();
    loop {
        dialling.extend(left.next().map(TcpStream::connect));
        // Behind the last address there is nothing to hurry to: only the caller's bound ends that wait.
        let answer = if left.len() > 0 {
            tokio::time::timeout(HEAD_START, dialling.next()).await
        } else {
            Ok(dialling.next().await)
        };
        match answer {
            // The last failure is told, as all had the same chance.
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => failure = error,
            Ok(None) => return Err(failure),
            Err(_silent) => {}
        }
    }
}

// === impl Guard ===

#[async_trait]
impl Reach for Guard {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.resolver().resolve(name, port).await
    }

    fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        self.check_resolved(address)
    }
}

// === impl Anywhere ===

impl Reach for Anywhere {
    fn check(&self, _address: IpAddr) -> Result<(), Forbidden> {
        Ok(())
    }

    fn is_configured(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;

    use super::*;

    /// Listens, and answers no connect: its queue is full.
    fn black_hole() -> (SocketAddr, Vec<Socket>) {
        let stream = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = stream();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let first = stream();
        first.connect(&address).unwrap();
        (address.as_socket().unwrap(), vec![listener, first])
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_swallows_everything_does_not_hide_the_next() {
        let (silent, _open) = black_hole();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = listener.local_addr().unwrap();
        let refused = SocketAddr::from(([127, 0, 0, 1], 1));
        for addresses in [vec![silent, good], vec![refused, silent, good], vec![good, silent]] {
            let stream = first_that_answers(addresses).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), good);
        }
        let waiting = tokio::time::timeout(HEAD_START * 4, first_that_answers(vec![silent]));
        assert!(waiting.await.is_err(), "it did swallow everything");
    }

    #[tokio::test]
    async fn the_last_failure_is_told_when_none_answers() {
        let refused = SocketAddr::from(([127, 0, 0, 1], 1));
        let error = first_that_answers(vec![refused, refused]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = first_that_answers(Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "the name has no address");
    }
}
