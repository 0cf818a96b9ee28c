//! The first bytes of a plain connection: whether they are the preface of HTTP/2.

use std::io::{self, Cursor};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, join, split};

/// The preface of a client with prior knowledge (RFC 9113, section 3.4). No request of HTTP/1.1 begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads as much of `socket` as tells whether it begins with the preface of HTTP/2, says if it does, and gives the socket with all of its
/// bytes.
pub(super) async fn read_preface<S>(
    mut socket: S,
) -> io::Result<(bool, impl AsyncRead + AsyncWrite + Unpin)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut ahead = BytesMut::with_capacity(PREFACE.len());
    while ahead.len() < PREFACE.len() && PREFACE.starts_with(&ahead) {
        if socket.read_buf(&mut ahead).await? == 0 {
            break;
        }
    }
    let is_http2 = ahead.starts_with(PREFACE);
    let (rest, writer) = split(socket);
    Ok((is_http2, join(Cursor::new(ahead).chain(rest), writer)))
}
