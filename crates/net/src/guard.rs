//! Protection against server-side request forgery: which addresses may be connected to when callers choose the target.
//!
//! [`Guard::check`] is asked with the very address that is then connected to, so a name that resolves to another address the
//! next time gains nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use flow::{Clock, LogThrottle};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tokio::sync::Semaphore;

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolve: Send + Sync + fmt::Debug {
    /// The addresses of `name`, each with `port`.
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The resolver of this machine, asked a bounded number of times at once: a look-up cannot be cancelled, and names whose servers
/// never answer must not occupy all threads that look-ups have.
#[derive(Debug)]
struct System {
    look_ups: Arc<Semaphore>,
}

/// Look-ups under way for one guard; a runtime has 512 threads for these.
const LOOK_UPS_MAX: usize = 64;

/// Decides which addresses may be connected to: public ones, and those of networks that the settings allow, without those of networks
/// that they deny.
#[derive(Debug, Clone)]
pub struct Guard {
    allowed: Vec<IpNet>,
    denied: Vec<IpNet>,
    resolver: Arc<dyn Resolve>,
    log_throttle: Arc<Mutex<LogThrottle>>,
}

/// An address that must not be connected to, and why. Its words are for the caller that chose the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forbidden {
    address: IpAddr,
    reason: ForbiddenReason,
    /// True if the caller has not named the address: then the words do not name it either, or callers could ask for the addresses that
    /// internal names have.
    is_hidden: bool,
}

/// The reason for which an address must not be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForbiddenReason {
    /// It is of this network, which is not public.
    NotPublic(&'static str),
    /// It is of a network that the settings deny.
    Denied,
}

const fn v4(octets: [u8; 4], prefix: u8) -> IpNet {
    let [a, b, c, d] = octets;
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(first: u16, second: u16, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0), prefix))
}

/// Of IPv6 only this is global unicast; loopback, link-local, unique local, multicast, mapped and translated
/// addresses are all outside.
const GLOBAL_V6: IpNet = v6(0x2000, 0, 3);

/// Networks that are not globally reachable, by the IANA's registry of special addresses, and multicast; of IPv6 those within
/// [`GLOBAL_V6`].
const NOT_PUBLIC: &[(IpNet, &str)] = &[
    (v4([0, 0, 0, 0], 8), "this network"),
    (v4([10, 0, 0, 0], 8), "private"),
    (v4([100, 64, 0, 0], 10), "shared by a carrier"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([172, 16, 0, 0], 12), "private"),
    (v4([192, 0, 0, 0], 24), "protocol assignments"),
    (v4([192, 0, 2, 0], 24), "documentation"),
    (v4([192, 88, 99, 0], 24), "6to4 relay"),
    (v4([192, 168, 0, 0], 16), "private"),
    (v4([198, 18, 0, 0], 15), "benchmarking"),
    (v4([198, 51, 100, 0], 24), "documentation"),
    (v4([203, 0, 113, 0], 24), "documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([240, 0, 0, 0], 4), "reserved"),
    (v6(0x2001, 0, 23), "protocol assignments, such as Teredo"),
    (v6(0x2001, 0x0db8, 32), "documentation"),
    (v6(0x2002, 0, 16), "6to4"),
    (v6(0x3fff, 0, 20), "documentation"),
];

// === impl System ===

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.look_ups).acquire_owned().await.map_err(io::Error::other)?;
        let name = name.to_owned();
        // The permit goes along: a look-up whose caller has given up still occupies its thread.
        let looking_up = tokio::task::spawn_blocking(move || {
            let addresses = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop(permit);
            addresses
        });
        looking_up.await.map_err(io::Error::other)?
    }
}

// === impl Guard ===

