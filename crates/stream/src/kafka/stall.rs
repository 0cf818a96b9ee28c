//! Finds out that a member of a group gets nothing although it should, so that it joins anew.
//!
//! The client follows the changes of a group by itself, and may come out of one of them without fetching what it holds, as after a broker
//! that came back without its data: the others leave it its partitions, and what is in those waits for ever.

use std::collections::BTreeMap;

/// The looks at a member that gets nothing.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    /// Partitions whose position was not their end at the last look, and that position. One beyond the end is of messages that the
    /// broker has lost: what comes now has numbers before it.
    astray: BTreeMap<i32, Option<i64>>,
    /// Polls without any partition, since some left this member.
    bereft_polls: u32,
}

/// A partition, as far as it is read, and its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartitionStanding {
    pub(super) partition: i32,
    /// The next message to be fetched; `None` while that is not known.
    pub(super) position: Option<i64>,
    pub(super) end: i64,
}

/// Polls after which a member whose partitions left it joins anew if it has none. A poll takes a second while nothing comes. Where there are
/// more members than partitions, one that others relieved joins anew once.
const BEREFT_POLLS_MAX: u32 = 15;

// === impl StallWatch ===

impl StallWatch {
    /// Looks at all partitions of a member that got nothing for some seconds; gives one that stands where it stood at the look
    /// before, and neither then nor now at the end of its messages.
    pub(super) fn look(&mut self, standings: &[PartitionStanding]) -> Option<i32> {
        let is_astray = |it: &&PartitionStanding| it.position.unwrap_or(0) != it.end;
        let astray: BTreeMap<i32, Option<i64>> =
            standings.iter().filter(is_astray).map(|it| (it.partition, it.position)).collect();
        let before = std::mem::replace(&mut self.astray, astray);
        let stands =
            |(partition, position): &(&i32, &Option<i64>)| before.get(partition) == Some(position);
        self.astray.iter().find(stands).map(|(partition, _)| *partition)
    }

    /// Something was got: the next look is a first one.
    pub(super) fn forget(&mut self) {
        self.astray.clear();
    }

    /// Counts a poll of a member that wants messages: it `awaits` partitions since all or some left it, in good order or not, and
    /// `has_none` now. True once there were too many.
    pub(super) const fn is_bereft(&mut self, awaits: bool, has_none: bool) -> bool {
        self.bereft_polls = if awaits && has_none { self.bereft_polls + 1 } else { 0 };
        self.bereft_polls >= BEREFT_POLLS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_stands_still_where_no_end_is_is_found_at_the_second_look() {
        let standing = |partition, position, end| PartitionStanding { partition, position, end };
        let mut watch = StallWatch::default();
        assert_eq!(watch.look(&[standing(1, Some(5), 5), standing(2, Some(3), 9)]), None);
        assert_eq!(
            watch.look(&[standing(1, Some(5), 7), standing(2, Some(9), 9)]),
            None,
            "it goes on"
        );
        assert_eq!(watch.look(&[standing(1, Some(5), 7), standing(2, Some(9), 9)]), Some(1));
        watch.forget();
        assert_eq!(watch.look(&[standing(1, Some(5), 7)]), None);
        // The broker lost what was there, and the position is of that.
        watch.forget();
        assert_eq!(watch.look(&[standing(5, Some(90), 2)]), None);
        assert_eq!(watch.look(&[standing(5, Some(90), 4)]), Some(5));
        watch.forget();
        // One whose position is not known stands still too, unless it is empty.
        assert_eq!(watch.look(&[standing(3, None, 2), standing(4, None, 0)]), None);
        assert_eq!(watch.look(&[standing(3, None, 2), standing(4, None, 0)]), Some(3));
    }

    #[test]
    fn a_member_that_lost_its_partitions_waits_a_while_for_others() {
        let mut watch = StallWatch::default();
        for _ in 1..BEREFT_POLLS_MAX {
            assert!(!watch.is_bereft(true, true));
        }
        assert!(watch.is_bereft(true, true));
        assert!(!watch.is_bereft(true, false), "it has some");
        for _ in 0..2 * BEREFT_POLLS_MAX {
            assert!(!watch.is_bereft(false, true), "there are more members than partitions");
        }
    }
}
