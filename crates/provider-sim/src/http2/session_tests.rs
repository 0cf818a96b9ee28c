//! Frames that a client may send, and those that end its connection.

use bytes::Bytes;
use http::StatusCode;

use super::*;
use crate::exchange::SimContent;

const WHOLE: u8 = END_STREAM | END_HEADERS;
/// `:method: POST`, `:scheme: https`, `:path: /`.
const HEAD: &[u8] = &[0x83, 0x87, 0x84];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frames::put(&mut out, kind, flags, stream, payload);
    out
}

/// A connection whose client has said SETTINGS.
fn open() -> ServerSession {
    let mut session = ServerSession::new(3, 100);
    session.receive(PREFACE);
    session.receive(&frame(SETTINGS, 0, 0, &[]));
    assert!(session.next_event().unwrap().is_none());
    session.out.clear();
    session
}

/// The requests that `bytes` complete: stream, whether it is too long, and its body.
fn feed(session: &mut ServerSession, bytes: &[u8]) -> Result<Vec<(u32, bool, Vec<u8>)>, Breach> {
    session.receive(bytes);
    let mut complete = Vec::new();
    let mut next = session.next_event()?;
    while let Some(event) = next {
        next = match event {
            RequestEvent::Begun(_) => session.take_whole(),
            RequestEvent::Refused(upload) => {
                session.reset(upload.stream, Code::REFUSED_STREAM);
                session.recycle(upload);
                None
            }
            RequestEvent::Complete(upload, is_too_long) => {
                complete.push((upload.stream, is_too_long, upload.body.clone()));
                session.recycle(upload);
                None
            }
        };
        if next.is_none() {
            next = session.next_event()?;
        }
    }
    Ok(complete)
}

/// Kind, flags, stream and length of the frames that were written since the last look.
fn written(session: &mut ServerSession) -> Vec<(u8, u8, u32, usize)> {
    let out = std::mem::take(&mut session.out);
    let mut rest = out.as_slice();
    let mut frames = Vec::new();
    while let Some(head) = FrameHead::read(rest) {
        frames.push((head.kind, head.flags, head.stream, head.length));
        rest = &rest[HEAD_BYTES + head.length..];
    }
    frames
}

#[test]
fn requests_may_be_cut_anywhere_and_come_between_each_other() {
    let bytes = [
        frame(HEADERS, END_HEADERS, 1, HEAD),
        frame(HEADERS, 0, 3, &HEAD[..1]),
        frame(CONTINUATION, END_HEADERS, 3, &HEAD[1..]),
        frame(DATA, 0, 1, b"on"),
        // Padded by two bytes.
        frame(DATA, END_STREAM | 0x8, 3, b"\x02two\0\0"),
        frame(DATA, END_STREAM, 1, b"e"),
        // With a priority.
        frame(HEADERS, WHOLE | 0x20, 7, &[&[0; 5], HEAD].concat()),
    ]
    .concat();
    for piece in 1..bytes.len() {
        let mut session = open();
        let mut complete = Vec::new();
        for bytes in bytes.chunks(piece) {
            complete.extend(feed(&mut session, bytes).unwrap());
        }
        let expect =
            [(3, false, b"two".to_vec()), (1, false, b"one".to_vec()), (7, false, Vec::new())];
        assert_eq!(complete, expect, "pieces of {piece} bytes");
    }
}

#[test]
fn what_was_read_is_not_kept_though_every_read_ends_amid_a_frame() {
    let mut session = open();
    let requests: Vec<u8> =
        (0..5_000).flat_map(|number| frame(HEADERS, WHOLE, 2 * number + 1, HEAD)).collect();
    for piece in requests.chunks(7) {
        for (stream, ..) in feed(&mut session, piece).unwrap() {
            session.reset(stream, Code::CANCEL);
        }
        session.out.clear();
        assert!(session.input.len() < 2 * (HEAD_BYTES + HEAD.len()), "{}", session.input.len());
    }
    assert_eq!(session.streams.count(), 0);
}

