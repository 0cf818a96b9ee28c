//! Erasure, one notification after the other.

use notification::{ByteString, Bytes, Content, Labels, Name, NotificationId};

use super::books::Books;
use crate::rows::erasure::without_address;
use crate::{Attempted, Erased, LogEntry};

impl Books {
    pub(super) fn erase(&mut self, id: NotificationId, tenant: &Name) -> Erased {
        let Some((batch, index)) = self.place(id) else { return Erased::Unknown };
        let stored = self.batch(batch);
        if &stored.envelope.lane.tenant != tenant || stored.removed > 1 {
            return Erased::Unknown;
        }
        let entry = self.entry(batch, index);
        if entry.recipient.is_empty() {
            return Erased::Unknown;
        }
        if !entry.state.is_terminal() {
            return Erased::Pending;
        }
        entry.labels = Labels::default();
        let fallback = entry.content.fallback.take();
        let addresses: Vec<ByteString> = std::iter::once(std::mem::take(&mut entry.recipient))
            .chain(fallback.iter().flat_map(|it| it.next.iter().map(|next| next.recipient.clone())))
            .collect();
        entry.content = Content { payload: Bytes::new(), options: Bytes::new(), fallback: None };
        self.forget_words(id, &addresses);
        Erased::Erased
    }

    /// Takes the words out of the log that were said of a notification. Where the same was said of others with it, all of them keep
    /// it without the addresses.
    fn forget_words(&mut self, id: NotificationId, addresses: &[ByteString]) {
        let mut log = std::mem::take(&mut self.log);
        for page in &mut log {
            let of_this = page.iter().filter(|entry| entry.id == id);
            let said: Vec<Attempted> = of_this.map(|entry| entry.attempted.clone()).collect();
            for words in said.iter().filter(|words| words.taken_back().is_none()) {
                let has_said =
                    |it: &&mut LogEntry| it.id.batch() == id.batch() && it.attempted == *words;
                let mut those: Vec<&mut LogEntry> = page.iter_mut().filter(has_said).collect();
                let is_of_others =
                    those.iter().any(|it| !self.recipient(it.id.batch(), it.id.index()).is_empty());
                let detail = if is_of_others {
                    let words = words.detail.clone();
                    addresses.iter().fold(words, |text, address| without_address(&text, address))
                } else {
                    words.own_words().to_owned()
                };
                for entry in &mut those {
                    entry.attempted.detail.clone_from(&detail);
                    let attempts = &mut self.entry(entry.id.batch(), entry.id.index()).attempts;
                    for same in attempts.iter_mut().filter(|attempted| *attempted == words) {
                        same.detail.clone_from(&detail);
                    }
                }
            }
        }
        self.log = log;
    }

    pub(super) fn forget(&mut self, recipient: &ByteString) -> u64 {
        let before = self.suppressions.len();
        self.suppressions.retain(|(_, listed), _| listed != recipient);
        self.lifts.retain(|(_, lifted), _| lifted != recipient);
        // The last change stays, without the recipient: its number must not be given again.
        let last = self.events.last().map(|event| event.position);
        self.events.retain(|it| it.recipient != *recipient || Some(it.position) == last);
        if let Some(last) = self.events.last_mut().filter(|it| it.recipient == *recipient) {
            last.recipient = ByteString::new();
        }
        (before - self.suppressions.len()) as u64
    }
}
