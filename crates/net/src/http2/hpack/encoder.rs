//! Heads of requests to header blocks.
//!
//! A shared field is put into the table when it stands at the same place in two requests one after the other, and when its part of
//! the head was used before and there is room, or the table is as that use left it. So what all requests of a broadcast have in
//! common is a byte each from the third on, and these bytes are kept and copied as long as the table stays as it is; a part with a
//! field that may come into the table yet is encoded anew. What is a request's own, such as paths and identifiers, pushes nothing
//! out. Sensitive values never come into a table, nor into one of a proxy behind (RFC 7541, section 7.1.3).

use std::collections::VecDeque;
use std::rc::Rc;

use super::static_table::{DYNAMIC_INDEX, PATH_INDEX, name_index};
use super::{FIELD_BYTES, TABLE_BYTES};
use crate::http2::head::{RequestHead, SharedHead};

/// Shared parts of heads that are recognised.
pub(super) const KNOWN_MAX: usize = 16;
/// `:method: POST` and `:scheme: https`, of the static table.
const POST_OVER_TLS: [u8; 2] = [0x83, 0x87];

/// Writes the header blocks of one direction of a connection.
#[derive(Debug)]
pub(in crate::http2) struct HpackEncoder {
    /// The oldest first.
    table: VecDeque<EncoderEntry>,
    /// Entries that have left the table: the number of its first one.
    left: usize,
    bytes: usize,
    bytes_max: usize,
    /// The smallest size that the table had since the last block, if it changed.
    smallest: Option<usize>,
    /// The shared fields of requests, by their place among them.
    places: Vec<FieldPlace>,
    /// The names of requests' own fields, by their place among them.
    own_names: Vec<FieldPlace>,
    /// How often the table has changed.
    version: u64,
    /// The shared parts that came last, the oldest first.
    known: VecDeque<EncodedHead>,
}

/// A shared part that was encoded before.
#[derive(Debug)]
struct EncodedHead {
    head: Rc<SharedHead>,
    /// The version of the table that it has left.
    version: u64,
    /// Its bytes with that table, once there is nothing more to put into it.
    bytes: Option<Box<[u8]>>,
}

/// State of a shared part against the table, when its fields are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableUse {
    First,
    /// The table has changed since the last one.
    Again,
    /// The table is as the last one has left it.
    Unchanged,
}

#[derive(Debug)]
struct EncoderEntry {
    name: Box<[u8]>,
    value: Box<[u8]>,
}

/// A place among the fields of requests, and what the last one had there, unless that was in the table.
#[derive(Debug, Default)]
struct FieldPlace {
    name: Vec<u8>,
    /// Where the static table has the name; 0 where it has not.
    name_index: usize,
    value: Vec<u8>,
    /// The number of the entry that was found for it last.
    found: usize,
}

/// How a literal is to be treated by the other side, as the first bits of its form (RFC 7541, section 6.2).
#[derive(Debug, Clone, Copy)]
enum LiteralForm {
    Indexed,
    Plain,
    Never,
}

// === impl HpackEncoder ===

impl HpackEncoder {
    pub(in crate::http2) fn new() -> Self {
        Self {
            table: VecDeque::new(),
            left: 0,
            bytes: 0,
            bytes_max: TABLE_BYTES,
            smallest: None,
            places: Vec::new(),
            own_names: Vec::new(),
            version: 0,
            known: VecDeque::new(),
        }
    }

    /// Follows what the peer allows the table to have. The next block says so.
    pub(in crate::http2) fn allow(&mut self, bytes: usize) {
        let bytes_max = bytes.min(TABLE_BYTES);
        if bytes_max != self.bytes_max {
            // The least is told as well as the last: what it pushed out is gone on both sides (section 4.2).
            self.smallest = Some(self.smallest.map_or(bytes_max, |least| least.min(bytes_max)));
            self.bytes_max = bytes_max;
            self.make_room(0);
        }
    }

