//! Addresses that must not be reached although a caller asks for them: one table for every channel whose recipients name a host.
//!
//! The attempts are made as if ingest had let everything through: what refuses them is what connects.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use channel::{Channel, Resolve, Tools};
use flow::Clock;
use notification::Verdict;

use super::jobs::{answer, chunk, send};

/// Addresses of every kind that is not public, as people write them.
pub(crate) const ADDRESSES: &[&str] = &[
    // This host, this network.
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.255.255.255",
    "::1",
    "::",
    // Private, unique local, site-local.
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
    "fc00::1",
    "fd12:3456:789a::1",
    "fec0::1",
    "feff::1",
    // Link-local, with the addresses of metadata services.
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "fe80::1",
    "febf::1",
    "fd00:ec2::254",
    "100.100.100.200",
    "192.0.0.192",
    // Carriers' own, protocol assignments, benchmarking, documentation, reserved.
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "192.0.2.1",
    "198.51.100.7",
    "203.0.113.9",
    "240.0.0.1",
    "2001:2::1",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "100::1",
    // Multicast, broadcast.
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "ff02::1",
    "ff0e::1",
    // IPv4 in IPv6: mapped, compatible, translated (well-known and local), 6to4, Teredo.
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:7f00:1",
    "::7f00:1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::10.0.0.1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
];

/// Hosts that some reader takes for an address that they do not seem to be, or for another host.
pub(crate) const SPELLINGS: &[&str] = &[
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0X7F000001",
    "0x7f.1",
    "0x7f.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.0.0.01",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "127.0.0.0x1",
    "127.000.000.001",
    "0",
    "0x0",
    "00000",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "256.256.256.256",
    "1.2.3.4.5",
    "localhost.",
    "LOCALHOST.",
    "[::ffff:127.0.0.1%25lo]",
    "[fe80::1%25eth0]",
    "[127.0.0.1]",
    "[::1",
    "::1]",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
    "127%2e0%2e0%2e1",
    "127.0.0.1%00.example.com",
    "8.8.8.8@127.0.0.1",
    "8.8.8.8:80@127.0.0.1",
    "127.0.0.1#@8.8.8.8",
    "127.0.0.1\\@8.8.8.8",
    "127.0.0.1 .example.com",
    "127.0.0.1\t",
    "",
    ".",
    "..",
];

/// Names, and where they lead.
const NAMES: &[(&str, &[&str])] = &[
    ("localhost", &["127.0.0.1", "::1"]),
    ("LocalHost", &["127.0.0.1"]),
    ("ip6-localhost", &["::1"]),
    ("localhost.localdomain", &["127.0.0.1"]),
    ("127.0.0.1.nip.io", &["127.0.0.1"]),
    ("www.10-0-0-1.sslip.io", &["10.0.0.1"]),
    ("7f000001.nip.io", &["127.0.0.1"]),
    ("metadata.google.internal", &["169.254.169.254"]),
    ("instance-data.ec2.internal", &["fd00:ec2::254"]),
    ("kubernetes.default.svc", &["10.96.0.1"]),
    ("intranet", &["192.168.1.10"]),
    ("mapped.example", &["::ffff:127.0.0.1"]),
    ("translated.example", &["64:ff9b::a9fe:a9fe"]),
    ("mixed.example", &["8.8.8.8", "10.0.0.1"]),
    ("mixed-families.example", &["2606:4700::1111", "127.0.0.1"]),
    ("any.example", &["0.0.0.0"]),
    ("xn--bcher-kva.example", &["127.0.0.1"]),
];

/// A channel to hosts that a third party chose.
pub(crate) trait Subject {
    /// One that may reach nothing but what is public, with names resolved by `book`.
    fn channel(&self, book: Arc<Book>) -> Box<dyn Channel>;

    /// A recipient at `host`, which goes where a host belongs: an IPv6 address comes in brackets.
    fn recipient(&self, host: &str) -> String;

    /// A content that is acceptable.
    fn content(&self) -> &'static str;

    /// Whether a recipient shows its host, so that a bad one is refused before it is stored.
    fn shows_host(&self) -> bool {
        true
    }

    /// The error for a host that is written as an address that is not public.
    fn said_of_addresses(&self) -> &'static str {
        "is not a public address"
    }
}

/// A resolver that says what it is told to, in the order in which it is told, the last answer for ever.
#[derive(Debug, Default)]
pub(crate) struct Book {
    answers: Mutex<BTreeMap<String, Vec<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

// === impl Book ===

impl Book {
    /// Has `name` lead to `addresses`, after what it was to lead to before.
    pub(crate) fn add(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().unwrap().entry(name.to_owned()).or_default().push(addresses);
    }

    /// How often `name` was asked for.
    pub(crate) fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == name).count()
    }
}

#[async_trait]
impl Resolve for Book {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answers = answers.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Ok(answer.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// Tries to reach everything in the table.
pub(crate) async fn exercise(subject: &dyn Subject, clock: Clock) {
    let book = Arc::new(Book::default());
    let channel = subject.channel(Arc::clone(&book));
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    let refused = async |host: &str| {
        let chunk = chunk(clock, subject.content(), [subject.recipient(host)]);
        let reports = send(&*sender, clock, &chunk, 1).await;
        let answer = answer(&reports[0]);
        let expect = (Verdict::Refused { gone: false }, 0);
        assert_eq!((answer.verdict, answer.status), expect, "{host}: {answer:?}");
        answer.detail.clone()
    };
    let is_not_stored = |host: &str| {
        let stored = channel.destination(&subject.recipient(host));
        assert!(stored.is_err() || !subject.shows_host(), "{host:?} would be stored: {stored:?}");
    };
    for (number, address) in ADDRESSES.iter().enumerate() {
        let host =
            if address.contains(':') { format!("[{address}]") } else { (*address).to_owned() };
        is_not_stored(&host);
        assert!(refused(&host).await.contains(subject.said_of_addresses()), "{host}");
        // The same behind a name.
        let name = format!("innocent-{number}.example");
        book.add(&name, &[address]);
        let detail = refused(&name).await;
        assert!(detail.contains("is not a public address"), "{name} {address}");
        assert!(!detail.contains(address), "callers do not learn what names lead to: {detail}");
    }
    for host in SPELLINGS {
        is_not_stored(host);
        refused(host).await;
    }
    for (name, addresses) in NAMES {
        book.add(&name.to_lowercase(), addresses);
        assert!(refused(name).await.contains("is not a public address"), "{name}");
    }
    sender.close().await;
}
