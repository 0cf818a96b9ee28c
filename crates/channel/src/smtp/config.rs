//! The settings of an SMTP channel, and what they are checked into.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use net::redact::Secret;
use net::setting::SettingText;
use serde::Deserialize;

use super::address::{Mailbox, is_domain};
use crate::checks::{both, each, require};
use crate::settings::{duration, networks};
use crate::{ChannelError, Concurrency};

/// Where mail goes, as whom, and how patiently.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The server that takes all mail: `smtp://host:587`, or `smtps://host:465` with TLS from the first byte. The usual
    /// ports are 587 and 465. Either this or `route`.
    pub relay: Option<String>,
    /// `mx`: straight to the mail servers of each recipient's domain. Either this or `relay`.
    pub route: Option<MailRoute>,
    /// Whether connections are encrypted. Default `require`, for a relay on this machine `off`, for the route `mx`
    /// `opportunistic`.
    pub tls: Option<TlsMode>,
    /// More root certificates to trust, PEM, for this channel only.
    pub ca_file: Option<PathBuf>,
    /// The login at the relay. Default none.
    pub username: Option<String>,
    /// The password, or with `auth = "xoauth2"` the access token. Either this or `password_file`.
    pub password: Option<Secret>,
    /// The file that holds it. Either this or `password`.
    pub password_file: Option<PathBuf>,
    /// How to log in. Default whichever of `plain` and `login` the relay offers, in this order.
    pub auth: Option<Mechanism>,
    /// The name this machine introduces itself by. Required for the route `mx`, where it should be what its address
    /// resolves to; default the address of the connection.
    pub helo: Option<String>,
    /// The sender of mail whose content names none: `news@example.com`, or `Example <news@example.com>`. Default none.
    pub from: Option<String>,
    /// Where other servers report what they could not deliver (the envelope's sender). Default the sender.
    pub return_path: Option<String>,
    /// Signs all mail. Default unsigned.
    pub dkim: Option<Dkim>,
    /// Mails under way at a time, per destination and process. Default learned, up to `connections_max`.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Connections per destination and sender thread, at most; each carries one mail at a time. Default 20.
    #[serde(default = "connections_max_default")]
    pub connections_max: usize,
    /// Mails in any minute, per relay and username, or per domain with `route = "mx"`, over all threads of this process, all
    /// tenants and all its channels that send there; 0 is no limit. Default 0. In a cluster give each process its share.
    #[serde(default)]
    pub messages_per_minute: u32,
    /// Mails after which a connection is closed and another one opened. Default 1000.
    #[serde(default = "deliveries_per_connection_default")]
    pub deliveries_per_connection: u32,
    /// How long to wait after a temporary refusal (4yz, a full mailbox). Default `30m`, the least that RFC 5321 advises.
    #[serde(default = "deferred_delay_default", deserialize_with = "duration")]
    pub deferred_delay: Duration,
    /// How long to wait after a refusal that names greylisting, which ends by itself. Default `5m`.
    #[serde(default = "greylisted_delay_default", deserialize_with = "duration")]
    pub greylisted_delay: Duration,
    /// Networks that the route `mx` may lead to although they are not public, such as `10.1.0.0/16`, or addresses. Default none.
    #[serde(default, deserialize_with = "networks")]
    pub allow_networks: Vec<IpNet>,
    /// Networks that must not be reached by the route `mx` although they are public or allowed, such as one of your own, or addresses. Default none.
    #[serde(default, deserialize_with = "networks")]
    pub deny_networks: Vec<IpNet>,
    /// The port of the route `mx`. Default 25.
    #[serde(default = "mx_port_default")]
    pub mx_port: u16,
    /// Name servers for the route `mx`, such as `127.0.0.1:53`. Default those of this machine.
    #[serde(default)]
    pub name_servers: Vec<std::net::SocketAddr>,
}

/// A way without a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailRoute {
    /// To the mail exchangers of the recipient's domain.
    Mx,
}

/// Whether connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// Always, with a certificate that proves the server's name; else nothing is sent.
    Require,
    /// When the server offers it, with any certificate.
    Opportunistic,
    /// Never.
    Off,
}

/// How to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// User and password at once (RFC 4616).
    Plain,
    /// User and password one after the other.
    Login,
    /// User and an OAuth 2.0 access token.
    Xoauth2,
}