#[test]
fn what_a_client_must_not_do_ends_the_connection_with_its_code() {
    let request = frame(HEADERS, WHOLE, 1, HEAD);
    let begun = frame(HEADERS, END_HEADERS, 1, HEAD);
    let end = frame(DATA, END_STREAM, 1, b"x");
    let window = |stream, bytes: u32| frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    let cases: Vec<(Vec<u8>, Code)> = vec![
        (vec![0, 0x40, 1, 0, 0, 0, 0, 0, 1], Code::FRAME_SIZE_ERROR),
        (frame(DATA, 0, 1, b"x"), Code::PROTOCOL_ERROR),
        (frame(HEADERS, WHOLE, 2, HEAD), Code::PROTOCOL_ERROR),
        (frame(HEADERS, WHOLE, 1, &[0xbe]), Code::COMPRESSION_ERROR),
        (frame(HEADERS, WHOLE | 0x8, 1, &[9, 0x83]), Code::PROTOCOL_ERROR),
        ([frame(HEADERS, 0, 1, HEAD), frame(PING, 0, 0, &[0; 8])].concat(), Code::PROTOCOL_ERROR),
        (
            [frame(HEADERS, 0, 1, HEAD), frame(CONTINUATION, 4, 3, &[])].concat(),
            Code::PROTOCOL_ERROR,
        ),
        (frame(CONTINUATION, END_HEADERS, 1, HEAD), Code::PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, &[0; 4]), Code::PROTOCOL_ERROR),
        ([&*request, &frame(RST_STREAM, 0, 1, &[0; 3])].concat(), Code::FRAME_SIZE_ERROR),
        ([&*request, &frame(DATA, 0, 1, b"x")].concat(), Code::STREAM_CLOSED),
        ([&*request, &frame(HEADERS, WHOLE, 1, HEAD)].concat(), Code::STREAM_CLOSED),
        ([&*begun, &end, &end].concat(), Code::STREAM_CLOSED),
        ([&*begun, &end, &frame(HEADERS, WHOLE, 1, HEAD)].concat(), Code::STREAM_CLOSED),
        ([&*begun, &frame(RST_STREAM, 0, 1, &[0; 4]), &end].concat(), Code::STREAM_CLOSED),
        // A number that was left out.
        ([frame(HEADERS, WHOLE, 3, HEAD), request.clone()].concat(), Code::STREAM_CLOSED),
        ([frame(HEADERS, WHOLE, 3, HEAD), end.clone()].concat(), Code::STREAM_CLOSED),
        ([&*begun, &frame(HEADERS, END_HEADERS, 1, HEAD)].concat(), Code::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0; 5]), Code::FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 1, &[]), Code::PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), Code::FLOW_CONTROL_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]), Code::PROTOCOL_ERROR),
        (frame(PING, 0, 0, &[0; 7]), Code::FRAME_SIZE_ERROR),
        (frame(PING, 0, 1, &[0; 8]), Code::PROTOCOL_ERROR),
        (frame(GOAWAY, 0, 0, &[0; 7]), Code::FRAME_SIZE_ERROR),
        (frame(GOAWAY, 0, 1, &[0; 8]), Code::PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 1, &[0; 4]), Code::FRAME_SIZE_ERROR),
        (frame(PRIORITY, 0, 0, &[0; 5]), Code::PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, 0, 1, &[0; 8]), Code::PROTOCOL_ERROR),
        (window(0, 0), Code::PROTOCOL_ERROR),
        (window(1, 1), Code::PROTOCOL_ERROR),
        (window(0, 0x7fff_ffff), Code::FLOW_CONTROL_ERROR),
        ([&*request, &frame(HEADERS, WHOLE, 0x7fff_fff1, HEAD)].concat(), Code::PROTOCOL_ERROR),
    ];
    for (bytes, code) in cases {
        let violation = feed(&mut open(), &bytes).unwrap_err();
        assert_eq!(violation.0, code, "{bytes:x?}: {}", violation.1);
    }
    for first in [b"GET / HTTP/1.1\r\n".to_vec(), [PREFACE, &frame(PING, 0, 0, &[0; 8])].concat()] {
        assert_eq!(
            feed(&mut ServerSession::new(3, 100), &first).unwrap_err().0,
            Code::PROTOCOL_ERROR
        );
    }
}

