//! The rules about what comes in: windows, header blocks, bodies, and floods. `docs/http2.md` has the table of rules.

use http::HeaderMap;

use super::*;
use crate::http2::streams::Streams;
use crate::http2::testing::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, NOT_PROCESSED, OK, PING,
    READ_FIELDS, RESET, SETTINGS, SeenOutcome, SessionRig, WHOLE, WINDOW_UPDATE, frame, go_away,
    kinds, request, setting, status,
};

const INITIAL_WINDOW: u16 = 4;
const STREAMS: u16 = 3;
const TABLE: u16 = 1;

fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// The bytes of bodies that are written, by stream.
fn bodies(rig: &mut SessionRig) -> Vec<(u32, usize)> {
    let data = rig.written().into_iter().filter(|(kind, ..)| *kind == DATA);
    data.map(|(_, _, stream, data)| (stream, data.len())).collect()
}

#[test]
fn a_body_waits_for_both_windows() {
    let mut rig = SessionRig::new(&setting(INITIAL_WINDOW, 10));
    let stream = rig.send(&[b'x'; 25]);
    let frames = rig.written();
    assert_eq!(kinds(&frames), [(HEADERS, stream), (DATA, stream)]);
    assert_eq!((frames[0].1, frames[1].1), (END_HEADERS, 0));
    assert_eq!(frames[1].3.len(), 10);
    rig.feed(&window_update(0, 1000));
    assert_eq!(bodies(&mut rig), [], "the stream's own is used up");
    rig.feed(&window_update(stream, 1));
    assert_eq!(bodies(&mut rig), [(stream, 1)]);
    rig.feed(&window_update(stream, 100));
    let last = rig.written();
    assert_eq!((last[0].1, last[0].3.len()), (END_STREAM, 14));
}

#[test]
fn bodies_share_the_connections_window_in_their_order() {
    let mut rig = SessionRig::new(&setting(INITIAL_WINDOW, 1 << 20));
    let first = rig.send(&vec![b'x'; 65_530]);
    assert!(rig.session.streams_max() > 0);
    let [second, third] = [rig.send(&[b'y'; 20]), rig.send(b"z")];
    assert_eq!(rig.session.streams_max(), 0, "no more requests while bodies wait for the window");
    assert_eq!(
        bodies(&mut rig),
        [(first, 16_384), (first, 16_384), (first, 16_384), (first, 16_378), (second, 5)]
    );
    rig.feed(&window_update(0, 1));
    assert_eq!(bodies(&mut rig), [(second, 1)]);
    rig.feed(&window_update(0, 15));
    // The third had its turn in between.
    assert_eq!(bodies(&mut rig), [(third, 1), (second, 14)]);
    assert!(rig.session.streams_max() > 0);
    let [given_up, last] = [rig.send(b"abc"), rig.send(b"de")];
    rig.written();
    rig.session.cancel(given_up);
    rig.feed(&window_update(0, 100));
    assert_eq!(kinds(&rig.written()), [(RESET, given_up), (DATA, last)]);
}

#[test]
fn a_body_that_is_given_up_makes_room_for_requests_before_the_window_opens() {
    let mut rig = SessionRig::new(&setting(INITIAL_WINDOW, 1 << 20));
    rig.send(&vec![b'x'; 65_535]);
    let given_up = rig.send(b"y");
    rig.written();
    assert_eq!(rig.session.streams_max(), 0);
    rig.session.cancel(given_up);
    rig.written();
    assert!(
        rig.session.streams_max() > 0,
        "or a peer that never opens it would never be found out"
    );
}

#[test]
fn the_window_of_a_body_that_a_goaway_kept_from_leaving_is_given_back() {
    let mut rig = SessionRig::new(&setting(INITIAL_WINDOW, 40_000));
    let first = rig.send(&vec![b'x'; 40_001]);
    rig.written();
    let disowned = rig.send(&vec![b'y'; 25_535]);
    rig.feed(&go_away(first, 0));
    assert_eq!(rig.outcome(disowned), NOT_PROCESSED);
    rig.feed(&window_update(first, 1));
    assert_eq!(bodies(&mut rig), [(first, 1)]);
}

