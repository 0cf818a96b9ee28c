//! A server that does whatever the standard lets it, in scripts that a seed decides: bytes are written and read in pieces of any
//! size, answers are cut, streams refused, windows and limits changed, and the connection breaks anywhere. In the end the server's
//! own account says which requests it processed, and the client's verdicts must agree with it.
//!
//! `BELFRY_WIRE_SCRIPTS` says how many scripts there are, and `BELFRY_WIRE_SEED` plays one again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fastrand::Rng;

use super::hpack::Decoder;
use super::testing::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Outcome, PING, Parts, RESET,
    Rig, SETTINGS, WINDOW_UPDATE, for_each_seed, frame, go_away, parts, setting, status,
};

const SCRIPTS: u64 = 2_000;
const STEPS: usize = 200;
const STATUSES: [u16; 4] = [200, 400, 410, 503];
const REFUSED: u32 = 7;
const HTTP_1_1_REQUIRED: u32 = 13;

/// What the server knows of a request.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: any of them may be true beside any other"
)]
struct Served {
    /// The request has come to its end.
    is_whole: bool,
    /// The server has acted on it, so it must not be sent again.
    is_processed: bool,
    /// The server has said that it will not act on it.
    is_disowned: bool,
    status: Option<u16>,
    is_over: bool,
    received: i64,
    granted: i64,
}

#[derive(Debug)]
struct Server {
    decoder: Decoder,
    streams: BTreeMap<u32, Served>,
    last_stream: u32,
    received: i64,
    granted: i64,
    /// The widest initial window that it ever granted.
    initial: i64,
}

struct World {
    rig: Rig,
    server: Server,
    random: Rng,
    /// Bytes that have left the client, and those that have left the server.
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// What became of each request that has an outcome; `None` where it was given up.
    outcomes: BTreeMap<u32, Option<Outcome>>,
    sent: Vec<u32>,
}

// === impl Server ===

impl Server {
    fn new() -> Self {
        let (streams, decoder) = (BTreeMap::new(), Decoder::new());
        Self {
            decoder,
            streams,
            last_stream: u32::MAX,
            received: 0,
            granted: 65_535,
            initial: 65_535,
        }
    }

    fn read(&mut self, (kind, flags, stream, payload): Parts, answers: &mut Vec<u8>) {
        match kind {
            HEADERS => {
                self.decoder.decode(&payload, |_, _, _| false).expect("a block that can be read");
                assert_eq!(flags & END_HEADERS, END_HEADERS);
                assert!(self.streams.keys().all(|other| *other < stream), "numbers rise");
                let served = self.streams.entry(stream).or_default();
                served.is_whole = flags & END_STREAM != 0;
                served.is_disowned = stream > self.last_stream;
            }
            DATA => {
                let bytes = i64::try_from(payload.len()).unwrap();
                self.received += bytes;
                assert!(self.received <= self.granted, "more than the connection's window");
                let served = self.streams.get_mut(&stream).expect("a stream that is open");
                assert!(!served.is_whole, "a body behind its end");
                served.received += bytes;
                assert!(
                    served.received <= self.initial + served.granted,
                    "more than the stream's window"
                );
                served.is_whole = flags & END_STREAM != 0;
            }
            RESET => {
                let served = self.streams.get_mut(&stream).expect("a stream that is open");
                served.is_over = true;
            }
            PING if flags & ACK == 0 => answers.extend(frame(PING, ACK, 0, &payload)),
            SETTINGS if flags & ACK == 0 => answers.extend(frame(SETTINGS, ACK, 0, &[])),
            SETTINGS | PING | WINDOW_UPDATE | GOAWAY => {}
            other => panic!("a frame of kind {other}"),
        }
    }

    /// Acts on all that it has read and has not disowned: as it may at any time, even when the client is gone.
    fn process_all(&mut self) {
        for served in self.streams.values_mut() {
            served.is_processed |= served.is_whole && !served.is_disowned && !served.is_over;
        }
    }
}