#[test]
fn a_malformed_request_costs_its_stream() {
    let text = |text: &[u8]| [&[u8::try_from(text.len()).unwrap()], text].concat();
    let field = |name: &[u8], value: &[u8]| [vec![0], text(name), text(value)].concat();
    let blocks = [
        HEAD[..2].to_vec(),
        [HEAD, &[0x84]].concat(),
        [&field(b"a", b"b"), HEAD].concat(),
        [HEAD, &field(b"A", b"b")].concat(),
        [HEAD, &field(b"a", b"b\n")].concat(),
        [HEAD, &field(b"connection", b"close")].concat(),
        [HEAD, &field(b"content-length", b"1")].concat(),
        [HEAD, &field(b":other", b"1")].concat(),
    ];
    for block in blocks {
        let mut session = open();
        assert!(feed(&mut session, &frame(HEADERS, WHOLE, 1, &block)).unwrap().is_empty());
        assert_eq!(written(&mut session), [(RST_STREAM, 0, 1, 4)], "{block:x?}");
        assert_eq!(feed(&mut session, &frame(HEADERS, WHOLE, 3, HEAD)).unwrap().len(), 1);
    }
}

#[test]
fn no_more_streams_than_granted_are_served_at_a_time() {
    let mut session = open();
    let requests: Vec<u8> =
        [1, 3, 5, 7].iter().flat_map(|stream| frame(HEADERS, WHOLE, *stream, HEAD)).collect();
    assert_eq!(feed(&mut session, &requests).unwrap().len(), 3);
    assert_eq!(written(&mut session), [(RST_STREAM, 0, 7, 4)]);
    session.answer(3, SimAnswer::new(StatusCode::OK, Bytes::new()));
    assert_eq!(written(&mut session), [(HEADERS, WHOLE, 3, 1)]);
    assert_eq!(feed(&mut session, &frame(HEADERS, WHOLE, 9, HEAD)).unwrap().len(), 1);
}

#[test]
fn a_body_that_is_too_long_is_answered_before_its_end() {
    let mut session = open();
    let bytes = [frame(HEADERS, END_HEADERS, 1, HEAD), frame(DATA, 0, 1, &[0; 101])].concat();
    let complete = feed(&mut session, &bytes).unwrap();
    assert_eq!(complete, [(1, true, vec![0; 101])]);
    session.answer(1, SimAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, Bytes::new()));
    assert_eq!(written(&mut session), [(HEADERS, WHOLE, 1, 5), (RST_STREAM, 0, 1, 4)]);
    assert!(feed(&mut session, &frame(DATA, END_STREAM, 1, b"late")).unwrap().is_empty());
}

#[test]
fn what_was_answered_is_over_unless_it_was_before_its_end() {
    let begun = frame(HEADERS, END_HEADERS, 1, HEAD);
    let answered = |frames: &[&[u8]]| {
        let mut session = open();
        feed(&mut session, &frames.concat()).unwrap();
        session.answer(1, SimAnswer::new(StatusCode::OK, Bytes::new()));
        // So that the first one is not the last that is open.
        feed(&mut session, &frame(HEADERS, WHOLE, 3, HEAD)).unwrap();
        session
    };
    let ends = [frame(DATA, END_STREAM, 1, b"x"), frame(HEADERS, WHOLE, 1, HEAD)];
    for end in &ends {
        let mut session = answered(&[&begun, end]);
        assert_eq!(feed(&mut session, end).unwrap_err().0, Code::STREAM_CLOSED);

        let mut session = answered(&[&begun, &frame(DATA, 0, 1, &[0; 101])]);
        let late = [frame(DATA, 0, 1, b"under way"), end.clone()].concat();
        assert!(feed(&mut session, &late).unwrap().is_empty());
        assert_eq!(feed(&mut session, end).unwrap_err().0, Code::STREAM_CLOSED);
    }
}

#[test]
fn what_the_server_left_may_go_on_to_its_end() {
    let begun = |stream| frame(HEADERS, END_HEADERS, stream, HEAD);
    let malformed = frame(HEADERS, END_HEADERS, 1, &HEAD[..2]);
    // The last of these is above what is granted.
    let too_many = [begun(5), begun(7), begun(9), begun(11)].concat();
    for (first, stream) in [(malformed, 1), (too_many, 11)] {
        let mut session = open();
        feed(&mut session, &first).unwrap();
        assert_eq!(written(&mut session), [(RST_STREAM, 0, stream, 4)]);
        let rest = [frame(DATA, 0, stream, b"x"), frame(HEADERS, WHOLE, stream, HEAD)].concat();
        assert!(feed(&mut session, &rest).unwrap().is_empty());
        let again = feed(&mut session, &frame(DATA, 0, stream, b"x"));
        assert_eq!(again.unwrap_err().0, Code::STREAM_CLOSED);
    }
    let mut session = open();
    session.receive(&begun(1));
    assert!(matches!(session.next_event(), Ok(Some(RequestEvent::Begun(1)))));
    session.abandon();
    assert!(feed(&mut session, &frame(DATA, END_STREAM, 1, b"x")).unwrap().is_empty());
}

