//! `[server]`: where callers and operators reach the engine, and by which certificate.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use net::setting::SettingError;
use net::tls_server::{ServerTls, ServerTlsFiles};
use notification::Name;
use serde::{Deserialize, Deserializer, de};

use super::channels::ChannelConfig;
use super::keys::KeyConfig;
use super::problem::Mistake;
use super::units;

/// `[server]`: how callers reach the engine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// Address and port of the HTTP API, or `none`. Default `127.0.0.1:8473`.
    #[serde(deserialize_with = "address_or_none")]
    pub(crate) listen: Option<SocketAddr>,
    /// A Unix socket of the API. None by default.
    pub(crate) socket: Option<PathBuf>,
    /// The mode of its file. Default `0660`.
    #[serde(deserialize_with = "mode")]
    pub(crate) socket_mode: u32,
    /// TLS. None by default.
    pub(crate) tls: Option<ServerTlsConfig>,
    /// Where operators reach the engine by themselves. Nowhere by default.
    pub(crate) operator: Option<OperatorConfig>,
    /// The API keys. None by default: then every program on this machine may call, as tenant `default`.
    pub(crate) keys: Vec<KeyConfig>,
}

/// `[server.operator]`: where operators reach the engine by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperatorConfig {
    /// Address and port. None by default.
    #[serde(default, deserialize_with = "address_or_none")]
    pub(crate) listen: Option<SocketAddr>,
    /// A Unix socket. None by default.
    pub(crate) socket: Option<PathBuf>,
    /// The mode of its file. Default `0660`.
    #[serde(default = "usual_mode", deserialize_with = "mode")]
    pub(crate) socket_mode: u32,
}

/// `[server.tls]`: the certificate, and those of callers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTlsConfig {
    /// The certificate with its chain, PEM. Required.
    certificate_file: PathBuf,
    /// Its key, PEM. Required.
    key_file: PathBuf,
    /// The authorities of callers' certificates, PEM. None by default: callers show none.
    client_ca_file: Option<PathBuf>,
    /// Whether callers must have a certificate. Default `required` where `client_ca_file` is.
    client_certificates: Option<ClientCertificates>,
}

/// Whether callers must have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ClientCertificates {
    /// Without one the handshake fails.
    Required,
    /// A certificate that is shown must be good.
    Optional,
}

/// A place to listen at. Shown as `--url` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenPlace {
    /// TCP; true with TLS.
    Tcp(SocketAddr, bool),
    /// A Unix socket whose file has this mode.
    Unix(PathBuf, u32),
}

const fn usual_mode() -> u32 {
    0o660
}

/// Reads an address with its port, or `none`.
fn address_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == "none" {
        return Ok(None);
    }
    units::parse_address(&text).map(Some).map_err(de::Error::custom)
}

/// Reads the mode of a file, such as `0660`.
fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_octal =
        (3..=4).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| {
        de::Error::custom(format!("{text:?} is not the mode of a file, such as \"0660\""))
    })
}

