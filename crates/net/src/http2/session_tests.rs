//! The rules of a connection: how it begins, what it makes of its end, and time. `docs/http2.md` has the table of rules.

use super::*;
use crate::http2::testing::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INTERNAL_ERROR,
    NOT_PROCESSED, OK, PING, REFUSED, RESET, SETTINGS, SeenOutcome, SessionRig, WHOLE,
    WINDOW_UPDATE, frame, go_away, kinds, parts, request, setting, status,
};

#[test]
fn the_first_bytes_say_what_this_client_takes() {
    let mut rig = SessionRig::begin();
    let settings = [setting(2, 0), setting(6, 16_384)].concat();
    let first = [
        (SETTINGS, 0, 0, settings),
        (WINDOW_UPDATE, 0, 0, ((1_u32 << 20) - 65_535).to_be_bytes().to_vec()),
        (PING, 0, 0, 1_u64.to_be_bytes().to_vec()),
    ];
    assert_eq!(rig.written(), first);
    assert_eq!(rig.session.streams_max(), 1, "until the peer says how many");
    rig.feed(&frame(SETTINGS, 0, 0, &setting(3, 7)));
    assert!(!rig.session.is_ready());
    assert_eq!((rig.written(), rig.session.streams_max()), (vec![(SETTINGS, ACK, 0, vec![])], 7));
    rig.feed(&frame(PING, ACK, 0, &[9; 8]));
    assert!(!rig.session.is_ready(), "not the answer to this ping");
    rig.feed(&frame(PING, ACK, 0, &1_u64.to_be_bytes()));
    assert!(rig.session.is_ready());
}

#[test]
fn what_a_peer_must_not_send_ends_the_connection_with_its_code() {
    let check = |bytes: &[u8], code: u32| {
        let mut rig = SessionRig::new(&[]);
        let stream = rig.send(b"body");
        rig.written();
        rig.feed(bytes);
        assert_eq!(rig.goodbye(), Some(code), "{bytes:x?}");
        assert_eq!(rig.outcome(stream), SeenOutcome::Lost, "{bytes:x?}");
        assert!(!rig.session.takes_requests());
    };
    let (protocol, flow, size, compression) = (1, 3, 6, 9);
    check(&frame(9, 0, 1, &[]), protocol);
    check(&frame(HEADERS, END_HEADERS, 3, OK), protocol);
    check(&frame(HEADERS, END_HEADERS, 2, OK), protocol);
    check(&frame(DATA, 0, 3, b"x"), protocol);
    check(&frame(RESET, 0, 3, &[0; 4]), protocol);
    check(&frame(WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), protocol);
    check(&frame(5, END_HEADERS, 1, &[0, 0, 0, 2, 0x88]), protocol);
    for kind in [DATA, HEADERS, 2, RESET, 5, CONTINUATION] {
        check(&frame(kind, 0, 0, &[0; 4]), protocol);
    }
    for kind in [SETTINGS, PING, GOAWAY] {
        check(&frame(kind, 0, 1, &[0; 8]), protocol);
    }
    check(&frame(DATA, 8, 1, &[]), protocol);
    check(&frame(DATA, 8, 1, &[3, 0, 0]), protocol);
    check(&frame(HEADERS, 0x2c, 1, &[0, 1, 2]), protocol);
    check(&frame(SETTINGS, 0, 0, &setting(2, 1)), protocol);
    check(&frame(SETTINGS, 0, 0, &setting(5, 16_383)), protocol);
    check(&frame(SETTINGS, 0, 0, &setting(5, 1 << 24)), protocol);
    check(&frame(WINDOW_UPDATE, 0, 0, &[0; 4]), protocol);
    check(&frame(SETTINGS, 0, 0, &setting(4, 1 << 31)), flow);
    check(&frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), flow);
    let wide = frame(WINDOW_UPDATE, 0, 1, &(1_u32 << 30).to_be_bytes());
    check(&[wide, frame(SETTINGS, 0, 0, &setting(4, (1 << 31) - 1))].concat(), flow);
    check(&frame(SETTINGS, 0, 0, &[0; 5]), size);
    check(&frame(SETTINGS, ACK, 0, &[0; 6]), size);
    check(&frame(PING, 0, 0, &[0; 7]), size);
    check(&frame(RESET, 0, 1, &[0; 3]), size);
    check(&frame(GOAWAY, 0, 0, &[0; 7]), size);
    check(&frame(WINDOW_UPDATE, 0, 1, &[0; 5]), size);
    check(&[0, 0x40, 1, 0, 0, 0, 0, 0, 1], size);
    check(&frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff]), compression);
}

