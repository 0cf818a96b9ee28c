//! Credentials: how secrets stand in a configuration, and `belfry credential`, which seals them.

mod command;
mod resolve;
mod sealed;

pub(crate) use command::{CredentialCommand, run};
pub(crate) use resolve::Credentials;