#[test]
fn the_initial_window_changes_for_streams_that_are_open() {
    let mut rig = SessionRig::new(&setting(INITIAL_WINDOW, 10));
    let stream = rig.send(&[b'x'; 100]);
    assert_eq!(bodies(&mut rig), [(stream, 10)]);
    rig.feed(&frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW, 4)));
    rig.feed(&window_update(stream, 6));
    assert_eq!(bodies(&mut rig), [], "it was negative");
    rig.feed(&window_update(stream, 1));
    assert_eq!(bodies(&mut rig), [(stream, 1)]);
    rig.feed(&frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW, 0)));
    assert_eq!(bodies(&mut rig), []);
    let other = rig.send(b"abc");
    assert_eq!(kinds(&rig.written()), [(HEADERS, other)]);
    rig.feed(&frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW, 20)));
    assert_eq!(bodies(&mut rig), [(stream, 16), (other, 3)]);
}

#[test]
fn a_streams_window_that_is_widened_wrongly_costs_that_stream() {
    for (bytes, code) in [(0, 1_u32), (0x7fff_ffff, 3)] {
        let mut rig = SessionRig::new(&[]);
        let [stream, other] = [rig.send(b"a"), rig.send(b"b")];
        rig.written();
        // One byte of it was used.
        rig.feed(&window_update(stream, 1));
        rig.feed(&window_update(stream, bytes));
        assert_eq!(rig.outcome(stream), SeenOutcome::Lost);
        assert_eq!(rig.written(), [(RESET, 0, stream, code.to_be_bytes().to_vec())]);
        rig.feed(&window_update(stream, bytes));
        assert_eq!(rig.outcome(other), SeenOutcome::Pending, "what comes late is passed over");
    }
}

#[test]
fn streams_are_granted_and_withdrawn() {
    let mut rig = SessionRig::new(&setting(STREAMS, 2));
    assert_eq!(rig.session.streams_max(), 2);
    let [one, two] = [rig.send(b""), rig.send(b"")];
    let refused = rig.try_send(&request(), b"");
    assert_eq!((refused, rig.session.takes_requests()), (Err(NoReply::NotProcessed), true));
    rig.feed(&frame(SETTINGS, 0, 0, &setting(STREAMS, 1)));
    rig.feed(&frame(HEADERS, WHOLE, one, OK));
    assert!(rig.try_send(&request(), b"").is_err(), "one is open still");
    rig.feed(&frame(SETTINGS, 0, 0, &setting(STREAMS, 0)));
    rig.feed(&frame(HEADERS, WHOLE, two, OK));
    assert_eq!((rig.session.streams_max(), rig.session.takes_requests()), (0, true));
    assert!(rig.try_send(&request(), b"").is_err());
    rig.feed(&frame(SETTINGS, 0, 0, &setting(STREAMS, 500)));
    assert_eq!(rig.session.streams_max(), 500);
    assert!(rig.try_send(&request(), b"").is_ok());
    assert_eq!(
        [rig.outcome(one), rig.outcome(two)],
        [const { SeenOutcome::Answer(200, Vec::new()) }; 2]
    );
}

#[test]
fn a_connection_whose_streams_have_run_out_takes_no_more() {
    let mut rig = SessionRig::new(&[]);
    rig.session.streams = Streams::beginning_at(0x7fff_ffff);
    let last = rig.send(b"x");
    assert_eq!(
        (last, rig.session.takes_requests(), rig.session.streams_max()),
        (0x7fff_ffff, false, 0)
    );
    let refused = rig.try_send(&request(), b"");
    assert_eq!(refused, Err(NoReply::NotProcessed));
    rig.feed(&frame(HEADERS, WHOLE, last, OK));
    assert_eq!(rig.outcome(last), SeenOutcome::Answer(200, vec![]));
}

#[test]
fn heads_in_front_of_an_answer_and_fields_behind_it_are_passed_over() {
    let mut rig = SessionRig::new(&[]);
    let stream = rig.send(b"x");
    for code in [100, 103] {
        rig.feed(&frame(HEADERS, END_HEADERS, stream, &status(code)));
        assert_eq!(rig.outcome(stream), SeenOutcome::Pending);
    }
    // Padded by three bytes, with a priority.
    let padded = [&[3, 0, 0, 0, 0, 16][..], &status(400), &[0; 3]].concat();
    rig.feed(&frame(HEADERS, END_HEADERS | 0x28, stream, &padded));
    rig.feed(&frame(DATA, 8, stream, &[2, b'n', b'o', 0, 0]));
    rig.feed(&frame(HEADERS, WHOLE, stream, &[0x00, 1, b'a', 1, b'b']));
    assert_eq!(rig.outcome(stream), SeenOutcome::Answer(400, b"no".to_vec()));
}