#[test]
fn a_connection_begins_with_settings() {
    let not_first = "its first frame is not SETTINGS (PROTOCOL_ERROR)";
    for (first, why) in [
        (frame(PING, 0, 0, &[0; 8]), not_first),
        (frame(SETTINGS, ACK, 0, &[]), not_first),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "a frame is too large (FRAME_SIZE_ERROR)"),
    ] {
        let mut rig = SessionRig::begin();
        rig.feed(&first);
        let expect = format!("the server broke the protocol: {why}");
        assert_eq!(rig.session.ending(), Some(expect.as_str()));
    }
}

#[test]
fn a_quiet_peer_is_pinged_and_a_silent_one_is_left() {
    let mut rig = SessionRig::new(&[]);
    let stream = rig.send(b"");
    rig.written();
    rig.pass(CHECK_EVERY, true);
    assert_eq!(rig.written(), [(PING, 0, 0, 2_u64.to_be_bytes().to_vec())]);
    rig.feed(&frame(PING, ACK, 0, &2_u64.to_be_bytes()));
    rig.feed(&frame(HEADERS, WHOLE, stream, OK));
    assert_eq!(rig.outcome(stream), SeenOutcome::Answer(200, vec![]));
    rig.pass(CHECK_EVERY, true);
    assert_eq!(rig.written(), [], "an answer is as good");
    let stream = rig.send(b"");
    rig.pass(CHECK_EVERY, true);
    rig.written();
    rig.pass(PONG_WITHIN, true);
    assert_eq!(rig.outcome(stream), SeenOutcome::Lost);
    assert!(rig.session.ending() == Some(SILENT));
}

#[test]
fn a_connection_without_work_is_closed_unless_a_stream_of_it_is_held() {
    let ten_minutes = Duration::from_mins(10).as_secs();
    let idle_checks = u32::try_from(ten_minutes / CHECK_EVERY.as_secs()).unwrap();
    for is_in_use in [false, true] {
        let mut rig = SessionRig::new(&[]);
        for ping in 2..=u64::from(idle_checks) {
            rig.pass(CHECK_EVERY, is_in_use);
            assert_eq!(kinds(&rig.written()), [(PING, 0)]);
            rig.feed(&frame(PING, ACK, 0, &ping.to_be_bytes()));
        }
        rig.pass(CHECK_EVERY, is_in_use);
        assert_eq!(
            (rig.goodbye(), rig.session.ending().is_some()),
            if is_in_use { (None, false) } else { (Some(0), true) }
        );
    }
}

#[test]
fn a_reset_says_whether_the_request_was_processed() {
    let check = |code: u32, expect: SeenOutcome| {
        let mut rig = SessionRig::new(&[]);
        let stream = rig.send(b"body");
        rig.written();
        rig.feed(&frame(RESET, 0, stream, &code.to_be_bytes()));
        assert_eq!(rig.outcome(stream), expect, "{code}");
        assert_eq!(rig.written(), []);
        assert_eq!(rig.session.streams_max(), usize::MAX, "the connection goes on");
    };
    check(REFUSED, SeenOutcome::NotProcessed { leave: false });
    check(13, SeenOutcome::Http11Required);
    for code in (0..20).filter(|code| ![REFUSED, 13].contains(code)) {
        check(code, SeenOutcome::Lost);
    }
}

#[test]
fn an_answer_that_has_begun_decides_whatever_comes_behind_it() {
    let endings = [
        frame(RESET, 0, 1, &REFUSED.to_be_bytes()),
        frame(RESET, 0, 1, &INTERNAL_ERROR.to_be_bytes()),
        go_away(0, 0),
        frame(HEADERS, END_HEADERS, 1, OK),
        frame(HEADERS, WHOLE, 1, &[0x04, 1, b'/']),
        frame(DATA, END_STREAM, 1, b""),
        frame(PING, 0, 1, &[0; 8]),
    ];
    for ending in endings {
        let mut rig = SessionRig::new(&[]);
        let stream = rig.send(b"body");
        rig.written();
        rig.feed(&frame(HEADERS, END_HEADERS, stream, &status(410)));
        rig.feed(&frame(DATA, 0, stream, b"{\"reason\""));
        assert_eq!(rig.outcome(stream), SeenOutcome::Pending);
        rig.feed(&ending);
        assert_eq!(
            rig.outcome(stream),
            SeenOutcome::Answer(410, b"{\"reason\"".to_vec()),
            "{ending:x?}"
        );
    }
    let mut rig = SessionRig::new(&[]);
    let stream = rig.send(b"body");
    rig.written();
    rig.feed(&frame(HEADERS, END_HEADERS, stream, &status(410)));
    rig.pass(BODY_WITHIN, true);
    assert_eq!(rig.outcome(stream), SeenOutcome::Answer(410, vec![]));
    assert_eq!(rig.written(), [(RESET, 0, stream, 8_u32.to_be_bytes().to_vec())]);
}

