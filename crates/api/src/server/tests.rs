//! The places of a listener, by plain sockets.

use axum::extract::Extension;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A site whose every request has a key that is known.
fn site() -> Site {
    let known = get(async |Extension(note): Extension<ConnectionNote>| {
        note.note_key(None).is_ok().to_string()
    });
    Site { router: axum::Router::new().route("/", known), intake: None }
}

#[tokio::test]
async fn connections_beyond_those_of_an_address_are_closed_until_a_key_comes_by_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (socket, connections) = ApiListener::tcp(listener).unwrap().register().unwrap();
    let (_site, site) = watch::channel(site());
    let slots = Arc::new(Semaphore::new(connections));
    let bounds = ConnectionBounds {
        tenants: Arc::new(TenantConnections::new(Arc::clone(&slots), 2)),
        slots,
        unauthenticated: Arc::new(Unauthenticated::new(2)),
    };
    let mut tasks = Tasks::default();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    tasks.spawn("server", async move {
        let stopped = async { drop(stopped.await) };
        serve_within(socket, site, bounds, stopped).await;
    });
    let mut first = TcpStream::connect(address).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    let mut third = TcpStream::connect(address).await.unwrap();
    assert!(matches!(third.read(&mut [0]).await, Ok(0) | Err(_)), "closed at once");
    for _ in 0..2 {
        first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert!(first.read(&mut [0; 1_000]).await.unwrap() > 0);
    }
    let mut fourth = TcpStream::connect(address).await.unwrap();
    for other in [&mut second, &mut fourth] {
        other.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert!(other.read(&mut [0; 1_000]).await.unwrap() > 0);
    }
    drop((first, second, fourth, stop));
    tasks.drain().await;
}