#[test]
fn a_malformed_answer_costs_its_stream() {
    for bytes in [
        frame(DATA, 0, 1, b"x"),
        frame(HEADERS, WHOLE, 1, &[]),
        frame(HEADERS, WHOLE, 1, &status(100)),
        frame(HEADERS, WHOLE, 1, &[0x88, 0x88]),
        frame(HEADERS, WHOLE, 1, &[0x88, 0x5c, 1, b'9']),
    ] {
        let mut rig = SessionRig::new(&[]);
        let [stream, other] = [rig.send(b"x"), rig.send(b"y")];
        rig.written();
        rig.feed(&bytes);
        assert_eq!(rig.outcome(stream), SeenOutcome::Lost, "{bytes:x?}");
        assert_eq!(rig.written(), [(RESET, 0, stream, 1_u32.to_be_bytes().to_vec())]);
        rig.feed(&frame(HEADERS, WHOLE, other, OK));
        assert_eq!(rig.outcome(other), SeenOutcome::Answer(200, vec![]));
    }
}

/// A frame that was found good or bad when it came is not looked at again, or is found bad again.
#[test]
fn fields_that_come_out_of_the_table_are_judged_as_when_they_came() {
    let mut rig = SessionRig::new(&[]);
    let mut ask = |fields: &[u8]| {
        let stream = rig.send(b"");
        rig.feed(&frame(HEADERS, WHOLE, stream, &[OK, fields].concat()));
        rig.fetch(stream).unwrap().map(|reply| reply.headers).map_err(drop)
    };
    // The field that is read, one that is not, one that has no name of HTTP/2, and the number of a body that never comes.
    let literals: [&[u8]; 4] =
        [b"\x40\x01a\x01b", b"\x40\x01c\x01d", b"\x40\x01E\x01f", b"\x5c\x019"];
    let newest = [0xbe];
    let (read, none) =
        (HeaderMap::from_iter([(READ_FIELDS[0].clone(), "b".parse().unwrap())]), HeaderMap::new());
    for (literal, expect) in literals.into_iter().zip([Ok(read), Ok(none), Err(()), Err(())]) {
        assert_eq!(ask(literal), expect);
        assert_eq!([ask(&newest), ask(&newest)], [expect.clone(), expect]);
    }
    // Behind a status only, wherever they come from.
    let stream = rig.send(b"");
    rig.feed(&frame(HEADERS, WHOLE, stream, &[0xc0, 0x88]));
    assert_eq!(rig.outcome(stream), SeenOutcome::Lost);
}

#[test]
fn a_header_block_may_come_in_pieces_and_nothing_between_them() {
    let block = [status(404), b"\x00\x01a\x01b".to_vec()].concat();
    let pieces = |streams: [u32; 3]| {
        [
            frame(HEADERS, END_STREAM, streams[0], &block[..2]),
            frame(CONTINUATION, 0, streams[1], &block[2..6]),
            frame(CONTINUATION, END_HEADERS, streams[2], &block[6..]),
        ]
    };
    let mut rig = SessionRig::new(&[]);
    let stream = rig.send(b"x");
    rig.feed(&pieces([stream; 3]).concat());
    assert_eq!(rig.outcome(stream), SeenOutcome::Answer(404, vec![]));
    let [first, second, _] = pieces([1; 3]);
    let large = frame(CONTINUATION, 0, 1, &[0; 16_000]);
    let interruptions = [
        (frame(PING, 0, 0, &[0; 8]), 1),
        (frame(99, 0, 0, &[]), 1),
        (frame(HEADERS, WHOLE, 1, OK), 1),
        (frame(CONTINUATION, END_HEADERS, 3, OK), 1),
        (large.repeat(5), 11),
    ];
    for (bytes, code) in interruptions {
        let mut rig = SessionRig::new(&[]);
        rig.send(b"x");
        rig.written();
        rig.feed(&[first.clone(), second.clone(), bytes].concat());
        assert_eq!(rig.goodbye(), Some(code));
    }
}

