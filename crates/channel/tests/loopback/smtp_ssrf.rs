//! Mail to the servers that a recipient's domain names: none is called at an address that is not public, whatever way
//! leads there, and the rest in the order that their records have.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use channel::smtp::{Exchanger, ResolveMail, SmtpChannel};
use channel::{Channel, ConnectFault, Resolve, Tools};
use flow::Clock;
use notification::Verdict;

use crate::ssrf::{Port, exercise_beside_a_listener};
use crate::support::jobs::{NOW, answer, beside};
use crate::support::mail::{CONTENT, MailServer, Manner, PIPELINING, Rig, Step};
use crate::support::ssrf::{Book, Subject};

const REFUSED: Verdict = Verdict::Refused { gone: false };
const GONE: Verdict = Verdict::Refused { gone: true };
/// The words of a refusal, which do not say what a name leads to.
const HIDDEN: &str = "its name leads to what is not a public address, or is denied here";
const BACK_OFF: Verdict = Verdict::Deferred { after: None };

/// Mail exchangers by domain, and a book with the addresses. A domain that is not there has no MX record.
#[derive(Debug, Default)]
struct Mx {
    exchangers: Mutex<BTreeMap<String, Vec<Exchanger>>>,
    book: OnceLock<Arc<Book>>,
}

/// The recipient's domain is the host.
struct Implicit(Port);

/// The recipient's domain has an MX record with the host.
struct Exchanged(Port, Arc<Mx>);

// === impl Mx ===

impl Mx {
    fn with(book: Arc<Book>) -> Arc<Self> {
        Arc::new(Self { book: book.into(), ..Self::default() })
    }

    fn add(&self, domain: &str, hosts: &[(u16, &str)]) {
        let exchanger =
            |&(preference, host): &(u16, &str)| Exchanger { preference, host: host.to_owned() };
        let hosts = hosts.iter().map(exchanger).collect();
        self.exchangers.lock().unwrap().insert(domain.to_owned(), hosts);
    }

    fn channel(self: &Arc<Self>, port: u16, allow_networks: &[&str]) -> SmtpChannel {
        let settings = serde_json::json!({
            "route": "mx", "helo": "client.example", "mx_port": port, "allow_networks": allow_networks,
        });
        let channel = SmtpChannel::new(&serde_json::from_value(settings).unwrap()).unwrap();
        channel.with_resolver(Arc::clone(self) as Arc<dyn ResolveMail>)
    }
}

#[async_trait]
impl Resolve for Mx {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if name == "waiting.example" {
            return std::future::pending().await;
        }
        self.book.get().unwrap().resolve(name, port).await
    }
}

#[async_trait]
impl ResolveMail for Mx {
    async fn exchangers(&self, domain: &str) -> io::Result<Vec<Exchanger>> {
        match domain {
            "nowhere.example" => Err(io::ErrorKind::NotFound.into()),
            "silent.example" => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(self.exchangers.lock().unwrap().get(domain).cloned().unwrap_or_default()),
        }
    }
}

// === impl Implicit ===

impl Subject for Implicit {
    fn channel(&self, book: Arc<Book>) -> Box<dyn Channel> {
        Box::new(Mx::with(book).channel(self.0.0, &[]))
    }

    fn recipient(&self, host: &str) -> String {
        let inner = host.strip_prefix('[').filter(|inner| inner.contains(':'));
        inner.map_or_else(|| format!("a@{host}"), |inner| format!("a@[IPv6:{inner}"))
    }

    fn content(&self) -> &'static str {
        CONTENT
    }

    fn said_of_addresses(&self) -> &'static str {
        "is not a domain"
    }
}

// === impl Exchanged ===

impl Subject for Exchanged {
    fn channel(&self, book: Arc<Book>) -> Box<dyn Channel> {
        self.1.book.set(book).unwrap();
        Box::new(self.1.channel(self.0.0, &[]))
    }

    fn recipient(&self, host: &str) -> String {
        let number = self.1.exchangers.lock().unwrap().len();
        let domain = format!("domain-{number}.example");
        // Alone, the root would say that the domain takes no mail.
        let hosts = [(10, host), (20, "..")];
        self.1.add(&domain, if host.is_empty() { &hosts } else { &hosts[..1] });
        format!("a@{domain}")
    }

    fn content(&self) -> &'static str {
        CONTENT
    }

    fn shows_host(&self) -> bool {
        false
    }

    fn said_of_addresses(&self) -> &'static str {
        "is not the name of a host"
    }
}

#[tokio::test]
async fn a_domain_that_is_its_own_mail_server_leads_to_nothing_that_is_not_public() {
    exercise_beside_a_listener(|port| Box::new(Implicit(port))).await;
}

#[tokio::test]
async fn a_mail_exchanger_leads_to_nothing_that_is_not_public() {
    exercise_beside_a_listener(|port| Box::new(Exchanged(port, Arc::default()))).await;
}

