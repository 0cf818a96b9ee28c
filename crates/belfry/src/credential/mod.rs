//! Credentials: how secrets stand in a configuration, and `belfry credential`, which seals them.

mod command;
mod published;
mod resolve;
mod sealed;
mod settings;

pub(crate) use command::{CredentialCommand, run};
#[cfg(test)]
pub(crate) use published::refusal;
pub(crate) use resolve::Credentials;
pub(crate) use sealed::VARIABLE;
#[cfg(test)]
pub(crate) use sealed::{Label, MasterKey, generate};
#[cfg(test)]
pub(crate) use settings::SECRET_SETTINGS;
