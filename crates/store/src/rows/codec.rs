//! Items of a batch and entries of the log, as blobs.
//!
//! Items of a batch, in order of index:
//!
//! ```text
//! 1           version
//! 0 | 1 | 3   what each item has of its own: no content, a content, a content with fallbacks; or
//! 4           nothing follows: the recipients were removed
//! [ length-of-table { payload options } ... ]                      with fallbacks only
//! { recipient [payload options | content fallback] } ...
//! ```
//!
//! An item whose recipient is empty was erased; the content that it has is empty as well.
//!
//! With fallbacks, contents stand in a table, once, however many items share them, and are referred to by their position. A
//! fallback is a blob, empty when there is none:
//!
//! ```text
//! of          16 bytes, or none
//! { channel destination recipient content } ...
//! ```
//!
//! Entries of a log row, in order of settling:
//!
//! ```text
//! 1           version
//! { at attempt state status detail runs { gap length-1 } ... } ...
//! ```
//!
//! A run is `length` indexes in a row that start `gap` after the end of the run before: a thousand
//! deliveries that came to the same take two bytes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use notification::{
    Alternative, ByteString, Bytes, Content, ContentAddress, Fallback, NotificationId, State,
    Timestamp, content_address,
};

use super::blob::{BlobReader, ByteReader, VERSION, damaged, put, put_slice};
use super::{codes, undelivered};
use crate::{Attempted, StoreError};

/// The part of a content that each item of a batch has of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemContent {
    /// No content: the items share one, in the batch row or with the broadcast.
    Nothing = 0,
    /// A content.
    Content = 1,
    /// A content, some of them with fallbacks.
    Fallback = 3,
    /// Nothing, and no recipient either: both were removed.
    Removed = 4,
}

/// Reads the items of a batch. All of them share one allocation.
#[derive(Debug)]
pub(crate) struct Items {
    pieces: BlobReader,
    /// The part of a content that each item has of its own.
    pub(crate) own: ItemContent,
    /// Contents of items and fallbacks, if there are fallbacks.
    table: Vec<Content>,
}

/// Contents that are being written: those that share their memory are written once.
#[derive(Debug, Default)]
struct ContentTable<'a> {
    contents: Vec<(&'a Bytes, &'a Bytes)>,
    /// Position by address: to compare the bytes would cost more.
    positions: HashMap<ContentAddress, u64>,
}

/// Deliveries of one log row that came to the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogGroup {
    pub(crate) attempted: Attempted,
    pub(crate) indexes: Vec<u16>,
}

/// An attempt or an end, as it is written to the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogLine<'a> {
    pub(crate) at: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) state: State,
    pub(crate) status: u16,
    pub(crate) detail: &'a str,
}

/// The groups of one log row, while it is written.
#[derive(Debug)]
pub(crate) struct LogRow {
    bytes: Vec<u8>,
    /// The ends in it by which batches are listed.
    pub(crate) listed: BTreeSet<State>,
}

// === impl Items ===

impl Items {
    pub(crate) fn new(bytes: Bytes) -> Result<Self, StoreError> {
        let own = match bytes.first_chunk() {
            Some([VERSION, 0]) => ItemContent::Nothing,
            Some([VERSION, 1]) => ItemContent::Content,
            Some([VERSION, 3]) => ItemContent::Fallback,
            Some([VERSION, 4]) => ItemContent::Removed,
            _ => return Err(damaged("items of a batch")),
        };
        let (mut pieces, mut table) = (BlobReader::new(bytes, 2), Vec::new());
        if own == ItemContent::Fallback {
            for _ in 0..pieces.number()? {
                let (payload, options) = (pieces.next()?, pieces.next()?);
                table.push(Content { payload, options, fallback: None });
            }
        }
        Ok(Self { pieces, own, table })
    }

    /// The next item. Its recipient is empty when it was removed.
    pub(crate) fn read(&mut self) -> Result<(ByteString, Option<Content>), StoreError> {
        if self.own == ItemContent::Removed {
            return Ok((ByteString::new(), None));
        }
        let recipient = self.pieces.text()?;
        let content = match self.own {
            ItemContent::Nothing | ItemContent::Removed => return Ok((recipient, None)),
            ItemContent::Content => {
                let (payload, options) = (self.pieces.next()?, self.pieces.next()?);
                Content { payload, options, fallback: None }
            }
            ItemContent::Fallback => {
                let content = listed(&self.table, self.pieces.number()?)?;
                let fallback = decode_fallback(self.pieces.next()?, &self.table)?;
                Content { fallback, ..content }
            }
        };
        Ok((recipient, Some(content)))
    }

