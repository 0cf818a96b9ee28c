//! Rows of `batch` in PostgreSQL's binary COPY format
//! (<https://www.postgresql.org/docs/current/sql-copy.html>, "Binary Format").

use notification::{Bytes, Timestamp};

use super::table::{lane_number, small};
use crate::StoreError;
use crate::rows::lanes::LaneId;
use crate::rows::packing::Filling;

/// Signature, flags, and the length of no header extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const FIELDS: i16 = 12;
const END: i16 = -1;
/// About how much is sent at once.
const PIECE_BYTES: usize = 256 * 1024;

/// One piece while it is written.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
}

/// The whole stream, in pieces.
pub(super) fn encode<'a>(
    batches: impl Iterator<Item = &'a Filling>,
    lane_of: impl Fn(&Filling) -> Result<LaneId, StoreError>,
) -> Result<Vec<Bytes>, StoreError> {
    let mut pieces = Vec::new();
    let mut piece = Piece { bytes: HEADER.to_vec() };
    for batch in batches {
        piece.put_batch(batch, lane_of(batch)?);
        if piece.bytes.len() >= PIECE_BYTES {
            pieces.push(Bytes::from(std::mem::take(&mut piece.bytes)));
        }
    }
    piece.bytes.extend(END.to_be_bytes());
    pieces.push(Bytes::from(piece.bytes));
    Ok(pieces)
}

// === impl Piece ===

impl Piece {
    fn put_batch(&mut self, batch: &Filling, lane: LaneId) {
        let envelope = &batch.envelope;
        let shared = batch.shared_content();
        self.bytes.extend(FIELDS.to_be_bytes());
        self.put(&batch.id.0.to_be_bytes());
        self.put(&lane_number(lane).to_be_bytes());
        self.put(&i16::from(envelope.guarantee.code()).to_be_bytes());
        self.put(&batch.accepted_at.millis().to_be_bytes());
        self.put(&envelope.due_at.millis().to_be_bytes());
        let expires_at = envelope.expires_at.map(Timestamp::millis).map(i64::to_be_bytes);
        self.put_if_any(expires_at.as_ref().map(|bytes| &bytes[..]));
        let broadcast = envelope.broadcast.map(|id| id.0.to_be_bytes());
        self.put_if_any(broadcast.as_ref().map(|bytes| &bytes[..]));
        self.put(&small(batch.items.len()).unwrap_or(i32::MAX).to_be_bytes());
        self.put(envelope.tenant.as_str().as_bytes());
        self.put_if_any(shared.map(|content| &*content.options));
        self.put_if_any(shared.map(|content| &*content.payload));
        self.put(&batch.encoded_items());
    }

    fn put(&mut self, field: &[u8]) {
        let length: i32 = small(field.len()).unwrap_or(i32::MAX);
        self.bytes.extend(length.to_be_bytes());
        self.bytes.extend_from_slice(field);
    }

    fn put_if_any(&mut self, field: Option<&[u8]>) {
        match field {
            Some(field) => self.put(field),
            None => self.bytes.extend((-1i32).to_be_bytes()),
        }
    }
}
