//! URLs: which are accepted, and which part of one a connection needs.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// The parts of a URL that a request is sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Scheme, host and port. Requests to one origin can share connections.
    pub origin: Origin,
    /// Path and query.
    pub path: PathAndQuery,
}

/// Scheme, host and port in one canonical spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// True if TLS is spoken.
    pub is_https: bool,
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

/// A URL, and all that lie below its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointPrefix {
    origin: Origin,
    /// Without a slash at its end.
    path: String,
}

/// The host of a URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name to be resolved, in lower case.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// Why a text is no acceptable URL or host, in words that follow its name: "has no host".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(Cow<'static, str>);

/// The longest name that DNS has, and the longest label, bytes (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

// === impl Endpoint ===

impl Endpoint {
    /// Reads a URL of the scheme `https` or `http`.
    ///
    /// # Errors
    /// When it is not one, or another program could read it as another one.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let refuse = |message: &'static str| Err(Malformed(message.into()));
        // Readers that follow WHATWG's URL standard take `\` for `/`, and so may find another host or path.
        if let Some(bad) = text.chars().find(|c| !matches!(c, '!'..='~') || matches!(c, '\\' | '#'))
        {
            let message = format!(
                "must not contain {bad:?}: write a URL without fragment, encoded as RFC 3986 says"
            );
            return Err(Malformed(message.into()));
        }
        let Ok(uri) = text.parse::<Uri>() else {
            return refuse("is not a URL such as https://example.com/hook");
        };
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return refuse("must start with https://"),
        };
        let Some(authority) = uri.authority() else { return refuse("has no host") };
        // Programs disagree on where a host begins behind `user@`, and a password in a URL would come into logs.
        if authority.as_str().contains('@') {
            return refuse("must not contain a user or password");
        }
        let host = Host::parse(authority.host())?;
        let port = port_of(authority, if is_https { 443 } else { 80 })?;
        let path = match uri.path_and_query() {
            Some(path) if path.as_str().starts_with('/') => path.clone(),
            // `https://host?query` has no path, and a request needs one.
            Some(query) => PathAndQuery::try_from(format!("/{}", query.as_str()))
                .map_err(|_| Malformed("has a query that is not one".into()))?,
            None => PathAndQuery::from_static("/"),
        };
        // A server would leave the path that an operator has admitted, and another one would be called.
        if leads_elsewhere(path.path()) {
            return refuse(
                "has a path with the segment \".\" or \"..\": write the path it leads to",
            );
        }
        Ok(Self { origin: Origin { is_https, host, port }, path })
    }
}

/// True if a server may read `path` as another one: by its segments `.` and `..`, encoded ones included (RFC 3986, section 6.2.2).
fn leads_elsewhere(path: &str) -> bool {
    let decoded = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/");
    decoded.replace("%5c", "/").split('/').any(|segment| matches!(segment, "." | ".."))
}

// === impl Origin ===

impl Origin {
    /// Host and port as the `host` header has them: the port only when it is not the usual one.
    pub fn authority(&self) -> String {
        match (self.is_https, self.port) {
            (true, 443) | (false, 80) => self.host.to_string(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }
}

impl std::fmt::Display for Origin {
    /// One spelling for one origin: the port is always written.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(formatter, "{scheme}://{}:{}", self.host, self.port)
    }
}

// === impl EndpointPrefix ===

impl EndpointPrefix {
    /// True if `endpoint` is this URL or lies below its path.
    pub fn covers(&self, endpoint: &Endpoint) -> bool {
        self.covers_path(&endpoint.origin, endpoint.path.path())
    }

    /// True if all that `other` covers is covered.
    pub fn covers_all_of(&self, other: &Self) -> bool {
        self.covers_path(&other.origin, &other.path)
    }

    /// Bytes of its path: the longer one of two prefixes of the same URL is the closer one.
    pub fn path_bytes(&self) -> usize {
        self.path.len()
    }

