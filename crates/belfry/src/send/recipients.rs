//! A file of recipients, one per line, as the body of a broadcast: read while it is sent.

use std::io::{self, BufRead, BufReader, Write as _};
use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::client::RequestBody;
use crate::input;

/// Bytes sent at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces read ahead of the connection.
const PIECES: usize = 8;

/// A line of `head`, and a line per recipient in `file`; `-` is standard input. Blank lines are no
/// recipients. If `may_be_objects`, lines that begin with a brace are JSON.
pub(super) fn body(
    head: Vec<u8>,
    file: &Path,
    may_be_objects: bool,
) -> anyhow::Result<RequestBody> {
    let opened = input::open(file).with_context(|| format!("cannot read {}", file.display()));
    let (input, _) = opened?;
    let (pieces, arrived) = mpsc::channel(PIECES);
    // Not joined: when the engine refuses the broadcast, this thread may still wait for input.
    std::thread::spawn(move || {
        let input = BufReader::with_capacity(PIECE_BYTES, input);
        if let Err(error) = read(head, input, may_be_objects, &pieces) {
            // A body that ends by an error is not accepted; a receiver that is gone has said why.
            let _nobody_waits = pieces.blocking_send(Err(error));
        }
    });
    let frames = futures_util::stream::unfold(arrived, async |mut arrived: mpsc::Receiver<_>| {
        arrived.recv().await.map(|piece: io::Result<Bytes>| (piece.map(Frame::data), arrived))
    });
    Ok(StreamBody::new(frames).boxed_unsync())
}

fn read(
    head: Vec<u8>,
    mut input: impl BufRead,
    may_be_objects: bool,
    pieces: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let mut piece = head;
    piece.push(b'\n');
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let recipient = line.trim();
        if may_be_objects && recipient.starts_with('{') {
            piece.extend_from_slice(recipient.as_bytes());
        } else if !recipient.is_empty() {
            serde_json::to_writer(&mut piece, recipient)?;
        }
        // After blank lines as well: what is wrong is named by its line.
        piece.write_all(b"\n")?;
        line.clear();
        if piece.len() >= PIECE_BYTES {
            send(&mut piece, pieces)?;
        }
    }
    send(&mut piece, pieces)
}

fn send(piece: &mut Vec<u8>, pieces: &mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
    // A piece is sent once it has passed the size: the margin is for the line that passes it.
    let full = std::mem::replace(piece, Vec::with_capacity(PIECE_BYTES + 256));
    pieces.blocking_send(Ok(full.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
}
