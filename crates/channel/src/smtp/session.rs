//! From a TCP connection to one over which mail can be sent: greeting, EHLO, STARTTLS, AUTH.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use net::connection_counts::{ConnectFault, CountedConnection};
use net::endpoint::Host;
use net::{redact, tls};
use smtp_proto::EhloResponse;
use tokio::net::TcpStream;

use super::config::{MailCredentials, Mechanism, TlsMode};
use super::wire::{ByteStream, SmtpReply, SmtpWire, WireError};

/// A connection over which mail can be sent.
#[derive(Debug)]
pub(super) struct SmtpSession {
    pub(super) wire: SmtpWire<Box<dyn ByteStream>>,
    pub(super) capabilities: Capabilities,
    /// The server's name; empty until the router says which.
    pub(super) host: Arc<str>,
    /// Mails begun over it.
    pub(super) transactions: u32,
    /// Mails that the server took over it.
    pub(super) mails_taken: u32,
    /// A transaction was begun and neither ended nor reset.
    pub(super) needs_reset: bool,
    /// It ended, or is out of step, within a mail.
    pub(super) is_broken: bool,
    /// Counted as open as long as this is there.
    pub(super) counted: Option<CountedConnection>,
}

/// The extensions that a server announces after EHLO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    bits: u32,
    mechanisms: u64,
    /// The longest message it takes, bytes, if it says.
    pub(super) size_max: Option<usize>,
}

/// The settings of a session: encryption, name and login.
#[derive(Debug, Clone)]
pub(super) struct SessionConfig {
    pub(super) tls: TlsMode,
    pub(super) connector: Arc<rustls::ClientConfig>,
    /// `None`: the address of the connection.
    pub(super) helo: Option<String>,
    pub(super) credentials: Option<MailCredentials>,
}

/// The server of a connection.
#[derive(Debug, Clone)]
pub(super) struct SmtpServer {
    /// As its certificate has it.
    pub(super) name: String,
    pub(super) is_implicit: bool,
}

/// Why there is no connection. Nothing of a mail was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoConnection {
    /// It cannot be reached, or does not speak SMTP: at which part of connecting, and why.
    Unreachable(ConnectFault, String),
    /// It speaks, and will not take mail now.
    Busy(SmtpReply),
    /// The domain says that it takes no mail (RFC 7505).
    NullMx(String),
    /// There is no host to connect to, or none that may be connected to, or none that takes mail at all: at which part of connecting
    /// that was found, and why.
    NoHost(ConnectFault, String),
    /// It refuses user name or password.
    NotLoggedIn(SmtpReply),
    /// An operator has to change something: certificates (a fault of TLS), or settings that the server demands.
    Misconfigured(ConnectFault, String),
}

// === impl NoConnection ===

impl NoConnection {
    /// The part of connecting at which it failed.
    pub(super) const fn fault(&self) -> ConnectFault {
        match self {
            Self::NullMx(_) => ConnectFault::Resolve,
            Self::Unreachable(fault, _)
            | Self::NoHost(fault, _)
            | Self::Misconfigured(fault, _) => *fault,
            Self::Busy(_) | Self::NotLoggedIn(_) => ConnectFault::Protocol,
        }
    }
}

// === impl SmtpSession ===

impl SmtpSession {
    /// A connection over `wire` that carried nothing yet.
    pub(super) fn new(wire: SmtpWire<Box<dyn ByteStream>>, capabilities: Capabilities) -> Self {
        Self {
            wire,
            capabilities,
            host: Arc::from(""),
            transactions: 0,
            mails_taken: 0,
            counted: None,
            needs_reset: false,
            is_broken: false,
        }
    }

    /// True if another mail may be sent over it, as far as is known here.
    pub(super) fn is_good(&self) -> bool {
        !self.is_broken && !self.wire.has_unread()
    }
}

// === impl Capabilities ===

impl Capabilities {
    /// Reads the reply to EHLO.
    pub(super) fn read(reply: &[u8]) -> Self {
        let Ok(response) = EhloResponse::parse(&mut reply.iter()) else { return Self::default() };
        Self {
            bits: response.capabilities,
            mechanisms: response.auth_mechanisms,
            size_max: (response.size > 0).then_some(response.size),
        }
    }

    const fn has(self, capability: u32) -> bool {
        self.bits & capability != 0
    }

    pub(super) const fn pipelining(self) -> bool {
        self.has(smtp_proto::EXT_PIPELINING)
    }

    pub(super) const fn chunking(self) -> bool {
        self.has(smtp_proto::EXT_CHUNKING)
    }

