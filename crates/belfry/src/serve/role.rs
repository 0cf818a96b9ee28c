//! The role of a process: the whole engine, or one half.

use crate::config::{Config, StorePlace};
use crate::exit::{CliError, FailureKind};

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// `belfry serve`
    Both,
    /// `belfry produce`
    Produce,
    /// `belfry consume`
    Consume,
}

// === impl Role ===

impl Role {
    /// The command that runs it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Both => "serve",
            Self::Produce => "produce",
            Self::Consume => "consume",
        }
    }

    /// True if it takes notifications in, and claims what is due.
    pub(super) fn produces(self) -> bool {
        self != Self::Consume
    }

    /// True if it delivers.
    pub(super) fn consumes(self) -> bool {
        self != Self::Produce
    }

    /// Checks that a half has the store and the queue that it needs.
    pub(super) fn check(self, config: &Config) -> Result<(), CliError> {
        let (half, whom) = match self {
            Self::Both => return Ok(()),
            Self::Produce => ("a producer", "consumers"),
            Self::Consume => ("a consumer", "producers"),
        };
        let fail = |message| Err(CliError::new(FailureKind::Config, message));
        if let StorePlace::Directory(_) = config.store.place() {
            return fail(format!(
                "{half} needs a store that it shares with {whom}: give --store postgres://USER@HOST/DATABASE, or set \
                 `url` in [store]; on one machine use `belfry serve`"
            ));
        }
        if config.queue.url.is_none() {
            return fail(format!(
                "{half} needs a queue to its {whom}: give --queue amqp://USER@HOST, nats://HOST, kafka://HOST or sqs://REGION, or set `url` in \
                 [queue]; without a broker use `belfry serve`"
            ));
        }
        Ok(())
    }
}
