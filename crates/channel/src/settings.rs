//! Forms of settings that several channels have: durations, networks, and where a provider listens.

use std::net::IpAddr;
use std::time::Duration;

use http::uri::Authority;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};

use crate::ChannelError;
use net::endpoint::{Endpoint, Origin};

/// Where a provider listens, from the setting of that name: `https`, a host, perhaps a port, and nothing more. Also as the
/// `:authority` of requests.
pub(crate) fn provider(
    setting: &'static str,
    text: &str,
    example: &str,
) -> Result<(Origin, Authority), ChannelError> {
    let refuse = |why: &str| {
        let message = format!("{text:?} is not an address such as {example}{why}");
        ChannelError::setting(setting, message)
    };
    let endpoint = Endpoint::parse(text).map_err(|invalid| refuse(&format!(": {invalid}")))?;
    if !endpoint.origin.is_https || endpoint.path != "/" {
        return Err(refuse(""));
    }
    let authority = Authority::try_from(endpoint.origin.authority()).map_err(|_| refuse(""))?;
    Ok((endpoint.origin, authority))
}

/// Connections per sender thread to a push service. At 80 ms an answer, as many connections of 100 streams carry 80,000 messages a second.
pub(crate) const fn connections_max() -> usize {
    64
}

/// Reads a span such as `250ms`, `30s`, `15m` or `1h 30m`.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|span| Duration::try_from(span).ok())
        .ok_or_else(|| {
            de::Error::invalid_value(
                de::Unexpected::Str(&text),
                &"a span of time such as 250ms, 30s, 15m or 1h 30m",
            )
        })
}

/// Reads networks such as `10.1.0.0/16`. An address alone is the network of this address.
pub(crate) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let networks = Vec::<Network>::deserialize(deserializer)?;
    Ok(networks.into_iter().map(|Network(network)| network).collect())
}

/// One network, so that an error names the one that is wrong.
struct Network(IpNet);

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(Self).map_err(|_| {
            de::Error::custom(format!(
                "{text:?} is not a network such as 10.1.0.0/16, nor an address such as 10.1.2.3"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Allowed {
        #[serde(deserialize_with = "networks")]
        networks: Vec<IpNet>,
    }

    #[test]
    fn an_address_alone_is_a_network_of_one() {
        let read = |text: &str| {
            let json = serde_json::json!({ "networks": [text] });
            let read: Result<Allowed, serde_json::Error> = serde_json::from_value(json);
            read.map(|allowed| allowed.networks.first().map(ToString::to_string).unwrap())
        };
        let check = |text: &str, expect: &str| assert_eq!(read(text).unwrap(), expect);
        check("127.0.0.1", "127.0.0.1/32");
        check("::1", "::1/128");
        check("10.1.0.0/16", "10.1.0.0/16");
        check("fd00::/8", "fd00::/8");
        for wrong in ["", "localhost", "10.1.0.0/33", "10.1", "127.0.0.1:80", "[::1]"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{wrong:?} is not a network such as")), "{error}");
        }
    }

    #[derive(Debug, Deserialize)]
    struct SampleDelivery {
        #[serde(deserialize_with = "duration")]
        span: Duration,
    }

    #[test]
    fn a_duration_is_written_as_people_write_it() {
        let check = |text: &str, expect: Option<Duration>| {
            let json = serde_json::json!({ "span": text }).to_string();
            let span = serde_json::from_str(&json).ok().map(|sample: SampleDelivery| sample.span);
            assert_eq!(span, expect, "{text:?}");
        };
        check("250ms", Some(Duration::from_millis(250)));
        check("30s", Some(Duration::from_secs(30)));
        check("1h 30m", Some(Duration::from_mins(90)));
        check("-1s", None);
        check("soon", None);
        check("15", None);
    }

    #[test]
    fn where_a_provider_listens_is_an_address_without_a_path() {
        let (origin, authority) = provider("endpoint", "https://[::1]:8443", "x").unwrap();
        assert_eq!(origin.to_string(), "https://[::1]:8443");
        assert_eq!(authority, "[::1]:8443");
        for text in ["", "example.com", "http://a", "https://a/path", "https://u@a", "https://a?b"]
        {
            let error = provider("endpoint", text, "https://example.com").unwrap_err();
            let expect =
                format!("endpoint: {text:?} is not an address such as https://example.com");
            assert!(error.to_string().starts_with(&expect), "{error}");
        }
    }
}
