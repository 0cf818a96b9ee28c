//! The rule, case by case, and how many crashes it takes.

use notification::{Timestamp, limits};
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const KILLED: ProcessEnd = ProcessEnd { ending: Ending::Killed, before: NOW, now: NOW };
const FAULTED: ProcessEnd = ProcessEnd { ending: Ending::Faulted, ..KILLED };
const SUSPECT: u16 = limits::CRASHES_BEFORE_SUSPICION;

const fn chunk(crashes: u16, count: usize) -> InFlight {
    InFlight { crashes, claimed_at: NOW, count }
}

fn due(slot: u32) -> Timestamp {
    NOW.plus(limits::SUSPECT_PAUSE * slot)
}

#[test]
fn an_end_in_order_blames_nobody_and_clears_nobody() {
    let in_flight = [chunk(0, 1_000), chunk(SUSPECT, 1), chunk(SUSPECT + 20, 1)];
    let left = ProcessEnd { ending: Ending::Left, ..KILLED };
    assert_eq!(judge(left, &in_flight), [Fate::Returned, Fate::Returned, Fate::Returned]);
    assert!(!clears_others(Ending::Left, &[]));
}

#[test]
fn the_first_crashes_return_the_work_whole_and_the_third_divides_it() {
    let in_flight = [chunk(0, 1_000), chunk(1, 1_000), chunk(2, 32)];
    let thirds: Vec<(usize, Timestamp)> = (1..=16).map(|slot| (2, due(slot))).collect();
    let apart = Fate::Suspected { crashes: SUSPECT, parts: thirds };
    assert_eq!(judge(KILLED, &in_flight), [Fate::Counted(1), Fate::Counted(2), apart]);
}

#[test]
fn parts_go_over_the_borders_of_chunks_and_the_latest_claimed_are_first() {
    let earlier = InFlight { claimed_at: NOW.minus(limits::SUSPECT_PAUSE), ..chunk(2, 30) };
    let fates = judge(KILLED, &[earlier, chunk(2, 3), chunk(2, 1)]);
    let parts = |place: usize| match fates.get(place) {
        Some(Fate::Suspected { parts, .. }) => parts.clone(),
        other => panic!("{other:?}"),
    };
    // 34 in parts of three.
    assert_eq!(parts(1), [(3, due(1))]);
    assert_eq!(parts(2), [(1, due(2))]);
    let rest = [vec![(2, due(2))], (3..=11).map(|slot| (3, due(slot))).collect()].concat();
    assert_eq!(parts(0), [rest, vec![(1, due(12))]].concat());
}

#[test]
fn what_is_not_suspected_is_not_blamed_while_a_suspect_is_in_flight() {
    let in_flight = [chunk(2, 10), chunk(SUSPECT, 1)];
    let alone = Fate::Suspected { crashes: SUSPECT + 1, parts: vec![(1, due(1))] };
    assert_eq!(judge(KILLED, &in_flight), [Fate::Returned, alone]);
    assert!(!clears_others(Ending::Killed, &in_flight));
    assert!(clears_others(Ending::Killed, &[chunk(2, 10)]) && clears_others(Ending::Killed, &[]));
}

#[test]
fn what_was_in_flight_for_long_is_not_the_cause_of_a_kill() {
    let claimed_at = NOW.minus(limits::SUSPECT_TRIAL + std::time::Duration::from_millis(1));
    for crashes in [0, 2, SUSPECT, SUSPECT + 20] {
        let long = InFlight { claimed_at, ..chunk(crashes, 1) };
        assert_eq!(judge(KILLED, &[long]), [Fate::Returned]);
        assert_ne!(judge(FAULTED, &[long]), [Fate::Returned], "a fault is somebody's");
        let before = claimed_at.plus(limits::SUSPECT_TRIAL);
        assert_ne!(judge(ProcessEnd { before, ..KILLED }, &[long]), [Fate::Returned]);
    }
}

