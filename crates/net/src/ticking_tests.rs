//! The arithmetic by a table, and the socket with a peer on loopback, which writes when the test says so.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// The bytes for each read of a socket that ticks after [`READS`] reads of `bytes`, `apart` one from the other; 0 when it is
/// registered then. It ticked with `bytes_per_read` before.
fn after(bytes_per_read: usize, bytes: usize, apart: Duration) -> usize {
    let start = Clock::starting_at(Duration::ZERO).monotonic();
    let mut rate = ReadRate { bytes_per_read, ..ReadRate::new(start) };
    for read in 1..READS {
        let is_ticking = rate.is_ticking_after(bytes, || unreachable!("{read} reads are too few"));
        assert_eq!(is_ticking, bytes_per_read > 0);
    }
    let is_ticking = rate.is_ticking_after(bytes, || start + READS * apart);
    assert_eq!(is_ticking, rate.bytes_per_read > 0);
    assert_eq!((rate.reads, rate.bytes), (0, 0), "the next decision counts anew");
    rate.bytes_per_read
}

#[test]
fn ticks_follow_many_small_reads_and_end_with_them() {
    let micros = Duration::from_micros;
    // Registered: bytes of a read, the time between two, and what it ticks with.
    for (bytes, apart, expect) in [
        (90, micros(20), 90),
        (90, micros(250), 90),
        // Fewer than four in a millisecond: a wake-up each is as cheap.
        (90, micros(251), 0),
        (90, Duration::from_secs(1), 0),
        (SMALL_BYTES, micros(20), SMALL_BYTES),
        // Many answers in each.
        (SMALL_BYTES + 1, micros(20), 0),
        (64 * 1024, micros(20), 0),
        (1, micros(20), 1),
    ] {
        assert_eq!(after(0, bytes, apart), expect, "{bytes} bytes, {apart:?}");
    }
    // Ticking: two small reads in a tick are enough to go on, however much time a loaded thread takes for its ticks.
    for (bytes, apart, expect) in [
        (180, TICK, 90),
        (64 * 1024, TICK, 90),
        (179, TICK, 0),
        (0, TICK, 0),
        (180, Duration::from_secs(1), 90),
    ] {
        assert_eq!(after(90, bytes, apart), expect, "{bytes} bytes, {apart:?}");
    }
}

/// A socket that ticks, and its peer.
async fn ticking() -> (TickingSocket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (peer, _) = listener.accept().await.unwrap();
    let mut socket = TickingSocket::new(stream, Clock::starting_at(Duration::ZERO));
    socket.rate.bytes_per_read = 1;
    socket.rate.reads = 1;
    let timer = Box::pin(tokio::time::sleep(TICK));
    socket.socket = socket.socket.take().map(|registered| match registered {
        ReadBy::Readiness(stream) => ReadBy::Tick(stream.into_std().unwrap(), timer),
        ReadBy::Tick(..) => unreachable!("it is registered at first"),
    });
    (socket, peer)
}

fn is_ticking(socket: &TickingSocket) -> bool {
    matches!(socket.socket, Some(ReadBy::Tick(..)))
}

#[tokio::test]
async fn many_small_reads_make_it_tick_and_nothing_is_lost_on_the_way() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut peer, _) = listener.accept().await.unwrap();
    peer.set_nodelay(true).unwrap();
    // Its time stands still, so all reads are of one instant.
    tokio::time::pause();
    let mut socket = TickingSocket::new(stream, Clock::starting_at(Duration::ZERO));
    for number in 0..READS {
        assert!(!is_ticking(&socket), "{number}");
        peer.write_all(&number.to_be_bytes()).await.unwrap();
        assert_eq!(socket.read_u32().await.unwrap(), number);
    }
    assert!(is_ticking(&socket));
    let begun = socket.clock.monotonic();
    peer.write_all(b"what came").await.unwrap();
    peer.write_all(b" since").await.unwrap();
    let mut bytes = [0; 64];
    let some = socket.read(&mut bytes).await.unwrap();
    assert_eq!(&bytes[..some], b"what came since", "a tick takes all");
    assert!(socket.clock.monotonic() - begun >= TICK, "not before its time");
    // Then nothing for as many ticks: it is registered again, and wakes when there is something.
    let mut reading = Box::pin(socket.read(&mut bytes));
    let quiet = tokio::time::timeout(TICK * READS * 2, &mut reading).await;
    assert!(quiet.is_err());
    peer.write_all(b"late").await.unwrap();
    assert_eq!(reading.await.unwrap(), 4);
    assert!(!is_ticking(&socket));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_is_read_by_a_tick() {
    let (mut socket, peer) = ticking().await;
    drop(peer);
    assert_eq!(socket.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_full_socket_is_registered_and_read_on() {
    let (socket, peer) = ticking().await;
    let (mut reader, mut writer) = tokio::io::split(socket);
    // More than any buffer of the kernel holds, and the peer reads nothing before it has sent as much. It is a thread of its own, so
    // that nothing wakes this task but its socket.
    let much = vec![7; 32 * 1024 * 1024];
    let sent = much.clone();
    let mut peer = peer.into_std().unwrap();
    let peer = std::thread::spawn(move || {
        peer.set_nonblocking(false).unwrap();
        peer.write_all(&sent).unwrap();
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all.len()
    });
    let write = async {
        writer.write_all(&much).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let read = async {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).await.unwrap();
        all.len()
    };
    // The read first, which waits for the tick that the write then ends.
    let (read, ()) = tokio::join!(read, write);
    assert_eq!((read, peer.join().unwrap()), (much.len(), much.len()));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_finds_room_leaves_it_ticking() {
    let (mut socket, mut peer) = ticking().await;
    socket.write_all(b"asked").await.unwrap();
    assert!(is_ticking(&socket));
    let mut bytes = [0; 5];
    peer.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"asked");
}
