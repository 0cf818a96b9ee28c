//! The binary: command line, configuration, wiring. The only crate that names backends.

mod account;
mod api_key;
mod args;
mod audit;
mod cancel;
mod check_config;
mod cli;
mod client;
mod config;
mod credential;
mod demo;
mod exit;
mod import;
mod log;
mod logging;
mod output;
mod progress;
mod reader;
mod requeue;
mod send;
mod serve;
mod status;
mod suppressions;
mod vapid_key;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::client::Client;
use crate::config::{Config, Flags};
use crate::serve::Role;
use crate::suppressions::SuppressionsCommand;

/// A delivery allocates and frees on different threads all the time, and this allocator is good at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| exit::report(&error))
}

fn run(Cli { global, command }: Cli) -> anyhow::Result<ExitCode> {
    let config = |flags| Config::load(global.config.as_deref(), flags);
    let client = || Client::new(&global, &config(Flags::default())?);
    match command {
        Command::Serve(args) => {
            serve::run(Role::Both, &config(args.flags())?, || config(args.flags()))
        }
        Command::Produce(args) => {
            serve::run(Role::Produce, &config(args.flags())?, || config(args.flags()))
        }
        Command::Consume(args) => {
            serve::run(Role::Consume, &config(args.flags())?, || config(args.flags()))
        }
        Command::Import(args) => import::run(&args, &client()?),
        Command::Send(args) => send::run(&args, &client()?),
        Command::Status(args) => {
            let source = match args.flags() {
                Some(flags) => {
                    let config = config(flags)?;
                    let feed = config.suppressions.feed_name()?;
                    status::Source::Store { store: config.store, feed }
                }
                None => status::Source::Engine(client()?),
            };
            status::run(&args, &source)
        }
        Command::Log(args) => log::run(&args, &config(args.store.flags())?.store),
        Command::Cancel(args) => cancel::run(&args, &client()?),
        Command::Requeue(args) => requeue::run(&args, &client()?),
        Command::Audit(args) => audit::run(&args, &config(args.store.flags())?.store),
        Command::Suppressions(SuppressionsCommand::Export(args)) => {
            suppressions::export(&args, &config(args.store.flags())?.store)
        }
        Command::Suppressions(SuppressionsCommand::Feed(args)) => {
            suppressions::feed(&args, &config(args.store.flags())?.store)
        }
        Command::Suppressions(SuppressionsCommand::Add(args)) => {
            suppressions::add(&args, &client()?)
        }
        Command::Suppressions(SuppressionsCommand::Lift(args)) => {
            suppressions::lift(&args, &client()?)
        }
        Command::Demo(args) => demo::run(&args),
        Command::ProviderSim(options) => {
            provider_sim::run(*options)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Credential(command) => credential::run(&command, global.config.as_deref()),
        Command::CheckConfig(args) => check_config::run(&args, global.config.as_deref()),
        Command::ApiKey(args) => api_key::run(&args),
        Command::VapidKey => vapid_key::run(),
        Command::Reference => output::print(&cli::to_markdown()),
    }
}