// === impl ServerConfig ===

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 8473))),
            socket: None,
            socket_mode: usual_mode(),
            tls: None,
            operator: None,
            keys: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// The callers' keys as the API knows them.
    pub(crate) fn api_keys(&self) -> api::Keys {
        api::Keys::new(self.keys.iter().map(KeyConfig::api_key).collect())
    }

    /// The files that TLS is made from, if there is TLS.
    pub(crate) fn tls_files(&self) -> Option<ServerTlsFiles> {
        self.tls.as_ref().map(ServerTlsConfig::files)
    }

    /// Where callers are listened to.
    pub(crate) fn public_places(&self) -> Vec<ListenPlace> {
        let tcp = self.listen.map(|address| ListenPlace::Tcp(address, self.tls.is_some()));
        let unix = self.socket.clone().map(|path| ListenPlace::Unix(path, self.socket_mode));
        tcp.into_iter().chain(unix).collect()
    }

    /// Where operators are listened to by themselves.
    pub(crate) fn operator_places(&self) -> Vec<ListenPlace> {
        let Some(operator) = &self.operator else { return Vec::new() };
        // On the machine itself there is nothing to protect from, and a probe or a collector of metrics needs no certificate.
        let has_tls = |address: IpAddr| self.tls.is_some() && !address.to_canonical().is_loopback();
        let tcp = operator.listen.map(|address| ListenPlace::Tcp(address, has_tls(address.ip())));
        let unix =
            operator.socket.clone().map(|path| ListenPlace::Unix(path, operator.socket_mode));
        tcp.into_iter().chain(unix).collect()
    }

    /// The URL by which commands on this machine call the engine: where operators are listened to before where callers are, a socket
    /// before an address.
    pub(crate) fn local_url(&self) -> Option<String> {
        let mut places = self.operator_places();
        places.reverse();
        places.extend(self.public_places().into_iter().rev());
        places.first().map(ListenPlace::to_string)
    }

    /// The differences from `other` that need a restart.
    pub(super) fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let tables = [
            ("server.listen", self.listen != other.listen),
            (
                "server.socket",
                (&self.socket, self.socket_mode) != (&other.socket, other.socket_mode),
            ),
            ("server.operator", self.operator != other.operator),
            // Its files follow a reload; whether an address has TLS does not.
            ("server.tls", self.tls.is_some() != other.tls.is_some()),
        ];
        tables.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// This one with what `other` says of that which needs no restart.
    pub(super) fn follow(&mut self, other: Self) {
        self.keys = other.keys;
        if self.tls.is_some() && other.tls.is_some() {
            self.tls = other.tls;
        }
    }

    /// Warnings, at the time `now`: no mistakes, but worth a look.
    pub(super) fn warnings(
        &self,
        channels: &BTreeMap<Name, ChannelConfig>,
        now: Duration,
    ) -> Vec<String> {
        let mut warnings = KeyConfig::warnings(&self.keys, channels);
        // One that cannot be used is a mistake, which is told of by itself.
        let built = self.tls.as_ref().and_then(|tls| tls.build().ok());
        let faults = built.and_then(|tls| fault_of_time(&tls, now));
        warnings.extend(faults.map(|fault| format!("server.tls.certificate_file: {fault}")));
        warnings
    }

    pub(super) fn check(&self) -> Vec<Mistake> {
        let mut problems = KeyConfig::check_all(&self.keys);
        let keys = self.api_keys();
        let operator = self.operator.as_ref().and_then(|operator| operator.listen);
        for (path, address) in
            [("server.listen", self.listen), ("server.operator.listen", operator)]
        {
            let open = address.and_then(|address| api::check_listen(address, &keys).err());
            problems.extend(open.map(|error| Mistake::new(path, error.to_string())));
        }
        problems.extend(self.check_places());
        if let Some(tls) = &self.tls {
            problems.extend(tls.check());
        }
        problems
    }

    fn check_places(&self) -> Vec<Mistake> {
        let (public, operator) = (self.public_places(), self.operator_places());
        let mut problems = Vec::new();
        if self.operator.is_some() && operator.is_empty() {
            let message = "names no address: set `listen` or `socket`, or leave it out";
            problems.push(Mistake::new("server.operator", message));
        } else if public.is_empty() && operator.is_empty() {
            let message =
                "without an address there has to be a `socket`, or an address in [server.operator]";
            problems.push(Mistake::new("server.listen", message));
        }
        for place in operator.iter().filter(|place| public.iter().any(|other| place.is_same(other)))
        {
            let key = if matches!(place, ListenPlace::Tcp(..)) { "listen" } else { "socket" };
            let message = "is that of [server] already: name another one";
            problems.push(Mistake::new(format!("server.operator.{key}"), message));
        }
        let has_tls = |place: &ListenPlace| matches!(place, ListenPlace::Tcp(_, true));
        if self.tls.is_some() && !public.iter().chain(&operator).any(has_tls) {
            let message =
                "is not used: Unix sockets and an operator's address on loopback are without TLS";
            problems.push(Mistake::new("server.tls", message));
        }
        problems
    }
}

/// The fault in the time of a certificate at `now`, if there is one.
pub(crate) fn fault_of_time(tls: &ServerTls, now: Duration) -> Option<String> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let show = |second: i64| match jiff::Timestamp::from_second(second) {
        Ok(instant) => instant.to_string(),
        Err(_) => format!("second {second} of Unix time"),
    };
    if now > tls.not_after {
        let last = show(tls.not_after);
        Some(format!("the certificate was good until {last}: callers refuse it, replace it"))
    } else if now < tls.not_before {
        let first = show(tls.not_before);
        Some(format!("the certificate is good from {first} on only: callers refuse it until then"))
    } else {
        None
    }
}

// === impl ServerTlsConfig ===

impl ServerTlsConfig {
    /// The files that it names.
    fn files(&self) -> ServerTlsFiles {
        ServerTlsFiles {
            certificate: self.certificate_file.clone(),
            key: self.key_file.clone(),
            client_ca: self.client_ca_file.clone(),
            client_is_optional: self.client_certificates == Some(ClientCertificates::Optional),
        }
    }

