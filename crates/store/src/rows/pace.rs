//! The pace of lanes while they had more to send than their destinations took at a time.

use notification::Timestamp;

/// The paces of the lanes that were busy last. A lane with less to send gives no evidence of the pace it could have.
#[derive(Debug)]
pub(crate) struct Paces<Lane> {
    lanes: Vec<(Lane, Pace)>,
}

/// Pace of one lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    /// Deliveries that were answered in each of the last busy seconds.
    answered: Vec<u32>,
    /// End of the last of these seconds, in seconds since the epoch.
    busy_until: i64,
    /// The present second, since the epoch.
    second: i64,
    present: u32,
    /// True if the lane had more to send at every answer of the present second.
    is_busy: bool,
    /// True if the lane had more to send in the second before, so that the present one is whole.
    is_whole: bool,
}

/// Lanes whose pace is kept.
const LANES: usize = 256;
/// Busy seconds that are kept of a lane.
const SECONDS: usize = 16;

// === impl Paces ===

impl<Lane: PartialEq + Clone> Paces<Lane> {
    /// Notes that `answered` deliveries of the lane were answered at `at`; `is_busy` if there was more to send.
    pub(crate) fn note(&mut self, lane: &Lane, at: Timestamp, answered: usize, is_busy: bool) {
        let second = at.seconds();
        let known = self.lanes.iter().position(|(other, _)| other == lane);
        let position = match known {
            Some(position) => position,
            None if is_busy => self.make_room(lane.clone()),
            None => return,
        };
        let Some((_, pace)) = self.lanes.get_mut(position) else { return };
        pace.turn_to(second);
        pace.present = pace.present.saturating_add(u32::try_from(answered).unwrap_or(u32::MAX));
        pace.is_busy &= is_busy;
    }

    /// Paces of the lanes that have one: deliveries answered in each of some busy seconds, and the end of the last.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&Lane, &[u32], Timestamp)> {
        let known = self.lanes.iter().filter(|(_, pace)| !pace.answered.is_empty());
        known.map(|(lane, pace)| {
            (lane, &*pace.answered, Timestamp::from_millis(pace.busy_until.saturating_mul(1_000)))
        })
    }

    /// Position of a new lane, in place of the one that was not busy for the longest time if there are many.
    fn make_room(&mut self, lane: Lane) -> usize {
        let busy = |(_, (_, pace)): &(usize, &(Lane, Pace))| (pace.busy_until, pace.second);
        let oldest = self.lanes.iter().enumerate().min_by_key(busy);
        match oldest {
            Some((position, _)) if self.lanes.len() >= LANES => {
                self.lanes.swap_remove(position);
            }
            _ => {}
        }
        self.lanes.push((lane, Pace::default()));
        self.lanes.len() - 1
    }
}

impl<Lane> Default for Paces<Lane> {
    fn default() -> Self {
        Self { lanes: Vec::new() }
    }
}

// === impl Pace ===

impl Pace {
    fn turn_to(&mut self, second: i64) {
        // Settlements of two processes may come in the wrong order; after a clock was set back, all is new.
        if second == self.second || (self.second - 10..self.second).contains(&second) {
            return;
        }
        let is_next = second == self.second + 1;
        if is_next && self.is_busy && self.is_whole {
            if self.answered.len() == SECONDS {
                self.answered.remove(0);
            }
            self.answered.push(self.present);
            self.busy_until = second;
        }
        let is_whole = is_next && self.is_busy;
        (self.second, self.present, self.is_busy, self.is_whole) = (second, 0, true, is_whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(1_000 * second)
    }

    fn known(paces: &Paces<u8>) -> Vec<u32> {
        paces.known().flat_map(|(_, answered, _)| answered.to_vec()).collect()
    }

    #[test]
    fn only_whole_seconds_in_which_there_was_more_to_send_count() {
        let mut paces = Paces::default();
        for (second, answered) in (1..=5).zip(1..) {
            paces.note(&1, at(second), 10, true);
            paces.note(&1, at(second), answered, true);
        }
        assert_eq!(known(&paces), [12, 13, 14], "the first may not be whole, the last is not over");
        paces.note(&1, at(6), 1, false);
        for second in [7, 8, 100, 101, 102] {
            paces.note(&1, at(second), 7, true);
        }
        assert_eq!(known(&paces), [12, 13, 14, 15, 7]);
        paces.note(&1, at(103), 1, false);
        paces.note(&1, at(150), 1, false);
        let busy_until = paces.known().map(|(_, _, until)| until).next();
        assert_eq!(busy_until, Some(at(103)), "and not when it last answered");
        paces.note(&2, at(103), 7, false);
        assert_eq!(paces.lanes.len(), 1, "a lane that is not busy takes no place");
        for second in 200..300 {
            paces.note(&1, at(second), 3, true);
        }
        assert_eq!(known(&paces), [3; SECONDS]);
    }

    #[test]
    fn the_lane_that_was_busy_longest_ago_makes_room() {
        let mut paces = Paces::default();
        for lane in 0..=LANES {
            let second = i64::try_from(lane).unwrap();
            paces.note(&lane, at(second), 1, true);
        }
        assert_eq!(paces.lanes.len(), LANES);
        assert!(paces.lanes.iter().all(|(lane, _)| *lane > 0));
    }
}