    /// Appends the block of `head` to `block`.
    pub(in crate::http2) fn encode(&mut self, head: &impl RequestHead, block: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            // In front of all fields, the least first: a peer that heard of the last size only would keep what is gone
            // here.
            if smallest < self.bytes_max {
                put_integer(block, 0x20, 5, smallest);
            }
            put_integer(block, 0x20, 5, self.bytes_max);
        }
        block.extend_from_slice(&POST_OVER_TLS);
        // Paths are different for nearly every request: in the table they would push out what is shared.
        if let [begin, end] = head.path()
            && !begin.is_empty()
        {
            put_integer(block, 0x00, 4, PATH_INDEX);
            put_integer(block, 0, 7, begin.len() + end.len());
            block.extend_from_slice(begin);
            block.extend_from_slice(end);
        }
        let behind = self.put_shared(0, head.address(), block);
        if let Some(shared) = head.shared() {
            self.put_shared(behind, shared, block);
        }
        let mut at = 0;
        head.put_own(&mut |field| {
            let name = field.name.as_str().as_bytes();
            let form = if field.is_sensitive { LiteralForm::Never } else { LiteralForm::Plain };
            let name_index = place(&mut self.own_names, at, name).name_index;
            put_literal(block, form, name_index, name, field.value);
            at += 1;
        });
    }

    /// Appends a shared part whose first field has the place `at`. Gives the place behind its last.
    fn put_shared(&mut self, at: usize, head: &Rc<SharedHead>, block: &mut Vec<u8>) -> usize {
        let behind = at + head.len();
        let index = self.known.iter().position(|known| Rc::ptr_eq(&known.head, head));
        let part_use = match index.and_then(|index| self.known.get(index)) {
            Some(EncodedHead { version, bytes: Some(bytes), .. }) if *version == self.version => {
                block.extend_from_slice(bytes);
                return behind;
            }
            Some(known) if known.version == self.version => TableUse::Unchanged,
            Some(_) => TableUse::Again,
            None => TableUse::First,
        };
        let begin = block.len();
        let mut is_settled = true;
        for (at, (name, value, is_sensitive)) in (at..).zip(head.all_fields()) {
            if is_sensitive {
                // Even its name is found without the dynamic table: the form that forbids a table is the same for any
                // value.
                let name_index = place(&mut self.places, at, name).name_index;
                put_literal(block, LiteralForm::Never, name_index, name, value);
            } else {
                is_settled &= self.put((at, name, value), part_use, block);
            }
        }
        let version = self.version;
        let bytes = is_settled.then(|| block.get(begin..).unwrap_or_default().into());
        if let Some(known) = index.and_then(|index| self.known.get_mut(index)) {
            (known.version, known.bytes) = (version, bytes);
            return behind;
        }
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(EncodedHead { head: Rc::clone(head), version, bytes });
        behind
    }

    /// Appends a field of a part, with its place. Says whether it would be the same again as long as the table is.
    fn put(
        &mut self,
        (at, name, value): (usize, &[u8], &[u8]),
        part_use: TableUse,
        block: &mut Vec<u8>,
    ) -> bool {
        let found = place(&mut self.places, at, name).found;
        let is_it = |entry: &EncoderEntry| *entry.value == *value && *entry.name == *name;
        // Nearly always it is where it was the last time, so a table is not searched for each field of each request.
        let hinted =
            found.checked_sub(self.left).filter(|index| self.table.get(*index).is_some_and(is_it));
        if let Some(index) = hinted.or_else(|| self.table.iter().position(is_it)) {
            place(&mut self.places, at, name).found = self.left + index;
            // The newest is counted first.
            put_integer(block, 0x80, 7, DYNAMIC_INDEX + self.table.len() - 1 - index);
            return true;
        }
        let cost = name.len() + value.len() + FIELD_BYTES;
        let fits = cost <= self.bytes_max;
        let is_due = match part_use {
            TableUse::First => false,
            TableUse::Again => self.bytes + cost <= self.bytes_max,
            // It was written as it is, with this very table: of what that holds, it may be that nothing is used any more.
            TableUse::Unchanged => true,
        };
        let place = place(&mut self.places, at, name);
        let name_index = place.name_index;
        if fits && (is_due || place.value == value) {
            put_literal(block, LiteralForm::Indexed, name_index, name, value);
            self.insert(name, value);
            return false;
        }
        place.value.clear();
        place.value.extend_from_slice(value);
        put_literal(block, LiteralForm::Plain, name_index, name, value);
        // What fits may be put into the table by the next request.
        !fits
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let cost = name.len() + value.len() + FIELD_BYTES;
        self.make_room(cost);
        self.table.push_back(EncoderEntry { name: name.into(), value: value.into() });
        self.bytes += cost;
        self.version += 1;
    }

    fn make_room(&mut self, cost: usize) {
        while self.bytes + cost > self.bytes_max {
            let Some(oldest) = self.table.pop_front() else { return };
            self.bytes -= oldest.name.len() + oldest.value.len() + FIELD_BYTES;
            self.left += 1;
            self.version += 1;
        }
    }
}

/// The place `at`, of a field with this name.
fn place<'a>(places: &'a mut Vec<FieldPlace>, at: usize, name: &[u8]) -> &'a mut FieldPlace {
    if places.len() <= at {
        places.resize_with(at + 1, FieldPlace::default);
    }
    #[expect(clippy::indexing_slicing, reason = "there are more since the line above")]
    let place = &mut places[at];
    if place.name != name {
        place.name.clear();
        place.name.extend_from_slice(name);
        place.name_index = name_index(name).unwrap_or(0);
        place.value.clear();
    }
    place
}

/// Appends a field whose value is not in the table; its name is `name_index`, or is written where that is 0.
fn put_literal(
    block: &mut Vec<u8>,
    form: LiteralForm,
    name_index: usize,
    name: &[u8],
    value: &[u8],
) {
    let (bits, prefix_bits) = match form {
        LiteralForm::Indexed => (0x40, 6),
        LiteralForm::Plain => (0x00, 4),
        LiteralForm::Never => (0x10, 4),
    };
    put_integer(block, bits, prefix_bits, name_index);
    if name_index == 0 {
        put_integer(block, 0, 7, name.len());
        block.extend_from_slice(name);
    }
    put_integer(block, 0, 7, value.len());
    block.extend_from_slice(value);
}

/// Appends an integer whose first byte begins with `bits` and has `prefix_bits` of it (RFC 7541, section 5.1).
fn put_integer(block: &mut Vec<u8>, bits: u8, prefix_bits: u32, value: usize) {
    let mask = 0xff_u8 >> (8 - prefix_bits);
    if let Ok(value) = u8::try_from(value)
        && value < mask
    {
        block.push(bits | value);
        return;
    }
    block.push(bits | mask);
    let mut rest = value - usize::from(mask);
    while rest >= 0x80 {
        block.push((rest & 0x7f).to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    block.push(rest.to_le_bytes()[0]);
}
