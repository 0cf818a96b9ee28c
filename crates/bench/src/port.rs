//! A port that stays a process's own while that process is dead.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// A port of the loopback interface that is held for a server that is killed and started again: the kernel gives it to
/// no outgoing connection and to no listener that asks for any free port, for as long as this value lives.
///
/// The port is bound and never listened on. Linux lets a second socket bind the same port when both have
/// `SO_REUSEADDR` and none listens yet, which a server's listener has; its choices of a free port pass over a port that
/// is bound.
#[derive(Debug)]
pub struct HeldPort {
    listen: String,
    _bound: OwnedFd,
}

// === impl HeldPort ===

impl HeldPort {
    /// Holds any free port.
    ///
    /// # Errors
    /// When the kernel has none, or no descriptor is left.
    pub fn any() -> Result<Self> {
        let held = || -> rustix::io::Result<(OwnedFd, SocketAddr)> {
            let (stream, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
            let bound = socket_with(AddressFamily::INET, stream, flags, None)?;
            bind(&bound, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
            // Only now: with it, the kernel could choose a port that another process holds in this way.
            sockopt::set_socket_reuseaddr(&bound, true)?;
            let address = SocketAddr::try_from(getsockname(&bound)?)?;
            Ok((bound, address))
        };
        let (bound, address) = held().context("cannot hold a port of 127.0.0.1")?;
        Ok(Self { listen: address.to_string(), _bound: bound })
    }

    /// Where the server is to listen: `127.0.0.1:port`.
    pub fn listen(&self) -> &str {
        &self.listen
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_server_listens_on_a_held_port_again_and_again() {
        let held = HeldPort::any().unwrap();
        for _ in 0..3 {
            let listener = TcpListener::bind(held.listen()).unwrap();
            let caller = TcpStream::connect(held.listen()).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            // The server's end is closed first, as when it is killed: that side stays in TIME_WAIT.
            drop((accepted, listener));
            drop(caller);
        }
    }
}