    /// Recipients of the next item: its own, empty if it was removed, and those of its fallbacks. Contents are passed over.
    pub(crate) fn read_recipients(&mut self) -> Result<(ByteString, Vec<ByteString>), StoreError> {
        if self.own != ItemContent::Fallback {
            return Ok((self.read_recipient()?, Vec::new()));
        }
        let own = self.pieces.text()?;
        self.pieces.number()?;
        Ok((own, fallback_recipients(self.pieces.next()?)?))
    }

    /// The recipient of the next item, of which the rest is passed over.
    pub(crate) fn read_recipient(&mut self) -> Result<ByteString, StoreError> {
        if self.own == ItemContent::Removed {
            return Ok(ByteString::new());
        }
        let recipient = self.pieces.text()?;
        self.skip_content()?;
        Ok(recipient)
    }

    /// Passes over the next item.
    pub(crate) fn skip(&mut self) -> Result<(), StoreError> {
        if self.own == ItemContent::Removed {
            return Ok(());
        }
        self.pieces.range()?;
        self.skip_content()
    }

    fn skip_content(&mut self) -> Result<(), StoreError> {
        match self.own {
            ItemContent::Nothing | ItemContent::Removed => {}
            ItemContent::Content => {
                self.pieces.range()?;
                self.pieces.range()?;
            }
            ItemContent::Fallback => {
                self.pieces.number()?;
                self.pieces.range()?;
            }
        }
        Ok(())
    }
}

/// Writes the items of a batch, as far as each has its `own`.
pub(crate) fn encode_items<'a>(
    items: impl Iterator<Item = (&'a ByteString, &'a Content)>,
    own: ItemContent,
    bytes_expected: usize,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bytes_expected);
    bytes.extend([VERSION, own as u8]);
    if own == ItemContent::Fallback {
        encode_with_fallbacks(items, &mut bytes);
        return bytes;
    }
    for (recipient, content) in items {
        put_slice(&mut bytes, recipient.as_bytes());
        if own == ItemContent::Content {
            put_slice(&mut bytes, &content.payload);
            put_slice(&mut bytes, &content.options);
        }
    }
    bytes
}

/// The table is known once all items are written, and stands before them.
fn encode_with_fallbacks<'a>(
    items: impl Iterator<Item = (&'a ByteString, &'a Content)>,
    bytes: &mut Vec<u8>,
) {
    let (mut table, mut written) = (ContentTable::default(), Vec::new());
    for (recipient, content) in items {
        put_slice(&mut written, recipient.as_bytes());
        put(&mut written, table.position(&content.payload, &content.options));
        let fallback = encode_fallback(content.fallback.as_deref(), &mut table);
        put_slice(&mut written, &fallback);
    }
    put(bytes, table.contents.len() as u64);
    for (payload, options) in table.contents {
        put_slice(bytes, payload);
        put_slice(bytes, options);
    }
    bytes.append(&mut written);
}

fn encode_fallback<'a>(fallback: Option<&'a Fallback>, table: &mut ContentTable<'a>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Some(Fallback { of, next }) = fallback else { return bytes };
    put_slice(
        &mut bytes,
        of.map(NotificationId::to_bytes).as_ref().map_or(&[], <[u8; 16]>::as_slice),
    );
    for Alternative { channel, destination, recipient, payload, options } in next {
        put_slice(&mut bytes, channel.as_str().as_bytes());
        put_slice(&mut bytes, destination.as_bytes());
        put_slice(&mut bytes, recipient.as_bytes());
        put(&mut bytes, table.position(payload, options));
    }
    bytes
}

/// The content at `position` of `table`.
fn listed(table: &[Content], position: u64) -> Result<Content, StoreError> {
    let found = usize::try_from(position).ok().and_then(|position| table.get(position));
    found.cloned().ok_or_else(|| damaged("a content"))
}

