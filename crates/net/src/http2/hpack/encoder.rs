//! Requests to header blocks.
//!
//! A field is put into the table when it stands at the same place in two requests one after the other. So what all requests of
//! a broadcast have in common is a byte each from the third on, and what differs from one to the next, such as paths and
//! identifiers, pushes nothing out. Sensitive values never come into a table, nor into one of a proxy behind (RFC 7541,
//! section 7.1.3).

use std::collections::VecDeque;

use http::{Method, Request};

use super::static_table::{DYNAMIC_INDEX, name_index};
use super::{FIELD_BYTES, TABLE_BYTES};

/// Writes the header blocks of one direction of a connection.
#[derive(Debug)]
pub(in crate::http2) struct Encoder {
    /// The oldest first.
    table: VecDeque<Entry>,
    /// Entries that have left the table: the number of its first one.
    left: usize,
    bytes: usize,
    bytes_max: usize,
    /// The smallest size that the table had since the last block, if it changed.
    smallest: Option<usize>,
    /// The fields of requests, by their place among them.
    places: Vec<Place>,
}

#[derive(Debug)]
struct Entry {
    name: Box<[u8]>,
    value: Box<[u8]>,
}

/// What the last request had at a place, unless it was in the table.
#[derive(Debug, Default)]
struct Place {
    name: Vec<u8>,
    /// Where the static table has the name; 0 where it has not.
    name_index: usize,
    value: Vec<u8>,
    /// The number of the entry that was found for it last.
    found: usize,
}

/// How a literal is to be treated by the other side, as the first bits of its form (RFC 7541, section 6.2).
#[derive(Debug, Clone, Copy)]
enum Literal {
    Indexed,
    Plain,
    Never,
}

// === impl Encoder ===

impl Encoder {
    pub(in crate::http2) fn new() -> Self {
        Self {
            table: VecDeque::new(),
            left: 0,
            bytes: 0,
            bytes_max: TABLE_BYTES,
            smallest: None,
            places: Vec::new(),
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

    /// Appends the block of `request` to `block`.
    pub(in crate::http2) fn encode(&mut self, request: &Request<()>, block: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            if smallest < self.bytes_max {
                put_integer(block, 0x20, 5, smallest);
            }
            put_integer(block, 0x20, 5, self.bytes_max);
        }
        match *request.method() {
            Method::GET => block.push(0x82),
            Method::POST => block.push(0x83),
            _ => put_literal(
                block,
                Literal::Plain,
                2,
                b":method",
                request.method().as_str().as_bytes(),
            ),
        }
        let uri = request.uri();
        block.push(if uri.scheme_str() == Some("http") { 0x86 } else { 0x87 });
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        self.put(0, b":authority", authority.as_bytes(), block);
        self.put(1, b":path", path.as_bytes(), block);
        for (index, (name, value)) in request.headers().iter().enumerate() {
            let (name, at) = (name.as_str().as_bytes(), index + 2);
            if value.is_sensitive() {
                let name_index = self.place(at, name).name_index;
                put_literal(block, Literal::Never, name_index, name, value.as_bytes());
            } else {
                self.put(at, name, value.as_bytes(), block);
            }
        }
    }

    fn put(&mut self, at: usize, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
        let found = self.place(at, name).found;
        let is_it = |entry: &Entry| *entry.value == *value && *entry.name == *name;
        let hinted =
            found.checked_sub(self.left).filter(|index| self.table.get(*index).is_some_and(is_it));
        if let Some(index) = hinted.or_else(|| self.table.iter().position(is_it)) {
            self.place(at, name).found = self.left + index;
            // The newest is counted first.
            put_integer(block, 0x80, 7, DYNAMIC_INDEX + self.table.len() - 1 - index);
            return;
        }
        let fits = name.len() + value.len() + FIELD_BYTES <= self.bytes_max;
        let place = self.place(at, name);
        let name_index = place.name_index;
        if fits && place.value == value {
            put_literal(block, Literal::Indexed, name_index, name, value);
            self.insert(name, value);
            return;
        }
        place.value.clear();
        place.value.extend_from_slice(value);
        put_literal(block, Literal::Plain, name_index, name, value);
    }

    /// The place `at`, of a field with this name.
    fn place(&mut self, at: usize, name: &[u8]) -> &mut Place {
        if self.places.len() <= at {
            self.places.resize_with(at + 1, Place::default);
        }
        #[expect(clippy::indexing_slicing, reason = "there are more since the line above")]
        let place = &mut self.places[at];
        if place.name != name {
            place.name.clear();
            place.name.extend_from_slice(name);
            place.name_index = name_index(name).unwrap_or(0);
            place.value.clear();
        }
        place
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let cost = name.len() + value.len() + FIELD_BYTES;
        self.make_room(cost);
        self.table.push_back(Entry { name: name.into(), value: value.into() });
        self.bytes += cost;
    }

    fn make_room(&mut self, cost: usize) {
        while self.bytes + cost > self.bytes_max {
            let Some(oldest) = self.table.pop_front() else { return };
            self.bytes -= oldest.name.len() + oldest.value.len() + FIELD_BYTES;
            self.left += 1;
        }
    }
}

/// Appends a field whose value is not in the table; its name is `name_index`, or is written where that is 0.
fn put_literal(block: &mut Vec<u8>, form: Literal, name_index: usize, name: &[u8], value: &[u8]) {
    let (bits, prefix_bits) = match form {
        Literal::Indexed => (0x40, 6),
        Literal::Plain => (0x00, 4),
        Literal::Never => (0x10, 4),
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
