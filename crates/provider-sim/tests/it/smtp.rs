//! The mail server, by hand.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use provider_sim::journal::JournalStatus;
use provider_sim::{SimulatorOptions, is_dead};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::{Sim, tls_over};

/// A simulator with a mail server.
fn start(change: impl FnOnce(&mut SimulatorOptions)) -> Sim {
    Sim::start(|options| {
        options.smtp = Some(([127, 0, 0, 1], 0).into());
        change(options);
    })
}

/// A client that writes what it is told and reads replies.
struct Client<S>(BufReader<S>);

impl Client<TcpStream> {
    async fn connect(sim: &Sim) -> Self {
        let mut client =
            Self(BufReader::new(TcpStream::connect(sim.running.smtp.unwrap()).await.unwrap()));
        assert_eq!(client.reply().await, "220 provider-sim ESMTP");
        client
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// The last line of the next reply; empty at the end of the connection.
    async fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            if line.as_bytes().get(3) != Some(&b'-') {
                return line.trim_end().to_owned();
            }
        }
    }

    async fn ask(&mut self, command: &str) -> String {
        self.0.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        self.reply().await
    }

    /// The reply to the recipient, and to the mail if it was good.
    async fn mail(&mut self, id: &str, recipient: &str) -> (String, String) {
        assert_eq!(self.ask("MAIL FROM:<a@example.com> SIZE=10").await, "250 2.1.0 ok");
        let admitted = self.ask(&format!("RCPT TO:<{recipient}>")).await;
        if !admitted.starts_with("250") {
            self.ask("RSET").await;
            return (admitted, String::new());
        }
        assert_eq!(self.ask("DATA").await, "354 go ahead");
        let reply = self.ask(&format!("Message-ID: <{id}@example.com>\r\n\r\n..\r\n.")).await;
        (admitted, reply)
    }
}

#[tokio::test]
async fn commands_in_one_write_are_answered_in_their_order() {
    let sim = start(|_| {});
    let mut client = Client::connect(&sim).await;
    assert_eq!(client.ask("EHLO me").await, "250 SIZE 16777216");
    let opening = "MAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\nDATA";
    assert_eq!(client.ask(opening).await, "250 2.1.0 ok");
    assert_eq!(client.reply().await, "250 2.1.5 ok");
    assert_eq!(client.reply().await, "354 go ahead");
    assert_eq!(client.ask("message-id: <id-1@x>\r\n\r\nhello\r\n.").await, "250 2.0.0 taken");
    let message = "Message-ID: <id-2@x>\r\n\r\n.\r\n";
    assert_eq!(client.ask("MAIL FROM:<>\r\nRCPT TO:<c@example.org>").await, "250 2.1.0 ok");
    assert_eq!(client.reply().await, "250 2.1.5 ok");
    let chunk = format!("BDAT {} LAST\r\n{message}NOOP", message.len());
    assert_eq!(client.ask(&chunk).await, "250 2.0.0 taken");
    assert_eq!(client.reply().await, "250 2.0.0 ok");
    assert_eq!(client.ask("QUIT").await, "221 2.0.0 bye");
    let lines: Vec<_> =
        sim.journal().into_iter().map(|line| (line.status, line.id, line.recipient)).collect();
    let taken = |id: &str, to: &str| (JournalStatus::Answered(250), id.to_owned(), to.to_owned());
    assert_eq!(lines, [taken("id-1", "b@example.org"), taken("id-2", "c@example.org")]);
}

#[tokio::test]
async fn mail_goes_on_encrypted_and_only_for_who_may_send() {
    let sim = start(|options| options.smtp_login = Some("user:pass".to_owned()));
    let mut client = Client::connect(&sim).await;
    assert_eq!(client.ask("STARTTLS").await, "220 2.0.0 go ahead");
    let tls = tls_over(client.0.into_inner(), &sim.running.ca, "").await;
    let mut client = Client(BufReader::new(tls));
    client.ask("EHLO me").await;
    assert_eq!(client.ask("MAIL FROM:<a@example.com>").await, "530 5.7.0 log in first");
    let secret = |text: &str| BASE64_STANDARD.encode(text);
    let wrong = format!("AUTH PLAIN {}", secret("\0user\0no"));
    assert_eq!(client.ask(&wrong).await, "535 5.7.8 wrong name or password");
    let right = format!("AUTH PLAIN {}", secret("\0user\0pass"));
    assert_eq!(client.ask(&right).await, "235 2.7.0 welcome");
    assert_eq!(client.ask("AUTH LOGIN").await, "334 VXNlcm5hbWU6");
    client.ask(&secret("user")).await;
    assert_eq!(client.ask(&secret("pass")).await, "235 2.7.0 welcome");
    assert_eq!(client.mail("id", "b@example.org").await.1, "250 2.0.0 taken");
}

#[tokio::test]
async fn recipients_are_refused_by_their_address_by_name_and_at_first_sight() {
    let sim = start(|options| {
        options.faults.dead_tokens = 0.5;
        options.smtp_greylist = Some(Duration::ZERO);
    });
    let mut client = Client::connect(&sim).await;
    let (reply, _) = client.mail("id", "452-4.2.2+x@example.org").await;
    assert_eq!(reply, "452 4.2.2 as the address asks for");
    for number in 0..20 {
        let recipient = format!("{number}@example.org");
        if is_dead(&recipient, 0.5) {
            assert_eq!(client.mail("id", &recipient).await.0, "550 5.1.1 no such user here");
        } else {
            assert_eq!(client.mail("id", &recipient).await.0, "450 4.2.0 Greylisted, try again");
            assert_eq!(client.mail("id", &recipient).await.1, "250 2.0.0 taken");
        }
    }
    assert_eq!(sim.journal()[0].status, JournalStatus::Answered(452));
}

#[tokio::test]
async fn faults_are_those_of_a_mail_server_and_in_the_books_first() {
    let sim = start(|options| options.faults.drop_rate = 1.0);
    let mut client = Client::connect(&sim).await;
    assert_eq!(client.mail("id-1", "b@example.org").await.1, "", "no answer, and the end");
    assert_eq!(
        (sim.journal()[0].status, sim.journal()[0].id.as_str()),
        (JournalStatus::Drop, "id-1")
    );
    let sim = start(|options| options.faults.refuse_rate = 1.0);
    let mut client = Client::connect(&sim).await;
    client.ask("MAIL FROM:<a@example.com>").await;
    assert_eq!(client.ask("RCPT TO:<b@example.org>").await, "421 4.3.2 going away");
    assert_eq!(client.reply().await, "");
    assert_eq!(sim.journal()[0].status, JournalStatus::Refuse);
    let sim = start(|options| options.faults.goaway_every = 2.try_into().ok());
    let mut client = Client::connect(&sim).await;
    assert_eq!(client.mail("id-1", "b@example.org").await.1, "250 2.0.0 taken");
    assert_eq!(client.mail("id-2", "b@example.org").await.1, "250 2.0.0 taken");
    assert_eq!(client.reply().await, "421 4.4.2 enough for one connection");
    assert_eq!(client.reply().await, "");
}