fn decode_fallback(bytes: Bytes, table: &[Content]) -> Result<Option<Arc<Fallback>>, StoreError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut pieces = BlobReader::new(bytes, 0);
    let of = pieces.next()?;
    let of = match <[u8; 16]>::try_from(&*of) {
        Ok(bytes) => Some(NotificationId::from_bytes(bytes)),
        Err(_) if of.is_empty() => None,
        Err(_) => return Err(damaged("a fallback")),
    };
    let mut next = Vec::new();
    while !pieces.is_empty() {
        let channel = codes::name(&pieces.text()?)?;
        let (destination, recipient) = (Arc::from(&*pieces.text()?), pieces.text()?);
        let Content { payload, options, fallback: _ } = listed(table, pieces.number()?)?;
        next.push(Alternative { channel, destination, recipient, payload, options });
    }
    Ok(Some(Arc::new(Fallback { of, next })))
}

/// The recipients in a fallback.
fn fallback_recipients(bytes: Bytes) -> Result<Vec<ByteString>, StoreError> {
    let (is_none, mut recipients) = (bytes.is_empty(), Vec::new());
    let mut pieces = BlobReader::new(bytes, 0);
    if !is_none {
        pieces.range()?;
    }
    while !pieces.is_empty() {
        pieces.range()?;
        pieces.range()?;
        recipients.push(pieces.text()?);
        pieces.number()?;
    }
    Ok(recipients)
}

// === impl ContentTable ===

impl<'a> ContentTable<'a> {
    fn position(&mut self, payload: &'a Bytes, options: &'a Bytes) -> u64 {
        let next = self.contents.len() as u64;
        // All contents are borrowed for as long as the table lives, so no address is used for another one meanwhile.
        *self.positions.entry(content_address(payload, options)).or_insert_with(|| {
            self.contents.push((payload, options));
            next
        })
    }
}

// === impl LogLine ===

impl LogLine<'static> {
    /// An end that no attempt led to.
    pub(crate) const fn unattempted(at: Timestamp, state: State) -> Self {
        Self { at, attempt: 0, state, status: 0, detail: "" }
    }
}

impl From<LogLine<'_>> for Attempted {
    fn from(line: LogLine<'_>) -> Self {
        let LogLine { at, attempt, state, status, detail } = line;
        Self { at, attempt, state, status, detail: detail.to_owned() }
    }
}

// === impl LogRow ===

impl LogRow {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![VERSION], listed: BTreeSet::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() == 1
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a group. `indexes` ascend.
    pub(crate) fn push(&mut self, line: &LogLine<'_>, indexes: impl Iterator<Item = u16>) {
        if undelivered::is_listed(line.state, line.detail) {
            self.listed.insert(line.state);
        }
        put(&mut self.bytes, line.at.millis().cast_unsigned());
        put(&mut self.bytes, u64::from(line.attempt));
        put(&mut self.bytes, u64::from(line.state.code()));
        put(&mut self.bytes, u64::from(line.status));
        put_slice(&mut self.bytes, line.detail.as_bytes());
        let runs = runs_of(indexes);
        put(&mut self.bytes, runs.len() as u64);
        let mut end = 0;
        for (first, length) in runs {
            put(&mut self.bytes, first - end);
            put(&mut self.bytes, length - 1);
            end = first + length;
        }
    }
}

/// Reads a log row back.
pub(crate) fn decode_log(bytes: &[u8]) -> Result<Vec<LogGroup>, StoreError> {
    if bytes.first() != Some(&VERSION) {
        return Err(damaged("a log row"));
    }
    let mut input = ByteReader::at(bytes, 1);
    let mut groups = Vec::new();
    while !input.is_empty() {
        groups.push(log_group(&mut input)?);
    }
    Ok(groups)
}

fn log_group(input: &mut ByteReader<'_>) -> Result<LogGroup, StoreError> {
    let at = Timestamp::from_millis(input.number()?.cast_signed());
    let attempt = input.small()?;
    let state = State::from_code(input.small()?).ok_or_else(|| damaged("a state"))?;
    let status = input.small()?;
    let detail = str::from_utf8(input.slice()?).map_err(|_| damaged("a detail"))?.to_owned();
    let mut indexes = Vec::new();
    let mut end: u16 = 0;
    for _ in 0..input.number()? {
        let first = end.checked_add(input.small()?).ok_or_else(|| damaged("a run"))?;
        let last = first.checked_add(input.small()?).ok_or_else(|| damaged("a run"))?;
        indexes.extend(first..=last);
        end = last.saturating_add(1);
    }
    Ok(LogGroup { attempted: Attempted { at, attempt, state, status, detail }, indexes })
}

/// Neighbours put together: where each run starts, and how long it is.
fn runs_of(indexes: impl Iterator<Item = u16>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for index in indexes.map(u64::from) {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == index => *length += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
