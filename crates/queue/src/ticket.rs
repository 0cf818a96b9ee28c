//! The wire form of a ticket: 32 bytes, little-endian, every number at a multiple of its size.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 2 | `BFT` |
//! | 3 | the version of this form: 1 |
//! | 4 | priority |
//! | 5 | zero |
//! | 6 to 7 | count |
//! | 8 to 15 | chunk |
//! | 16 to 19 | epoch |
//! | 20 to 23 | zero |
//! | 24 to 31 | end of the lease, milliseconds since the Unix epoch |
//!
//! A form of another version is refused, not guessed: its ticket is overdue when its lease ends, and is
//! issued anew.

use notification::{ChunkId, Epoch, Priority, Ticket, Timestamp};

/// Bytes of a ticket.
pub const TICKET_BYTES: usize = 32;

/// Defect for which bytes are not a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotATicket {
    /// Tickets are [`TICKET_BYTES`] long.
    #[error("{0} bytes are no ticket, which has {TICKET_BYTES}")]
    Length(usize),
    /// A message of another program, or of a version that this build cannot read.
    #[error("the first bytes are not those of a ticket of version {VERSION}")]
    Magic,
    /// A value that no version 1 has.
    #[error("a field has a value that it cannot have")]
    Field,
}

const MAGIC: [u8; 3] = *b"BFT";
const VERSION: u8 = 1;

/// The bytes of `ticket`.
pub fn encode(ticket: &Ticket) -> [u8; TICKET_BYTES] {
    let fields: [&[u8]; 8] = [
        &MAGIC,
        &[VERSION],
        &[ticket.priority.code(), 0],
        &ticket.count.to_le_bytes(),
        &ticket.chunk.0.to_le_bytes(),
        &ticket.epoch.0.to_le_bytes(),
        &[0; 4],
        &ticket.lease_until.millis().to_le_bytes(),
    ];
    let mut bytes = [0; TICKET_BYTES];
    for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
        *to = *from;
    }
    bytes
}

/// The ticket in `bytes`.
///
/// # Errors
/// When they are none of ours. Never panics.
pub fn decode(bytes: &[u8]) -> Result<Ticket, NotATicket> {
    let rest: &[u8; TICKET_BYTES] =
        bytes.try_into().map_err(|_wrong| NotATicket::Length(bytes.len()))?;
    let (magic, rest) = split::<3>(rest)?;
    let ([version, priority, zero], rest) = split::<3>(rest)?;
    // Before the fields, which may mean something else in another version.
    if magic != MAGIC || version != VERSION {
        return Err(NotATicket::Magic);
    }
    let (count, rest) = split::<2>(rest)?;
    let (chunk, rest) = split::<8>(rest)?;
    let (epoch, rest) = split::<4>(rest)?;
    let (zeros, rest) = split::<4>(rest)?;
    let (lease_until, _end) = split::<8>(rest)?;
    if zero != 0 || zeros != [0; 4] {
        return Err(NotATicket::Field);
    }
    Ok(Ticket {
        chunk: ChunkId(u64::from_le_bytes(chunk)),
        epoch: Epoch(u32::from_le_bytes(epoch)),
        priority: Priority::from_code(priority).ok_or(NotATicket::Field)?,
        lease_until: Timestamp::from_millis(i64::from_le_bytes(lease_until)),
        count: u16::from_le_bytes(count),
    })
}

fn split<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), NotATicket> {
    bytes.split_first_chunk().map(|(field, rest)| (*field, rest)).ok_or(NotATicket::Field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            chunk: u64, epoch: u32, priority in 0u8..3, lease_until: i64, count: u16
        ) {
            let ticket = Ticket {
                chunk: ChunkId(chunk),
                epoch: Epoch(epoch),
                priority: Priority::from_code(priority).unwrap(),
                lease_until: Timestamp::from_millis(lease_until),
                count,
            };
            prop_assert_eq!(decode(&encode(&ticket)), Ok(ticket));
        }

        #[test]
        fn any_bytes_are_a_ticket_that_encodes_to_them_or_are_refused(bytes: Vec<u8>) {
            if let Ok(ticket) = decode(&bytes) {
                prop_assert_eq!(encode(&ticket).to_vec(), bytes);
            }
        }

        #[test]
        fn a_ticket_with_a_byte_changed_is_another_ticket_or_refused(at in 0usize..32, by in 1u8..) {
            let mut bytes = encode(&sample());
            bytes[at] ^= by;
            prop_assert_ne!(decode(&bytes), Ok(sample()));
        }
    }

    #[test]
    fn the_form_never_changes() {
        let bytes = encode(&sample());
        assert_eq!(&bytes[..8], [b'B', b'F', b'T', 1, 1, 0, 0xe8, 0x03]);
        assert_eq!(bytes[8..16], 7u64.to_le_bytes());
        assert_eq!(bytes[16..24], 3u64.to_le_bytes());
        assert_eq!(bytes[24..], 1_700_000_000_000u64.to_le_bytes());
    }

    #[test]
    fn what_is_refused_says_why() {
        let check = |bytes: &[u8], expect| assert_eq!(decode(bytes), Err(expect), "{bytes:?}");
        let altered = |at: usize, to: u8| {
            let mut bytes = encode(&sample());
            bytes[at] = to;
            bytes
        };
        check(b"", NotATicket::Length(0));
        check(&[0; 33], NotATicket::Length(33));
        check(&[0; 32], NotATicket::Magic);
        check(&altered(3, 2), NotATicket::Magic);
        check(&altered(4, 3), NotATicket::Field);
        check(&altered(5, 1), NotATicket::Field);
        check(&altered(23, 1), NotATicket::Field);
    }

    fn sample() -> Ticket {
        Ticket {
            chunk: ChunkId(7),
            epoch: Epoch(3),
            priority: Priority::Normal,
            lease_until: Timestamp::from_millis(1_700_000_000_000),
            count: 1_000,
        }
    }
}
