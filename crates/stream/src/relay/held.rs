//! How much is in hand, and how much more may be fetched. Without I/O.

use super::options::RelayBuffer;

/// Counts what is in hand.
#[derive(Debug)]
pub(super) struct HeldCount {
    buffer: RelayBuffer,
    messages: usize,
    bytes: usize,
    /// Bytes that a message is taken to have, before it is there: they grow at once with larger ones, and shrink slowly.
    expected_bytes: usize,
}

/// Bytes that the first messages are taken to have.
const EXPECTED_AT_FIRST: usize = 16 << 10;
/// Part of the buffer that must be free before more is fetched: fetches of a few messages each cost as many calls as large ones.
const FREE_PART: usize = 8;

// === impl HeldCount ===

impl HeldCount {
    pub(super) fn new(buffer: RelayBuffer) -> Self {
        Self { buffer, messages: 0, bytes: 0, expected_bytes: EXPECTED_AT_FIRST }
    }

    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    /// Messages to fetch now; 0 while there is no room.
    pub(super) fn room(&self) -> usize {
        let capacity = self.buffer.messages.min(self.buffer.bytes / self.expected_bytes).max(1);
        let by_bytes = self.buffer.bytes.saturating_sub(self.bytes) / self.expected_bytes;
        let room = self.buffer.messages.saturating_sub(self.messages).min(by_bytes);
        if self.messages == 0 {
            return room.max(1);
        }
        if room * FREE_PART < capacity { 0 } else { room }
    }

    /// A fetch brought messages of these sizes.
    pub(super) fn add(&mut self, sizes: &[usize]) {
        let (count, bytes) = (sizes.len(), sizes.iter().sum::<usize>());
        self.messages += count;
        self.bytes += bytes;
        let mean = (bytes / count.max(1)).max(1);
        let slowly = (self.expected_bytes * 7 + mean) / 8;
        self.expected_bytes = mean.max(slowly);
    }

    /// A message of so many bytes is answered for.
    pub(super) fn remove(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(messages: usize, bytes: usize) -> HeldCount {
        HeldCount::new(RelayBuffer { messages, bytes })
    }

    #[test]
    fn the_room_is_what_is_free_of_messages() {
        let mut held = held(100, usize::MAX);
        assert_eq!(held.room(), 100);
        held.add(&[1; 80]);
        assert_eq!(held.room(), 20);
        held.add(&[1; 10]);
        assert_eq!(held.room(), 0, "too little to be worth a call");
        (0..90).for_each(|_| held.remove(1));
        assert_eq!(held.room(), 100);
    }

    #[test]
    fn the_room_follows_the_size_of_messages() {
        let mut held = held(1_000, 1 << 20);
        assert_eq!(held.room(), 64, "the first ones may be large");
        held.add(&[100 << 10; 5]);
        assert_eq!(held.room(), 5);
        held.add(&[100 << 10; 5]);
        assert_eq!(held.room(), 0);
        (0..10).for_each(|_| held.remove(100 << 10));
        for _ in 0..60 {
            held.add(&[10]);
            held.remove(10);
        }
        assert!(held.room() > 500, "small ones make more of them fit: {}", held.room());
    }

    #[test]
    fn one_message_is_always_let_in() {
        let mut held = held(10, 10);
        assert_eq!(held.room(), 1);
        held.add(&[1 << 20]);
        assert_eq!(held.room(), 0);
        held.remove(1 << 20);
        assert_eq!(held.room(), 1);
    }
}
