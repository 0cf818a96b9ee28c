//! One conversation.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};

use super::MailServer;
use super::rules::{MailAdmission, MailTaken};
use crate::clock;
use crate::journal::JournalStatus;

/// A conversation over one stream.
#[derive(Debug)]
pub(super) struct Talk<S> {
    stream: BufReader<S>,
    server: Rc<MailServer>,
    is_encrypted: bool,
    is_logged_in: bool,
    /// Mails taken over it.
    mails: u64,
    sender: Option<String>,
    /// The good ones, and what becomes of the mail for each.
    recipients: Vec<(String, MailTaken)>,
    /// The bytes that `BDAT` brought so far.
    chunks: Vec<u8>,
    replies: Vec<u8>,
}

/// How a conversation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TalkEnded {
    /// For good.
    Closed,
    /// To go on encrypted.
    StartTls,
}

const COMMAND_BYTES_MAX: u64 = 4096;
const MESSAGE_BYTES_MAX: usize = 16 << 20;
const RECIPIENTS_MAX: usize = 100;

impl<S: AsyncRead + AsyncWrite + Unpin> Talk<S> {
    pub(super) fn new(stream: BufReader<S>, server: Rc<MailServer>, is_encrypted: bool) -> Self {
        Self {
            stream,
            server,
            is_encrypted,
            is_logged_in: false,
            mails: 0,
            sender: None,
            recipients: Vec::new(),
            chunks: Vec::new(),
            replies: Vec::new(),
        }
    }

    pub(super) fn into_stream(self) -> BufReader<S> {
        self.stream
    }

    pub(super) async fn greet(&mut self) -> io::Result<()> {
        self.say("220 provider-sim ESMTP");
        self.flush().await
    }

