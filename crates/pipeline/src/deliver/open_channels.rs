//! The configured channels as one thread has them open, and the replaced ones that a chunk still uses.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use channel::{Channel, ChannelError, Sender, Tools};
use notification::Name;
use tokio::sync::watch;

use crate::Channels;
use crate::metrics::{SendCounts, ThreadCounts};

/// The channels that one thread has open.
#[derive(Debug)]
pub(super) struct OpenChannels {
    newest: RefCell<watch::Receiver<Channels>>,
    open: RefCell<BTreeMap<Name, Rc<OpenChannel>>>,
    /// Replaced ones, until their last chunk is done.
    retired: RefCell<Vec<Rc<OpenChannel>>>,
    /// Counts of each channel on this thread: one that is replaced goes on with those of its name.
    counts: ThreadCounts,
    clock: flow::Clock,
    next_seed: Cell<u64>,
}

/// A channel, opened on this thread.
#[derive(Debug)]
pub(super) struct OpenChannel {
    pub(super) channel: Arc<dyn Channel>,
    pub(super) sender: Box<dyn Sender>,
    pub(super) counts: Arc<SendCounts>,
}

// === impl OpenChannels ===

impl OpenChannels {
    /// Opens all of `channels` as they are now.
    pub(super) fn open(
        mut channels: watch::Receiver<Channels>,
        counts: ThreadCounts,
        (clock, seed): (flow::Clock, u64),
    ) -> Result<Self, ChannelError> {
        // Seen with this: only a later change is one to be followed.
        let current = channels.borrow_and_update().clone();
        let opened = Self {
            newest: RefCell::new(channels),
            open: RefCell::default(),
            retired: RefCell::default(),
            counts,
            clock,
            next_seed: Cell::new(seed),
        };
        for (name, channel) in current.iter() {
            let channel = opened.open_one(name, channel)?;
            opened.open.borrow_mut().insert(name.clone(), channel);
        }
        Ok(opened)
    }

    /// The channel called `name`, as the newest configuration has it.
    pub(super) fn get(&self, name: &Name) -> Option<Rc<OpenChannel>> {
        // An error says that the configuration was dropped: it changes no more.
        if self.newest.borrow().has_changed().unwrap_or(false) {
            self.replace();
        }
        self.open.borrow().get(name).cloned()
    }

    /// Opens the channels that the newest configuration changed, and closes those no longer used.
    pub(super) async fn follow(&self) {
        self.replace();
        self.close_retired().await;
    }

    /// Closes the replaced channels that have no chunk under way.
    pub(super) async fn close_retired(&self) {
        // The list's own handle is the last one when no chunk holds the channel.
        let is_unused = |channel: &mut Rc<OpenChannel>| Rc::strong_count(channel) == 1;
        // Taken out first: no borrow is held while a channel closes.
        let unused: Vec<_> = self.retired.borrow_mut().extract_if(.., is_unused).collect();
        for channel in unused {
            channel.sender.close().await;
        }
    }

    /// Closes all of them. Called when no chunk is under way.
    pub(super) async fn close(&self) {
        self.close_retired().await;
        // Taken out, since a borrow must not last over a close.
        for channel in self.open.take().into_values() {
            channel.sender.close().await;
        }
    }

    /// Goes over to the newest configuration. A channel that cannot be opened leaves its place to the one before it.
    fn replace(&self) {
        let newest = self.newest.borrow_mut().borrow_and_update().clone();
        let mut open = self.open.borrow_mut();
        let mut retired = self.retired.borrow_mut();
        let removed = open.extract_if(.., |name, _| newest.get(name.as_str()).is_none());
        retired.extend(removed.map(|(_name, channel)| channel));
        for (name, channel) in newest.iter() {
            // A channel whose settings stayed is the same object in both sets: it keeps its connections (decision 0014).
            if open.get(name).is_some_and(|opened| Arc::ptr_eq(&opened.channel, channel)) {
                continue;
            }
            match self.open_one(name, channel) {
                // The one before it stays open for the chunks that hold it.
                Ok(opened) => retired.extend(open.insert(name.clone(), opened)),
                Err(error) => {
                    tracing::error!(channel = %name, %error, "a channel cannot be opened: its former settings stay");
                }
            }
        }
    }

