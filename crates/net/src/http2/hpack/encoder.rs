//! Heads of requests to header blocks.
//!
//! A shared field is put into the table when it comes again soon; the oldest make room. So what all requests of a broadcast have in
//! common is a byte each from the third on, and these bytes are kept and copied as long as the table stays as it is; a part with a
//! field that may come into the table yet is encoded anew. What is a request's own, such as paths and identifiers, pushes nothing
//! out. Sensitive values never come into a table, nor into one of a proxy behind (RFC 7541, section 7.1.3).

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use super::table::{HpackTable, PATH_INDEX, TableField, name_index};
use super::{FIELD_BYTES, TABLE_BYTES};
use crate::request_head::{RequestHead, SharedHead, push_within};

/// Shared parts of heads that are recognised.
pub(super) const KNOWN_MAX: usize = 16;
/// Shared fields that come again soon are those among so many that were not in the table.
const MISSED_MAX: usize = 32;
/// `:method: POST` and `:scheme: https`, of the static table.
const POST_OVER_TLS: [u8; 2] = [0x83, 0x87];

/// How a literal is to be treated by the other side: the first bits of its form, and how many bits of the first byte its name's index
/// has (RFC 7541, section 6.2).
type LiteralForm = (u8, u32);
const INDEXED: LiteralForm = (0x40, 6);
const PLAIN: LiteralForm = (0x00, 4);
const NEVER_INDEXED: LiteralForm = (0x10, 4);

/// Writes the header blocks of one direction of a connection.
#[derive(Debug, Default)]
pub(in crate::http2) struct HpackEncoder {
    table: HpackTable,
    /// The smallest size that the table had since the last block, if it changed.
    smallest: Option<usize>,
    /// The hashes of the last shared fields that were not in the table, the oldest first.
    missed: VecDeque<u64>,
    /// The shared parts that came last, the oldest first, with their bytes. There are none yet of a part whose fields may come into the
    /// table, and none any more when that has changed.
    known: VecDeque<(Rc<SharedHead>, Box<[u8]>)>,
}

// === impl HpackEncoder ===

impl HpackEncoder {
    /// Follows what the peer allows the table to have. The next block says so.
    pub(in crate::http2) fn allow(&mut self, bytes: usize) {
        let bytes_max = bytes.min(TABLE_BYTES);
        if bytes_max != self.table.bytes_max {
            // The least is told as well as the last: what it pushed out is gone on both sides (section 4.2).
            self.smallest = Some(self.smallest.map_or(bytes_max, |least| least.min(bytes_max)));
            self.table.resize(bytes_max);
            self.known.clear();
        }
    }

    /// Appends the block of `head` to `block`.
    pub(in crate::http2) fn encode(&mut self, head: &impl RequestHead, block: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            // In front of all fields, the least first: a peer that heard of the last size only would keep what is gone
            // here.
            if smallest < self.table.bytes_max {
                put_integer(block, 0x20, 5, smallest);
            }
            put_integer(block, 0x20, 5, self.table.bytes_max);
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
        self.put_shared(head.address(), block);
        if let Some(shared) = head.shared() {
            self.put_shared(shared, block);
        }
        head.put_own(&mut |field| {
            let form = if field.is_sensitive { NEVER_INDEXED } else { PLAIN };
            // Its name is written: to look for it in the static table takes longer.
            put_literal(block, form, 0, field.name.as_str().as_bytes(), field.value);
        });
    }

    /// Appends a shared part.
    fn put_shared(&mut self, head: &Rc<SharedHead>, block: &mut Vec<u8>) {
        if let Some((_, bytes)) = self.known.iter().find(|(known, _)| Rc::ptr_eq(known, head)) {
            block.extend_from_slice(bytes);
            return;
        }
        let begin = block.len();
        let mut is_settled = true;
        for (name, value, is_sensitive) in head.all_fields() {
            if is_sensitive {
                // Even its name is found without the connection's table: these bytes stay as they are.
                put_literal(block, NEVER_INDEXED, name_index(name), name, value);
            } else {
                is_settled &= self.put(name, value, block);
            }
        }
        if is_settled {
            let bytes = block.get(begin..).unwrap_or_default().into();
            push_within(&mut self.known, KNOWN_MAX, (Rc::clone(head), bytes));
        }
    }

    /// Appends a field of a part. Says whether it would be the same again as long as the table is.
    fn put(&mut self, name: &[u8], value: &[u8], block: &mut Vec<u8>) -> bool {
        if let Some(index) = self.table.find(name, value) {
            put_integer(block, 0x80, 7, index);
            return true;
        }
        if name.len() + value.len() + FIELD_BYTES > self.table.bytes_max {
            put_literal(block, PLAIN, name_index(name), name, value);
            return true;
        }
        let mut hasher = DefaultHasher::new();
        (name, value).hash(&mut hasher);
        let hash = hasher.finish();
        let place = self.missed.iter().position(|missed| *missed == hash);
        let form = if place.is_some() { INDEXED } else { PLAIN };
        put_literal(block, form, name_index(name), name, value);
        if let Some(place) = place {
            self.missed.remove(place);
            self.table.insert(TableField::new(name, value, false));
            // The newest is counted first, so all others have other indices now.
            self.known.clear();
        } else {
            push_within(&mut self.missed, MISSED_MAX, hash);
        }
        false
    }
}

/// Appends a field whose value is not in the table; its name is `name_index`, or is written where that is 0.
fn put_literal(
    block: &mut Vec<u8>,
    (bits, prefix_bits): LiteralForm,
    name_index: usize,
    name: &[u8],
    value: &[u8],
) {
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
