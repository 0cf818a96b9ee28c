//! `belfry api-key`: makes a key, prints it once, and prints what the configuration keeps of it.

use std::fmt::{Display, Write as _};
use std::num::NonZeroU32;

use api::KeyScope;
use clap::Args;
use notification::{Name, Priority, Timestamp};
use pipeline::ingest::{EndpointPrefix, FromPattern};

use crate::output;

/// `belfry api-key`, `belfry keys add`
#[derive(Debug, Args)]
pub(crate) struct ApiKeyArgs {
    /// Says in logs whose key it is
    pub(crate) name: Name,
    /// Whose notifications the caller sends and sees
    #[arg(long)]
    pub(crate) tenant: Name,
    #[command(flatten)]
    pub(crate) grants: GrantArgs,
}

/// The calls that a key is good for.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// Scopes of the caller, with commas between: send, read, cancel, suppress, operate, metrics
    /// [default: all but operate]
    #[arg(long, value_delimiter = ',', value_name = "SCOPES")]
    pub(crate) scopes: Vec<KeyScope>,
    /// The channels that the caller sends by, with commas between [default: all]
    #[arg(long, value_delimiter = ',', value_name = "CHANNELS")]
    pub(crate) channels: Vec<Name>,
    /// The priorities that the caller sends with, with commas between [default: all]
    #[arg(long, value_delimiter = ',', value_name = "PRIORITIES")]
    pub(crate) priorities: Vec<Priority>,
    /// The addresses that the caller's mail is from, with commas between: news@example.com, or @example.com for all of a domain
    /// [default: all]
    #[arg(long, value_delimiter = ',', value_name = "ADDRESSES")]
    pub(crate) from: Vec<FromPattern>,
    /// The endpoints that the caller's webhooks go to, as URLs with commas between; each is good for all that lie below its path
    /// [default: all]
    #[arg(long, value_delimiter = ',', value_name = "URLS")]
    pub(crate) endpoints: Vec<EndpointPrefix>,
    /// The last instant at which the key is good (RFC 3339) [default: none]
    #[arg(long, value_name = "INSTANT")]
    pub(crate) not_after: Option<Timestamp>,
    /// Requests in a minute, at each process [default: any number]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) requests_per_minute: Option<NonZeroU32>,
}

/// Prints the key and its table. The key goes to standard output and nowhere else.
pub(crate) fn run(args: &ApiKeyArgs) -> anyhow::Result<()> {
    let key = api::generate()?;
    let mut table = format!(
        "# The key, for the caller. It is kept nowhere and cannot be shown again.\n\
         # BELFRY_API_KEY={key}\n\
         # For the configuration of the engine:\n\
         [[server.keys]]\n\
         name = \"{}\"\n\
         tenant = \"{}\"\n\
         sha256 = \"{}\"\n",
        args.name,
        args.tenant,
        api::hash(&key)
    );
    let GrantArgs { scopes, channels, priorities, from, endpoints, .. } = &args.grants;
    push_list(&mut table, "scopes", scopes)?;
    push_list(&mut table, "channels", channels)?;
    push_list(&mut table, "priorities", priorities)?;
    push_list(&mut table, "from", from)?;
    push_list(&mut table, "endpoints", endpoints)?;
    if let Some(last) = args.grants.not_after {
        writeln!(table, "not_after = \"{last}\"")?;
    }
    if let Some(rate) = args.grants.requests_per_minute {
        writeln!(table, "requests_per_minute = {rate}")?;
    }
    output::print(&table)
}

/// A setting with `words`, if there are any. They are ASCII, which is escaped as TOML does.
fn push_list(table: &mut String, setting: &str, words: &[impl Display]) -> std::fmt::Result {
    if words.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = words.iter().map(|word| format!("{:?}", word.to_string())).collect();
    writeln!(table, "{setting} = [{}]", words.join(", "))
}
