//! A link to a server that takes time, as the way to a service of a cloud does.
//!
//! Each direction of a connection is a queue: what is read is stamped, and written once its time has passed. Bytes keep their order, and
//! what was read together or shortly after one another is under way together, so that the rate is not limited.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use flow::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// A link that delays. Its connections are closed when it is dropped.
#[derive(Debug)]
pub(super) struct DelayingLink {
    pub(super) url: String,
    /// One thread: the bytes of one server are no work for more.
    _runtime: Runtime,
}

/// Bytes, and when they are to be written.
type Delayed = (Instant, Bytes);

/// Of one read.
const CHUNK: usize = 64 << 10;
/// Chunks under way in one direction of a connection: 4 MiB.
const CHUNKS: usize = 64;

// === impl DelayingLink ===

impl DelayingLink {
    /// To the server at `url`; each direction takes `delay`. The timer has whole milliseconds: it may take one more.
    pub(super) fn to(url: &str, delay: Duration) -> Result<Self> {
        let server = url.strip_prefix("http://").context("a URL of HTTP")?.parse()?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let url = format!("http://{}", listener.local_addr()?);
        runtime.spawn(listen(listener, server, delay));
        Ok(Self { url, _runtime: runtime })
    }
}

async fn listen(listener: TcpListener, server: SocketAddr, delay: Duration) {
    // Few: they end with the link.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(server).await else { continue };
        let _delayed = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        connections.spawn(pass(from_client, to_server, delay));
        connections.spawn(pass(from_server, to_client, delay));
    }
}

/// One direction of a connection, until it ends.
async fn pass(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration) {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    // The writer ends when the reader does, and the reader when it can write no more.
    tokio::join!(read(from, sender, delay), write(receiver, to));
}

async fn read(mut from: OwnedReadHalf, sender: Sender<Delayed>, delay: Duration) {
    let (clock, mut buffer) = (Clock::system(), BytesMut::new());
    loop {
        buffer.reserve(CHUNK);
        let is_over = from.read_buf(&mut buffer).await.map_or(true, |count| count == 0);
        // Without bytes it says that the end is to be passed on.
        let chunk = (clock.monotonic() + delay, buffer.split().freeze());
        if sender.send(chunk).await.is_err() || is_over {
            return;
        }
    }
}

async fn write(mut receiver: Receiver<Delayed>, mut to: OwnedWriteHalf) {
    while let Some((at, bytes)) = receiver.recv().await {
        sleep_until(at).await;
        if bytes.is_empty() || to.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let _closed = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener as Listener;
    use std::net::TcpStream as Stream;
    use std::thread;

    use super::*;

    /// More bytes than a connection may have under way come back in their order, and then the end.
    #[test]
    fn bytes_keep_their_order_and_the_end_is_passed_on() {
        let server = Listener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        let link = DelayingLink::to(&url, Duration::from_millis(1)).unwrap();
        let echo = thread::spawn(move || {
            let (mut from, _) = server.accept().unwrap();
            let mut to = from.try_clone().unwrap();
            std::io::copy(&mut from, &mut to).unwrap();
        });
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(6 << 20).collect();
        let client = Stream::connect(link.url.strip_prefix("http://").unwrap()).unwrap();
        let (mut writer, body) = (client.try_clone().unwrap(), sent.clone());
        let writing = thread::spawn(move || {
            writer.write_all(&body).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let (mut client, mut came) = (client, Vec::new());
        client.read_to_end(&mut came).unwrap();
        assert!(came == sent, "{} of {} bytes, or in another order", came.len(), sent.len());
        writing.join().unwrap();
        echo.join().unwrap();
    }
}