/// A book of servers on loopback, and of unreachable ones.
fn book() -> Arc<Book> {
    let book = Book::default();
    book.add("one.example", &["127.0.0.1"]);
    book.add("two.example", &["127.0.0.2"]);
    // No server listens there.
    book.add("down.example", &["127.0.0.9"]);
    book.add("private.example", &["10.0.0.1"]);
    book.add("mixed.example", &["127.0.0.1", "10.0.0.1"]);
    Arc::new(book)
}

#[tokio::test]
async fn what_the_table_finds_closed_is_open_where_the_settings_allow_it() {
    let server = MailServer::bind().await;
    let mx = Mx::with(book());
    mx.add("exchanged.example", &[(10, "one.example")]);
    let rig = Rig::over(&mx.channel(server.port(), &["127.0.0.0/8"]));
    let serving = server.serve(|_| Manner { offers: PIPELINING, ..Manner::default() });
    beside(serving, async {
        for recipient in ["a@one.example", "a@exchanged.example"] {
            let report = rig.send_to(CONTENT, recipient).await;
            assert_eq!(answer(&report).verdict, Verdict::Accepted, "{recipient} {report:?}");
        }
    })
    .await;
    assert_eq!(server.messages().len(), 2);
}

#[tokio::test]
async fn a_server_is_called_at_the_address_that_was_checked_and_checked_each_time() {
    for domain in ["rebinding.example", "exchanged.example"] {
        let server = MailServer::bind().await;
        let book = Arc::new(Book::default());
        book.add("rebinding.example", &["127.0.0.1"]);
        book.add("rebinding.example", &["127.0.0.2"]);
        let mx = Mx::with(Arc::clone(&book));
        mx.add("exchanged.example", &[(10, "rebinding.example")]);
        let channel = mx.channel(server.port(), &["127.0.0.1/32"]);
        let (first, second) = (Rig::over(&channel), Rig::over(&channel));
        let serving = server.serve(|_| Manner { offers: PIPELINING, ..Manner::default() });
        beside(serving, async {
            let report = first.send_to(CONTENT, &format!("a@{domain}")).await;
            assert_eq!(answer(&report).verdict, Verdict::Accepted, "{report:?}");
            assert_eq!(book.asked("rebinding.example"), 1, "nobody asks again before connecting");
            let report = second.send_to(CONTENT, &format!("a@{domain}")).await;
            assert_eq!(answer(&report).verdict, REFUSED, "{report:?}");
            let detail = &answer(&report).detail;
            assert!(detail.contains("leads to what is not a public address"), "{detail}");
            assert!(!detail.contains("127.0.0.2"), "callers do not learn what names lead to");
            assert_eq!(book.asked("rebinding.example"), 2);
        })
        .await;
        assert_eq!(server.messages().len(), 1);
    }
}

#[tokio::test]
async fn what_becomes_of_a_mail_whose_exchangers_differ() {
    let server = MailServer::bind().await;
    let mx = Mx::with(book());
    let rig = Rig::over(&mx.channel(server.port(), &["127.0.0.0/8"]));
    let serving = server.serve(|_| Manner { offers: PIPELINING, ..Manner::default() });
    beside(serving, async {
        let number = std::cell::Cell::new(0);
        let check = async |hosts: &[(u16, &str)], verdict, expect: &str| {
            let domain = format!("domain-{}.example", number.replace(number.get() + 1));
            mx.add(&domain, hosts);
            let report = rig.send_to(CONTENT, &format!("a@{domain}")).await;
            assert_eq!(answer(&report).verdict, verdict, "{hosts:?} {report:?}");
            assert!(answer(&report).detail.contains(expect), "{hosts:?} {report:?}");
        };
        let accepted = Verdict::Accepted;
        check(&[(10, "one.example")], accepted, "").await;
        check(&[(10, "ONE.Example")], accepted, "").await;
        check(&[(20, "one.example"), (10, "down.example")], accepted, "").await;
        check(&[(10, "private.example"), (20, "one.example")], accepted, "").await;
        check(&[(10, "127.0.0.1"), (20, "0x7f.1"), (30, "one.example")], accepted, "").await;
        check(&[(10, "unknown.example"), (20, "one.example")], accepted, "").await;
        check(&[(0, ""), (20, "one.example")], accepted, "").await;
        // One bad address condemns a name, in whatever order they come.
        check(&[(10, "mixed.example")], REFUSED, HIDDEN).await;
        check(&[(10, "unknown.example")], REFUSED, "has no address").await;
        check(&[(0, "")], GONE, "takes no mail").await;
        check(&[(0, ""), (10, "")], GONE, "takes no mail").await;
        // A server that is down today may be up tomorrow, in whatever state the rest is.
        check(&[(10, "down.example"), (20, "private.example")], BACK_OFF, "").await;
        check(&[(10, "private.example"), (20, "down.example")], BACK_OFF, "").await;
        let report = rig.send_to(CONTENT, "a@nowhere.example").await;
        assert_eq!(answer(&report).verdict, REFUSED, "{report:?}");
        let report = rig.send_to(CONTENT, "a@silent.example").await;
        assert_eq!(answer(&report).verdict, BACK_OFF, "{report:?}");
        let report = rig.send_to(CONTENT, "a@nothing.example").await;
        assert_eq!(answer(&report).verdict, REFUSED, "neither MX record nor address: {report:?}");
    })
    .await;
}

