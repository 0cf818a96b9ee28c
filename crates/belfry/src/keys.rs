//! `belfry keys`: the keys of callers, made and taken away while the engine runs.

use std::fmt::Display;

use api::{KeyItem, KeyMade, KeyRevoked};
use clap::{Args, Subcommand};
use notification::{Name, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_key::{ApiKeyArgs, GrantArgs};
use crate::client::{Client, with_query};
use crate::{exit, output};

/// `belfry keys`
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// List the keys that the engine knows, those of its configuration and those that were made here
    List(KeyListArgs),
    /// Make a key, which is good at once, and print it
    Add(KeyAddArgs),
    /// Put another key in the place of one, which is good for a while yet, and print it
    Rotate(KeyRotateArgs),
    /// Take a key away: from the answer on it is good for nothing
    Revoke(KeyRevokeArgs),
}

/// `belfry keys list`
#[derive(Debug, Args)]
pub(crate) struct KeyListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// `belfry keys add`
#[derive(Debug, Args)]
pub(crate) struct KeyAddArgs {
    #[command(flatten)]
    key: ApiKeyArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `belfry keys rotate`
#[derive(Debug, Args)]
pub(crate) struct KeyRotateArgs {
    /// The key
    name: Name,
    /// The last instant at which the key before it is good (RFC 3339), up to 90 days ahead [default: in 24 hours]
    #[arg(long, value_name = "INSTANT")]
    former_until: Option<Timestamp>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `belfry keys revoke`
#[derive(Debug, Args)]
pub(crate) struct KeyRevokeArgs {
    /// The key
    name: Name,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A page of the list.
#[derive(Deserialize)]
struct ApiKeyPage {
    items: Vec<KeyItem>,
    next: Option<String>,
}

const UNHEARD: &str = "a process was not heard of, and may go by the keys of before for some seconds: see `belfry status`";

/// Does what the command says.
pub(crate) fn run(command: &KeysCommand, client: &Client) -> anyhow::Result<()> {
    match command {
        KeysCommand::List(args) => list(args, client),
        KeysCommand::Add(args) => add(args, client),
        KeysCommand::Rotate(args) => rotate(args, client),
        KeysCommand::Revoke(args) => revoke(args, client),
    }
}

fn list(args: &KeyListArgs, client: &Client) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let path = with_query("/v1/keys", &[("after", after.as_deref()), ("limit", Some("1000"))]);
        let page: ApiKeyPage = client.get(&path)?;
        for item in &page.items {
            output::json_or(args.json, item, || line(item))?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

fn add(args: &KeyAddArgs, client: &Client) -> anyhow::Result<()> {
    let ApiKeyArgs { name, tenant, grants } = &args.key;
    let GrantArgs { scopes, channels, priorities, from, endpoints, not_after, requests_per_minute } =
        grants;
    let body = json!({
        "name": name,
        "tenant": tenant,
        "scopes": some(scopes),
        "channels": some(channels),
        "priorities": some(priorities),
        "from": some(from),
        "endpoints": some(endpoints),
        "not_after": not_after,
        "requests_per_minute": requests_per_minute,
    });
    show_made(args.json, &client.post("/v1/keys", &body)?)
}

fn rotate(args: &KeyRotateArgs, client: &Client) -> anyhow::Result<()> {
    let until = args.former_until.map(|instant| instant.to_string());
    let path = format!("/v1/keys/{}/rotate", args.name);
    let path = with_query(&path, &[("former_until", until.as_deref())]);
    show_made(args.json, &client.post(&path, &())?)
}

fn revoke(args: &KeyRevokeArgs, client: &Client) -> anyhow::Result<()> {
    let answer: KeyRevoked = client.delete(&format!("/v1/keys/{}", args.name))?;
    tell_unheard(answer.everywhere);
    let text = if answer.revoked { "revoked" } else { "there was no such key" };
    output::json_or(args.json, &answer, || text)
}

/// The key alone goes to standard output, or all of it as JSON; the rest is for people.
fn show_made(is_json: bool, made: &KeyMade) -> anyhow::Result<()> {
    let KeyMade { name, tenant, key, former_until, everywhere } = made;
    output::json_or(is_json, made, || key)?;
    let former = former_until.as_ref();
    let former = former
        .map(|until| format!("; the one before it is good until {until}"))
        .unwrap_or_default();
    exit::complain(&format!(
        "the key {name} of {tenant}, kept nowhere and not shown again{former}"
    ));
    tell_unheard(*everywhere);
    Ok(())
}

fn tell_unheard(everywhere: bool) {
    if !everywhere {
        exit::complain(UNHEARD);
    }
}

/// The words that were given; null for the default.
fn some(words: &[impl Display]) -> Value {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    if words.is_empty() { Value::Null } else { json!(words) }
}

/// A key in one line.
fn line(item: &KeyItem) -> String {
    let KeyItem { name, tenant, grants, kept_in, made_at, former_until } = item;
    let scopes =
        if grants.scopes.is_empty() { "nothing".to_owned() } else { grants.scopes.join(" ") };
    let list = |words: &str, names: Option<&Vec<String>>| {
        names.map(|names| format!(", {words} {}", names.join(" "))).unwrap_or_default()
    };
    let more = |words: &str, instant: Option<&String>| {
        instant.map(|instant| format!(", {words} {instant}")).unwrap_or_default()
    };
    let channels = list("by", grants.channels.as_ref());
    let priorities = list("with", grants.priorities.as_ref());
    let from = list("from", grants.from.as_ref());
    let endpoints = list("to", grants.endpoints.as_ref());
    let rate = grants.requests_per_minute;
    let rate = rate.map(|rate| format!(", {rate} requests a minute")).unwrap_or_default();
    let not_after = more("until", grants.not_after.as_ref());
    let made = more("made", made_at.as_ref());
    let former = more("the one before it until", former_until.as_ref());
    format!(
        "{name} of {tenant}: {scopes}{channels}{priorities}{from}{endpoints}{rate}{not_after} ({kept_in}{made}{former})"
    )
}
