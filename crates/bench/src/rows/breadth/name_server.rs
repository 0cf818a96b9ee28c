//! A name server for the domains of tarpits: each is its own mail server, with the address of its number.

use std::net::Ipv4Addr;

use tokio::net::UdpSocket;

/// The labels after a domain's number in its name.
const PARENT: [&[u8]; 2] = [b"tarpit", b"example"];
/// Length of a header (RFC 1035, section 4.1.1), which the question follows.
const HEADER_BYTES: usize = 12;
/// A pointer to the name of the question (section 4.1.4).
const QUESTION_NAME: [u8; 2] = [0xc0, 12];
const A: u8 = 1;
const MX: u8 = 15;
const INTERNET: u8 = 1;
const NO_SUCH_NAME: u8 = 3;

/// The domain `number`.
pub(super) fn domain(number: u64) -> String {
    format!("d{number}.tarpit.example")
}

/// Answers questions for ever; `address` gives that of a domain's number, if there is such a domain.
pub(super) async fn answer(socket: UdpSocket, address: impl Fn(u64) -> Option<Ipv4Addr>) {
    let mut buffer = [0; 512];
    loop {
        // A resolver repeats a question over UDP that gets no answer.
        let Ok((bytes, from)) = socket.recv_from(&mut buffer).await else { continue };
        if let Some(reply) = buffer.get(..bytes).and_then(|question| reply(question, &address)) {
            socket.send_to(&reply, from).await.ok();
        }
    }
}

/// The answer to one question, which has neither compression nor, in the answer, additional records.
fn reply(message: &[u8], address: impl Fn(u64) -> Option<Ipv4Addr>) -> Option<Vec<u8>> {
    let (id, mut rest) = (message.get(..2)?, message.get(HEADER_BYTES..)?);
    let mut labels = Vec::new();
    loop {
        let (length, after) = rest.split_first()?;
        let (label, after) = after.split_at_checked(usize::from(*length))?;
        rest = after;
        if label.is_empty() {
            break;
        }
        labels.push(label.to_ascii_lowercase());
    }
    let [_, kind, _, _, ..] = *rest else { return None };
    let question = message.get(HEADER_BYTES..message.len() - rest.len() + 4)?;
    let address = number(&labels).and_then(address);
    let data = match (kind, address) {
        (A, Some(address)) => Some(address.octets().to_vec()),
        (MX, Some(_)) => Some([&[0, 10], &QUESTION_NAME[..]].concat()),
        _ => None,
    };
    let code = if address.is_some() { 0 } else { NO_SUCH_NAME };
    let count = u8::from(data.is_some());
    let mut reply = id.to_vec();
    // An answer, recursion available; one question, `count` answers.
    reply.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
    reply.extend(question);
    if let Some(data) = data {
        reply.extend(QUESTION_NAME);
        // Valid for an hour.
        reply.extend([0, kind, 0, INTERNET, 0, 0, 0x0e, 0x10, 0, u8::try_from(data.len()).ok()?]);
        reply.extend(data);
    }
    Some(reply)
}

/// The number in the name of a [`domain`].
fn number(labels: &[Vec<u8>]) -> Option<u64> {
    let (first, parent) = labels.split_first()?;
    let first = std::str::from_utf8(first).ok()?.strip_prefix('d')?;
    if parent == PARENT { first.parse().ok() } else { None }
}
