//! A mail server that does what a test says: what it offers, what it replies, and where it breaks off.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use channel::smtp::{Settings, SmtpChannel};
use channel::{Channel as _, Sender, Tools};
use flow::Clock;
use notification::{Guarantee, Report};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpStream};

use super::jobs::{NOW, chunk, send};

pub(crate) const CONTENT: &str =
    r#"{"from":"News <news@example.com>","subject":"Hello","text":"A line\n.\nand another\n"}"#;
pub(crate) const PIPELINING: &str = "PIPELINING\nENHANCEDSTATUSCODES";
pub(crate) const CHUNKING: &str = "PIPELINING\nCHUNKING";

/// Places within a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Greeting,
    Hello,
    Mail,
    Recipient,
    Data,
    HalfMessage,
    Message,
}

/// The misbehaviour of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manner {
    /// EHLO keywords, separated by LF; none: it knows HELO only.
    pub(crate) offers: &'static str,
    /// Replies in place of good ones.
    pub(crate) replies: Vec<(Step, &'static str)>,
    /// Instead of a reply there, the end.
    pub(crate) cut_before: Option<Step>,
    /// After the reply there, the end.
    pub(crate) cut_after: Option<Step>,
    /// Before the reply to a message.
    pub(crate) message_takes: Duration,
    /// Before the reply to a message too, on a paused clock that stands still.
    pub(crate) time_passes: Duration,
    /// Mails after which it closes the connection, saying so or not.
    pub(crate) closes_after: Option<(usize, bool)>,
    /// Mails that it takes in a session, and what it replies to the next `MAIL`.
    pub(crate) mails_per_session: Option<(usize, &'static str)>,
}

/// The input of a server: commands as they came, messages as they are.
pub(crate) type Seen = Rc<RefCell<Vec<String>>>;

/// A listener on loopback, and what its connections got.
pub(crate) struct MailServer {
    pub(crate) listener: Rc<TcpListener>,
    pub(crate) seen: Seen,
}

/// A sender over a channel to a server.
pub(crate) struct Rig {
    pub(crate) sender: Box<dyn Sender>,
    pub(crate) clock: Clock,
}

// === impl MailServer ===

impl MailServer {
    pub(crate) async fn bind() -> Self {
        Self::bind_to("127.0.0.1:0").await
    }

    pub(crate) async fn bind_to(address: &str) -> Self {
        let listener = Rc::new(TcpListener::bind(address).await.unwrap());
        Self { listener, seen: Seen::default() }
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    pub(crate) fn rig(&self) -> Rig {
        self.rig_with(&serde_json::json!({}))
    }

    pub(crate) fn rig_with(&self, more: &serde_json::Value) -> Rig {
        Rig::new(&settings(self.port(), more))
    }

    /// Serves every connection in the manner that `manner` gives for its number.
    pub(crate) fn serve(
        &self,
        manner: impl Fn(usize) -> Manner + 'static,
    ) -> impl Future<Output = ()> + 'static {
        let (listener, seen) = (Rc::clone(&self.listener), Rc::clone(&self.seen));
        async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let conversation = converse(stream, manner(number), Rc::clone(&seen));
                tokio::task::spawn_local(conversation);
            }
        }
    }

    /// The input, but for the messages' own lines.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.seen.borrow().iter().filter(|line| !line.contains("\r\n")).cloned().collect()
    }

    /// The messages.
    pub(crate) fn messages(&self) -> Vec<String> {
        self.seen.borrow().iter().filter(|line| line.contains("\r\n")).cloned().collect()
    }
}

// === impl Rig ===

impl Rig {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self::over(&SmtpChannel::new(settings).unwrap())
    }

    pub(crate) fn over(channel: &SmtpChannel) -> Self {
        let clock = Clock::starting_at(NOW);
        Self { sender: channel.open(Tools::new(clock, 1)).unwrap(), clock }
    }

    /// Sends to `count` recipients, one after the other.
    pub(crate) async fn send(&self, count: usize) -> Vec<Report> {
        self.send_with(count, 1, Guarantee::AtLeastOnce).await
    }

    pub(crate) async fn send_with(
        &self,
        count: usize,
        limit: usize,
        guarantee: Guarantee,
    ) -> Vec<Report> {
        let recipients = (0..count).map(|number| format!("r{number}@example.org"));
        let mut chunk = chunk(self.clock, CONTENT, recipients);
        chunk.envelope.guarantee = guarantee;
        send(&*self.sender, self.clock, &chunk, limit).await
    }

    pub(crate) async fn send_to(&self, content: &str, recipient: &str) -> Report {
        let chunk = chunk(self.clock, content, [recipient.to_owned()]);
        send(&*self.sender, self.clock, &chunk, 1).await.remove(0)
    }
}

/// The settings of a channel to a relay on loopback.
pub(crate) fn settings(port: u16, more: &serde_json::Value) -> Settings {
    let mut settings = serde_json::json!({ "relay": format!("smtp://127.0.0.1:{port}"), "helo": "client.example" });
    for (name, value) in more.as_object().unwrap() {
        settings[name] = value.clone();
    }
    serde_json::from_value(settings).unwrap()
}

/// One conversation.
pub(crate) async fn converse(stream: TcpStream, manner: Manner, seen: Seen) {
    let mut stream = BufReader::new(stream);
    if reply(&mut stream, &manner, Step::Greeting, "220 test ESMTP").await.is_some() {
        talk(stream, manner, seen).await;
    }
}

