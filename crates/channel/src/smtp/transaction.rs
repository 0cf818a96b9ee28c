//! One mail over a connection.
//!
//! Two round trips with PIPELINING (RFC 2920), whatever else is offered:
//! ```text
//! [RSET] MAIL RCPT DATA  -> 250 250 354         [RSET] MAIL RCPT        -> 250 250
//! message and final dot  -> 250                 BDAT n LAST and message -> 250       (CHUNKING, RFC 3030)
//! ```
//! `BDAT` could go along with what is before it. Then every cut would leave the mail unknown, and a refused recipient would
//! still get the whole message; so it waits, as `DATA` does.
//!
//! The meaning of a cut depends on one instant: when the kernel is given the last byte of the message, encrypted if the
//! connection is. Before it the server cannot have the whole message and must not act (RFC 5321, section 4.2.5); after it
//! it is unknown.

use std::borrow::Cow;
use std::time::Duration;

use tokio::time::Instant;

use super::request::AddressedMail;
use super::session::SmtpSession;
use super::wire::{SmtpReply, WireError};

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MailEnd {
    /// The server said so.
    Replied(SmtpStage, SmtpReply),
    /// The connection ended, or time was over, before the whole message was sent: nothing came of it.
    Cut(Cow<'static, str>),
    /// It ended, or time was over, after that.
    Lost(Cow<'static, str>),
    /// This server cannot take this message.
    Impossible(String),
}

/// The command that a reply answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SmtpStage {
    /// The sender, or that there is a mail at all.
    Mail,
    /// The recipient.
    Recipient,
    /// That the message follows.
    Data,
    /// The message.
    Message,
}

/// How long the reply to a whole message may take (RFC 5321, section 4.5.3.2.6).
const FINAL_TIMEOUT: Duration = Duration::from_mins(10);
/// How long QUIT and its reply may take.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends `message`; everything up to its last byte must be done by `deadline`.
pub(super) async fn transact(
    connection: &mut SmtpSession,
    message: &AddressedMail<'_>,
    deadline: Instant,
) -> MailEnd {
    let parameters = match parameters(connection, message) {
        Ok(parameters) => parameters,
        Err(impossible) => return MailEnd::Impossible(impossible),
    };
    connection.transactions += 1;
    let mut refusal = None;
    let opening = open(connection, message, &parameters, &mut refusal);
    let failure = match tokio::time::timeout_at(deadline, opening).await {
        Ok(Ok(())) => None,
        Ok(Err(WireError(why))) => Some(why),
        Err(_elapsed) => Some("the server took too long to take the mail".into()),
    };
    connection.is_broken |= failure.is_some();
    match (refusal, failure) {
        // Whatever happens to the connection after a refusal takes nothing from it.
        (Some((stage, reply)), _) => return MailEnd::Replied(stage, reply),
        (None, Some(why)) => return MailEnd::Cut(why),
        (None, None) => {}
    }
    let mut bytes = Vec::with_capacity(message.len() + 64);
    if connection.capabilities.chunking() {
        bytes.extend_from_slice(format!("BDAT {} LAST\r\n", message.len()).as_bytes());
        message.write_plain(&mut bytes);
    } else {
        message.write_dotted(&mut bytes);
    }
    if let Err(WireError(why)) = send_all(connection, &bytes, deadline).await {
        return give_up(connection, why).await;
    }
    // From here on the server may have it all.
    let answer = tokio::time::timeout(FINAL_TIMEOUT, connection.wire.reply());
    match answer.await {
        Ok(Ok(reply)) => {
            // The reply to a final dot ends the transaction whatever it says (RFC 5321, section 4.1.1.4); after a BDAT
            // that was refused its state is unknown (RFC 3030, section 2).
            connection.needs_reset = connection.capabilities.chunking() && !reply.is_positive();
            connection.mails_taken += u32::from(reply.is_positive());
            MailEnd::Replied(SmtpStage::Message, reply)
        }
        Ok(Err(WireError(why))) => MailEnd::Lost(why),
        Err(_elapsed) => {
            MailEnd::Lost("the server did not answer the message within 10 minutes".into())
        }
    }
}

/// Ends a conversation with QUIT. Nothing depends on it.
pub(super) async fn quit(mut connection: SmtpSession) {
    let quitting = tokio::time::timeout(QUIT_TIMEOUT, async {
        connection.wire.send(b"QUIT\r\n").await?;
        connection.wire.reply().await
    });
    // Whether the server answers or has closed already makes no difference.
    drop(quitting.await);
}

/// The parameters of MAIL beside the sender (RFC 1870).
fn parameters(connection: &SmtpSession, message: &AddressedMail<'_>) -> Result<String, String> {
    // Without doubled dots and the final one, which are no part of a message's size (RFC 1870).
    let (capabilities, bytes) = (connection.capabilities, message.len());
    if let Some(most) = capabilities.size_max.filter(|most| bytes > *most) {
        return Err(format!("the message has {bytes} bytes, and the server takes at most {most}"));
    }
    Ok(if capabilities.size() { format!(" SIZE={bytes}") } else { String::new() })
}

/// Everything before the message, which may follow unless there is a `refusal`. With PIPELINING all commands leave at once.
async fn open(
    connection: &mut SmtpSession,
    message: &AddressedMail<'_>,
    parameters: &str,
    refusal: &mut Option<(SmtpStage, SmtpReply)>,
) -> Result<(), WireError> {
    let (sender, recipient) = (message.mail.return_path.as_str(), message.recipient);
    let mut commands = Vec::new();
    // True until the server has answered the whole message: a refusal before that leaves the transaction open.
    if std::mem::replace(&mut connection.needs_reset, true) {
        commands.push((None, "RSET\r\n".to_owned()));
    }
    commands.push((Some(SmtpStage::Mail), format!("MAIL FROM:<{sender}>{parameters}\r\n")));
    commands.push((Some(SmtpStage::Recipient), format!("RCPT TO:<{recipient}>\r\n")));
    if !connection.capabilities.chunking() {
        commands.push((Some(SmtpStage::Data), "DATA\r\n".to_owned()));
    }
    let is_pipelining = connection.capabilities.pipelining();
    if is_pipelining {
        let all: String = commands.iter().map(|(_, command)| command.as_str()).collect();
        connection.wire.send(all.as_bytes()).await?;
    }
    for (stage, command) in commands {
        if !is_pipelining {
            connection.wire.send(command.as_bytes()).await?;
        }
        let reply = connection.wire.reply().await?;
        let Some(stage) = stage else {
            // A connection that cannot forget the mail before is of no use; that says nothing of this one.
            if !reply.is_positive() {
                return Err(WireError("the server does not reset".into()));
            }
            continue;
        };
        let (goes_ahead, is_closing) = (is_go_ahead(stage, &reply), reply.is_closing());
        if refusal.is_some() && stage == SmtpStage::Data && goes_ahead {
            // It wants a message all the same (RFC 2920, section 3.1): an empty one, which has no recipient.
            connection.wire.send(b".\r\n").await?;
            connection.wire.reply().await?;
            // Its reply has ended the transaction (RFC 5321, section 4.1.1.4).
            connection.needs_reset = false;
        } else if refusal.is_none() && !goes_ahead {
            *refusal = Some((stage, reply));
        }
        if !is_pipelining && refusal.is_some() {
            break;
        }
        // What stands behind it in the pipeline is not answered any more.
        if is_closing {
            return Err(WireError("the server closes the connection".into()));
        }
    }
    Ok(())
}

const fn is_go_ahead(stage: SmtpStage, reply: &SmtpReply) -> bool {
    match stage {
        SmtpStage::Data => reply.code == 354,
        SmtpStage::Mail | SmtpStage::Recipient | SmtpStage::Message => reply.is_positive(),
    }
}

/// Gives all of `bytes` to the kernel. An error means that it does not have the last of them, nor ever will: what
/// encryption still holds back of a record is lost with the connection, and the record with it.
async fn send_all(
    connection: &mut SmtpSession,
    bytes: &[u8],
    deadline: Instant,
) -> Result<(), WireError> {
    let wire = &mut connection.wire;
    let sending = tokio::time::timeout_at(deadline, wire.send(bytes));
    sending.await.unwrap_or_else(|_elapsed| {
        Err(WireError("the server took too long to read the message".into()))
    })
}

/// Ends a message in the middle. A server that reads no further may have said why: then that is its answer, since it does
/// not have the message whatever it says.
async fn give_up(connection: &mut SmtpSession, why: Cow<'static, str>) -> MailEnd {
    connection.is_broken = true;
    match tokio::time::timeout(QUIT_TIMEOUT, connection.wire.reply()).await {
        Ok(Ok(reply)) if reply.code >= 400 => MailEnd::Replied(SmtpStage::Message, reply),
        _ => MailEnd::Cut(why),
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