#[tokio::test]
async fn exchangers_of_one_preference_share_the_mail_and_others_wait_for_theirs() {
    let one = MailServer::bind().await;
    let two = MailServer::bind_to(&format!("127.0.0.2:{}", one.port())).await;
    let mx = Mx::with(book());
    let rig = Rig::over(&mx.channel(one.port(), &["127.0.0.0/8"]));
    let good = |_| Manner { offers: PIPELINING, ..Manner::default() };
    let (serving_one, serving_two) = (one.serve(good), two.serve(good));
    let servers = async move {
        tokio::join!(serving_one, serving_two);
    };
    beside(servers, async {
        for number in 0..32 {
            let (equal, ordered) =
                (format!("equal-{number}.example"), format!("o-{number}.example"));
            mx.add(&equal, &[(10, "one.example"), (10, "two.example")]);
            mx.add(&ordered, &[(20, "two.example"), (10, "one.example")]);
            for domain in [equal, ordered] {
                let report = rig.send_to(CONTENT, &format!("a@{domain}")).await;
                assert_eq!(answer(&report).verdict, Verdict::Accepted, "{report:?}");
            }
        }
    })
    .await;
    let count = |server: &MailServer, of: &str| {
        server.messages().iter().filter(|message| message.contains(of)).count()
    };
    let (first, second) = (count(&one, "a@equal-"), count(&two, "a@equal-"));
    assert!(first >= 8 && second >= 8 && first + second == 32, "{first} and {second}");
    assert_eq!((count(&one, "a@o-"), count(&two, "a@o-")), (32, 0));
}

#[tokio::test]
async fn a_host_that_says_it_takes_no_mail_at_all_is_not_asked_again() {
    let check = async |greeting, verdict| {
        let server = MailServer::bind().await;
        let rig = Rig::over(&Mx::with(book()).channel(server.port(), &["127.0.0.0/8"]));
        let replies = vec![(Step::Greeting, greeting)];
        let serving =
            server.serve(move |_| Manner { replies: replies.clone(), ..Manner::default() });
        beside(serving, async {
            let report = rig.send_to(CONTENT, "a@one.example").await;
            assert_eq!(answer(&report).verdict, verdict, "{greeting} {report:?}");
        })
        .await;
    };
    check("521 5.3.2 does not accept mail", REFUSED).await;
    check("554 5.3.2 no service", BACK_OFF).await;
    check("421 4.3.2 busy", BACK_OFF).await;
}

/// How the connection that a mail to `recipient` needs is counted, in the order of [`ConnectFault::ALL`].
async fn faults(mx: &Arc<Mx>, port: u16, recipient: &str) -> [u64; 6] {
    let (clock, channel) = (Clock::starting_at(NOW), mx.channel(port, &["127.0.0.0/8"]));
    let tools = Tools::new(clock, 1);
    let counts = Arc::clone(&tools.connections);
    let rig = Rig { sender: channel.open(tools).unwrap(), clock };
    rig.send_to(CONTENT, recipient).await;
    ConnectFault::ALL.map(|fault| counts.failed(fault))
}

#[tokio::test]
async fn what_mail_cannot_be_connected_to_is_counted_by_its_cause() {
    let [forbidden, resolve] = [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]];
    let [connect, protocol] = [[0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]];
    let mx = Mx::with(book());
    for (domain, expect) in [
        ("private.example", forbidden),
        ("nowhere.example", resolve),
        ("silent.example", resolve),
        ("nothing.example", resolve),
        ("down.example", connect),
    ] {
        // Nothing listens at port 1.
        assert_eq!(faults(&mx, 1, &format!("a@{domain}")).await, expect, "{domain}");
    }
    for (replies, cut_before) in [
        (vec![(Step::Greeting, "521 5.3.2 does not accept mail")], None),
        (vec![(Step::Greeting, "554 5.3.2 no service")], None),
        (Vec::new(), Some(Step::Greeting)),
    ] {
        let server = MailServer::bind().await;
        let manner = Manner { replies, cut_before, ..Manner::default() };
        let (of, port) = (format!("{manner:?}"), server.port());
        let serving = server.serve(move |_| manner.clone());
        let mx = Arc::clone(&mx);
        beside(serving, async move {
            assert_eq!(faults(&mx, port, "a@one.example").await, protocol, "{of}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_looked_up_for_too_long_is_counted_as_a_timeout() {
    let mx = Mx::with(book());
    assert_eq!(faults(&mx, 1, "a@waiting.example").await, [0, 0, 0, 0, 0, 1]);
}