    fn build(&self) -> Result<ServerTls, SettingError> {
        let files = self.files();
        files.read().and_then(|texts| files.build(&texts))
    }

    fn check(&self) -> Vec<Mistake> {
        let mut problems = Vec::new();
        if self.client_certificates.is_some() && self.client_ca_file.is_none() {
            let message = "is not used without `client_ca_file`";
            problems.push(Mistake::new("server.tls.client_certificates", message));
        }
        match self.build() {
            Ok(_) => {}
            Err(SettingError::Setting { setting, message }) => {
                problems.push(Mistake::new(format!("server.tls.{setting}"), message));
            }
            Err(error @ SettingError::File { .. }) => {
                problems.push(Mistake::new("server.tls", error.to_string()));
            }
        }
        problems
    }
}

// === impl ListenPlace ===

impl ListenPlace {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            // Port 0 is another one each time.
            (Self::Tcp(one, _), Self::Tcp(other, _)) => one == other && one.port() != 0,
            (Self::Unix(one, _), Self::Unix(other, _)) => one == other,
            (Self::Tcp(..), Self::Unix(..)) | (Self::Unix(..), Self::Tcp(..)) => false,
        }
    }
}

impl std::fmt::Display for ListenPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address, has_tls) => {
                let scheme = if *has_tls { "https" } else { "http" };
                let mut address = *address;
                // `0.0.0.0` stands for every address of this machine: the engine is called at one of them.
                if address.ip().is_unspecified() {
                    address.set_ip([127, 0, 0, 1].into());
                }
                write!(formatter, "{scheme}://{address}")
            }
            Self::Unix(path, _) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServerConfig, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn commands_call_where_operators_are_listened_to_and_a_socket_before_an_address() {
        let check = |text: &str, expect: &str| {
            assert_eq!(read(text).unwrap().local_url().as_deref(), Some(expect), "{text}");
        };
        check("", "http://127.0.0.1:8473");
        check("listen = \"0.0.0.0:1\"", "http://127.0.0.1:1");
        check("socket = \"/run/a\"", "unix:/run/a");
        check("socket = \"/run/a\"\noperator.listen = \"127.0.0.1:2\"", "http://127.0.0.1:2");
        check("operator = { listen = \"127.0.0.1:2\", socket = \"/run/b\" }", "unix:/run/b");
        let tls = "[tls]\ncertificate_file = \"a\"\nkey_file = \"b\"\n";
        check(&format!("listen = \"10.0.0.1:1\"\n{tls}"), "https://10.0.0.1:1");
        check(&format!("{tls}[operator]\nlisten = \"[::1]:2\""), "http://[::1]:2");
        check(&format!("{tls}[operator]\nlisten = \"10.0.0.1:2\""), "https://10.0.0.1:2");
    }

    #[test]
    fn places_that_cannot_be_meant_are_told() {
        let check = |text: &str, expect: &[&str]| {
            let problems = read(text).unwrap().check();
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(said.len(), expect.len(), "{text}: {said:?}");
            for (said, expect) in said.iter().zip(expect) {
                assert!(said.starts_with(expect), "{text}: {said}");
            }
        };
        check("listen = \"none\"", &["server.listen: without an address"]);
        check("listen = \"none\"\noperator.socket = \"/run/b\"", &[]);
        check("[operator]", &["server.operator: names no address"]);
        check("operator.listen = \"127.0.0.1:8473\"", &["server.operator.listen: is that of"]);
        check("socket = \"/a\"\noperator.socket = \"/a\"", &["server.operator.socket: is that of"]);
        check("operator.listen = \"0.0.0.0:1\"", &["server.operator.listen: refusing to listen"]);
        let tls = "[tls]\ncertificate_file = \"/nowhere\"\nkey_file = \"/nowhere\"\n";
        let unused = "listen = \"none\"\nsocket = \"/a\"\n";
        let unread = "server.tls.certificate_file: /nowhere: cannot be read";
        check(&format!("{unused}{tls}"), &["server.tls: is not used", unread]);
        for mode in ["0999", "rw", "01777", "+660", ""] {
            let said = read(&format!("socket_mode = {mode:?}")).unwrap_err();
            assert!(said.contains("is not the mode of a file"), "{mode}: {said}");
        }
        assert_eq!(read("socket_mode = \"0600\"").unwrap().socket_mode, 0o600);
    }
}
