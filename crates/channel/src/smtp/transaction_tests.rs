//! A mail over a connection that ends after so many bytes of it.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use flow::Clock;
use notification::{BatchId, Bytes, Content, NotificationId, Timestamp};
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream,
    ReadBuf,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::super::address::Mailbox;
use super::super::request::Composer;
use super::super::session::Capabilities;
use super::super::wire::{ByteStream, SmtpWire};
use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);
const EVERYTHING: usize = usize::MAX;

/// Stands for the kernel in a conversation: takes a number of bytes, and then fails or stands still.
#[derive(Debug)]
struct Kernel {
    stream: DuplexStream,
    left: Rc<Cell<usize>>,
    then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Fails,
    StandsStill,
}

impl AsyncWrite for Kernel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let most = self.left.get().min(bytes.len());
        if most == 0 {
            return match self.then {
                Then::Fails => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Then::StandsStill => Poll::Pending,
            };
        }
        let taken = Pin::new(&mut self.stream).poll_write(context, &bytes[..most]);
        if let Poll::Ready(Ok(taken)) = &taken {
            self.left.set(self.left.get() - taken);
        }
        taken
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncRead for Kernel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// A case: how the mail goes, how much of the message the kernel takes, and what the server says while it comes.
#[derive(Debug, Clone, Copy)]
struct Case {
    is_encrypted: bool,
    offers: &'static str,
    takes: usize,
    then: Then,
    said: &'static str,
}

/// Answers everything up to the message, then limits what the kernel takes, and says no more than the case has.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, case: Case, left: Rc<Cell<usize>>) {
    let mut stream = BufReader::new(stream);
    let last = if case.offers == "CHUNKING" { "RCPT" } else { "DATA" };
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line.starts_with(last) {
            break;
        }
        stream.write_all(b"250 ok\r\n").await.unwrap();
    }
    left.set(case.takes);
    let go = if last == "DATA" { "354 go\r\n" } else { "250 ok\r\n" };
    stream.write_all(go.as_bytes()).await.unwrap();
    stream.write_all(case.said.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    std::future::pending::<()>().await;
}

/// How a mail ends, and how many bytes of the message the kernel took.
async fn transacted(case: Case) -> (MailEnd, usize) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let left = Rc::new(Cell::new(EVERYTHING));
    let kernel = Kernel { stream: ours, left: Rc::clone(&left), then: case.then };
    let serving: Pin<Box<dyn Future<Output = ()>>> = if case.is_encrypted {
        let made = rcgen::generate_simple_self_signed(["server.example".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let accepting = TlsAcceptor::from(Arc::new(config)).accept(theirs);
        let left = Rc::clone(&left);
        Box::pin(async move { serve(accepting.await.unwrap(), case, left).await })
    } else {
        Box::pin(serve(theirs, case, Rc::clone(&left)))
    };
    let sending = async {
        let stream: Box<dyn ByteStream> = if case.is_encrypted {
            let connector = TlsConnector::from(net::tls::client_without_verification().unwrap());
            let name = ServerName::try_from("server.example").unwrap();
            Box::new(connector.connect(name, kernel).await.unwrap())
        } else {
            Box::new(kernel)
        };
        let offers =
            Capabilities::read(format!("250-server\r\n250 {}\r\n", case.offers).as_bytes());
        let wire = SmtpWire::new(stream);
        let mut connection = SmtpSession::new(wire, offers);
        let from = Mailbox::parse("news@example.com").unwrap();
        let composer = Composer { from: Some(from), return_path: None, signer: None };
        // More than one record of TLS, and more than it keeps for a kernel that takes nothing.
        let text = "a line of the mail\\n".repeat(6_000);
        let payload = format!(r#"{{"subject":"s","text":"{text}"}}"#);
        let content = Content { payload: Bytes::from(payload), ..Content::default() };
        let mail = composer.compose(&content).unwrap();
        let id = NotificationId::new(NOW, 1, BatchId(7), 1);
        let message = mail.message("somebody@example.org", id, NOW, NOW).unwrap();
        let deadline = Clock::starting_at(Duration::ZERO).monotonic() + Duration::from_mins(5);
        transact(&mut connection, &message, deadline).await
    };
    let end = tokio::select! {
        end = sending => end,
        () = serving => unreachable!("the server stays"),
    };
    (end, case.takes - left.get())
}

async fn each_way(check: impl AsyncFn(Case)) {
    for is_encrypted in [false, true] {
        for offers in ["PIPELINING", "CHUNKING", "8BITMIME"] {
            for then in [Then::Fails, Then::StandsStill] {
                check(Case { is_encrypted, offers, takes: EVERYTHING, then, said: "" }).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mail_is_lost_when_the_kernel_has_its_last_byte_and_cut_before() {
    each_way(async |case| {
        let (end, bytes) = transacted(case).await;
        assert!(matches!(end, MailEnd::Lost(_)), "all of it was sent: {case:?} {end:?}");
        assert!(bytes > 100_000, "{case:?} {bytes}");
        for takes in [0, 1, bytes / 2].into_iter().chain(bytes - 30..bytes) {
            let (end, taken) = transacted(Case { takes, ..case }).await;
            assert!(matches!(end, MailEnd::Cut(_)), "{takes} of {bytes}: {case:?} {end:?}");
            assert_eq!(taken, takes);
        }
        let (end, _) = transacted(Case { takes: bytes, ..case }).await;
        assert!(matches!(end, MailEnd::Lost(_)), "{case:?} {end:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_while_it_is_cut_off_is_its_answer_unless_it_is_good() {
    each_way(async |case| {
        for (said, code) in [
            ("552 5.3.4 too big\r\n", Some(552)),
            ("421 4.3.2 shutting down\r\n", Some(421)),
            ("250 2.0.0 ok\r\n", None),
            ("nonsense\r\n", None),
        ] {
            let (end, _) = transacted(Case { takes: 40_000, said, ..case }).await;
            let found = match &end {
                MailEnd::Replied(SmtpStage::Message, reply) => Some(reply.code),
                MailEnd::Cut(_) => None,
                MailEnd::Replied(..) | MailEnd::Lost(_) | MailEnd::Impossible(_) => {
                    panic!("{case:?} {end:?}")
                }
            };
            assert_eq!(found, code, "{case:?} {said} {end:?}");
        }
    })
    .await;
}
