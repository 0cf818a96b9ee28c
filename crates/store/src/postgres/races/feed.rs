//! The feed and its moves: no two moves are from one place.

use std::collections::HashMap;

use notification::Name;

use crate::{EventPosition, FeedCursor};

/// The answers about the feed.
#[derive(Debug)]
pub(super) struct Feed {
    /// Places that the feed was said to be at, in the order of the answers.
    pub(super) known: Vec<FeedCursor>,
    /// Places that were requested so far.
    asked: u64,
    /// Moves that were done, by where they began.
    moves: HashMap<u64, FeedCursor>,
}

// === impl Feed ===

impl Default for Feed {
    fn default() -> Self {
        Self { known: vec![FeedCursor::default()], asked: 0, moves: HashMap::new() }
    }
}

impl Feed {
    /// The known cursor of the feed, or the one before it.
    pub(super) fn draw(&self, random: &mut fastrand::Rng) -> FeedCursor {
        let back = usize::from(random.u8(..4) == 0).min(self.known.len() - 1);
        self.known[self.known.len() - 1 - back]
    }

    /// A place that no other caller requests.
    pub(super) fn next(&mut self) -> FeedCursor {
        self.asked += 1;
        let position = EventPosition { transaction: 1, event: self.asked };
        FeedCursor { position, ..FeedCursor::default() }
    }

    /// The answer to a move; returns a contradiction.
    pub(super) fn moved(
        &mut self,
        from: FeedCursor,
        to: FeedCursor,
        answer: FeedCursor,
    ) -> Option<String> {
        self.known.push(answer);
        if answer == to {
            let other = self.moves.insert(from.position.event, to)?;
            return Some(format!("the feed was moved from {from:?} to {other:?}, and to {to:?}"));
        }
        (answer == from).then(|| format!("the feed is at {from:?}, and was not moved from there"))
    }

    /// Compares the end of the feed with the answers; a finding if it contradicts them.
    pub(super) fn ended(&self, end: FeedCursor) -> Option<String> {
        let (mut place, mut passed) = (FeedCursor::default(), vec![FeedCursor::default()]);
        while let Some(next) = self.moves.get(&place.position.event) {
            place = *next;
            passed.push(place);
        }
        if place != end || passed.len() != self.moves.len() + 1 {
            return Some(format!("the feed is at {end:?}, after {:?}", self.moves));
        }
        let other = self.known.iter().find(|known| !passed.contains(known))?;
        Some(format!("the feed was said to be at {other:?}, where it never was"))
    }
}

pub(super) fn name() -> Name {
    crate::conformance::name("feed")
}
