//! A mail server that keeps nothing but its books: ESMTP with PIPELINING, CHUNKING, STARTTLS, AUTH, SIZE, 8BITMIME and
//! SMTPUTF8.
//!
//! A mail is decided about recipient by recipient: first by its address (`450-4.2.1@anywhere` is answered `450 4.2.1`), then by
//! the same faults as everything else here ([`rules`]).

mod rules;
mod talk;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::faults::{CommonFaults, Dice};
use crate::journal::{Journal, JournalChannel, JournalRecord, JournalStatus};
use crate::options::SimulatorOptions;
use rules::Greylist;
use talk::{Talk, TalkEnded};

/// The mail server in one serving thread.
#[derive(Debug)]
pub(crate) struct MailServer {
    options: Arc<SimulatorOptions>,
    journal: Rc<Journal>,
    common: Arc<CommonFaults>,
    dice: RefCell<Dice>,
    greylist: Greylist,
}

impl MailServer {
    pub(crate) fn new(
        options: Arc<SimulatorOptions>,
        journal: Rc<Journal>,
        dice: Dice,
        common: Arc<CommonFaults>,
    ) -> Self {
        let (dice, greylist) = (RefCell::new(dice), Greylist::default());
        Self { options, journal, common, dice, greylist }
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(
        self: Rc<Self>,
        tcp: TcpStream,
        tls: Arc<ServerConfig>,
    ) -> std::io::Result<()> {
        tcp.set_nodelay(true)?;
        let mut talk = Talk::new(BufReader::new(tcp), Rc::clone(&self), false);
        talk.greet().await?;
        if talk.run().await? == TalkEnded::StartTls {
            // What was sent ahead of the encryption is forgotten with the buffer.
            let tcp = talk.into_stream().into_inner();
            let encrypted = TlsAcceptor::from(tls).accept(tcp).await?;
            Talk::new(BufReader::new(encrypted), self, true).run().await?;
        }
        Ok(())
    }

    /// Writes a line into the books, and waits until it is written.
    async fn record(&self, received_us: u64, status: JournalStatus, id: &str, recipient: &str) {
        let record =
            JournalRecord { received_us, channel: JournalChannel::Smtp, status, id, recipient };
        let number = self.journal.add(&record);
        std::future::poll_fn(|context| self.journal.poll_written(number, context)).await;
    }
}
