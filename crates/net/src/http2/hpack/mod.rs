//! HPACK: header fields to bytes and back (RFC 7541). Each direction of a connection has a table of its own.

mod decoder;
mod encoder;
mod huffman;
#[cfg(test)]
mod stories_tests;
mod table;
#[cfg(test)]
pub(super) mod tests;

pub(super) use decoder::HpackDecoder;
pub(super) use encoder::HpackEncoder;

/// Bytes of a table: what both sides begin with, and the most that either uses here.
const TABLE_BYTES: usize = 4096;
/// Size of a field in a table beside its name and value, bytes (RFC 7541, section 4.1).
pub(super) const FIELD_BYTES: usize = 32;
