//! Where a service of AWS is, and as whom it is used.

use std::path::PathBuf;

use net::redact::Secret;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use url::Url;

use crate::StreamError;

/// Region, endpoint and credentials. What is not set is taken from the environment, the profile or the machine, as AWS's own tools
/// do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AwsSettings {
    /// The region, such as `eu-central-1`.
    pub region: Option<String>,
    /// The URL of a server other than the region's.
    pub endpoint: Option<String>,
    /// More root certificates to trust, PEM, for `endpoint`.
    pub ca_file: Option<PathBuf>,
    /// The profile of the shared files of AWS's tools.
    pub profile: Option<String>,
    /// The ARN of a role to assume with the credentials that are there.
    pub role: Option<String>,
    /// The URL of a server other than the region's, to assume the role at.
    pub sts_endpoint: Option<String>,
    /// The external identifier that the role asks for.
    pub external_id: Option<String>,
    /// A fixed access key, with its secret. Not together with `profile`.
    pub access_key_id: Option<String>,
    /// The secret of `access_key_id`.
    pub secret_access_key: Option<Secret>,
    /// The token of a fixed key that is temporary.
    pub session_token: Option<Secret>,
}

/// A URL such as `sqs://orders?region=eu-central-1`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsUrl {
    /// The part after `//`.
    pub name: String,
    /// The part that all services share: the parameters `region`, `endpoint`, `ca_file`, `profile`, `role`,
    /// `sts_endpoint`, `external_id`, and a fixed key as user and password.
    pub aws: AwsSettings,
    /// The other parameters, which are for the service.
    pub parameters: Vec<(String, String)>,
}

// === impl AwsSettings ===

impl AwsSettings {
    /// Checks what needs no connection.
    ///
    /// # Errors
    /// When settings exclude or need each other.
    pub fn check(&self) -> Result<(), StreamError> {
        let refuse = |why: &str| Err(StreamError::Refused(why.to_owned()));
        if self.access_key_id.is_some() != self.secret_access_key.is_some() {
            return refuse("an access key needs its secret, and a secret its access key");
        }
        if self.session_token.is_some() && self.access_key_id.is_none() {
            return refuse("a session token belongs to an access key: set it too");
        }
        if self.profile.is_some() && self.access_key_id.is_some() {
            return refuse("a profile and an access key exclude each other: leave one of them out");
        }
        if self.external_id.is_some() && self.role.is_none() {
            return refuse("an external identifier belongs to a role: set it too");
        }
        let mut endpoints = [&self.endpoint, &self.sts_endpoint].into_iter().flatten();
        if !endpoints.all(|url| is_endpoint(url)) {
            return refuse(
                "an endpoint must be https://host:port or http://host:port, without a user",
            );
        }
        Ok(())
    }

    /// Its place for messages: the endpoint or the region.
    pub fn place(&self) -> &str {
        self.endpoint
            .as_deref()
            .or(self.region.as_deref())
            .unwrap_or("the region of the environment")
    }
}

/// True if `text` is the URL of a server. It is shown in messages, so it has no user and no password.
fn is_endpoint(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "https" | "http")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
    })
}

// === impl AwsUrl ===

impl AwsUrl {
    /// Takes a URL that begins with `scheme://` apart.
    ///
    /// # Errors
    /// When it is none. The message repeats nothing of it: it may hold a secret.
    pub fn parse(text: &str, scheme: &str) -> Result<Self, StreamError> {
        let refuse = |why: &str| {
            StreamError::Refused(format!("must be {scheme}://NAME?region=REGION ({why})"))
        };
        let url = Url::parse(text).map_err(|_error| refuse("it cannot be read as a URL"))?;
        if url.scheme() != scheme {
            return Err(refuse(&format!("it does not begin with {scheme}://")));
        }
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() || url.port().is_some() {
            return Err(refuse("it has something after the name that is no parameter"));
        }
        let decoded = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(String::from).map_err(|_error| refuse("it is not percent-encoded UTF-8"))
        };
        let mut aws = AwsSettings::default();
        if !url.username().is_empty() {
            aws.access_key_id = Some(decoded(url.username())?);
        }
        if let Some(password) = url.password() {
            aws.secret_access_key = Some(Secret::new(decoded(password)?));
        }
        let mut parameters = Vec::new();
        for pair in url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            match name.as_str() {
                "region" => aws.region = Some(value),
                "endpoint" => aws.endpoint = Some(value),
                "ca_file" => aws.ca_file = Some(PathBuf::from(value)),
                "profile" => aws.profile = Some(value),
                "role" => aws.role = Some(value),
                "sts_endpoint" => aws.sts_endpoint = Some(value),
                "external_id" => aws.external_id = Some(value),
                _other => parameters.push((name, value)),
            }
        }
        aws.check()?;
        let name = decoded(url.host_str().unwrap_or_default())?;
        Ok(Self { name, aws, parameters })
    }

    /// The message for a parameter that the service does not have. Its value is not repeated.
    pub fn unknown_parameter(name: &str, known: &str) -> StreamError {
        let all = "region, endpoint, ca_file, profile, role, sts_endpoint, external_id";
        // A name that is long may be a value in the wrong place.
        let shown: String = name.chars().take(24).collect();
        StreamError::Refused(format!("there is no parameter {shown:?}: there are {all}{known}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_hides_its_secret() {
        let text = "sqs://KEY:a%2Fcanary+@Orders.fifo?region=eu-central-1&role=arn:aws:iam::1:role/x&wait=3";
        let url = AwsUrl::parse(text, "sqs").unwrap();
        assert_eq!(url.name, "Orders.fifo");
        assert_eq!(url.aws.region.as_deref(), Some("eu-central-1"));
        assert_eq!(url.aws.role.as_deref(), Some("arn:aws:iam::1:role/x"));
        assert_eq!(url.aws.access_key_id.as_deref(), Some("KEY"));
        assert_eq!(url.aws.secret_access_key.as_ref().map(Secret::expose), Some("a/canary+"));
        assert_eq!(url.parameters, [("wait".to_owned(), "3".to_owned())]);
        assert!(!format!("{url:?}").contains("canary"), "{url:?}");
        let plain = AwsUrl::parse("kinesis://s?endpoint=http://127.0.0.1:9324", "kinesis").unwrap();
        assert_eq!(plain.aws.place(), "http://127.0.0.1:9324");
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for text in [
            "",
            "canary",
            "kinesis://canary",
            "sqs://key:canary@q/path",
            "sqs://canary@q",
            "sqs://:canary@q",
            "sqs://k:canary%FF@q",
            "sqs://k:canary@q?profile=p",
            "sqs://q:99999?canary",
        ] {
            let error = AwsUrl::parse(text, "sqs").unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let read = |text: &str| toml::from_str::<AwsSettings>(text);
        let settings =
            read("region = 'a'\naccess_key_id = 'k'\nsecret_access_key = 'canary'").unwrap();
        assert_eq!(settings.check(), Ok(()));
        assert!(!format!("{settings:?}").contains("canary"));
        assert!(read("reigon = 'a'").unwrap_err().to_string().contains("reigon"));
        for text in [
            "session_token = 't'",
            "external_id = 'x'",
            "endpoint = 'https://user:canary@host'",
            "endpoint = 'https://host?canary=1'",
            "sts_endpoint = 'canary'",
        ] {
            let error = read(text).unwrap().check().unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