// === impl World ===

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut rig = Rig::new(&setting(3, random.u32(1..20)));
        let mut server = Server::new();
        // As if the rest of the connection's window was used before.
        server.granted = random.choice([0, 300, 65_535]).unwrap();
        rig.session.window = server.granted;
        let (to_server, to_client, outcomes, sent) = Default::default();
        Self { rig, server, random, to_server, to_client, outcomes, sent }
    }

    fn step(&mut self) {
        match self.random.u8(..20) {
            0..4 => self.send(),
            4..8 => self.write(false),
            8..11 => self.serve(),
            11..15 => self.act(),
            15..18 => {
                let bytes: Vec<u8> = self.take_to_client();
                self.rig.feed(&bytes);
                self.collect();
            }
            18 if self.random.u8(..4) == 0 => self.give_up(),
            _ => {
                let span = Duration::from_millis(self.random.u64(..3_000));
                self.rig.pass(span, true);
                self.collect();
            }
        }
    }

    fn send(&mut self) {
        let open = self.sent.len() - self.outcomes.len();
        if self.rig.session.streams_max() > open {
            let body = vec![b'x'; self.random.usize(..300)];
            let stream = self.rig.send(&body);
            self.sent.push(stream);
        }
    }

    /// Writes a part of what waits; a writer that fails may have written some of what it says it did not take.
    fn write(&mut self, fails: bool) {
        let piece = self.rig.session.offer().to_vec();
        let some = self.random.usize(..=piece.len());
        self.to_server.extend_from_slice(&piece[..some]);
        if !fails {
            self.rig.session.out.took(some);
        }
    }

    /// The server reads what has come, to the last whole frame.
    fn serve(&mut self) {
        let mut end = 0;
        while let Some([one, two, three, ..]) = self.to_server.get(end..)
            && let length = u32::from_be_bytes([0, *one, *two, *three]) as usize
            && self.to_server.len() >= end + 9 + length
        {
            end += 9 + length;
        }
        let whole: Vec<u8> = self.to_server.drain(..end).collect();
        for frame in parts(&whole) {
            self.server.read(frame, &mut self.to_client);
        }
    }

    fn take_to_client(&mut self) -> Vec<u8> {
        let some = self.random.usize(..=self.to_client.len());
        self.to_client.drain(..some).collect()
    }

    /// The server does something on its own.
    fn act(&mut self) {
        let bytes = match self.random.u8(..12) {
            0..5 => self.answer(),
            5 | 6 => self.reset(),
            7 => {
                let bytes = self.random.choice([0, 1, 100, 70_000]).unwrap();
                self.server.initial = self.server.initial.max(i64::from(bytes));
                frame(SETTINGS, 0, 0, &setting(4, bytes))
            }
            8 => frame(SETTINGS, 0, 0, &setting(3, self.random.u32(..20))),
            9 => frame(
                SETTINGS,
                0,
                0,
                &setting(1, self.random.choice([0, 40, 200, 4096, 100_000]).unwrap()),
            ),
            10 => self.widen(),
            _ if self.random.u8(..4) == 0 => self.go_away(),
            _ => frame(PING, 0, 0, &[1; 8]),
        };
        self.to_client.extend(bytes);
    }

    /// A stream on which the server may still say something.
    fn any_stream(&mut self) -> Option<u32> {
        let open =
            self.server.streams.iter().filter(|(_, served)| !served.is_over && !served.is_disowned);
        let open: Vec<u32> = open.map(|(stream, _)| *stream).collect();
        self.random.choice(open)
    }

    fn answer(&mut self) -> Vec<u8> {
        let Some(stream) = self.any_stream() else { return Vec::new() };
        let served = self.server.streams.get_mut(&stream).unwrap();
        served.is_processed = true;
        if served.status.is_some() {
            served.is_over = self.random.bool();
            let flags = if served.is_over { END_STREAM } else { 0 };
            return if served.is_over && self.random.bool() {
                frame(HEADERS, END_STREAM | END_HEADERS, stream, &[0x00, 1, b'a', 1, b'b'])
            } else {
                frame(DATA, flags, stream, b"{\"reason\":\"x\"}")
            };
        }
        if self.random.u8(..4) == 0 {
            return frame(HEADERS, END_HEADERS, stream, &status(103));
        }
        let code = self.random.choice(STATUSES).unwrap();
        served.status = Some(code);
        served.is_over = self.random.bool();
        let flags = if served.is_over { END_STREAM } else { 0 };
        let block =
            [status(code), vec![0x40, 1, b'k', 1, self.random.alphanumeric() as u8]].concat();
        if self.random.bool() {
            return frame(HEADERS, flags | END_HEADERS, stream, &block);
        }
        let (begin, end) = block.split_at(self.random.usize(..block.len()));
        [frame(HEADERS, flags, stream, begin), frame(CONTINUATION, END_HEADERS, stream, end)]
            .concat()
    }

    fn reset(&mut self) -> Vec<u8> {
        let Some(stream) = self.any_stream() else { return Vec::new() };
        let served = self.server.streams.get_mut(&stream).unwrap();
        // It refuses only what it has not acted on.
        let codes = if served.is_processed { [2, 8, 0] } else { [2, REFUSED, HTTP_1_1_REQUIRED] };
        let code = self.random.choice(codes).unwrap();
        served.is_over = true;
        served.is_disowned = [REFUSED, HTTP_1_1_REQUIRED].contains(&code);
        served.is_processed |= !served.is_disowned;
        frame(RESET, 0, stream, &code.to_be_bytes())
    }

    fn widen(&mut self) -> Vec<u8> {
        let bytes = self.random.choice([1, 50, 5_000]).unwrap();
        let update = |stream| frame(WINDOW_UPDATE, 0, stream, &u32::to_be_bytes(bytes));
        if let Some(stream) = self.any_stream()
            && self.random.bool()
        {
            self.server.streams.get_mut(&stream).unwrap().granted += i64::from(bytes);
            return update(stream);
        }
        self.server.granted += i64::from(bytes);
        update(0)
    }

    /// The server says which it will process: all that it has acted on, and any of the others.
    fn go_away(&mut self) -> Vec<u8> {
        let processed = self.server.streams.iter().rev().find(|(_, served)| served.is_processed);
        let lowest = processed.map_or(0, |(stream, _)| *stream);
        let highest = self.server.last_stream.min(lowest + 12);
        let last = if self.random.bool() {
            self.server.last_stream.min(0x7fff_ffff)
        } else {
            self.random.u32(lowest..=highest)
        };
        self.server.last_stream = last;
        for (_, served) in self.server.streams.range_mut(last + 1..) {
            served.is_disowned = true;
        }
        go_away(last, self.random.choice([0, 0, 2, 11]).unwrap())
    }

    fn give_up(&mut self) {
        let open: Vec<u32> = self
            .sent
            .iter()
            .copied()
            .filter(|stream| !self.outcomes.contains_key(stream))
            .collect();
        if let Some(stream) = self.random.choice(open) {
            self.rig.session.cancel(stream);
            self.outcomes.insert(stream, None);
        }
    }

    fn collect(&mut self) {
        for stream in self.sent.clone() {
            if !self.outcomes.contains_key(&stream) {
                let outcome = self.rig.outcome(stream);
                if outcome != Outcome::Pending {
                    self.outcomes.insert(stream, Some(outcome));
                }
            }
        }
    }

    /// The connection breaks in one of the ways that connections do; the server still reads what has left.
    fn cut(&mut self) {
        let way = self.random.u8(..3);
        match way {
            0 => {
                self.write(true);
                self.rig.session.end("a write failed");
            }
            1 => {
                let bytes = self.take_to_client();
                self.rig.feed(&bytes);
                self.rig.session.end("the server closed the connection");
            }
            _ => {
                let bytes = std::mem::take(&mut self.to_client);
                self.rig.feed(&[bytes, frame(PING, 0, 1, &[0; 8])].concat());
            }
        }
        self.collect();
        // Its last words leave as well, unless nothing can be written.
        for _ in 0..if way == 0 { 0 } else { 10 } {
            self.write(false);
        }
        self.serve();
        self.server.process_all();
    }

    fn check(&self) {
        for stream in &self.sent {
            let served = self.server.streams.get(stream);
            let is_processed = served.is_some_and(|served| served.is_processed);
            match self.outcomes.get(stream) {
                None | Some(Some(Outcome::Pending)) => {
                    panic!("{stream} is waited for without an end")
                }
                Some(Some(Outcome::NotProcessed { .. } | Outcome::Http11Required)) => {
                    assert!(!is_processed, "{stream} would be processed twice: {served:?}");
                }
                Some(Some(Outcome::Answer(code, _))) => {
                    assert_eq!(served.and_then(|served| served.status), Some(*code), "{stream}");
                }
                // Nobody knows.
                Some(None | Some(Outcome::Lost)) => {}
            }
        }
    }
}

#[test]
fn the_clients_verdicts_agree_with_the_servers_account() {
    let mut verdicts = HashMap::<_, usize>::new();
    let seeds = for_each_seed(SCRIPTS, |seed| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.cut();
        world.check();
        for outcome in world.outcomes.into_values().flatten() {
            *verdicts.entry(std::mem::discriminant(&outcome)).or_default() += 1;
        }
    });
    if seeds > 100 {
        assert_eq!(verdicts.len(), 4, "answered, refused, for HTTP/1.1, and lost: {verdicts:?}");
    }
}