/// `dkim`: signs all mail (RFC 6376).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dkim {
    /// The signing domain. Required.
    pub domain: String,
    /// Names the key in the domain: its public half is at `SELECTOR._domainkey.DOMAIN`. Required.
    pub selector: String,
    /// File with the private key, PEM: Ed25519 (PKCS#8) or RSA (PKCS#8 or PKCS#1) of at least 2048 bits. Either this or `key`.
    pub key_file: Option<PathBuf>,
    /// The private key itself. Either this or `key_file`.
    pub key: Option<Secret>,
}

/// Where mail goes, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MailTarget {
    Relay(Relay),
    Mx { port: u16 },
}

/// A server that takes all mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relay {
    /// To be resolved, or a literal address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// TLS from the first byte.
    pub(super) is_implicit: bool,
}

/// User name and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MailCredentials {
    pub(super) username: String,
    pub(super) password: Secret,
    pub(super) mechanism: Option<Mechanism>,
}

/// Settings that make sense, but for the files they name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckedSmtpSettings {
    pub(super) target: MailTarget,
    pub(super) tls: TlsMode,
    pub(super) from: Option<Mailbox>,
    pub(super) return_path: Option<Mailbox>,
}

const CONNECTIONS_MAX: usize = 1_000;
const USERNAME_BYTES_MAX: usize = 255;

const fn connections_max_default() -> usize {
    20
}

const fn deliveries_per_connection_default() -> u32 {
    1000
}

const fn deferred_delay_default() -> Duration {
    Duration::from_mins(30)
}

const fn greylisted_delay_default() -> Duration {
    Duration::from_mins(5)
}

const fn mx_port_default() -> u16 {
    25
}

// === impl Settings ===

impl Settings {
    /// Checks what needs no file.
    pub(super) fn check(&self) -> Result<CheckedSmtpSettings, ChannelError> {
        let target = self.target().and_then(|target| {
            let tls = self.tls.unwrap_or_else(|| target.tls_default());
            self.check_login(&target, tls).map(|()| (target, tls))
        });
        let mailbox = |setting, text: &Option<String>| {
            let read = text.as_deref().map(Mailbox::parse).transpose();
            read.map_err(|invalid| ChannelError::setting(setting, invalid.message))
        };
        let senders = both(mailbox("from", &self.from), mailbox("return_path", &self.return_path));
        let (((target, tls), (from, return_path)), ()) =
            both(both(target, senders), self.check_names_and_numbers())?;
        Ok(CheckedSmtpSettings { target, tls, from, return_path })
    }

    fn check_names_and_numbers(&self) -> Result<(), ChannelError> {
        let is_name = |name: Option<&String>| name.is_none_or(|name| is_domain(name));
        let dkim = self.dkim.as_ref();
        let (domain, selector) = (dkim.map(|dkim| &dkim.domain), dkim.map(|dkim| &dkim.selector));
        let helo = is_name(self.helo.as_ref());
        let connections = (1..=CONNECTIONS_MAX).contains(&self.connections_max);
        let deliveries = self.deliveries_per_connection > 0;
        each([
            require(helo, "helo", "must be a host name such as mail.example.com"),
            require(is_name(domain), "dkim.domain", "must be a domain such as example.com"),
            require(is_name(selector), "dkim.selector", "must be a name such as 2026a"),
            require(self.concurrency.is_possible(), "concurrency", "must be at least 1"),
            require(connections, "connections_max", format!("must be from 1 to {CONNECTIONS_MAX}")),
            require(deliveries, "deliveries_per_connection", "must be at least 1"),
        ])
        .map(drop)
    }

    fn target(&self) -> Result<MailTarget, ChannelError> {
        match (&self.relay, self.route) {
            (Some(relay), None) => {
                let relay = Relay::parse(relay)?;
                let is_other = self.tls.is_some_and(|tls| tls != TlsMode::Require);
                let message = "smtps:// is TLS from the first byte: leave it out";
                require(!(relay.is_implicit && is_other), "tls", message)?;
                Ok(MailTarget::Relay(relay))
            }
            (None, Some(MailRoute::Mx)) => {
                let message = "other domains' servers want the name of this one: mail.example.com";
                require(self.helo.is_some(), "helo", message)?;
                Ok(MailTarget::Mx { port: self.mx_port })
            }
            _ => {
                let message = "name a relay such as smtp://mail.example.com:587, or set route = \"mx\": one of them";
                Err(ChannelError::setting("relay", message))
            }
        }
    }