    fn open_one(
        &self,
        name: &Name,
        channel: &Arc<dyn Channel>,
    ) -> Result<Rc<OpenChannel>, ChannelError> {
        // Each sender draws from a generator of its own, so that two of them do not wait the same jitter.
        let seed = self.next_seed.get();
        // Any number is as good a seed as another, so the last is followed by 0.
        self.next_seed.set(seed.wrapping_add(1));
        let counts = self.counts.of(name);
        let connections = Arc::clone(&counts.connections);
        let sender = channel.open(Tools { clock: self.clock, seed, connections })?;
        Ok(Rc::new(OpenChannel { channel: Arc::clone(channel), sender, counts }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use async_trait::async_trait;
    use channel::{Concurrency, Invalid, Job, LearnedBounds, SendBounds};

    use super::*;

    /// Counts the open senders.
    #[derive(Debug, Clone, Default)]
    struct Counted {
        opened: Arc<AtomicUsize>,
        closed: Arc<AtomicUsize>,
        is_broken: bool,
    }

    impl Channel for Counted {
        fn destination(&self, _recipient: &str) -> Result<Arc<str>, Invalid> {
            Ok("".into())
        }

        fn check_content(&self, _payload: &[u8], _options: &[u8]) -> Result<(), Invalid> {
            Ok(())
        }

        fn bounds(&self) -> SendBounds {
            SendBounds::new(Concurrency::Fixed(1), LearnedBounds::SMALL, 0)
        }

        fn open(&self, _tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
            if self.is_broken {
                return Err(ChannelError::setting("x", "is broken"));
            }
            self.opened.fetch_add(1, SeqCst);
            Ok(Box::new(self.clone()))
        }
    }

    #[async_trait(?Send)]
    impl Sender for Counted {
        async fn send(&self, _job: Job<'_>) {}

        async fn close(&self) {
            self.closed.fetch_add(1, SeqCst);
        }
    }

    impl Counted {
        fn counts(&self) -> (usize, usize) {
            (self.opened.load(SeqCst), self.closed.load(SeqCst))
        }
    }

    #[tokio::test]
    async fn what_is_replaced_is_closed_after_its_last_chunk_and_what_stays_stays_open() {
        let [stays, before, after, comes] = std::array::from_fn(|_| Counted::default());
        let broken = Counted { is_broken: true, ..Counted::default() };
        let kept: Arc<dyn Channel> = Arc::new(stays.clone());
        let set = |changed: &Counted, others: &[(&str, &Counted)]| {
            let mut channels = Channels::default();
            channels.insert("stays".parse().unwrap(), Arc::clone(&kept));
            channels.insert("changes".parse().unwrap(), Arc::new(changed.clone()));
            for (name, channel) in others {
                channels.insert(name.parse().unwrap(), Arc::new((*channel).clone()));
            }
            channels
        };
        let (newest, channels) = watch::channel(set(&before, &[]));
        let clock = flow::Clock::starting_at(Duration::from_hours(500_000));
        let opened = OpenChannels::open(channels, ThreadCounts::default(), (clock, 1)).unwrap();
        let name = |text: &str| text.parse::<Name>().unwrap();
        let in_use = opened.get(&name("changes")).unwrap();
        newest.send_replace(set(&after, &[("comes", &comes)]));
        assert!(opened.get(&name("comes")).is_some(), "also before the thread is told");
        opened.follow().await;
        assert_eq!((before.counts(), after.counts(), stays.counts()), ((1, 0), (1, 0), (1, 0)));
        drop(in_use);
        opened.close_retired().await;
        assert_eq!((before.counts(), after.counts(), stays.counts()), ((1, 1), (1, 0), (1, 0)));
        newest.send_replace(set(&broken, &[]));
        opened.follow().await;
        assert!(opened.get(&name("changes")).is_some() && opened.get(&name("comes")).is_none());
        assert_eq!((after.counts(), comes.counts()), ((1, 0), (1, 1)));
        opened.close().await;
        assert_eq!((after.counts(), stays.counts()), ((1, 1), (1, 1)));
    }
}
