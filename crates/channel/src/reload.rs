//! A channel whose settings change while it is in use.
//!
//! What is checked or sent from then on goes by the new settings; what is under way ends with those it began with.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{Channel, ChannelError, Invalid, Job, Sender, Tools};

/// A channel that can be replaced by another one in all its places at once.
#[derive(Debug)]
pub struct Reloadable {
    current: watch::Sender<Generation>,
}

/// One channel in the row of those that replaced each other.
#[derive(Debug, Clone)]
struct Generation {
    number: u64,
    channel: Arc<dyn Channel>,
}

/// Sends by the newest generation.
#[derive(Debug)]
struct ReloadingSender {
    newest: watch::Receiver<Generation>,
    tools: Tools,
    current: RefCell<Rc<Opened>>,
    /// Those that were replaced while jobs were under way.
    retired: RefCell<Vec<Rc<Opened>>>,
    /// The last generation that could not be opened.
    unopened: Cell<u64>,
}

/// A generation, opened on this thread.
#[derive(Debug)]
struct Opened {
    number: u64,
    sender: Box<dyn Sender>,
}

// === impl Reloadable ===

impl Reloadable {
    /// A channel that is `channel` at first.
    pub fn new(channel: Arc<dyn Channel>) -> Self {
        Self { current: watch::Sender::new(Generation { number: 0, channel }) }
    }

    /// Is `channel` from now on.
    pub fn replace(&self, channel: Arc<dyn Channel>) {
        self.current.send_modify(|current| {
            *current = Generation { number: current.number + 1, channel };
        });
    }

    fn channel(&self) -> Arc<dyn Channel> {
        Arc::clone(&self.current.borrow().channel)
    }
}

impl Channel for Reloadable {
    fn kind(&self) -> &'static str {
        self.channel().kind()
    }

    fn canonical<'a>(&self, recipient: &'a str) -> Result<Cow<'a, str>, Invalid> {
        self.channel().canonical(recipient)
    }

    fn destination(&self, recipient: &str) -> Result<Arc<str>, Invalid> {
        self.channel().destination(recipient)
    }

    fn check_content(&self, payload: &[u8], options: &[u8]) -> Result<(), Invalid> {
        self.channel().check_content(payload, options)
    }

    fn html_fields(&self) -> &'static [&'static str] {
        self.channel().html_fields()
    }

    fn concurrency(&self) -> usize {
        self.channel().concurrency()
    }

    fn open(&self, tools: Tools) -> Result<Box<dyn Sender>, ChannelError> {
        let newest = self.current.subscribe();
        let opened = Opened::new(&newest.borrow(), tools)?;
        Ok(Box::new(ReloadingSender {
            newest,
            tools,
            unopened: Cell::new(opened.number),
            current: RefCell::new(Rc::new(opened)),
            retired: RefCell::default(),
        }))
    }
}

// === impl ReloadingSender ===

#[async_trait(?Send)]
impl Sender for ReloadingSender {
    async fn send(&self, job: Job<'_>) {
        let opened = self.newest_opened();
        opened.sender.send(job).await;
        drop(opened);
        self.close_retired().await;
    }

    async fn close(&self) {
        self.close_retired().await;
        let current = Rc::clone(&self.current.borrow());
        current.sender.close().await;
    }
}

impl ReloadingSender {
    /// The newest generation that could be opened.
    fn newest_opened(&self) -> Rc<Opened> {
        let mut current = self.current.borrow_mut();
        let newest = self.newest.borrow();
        if newest.number != current.number && newest.number != self.unopened.get() {
            match Opened::new(&newest, self.tools) {
                Ok(opened) => {
                    let replaced = std::mem::replace(&mut *current, Rc::new(opened));
                    self.retired.borrow_mut().push(replaced);
                }
                Err(error) => {
                    self.unopened.set(newest.number);
                    tracing::error!(%error, "a reloaded channel cannot be opened: the old settings stay");
                }
            }
        }
        Rc::clone(&current)
    }

    /// Closes what was replaced and has no job under way.
    async fn close_retired(&self) {
        let idle: Vec<Rc<Opened>> = self
            .retired
            .borrow_mut()
            .extract_if(.., |opened| Rc::strong_count(opened) == 1)
            .collect();
        for opened in idle {
            opened.sender.close().await;
        }
    }
}

// === impl Opened ===

impl Opened {
    fn new(generation: &Generation, tools: Tools) -> Result<Self, ChannelError> {
        Ok(Self { number: generation.number, sender: generation.channel.open(tools)? })
    }
}