    fn check_login(&self, target: &MailTarget, tls: TlsMode) -> Result<(), ChannelError> {
        let has_password = self.password.is_some() || self.password_file.is_some();
        let Some(username) = &self.username else {
            let is_login = has_password || self.auth.is_some();
            return require(!is_login, "username", "is needed to log in");
        };
        let message = "name the password's file, or give the password as `password`: one of them";
        let is_one = self.password.is_some() != self.password_file.is_some();
        require(is_one, "password_file", message)?;
        let is_name = (1..=USERNAME_BYTES_MAX).contains(&username.len())
            && !username.chars().any(char::is_control);
        require(is_name, "username", "must be a name without control characters")?;
        let MailTarget::Relay(relay) = target else {
            let message = "nobody logs in at other domains' servers: name a relay";
            return Err(ChannelError::setting("username", message));
        };
        let is_safe = tls == TlsMode::Require || relay.is_local();
        require(is_safe, "tls", "must be `require` where a password is sent")
    }

    /// User name and password, which may be in a file. [`Self::check`] makes sure that there is a password.
    pub(super) fn credentials(&self) -> Result<Option<MailCredentials>, ChannelError> {
        let Some(username) = self.username.clone() else { return Ok(None) };
        let (password, file) = (self.password.as_ref(), self.password_file.as_ref());
        let password = match SettingText::of("password", password, file) {
            Some(SettingText::Text(_, password)) => password.clone(),
            // Editors end a file with a line break, which is no part of the password.
            Some(file @ SettingText::File(_)) => {
                Secret::new(file.read("cannot be read")?.trim_end_matches(['\r', '\n']))
            }
            None => return Ok(None),
        };
        // NUL and ^A part the fields of a login (RFC 4616, XOAUTH2): a password with one would be read as another
        // login.
        let is_text =
            !password.expose().is_empty() && !password.expose().chars().any(char::is_control);
        require(is_text, "password", "must be a text without control characters")?;
        Ok(Some(MailCredentials { username, password, mechanism: self.auth }))
    }
}

// === impl Dkim ===

impl Dkim {
    /// The private key.
    pub(super) fn key(&self) -> Result<SettingText<'_>, ChannelError> {
        SettingText::of("dkim.key", self.key.as_ref(), self.key_file.as_ref()).ok_or_else(|| {
            let message = "name the key's file, or give the key as `key`: one of them";
            ChannelError::setting("dkim.key_file", message)
        })
    }
}

// === impl MailTarget ===

impl MailTarget {
    fn tls_default(&self) -> TlsMode {
        match self {
            Self::Relay(relay) if relay.is_local() && !relay.is_implicit => TlsMode::Off,
            Self::Relay(_) => TlsMode::Require,
            Self::Mx { .. } => TlsMode::Opportunistic,
        }
    }
}

// === impl Relay ===

impl Relay {
    fn parse(text: &str) -> Result<Self, ChannelError> {
        let refuse = || {
            let message = format!("{text:?} is not an address such as smtp://example.com:587");
            ChannelError::setting("relay", message)
        };
        let uri: http::Uri = text.parse().map_err(|_| refuse())?;
        let (is_implicit, port) = match uri.scheme_str() {
            Some("smtp") => (false, 587),
            Some("smtps") => (true, 465),
            _ => return Err(refuse()),
        };
        let is_plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let authority = uri.into_parts().authority.ok_or_else(refuse)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if !is_plain || authority.as_str().contains('@') || host.is_empty() {
            return Err(refuse());
        }
        let port = net::endpoint::port_of(&authority, port)
            .map_err(|malformed| ChannelError::setting("relay", format!("{text:?} {malformed}")))?;
        Ok(Self { host, port, is_implicit })
    }

    /// True if it is on this machine: what is sent to it passes no network.
    fn is_local(&self) -> bool {
        let is_loopback = |address: std::net::IpAddr| address.is_loopback();
        self.host == "localhost" || self.host.parse().is_ok_and(is_loopback)
    }
}

