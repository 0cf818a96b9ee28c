//! Which position of a partition may be committed: everything below it is acknowledged.

use std::collections::BTreeSet;

/// The offsets of one partition that were taken from the broker. They rise, and may have gaps.
#[derive(Debug, Default)]
pub(super) struct OffsetLog {
    /// Taken and not acknowledged.
    open: BTreeSet<i64>,
    /// The offset behind the highest that was taken.
    end: i64,
    committed: i64,
}

// === impl OffsetLog ===

impl OffsetLog {
    /// Notes that `offset` was taken. One that was taken before is open again.
    pub(super) fn take(&mut self, offset: i64) {
        self.open.insert(offset);
        self.end = self.end.max(offset.saturating_add(1));
    }

    /// Notes that `offset` is acknowledged; one that is not open changes nothing.
    pub(super) fn acknowledge(&mut self, offset: i64) {
        self.open.remove(&offset);
    }

    /// The position to commit, if it is above the last one.
    pub(super) fn due(&self) -> Option<i64> {
        let position = self.open.first().copied().unwrap_or(self.end);
        (position > self.committed).then_some(position)
    }

    /// Notes that `position` was committed.
    pub(super) fn commit(&mut self, position: i64) {
        self.committed = self.committed.max(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_position_never_passes_what_is_open() {
        let mut log = OffsetLog::default();
        assert_eq!(log.due(), None);
        for offset in [10, 11, 14, 15] {
            log.take(offset);
        }
        assert_eq!(log.due(), Some(10), "all below the first is of no concern");
        log.commit(10);
        log.acknowledge(11);
        log.acknowledge(15);
        assert_eq!(log.due(), None);
        log.acknowledge(10);
        assert_eq!(log.due(), Some(14));
        log.commit(14);
        log.acknowledge(14);
        assert_eq!(log.due(), Some(16));
        log.commit(16);
        log.acknowledge(16);
        assert_eq!(log.due(), None);
    }

    proptest! {
        #[test]
        fn whatever_the_order_everything_below_the_position_is_acknowledged(
            count in 1i64..40, order in proptest::collection::vec(0i64..40, 0..80),
        ) {
            let mut log = OffsetLog::default();
            (0..count).for_each(|offset| log.take(offset));
            let mut acknowledged = BTreeSet::new();
            for offset in order.into_iter().filter(|offset| *offset < count) {
                log.acknowledge(offset);
                acknowledged.insert(offset);
                let expected = (0..=count).find(|at| !acknowledged.contains(at)).unwrap();
                prop_assert_eq!(log.due().unwrap_or(0), expected);
            }
        }
    }
}
