//! The position up to which the outbox is drained: arithmetic on snapshots.
//!
//! A row becomes visible when its transaction commits, which may be long after transactions with higher numbers did. The position
//! is therefore no number but a snapshot: it names the transactions that had ended. The next drain takes the rows of those that
//! have ended since; a transaction whose rows are left for lack of room counts as running in the snapshot that is left behind.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::StoreError;

/// The transactions that had ended, as `pg_snapshot` gives them: all below `xmax` except those that were running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndedTransactions {
    pub(super) xmax: u64,
    pub(super) running: BTreeSet<u64>,
}

/// The rows that were taken: all of the transactions that had ended, and some of one more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) ended: EndedTransactions,
    /// Last row taken of the transaction that was taken in part.
    pub(super) part: Option<RowPosition>,
}

/// A row: its transaction, its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowPosition {
    pub(super) txid: u64,
    pub(super) id: i64,
}

/// Transactions in a row, to be read from behind a place on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) after: RowPosition,
}

// === impl EndedTransactions ===

impl FromStr for EndedTransactions {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let damaged = || StoreError::Damaged(format!("{text} is no snapshot"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| damaged());
        let mut parts = text.split(':');
        let (Some(_xmin), Some(xmax), Some(running)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(damaged());
        };
        let running = running.split(',').filter(|xid| !xid.is_empty());
        Ok(Self { xmax: number(xmax)?, running: running.map(number).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for EndedTransactions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not kept: all numbers below the lowest that runs have ended.
        let xmin = self.running.first().unwrap_or(&self.xmax);
        write!(formatter, "{xmin}:{}:", self.xmax)?;
        // In ascending order, or PostgreSQL refuses the snapshot.
        for (position, xid) in self.running.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(formatter, "{comma}{xid}")?;
        }
        Ok(())
    }
}

// === impl Position ===

impl Position {
    /// Transactions that were running then and have ended by `now`, in the order in which they are to be taken: the one
    /// of which a part was taken comes first, so that there is never a second one.
    pub(super) fn late(&self, now: &EndedTransactions) -> Vec<u64> {
        let mut late: Vec<u64> = self.ended.running.difference(&now.running).copied().collect();
        late.sort_by_key(|txid| (self.part.is_none_or(|part| part.txid != *txid), *txid));
        late
    }

    /// All rows of one transaction that were not taken.
    pub(super) fn rest_of(&self, txid: u64) -> Span {
        let part = self.part.filter(|part| part.txid == txid);
        Span { first: txid, last: txid, after: part.unwrap_or(RowPosition { txid, id: 0 }) }
    }

    /// Transactions with numbers that were not given then, to be taken last; `None` when there are none yet.
    pub(super) fn new_ones(&self, now: &EndedTransactions) -> Option<Span> {
        let first = self.ended.xmax;
        let span = || Span { first, last: now.xmax - 1, after: RowPosition { txid: first, id: 0 } };
        (first < now.xmax).then(span)
    }

    /// The position after everything that had ended by `now` was taken: all of it, or in order up to `stopped`.
    pub(super) fn moved(&self, now: EndedTransactions, stopped: Option<RowPosition>) -> Self {
        let Some(part) = stopped else { return Self { ended: now, part: None } };
        let late = self.late(&now);
        // Later ones are left, and of the last one perhaps a part: they count as running still.
        let left = late.iter().skip_while(|txid| **txid != part.txid).chain([&part.txid]);
        // If it stopped among those that ended late, nothing of the new ones is taken, and the bound stays.
        let xmax = self.ended.xmax.max(part.txid + 1);
        let running = now.running.range(..xmax).chain(left).copied().collect();
        Self { ended: EndedTransactions { xmax, running }, part: Some(part) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_snapshot_is_written_as_it_was_read() {
        for text in ["10:20:10,14,15", "100:100:", "3:4:3"] {
            assert_eq!(text.parse::<EndedTransactions>().unwrap().to_string(), text);
        }
        for text in ["", "1", "1:2", "1:x:", "1:2:y"] {
            assert!(text.parse::<EndedTransactions>().is_err(), "{text}");
        }
    }

    /// A model of the database.
    #[derive(Debug, Default)]
    struct Model {
        /// Number of rows of each transaction, by number, and its end: `None` while it runs, else whether it was committed.
        transactions: Vec<(i64, Option<bool>)>,
        taken: Vec<RowPosition>,
    }

    impl Model {
        fn ended(&self) -> EndedTransactions {
            let running = |(xid, (_, end)): (usize, &(i64, Option<bool>))| {
                end.is_none().then_some(xid as u64)
            };
            EndedTransactions {
                xmax: self.transactions.len() as u64,
                running: self.transactions.iter().enumerate().filter_map(running).collect(),
            }
        }

        /// The rows in a span that `now` shows, in order.
        fn rows(&self, span: Span, now: &EndedTransactions) -> Vec<RowPosition> {
            let visible = (span.first..=span.last)
                .filter(|xid| *xid < now.xmax && !now.running.contains(xid));
            let committed = visible
                .map(|xid| (xid, self.transactions[usize::try_from(xid).unwrap()]))
                .filter(|(_, (_, end))| *end == Some(true));
            committed
                .flat_map(|(txid, (rows, _))| (1..=rows).map(move |id| RowPosition { txid, id }))
                .filter(|place| *place > span.after)
                .collect()
        }

        /// Takes at most `room` rows, as the drain does.
        fn drain(&mut self, position: &Position, room: usize) -> Position {
            let now = self.ended();
            let late = position.late(&now).into_iter().map(|xid| position.rest_of(xid));
            let spans: Vec<Span> = late.chain(position.new_ones(&now)).collect();
            let rows: Vec<RowPosition> =
                spans.into_iter().flat_map(|span| self.rows(span, &now)).collect();
            let stopped = (rows.len() > room).then(|| rows[room - 1]);
            self.taken.extend(rows.into_iter().take(room));
            position.moved(now, stopped)
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Begin(i64),
        End(prop::sample::Index, bool),
        Drain(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_i64..5).prop_map(Step::Begin),
            (any::<prop::sample::Index>(), any::<bool>())
                .prop_map(|(which, end)| Step::End(which, end)),
            (1_usize..6).prop_map(Step::Drain),
        ]
    }

    proptest! {
        #[test]
        fn every_committed_row_is_taken_once_however_transactions_overlap(
            steps in prop::collection::vec(step(), 1..80),
        ) {
            let mut model = Model::default();
            let mut position = Position { ended: model.ended(), part: None };
            for step in steps {
                match step {
                    Step::Begin(rows) => model.transactions.push((rows, None)),
                    Step::End(which, is_committed) => {
                        let running: Vec<usize> = model.ended().running.iter().map(|xid| usize::try_from(*xid).unwrap()).collect();
                        if !running.is_empty() {
                            model.transactions[running[which.index(running.len())]].1 = Some(is_committed);
                        }
                    }
                    Step::Drain(room) => {
                        let text = position.ended.to_string();
                        prop_assert_eq!(&text.parse::<EndedTransactions>().unwrap(), &position.ended);
                        position = model.drain(&position, room);
                    }
                }
            }
            for (_, end) in &mut model.transactions {
                end.get_or_insert(true);
            }
            position = model.drain(&position, usize::MAX);
            prop_assert_eq!(position.part, None);
            let all = Span { first: 0, last: u64::MAX, after: RowPosition { txid: 0, id: 0 } };
            let all = Span { last: model.ended().xmax.max(1) - 1, ..all };
            let mut taken = model.taken.clone();
            taken.sort();
            prop_assert_eq!(taken, model.rows(all, &model.ended()));
        }
    }
}
