//! `belfry channels`: the channels that the engine has.

use std::num::NonZeroU32;

use clap::Args;
use notification::Name;
use serde::{Deserialize, Serialize};

use crate::client::{Client, with_query};
use crate::output;

/// `belfry channels`
#[derive(Debug, Args)]
pub(crate) struct ChannelsArgs {
    /// Show what is paused of this tenant, with an operator's key [default: the key's]
    #[arg(long)]
    tenant: Option<Name>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A channel that a caller may name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListedChannel {
    pub(crate) name: String,
    /// As the setting `kind` has it.
    pub(crate) kind: String,
    messages_per_minute: Option<NonZeroU32>,
    paused_since: Option<String>,
    /// Told to operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    credentials: Vec<ListedCredential>,
}

/// A credential that ends.
#[derive(Debug, Serialize, Deserialize)]
struct ListedCredential {
    what: String,
    expires_at: String,
}

#[derive(Deserialize)]
struct ChannelPage {
    items: Vec<ListedChannel>,
}

/// Prints them, by name.
pub(crate) fn run(args: &ChannelsArgs, client: &Client) -> anyhow::Result<()> {
    let of = [("tenant", args.tenant.as_ref().map(Name::as_str))];
    for item in page(client, &of)? {
        output::json_or(args.json, &item, || line(&item))?;
    }
    Ok(())
}

/// The channels of the engine, by name.
pub(crate) fn all(client: &Client) -> anyhow::Result<Vec<ListedChannel>> {
    page(client, &[])
}

fn page(client: &Client, of: &[(&str, Option<&str>)]) -> anyhow::Result<Vec<ListedChannel>> {
    let page: ChannelPage = client.get(&with_query("/v1/channels", of))?;
    Ok(page.items)
}

fn line(channel: &ListedChannel) -> String {
    let ListedChannel { name, kind, messages_per_minute, paused_since, credentials } = channel;
    let bound = messages_per_minute.iter().map(|number| format!(", {number} a minute at most"));
    let paused = paused_since.iter().map(|instant| format!(", paused since {instant}"));
    let ends = credentials.iter();
    let ends =
        ends.map(|ListedCredential { what, expires_at }| format!(", {what} until {expires_at}"));
    let more: String = bound.chain(paused).chain(ends).collect();
    format!("{name}: {kind}{more}")
}