#[test]
fn only_so_many_streams_cut_short_are_remembered() {
    let mut streams = OpenStreams::default();
    let numbers = (0..20_000).map(|number| 2 * number + 1);
    for stream in numbers.clone() {
        assert!(streams.open(stream));
        streams.close(stream);
    }
    let remembered = numbers.filter(|stream| streams.is_sending(*stream));
    assert!(remembered.eq((10_000..20_000).map(|number| 2 * number + 1)));
}

#[test]
fn a_body_is_as_long_as_its_head_says_however_it_ends() {
    let block = [HEAD, &[0x0f, 0x0d, 1, b'3']].concat();
    for length in [2, 3, 4] {
        let body = &b"body"[..length];
        let with_data = vec![frame(DATA, END_STREAM, 1, body)];
        let with_trailers = vec![frame(DATA, 0, 1, body), frame(HEADERS, WHOLE, 1, &[])];
        for frames in [with_data, with_trailers] {
            let mut session = open();
            let bytes = [frame(HEADERS, END_HEADERS, 1, &block), frames.concat()].concat();
            let complete = feed(&mut session, &bytes).unwrap();
            if length == 3 {
                assert_eq!(complete, [(1, false, b"bod".to_vec())]);
            } else {
                assert!(complete.is_empty(), "{length}");
                assert_eq!(written(&mut session), [(RST_STREAM, 0, 1, 4)]);
            }
        }
    }
}

#[test]
fn answers_keep_to_the_windows_of_the_client() {
    let mut session = open();
    let requests = [frame(HEADERS, WHOLE, 1, HEAD), frame(HEADERS, WHOLE, 3, HEAD)].concat();
    // Windows of three bytes, and one of them widened by two.
    let bytes = [
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 3]),
        requests,
        frame(WINDOW_UPDATE, 0, 3, &2_u32.to_be_bytes()),
    ];
    feed(&mut session, &bytes.concat()).unwrap();
    written(&mut session);
    let answer = || SimAnswer::new(StatusCode::OK, Bytes::from_static(b"seven b"));
    session.answer(1, answer());
    session.answer(3, answer());
    let heads = [(HEADERS, END_HEADERS, 1, 1), (DATA, 0, 1, 3)];
    assert_eq!(
        written(&mut session),
        [heads, [(HEADERS, END_HEADERS, 3, 1), (DATA, 0, 3, 5)]].concat()
    );
    feed(&mut session, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 5])).unwrap();
    assert_eq!(written(&mut session)[1..], [(DATA, 0, 1, 2), (DATA, END_STREAM, 3, 2)]);
    feed(&mut session, &frame(RST_STREAM, 0, 1, &[0; 4])).unwrap();
    assert!(session.bodies.is_empty());
}

#[test]
fn a_request_that_the_client_resets_is_forgotten() {
    let mut session = open();
    let bytes = [frame(HEADERS, END_HEADERS, 1, HEAD), frame(RST_STREAM, 0, 1, &[0; 4])].concat();
    assert!(feed(&mut session, &bytes).unwrap().is_empty());
    assert!(!session.has_uploads());
    session.answer(1, SimAnswer::new(StatusCode::OK, Bytes::new()));
    assert!(written(&mut session).is_empty());
}

#[test]
fn what_a_request_says_is_what_was_sent() {
    let mut encoder = loona_hpack::Encoder::new();
    let fields: [(&[u8], &[u8]); 6] = [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"host:1"),
        (b":path", b"/a?b=c"),
        (b"ttl", b"5"),
        (b"topic", b"x"),
    ];
    let mut session = open();
    for stream in [1, 3] {
        // The second time from the table.
        let block = encoder.encode(fields);
        session.receive(&frame(HEADERS, WHOLE, stream, &block));
        assert!(matches!(session.next_event(), Ok(Some(RequestEvent::Begun(_)))));
        let Some(RequestEvent::Complete(upload, false)) = session.take_whole() else {
            panic!("no request")
        };
        let request = upload.request(SimContent::Whole(b""));
        assert_eq!(
            (request.method, request.authority, request.path),
            (&http::Method::POST, "host:1", "/a")
        );
        assert_eq!((request.headers.text("ttl"), request.headers.text("topic")), ("5", "x"));
        session.recycle(upload);
    }
}
