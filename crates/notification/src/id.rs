//! Identifiers. A [`NotificationId`] says where its notification is stored, so looking one up needs no index.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::time::Timestamp;

/// Number of a batch in its store: 1 ..= 2^46 - 1, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// Number of a chunk in its store. A retry is a new chunk with a new number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(pub u64);

/// Number of a broadcast in its store; written `bc_42`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BroadcastId(pub u64);

/// Identifies one notification for ever, on every system it passes.
///
/// A UUID of version 8 ([RFC 9562, section 5.8]), so that it serves unchanged as `apns-id`, `webhook-id`
/// and `Message-ID`, sorts by time of acceptance, and names its own place:
///
/// ```text
/// 48 bits  Unix time of acceptance, ms      46 bits  batch
///  4 bits  version 8                        16 bits  index within the batch
/// 12 bits  store id: random, drawn once     2 bits  variant
/// ```
///
/// [RFC 9562, section 5.8]: https://www.rfc-editor.org/rfc/rfc9562#section-5.8
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NotificationId(u128);

/// A text that is not an identifier of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct IdError {
    text: String,
    expected: &'static str,
}

const BATCH_BITS: u32 = 46;
const INDEX_BITS: u32 = 16;
const VERSION: u128 = 8;
const VARIANT: u128 = 0b10;

// === impl BatchId ===

impl BatchId {
    /// The largest number that fits a [`NotificationId`]: 70 million million batches.
    pub const MAX: Self = Self((1 << BATCH_BITS) - 1);
}

// === impl NotificationId ===

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "every cast follows a mask of fewer bits than its target holds"
)]
impl NotificationId {
    /// Composes the identifier of the notification at `index` of `batch`. `store_id` uses its low 12 bits.
    pub fn new(accepted_at: Timestamp, store_id: u16, batch: BatchId, index: u16) -> Self {
        debug_assert!(batch <= BatchId::MAX, "a batch number has 46 bits");
        // Each part is cut to its width, so that none spills into the next.
        let millis = u128::from(accepted_at.millis().unsigned_abs()) & ((1 << 48) - 1);
        let store_id = u128::from(store_id) & 0xfff;
        let batch = u128::from(batch.0) & u128::from(BatchId::MAX.0);
        Self(
            millis << 80
                | VERSION << 76
                | store_id << 64
                | VARIANT << 62
                | batch << INDEX_BITS
                | u128::from(index),
        )
    }

    /// `width` bits, at most 48, from bit `shift` on.
    fn field(self, shift: u32, width: u32) -> u64 {
        (self.0 >> shift & ((1 << width) - 1)) as u64
    }

    /// The batch that holds the notification.
    pub fn batch(self) -> BatchId {
        BatchId(self.field(INDEX_BITS, BATCH_BITS))
    }

    /// Its place within the batch.
    pub fn index(self) -> u16 {
        self.field(0, INDEX_BITS) as u16
    }

    /// When it was accepted.
    pub fn accepted_at(self) -> Timestamp {
        Timestamp::from_millis(self.field(80, 48) as i64)
    }

    /// The id of the store that accepted it, 12 bits.
    pub fn store_id(self) -> u16 {
        self.field(64, 12) as u16
    }

    /// The 128 bits in network order.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The inverse of [`NotificationId::to_bytes`], which any identifier passes; lookups compare the whole.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Writes the canonical 36 characters into `buffer`, without allocating.
    pub fn encode(self, buffer: &mut [u8; 36]) -> &str {
        Uuid::from_u128(self.0).hyphenated().encode_lower(buffer)
    }
}

impl fmt::Display for NotificationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_u128(self.0).hyphenated().fmt(formatter)
    }
}

impl fmt::Debug for NotificationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Serialize for NotificationId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for NotificationId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let refuse = || IdError { text: text.to_owned(), expected: "a notification id (a UUID)" };
        // A UUID of any version passes: a lookup compares the whole, so one that no store made is not found.
        let uuid = Uuid::try_parse(text).map_err(|_| refuse())?;
        Ok(Self(uuid.as_u128()))
    }
}

// === impl BroadcastId ===

impl fmt::Display for BroadcastId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "bc_{}", self.0)
    }
}

impl Serialize for BroadcastId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for BroadcastId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let id = text.strip_prefix("bc_").and_then(|digits| digits.parse().ok()).map(Self);
        // Only as it is written: `bc_+42` and `bc_042` would be further names of `bc_42`.
        id.filter(|id| id.to_string() == text).ok_or_else(|| IdError {
            text: text.to_owned(),
            expected: "a broadcast id (`bc_` and a number)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_gives_back_what_it_was_made_of(
            millis in 0..(1i64 << 47), store_id in 0u16..4096, batch in 0..(1u64 << 46), index: u16,
        ) {
            let id = NotificationId::new(Timestamp::from_millis(millis), store_id, BatchId(batch), index);
            prop_assert_eq!(id.accepted_at().millis(), millis);
            prop_assert_eq!(id.store_id(), store_id);
            prop_assert_eq!(id.batch(), BatchId(batch));
            prop_assert_eq!(id.index(), index);
            prop_assert_eq!(id.to_string().parse::<NotificationId>().unwrap(), id);
            prop_assert_eq!(NotificationId::from_bytes(id.to_bytes()), id);
        }
    }

    #[test]
    fn an_id_is_a_uuid_of_version_8_and_the_rfc_variant() {
        let id = NotificationId::new(Timestamp::from_millis(1_700_000_000_000), 7, BatchId(1), 2);
        let uuid = Uuid::parse_str(&id.to_string()).unwrap();
        assert_eq!(uuid.get_version_num(), 8);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        let mut buffer = [0; 36];
        assert_eq!(id.encode(&mut buffer), id.to_string());
    }

    #[test]
    fn a_text_that_is_no_id_is_refused_by_name() {
        let error = "nonsense".parse::<NotificationId>().unwrap_err();
        assert_eq!(error.to_string(), r#""nonsense" is not a notification id (a UUID)"#);
        for other in ["bc_x", "bc_", "12", "bc_+12", "bc_012", "bc_12 "] {
            assert!(other.parse::<BroadcastId>().is_err(), "{other}");
        }
        assert_eq!("bc_12".parse::<BroadcastId>().unwrap(), BroadcastId(12));
    }
}