/// Every last stream that a GOAWAY can name, with some of the requests still unwritten; then a second one; then the end.
#[test]
fn what_is_above_a_goaways_last_stream_was_not_processed() {
    let streams = [1, 3, 5, 7, 9, 11];
    for last in 0..=12 {
        for written in 0..=streams.len() {
            let mut rig = SessionRig::new(&[]);
            for number in 0..streams.len() {
                if number == written {
                    rig.written();
                }
                rig.send(b"body");
            }
            rig.feed(&go_away(0x7fff_ffff, 0));
            assert!(!rig.session.takes_requests(), "the first step: nothing new");
            assert_eq!(rig.outcome(1), SeenOutcome::Pending);
            rig.feed(&go_away(last, 0));
            for stream in streams {
                let expect = if stream > last { NOT_PROCESSED } else { SeenOutcome::Pending };
                assert_eq!(rig.outcome(stream), expect, "{stream} of {last}");
            }
            let below = |(_, stream): &(u8, u32)| *stream <= last;
            assert!(kinds(&rig.written()).iter().all(below), "it is not written any more");
            assert!(rig.try_send(&request(), b"").is_err());
            if last >= 1 {
                rig.feed(&frame(HEADERS, WHOLE, 1, OK));
                assert_eq!(rig.outcome(1), SeenOutcome::Answer(200, vec![]), "the rest goes on");
            }
            rig.session.end("the server closed the connection");
            for stream in streams.into_iter().filter(|stream| *stream <= last && *stream > 1) {
                assert_eq!(rig.outcome(stream), SeenOutcome::Lost);
            }
        }
    }
}

#[test]
fn what_is_lost_behind_a_goaway_says_so() {
    let mut rig = SessionRig::new(&[]);
    let stream = rig.send(b"a");
    rig.written();
    rig.feed(&go_away(stream, 11));
    rig.session.end("the server closed the connection");
    let words = "no answer: the server closed the connection, after GOAWAY (ENHANCE_YOUR_CALM)";
    assert_eq!(rig.fetch(stream).unwrap().unwrap_err(), NoReply::Lost(words.to_owned()));
}

#[test]
fn a_goaway_that_takes_streams_back_in_is_a_violation() {
    let mut rig = SessionRig::new(&[]);
    let streams = [rig.send(b"a"), rig.send(b"b")];
    rig.written();
    rig.feed(&go_away(1, 0));
    rig.feed(&go_away(3, 0));
    assert_eq!(rig.goodbye(), Some(1));
    assert_eq!(streams.map(|stream| rig.outcome(stream)), [SeenOutcome::Lost, NOT_PROCESSED]);
    let mut rig = SessionRig::new(&[]);
    let stream = rig.send(b"a");
    rig.feed(&go_away(0, 13));
    assert_eq!(rig.outcome(stream), SeenOutcome::Http11Required);
}

/// The connection ends after each byte that may be offered. Nothing is written behind what was offered but whole frames that are
/// no request's.
#[test]
fn only_a_request_of_which_nothing_was_offered_was_not_sent() {
    for broken_rule in [false, true] {
        for taken in 0..300 {
            let mut rig = SessionRig::new(&[]);
            let first = [rig.send(b"one"), rig.send(b"two")];
            // All that is here is offered, and may have left, however little of it was taken.
            let piece = rig.session.offer().to_vec();
            let taken = piece.len().min(taken);
            rig.session.out.took(taken);
            let later = [rig.send(b"three"), rig.send(b"four")];
            rig.feed(&frame(PING, 0, 0, &[5; 8]));
            if broken_rule {
                rig.feed(&frame(PING, 0, 1, &[0; 8]));
            } else {
                rig.session.end("the server closed the connection");
            }
            assert_eq!(
                first.map(|stream| rig.outcome(stream)),
                [SeenOutcome::Lost, SeenOutcome::Lost]
            );
            assert_eq!(later.map(|stream| rig.outcome(stream)), [NOT_PROCESSED; 2]);
            let mut all = piece[..taken].to_vec();
            all.extend_from_slice(rig.session.offer());
            let last_words: &[_] =
                if broken_rule { &[(PING, 0), (GOAWAY, 0)] } else { &[(PING, 0)] };
            let expect = [&kinds(&parts(&piece)), last_words].concat();
            assert_eq!(kinds(&parts(&all)), expect);
        }
    }
}
