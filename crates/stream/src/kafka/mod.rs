//! Apache Kafka, 3.9 or later: topics that are read as a member of a consumer group, and topics that are written to.
//!
//! A member reads the partitions that its group gives it. A partition's position is committed once all below it is acknowledged, so a
//! crash repeats what was in hand and nothing else. When a partition goes to another member, its position is committed first; receipts
//! for messages of it are then of no effect.
//!
//! - `settings`: addresses, names and credentials, from a URL or a table of the configuration.
//! - `client`: connections, and explanations of their errors.
//! - `offsets`: which position of a partition may be committed.
//! - `member`: the state of a member of a group.
//! - `stall` and `unread`: a member that does not read what it was given, and partitions that were given to no member.
//! - `source` and `target`: the two directions.

mod client;
mod member;
mod offsets;
mod settings;
mod source;
mod stall;
mod target;
mod unread;

pub use client::{connect, explain, partitions};
pub use member::Departure;
pub use settings::{KafkaSecurity, KafkaSettings, SaslMechanism};
pub use source::KafkaSource;
pub use target::{KafkaTarget, KafkaTargets};
