//! Counts requests on their way to a server of HTTP/1.1.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result};

/// A way to a server that counts.
#[derive(Debug)]
pub(super) struct CountingWay {
    pub(super) url: String,
    requests: Arc<AtomicU64>,
}

/// First bytes of every request of the SDK.
const BEGIN: &[u8] = b"POST / HTTP/1.1";

// === impl CountingWay ===

impl CountingWay {
    /// To the server at `url`.
    pub(super) fn to(url: &str) -> Result<Self> {
        let upstream = url.strip_prefix("http://").context("a URL of HTTP")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let requests = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&requests);
        // Lives as long as the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&upstream) else { continue };
                let (Ok(from), Ok(to)) = (server.try_clone(), client.try_clone()) else { continue };
                let counter = Arc::clone(&counter);
                thread::spawn(move || copy(client, server, Some(&counter)));
                thread::spawn(move || copy(from, to, None));
            }
        });
        Ok(Self { url, requests })
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, counter: Option<&AtomicU64>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer) {
        let bytes = buffer.get(..count).unwrap_or_default();
        if count == 0 || to.write_all(bytes).is_err() {
            break;
        }
        // A request begins a read: the client sends the next after the answer to the last.
        if let Some(counter) = counter.filter(|_| bytes.starts_with(BEGIN)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _closed = to.shutdown(std::net::Shutdown::Both);
}
