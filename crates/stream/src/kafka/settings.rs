//! Addresses, names and credentials of a Kafka cluster.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use net::redact::Secret;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::StreamError;

/// How to reach a topic: `kafka://[user:password@]host:port[,host:port]/topic?group=...`, or a table of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaSettings {
    /// Brokers to ask for the others, `host:port`.
    pub brokers: Vec<String>,
    /// The topic; empty where the URL names none.
    #[serde(default)]
    pub topic: String,
    /// The consumer group. A source needs one.
    #[serde(default)]
    pub group: Option<String>,
    /// `security.protocol`; without it SASL if there is a user, and no TLS.
    #[serde(default)]
    pub security: Option<KafkaSecurity>,
    /// `sasl.mechanism`.
    #[serde(default)]
    pub mechanism: SaslMechanism,
    /// The user of SASL.
    #[serde(default)]
    pub user: Option<String>,
    /// Its password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// More root certificates to trust, PEM; without it those of the system alone.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Bytes of the largest record, its key included: `max.message.bytes` of the topic.
    #[serde(default = "usual_record_bytes")]
    pub record_bytes: usize,
}

/// Protection of a connection, as Kafka calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaSecurity {
    /// Neither TLS nor SASL.
    Plaintext,
    /// TLS.
    Ssl,
    /// SASL without TLS.
    SaslPlaintext,
    /// SASL over TLS.
    SaslSsl,
}

/// How a user proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum SaslMechanism {
    /// The password itself.
    #[default]
    #[serde(rename = "PLAIN")]
    Plain,
    /// A proof of the password, by SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// A proof of the password, by SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

/// The port where the URL names none.
const USUAL_PORT: u16 = 9092;
/// The rest of the usual `max.message.bytes` (1,048,588) for a record with the frame around it.
const USUAL_RECORD_BYTES: usize = 1_047_552;

fn usual_record_bytes() -> usize {
    USUAL_RECORD_BYTES
}

// === impl KafkaSettings ===

impl KafkaSettings {
    /// Checks what needs no connection.
    ///
    /// # Errors
    /// When settings contradict each other. No secret is repeated.
    pub fn check(&self) -> Result<(), StreamError> {
        if self.brokers.is_empty() || self.brokers.iter().any(String::is_empty) {
            return refuse("it names no broker");
        }
        if self.user.is_some() != self.password.is_some() {
            return refuse("a user needs a password, and a password a user");
        }
        match (self.security, &self.user) {
            (Some(KafkaSecurity::Plaintext | KafkaSecurity::Ssl), Some(_)) => {
                refuse("a user needs security sasl_plaintext or sasl_ssl")
            }
            (Some(KafkaSecurity::SaslPlaintext | KafkaSecurity::SaslSsl), None) => {
                refuse("SASL needs a user and a password")
            }
            _fitting => Ok(()),
        }
    }

    /// True if connections are made by TLS.
    pub fn has_tls(&self) -> bool {
        matches!(self.security, Some(KafkaSecurity::Ssl | KafkaSecurity::SaslSsl))
    }

    /// The brokers, for messages.
    pub(super) fn shown(&self) -> String {
        self.brokers.join(",")
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), StreamError> {
        match name {
            "group" => self.group = Some(value),
            "security" => self.security = Some(word(&value)?),
            "mechanism" => self.mechanism = word(&value)?,
            "ca_file" => self.ca_file = Some(PathBuf::from(value)),
            "record_bytes" => {
                let Ok(bytes) = value.parse() else { return refuse("record_bytes is a number") };
                self.record_bytes = bytes;
            }
            _other => {
                return refuse(
                    "its parameters are group, security, mechanism, ca_file and record_bytes",
                );
            }
        }
        Ok(())
    }
}

impl FromStr for KafkaSettings {
    type Err = StreamError;