#[test]
fn an_answer_that_comes_before_the_request_was_sent_ends_it() {
    let mut rig = SessionRig::new(&setting(INITIAL_WINDOW, 1));
    let stream = rig.send(b"body");
    rig.written();
    rig.feed(&frame(HEADERS, WHOLE, stream, &status(413)));
    assert_eq!(rig.outcome(stream), SeenOutcome::Answer(413, vec![]));
    assert_eq!(kinds(&rig.written()), [(RESET, stream)]);
    rig.feed(&window_update(stream, 10));
    rig.feed(&frame(RESET, 0, stream, &[0; 4]));
    assert_eq!(rig.written(), []);
}

/// An answer to a request that was given up is passed over when it comes, and its fields and windows count.
#[test]
fn what_was_given_up_is_reset_and_its_late_answer_passed_over() {
    let mut rig = SessionRig::new(&[]);
    let [given_up, other] = [rig.send(b"x"), rig.send(b"y")];
    rig.written();
    rig.session.cancel(given_up);
    assert_eq!(rig.written(), [(RESET, 0, given_up, 8_u32.to_be_bytes().to_vec())]);
    rig.feed(&frame(
        HEADERS,
        END_HEADERS,
        given_up,
        &[&[0x88, 0x40, 1, b'a'][..], &[1, b'b']].concat(),
    ));
    let piece = frame(DATA, 0, given_up, &[b'x'; 16_384]);
    for _ in 0..40 {
        rig.feed(&piece);
    }
    assert_eq!(rig.written(), [(WINDOW_UPDATE, 0, 0, (1_u32 << 19).to_be_bytes().to_vec())]);
    rig.feed(&frame(HEADERS, WHOLE, other, &[0x88, 0xbe]));
    let reply = rig.fetch(other).unwrap().unwrap();
    assert_eq!(reply.headers["a"], "b");
}

#[test]
fn a_body_that_is_too_large_or_longer_than_announced_is_cut() {
    for (head, pieces, kept) in
        [(status(400), 2, 16_384), ([status(400), vec![0x0f, 13, 1, b'5']].concat(), 1, 9_000)]
    {
        let mut rig = SessionRig::new(&[]);
        let stream = rig.send(b"x");
        rig.written();
        rig.feed(&frame(HEADERS, END_HEADERS, stream, &head));
        for _ in 0..pieces {
            assert_eq!(rig.outcome(stream), SeenOutcome::Pending);
            rig.feed(&frame(DATA, 0, stream, &[b'x'; 9_000]));
        }
        let SeenOutcome::Answer(400, body) = rig.outcome(stream) else { panic!("{kept}") };
        assert_eq!(body.len(), kept);
        assert_eq!(kinds(&rig.written()), [(RESET, stream)]);
    }
}

#[test]
fn a_peer_that_sends_more_than_the_window_is_stopped() {
    // What it may is counted by the peer as well: only one that does not read our updates can exceed it.
    let mut rig = SessionRig::new(&[]);
    rig.send(b"x");
    rig.written();
    rig.session.received = ANSWERS_WINDOW_BYTES;
    rig.feed(&frame(DATA, 0, 1, b"x"));
    assert_eq!(rig.goodbye(), Some(3));
}

