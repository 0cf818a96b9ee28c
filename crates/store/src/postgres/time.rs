//! The database's time, by which all processes that share the store go.
//!
//! The time is queried with every beat and with every transaction, at no round trip of its own.

use std::time::Duration;

use flow::reference::TimeAnswer;
use flow::{Clock, Reference};
use notification::Timestamp;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::errors;

/// The database's clock, estimated by this process. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatabaseTime {
    reference: &'static Reference,
    own: Clock,
}

/// Gives the present time, microseconds since the Unix epoch.
macro_rules! now_micros {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::int8"
    };
}
pub(super) use now_micros;

// === impl DatabaseTime ===

impl DatabaseTime {
    /// A time that is not known yet, measured by `own`.
    pub(super) fn new(own: Clock) -> Self {
        Self { reference: Reference::forever(), own }
    }

    /// A clock that shows it.
    pub(super) fn clock(&self) -> Clock {
        self.own.following(self.reference)
    }

    /// Time since boot: that of a question, or of its answer.
    pub(super) fn boot(&self) -> Duration {
        self.own.boot()
    }

    /// Runs the statements `first`, queries the time in the same message, and learns it. Returns the time, and the values of the
    /// expressions `beside`.
    pub(super) async fn query(
        &self,
        client: &Client,
        first: &str,
        beside: &[&str],
    ) -> Result<(Timestamp, Vec<Option<String>>), Error> {
        // Before it is sent: the instant that the server tells lies between here and the answer.
        let asked = self.own.boot();
        let wanted = [&[now_micros!()], beside].concat().join(", ");
        let sql = format!("{first}; SELECT {wanted}");
        let answers = client.simple_query(&sql).await?;
        // The last row there is.
        let told = answers.iter().rev().find_map(|answer| {
            let SimpleQueryMessage::Row(row) = answer else { return None };
            let values = (1..=beside.len()).map(|column| row.get(column).map(str::to_owned));
            Some((row.get(0)?.parse().ok()?, values.collect()))
        });
        // A server that answers without the row is as good as lost.
        let (told, values): (i64, Vec<Option<String>>) = told.ok_or_else(errors::silence)?;
        self.learn(asked, told);
        Ok((Timestamp::from_millis(told / 1_000), values))
    }

    /// Learns the database's time `told`, microseconds, which answers a question of `asked` just now. Returns by how much its
    /// clock was set since the last one, milliseconds.
    pub(super) fn learn(&self, asked: Duration, told: i64) -> i64 {
        let told = Duration::from_micros(u64::try_from(told).unwrap_or(0));
        self.reference.learn(TimeAnswer { asked, told, answered: self.own.boot() })
    }

    /// Difference to this machine's wall clock, milliseconds; above zero if the database's is ahead.
    pub(super) fn ahead(&self) -> i64 {
        self.now().millis().saturating_sub(Timestamp::from_unix(self.own.wall()).millis())
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_unix(self.clock().wall())
    }
}