    /// # Errors
    /// When `text` is no address. It is not repeated in the message: it may have a password in it.
    fn from_str(text: &str) -> Result<Self, StreamError> {
        let Some(rest) = text.strip_prefix("kafka://") else {
            return refuse("it does not begin with kafka://");
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, topic) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let mut settings = Self {
            brokers: brokers(hosts)?,
            topic: decoded(topic)?,
            group: None,
            security: None,
            mechanism: SaslMechanism::default(),
            user: None,
            password: None,
            ca_file: None,
            record_bytes: USUAL_RECORD_BYTES,
        };
        if let Some(credentials) = credentials {
            let (user, password) = match credentials.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (credentials, None),
            };
            settings.user = Some(decoded(user)?);
            settings.password = password.map(decoded).transpose()?.map(Secret::new);
        }
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            settings.set(name, decoded(value)?)?;
        }
        settings.check()?;
        Ok(settings)
    }
}

impl fmt::Display for KafkaSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "kafka://{}/{}", self.shown(), self.topic)
    }
}

fn refuse<T>(why: &str) -> Result<T, StreamError> {
    Err(StreamError::Refused(format!(
        "the address of Kafka is not kafka://user:password@host:port/topic ({why})"
    )))
}

fn brokers(hosts: &str) -> Result<Vec<String>, StreamError> {
    let mut brokers = Vec::new();
    for host in hosts.split(',') {
        // The colons of an IPv6 address stand in brackets.
        let behind = host.rsplit_once(']').map_or(host, |(_address, behind)| behind);
        let broker = match behind.rsplit_once(':') {
            None => format!("{host}:{USUAL_PORT}"),
            Some((_host, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
            Some(_other) => return refuse("a port is a number"),
        };
        brokers.push(broker);
    }
    if brokers.iter().any(|broker| broker.starts_with(':')) {
        return refuse("it names no broker");
    }
    Ok(brokers)
}

fn decoded(text: &str) -> Result<String, StreamError> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_other) => refuse("a part of it is not percent-encoded UTF-8"),
    }
}

/// `text` as one of the words of a setting.
fn word<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, StreamError> {
    let read =
        T::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text));
    read.or_else(|_unknown| {
        refuse(
            "security is plaintext, ssl, sasl_plaintext or sasl_ssl; mechanism is PLAIN, SCRAM-SHA-256 or \
             SCRAM-SHA-512",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> KafkaSettings {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_read_and_shown_without_its_credentials() {
        let settings = read(
            "kafka://a%40b:hid%3Aden@one:1,two/events?group=g&security=sasl_ssl&mechanism=SCRAM-SHA-512&ca_file=/ca",
        );
        assert_eq!(settings.brokers, ["one:1", "two:9092"]);
        assert_eq!((settings.topic.as_str(), settings.group.as_deref()), ("events", Some("g")));
        assert_eq!(settings.user.as_deref(), Some("a@b"));
        assert_eq!(settings.password.as_ref().map(Secret::expose), Some("hid:den"));
        assert_eq!(settings.mechanism, SaslMechanism::ScramSha512);
        assert!(settings.has_tls());
        assert_eq!(settings.to_string(), "kafka://one:1,two:9092/events");
        assert!(!format!("{settings:?}").contains("hid"), "{settings:?}");
        assert_eq!(read("kafka://[::1]:1,[::2]/t").brokers, ["[::1]:1", "[::2]:9092"]);
    }

    #[test]
    fn a_table_says_the_same_and_unknown_keys_are_refused() {
        let table = "brokers = ['one:1']\ntopic = 't'\nuser = 'u'\npassword = 'hidden'\nmechanism = 'SCRAM-SHA-256'";
        let settings: KafkaSettings = toml::from_str(table).unwrap();
        assert_eq!(settings, read("kafka://u:hidden@one:1/t?mechanism=SCRAM-SHA-256"));
        let error = toml::from_str::<KafkaSettings>("brokers = []\ntopics = 't'").unwrap_err();
        assert!(error.to_string().contains("topics"), "{error}");
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for text in [
            "hidden",
            "amqp://hidden@host",
            "kafka://u:hidden@",
            "kafka://u:hidden@host:port/t",
            "kafka://host/t?hidden=1",
            "kafka://u:hidden@host/t?security=ssl",
            "kafka://host/t?security=sasl_ssl",
            "kafka://host/t?mechanism=hidden",
            "kafka://u:%ffhidden@host/t",
            "kafka://hidden@host/t",
        ] {
            let error = text.parse::<KafkaSettings>().unwrap_err().to_string();
            assert!(error.contains("kafka://user:password@host:port/topic"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