    fn covers_path(&self, origin: &Origin, path: &str) -> bool {
        // `/hooks` must not cover `/hooks-of-another`, which is another endpoint and may be another's.
        let below = path.strip_prefix(&self.path);
        self.origin == *origin && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl FromStr for EndpointPrefix {
    type Err = Malformed;

    fn from_str(url: &str) -> Result<Self, Malformed> {
        let Endpoint { origin, path } = Endpoint::parse(url)?;
        if path.query().is_some() {
            return Err(Malformed("must not have a query".into()));
        }
        Ok(Self { origin, path: path.path().trim_end_matches('/').to_owned() })
    }
}

impl std::fmt::Display for EndpointPrefix {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.origin.is_https { "https" } else { "http" };
        write!(formatter, "{scheme}://{}{}", self.origin.authority(), self.path)
    }
}

// === impl Host ===

impl Host {
    /// Reads a name, or an address (an IPv6 one in brackets).
    ///
    /// # Errors
    /// When it is neither, or another program could read it as another host.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let refuse = |message: &'static str| Err(Malformed(message.into()));
        if let Some(inner) = text.strip_prefix('[') {
            let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
            return match address {
                Some(address) => Ok(Self::Address(address.into())),
                None => refuse("has a host in brackets that is not an IPv6 address"),
            };
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let is_label = |label: &str| {
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if text.len() > NAME_BYTES_MAX || !text.split('.').all(is_label) {
            return refuse("has a host that is neither a name nor an address");
        }
        // Resolvers read such names as addresses: 2130706433, 0x7f.1, 0177.0.0.1.
        let last = text.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
            || last
                .strip_prefix("0x")
                .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_number {
            return refuse(
                "has a host that looks like an address: write it as four decimal numbers",
            );
        }
        // Names are the same in either case (RFC 4343), and requests to one origin share connections by this spelling.
        Ok(Self::Name(text.to_ascii_lowercase()))
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

/// The port of a URL's `authority`, or `usual` if it names none. An empty port (`host:`) is not taken for the usual one: it is a
/// typing error more often than a choice.
///
/// # Errors
/// When it is not a number from 1 to 65535.
pub fn port_of(authority: &Authority, usual: u16) -> Result<u16, Malformed> {
    let text = authority.as_str();
    let behind_user = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
    match (behind_user.strip_prefix(authority.host()), authority.port_u16()) {
        (Some(""), _) => Ok(usual),
        (Some(_), Some(port @ 1..)) => Ok(port),
        _ => Err(Malformed("has a port that is not a number from 1 to 65535".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_origin_has_one_spelling() {
        let check = |text: &str, origin: &str, path: &str| {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint.origin.to_string(), origin);
            assert_eq!(endpoint.path.as_str(), path);
        };
        check("https://example.com", "https://example.com:443", "/");
        check("https://EXAMPLE.com:443/A?b=C", "https://example.com:443", "/A?b=C");
        check("http://example.com/x", "http://example.com:80", "/x");
        check("https://a_b.example:8443/", "https://a_b.example:8443", "/");
        check("https://8.8.8.8/", "https://8.8.8.8:443", "/");
        check("https://[2606:4700:0::0:1111]/", "https://[2606:4700::1111]:443", "/");
        check("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example:443", "/");
        check("https://example.com?x", "https://example.com:443", "/?x");
        check(
            "https://example.com/a..b/.c/...?d/../e",
            "https://example.com:443",
            "/a..b/.c/...?d/../e",
        );
    }

    #[test]
    fn a_host_header_leaves_the_usual_port_out() {
        let authority = |text: &str| Endpoint::parse(text).unwrap().origin.authority();
        assert_eq!(authority("https://example.com:443/"), "example.com");
        assert_eq!(authority("http://example.com:443/"), "example.com:443");
        assert_eq!(authority("https://[::1]:8443/"), "[::1]:8443");
    }

    #[test]
    fn what_can_be_misread_is_refused() {
        for text in [
            "",
            "example.com/hook",
            "//example.com",
            "/hook",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com",
            "javascript:alert(1)",
            "https://",
            "https:///x",
            "https://user@example.com/",
            "https://user:pass@example.com/",
            "https://example.com#fragment",
            "https://example.com/#x",
            "https://example.com/a b",
            "https://example.com/a\r\nb: c",
            "https://example.com\\@10.0.0.1/",
            "https://exämple.com/",
            "https://example.com./",
            "https://example..com/",
            "https://.example.com/",
            "https://exa%6dple.com/",
            "https://2130706433/",
            "https://017700000001/",
            "https://0x7f000001/",
            "https://0x7f.1/",
            "https://127.1/",
            "https://127.0.1/",
            "https://0177.0.0.1/",
            "https://127.0.0.1./",
            "https://127.0.0.0x1/",
            "https://1.2.3.4.5/",
            "https://256.1.1.1/",
            "https://example.0x/",
            "https://[127.0.0.1]/",
            "https://[::1/",
            "https://[fe80::1%25eth0]/",
            "https://[v1.x]/",
            "https://example.com/a/../b",
            "https://example.com/a/./b?c",
            "https://example.com/..",
            "https://example.com/a/%2E%2e/b",
            "https://example.com/a%2f..%5Cb",
            "https://example.com:0/",
            "https://example.com:65536/",
            "https://example.com:x/",
            "https://example.com:/",
            &format!("https://{}.com/", "x".repeat(64)),
        ] {
            let parsed = Endpoint::parse(text);
            assert!(parsed.is_err(), "{text:?} {parsed:?}");
        }
    }
}
