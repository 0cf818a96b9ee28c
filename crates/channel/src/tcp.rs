//! TCP as all channels use it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// How long sent bytes may stay unacknowledged before the kernel gives the connection up. Keeps a peer that
/// vanished without a word from holding requests for the kernel's own quarter of an hour.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);

/// Connects to the first of `addresses` that answers. The caller bounds the time.
pub(crate) async fn connect(
    addresses: impl IntoIterator<Item = SocketAddr>,
) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Small requests must not wait for the acknowledgement of the one before.
                stream.set_nodelay(true)?;
                SockRef::from(&stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
