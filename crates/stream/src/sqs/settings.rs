//! Which queue.

use std::time::Duration;

use serde::Deserialize;

use crate::StreamError;
use crate::aws::sqs_queue::{SqsQueue, VISIBILITY_MAX};
use crate::aws::{AwsFailure, AwsSettings, AwsUrl, sdk_config};

/// A queue and how it is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqsSettings {
    /// Its name, or its whole URL.
    pub queue: String,
    /// The account that it is of, if not that of the credentials.
    pub account: Option<String>,
    /// Seconds after which a message of a holder that is gone comes again, 1 to 43,200.
    #[serde(default = "visibility_seconds")]
    pub visibility_seconds: u16,
    /// Region, endpoint and credentials.
    #[serde(default)]
    pub aws: AwsSettings,
}

const fn visibility_seconds() -> u16 {
    30
}

/// The end of the name of a FIFO queue.
pub(super) const FIFO: &str = ".fifo";

// === impl SqsSettings ===

impl SqsSettings {
    /// The queue called `queue`, with the usual settings.
    pub fn new(queue: impl Into<String>, aws: AwsSettings) -> Self {
        Self { queue: queue.into(), account: None, visibility_seconds: visibility_seconds(), aws }
    }

    /// Reads `sqs://QUEUE?region=REGION`, with the parameters of [`AwsUrl`], `account` and `visibility_seconds`.
    ///
    /// # Errors
    /// When it is no such URL. The message repeats no value of it.
    pub fn from_url(text: &str) -> Result<Self, StreamError> {
        let AwsUrl { name, aws, parameters } = AwsUrl::parse(text, "sqs")?;
        let mut settings = Self::new(name, aws);
        for (name, value) in parameters {
            match name.as_str() {
                "account" => settings.account = Some(value),
                "visibility_seconds" => {
                    // Zero is refused below.
                    settings.visibility_seconds = value.parse().unwrap_or_default();
                }
                _other => {
                    return Err(AwsUrl::unknown_parameter(&name, ", account, visibility_seconds"));
                }
            }
        }
        settings.check()?;
        Ok(settings)
    }

    /// Checks what needs no connection.
    ///
    /// # Errors
    /// When there is no name, or a number is out of its bounds.
    pub fn check(&self) -> Result<(), StreamError> {
        if self.queue.is_empty() {
            return Err(StreamError::Refused("the queue must have a name".to_owned()));
        }
        if self.visibility().is_zero() || self.visibility() > VISIBILITY_MAX {
            let most = VISIBILITY_MAX.as_secs();
            return Err(StreamError::Refused(format!("visibility_seconds must be 1 to {most}")));
        }
        self.aws.check()
    }

    /// Time after which a message of a holder that is gone comes again.
    pub(super) fn visibility(&self) -> Duration {
        Duration::from_secs(self.visibility_seconds.into())
    }

    /// True if it is a FIFO queue, which SQS knows by its name.
    pub(super) fn is_fifo(&self) -> bool {
        self.queue.ends_with(FIFO)
    }

    /// Finds the queue.
    pub(super) async fn find(&self) -> Result<SqsQueue, StreamError> {
        self.check()?;
        let config = sdk_config(&self.aws).await?;
        let found = SqsQueue::find(&config, &self.queue, self.account.as_deref()).await;
        found.map_err(AwsFailure::into_stream_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_named_by_a_url_or_by_settings() {
        let url = "sqs://orders.fifo?region=eu-central-1&visibility_seconds=5&account=1234";
        let text = "queue = 'orders.fifo'\nvisibility_seconds = 5\naccount = '1234'\n[aws]\nregion = 'eu-central-1'";
        let settings = SqsSettings::from_url(url).unwrap();
        assert_eq!(settings, toml::from_str(text).unwrap());
        assert_eq!(settings.visibility(), Duration::from_secs(5));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for (url, word) in [
            ("sqs://", "name"),
            ("sqs://q?visibility_seconds=0", "1 to 43200"),
            ("sqs://q?visibility_seconds=many", "1 to 43200"),
            ("sqs://q?colour=red", "no parameter \"colour\""),
        ] {
            let error = SqsSettings::from_url(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
        assert!(toml::from_str::<SqsSettings>("queue = 'q'\ncolour = 'red'").is_err());
    }
}
