//! Labels: how an application finds its notifications again. No channel sends them.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

/// Labels of a notification or a broadcast. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels {
    /// The application's own id of whom or what it is about; empty when it has none. At most [`crate::limits::EXTERNAL_ID_BYTES`].
    pub external_id: ByteString,
    /// Tags and metadata; `None` when it has neither.
    pub common: Option<Arc<CommonLabels>>,
}

/// Labels that notifications often have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CommonLabels {
    /// Tags, each once, in the order in which they were given. At most [`crate::limits::TAGS`].
    pub tags: Vec<ByteString>,
    /// A JSON object, byte for byte as it was given; empty when there is none. At most [`crate::limits::METADATA_BYTES`].
    pub metadata: Bytes,
}

// === impl Labels ===

impl Labels {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.external_id.is_empty() && self.common.is_none()
    }

    /// True if these are with this external id and this tag, as far as either is asked for.
    pub fn have(&self, external_id: Option<&ByteString>, tag: Option<&ByteString>) -> bool {
        external_id.is_none_or(|id| *id == self.external_id)
            && tag.is_none_or(|tag| self.tags().contains(tag))
    }

    /// The tags.
    pub fn tags(&self) -> &[ByteString] {
        self.common.as_ref().map_or(&[], |common| &common.tags)
    }

    /// The metadata; empty when there are none.
    pub fn metadata(&self) -> &[u8] {
        self.common.as_ref().map_or(&[], |common| &common.metadata)
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        let tags = self.tags().iter().map(|tag| tag.len()).sum::<usize>();
        self.external_id.len() + tags + self.metadata().len()
    }
}
