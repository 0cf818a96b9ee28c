//! A [server](super::scripted_server) that does whatever the standard lets it, in scripts that a seed decides: bytes are written
//! and read in pieces of any size, answers are cut, streams refused, windows and limits changed, and the connection breaks anywhere.
//! In the end the server's own account says which requests it processed, and the client's verdicts must agree with it.
//!
//! `BELFRY_WIRE_SCRIPTS` says how many scripts there are, and `BELFRY_WIRE_SEED` plays one again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fastrand::Rng;

use super::scripted_server::{ClientVerdict, ScriptedServer};
use super::testing::{PING, SeenOutcome, SessionRig, for_each_seed, frame, setting};

const SCRIPTS: u64 = 2_000;
const STEPS: usize = 200;

struct World {
    rig: SessionRig,
    server: ScriptedServer,
    random: Rng,
    /// Outcomes of requests by number; `None` where the request was given up.
    outcomes: BTreeMap<u32, Option<SeenOutcome>>,
    sent: Vec<u32>,
}

// === impl World ===

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut rig = SessionRig::new(&setting(3, random.u32(1..20)));
        let mut server = ScriptedServer::new(random.fork());
        // As if the rest of the connection's window was used before.
        server.granted = random.choice([0, 300, 65_535]).unwrap();
        rig.session.window = server.granted;
        let (outcomes, sent) = Default::default();
        Self { rig, server, random, outcomes, sent }
    }

    fn step(&mut self) {
        match self.random.u8(..20) {
            0..4 => self.send(),
            4..8 => self.write(false),
            8..11 => self.server.read(),
            11..15 => self.server.act(),
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
        self.server.input.extend_from_slice(&piece[..some]);
        if !fails {
            self.rig.session.out.took(some);
        }
    }

    fn take_to_client(&mut self) -> Vec<u8> {
        let some = self.random.usize(..=self.server.output.len());
        self.server.output.drain(..some).collect()
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
                if outcome != SeenOutcome::Pending {
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
                let bytes = std::mem::take(&mut self.server.output);
                self.rig.feed(&[bytes, frame(PING, 0, 1, &[0; 8])].concat());
            }
        }
        self.collect();
        // Its last words leave as well, unless nothing can be written.
        for _ in 0..if way == 0 { 0 } else { 10 } {
            self.write(false);
        }
        self.server.read();
        self.server.process_all();
    }

    fn check(&self) {
        for stream in &self.sent {
            let verdict = match self.outcomes.get(stream) {
                None | Some(Some(SeenOutcome::Pending)) => {
                    panic!("{stream} is waited for without an end")
                }
                Some(Some(SeenOutcome::NotProcessed { .. } | SeenOutcome::Http11Required)) => {
                    ClientVerdict::NotProcessed
                }
                Some(Some(SeenOutcome::Answer(status, _))) => ClientVerdict::Answered(*status),
                Some(None | Some(SeenOutcome::Lost)) => ClientVerdict::Unknown,
            };
            let served: Vec<_> = self.server.streams.get(stream).into_iter().collect();
            verdict.check(&format!("the request on stream {stream}"), &served);
        }
    }
}

#[test]
fn the_clients_verdicts_agree_with_the_servers_account() {
    let mut verdicts = HashMap::<_, usize>::new();
    let seeds = for_each_seed(SCRIPTS, 1, |seed| {
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
