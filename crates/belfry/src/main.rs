//! The binary: command line, configuration, wiring. The only crate that names backends.

mod account;
mod acts;
mod api_key;
mod args;
mod audit;
mod backup;
mod bench;
mod broadcasts;
mod cancel;
mod channels;
mod check_config;
mod cli;
mod client;
mod compact;
mod completions;
mod config;
mod credential;
mod demo;
mod erase;
mod estimate;
mod events;
mod exit;
mod follow;
mod get;
mod got;
mod health;
mod import;
mod init;
mod input;
mod keys;
mod list;
mod listing;
mod log;
mod logging;
mod man;
mod matching;
mod output;
mod pages;
mod paint;
mod pause;
mod plan;
mod progress;
mod prune;
mod reader;
mod relay;
mod reload;
mod requeue;
mod reschedule;
mod resolve;
mod send;
mod serve;
mod signals;
mod status;
mod streams;
mod suppressions;
mod tenants;
#[cfg(feature = "top")]
mod top;
mod try_channel;
mod vapid_key;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::args::StoreArgs;
use crate::cli::{Cli, CliCommand};
use crate::client::Client;
use crate::config::{Config, Flags, StoreConfig};
use crate::exit::CliError;
use crate::reader::ReadSource;
use crate::serve::{Role, RunArgs};
use crate::status::{StatusArgs, StatusSource};
use crate::suppressions::SuppressionsCommand;

/// A delivery allocates and frees on different threads all the time, and this allocator is good at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| exit::report(&error))
}

fn run(Cli { global, command }: Cli) -> anyhow::Result<ExitCode> {
    // Read by the commands that need it: `credential` and `check-config` have to work with one that is wrong.
    let config = |flags| Config::load(global.config.as_deref(), flags);
    let client = || Client::new(&global, || config(Flags::default()));
    // An engine where `--url` says, unless a store is named; else the store.
    let source = |args: &StoreArgs| -> anyhow::Result<ReadSource> {
        if global.url.is_some() && args.store.is_none() {
            return Ok(ReadSource::Engine(Box::new(client()?)));
        }
        Ok(ReadSource::Store(config(args.flags())?.store))
    };
    let serve =
        |role, args: &RunArgs| serve::run(role, &config(args.flags())?, || config(args.flags()));
    match command {
        CliCommand::Serve(args) => return serve(Role::Both, &args),
        CliCommand::Produce(args) => return serve(Role::Produce, &args),
        CliCommand::Consume(args) => return serve(Role::Consume, &args),
        CliCommand::Init(args) => init::run(&args)?,
        CliCommand::Import(args) => import::run(&args, &client()?)?,
        CliCommand::Send(args) => send::run(&args, &client()?)?,
        CliCommand::Status(args) => status::run(&args, &status_source(&args, config, client)?)?,
        #[cfg(feature = "top")]
        CliCommand::Top(args) => top::run(&args, client()?)?,
        CliCommand::Health(args) => return health::run(&args, client),
        CliCommand::Relay(args) => return relay::run(&args),
        CliCommand::Estimate(args) => estimate::run(&args, &client()?)?,
        CliCommand::List(args) => list::run(&args, &source(&args.store)?)?,
        CliCommand::Broadcasts(args) => {
            broadcasts::run(&args, &source(&args.store)?)?;
        }
        CliCommand::Get(args) => get::run(&args, &client()?)?,
        CliCommand::Channels(args) => channels::run(&args, &client()?)?,
        CliCommand::Test(args) => return try_channel::run(&args, &client()?),
        CliCommand::Log(args) => log::run(&args, &source(&args.store)?)?,
        CliCommand::Events(args) => events::run(&args, &config(args.store.flags())?.store)?,
        CliCommand::Cancel(args) => cancel::run(&args, &client()?)?,
        CliCommand::Pause(args) => pause::pause(&args, &client()?)?,
        CliCommand::Resume(args) => pause::resume(&args, &client()?)?,
        CliCommand::Requeue(args) => requeue::run(&args, &client()?)?,
        CliCommand::Reschedule(args) => reschedule::run(&args, &client()?)?,
        CliCommand::Resolve(args) => resolve::run(&args, &client()?)?,
        CliCommand::Erase(args) => erase::run(&args, &client()?)?,
        CliCommand::Reload(args) => reload::run(&args, &client()?)?,
        CliCommand::Prune(args) => prune::run(&args, &client()?)?,
        CliCommand::Account(args) => account::run(&args, &source(&args.store)?)?,
        CliCommand::Tenants(args) => tenants::run(&args, &source(&args.store)?)?,
        CliCommand::Audit(args) => {
            return audit::run(&args, &source(&args.store)?);
        }
        CliCommand::Backup(args) => backup::run(&args, &config(args.store.flags())?.store)?,
        CliCommand::Compact(args) => compact::run(&args, &config(args.store.flags())?.store)?,
        CliCommand::Suppressions(command) => {
            suppressions(&command, |args| Ok(config(args.flags())?.store), client)?;
        }
        CliCommand::Demo(args) => return demo::run(&args),
        CliCommand::Bench(command) => return bench::run(&command),
        CliCommand::Plan(args) => plan::run(&args)?,
        CliCommand::ProviderSim(options) => provider_sim::run(*options)?,
        CliCommand::Credential(command) => credential::run(&command, global.config.as_deref())?,
        CliCommand::CheckConfig(args) => check_config::run(&args, global.config.as_deref())?,
        CliCommand::Acts(args) => acts::run(&args, &client()?)?,
        CliCommand::Keys(command) => keys::run(&command, &client()?)?,
        CliCommand::ApiKey(args) => api_key::run(&args)?,
        CliCommand::VapidKey => vapid_key::run()?,
        CliCommand::Completions(args) => completions::run(&args, Cli::command())?,
        CliCommand::Man(args) => man::run(&args, Cli::command())?,
        CliCommand::Reference => output::print(&cli::to_markdown())?,
    }
    Ok(ExitCode::SUCCESS)
}

// === helpers ===

/// Whom `belfry status` asks: the store that it names, or else the engine.
fn status_source(
    args: &StatusArgs,
    config: impl FnOnce(Flags) -> Result<Config, CliError>,
    client: impl FnOnce() -> anyhow::Result<Client>,
) -> anyhow::Result<StatusSource> {
    let Some(flags) = args.flags() else { return Ok(StatusSource::Engine(client()?)) };
    let config = config(flags)?;
    let feeds = config.feed_plans()?;
    Ok(StatusSource::Store { store: config.store, feeds })
}

fn suppressions(
    command: &SuppressionsCommand,
    store: impl FnOnce(&StoreArgs) -> anyhow::Result<StoreConfig>,
    client: impl FnOnce() -> anyhow::Result<Client>,
) -> anyhow::Result<()> {
    match command {
        SuppressionsCommand::Export(args) => suppressions::export(args, &store(&args.store)?),
        SuppressionsCommand::Feed(args) => suppressions::feed(args, &store(&args.store)?),
        SuppressionsCommand::Add(args) => suppressions::add(args, &client()?),
        SuppressionsCommand::Lift(args) => suppressions::lift(args, &client()?),
    }
}
