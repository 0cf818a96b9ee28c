//! The books: one line per request, written before its answer leaves.
//!
//! A line is five fields separated by tabs, ended by a line feed:
//! ```text
//! received_us  channel  status  id  recipient
//! 1732161600123456  apns  200  0b9c...-...  740f4707bebcf74f...
//! ```
//! - `received_us`: wall clock when the request was complete, microseconds since the Unix epoch.
//! - `channel`: `apns`, `webhook`, `webpush`, `fcm` or `smtp`.
//! - `status`: the status of the answer, HTTP's or SMTP's; `drop` when the request was processed and left
//!   without an answer on purpose; `refuse` when it was not processed (`REFUSED_STREAM`, or above
//!   the last stream of an abrupt GOAWAY). 2xx and `drop` **reached the recipient**.
//! - `id`: `apns-id` or `webhook-id`; of a Web Push, which has none, a hash of path and decrypted content; of FCM the
//!   name that the message got, and `access-token` for a line of its token endpoint; of a mail what
//!   `Message-ID` has before its `@`; `-` when there is none.
//! - `recipient`: device token, path or address; `-` when there is none.
//!
//! The status is what the provider decided: an answer may still be lost when its connection breaks.
//! Bytes that could be taken for a separator, or are not ASCII, are written as `?`, and a field
//! ends after [`FIELD_BYTES_MAX`] bytes. Requests that never became complete have no line.
//!
//! The file is only ever appended to, in whole lines. A last line torn by a crash had no answer
//! yet: readers pass over it, and the next start cuts it off.

mod reader;
mod summary;
mod writer;

pub use reader::Reader;
pub use summary::{Repeats, Summary};
pub(crate) use writer::{Journal, open};

use std::fmt;

/// Longest `id` and longest `recipient`, in bytes.
pub const FIELD_BYTES_MAX: usize = 1024;

/// One request, as the provider saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalRecord<'a> {
    /// When the request was complete, in microseconds since the Unix epoch.
    pub received_us: u64,
    /// The provider it came to.
    pub channel: JournalChannel,
    /// Its answer.
    pub status: JournalStatus,
    /// `apns-id` or `webhook-id`; `-` when there is none.
    pub id: &'a str,
    /// Device token or path; `-` when there is none.
    pub recipient: &'a str,
}

/// The provider a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JournalChannel {
    /// The APNs provider.
    Apns,
    /// The webhook provider.
    Webhook,
    /// The push service of browsers.
    WebPush,
    /// The FCM provider and its token endpoint.
    Fcm,
    /// The mail server: a line per recipient, with the SMTP reply's code for a status.
    Smtp,
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JournalStatus {
    /// Answered with this HTTP status.
    Answered(u16),
    /// Processed, and left without an answer on purpose.
    Drop,
    /// Not processed.
    Refuse,
}

impl JournalStatus {
    /// Answered with success: the sender knows that it arrived.
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Answered(200..=299))
    }

    /// The notification reached its recipient, whether the sender knows it or not.
    pub const fn has_arrived(self) -> bool {
        self.is_accepted() || matches!(self, Self::Drop)
    }
}

impl fmt::Display for JournalChannel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Apns => "apns",
            Self::Webhook => "webhook",
            Self::WebPush => "webpush",
            Self::Fcm => "fcm",
            Self::Smtp => "smtp",
        })
    }
}

impl fmt::Display for JournalStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(code) => code.fmt(formatter),
            Self::Drop => formatter.write_str("drop"),
            Self::Refuse => formatter.write_str("refuse"),
        }
    }
}
