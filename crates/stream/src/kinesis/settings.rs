//! Which stream.

use serde::Deserialize;

use crate::StreamError;
use crate::aws::{AwsSettings, AwsUrl};

/// A stream and how it is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KinesisSettings {
    /// Its name, or its ARN.
    pub stream: String,
    /// Where a source begins in a shard without a position.
    #[serde(default)]
    pub from: ReadFrom,
    /// True if a target keeps the order of each key, which costs calls ([`crate::aws::KeyOrder::ByKey`]).
    #[serde(default)]
    pub ordered: bool,
    /// Region, endpoint and credentials.
    #[serde(default)]
    pub aws: AwsSettings,
}

/// Where a source begins in a shard without a position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadFrom {
    /// At the oldest record that is kept.
    #[default]
    Oldest,
    /// Behind the newest one.
    Newest,
}

// === impl KinesisSettings ===

impl KinesisSettings {
    /// The stream called `stream`, with the usual settings.
    pub fn new(stream: impl Into<String>, aws: AwsSettings) -> Self {
        Self { stream: stream.into(), from: ReadFrom::default(), ordered: false, aws }
    }

    /// Reads `kinesis://STREAM?region=REGION`, with the parameters of [`AwsUrl`], `from` (`oldest`, `newest`) and `ordered` (`true`,
    /// `false`).
    ///
    /// # Errors
    /// When it is no such URL. The message repeats no value of it.
    pub fn from_url(text: &str) -> Result<Self, StreamError> {
        let AwsUrl { name, aws, parameters } = AwsUrl::parse(text, "kinesis")?;
        let mut settings = Self::new(name, aws);
        let refuse = |why: &str| Err(StreamError::Refused(why.to_owned()));
        for (name, value) in parameters {
            match (name.as_str(), value.as_str()) {
                ("from", "oldest") => settings.from = ReadFrom::Oldest,
                ("from", "newest") => settings.from = ReadFrom::Newest,
                ("from", _) => return refuse("from must be oldest or newest"),
                ("ordered", "true") => settings.ordered = true,
                ("ordered", "false") => settings.ordered = false,
                ("ordered", _) => return refuse("ordered must be true or false"),
                _other => return Err(AwsUrl::unknown_parameter(&name, ", from, ordered")),
            }
        }
        settings.check()?;
        Ok(settings)
    }

    /// Checks what needs no connection.
    ///
    /// # Errors
    /// When there is no name.
    pub fn check(&self) -> Result<(), StreamError> {
        if self.stream.is_empty() {
            return Err(StreamError::Refused("the stream must have a name".to_owned()));
        }
        self.aws.check()
    }

    /// Name and ARN, of which a call takes one.
    pub(super) fn name_and_arn(&self) -> (Option<String>, Option<String>) {
        let is_arn = self.stream.starts_with("arn:");
        let name = Some(self.stream.clone());
        if is_arn { (None, name) } else { (name, None) }
    }

    /// Its name for messages.
    pub(super) fn place(&self) -> String {
        format!("the Kinesis stream {} at {}", self.stream, self.aws.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_named_by_a_url_or_by_settings() {
        let url = "kinesis://events?region=eu-central-1&from=newest&ordered=true";
        let text =
            "stream = 'events'\nfrom = 'newest'\nordered = true\naws.region = 'eu-central-1'";
        let settings = KinesisSettings::from_url(url).unwrap();
        assert_eq!(settings, toml::from_str(text).unwrap());
        let arn = KinesisSettings { stream: "arn:aws:kinesis:a:1:stream/x".to_owned(), ..settings };
        assert_eq!(arn.name_and_arn(), (None, Some("arn:aws:kinesis:a:1:stream/x".to_owned())));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for (url, word) in [
            ("kinesis://", "name"),
            ("kinesis://s?from=here", "oldest or newest"),
            ("kinesis://s?ordered=1", "true or false"),
            ("kinesis://s?colour=red", "no parameter \"colour\""),
        ] {
            let error = KinesisSettings::from_url(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