#[test]
fn one_alone_is_quarantined_after_four_faults_or_twenty_four_kills_in_a_row() {
    for (end, expect) in [(FAULTED, 3 + 4), (KILLED, 3 + 24)] {
        let (mut crashes, mut count) = (0, 0);
        loop {
            count += 1;
            match judge(end, &[chunk(crashes, 1)]).as_slice() {
                [Fate::Counted(now)] => crashes = *now,
                [Fate::Suspected { crashes: now, parts }] => {
                    assert_eq!(parts, &[(1, due(1))]);
                    crashes = *now;
                }
                [Fate::Quarantined] => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(count, expect, "{end:?}");
    }
}

#[test]
fn of_two_suspects_in_flight_neither_is_blamed() {
    let in_flight = [chunk(SUSPECT + 23, 1), chunk(SUSPECT + 4, 1)];
    for end in [KILLED, FAULTED] {
        let apart = |crashes, slot| Fate::Suspected { crashes, parts: vec![(1, due(slot))] };
        assert_eq!(judge(end, &in_flight), [apart(SUSPECT + 23, 1), apart(SUSPECT + 4, 2)]);
    }
}

/// Some notifications that are due together.
#[derive(Debug, Clone)]
struct Piece {
    crashes: u16,
    due: Timestamp,
    members: Vec<usize>,
}

/// Time that the next process takes to start.
const START: std::time::Duration = std::time::Duration::from_millis(300);

/// A store whose process delivers due chunks at once, and ends by a fault when it sends a poisonous one.
struct World {
    pieces: Vec<Piece>,
    poisons: Vec<usize>,
    dead: Vec<usize>,
    now: Timestamp,
}

impl World {
    /// Runs one process from its start to its crash; false when there was none.
    fn run(&mut self) -> bool {
        let poisonous =
            |piece: &Piece| piece.members.iter().any(|member| self.poisons.contains(member));
        let first = self.pieces.iter().filter(|piece| poisonous(piece)).map(|piece| piece.due);
        let Some(at) = first.min() else { return false };
        self.now = self.now.max(at);
        // Chunks due before were delivered; those due now are in flight, some poison with them.
        self.pieces.retain(|piece| piece.due >= at || poisonous(piece));
        let now = self.now;
        let (hit, mut waiting): (Vec<Piece>, Vec<Piece>) =
            self.pieces.drain(..).partition(|piece| piece.due <= now);
        let row = |piece: &Piece| InFlight {
            crashes: piece.crashes,
            claimed_at: piece.due,
            count: piece.members.len(),
        };
        let in_flight: Vec<InFlight> = hit.iter().map(row).collect();
        if clears_others(Ending::Faulted, &in_flight) {
            for piece in &mut waiting {
                piece.crashes = piece.crashes.min(SUSPECT);
            }
        }
        self.now = now.plus(START);
        let end = ProcessEnd { ending: Ending::Faulted, before: now, now: self.now };
        for (mut piece, fate) in hit.into_iter().zip(judge(end, &in_flight)) {
            match fate {
                Fate::Returned => waiting.push(piece),
                Fate::Counted(crashes) => waiting.push(Piece { crashes, ..piece }),
                Fate::Suspected { crashes, parts } => {
                    for (count, due) in parts {
                        let members = piece.members.drain(..count).collect();
                        waiting.push(Piece { crashes, due, members });
                    }
                    assert!(piece.members.is_empty(), "every member is in one part");
                }
                Fate::Quarantined => self.dead.append(&mut piece.members),
            }
        }
        self.pieces = waiting;
        true
    }
}

fn crashes_until_quiet(chunks: &[usize], poisons: Vec<usize>) -> (usize, Vec<usize>) {
    let (mut pieces, mut first) = (Vec::new(), 0);
    for &count in chunks {
        pieces.push(Piece { crashes: 0, due: NOW, members: (first..first + count).collect() });
        first += count;
    }
    let mut world = World { pieces, poisons, dead: Vec::new(), now: NOW };
    let mut crashes = 0;
    while world.run() {
        crashes += 1;
        assert!(crashes < 1_000, "it comes to an end");
    }
    world.dead.sort_unstable();
    (crashes, world.dead)
}

/// Three until the work is divided, one for each division, and four alone.
fn bound(count: usize) -> usize {
    let mut divisions = 0;
    let mut size = count;
    while size > 1 {
        size = size.div_ceil(limits::SUSPECT_PARTS);
        divisions += 1;
    }
    3 + divisions + 4
}

#[test]
fn a_poisonous_one_among_a_quarter_of_a_million_is_found_in_twelve_crashes() {
    let chunks = [1_000; 256];
    assert_eq!(bound(256_000), 12);
    for poison in [0, 1, 127_999, 255_999] {
        let (crashes, dead) = crashes_until_quiet(&chunks, vec![poison]);
        assert!(crashes <= 12, "{poison} took {crashes}");
        assert_eq!(dead, [poison]);
    }
}

proptest! {
    #[test]
    fn exactly_the_poisonous_ones_are_quarantined_in_bounded_crashes(
        chunks in prop::collection::vec(1usize..200, 1..20),
        picks in prop::collection::btree_set(0usize..4_000, 1..4),
    ) {
        let total: usize = chunks.iter().sum();
        let mut poisons: Vec<usize> = picks.into_iter().map(|pick| pick % total).collect();
        poisons.sort_unstable();
        poisons.dedup();
        let (crashes, dead) = crashes_until_quiet(&chunks, poisons.clone());
        // While two are in flight together neither is blamed. In 390,000 cases that cost three crashes at most.
        let together = poisons.len() * (poisons.len() - 1);
        prop_assert!(crashes <= poisons.len() * bound(total) + together, "{} crashes", crashes);
        prop_assert_eq!(dead, poisons);
    }
}