    pub(super) const fn size(self) -> bool {
        self.has(smtp_proto::EXT_SIZE)
    }

    const fn starttls(self) -> bool {
        self.has(smtp_proto::EXT_START_TLS)
    }
}

// === impl SessionConfig ===

impl SessionConfig {
    /// Makes a connection to `server` out of a TCP connection to it.
    pub(super) async fn begin(
        &self,
        tcp: TcpStream,
        server: &SmtpServer,
    ) -> Result<SmtpSession, NoConnection> {
        let helo = match &self.helo {
            Some(name) => name.clone(),
            // A client without a name says its address (RFC 5321, section 4.1.4).
            None => literal(tcp.local_addr().map_err(unreachable)?),
        };
        if server.is_implicit {
            let wire = greeted(SmtpWire::new(self.encrypt(tcp, &server.name).await?)).await?;
            return self.introduce(wire, &helo).await;
        }
        let mut wire = greeted(SmtpWire::new(tcp)).await?;
        let capabilities = hello(&mut wire, &helo).await?;
        if capabilities.starttls() && self.tls != TlsMode::Off {
            let reply = ask(&mut wire, "STARTTLS").await?;
            if reply.code == 220 {
                let tls = self.encrypt(wire.into_stream(), &server.name).await?;
                // Introduced anew: what was announced in the clear may be forged, and is
                // forgotten (RFC 3207, section 4.2).
                return self.introduce(SmtpWire::new(tls), &helo).await;
            }
            // Otherwise it goes on in the clear: a refusal leaves the conversation as it is (RFC 3207, section 4).
            if self.tls == TlsMode::Require || reply.is_closing() {
                return Err(NoConnection::Busy(reply));
            }
        } else if self.tls == TlsMode::Require {
            let why = "the server does not offer STARTTLS, and `tls` requires it".to_owned();
            return Err(NoConnection::Misconfigured(ConnectFault::Tls, why));
        }
        self.log_in(wire.boxed(), capabilities, false).await
    }

    /// `reply` without the credentials, which some servers repeat.
    pub(super) fn redact(&self, reply: SmtpReply) -> SmtpReply {
        match &self.credentials {
            Some(credentials) if !reply.is_positive() => credentials.redact(reply),
            _ => reply,
        }
    }

    async fn encrypt(
        &self,
        tcp: TcpStream,
        name: &str,
    ) -> Result<Box<dyn ByteStream>, NoConnection> {
        match tls::shake_hands(&self.connector, &Host::Name(name.to_owned()), tcp).await {
            Ok(tls) => Ok(Box::new(tls)),
            // Some servers just hang up on what they cannot encrypt; without encryption they may do.
            Err(error) if tls::is_of_tls(&error) || self.tls == TlsMode::Opportunistic => {
                let why = format!("TLS: {}", tls::explain(&error));
                Err(NoConnection::Misconfigured(ConnectFault::Tls, why))
            }
            Err(error) => Err(NoConnection::Unreachable(ConnectFault::Tls, error.to_string())),
        }
    }

    /// Introduces itself over an encrypted connection, and logs in.
    async fn introduce(
        &self,
        mut wire: SmtpWire<Box<dyn ByteStream>>,
        helo: &str,
    ) -> Result<SmtpSession, NoConnection> {
        let capabilities = hello(&mut wire, helo).await?;
        self.log_in(wire, capabilities, true).await
    }

    async fn log_in(
        &self,
        mut wire: SmtpWire<Box<dyn ByteStream>>,
        capabilities: Capabilities,
        is_encrypted: bool,
    ) -> Result<SmtpSession, NoConnection> {
        if let Some(credentials) = &self.credentials {
            debug_assert!(is_encrypted || self.tls != TlsMode::Require);
            let reply = authenticate(&mut wire, credentials, capabilities).await?;
            match reply.code {
                235 => {}
                // 454 is a failure of the server's own (RFC 4954, section 6): the password may be right.
                400..=499 => return Err(NoConnection::Busy(self.redact(reply))),
                _ => return Err(NoConnection::NotLoggedIn(reply)),
            }
        }
        Ok(SmtpSession::new(wire, capabilities))
    }
}

async fn greeted<S: ByteStream>(mut wire: SmtpWire<S>) -> Result<SmtpWire<S>, NoConnection> {
    let greeting = wire.reply().await.map_err(unreachable)?;
    // Bytes that come before they are asked for may be from anyone on the way; STARTTLS drops them.
    if greeting.code == 220 { Ok(wire) } else { Err(NoConnection::Busy(greeting)) }
}

