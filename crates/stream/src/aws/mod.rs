//! The part that SQS and Kinesis share: settings, credentials, and the meaning of failures.
//!
//! The client is the official SDK (decision 0044). Credentials come from where AWS's own tools look for them: the environment, the
//! shared files with profiles, a web identity, a container's or machine's role; or from a profile, a role to assume or fixed keys
//! that the settings name.

pub use aws_config::SdkConfig;

mod batches;
mod client;
mod failure;
mod find_once;
mod plain_key;
mod settings;
#[cfg(feature = "sqs")]
pub mod sqs_queue;

pub use batches::{KeyOrder, put_in_batches};
pub use client::sdk_config;
pub use failure::{AwsFailure, AwsFailureKind, entry_failure};
pub use find_once::find_once;
pub use plain_key::{is_plain_key, plain_key};
pub use settings::{AwsSettings, AwsUrl};
