//! The tables of header fields: the static one, which both sides know from the start, and behind it one that a direction of a
//! connection fills (RFC 7541, section 2.3).

use std::collections::VecDeque;
use std::sync::LazyLock;

use super::{FIELD_BYTES, TABLE_BYTES};

/// The static table (RFC 7541, appendix A): a field in each line, the name and the value. Its first index is 1.
static STATIC_TABLE: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let lines = include_str!("static_table.txt").lines();
    lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect()
});

/// The least index of a path.
pub(super) const PATH_INDEX: usize = 4;
/// The first index behind the static table.
const DYNAMIC_INDEX: usize = 62;

/// The table of one direction of a connection.
#[derive(Debug)]
pub(super) struct HpackTable {
    /// The newest first, as they are counted.
    fields: VecDeque<TableField>,
    /// Size of all fields (RFC 7541, section 4.1), bytes, and its bound.
    bytes: usize,
    pub(super) bytes_max: usize,
}

/// A field in the table of a connection.
#[derive(Debug)]
pub(super) struct TableField {
    /// The name, and the value behind it.
    text: Box<[u8]>,
    name_bytes: usize,
    /// True if it was found to be of no interest.
    is_passed_over: bool,
}

// === impl HpackTable ===

impl Default for HpackTable {
    fn default() -> Self {
        Self { fields: VecDeque::new(), bytes: 0, bytes_max: TABLE_BYTES }
    }
}

impl HpackTable {
    /// The field with this index: its name, its value, and whether it was found to be of no interest.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8], bool)> {
        if let Some(place) = index.checked_sub(DYNAMIC_INDEX) {
            let field = self.fields.get(place)?;
            let (name, value) = field.text.split_at_checked(field.name_bytes)?;
            return Some((name, value, field.is_passed_over));
        }
        let (name, value) = STATIC_TABLE.get(index.checked_sub(1)?)?;
        Some((name.as_bytes(), value.as_bytes(), false))
    }

    /// The index of a field that the connection has put into the table.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<usize> {
        let is_it = |field: &TableField| {
            field.name_bytes == name.len()
                && field.text.strip_prefix(name).is_some_and(|rest| rest == value)
        };
        self.fields.iter().position(is_it).map(|place| DYNAMIC_INDEX + place)
    }

    /// Adds a field; the oldest make room for it. One that is larger than the table empties it, and is no error (RFC 7541,
    /// section 4.4).
    pub(super) fn insert(&mut self, field: TableField) {
        let cost = field.text.len() + FIELD_BYTES;
        self.make_room(cost);
        if cost <= self.bytes_max {
            self.fields.push_front(field);
            self.bytes += cost;
        }
    }

    pub(super) fn resize(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.make_room(0);
    }

    fn make_room(&mut self, cost: usize) {
        while self.bytes + cost > self.bytes_max {
            let Some(oldest) = self.fields.pop_back() else { return };
            self.bytes -= oldest.text.len() + FIELD_BYTES;
        }
    }

    /// Checks that it has what it says it has, and no more than it may.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn check(&self) {
        let cost = |field: &TableField| field.text.len() + FIELD_BYTES;
        assert_eq!(self.bytes, self.fields.iter().map(cost).sum::<usize>());
        assert!(self.bytes <= self.bytes_max && self.bytes_max <= TABLE_BYTES);
    }
}

// === impl TableField ===

impl TableField {
    pub(super) fn new(name: &[u8], value: &[u8], is_passed_over: bool) -> Self {
        let text = [name, value].concat().into_boxed_slice();
        Self { text, name_bytes: name.len(), is_passed_over }
    }
}

/// The least index with this name; 0 where the static table does not have it.
pub(super) fn name_index(name: &[u8]) -> usize {
    let place = STATIC_TABLE.iter().position(|(other, _)| other.as_bytes() == name);
    place.map_or(0, |place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_static_table_ends_where_the_other_begins() {
        assert_eq!(STATIC_TABLE.len() + 1, DYNAMIC_INDEX);
        assert_eq!(name_index(b":path"), PATH_INDEX);
        assert_eq!(STATIC_TABLE[15], ("accept-encoding", "gzip, deflate"));
        assert_eq!(STATIC_TABLE[60], ("www-authenticate", ""));
    }
}
