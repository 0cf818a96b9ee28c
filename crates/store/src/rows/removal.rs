//! The items of a batch without contents, without recipients, or without some of its members.

use notification::{ByteString, Bytes, Content};

use super::blob::{VERSION, put_slice};
use super::codec::{ItemContent, Items, encode_items};
use super::members::Members;
use crate::StoreError;

/// The items of a batch of `count` without their contents, which are removed.
pub(crate) fn without_contents(items: Bytes, count: usize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::with_capacity(items.len().min(count * 256));
    let mut items = Items::new(items)?;
    if items.own == ItemContent::Removed {
        return Ok(without_recipients());
    }
    bytes.extend([VERSION, ItemContent::Nothing as u8]);
    for _ in 0..count {
        put_slice(&mut bytes, items.read()?.0.as_bytes());
    }
    Ok(bytes)
}

/// The items of a batch of `count`, without the recipients and contents of `members`.
pub(crate) fn without_members(
    items: Bytes,
    count: u16,
    members: &Members,
) -> Result<Vec<u8>, StoreError> {
    let bytes_expected = items.len();
    let mut items = Items::new(items)?;
    if items.own == ItemContent::Removed {
        return Ok(without_recipients());
    }
    let nothing = Content { payload: Bytes::new(), options: Bytes::new(), fallback: None };
    let mut kept = Vec::with_capacity(count.into());
    for index in 0..count {
        let (recipient, content) = items.read()?;
        let content = content.unwrap_or_else(|| nothing.clone());
        let is_kept = !members.contains(index);
        kept.push(if is_kept {
            (recipient, content)
        } else {
            (ByteString::new(), nothing.clone())
        });
    }
    let kept = kept.iter().map(|(recipient, content)| (recipient, content));
    Ok(encode_items(kept, items.own, bytes_expected))
}

/// The members of a batch of `count` that were erased.
pub(crate) fn erased(items: Bytes, count: u16) -> Result<Members, StoreError> {
    let (mut items, mut members) = (Items::new(items)?, Members::default());
    for index in 0..count {
        if items.read_recipient()?.is_empty() {
            members.insert(index);
        }
    }
    Ok(members)
}

/// The items of a batch without recipients and contents.
pub(crate) fn without_recipients() -> Vec<u8> {
    vec![VERSION, ItemContent::Removed as u8]
}
