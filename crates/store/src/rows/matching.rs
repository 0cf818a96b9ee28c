//! Members of a batch that a search is for, told without their contents.

use memchr::memmem;
use notification::{Bytes, Labels};

use super::codec::Items;
use super::labels::BatchLabels;
use super::members::Members;
use crate::{Filter, StoreError};

/// The members of a batch of `count` that have the recipient and the labels of `filter`.
pub(crate) fn matching_members(
    filter: &Filter,
    count: usize,
    items: Bytes,
    labels: Option<Bytes>,
) -> Result<Members, StoreError> {
    if labels.is_none() && (filter.external_id.is_some() || filter.tag.is_some()) {
        return Ok(Members::default());
    }
    let (bytes, mut members) = (items.clone(), Members::default());
    let mut items = Items::new(items)?;
    // A walk reads batches of which next to none has the recipient: without these bytes no member need be read.
    if let Some(recipient) = &filter.recipient
        && memmem::find(&bytes, recipient.as_bytes()).is_none()
    {
        return Ok(members);
    }
    let (labels, none) = (BatchLabels::decode(labels, count)?, Labels::default());
    for index in (0..=u16::MAX).take(count) {
        let (own, others) = items.read_recipients()?;
        if filter.has_recipient(&own, &others)
            && labels
                .get(index)
                .unwrap_or(&none)
                .have(filter.external_id.as_ref(), filter.tag.as_ref())
        {
            members.insert(index);
        }
    }
    Ok(members)
}
