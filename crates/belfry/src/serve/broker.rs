//! The link to the broker that carries tickets.

use std::sync::Arc;

use flow::Clock;
use notification::Ticket;
use queue::{Consume, Publish};
use tokio::sync::watch;

use super::Role;
use crate::config::QueueConfig;

/// A link to a broker.
#[derive(Debug)]
pub(super) struct Link {
    publisher: Arc<dyn Publish<Ticket>>,
    consumer: Arc<dyn Consume<Ticket>>,
    available: watch::Receiver<bool>,
}

impl Link {
    pub(super) async fn open(
        role: Role,
        config: &QueueConfig,
        clock: Clock,
        random: &mut fastrand::Rng,
    ) -> anyhow::Result<Option<Self>> {
        let _ = (role, clock, random);
        match &config.url {
            None => Ok(None),
            Some(url) => anyhow::bail!("{url}: not yet"),
        }
    }

    pub(super) fn publisher(&self) -> Arc<dyn Publish<Ticket>> {
        Arc::clone(&self.publisher)
    }

    pub(super) fn consumer(&self) -> Arc<dyn Consume<Ticket>> {
        Arc::clone(&self.consumer)
    }

    pub(super) fn available(&self) -> (&'static str, watch::Receiver<bool>) {
        ("broker", self.available.clone())
    }

    pub(super) fn in_use(&self) {}

    pub(super) async fn close(self) {}
}