    /// Answers commands until the client or the server has had enough. Replies leave together, before more is waited for.
    pub(super) async fn run(&mut self) -> io::Result<TalkEnded> {
        loop {
            if self.stream.buffer().is_empty() {
                self.flush().await?;
            }
            let Some(command) = self.line().await? else { return Ok(TalkEnded::Closed) };
            let verb = command.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "EHLO" => self.hello(),
                "HELO" => self.say("250 provider-sim"),
                // Never a second time (RFC 3207, section 4.2).
                "STARTTLS" if !self.is_encrypted => {
                    self.say("220 2.0.0 go ahead");
                    self.flush().await?;
                    return Ok(TalkEnded::StartTls);
                }
                "AUTH" => self.log_in(&command).await?,
                "MAIL" => {
                    if !self.mail(&command) {
                        self.flush().await?;
                        return Ok(TalkEnded::Closed);
                    }
                }
                "RCPT" => {
                    if !self.recipient(&command).await {
                        self.flush().await?;
                        return Ok(TalkEnded::Closed);
                    }
                }
                "DATA" if self.recipients.is_empty() => self.say("503 5.5.1 no valid recipients"),
                "DATA" => {
                    self.say("354 go ahead");
                    self.flush().await?;
                    let Some(message) = self.dotted().await? else { return Ok(TalkEnded::Closed) };
                    if !self.take(&message).await? {
                        return Ok(TalkEnded::Closed);
                    }
                }
                "BDAT" => {
                    if !self.chunk(&command).await? {
                        return Ok(TalkEnded::Closed);
                    }
                }
                "RSET" => {
                    self.forget();
                    self.say("250 2.0.0 ok");
                }
                "NOOP" => self.say("250 2.0.0 ok"),
                "QUIT" => {
                    self.say("221 2.0.0 bye");
                    self.flush().await?;
                    return Ok(TalkEnded::Closed);
                }
                _ => self.say("500 5.5.2 what?"),
            }
        }
    }

    fn hello(&mut self) {
        // It resets what was begun (RFC 5321, section 4.1.4).
        self.forget();
        self.say("250-provider-sim");
        if !self.is_encrypted {
            self.say("250-STARTTLS");
        }
        if self.server.login().is_some() {
            self.say("250-AUTH PLAIN LOGIN");
        }
        self.say("250-PIPELINING\r\n250-CHUNKING\r\n250-8BITMIME\r\n250-SMTPUTF8");
        self.say("250-ENHANCEDSTATUSCODES");
        let line = format!("250 SIZE {MESSAGE_BYTES_MAX}");
        self.say(&line);
    }

    async fn log_in(&mut self, command: &str) -> io::Result<()> {
        let mut words = command.split(' ').skip(1);
        let (mechanism, first) = (words.next().unwrap_or_default(), words.next());
        let given = match mechanism.to_ascii_uppercase().as_str() {
            "PLAIN" => {
                let text = match first {
                    Some(text) => text.to_owned(),
                    None => self.ask("334 ").await?,
                };
                let text = decode(&text);
                // Before the name stands whom the user acts for (RFC 4616, section 2), which is not looked at.
                let mut parts = text.split('\0').skip(1).map(str::to_owned);
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
            }
            "LOGIN" => {
                let user = self.ask("334 VXNlcm5hbWU6").await?;
                let password = self.ask("334 UGFzc3dvcmQ6").await?;
                (decode(&user), decode(&password))
            }
            _ => {
                self.say("504 5.5.4 not that way");
                return Ok(());
            }
        };
        let is_right = self.server.login() == Some((given.0.as_str(), given.1.as_str()));
        self.is_logged_in = is_right;
        self.say(if is_right { "235 2.7.0 welcome" } else { "535 5.7.8 wrong name or password" });
        Ok(())
    }

    /// `false` when the connection ends.
    fn mail(&mut self, command: &str) -> bool {
        if self.server.is_out(clock::unix_us()) {
            self.say("421 4.3.2 out of service");
            return false;
        }
        if self.server.login().is_some() && !self.is_logged_in {
            self.say("530 5.7.0 log in first");
        } else if self.sender.is_some() {
            self.say("503 5.5.1 one mail at a time");
        } else if let Some(sender) = path(command) {
            self.sender = Some(sender.to_owned());
            self.say("250 2.1.0 ok");
        } else {
            self.say("501 5.5.4 not a sender");
        }
        true
    }

    /// `false` when the connection ends.
    async fn recipient(&mut self, command: &str) -> bool {
        let Some(recipient) = path(command).filter(|path| path.contains('@')) else {
            self.say("501 5.1.3 not an address");
            return true;
        };
        if self.sender.is_none() {
            self.say("503 5.5.1 no sender");
            return true;
        }
        // As few as a server may hold it to (RFC 5321, section 4.5.3.1.8): clients have to get along with this.
        if self.recipients.len() >= RECIPIENTS_MAX {
            self.say("452 4.5.3 too many recipients");
            return true;
        }
        let now_us = clock::unix_us();
        match self.server.admit(recipient, now_us) {
            MailAdmission::Good(taken) => {
                self.recipients.push((recipient.to_owned(), taken));
                self.say("250 2.1.5 ok");
                true
            }
            MailAdmission::Reply(code, words) => {
                // Without an identifier, which comes with the mail.
                self.server.record(now_us, JournalStatus::Answered(code), "", recipient).await;
                let line = format!("{code} {words}");
                self.say(&line);
                true
            }
            MailAdmission::Close => {
                self.server.record(now_us, JournalStatus::Refuse, "", recipient).await;
                self.say("421 4.3.2 going away");
                false
            }
        }
    }

    /// `BDAT BYTES [LAST]`; `false` when the connection ends.
    async fn chunk(&mut self, command: &str) -> io::Result<bool> {
        let mut words = command.split(' ').skip(1);
        let bytes = words.next().and_then(|bytes| bytes.parse::<usize>().ok());
        // Never below zero: what is kept is within the bound already.
        let Some(bytes) = bytes.filter(|bytes| *bytes <= MESSAGE_BYTES_MAX - self.chunks.len())
        else {
            // The connection ends with this: the bytes that follow would be read as commands.
            self.say("552 5.3.4 too long");
            self.flush().await?;
            return Ok(false);
        };
        let is_last = words.next().is_some_and(|word| word.eq_ignore_ascii_case("LAST"));
        let start = self.chunks.len();
        // Read in any case: they follow their command, whether or not there is a recipient for them.
        self.chunks.resize(start + bytes, 0);
        if let Some(space) = self.chunks.get_mut(start..) {
            self.stream.read_exact(space).await?;
        }
        if self.recipients.is_empty() {
            self.forget();
            self.say("503 5.5.1 no valid recipients");
            return Ok(true);
        }
        if !is_last {
            self.say("250 2.0.0 go on");
            return Ok(true);
        }
        let message = std::mem::take(&mut self.chunks);
        self.take(&message).await
    }

    /// Decides about a whole message, and answers it; `false` when the connection ends.
    async fn take(&mut self, message: &[u8]) -> io::Result<bool> {
        let now_us = clock::unix_us();
        let id = message_id(message);
        let mut answer = MailTaken::Accepted;
        // One reply for all: the last recipient's fate is the worst of them.
        for (recipient, taken) in std::mem::take(&mut self.recipients) {
            self.server.record(now_us, taken.status(), &id, &recipient).await;
            answer = if taken == MailTaken::Accepted { answer } else { taken };
        }
        self.forget();
        self.mails += 1;
        let latency = Duration::from_micros(self.server.latency_us(now_us));
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match answer {
            MailTaken::Accepted => self.say("250 2.0.0 taken"),
            MailTaken::Failed => self.say("451 4.3.0 failed, try again"),
            // The books have it as processed, and the client hears nothing of it.
            MailTaken::Silence => return Ok(false),
        }
        if self.server.closes_after().is_some_and(|most| self.mails >= most) {
            self.say("421 4.4.2 enough for one connection");
            self.flush().await?;
            return Ok(false);
        }
        Ok(true)
    }

    /// A message up to its final dot, its doubled dots taken off; `None` when the client breaks off.
    async fn dotted(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut message = Vec::new();
        loop {
            let start = message.len();
            // A line without an end is longer than any message, too.
            let most = u64::try_from(MESSAGE_BYTES_MAX + 1 - start).unwrap_or(u64::MAX);
            (&mut self.stream).take(most).read_until(b'\n', &mut message).await?;
            let line = message.get(start..).unwrap_or_default();
            if !line.ends_with(b"\n") || message.len() > MESSAGE_BYTES_MAX {
                return Ok(None);
            }
            if line == b".\r\n" {
                message.truncate(start);
                return Ok(Some(message));
            }
            if line.starts_with(b".") {
                message.remove(start);
            }
        }
    }

    async fn ask(&mut self, challenge: &str) -> io::Result<String> {
        self.say(challenge);
        self.flush().await?;
        Ok(self.line().await?.unwrap_or_default())
    }

    /// One command; `None` when the client is gone, or the line is too long or does not end with CRLF.
    async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        (&mut self.stream).take(COMMAND_BYTES_MAX).read_until(b'\n', &mut line).await?;
        let line =
            line.strip_suffix(b"\r\n").map(|line| String::from_utf8_lossy(line).into_owned());
        Ok(line)
    }

    fn say(&mut self, line: &str) {
        self.replies.extend_from_slice(line.as_bytes());
        self.replies.extend_from_slice(b"\r\n");
    }

    async fn flush(&mut self) -> io::Result<()> {
        let replies = std::mem::take(&mut self.replies);
        self.stream.write_all(&replies).await?;
        self.stream.flush().await
    }

    fn forget(&mut self) {
        self.sender = None;
        self.recipients.clear();
        self.chunks.clear();
    }
}

/// The address between the angle brackets of `MAIL` and `RCPT`.
fn path(command: &str) -> Option<&str> {
    let (_, rest) = command.split_once('<')?;
    rest.split_once('>').map(|(path, _)| path)
}

fn decode(text: &str) -> String {
    let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The part of `Message-ID` before its `@`.
fn message_id(message: &[u8]) -> String {
    let head = message.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(message.len());
    let head = String::from_utf8_lossy(message.get(..head).unwrap_or_default());
    let value = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("message-id").then(|| value.trim())
    });
    let id = value.unwrap_or_default().trim_start_matches('<');
    id.split(['@', '>']).next().unwrap_or_default().to_owned()
}