/// The conversation after the greeting.
pub(crate) async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: BufReader<S>,
    manner: Manner,
    seen: Seen,
) -> Option<()> {
    let mut mails = 0;
    let mut refused_mail = false;
    loop {
        let command = line(&mut stream).await?;
        seen.borrow_mut().push(command.clone());
        let verb = command.split([' ', ':']).next().unwrap_or_default().to_owned();
        if let Some(refusal) = beyond_its_mails(&verb, &manner, mails, &mut refused_mail) {
            say(&mut stream, refusal).await?;
            continue;
        }
        match verb.as_str() {
            "EHLO" if manner.offers.is_empty() => say(&mut stream, "502 5.5.1 what").await?,
            "EHLO" => {
                let keywords = manner.offers.lines().collect::<Vec<_>>().join(
                    "
250-",
                );
                reply(
                    &mut stream,
                    &manner,
                    Step::Hello,
                    &format!("250-test\r\n250-{keywords}\r\n250 HELP"),
                )
                .await?;
            }
            "HELO" => reply(&mut stream, &manner, Step::Hello, "250 test").await?,
            "MAIL" => reply(&mut stream, &manner, Step::Mail, "250 2.1.0 ok").await?,
            "RCPT" => reply(&mut stream, &manner, Step::Recipient, "250 2.1.5 ok").await?,
            "DATA" => {
                reply(&mut stream, &manner, Step::Data, "354 go on").await?;
                let refused = manner
                    .replies
                    .iter()
                    .any(|(step, reply)| *step == Step::Data && !reply.starts_with('3'));
                if !refused {
                    let message = dotted(&mut stream, &manner).await?;
                    finish(&mut stream, &manner, &seen, message, &mut mails).await?;
                }
            }
            "BDAT" => {
                let bytes: usize = command.split(' ').nth(1)?.parse().ok()?;
                if manner.cut_before == Some(Step::HalfMessage) {
                    stream.read_exact(&mut vec![0; bytes / 2]).await.ok()?;
                    return None;
                }
                let mut message = vec![0; bytes];
                stream.read_exact(&mut message).await.ok()?;
                finish(
                    &mut stream,
                    &manner,
                    &seen,
                    String::from_utf8(message).unwrap(),
                    &mut mails,
                )
                .await?;
            }
            "RSET" => say(&mut stream, "250 2.0.0 ok").await?,
            "QUIT" => {
                say(&mut stream, "221 2.0.0 bye").await?;
                return None;
            }
            _ => say(&mut stream, "500 5.5.2 what").await?,
        }
    }
}

/// The reply to `verb` in a session that has had its mails, up to the next `RSET`.
fn beyond_its_mails(
    verb: &str,
    manner: &Manner,
    mails: usize,
    refused_mail: &mut bool,
) -> Option<&'static str> {
    if verb == "MAIL" {
        let (_, refusal) = manner.mails_per_session.filter(|(most, _)| mails >= *most)?;
        *refused_mail = true;
        return Some(refusal);
    }
    *refused_mail &= verb != "RSET";
    (*refused_mail && verb != "QUIT").then_some("503 5.5.1 MAIL first")
}

async fn finish<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    manner: &Manner,
    seen: &Seen,
    message: String,
    mails: &mut usize,
) -> Option<()> {
    seen.borrow_mut().push(message);
    *mails += 1;
    if !manner.message_takes.is_zero() {
        tokio::time::sleep(manner.message_takes).await;
    }
    if !manner.time_passes.is_zero() {
        tokio::time::advance(manner.time_passes).await;
    }
    reply(stream, manner, Step::Message, "250 2.0.0 queued").await?;
    match manner.closes_after {
        Some((most, says_so)) if *mails >= most => {
            if says_so {
                say(stream, "421 4.4.2 enough").await?;
            }
            None
        }
        _ => Some(()),
    }
}

/// Reads a message up to its dot, and takes the doubled ones off.
async fn dotted<S: AsyncRead + Unpin>(
    stream: &mut BufReader<S>,
    manner: &Manner,
) -> Option<String> {
    let mut message = String::new();
    loop {
        let line = line(stream).await?;
        if manner.cut_before == Some(Step::HalfMessage) {
            return None;
        }
        if line == "." {
            return Some(message);
        }
        message.push_str(line.strip_prefix('.').unwrap_or(&line));
        message.push_str("\r\n");
    }
}

async fn reply<S: AsyncWrite + Unpin>(
    stream: &mut S,
    manner: &Manner,
    step: Step,
    good: &str,
) -> Option<()> {
    if manner.cut_before == Some(step) {
        return None;
    }
    let other = manner.replies.iter().find(|(other, _)| *other == step).map(|(_, reply)| *reply);
    say(stream, other.unwrap_or(good)).await?;
    (manner.cut_after != Some(step)).then_some(())
}

/// One reply; `None` when the client is gone.
pub(crate) async fn say<S: AsyncWrite + Unpin>(stream: &mut S, reply: &str) -> Option<()> {
    stream.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

/// One line without its end; `None` when the client is gone.
pub(crate) async fn line<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Option<String> {
    let mut line = String::new();
    let bytes = stream.read_line(&mut line).await.ok()?;
    let line = line.strip_suffix("\r\n").filter(|_| bytes > 0)?;
    Some(line.to_owned())
}
