//! One connection: its TLS handshake if it has one, and HTTP/1.1.

use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout_at;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::http2;
use super::patient::Patient;
use super::preface::read_preface;
use super::served_site::{FirstHead, ServedSite};
use crate::limits::{CONNECTION_BYTES, HEAD_TIMEOUT};
use crate::unauthenticated::ConnectionNote;

/// Serves HTTP/1.1 on a plain TCP socket.
pub(super) async fn plain(socket: TcpStream, note: ConnectionNote, served: ServedSite) {
    let first_head = FirstHead::of_new_connection();
    http1(Patient::new(socket), note, served, first_head).await;
}

/// Serves HTTP/1.1 on a Unix socket, or HTTP/2 if the first bytes are its preface: proxies speak it to stream both ways.
pub(super) async fn unix(socket: UnixStream, note: ConnectionNote, mut served: ServedSite) {
    let first_head = FirstHead::of_new_connection();
    let begun = tokio::select! {
        begun = timeout_at(first_head.deadline(), read_preface(Patient::new(socket))) => begun,
        // Nothing was asked for yet.
        _ = served.stopping.changed() => return,
    };
    match begun {
        Ok(Ok((true, stream))) => http2::serve(stream, note, served, first_head).await,
        Ok(Ok((false, stream))) => http1(stream, note, served, first_head).await,
        // Too late, or gone.
        Ok(Err(_)) | Err(_) => {}
    }
}

/// Serves HTTP/2 or HTTP/1.1 on a socket with TLS, as the handshake chooses. The handshake and the first head share their time.
pub(super) async fn tls(
    socket: TcpStream,
    settings: Arc<ServerConfig>,
    note: ConnectionNote,
    mut served: ServedSite,
) {
    let first_head = FirstHead::of_new_connection();
    let handshake = TlsAcceptor::from(settings).accept(Patient::new(socket));
    let shaken = tokio::select! {
        shaken = timeout_at(first_head.deadline(), handshake) => shaken,
        // Nothing was asked for yet.
        _ = served.stopping.changed() => return,
    };
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!("TLS handshake took too long");
            return;
        }
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2::serve(stream, note, served, first_head).await;
    } else {
        http1(stream, note, served, first_head).await;
    }
}

async fn http1<S>(stream: S, note: ConnectionNote, served: ServedSite, first_head: FirstHead)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stopping = served.stopping.clone();
    let service = service_fn(|request| served.answer(&note, request));
    let connection = http1::Builder::new()
        // The time limit of heads needs it: hyper has no clock of its own.
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(CONNECTION_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // Without an answer: there is no request.
        () = first_head.missed(&note) => return,
        _ = stopping.changed() => {
            // The request under way is finished, within the time that `serve` gives to all of them.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection broke");
    }
}
