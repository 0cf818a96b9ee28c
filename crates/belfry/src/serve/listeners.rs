//! The sockets that a process listens on: for callers, and for operators by themselves.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use api::{ApiListener, UnixSocket};
use flow::Clock;
use serde::Serialize;
use tokio::net::TcpListener;

use super::certificates::{Certificates, ReadCertificates};
use crate::config::{ListenPlace, ServerConfig};

/// Sockets that listen, and are not served yet.
#[derive(Debug)]
pub(super) struct Listeners {
    /// For every caller.
    pub(super) public: Vec<ApiListener>,
    /// For operators.
    pub(super) operator: Vec<ApiListener>,
    /// Where they listen.
    pub(super) places: ListenPlaces,
    /// The certificate of those with TLS.
    pub(super) certificates: Option<Arc<Certificates>>,
}

/// Where a process listens, as its first line of output says.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ListenPlaces {
    /// The address, if there is one. Port 0 of the configuration is the one that was free.
    pub(super) listen: Option<SocketAddr>,
    /// The Unix socket, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operator: Option<Box<ListenPlaces>>,
}

// === impl Listeners ===

impl Listeners {
    /// Opens the sockets of `config`.
    ///
    /// # Errors
    /// When one of them, or the certificate, cannot be used.
    pub(super) async fn open(config: &ServerConfig, clock: Clock) -> anyhow::Result<Self> {
        let read = config.tls_files().map(ReadCertificates::read).transpose();
        let read = read.map_err(|error| anyhow::anyhow!("server.tls.{error}"))?;
        let certificates = read.map(|read| Arc::new(Certificates::new(read, clock)));
        let (public, mut places) = open_all(config.public_places(), certificates.as_ref()).await?;
        let operator = config.operator_places();
        let has_operator = !operator.is_empty();
        let (operator, operator_places) = open_all(operator, certificates.as_ref()).await?;
        let operator = operator.into_iter().map(ApiListener::for_operators).collect();
        places.operator = has_operator.then(|| Box::new(operator_places));
        Ok(Self { public, operator, places, certificates })
    }
}

async fn open_all(
    places: Vec<ListenPlace>,
    certificates: Option<&Arc<Certificates>>,
) -> anyhow::Result<(Vec<ApiListener>, ListenPlaces)> {
    let mut listeners = Vec::new();
    let mut opened = ListenPlaces { listen: None, socket: None, operator: None };
    for place in places {
        match place {
            ListenPlace::Tcp(address, has_tls) => {
                let listener = TcpListener::bind(address)
                    .await
                    .with_context(|| format!("cannot listen on {address}"))?;
                opened.listen = Some(listener.local_addr()?);
                let tls = certificates.filter(|_| has_tls).map(|tls| tls.settings());
                listeners.push(match tls {
                    Some(tls) => ApiListener::tls(listener, tls)?,
                    None => ApiListener::tcp(listener)?,
                });
            }
            ListenPlace::Unix(path, mode) => {
                let socket = UnixSocket::bind(&path, mode)
                    .with_context(|| format!("cannot listen on {}", path.display()))?;
                opened.socket = Some(path.display().to_string());
                listeners.push(ApiListener::unix(socket));
            }
        }
    }
    Ok((listeners, opened))
}

// === impl ListenPlaces ===

impl ListenPlaces {
    /// The place that other workers and operators know the process by.
    pub(super) fn shown(&self) -> Option<String> {
        let of_operator = || self.operator.as_ref().and_then(|operator| operator.shown());
        let address = self.listen.map(|address| address.to_string());
        address.or_else(|| self.socket.clone()).or_else(of_operator)
    }

    /// Every address of it.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let operator = self.operator.as_ref().and_then(|operator| operator.listen);
        self.listen.into_iter().chain(operator)
    }
}
