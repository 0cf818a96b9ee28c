//! Arguments that several commands take.

use std::convert::Infallible;
use std::path::PathBuf;

use channel::Secret;
use clap::Args;
use serde_json::value::RawValue;

use crate::config::Flags;

/// The arguments of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct Global {
    /// Configuration file [default: belfry.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address of the engine [default: where the configuration has it listen]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Key to call the engine with
    #[arg(long, global = true, value_name = "KEY", env = "BELFRY_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
}

/// Which store a command reads.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[arg(
        long,
        value_name = "STORE",
        value_parser = secret,
        help = "Store: a directory (SQLite), or postgres://USER@HOST/DATABASE [default: as configured]"
    )]
    pub(crate) store: Option<Secret>,
}

// === impl StoreArgs ===

impl StoreArgs {
    /// The settings among them.
    pub(crate) fn flags(&self) -> Flags {
        Flags { store: self.store.clone(), queue: None }
    }
}

// === helpers ===

/// A URL may have a password in it.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a result")]
pub(crate) fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

/// The text as it is: numbers, spaces and the order of fields are the caller's.
pub(crate) fn json(text: &str) -> Result<Box<RawValue>, String> {
    serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))
}
