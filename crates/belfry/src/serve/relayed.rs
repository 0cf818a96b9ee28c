//! A source and a channel that no configuration names: those of `belfry relay`.

use std::sync::Arc;

use api::ConfiguredChannel;
use channel::Channel;
use feed::{DeadLetters, MessageShape, SourceCounts};
use flow::Backoff;
use notification::Name;
use pipeline::RetryPolicy;

use crate::streams::StreamPlace;

/// The way of messages from a source through an engine to a channel.
#[derive(Debug)]
pub(crate) struct RelayRoute {
    /// Name of the source.
    pub(crate) source_name: Name,
    /// Place of the source.
    pub(crate) from: StreamPlace,
    /// The consumer in NATS and the group in Kafka that share the source, where its URL names none.
    pub(crate) reader: String,
    /// How a message becomes a notification for the channel.
    pub(crate) shape: MessageShape,
    /// Destination of the messages of which none is made.
    pub(crate) dead_letters: DeadLetters,
    /// Counts of the source, for those who watch it.
    pub(crate) counts: Arc<SourceCounts>,
    /// Name of the channel.
    pub(crate) channel_name: Name,
    /// The channel.
    pub(crate) channel: Arc<dyn Channel>,
}

/// Attempts before a record is given up: about five days.
const ATTEMPTS: u16 = 1_000;

// === impl RelayRoute ===

impl RelayRoute {
    /// Retries of its deliveries: as a channel's are that is configured, and for longer.
    pub(super) fn policy() -> RetryPolicy {
        RetryPolicy { attempts: ATTEMPTS, backoff: Backoff::DEFAULT }
    }

    /// Its channel, as callers are told of it.
    pub(super) fn configured() -> ConfiguredChannel {
        ConfiguredChannel { kind: "stream", messages_per_minute: None, credentials: Vec::new() }
    }
}