impl std::fmt::Display for Relay {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_implicit { "smtps" } else { "smtp" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(formatter, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_relay_is_encrypted_unless_it_is_on_this_machine() {
        let check = |json: &str, relay: &str, tls: TlsMode| {
            let checked = settings(json).check().unwrap();
            let MailTarget::Relay(found) = checked.target else { panic!("{json} has a relay") };
            assert_eq!((found.to_string().as_str(), checked.tls), (relay, tls));
        };
        check(r#"{"relay":"smtp://a.example"}"#, "smtp://a.example:587", TlsMode::Require);
        check(r#"{"relay":"smtps://a.example"}"#, "smtps://a.example:465", TlsMode::Require);
        check(r#"{"relay":"smtp://a.example:25/"}"#, "smtp://a.example:25", TlsMode::Require);
        check(r#"{"relay":"smtp://127.0.0.1:2525"}"#, "smtp://127.0.0.1:2525", TlsMode::Off);
        check(r#"{"relay":"smtp://[::1]:2525"}"#, "smtp://[::1]:2525", TlsMode::Off);
        check(r#"{"relay":"smtps://localhost"}"#, "smtps://localhost:465", TlsMode::Require);
        check(r#"{"relay":"smtp://a.example","tls":"off"}"#, "smtp://a.example:587", TlsMode::Off);
        let mx = settings(r#"{"route":"mx","helo":"mail.example.com"}"#).check().unwrap();
        assert_eq!((mx.target, mx.tls), (MailTarget::Mx { port: 25 }, TlsMode::Opportunistic));
    }

    #[test]
    fn a_setting_that_makes_no_sense_is_refused_by_name() {
        let check = |json: &str, expect: &str| {
            let error = settings(json).check().unwrap_err().to_string();
            assert!(error.starts_with(expect), "{json}: {error}");
        };
        check("{}", "relay:");
        check(r#"{"relay":"smtp://a.example","route":"mx"}"#, "relay:");
        check(r#"{"relay":"http://a.example"}"#, "relay:");
        check(r#"{"relay":"smtp://u:p@a.example"}"#, "relay:");
        for port in ["99999", "0", "x", ""] {
            let json = format!(r#"{{"relay":"smtp://a.example:{port}"}}"#);
            check(&json, "relay: \"smtp://a.example:");
        }
        check(r#"{"relay":"smtp://a.example/path"}"#, "relay:");
        check(r#"{"relay":"smtps://a.example","tls":"off"}"#, "tls:");
        check(r#"{"route":"mx"}"#, "helo:");
        check(r#"{"relay":"smtp://a.example","helo":"a\r\nMAIL"}"#, "helo:");
        check(r#"{"relay":"smtp://a.example","from":"nobody"}"#, "from:");
        check(r#"{"relay":"smtp://a.example","from":"a@b.example\r\nBcc: c@d.example"}"#, "from:");
        check(r#"{"relay":"smtp://a.example","return_path":"<>"}"#, "return_path:");
        check(r#"{"relay":"smtp://a.example","username":"u"}"#, "password_file:");
        check(r#"{"relay":"smtp://a.example","password":"p"}"#, "username:");
        check(r#"{"relay":"smtp://a.example","auth":"plain"}"#, "username:");
        check(r#"{"relay":"smtp://a.example","username":"u\n","password":"p"}"#, "username:");
        let clear =
            r#"{"relay":"smtp://a.example","username":"u","password":"p","tls":"opportunistic"}"#;
        check(clear, "tls:");
        check(r#"{"route":"mx","helo":"a.example","username":"u","password":"p"}"#, "username:");
        check(r#"{"relay":"smtp://a.example","connections_max":0}"#, "connections_max:");
        check(
            r#"{"relay":"smtp://a.example","deliveries_per_connection":0}"#,
            "deliveries_per_connection:",
        );
        let dkim =
            r#"{"relay":"smtp://a.example","dkim":{"domain":"a b","selector":"s","key_file":"k"}}"#;
        check(dkim, "dkim.domain:");
    }

    #[test]
    fn a_password_shows_in_no_log() {
        let settings =
            settings(r#"{"relay":"smtp://a.example","username":"u","password":"canary"}"#);
        assert!(!format!("{settings:?}").contains("canary"));
        let credentials = settings.credentials().unwrap().unwrap();
        assert!(!format!("{credentials:?}").contains("canary"));
    }
}
