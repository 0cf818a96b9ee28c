//! One side of a conversation: commands out, replies in, nothing without a bound.

use std::borrow::Cow;

use notification::limits;
use smtp_proto::response::parser::ResponseReceiver;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// A connection to a server, encrypted or not.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + std::fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Unpin + std::fmt::Debug> ByteStream for T {}

/// The conversation over a connection.
#[derive(Debug)]
pub(super) struct SmtpWire<S> {
    stream: S,
    received: Box<[u8; BUFFER_BYTES]>,
    /// The part of `received` that is not read yet.
    unread: std::ops::Range<usize>,
    /// The last reply as it came.
    raw: Vec<u8>,
}

/// The reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SmtpReply {
    /// Three digits: 200 to 599.
    pub(super) code: u16,
    /// The enhanced status code (RFC 3463), or zeros.
    pub(super) enhanced: [u8; 3],
    /// The words, lines separated by LF.
    pub(super) text: String,
}

/// The conversation is over, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct WireError(pub(super) Cow<'static, str>);

const BUFFER_BYTES: usize = 4096;

// === impl SmtpWire ===

impl<S: ByteStream> SmtpWire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, received: Box::new([0; BUFFER_BYTES]), unread: 0..0, raw: Vec::new() }
    }

    /// The stream alone. Bytes that were received and not read are dropped: before encryption, anyone on the way can have sent
    /// them (RFC 3207, section 6).
    pub(super) fn into_stream(self) -> S {
        self.stream
    }

    /// This conversation over a stream of any kind.
    pub(super) fn boxed(self) -> SmtpWire<Box<dyn ByteStream>>
    where
        S: 'static,
    {
        let Self { stream, received, unread, raw } = self;
        SmtpWire { stream: Box::new(stream), received, unread, raw }
    }

    /// Writes `bytes`. Given up or failed, it has not given the last of them to the kernel: a stream that encrypts keeps what
    /// the kernel does not take, and is flushed until it has nothing left.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Reads the next reply.
    pub(super) async fn reply(&mut self) -> Result<SmtpReply, WireError> {
        let mut receiver = ResponseReceiver::default();
        self.raw.clear();
        loop {
            if self.unread.is_empty() {
                let bytes = self.stream.read(self.received.as_mut_slice()).await?;
                if bytes == 0 {
                    return Err(WireError("the server closed the connection".into()));
                }
                self.unread = 0..bytes;
            }
            let unread = self.received.get(self.unread.clone()).unwrap_or_default();
            let mut rest = unread.iter();
            let parsed = receiver.parse(&mut rest);
            let read = unread.len() - rest.len();
            self.raw.extend_from_slice(unread.get(..read).unwrap_or_default());
            self.unread.start += read;
            match parsed {
                Ok(response) => return SmtpReply::check(response),
                Err(smtp_proto::Error::NeedsMoreData { .. })
                    if self.raw.len() < net::ANSWER_BYTES => {}
                Err(
                    smtp_proto::Error::NeedsMoreData { .. } | smtp_proto::Error::ResponseTooLong,
                ) => {
                    return Err(WireError("the server's reply is too long".into()));
                }
                Err(_) => return Err(WireError("what the server says is not SMTP".into())),
            }
        }
    }

    /// The last reply as it came, with the parts that [`SmtpReply`] leaves out.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// True if the server is silent, as it must be while it is not asked, and the connection open.
    pub(super) fn is_quiet(&mut self) -> bool {
        use futures_util::FutureExt as _;
        let mut byte = [0];
        // A read that is done would be the connection's end, or a word such as 421: in either case it takes no mail.
        self.unread.is_empty() && self.stream.read(&mut byte).now_or_never().is_none()
    }

    /// True if more arrived than was asked for.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

// === impl SmtpReply ===

impl SmtpReply {
    fn check(response: smtp_proto::Response<String>) -> Result<Self, WireError> {
        let smtp_proto::Response { code, esc: enhanced, message: text } = response;
        // A reply begins with a digit from 2 to 5 (RFC 5321, section 4.2.1).
        if !(200..=599).contains(&code) {
            return Err(WireError("what the server says is not SMTP".into()));
        }
        Ok(Self { code, enhanced, text })
    }

    /// 2yz: done.
    pub(super) const fn is_positive(&self) -> bool {
        matches!(self.code, 200..=299)
    }

    /// The server is about to close the connection.
    pub(super) const fn is_closing(&self) -> bool {
        self.code == 421
    }

    /// Code, enhanced code and words on one line, without control characters, short enough to keep.
    pub(super) fn detail(&self) -> String {
        let mut detail = format!("{} ", self.code);
        if let [class, subject, number] = self.enhanced
            && class > 0
        {
            detail = format!("{detail}{class}.{subject}.{number} ");
        }
        let words = self.text.chars().take(limits::DETAIL_BYTES);
        detail.extend(words.map(|letter| if letter.is_control() { ' ' } else { letter }));
        detail.truncate(detail.floor_char_boundary(limits::DETAIL_BYTES));
        detail.truncate(detail.trim_end().len());
        detail
    }

    /// Code and enhanced code: what may be logged, since servers repeat addresses in their words.
    pub(super) fn status(&self) -> String {
        let [class, subject, detail] = self.enhanced;
        format!("{} {class}.{subject}.{detail}", self.code)
    }
}

impl From<std::io::Error> for WireError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string().into())
    }
}
