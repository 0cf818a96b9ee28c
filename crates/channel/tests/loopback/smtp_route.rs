//! The SMTP channel without a relay: to the mail exchangers of each domain, by a name server that answers by a table.

use channel::smtp::Settings;
use notification::{Report, Verdict};
use tokio::net::UdpSocket;

use crate::support::jobs::{answer, beside};
use crate::support::mail::{CONTENT, MailServer, Manner, Rig};

const GONE: Verdict = Verdict::Refused { gone: true };
const BACK_OFF: Verdict = Verdict::Deferred { after: None };

/// Mail exchangers by domain; a domain without an entry here or in [`ADDRESSES`] does not exist.
const EXCHANGERS: &[(&str, &[(u8, &str)])] = &[
    ("good.example", &[(10, "mx.example")]),
    ("backup.example", &[(20, "mx.example"), (10, "down.example")]),
    ("null.example", &[(0, "")]),
    ("inside.example", &[(10, "private.example")]),
    ("mixed.example", &[(10, "both.example")]),
    ("metadata.example", &[(10, "link.example")]),
    ("plain.example", &[]),
    ("unknown.example", &[(10, "nowhere.example")]),
    ("text.example", &[]),
    ("broken.example", &[]),
    ("half.example", &[(10, "half-broken.example")]),
];
const ADDRESSES: &[(&str, &[[u8; 4]])] = &[
    ("mx.example", &[[127, 0, 0, 1]]),
    ("plain.example", &[[127, 0, 0, 1]]),
    // No server listens there.
    ("down.example", &[[127, 0, 0, 9]]),
    ("private.example", &[[10, 0, 0, 1]]),
    ("both.example", &[[127, 0, 0, 1], [192, 168, 0, 1]]),
    ("link.example", &[[169, 254, 169, 254]]),
    ("half-broken.example", &[]),
];
/// A question that the name server fails to answer: it may have an answer another time.
const FAILURES: &[(&str, u8)] = &[("broken.example", MX), ("half-broken.example", AAAA)];

const MX: u8 = 15;
const A: u8 = 1;
const AAAA: u8 = 28;
const FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;

/// Answers questions until it is dropped.
async fn resolve(socket: UdpSocket) {
    let mut buffer = [0; 512];
    loop {
        let (bytes, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&reply(&buffer[..bytes]), from).await.unwrap();
    }
}

/// The answer to one question (RFC 1035, section 4.1).
fn reply(question: &[u8]) -> Vec<u8> {
    let (mut name, mut at) = (Vec::new(), 12);
    while question[at] > 0 {
        let end = at + 1 + usize::from(question[at]);
        name.push(String::from_utf8_lossy(&question[at + 1..end]).to_ascii_lowercase());
        at = end;
    }
    let (name, kind, end) = (name.join("."), question[at + 2], at + 5);
    let exchangers = EXCHANGERS.iter().find(|(other, _)| *other == name);
    let addresses = ADDRESSES.iter().find(|(other, _)| *other == name);
    let mut answers: Vec<Vec<u8>> = Vec::new();
    if kind == MX {
        let exchangers = exchangers.iter().flat_map(|(_, exchangers)| exchangers.iter());
        answers.extend(exchangers.map(|(preference, host)| {
            let labels = host.split('.').filter(|label| !label.is_empty());
            let mut data = vec![0, *preference];
            for label in labels {
                data.push(u8::try_from(label.len()).unwrap());
                data.extend_from_slice(label.as_bytes());
            }
            data.push(0);
            data
        }));
    } else if kind == A {
        let addresses = addresses.iter().flat_map(|(_, addresses)| addresses.iter());
        answers.extend(addresses.map(|address| address.to_vec()));
    }
    let code = match (exchangers, addresses) {
        _ if FAILURES.contains(&(name.as_str(), kind)) => FAILURE,
        (None, None) => NO_SUCH_NAME,
        _ => 0,
    };
    let count = u8::try_from(answers.len()).unwrap();
    let mut reply = vec![question[0], question[1], 0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0];
    reply.extend_from_slice(&question[12..end]);
    for data in answers {
        reply.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0]);
        reply.push(u8::try_from(data.len()).unwrap());
        reply.extend_from_slice(&data);
    }
    reply
}

#[tokio::test]
async fn mail_goes_to_the_exchangers_of_its_domain_and_nowhere_it_must_not() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = MailServer::bind().await;
    let settings: Settings = serde_json::from_value(serde_json::json!({
        "route": "mx", "helo": "client.example", "mx_port": server.port(),
        "name_servers": [socket.local_addr().unwrap()], "allow_networks": ["127.0.0.0/8"],
    }))
    .unwrap();
    let rig = Rig::new(&settings);
    let serving = server.serve(|_| Manner { offers: "PIPELINING", ..Manner::default() });
    let servers = async move {
        tokio::join!(serving, resolve(socket));
    };
    beside(servers, async {
        let check = async |domain: &str, verdict, expect: &str| {
            let report: Report = rig.send_to(CONTENT, &format!("a@{domain}")).await;
            assert_eq!(answer(&report).verdict, verdict, "{domain} {report:?}");
            assert!(answer(&report).detail.contains(expect), "{domain} {report:?}");
        };
        check("good.example", Verdict::Accepted, "").await;
        check("plain.example", Verdict::Accepted, "").await;
        check("backup.example", Verdict::Accepted, "").await;
        check("null.example", GONE, "takes no mail").await;
        check("nowhere.example", Verdict::Refused { gone: false }, "does not exist").await;
        let forbidden = Verdict::Refused { gone: false };
        // The same words for all of them, which do not say what a name leads to.
        let hidden = "its name leads to what is not a public address, or is denied here";
        check("inside.example", forbidden, hidden).await;
        check("mixed.example", forbidden, hidden).await;
        check("metadata.example", forbidden, hidden).await;
        check("down.example", BACK_OFF, "").await;
        // That there is nothing is an answer, and none is not.
        check("unknown.example", forbidden, "has no address").await;
        check("text.example", forbidden, "has no address").await;
        check("broken.example", BACK_OFF, "").await;
        check("half.example", BACK_OFF, "").await;
    })
    .await;
    assert_eq!(server.messages().len(), 3, "nothing went astray");
}
