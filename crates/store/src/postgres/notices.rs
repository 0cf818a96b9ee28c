//! What processes tell each other: `pg_notify` on [`CHANNEL`], in the transaction that brings it about.
//!
//! Words parted by spaces; who cannot read one looks at everything anew:
//!
//! ```text
//! d<lane>:<due_ms>                  something of the lane became due
//! f<partition>:<lane>:<weight>      what was claimed of the partition is not any more
//! s<print>                          a recipient joined the suppression list
//! *                                 much
//! ```

use std::fmt::Write as _;

use notification::Timestamp;

use crate::rows::lanes::LaneId;

/// The channel of notifications.
pub(super) const CHANNEL: &str = "belfry_work";
/// The server refuses longer payloads than 7,999 bytes.
const BYTES_MAX: usize = 7_900;

/// One word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    Due { lane: LaneId, at: Timestamp },
    Freed { partition: u8, lane: LaneId, weight: usize },
    Suppressed { print: u64 },
    Everything,
}

// === impl Notice ===

impl Notice {
    fn read(word: &str) -> Option<Self> {
        let mut letters = word.chars();
        let kind = letters.next()?;
        let mut parts = letters.as_str().split(':');
        let notice = match kind {
            'd' => Self::Due {
                lane: parts.next()?.parse().ok()?,
                at: Timestamp::from_millis(parts.next()?.parse().ok()?),
            },
            'f' => Self::Freed {
                partition: parts.next()?.parse().ok()?,
                lane: parts.next()?.parse().ok()?,
                weight: parts.next()?.parse().ok()?,
            },
            's' => Self::Suppressed { print: u64::from_str_radix(parts.next()?, 16).ok()? },
            _ => return None,
        };
        Some(notice)
    }

    fn write(self, text: &mut String) {
        let _infallible = match self {
            Self::Due { lane, at } => write!(text, "d{lane}:{}", at.millis()),
            Self::Freed { partition, lane, weight } => write!(text, "f{partition}:{lane}:{weight}"),
            Self::Suppressed { print } => write!(text, "s{print:x}"),
            Self::Everything => write!(text, "*"),
        };
    }
}

/// What a payload says.
pub(super) fn read(payload: &str) -> impl Iterator<Item = Notice> {
    payload.split_ascii_whitespace().map(|word| Notice::read(word).unwrap_or(Notice::Everything))
}

/// The payload that says all of `notices`; `None` when there is nothing to say.
pub(super) fn write(notices: impl IntoIterator<Item = Notice>) -> Option<String> {
    let mut text = String::new();
    for notice in notices {
        if !text.is_empty() {
            text.push(' ');
        }
        notice.write(&mut text);
        if text.len() > BYTES_MAX {
            return Some("*".to_owned());
        }
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let notices = [
            Notice::Due { lane: 7, at: Timestamp::from_millis(-5) },
            Notice::Freed { partition: 63, lane: 8, weight: 1_064 },
            Notice::Suppressed { print: u64::MAX },
        ];
        let text = write(notices).unwrap();
        assert_eq!(text, "d7:-5 f63:8:1064 sffffffffffffffff");
        assert_eq!(read(&text).collect::<Vec<_>>(), notices);
        assert_eq!(write([]), None);
    }

    #[test]
    fn what_is_too_long_or_not_understood_means_everything() {
        let many = (0..2_000).map(|lane| Notice::Due { lane, at: Timestamp::from_millis(0) });
        assert_eq!(write(many).as_deref(), Some("*"));
        for word in ["*", "x1", "d", "d1", "d1:", "f1:2", "s", "süß"] {
            assert_eq!(read(word).collect::<Vec<_>>(), [Notice::Everything], "{word}");
        }
    }
}
