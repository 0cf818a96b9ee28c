//! The arguments of `belfry relay`.

use std::path::PathBuf;
use std::time::Duration;

use channel::Secret;
use clap::Args;

use crate::args::secret;

/// At the end of `belfry relay --help`.
const HELP: &str = "\
Places:
  nats://HOST/SUBJECT               amqp://HOST/VHOST?queue=QUEUE
  kafka://HOST,HOST/TOPIC           sqs://QUEUE?region=REGION
  kinesis://STREAM?region=REGION    docs/relay.md has their parameters

A message is stored, acknowledged at its source (deleted, committed), and kept until the target took
it: each is accounted for, is tried again for days, and is looked up with `belfry log --store`. With
--direct there is no store: it is acknowledged once the target took it. Either way a crash loses
nothing, and may put again what was in hand; with --at-most-once it is the other way round.

Map: JSON with templates, {\"content\": ..., \"key\": \"...\"}; `body` is the JSON of the message,
`id` its identifier, `key` its key. Without `key` the message keeps its own.

Exit codes: 0 when it was told to end or nothing was left (--until-empty), and all that was put is
acknowledged; 65 when a message is refused (--direct: and has no dead letters); 69 when the source
is not reached at all; 78 when the source refuses the name, a right or the credentials (--direct).";

/// Store of a relay that names none.
const USUAL_STORE: &str = "./relay-data";

/// `belfry relay`
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct RelayArgs {
    /// Where messages come from
    #[arg(long, value_name = "URL", env = "BELFRY_RELAY_FROM", hide_env_values = true, value_parser = secret)]
    pub(crate) from: Secret,
    /// Where they go
    #[arg(long, value_name = "URL", env = "BELFRY_RELAY_TO", hide_env_values = true, value_parser = secret)]
    pub(crate) to: Secret,
    /// File with the shape that a record is to have
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    #[arg(
        long,
        value_name = "STORE",
        help = "Keep each message in this store until the target took it: a directory (SQLite), or postgres://USER@HOST/DATABASE [default: ./relay-data]",
        env = "BELFRY_RELAY_STORE",
        hide_env_values = true,
        value_parser = secret,
        conflicts_with = "direct"
    )]
    store: Option<Secret>,
    /// Without a store: acknowledge a message once the target took it
    #[arg(long)]
    pub(crate) direct: bool,
    /// End when the source gave nothing for so long, and all is acknowledged [default: 15]
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "15",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub(crate) until_empty: Option<u64>,
    /// Where to put what cannot be relayed [default: a file in the store's directory; with --direct end with the first]
    #[arg(long, value_name = "URL", env = "BELFRY_RELAY_DEAD_LETTER", hide_env_values = true, value_parser = secret)]
    pub(crate) dead_letter: Option<Secret>,
    /// Put nothing again that may have been taken; with --direct acknowledge first, so that a crash loses what is in hand
    #[arg(long)]
    pub(crate) at_most_once: bool,
    /// Messages in hand at most, with --direct [default: some batches of the target, 1000 to 20000]
    #[arg(long, requires = "direct", value_name = "MESSAGES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) buffer: Option<u32>,
    /// Group in Kafka, or consumer in NATS, that shares the messages of the source, if its URL names none
    #[arg(long, value_name = "NAME", default_value = "belfry-relay")]
    pub(crate) reader: String,
    /// File that keeps how far each shard of Kinesis was read, with --direct
    #[arg(long, requires = "direct", value_name = "FILE")]
    pub(crate) positions: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

// === impl RelayArgs ===

impl RelayArgs {
    /// The store, where there is one.
    pub(super) fn store(&self) -> Secret {
        self.store.clone().unwrap_or_else(|| Secret::new(USUAL_STORE))
    }

    pub(super) fn until_empty(&self) -> Option<Duration> {
        self.until_empty.map(Duration::from_secs)
    }
}
