//! HTTP/2 by hand, as a server: just enough to misbehave on purpose. Headers are not decoded; an answer's
//! status is written as a literal.

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

pub(crate) const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
pub(crate) const HTTP_1_1_REQUIRED: u32 = 13;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Bytes,
}

/// A connection to one client.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: TlsStream<TcpStream>,
    /// Whether pings are answered.
    pub(crate) pongs: bool,
}

impl Peer {
    /// Completes the preface, granting `streams` at a time.
    pub(crate) async fn welcome(mut stream: TlsStream<TcpStream>, streams: u32) -> Self {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await.unwrap();
        assert_eq!(preface, PREFACE);
        let mut peer = Self { stream, pongs: true };
        peer.grant(streams).await;
        peer.write(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()).await;
        peer
    }

    /// Says how many streams may be open.
    pub(crate) async fn grant(&mut self, streams: u32) {
        let mut settings = BytesMut::new();
        settings.put_u16(MAX_CONCURRENT_STREAMS);
        settings.put_u32(streams);
        settings.put_u16(INITIAL_WINDOW_SIZE);
        settings.put_u32(1 << 20);
        self.write(SETTINGS, 0, 0, &settings).await;
    }

    pub(crate) async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_uint(payload.len() as u64, 3);
        frame.put_u8(kind);
        frame.put_u8(flags);
        frame.put_u32(stream);
        frame.put_slice(payload);
        // The client may be gone, as planned.
        if self.stream.write_all(&frame).await.is_ok() {
            self.stream.flush().await.unwrap_or_default();
        }
    }

    /// The next frame; `None` when the client has closed. Pings and settings are acknowledged on the way.
    pub(crate) async fn read(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let bytes = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; bytes];
            self.stream.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let frame = Frame { kind: head[3], flags: head[4], stream, payload: payload.into() };
            match frame.kind {
                SETTINGS if frame.flags & ACK == 0 => self.write(SETTINGS, ACK, 0, &[]).await,
                PING if frame.flags & ACK == 0 && self.pongs => {
                    self.write(PING, ACK, 0, &frame.payload).await;
                }
                _ => return Some(frame),
            }
        }
    }

    /// The stream and the body of the next request that is complete; `None` when the client has closed.
    pub(crate) async fn request(&mut self) -> Option<(u32, Bytes)> {
        loop {
            let frame = self.read().await?;
            if frame.kind == DATA && frame.flags & END_STREAM != 0 {
                return Some((frame.stream, frame.payload));
            }
        }
    }

    /// Everything the client has to say for now: the streams of complete requests.
    pub(crate) async fn settle(&mut self) -> Vec<u32> {
        let mut streams = Vec::new();
        // The second answer comes after what the client began when it saw the first ping.
        for _ in 0..2 {
            self.write(PING, 0, 0, &[7; 8]).await;
            while let Some(frame) = self.read().await {
                match frame.kind {
                    DATA if frame.flags & END_STREAM != 0 => streams.push(frame.stream),
                    PING => break,
                    _ => {}
                }
            }
        }
        streams
    }

    /// Answers in the shortest way: a head without a body.
    pub(crate) async fn answer(&mut self, stream: u32, status: u16) {
        self.head(stream, status, END_STREAM).await;
    }

    /// Answers with a body.
    pub(crate) async fn answer_with(&mut self, stream: u32, status: u16, body: &str) {
        self.head(stream, status, 0).await;
        self.write(DATA, END_STREAM, stream, body.as_bytes()).await;
    }

    /// The head of an answer; with `flags` 0 a body follows.
    pub(crate) async fn head(&mut self, stream: u32, status: u16, flags: u8) {
        // Literal without indexing, its name the eighth of the static table: `:status`.
        let mut block = vec![0x08, 3];
        block.extend_from_slice(status.to_string().as_bytes());
        self.write(HEADERS, END_HEADERS | flags, stream, &block).await;
    }

    /// A piece of a body that is not its last.
    pub(crate) async fn body(&mut self, stream: u32, bytes: &[u8]) {
        self.write(DATA, 0, stream, bytes).await;
    }

    pub(crate) async fn refuse(&mut self, stream: u32) {
        self.reset(stream, REFUSED_STREAM).await;
    }

    pub(crate) async fn reset(&mut self, stream: u32, reason: u32) {
        self.write(RESET, 0, stream, &reason.to_be_bytes()).await;
    }

    /// Says that streams above `last` were not and will not be processed.
    pub(crate) async fn go_away(&mut self, last: u32) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&[0; 4]);
        self.write(GOAWAY, 0, 0, &payload).await;
    }
}