impl Guard {
    /// A guard that admits public addresses and those of the networks `allowed`.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        let look_ups = Arc::new(Semaphore::new(LOOK_UPS_MAX));
        let resolver = Arc::new(System { look_ups });
        Self { allowed, denied: Vec::new(), resolver, log_throttle: Arc::default() }
    }

    /// This guard without the addresses of the networks `denied`, be they public or of a network that is allowed.
    #[must_use]
    pub fn denying(self, denied: Vec<IpNet>) -> Self {
        Self { denied, ..self }
    }

    /// This guard with names resolved by `resolver`.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    /// The resolver of names. Addresses that it finds are not checked.
    pub fn resolver(&self) -> &dyn Resolve {
        &*self.resolver
    }

    /// Admits `address` to be connected to.
    ///
    /// # Errors
    /// When it must not be connected to.
    pub fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        let forbidden = |reason| Forbidden { address, reason, is_hidden: false };
        if self.denied.iter().any(|network| network.contains(&address)) {
            return Err(forbidden(ForbiddenReason::Denied));
        }
        // Asked before the lists: an exception of the settings is one to them.
        let is_allowed = self.allowed.iter().any(|network| network.contains(&address));
        match address {
            // A translator's prefix may be allowed where IPv4 is reached through it; then the IPv4 address
            // within counts like any other.
            IpAddr::V6(outer) if is_allowed => {
                embedded(outer).map_or(Ok(()), |inner| self.check(IpAddr::V4(inner)))
            }
            IpAddr::V4(_) if is_allowed => Ok(()),
            IpAddr::V4(_) | IpAddr::V6(_) => match network_of(address) {
                Some(network) => Err(forbidden(ForbiddenReason::NotPublic(network))),
                None => Ok(()),
            },
        }
    }

    /// [`Guard::check`] of an address to which a name led. The operator is told of a refusal, once a minute, and the caller without the
    /// address.
    ///
    /// # Errors
    /// When it must not be connected to.
    pub fn check_resolved(&self, address: IpAddr) -> Result<(), Forbidden> {
        self.check(address).map_err(|forbidden| {
            let throttle = self.log_throttle.lock().unwrap_or_else(PoisonError::into_inner);
            if throttle.admits(Clock::system()) {
                tracing::warn!(
                    reason = %forbidden,
                    "a caller's target was not connected to; further ones within a minute are not logged"
                );
            }
            Forbidden { is_hidden: true, ..forbidden }
        })
    }
}

// === impl Forbidden ===

impl std::error::Error for Forbidden {}

impl fmt::Display for Forbidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, reason, is_hidden } = self;
        match reason {
            _ if *is_hidden => formatter.write_str(
                "its name leads to what is not a public address, or is denied here; an operator can allow it",
            ),
            ForbiddenReason::NotPublic(network) => write!(
                formatter,
                "{address} is not a public address ({network}); allow_networks can make an exception"
            ),
            ForbiddenReason::Denied => {
                write!(formatter, "{address} is of a network that deny_networks denies")
            }
        }
    }
}

/// The network that makes `address` not public.
fn network_of(address: IpAddr) -> Option<&'static str> {
    if address.is_ipv6() && !GLOBAL_V6.contains(&address) {
        return Some("not global unicast");
    }
    NOT_PUBLIC.iter().find(|(network, _)| network.contains(&address)).map(|&(_, name)| name)
}

/// The IPv4 address that an IPv6 address stands for.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let bits = match segments {
        // Mapped, compatible, translated (RFC 4291, 6052, 8215): the last 32 bits. 6to4: those after the
        // prefix.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0 | 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => (high, low),
        // Teredo: the last 32 bits, inverted.
        [0x2001, 0, .., high, low] => (!high, !low),
        _ => return None,
    };
    // `::` and `::1` look like addresses that are compatible with IPv4, and are none.
    let is_plain = matches!(segments, [0, 0, 0, 0, 0, 0, 0, 0 | 1]);
    (!is_plain).then(|| Ipv4Addr::from_bits(u32::from(bits.0) << 16 | u32::from(bits.1)))
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