/// EHLO; HELO when the server does not know it.
async fn hello<S: ByteStream>(
    wire: &mut SmtpWire<S>,
    helo: &str,
) -> Result<Capabilities, NoConnection> {
    let mut reply = ask(wire, &format!("EHLO {helo}")).await?;
    if reply.code == 250 {
        return Ok(Capabilities::read(wire.raw()));
    }
    // What servers without extensions say to EHLO (RFC 5321, section 3.2).
    if matches!(reply.code, 500 | 502 | 504) {
        reply = ask(wire, &format!("HELO {helo}")).await?;
        if reply.code == 250 {
            return Ok(Capabilities::default());
        }
    }
    Err(NoConnection::Busy(reply))
}

async fn authenticate<S: ByteStream>(
    wire: &mut SmtpWire<S>,
    credentials: &MailCredentials,
    capabilities: Capabilities,
) -> Result<SmtpReply, NoConnection> {
    let MailCredentials { username, password, mechanism } = credentials;
    let password = password.expose();
    let offered = |bit: u64| capabilities.mechanisms & bit != 0;
    let mechanism = match mechanism {
        Some(mechanism) => *mechanism,
        None if offered(smtp_proto::AUTH_PLAIN) => Mechanism::Plain,
        None if offered(smtp_proto::AUTH_LOGIN) => Mechanism::Login,
        None => {
            let message = "the server offers neither AUTH PLAIN nor AUTH LOGIN";
            return Err(NoConnection::Misconfigured(ConnectFault::Protocol, message.to_owned()));
        }
    };
    match mechanism {
        Mechanism::Plain => ask(wire, &format!("AUTH PLAIN {}", credentials.plain())).await,
        Mechanism::Login => {
            let mut reply = ask(wire, "AUTH LOGIN").await?;
            for answer in [username.as_str(), password] {
                if reply.code != 334 {
                    break;
                }
                reply = ask(wire, &BASE64_STANDARD.encode(answer)).await?;
            }
            Ok(reply)
        }
        Mechanism::Xoauth2 => {
            let reply = ask(wire, &format!("AUTH XOAUTH2 {}", credentials.bearer())).await?;
            // A challenge holds the reason; an empty answer gets the reply.
            if reply.code == 334 { ask(wire, "").await } else { Ok(reply) }
        }
    }
}

// === impl MailCredentials ===

impl MailCredentials {
    /// The message of AUTH PLAIN (RFC 4616).
    fn plain(&self) -> String {
        BASE64_STANDARD.encode(format!("\0{}\0{}", self.username, self.password.expose()))
    }

    /// The message of AUTH XOAUTH2.
    fn bearer(&self) -> String {
        let Self { username, password, .. } = self;
        let password = password.expose();
        BASE64_STANDARD.encode(format!("user={username}\u{1}auth=Bearer {password}\u{1}\u{1}"))
    }

    fn redact(&self, mut reply: SmtpReply) -> SmtpReply {
        let password = self.password.expose();
        // In each form in which a login has sent them.
        let said =
            [self.plain(), self.bearer(), BASE64_STANDARD.encode(password), password.to_owned()];
        if let Some(shown) = redact::without(reply.text.as_bytes(), &said) {
            reply.text = String::from_utf8_lossy(&shown).into_owned();
        }
        reply
    }
}

// === helpers ===

/// One command and its reply. Nothing may have arrived before: it would be taken for the answer.
async fn ask<S: ByteStream>(
    wire: &mut SmtpWire<S>,
    command: &str,
) -> Result<SmtpReply, NoConnection> {
    debug_assert!(!command.contains(['\r', '\n', '\0']), "commands are built of what was checked");
    if wire.has_unread() {
        return Err(unreachable("the server answers before it is asked"));
    }
    wire.send(format!("{command}\r\n").as_bytes()).await.map_err(unreachable)?;
    wire.reply().await.map_err(unreachable)
}

/// An address as EHLO takes it (RFC 5321, section 4.1.3).
fn literal(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => format!("[{}]", address.ip()),
        SocketAddr::V6(address) => format!("[IPv6:{}]", address.ip()),
    }
}

/// A TCP connection stands, and what should come over it does not.
fn unreachable(error: impl std::fmt::Display) -> NoConnection {
    NoConnection::Unreachable(ConnectFault::Protocol, error.to_string())
}

impl From<io::Error> for NoConnection {
    fn from(error: io::Error) -> Self {
        unreachable(error)
    }
}

impl From<WireError> for NoConnection {
    fn from(broken: WireError) -> Self {
        unreachable(broken)
    }
}