#[test]
fn a_flood_of_any_kind_is_stopped_and_what_work_needs_is_not() {
    let one = |kind, flags, stream, payload: &[u8]| frame(kind, flags, stream, payload);
    let floods = [
        one(PING, 0, 0, &[0; 8]),
        one(PING, ACK, 0, &[0; 8]),
        one(SETTINGS, 0, 0, &[]),
        one(SETTINGS, 0, 0, &setting(INITIAL_WINDOW, 9).repeat(2_000)),
        one(SETTINGS, ACK, 0, &[]),
        one(DATA, 0, 3, b""),
        one(DATA, 0, 1, b"x"),
        one(DATA, 0, 1, b""),
        one(HEADERS, END_HEADERS, 1, OK),
        one(HEADERS, END_HEADERS, 3, &status(103)),
        one(RESET, 0, 1, &[0; 4]),
        one(2, 0, 3, &[0; 5]),
        one(99, 0, 0, b"?"),
        window_update(0, 1),
        window_update(3, 1),
        window_update(1, 1),
        go_away(9, 0),
        [one(HEADERS, 0, 3, b""), one(CONTINUATION, END_HEADERS, 3, &status(103))].concat(),
    ];
    for flood in floods {
        let mut rig = SessionRig::new(&[]);
        let [given_up, stream] = [rig.send(b"x"), rig.send(b"y")];
        rig.session.cancel(given_up);
        rig.written();
        let mut waiting = 0;
        for _ in 0..11_000 {
            rig.feed(&flood);
            waiting = waiting.max(rig.session.out.waiting());
        }
        assert_eq!(rig.goodbye(), Some(11), "{flood:x?}");
        assert_eq!(rig.outcome(stream), SeenOutcome::Lost);
        assert!(waiting < 200_000, "{waiting}");
    }
    let mut rig = SessionRig::new(&setting(INITIAL_WINDOW, 10));
    for _ in 0..1_000 {
        let stream = rig.send(&[b'x'; 400]);
        for _ in 0..40 {
            rig.feed(
                &[window_update(stream, 10), window_update(0, 10), frame(PING, 0, 0, &[0; 8])]
                    .concat(),
            );
            rig.written();
        }
        rig.feed(&frame(HEADERS, WHOLE, stream, OK));
        assert_eq!(rig.outcome(stream), SeenOutcome::Answer(200, vec![]));
    }
}

#[test]
fn the_table_that_the_peer_allows_is_followed() {
    let mut rig = SessionRig::new(&[]);
    for _ in 0..3 {
        rig.send(b"");
    }
    rig.written();
    rig.feed(&frame(SETTINGS, 0, 0, &[setting(TABLE, 0), setting(TABLE, 64)].concat()));
    rig.send(b"");
    let frames = rig.written();
    assert_eq!(
        frames[0],
        (SETTINGS, ACK, 0, vec![]),
        "in front of the first block that goes by it"
    );
    assert_eq!(frames[1].3[..3], [0x20, 0x3f, 64 - 31]);
}

/// Bytes in pieces of every size lead to equal states.
#[test]
fn frames_may_be_cut_anywhere() {
    let script = [
        frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW, 3)),
        window_update(1, 2),
        frame(HEADERS, 0, 1, &status(400)[..2]),
        frame(CONTINUATION, END_HEADERS, 1, &status(400)[2..]),
        frame(PING, 0, 0, &[1; 8]),
        frame(DATA, END_STREAM, 1, b"reason"),
        frame(99, 0, 5, &[0; 300]),
        frame(RESET, 0, 3, &7_u32.to_be_bytes()),
        go_away(5, 0),
    ]
    .concat();
    let play = |piece: usize| {
        let mut rig = SessionRig::new(&setting(INITIAL_WINDOW, 0));
        for _ in 0..4 {
            rig.send(b"body");
        }
        for bytes in script.chunks(piece) {
            rig.feed(bytes);
        }
        let outcomes = [1, 3, 5, 7].map(|stream| rig.outcome(stream));
        (outcomes, rig.written())
    };
    let whole = play(script.len());
    assert_eq!(whole.0[0], SeenOutcome::Answer(400, b"reason".to_vec()));
    for piece in 1..script.len() {
        assert_eq!(play(piece), whole, "in pieces of {piece}");
    }
}

/// Whatever comes in, it is taken or ends the connection, and no request is left waiting behind that.
#[test]
fn noise_ends_the_connection_or_is_taken() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..2_000 {
        let mut rig = SessionRig::new(&[]);
        let streams = [rig.send(b"a"), rig.send(b"b"), rig.send(b"c")];
        rig.written();
        for _ in 0..20 {
            let payload: Vec<u8> = (0..random.usize(..20)).map(|_| random.u8(..)).collect();
            let mut bytes = frame(random.u8(..11), random.u8(..) & 0x2d, random.u32(..9), &payload);
            if random.u8(..10) == 0 {
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u8(..8);
            }
            rig.feed(&bytes);
        }
        if rig.session.ending().is_some() {
            for stream in streams {
                assert_ne!(rig.outcome(stream), SeenOutcome::Pending);
            }
        }
    }
}
