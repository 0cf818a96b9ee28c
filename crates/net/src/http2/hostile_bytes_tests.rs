//! Bytes of servers that went wrong on their way: what the server of `h2`, and one by hand, have written is mutated as a seed
//! decides, frame by frame, and [played](super::playing).
//!
//! The variables of `hostile_tests` hold here too.

use std::collections::HashMap;

use bytes::Bytes;
use fastrand::Rng;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::frames::HEAD_BYTES;
use super::playing::{BODY_BYTES, REQUESTS, play};
use super::testing::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, OK, PING, RESET, SETTINGS, SeenOutcome,
    SessionRig, WHOLE, WINDOW_UPDATE, for_each_seed, frame, go_away, setting, status,
};

const SCRIPTS: u64 = 5_000;
/// Frames that the server of `h2` writes for the requests that are [played](play).
pub(super) async fn recorded() -> Vec<Vec<u8>> {
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let serving = async {
        let mut connection = h2::server::handshake(far).await.unwrap();
        let mut number = 0;
        while let Some(Ok((_, respond))) = connection.accept().await {
            answer(number, respond);
            number += 1;
            if number == REQUESTS {
                connection.graceful_shutdown();
            }
        }
    };
    let asking = async move {
        let (mut rig, mut bytes, mut asked) = (SessionRig::begin(), Vec::new(), false);
        let mut input = vec![0; 4_096];
        while rig.session.ending().is_none() {
            if rig.session.is_ready() && !asked {
                for _ in 0..REQUESTS {
                    rig.send(&[b'x'; BODY_BYTES]);
                }
                asked = true;
            }
            let piece = rig.session.offer().to_vec();
            near.write_all(&piece).await.unwrap();
            rig.session.out.took(piece.len());
            let length = near.read(&mut input).await.unwrap();
            if length == 0 {
                break;
            }
            bytes.extend_from_slice(&input[..length]);
            rig.feed(&input[..length]);
            // As a client does that was told to go.
            if !rig.session.takes_requests() {
                rig.session.finish();
            }
        }
        bytes
    };
    let ((), bytes) = tokio::join!(serving, asking);
    frames_of(&bytes)
}

/// An answer of its own to each request: with and without a body, a large one, trailers, resets.
fn answer(number: usize, mut respond: SendResponse<Bytes>) {
    let head = |status: u16| {
        let head = Response::builder().status(status).header("server", "judge");
        head.header("number", number).body(()).unwrap()
    };
    match number {
        0 | 1 => drop(respond.send_response(head(200), true).unwrap()),
        2 => respond.send_reset(h2::Reason::REFUSED_STREAM),
        3 => respond.send_reset(h2::Reason::HTTP_1_1_REQUIRED),
        4 => respond.send_reset(h2::Reason::INTERNAL_ERROR),
        _ => {
            let mut stream = respond.send_response(head(400), false).unwrap();
            let body = Bytes::from(vec![b'r'; if number == 5 { 12_000 } else { 30 }]);
            stream.send_data(body, number == 6).unwrap();
            if number != 6 {
                let trailers =
                    HeaderMap::from_iter([(http::header::VIA, HeaderValue::from_static("x"))]);
                stream.send_trailers(trailers).unwrap();
            }
        }
    }
}

/// Frames that a server may write and the one of `h2` does not.
pub(super) fn by_hand() -> Vec<Vec<u8>> {
    let refused = 7_u32.to_be_bytes();
    let mut frames = vec![
        frame(SETTINGS, 0, 0, &[setting(4, 10), setting(1, 100), setting(3, 2)].concat()),
        frame(WINDOW_UPDATE, 0, 1, &50_u32.to_be_bytes()),
        frame(HEADERS, END_HEADERS, 1, &status(103)),
        frame(HEADERS, 0, 1, &status(400)[..2]),
        frame(CONTINUATION, 0, 1, &[]),
        frame(CONTINUATION, END_HEADERS, 1, &status(400)[2..]),
        // Padded: five bytes of which two are padding.
        frame(DATA, END_STREAM | 8, 1, &[2, b'o', b'k', 0, 0]),
        frame(HEADERS, WHOLE | 8 | 32, 3, &[&[1, 0, 0, 0, 0, 9], OK, &[0]].concat()),
        frame(RESET, 0, 5, &refused),
        frame(HEADERS, WHOLE, 7, &[&[0x40, 1, b'k', 1, b'v'], OK].concat()),
        frame(99, 0, 9, &[0; 30]),
        go_away(0x7fff_ffff, 0),
        frame(SETTINGS, 0, 0, &setting(4, 1_000)),
        frame(WINDOW_UPDATE, 0, 0, &1_000_u32.to_be_bytes()),
        go_away(11, 0),
        frame(HEADERS, WHOLE, 11, &[0x88, 0xbe]),
    ];
    frames.splice(6..6, (0..30).map(|number| frame(PING, 0, 0, &[number; 8])));
    frames
}

fn frames_of(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let (frame, behind) = bytes.split_at(HEAD_BYTES + length);
        frames.push(frame.to_vec());
        bytes = behind;
    }
    frames
}

/// One of `recordings` with up to four faults.
fn mutated(recordings: &[Vec<Vec<u8>>], random: &mut Rng) -> Vec<u8> {
    let mut frames = random.choice(recordings).unwrap().clone();
    for _ in 0..random.usize(1..5) {
        let (at, other) = (random.usize(..frames.len()), random.usize(..frames.len()));
        let length = frames[at].len();
        match random.u8(..8) {
            0 if length > 0 => frames[at][random.usize(..length)] ^= 1 << random.u8(..8),
            1 if frames.len() > 1 => drop(frames.remove(at)),
            2 => frames.insert(other, frames[at].clone()),
            3 => frames.swap(at, other),
            4 => {
                let from = random.choice(recordings).unwrap();
                let spliced = random.choice(from).unwrap();
                frames.insert(at, spliced.clone());
            }
            // The length that a frame says it has.
            5 if length > HEAD_BYTES => frames[at][2] = random.u8(..),
            6 => frames[at].truncate(random.usize(..=length)),
            7 if length >= HEAD_BYTES => frames[at][8] = random.u8(..20),
            _ => {}
        }
    }
    frames.concat()
}

fn play_mutated(recordings: &[Vec<Vec<u8>>], seed: u64) -> Vec<Option<SeenOutcome>> {
    let mut random = Rng::with_seed(seed);
    let bytes = mutated(recordings, &mut random);
    play(&bytes, &mut random)
}

#[tokio::test]
async fn whatever_comes_in_each_request_ends_once_and_memory_is_bounded() {
    let recordings = [recorded().await, by_hand()];
    let mut verdicts = HashMap::<_, usize>::new();
    let seeds = for_each_seed(SCRIPTS, 1, |seed| {
        let outcomes = play_mutated(&recordings, seed);
        if seed % 50 == 0 {
            assert_eq!(outcomes, play_mutated(&recordings, seed), "a seed plays the same again");
        }
        for outcome in outcomes.into_iter().flatten() {
            *verdicts.entry(std::mem::discriminant(&outcome)).or_default() += 1;
        }
    });
    if seeds > 100 {
        assert_eq!(verdicts.len(), 4, "answered, refused, for HTTP/1.1, and lost: {verdicts:?}");
    }
}
