//! Addresses that strangers ask for are not reached: the table of `support::ssrf` on every channel that takes a URL, a name that
//! leads elsewhere the next time, and redirects.

use std::rc::Rc;
use std::sync::Arc;

use channel::webhook::WebhookChannel;
use channel::webpush::WebPushChannel;
use channel::{Channel, Resolve, Tools};
use flow::Clock;
use notification::Verdict;
use tokio::net::TcpListener;

use crate::support::TlsListener;
use crate::support::jobs::{NOW, answer, beside, chunk, send, verdicts};
use crate::support::ssrf::{ADDRESSES, Book, SPELLINGS, Subject, exercise};
use crate::{webhook, webpush};

/// Where something listens that must not be reached.
pub(crate) struct Port(pub(crate) u16);

struct Webhook(Port);
struct WebPush(Port);

impl Subject for Webhook {
    fn channel(&self, book: Arc<Book>) -> Box<dyn Channel> {
        let settings = webhook::settings(&serde_json::json!({ "allow_networks": [] }));
        Box::new(WebhookChannel::new(&settings).unwrap().with_resolver(book))
    }

    fn recipient(&self, host: &str) -> String {
        format!("http://{host}:{}/hook", self.0.0)
    }

    fn content(&self) -> &'static str {
        "{}"
    }
}

impl Subject for WebPush {
    fn channel(&self, book: Arc<Book>) -> Box<dyn Channel> {
        let settings = webpush::settings(None, &serde_json::json!({ "allow_networks": [] }));
        Box::new(WebPushChannel::new(&settings).unwrap().with_resolver(book))
    }

    fn recipient(&self, host: &str) -> String {
        webpush::Browser::new(1).recipient(&format!("https://{host}:{}/push", self.0.0))
    }

    fn content(&self) -> &'static str {
        "{}"
    }
}

/// Runs the table next to a listener on loopback that must not be connected to.
pub(crate) async fn exercise_beside_a_listener(make: impl FnOnce(Port) -> Box<dyn Subject>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let subject = make(Port(listener.local_addr().unwrap().port()));
    let server = async move {
        listener.accept().await.unwrap();
        panic!("it was connected to");
    };
    beside(server, async { exercise(&*subject, Clock::starting_at(NOW)).await }).await;
}

#[tokio::test]
async fn a_webhook_reaches_nothing_that_is_not_public() {
    exercise_beside_a_listener(|port| Box::new(Webhook(port))).await;
}

#[tokio::test]
async fn a_web_push_reaches_nothing_that_is_not_public() {
    exercise_beside_a_listener(|port| Box::new(WebPush(port))).await;
}

#[test]
fn the_table_is_long_enough() {
    assert!(ADDRESSES.len() >= 55 && SPELLINGS.len() >= 40);
}

/// A name that is let through once and leads elsewhere afterwards: what was checked is what is connected to, and a
/// second connection is checked again.
async fn rebind(channel: impl FnOnce(Arc<dyn Resolve>) -> Box<dyn Channel>, recipient: &str) {
    let book = Arc::new(Book::default());
    book.add("rebinding.push.test", &["127.0.0.1"]);
    book.add("rebinding.push.test", &["127.0.0.2"]);
    let clock = Clock::starting_at(NOW);
    let channel = channel(Arc::clone(&book) as Arc<dyn Resolve>);
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    let again = channel.open(Tools::new(clock, 2)).unwrap();
    let one = chunk(clock, "{}", [recipient.to_owned()]);
    assert_eq!(verdicts(&send(&*sender, clock, &one, 1).await), [Verdict::Accepted]);
    assert_eq!(book.asked("rebinding.push.test"), 1, "between check and connect nobody asks again");
    let reports = send(&*again, clock, &one, 1).await;
    assert_eq!(verdicts(&reports), [Verdict::Refused { gone: false }]);
    let detail = &answer(&reports[0]).detail;
    assert!(detail.starts_with("its name leads to what is not a public address"), "{detail}");
    assert!(!detail.contains("127.0.0.2"), "callers do not learn what names lead to: {detail}");
    assert_eq!(book.asked("rebinding.push.test"), 2);
    sender.close().await;
    again.close().await;
}

const ONE_ADDRESS: &str = "127.0.0.1/32";

#[tokio::test]
async fn a_webhook_connects_to_the_address_that_was_checked() {
    let (listener, url) = webhook::listen().await;
    let url = url.replace("127.0.0.1", "rebinding.push.test");
    let settings = webhook::settings(&serde_json::json!({ "allow_networks": [ONE_ADDRESS] }));
    let channel = |resolver| -> Box<dyn Channel> {
        Box::new(WebhookChannel::new(&settings).unwrap().with_resolver(resolver))
    };
    beside(webhook::accept_all(listener), rebind(channel, &url)).await;
}

#[tokio::test]
async fn a_web_push_connects_to_the_address_that_was_checked() {
    let listener = TlsListener::bind(b"h2").await;
    let url = listener.endpoint().replace("127.0.0.1", "rebinding.push.test");
    let recipient = webpush::Browser::new(1).recipient(&format!("{url}/push"));
    let settings =
        webpush::settings(Some(&listener), &serde_json::json!({ "allow_networks": [ONE_ADDRESS] }));
    let channel = |resolver| -> Box<dyn Channel> {
        Box::new(WebPushChannel::new(&settings).unwrap().with_resolver(resolver))
    };
    beside(webpush::answer_all(Rc::clone(&listener), 201), rebind(channel, &recipient)).await;
}

#[tokio::test]
async fn a_redirect_is_refused_and_where_it_leads_is_not_reached() {
    let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = format!("http://{}/metadata", inside.local_addr().unwrap());
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
    );
    let hooks = TlsListener::bind(b"http/1.1").await;
    let pushes = TlsListener::bind(b"http/1.1").await;
    let clock = Clock::starting_at(NOW);
    let more = serde_json::json!({ "ca_file": hooks.ca_file.path() });
    let channels: [(Box<dyn Channel>, String); 2] = [
        (
            Box::new(WebhookChannel::new(&webhook::settings(&more)).unwrap()),
            format!("{}/hook", hooks.endpoint()),
        ),
        (
            Box::new(
                WebPushChannel::new(&webpush::settings(Some(&pushes), &serde_json::json!({})))
                    .unwrap(),
            ),
            webpush::Browser::new(1).recipient(&format!("{}/push", pushes.endpoint())),
        ),
    ];
    let servers = async move {
        tokio::select! {
            () = webpush::answer_all_http1(hooks, redirect.clone()) => {}
            () = webpush::answer_all_http1(pushes, redirect) => {}
            _ = inside.accept() => panic!("the redirect was followed"),
        }
    };
    beside(servers, async move {
        for (channel, recipient) in channels {
            let sender = channel.open(Tools::new(clock, 1)).unwrap();
            let chunk = chunk(clock, "{}", [recipient]);
            let reports = send(&*sender, clock, &chunk, 1).await;
            assert_eq!(verdicts(&reports), [Verdict::Refused { gone: false }]);
            assert_eq!(answer(&reports[0]).detail, "a redirect, which is never followed");
            sender.close().await;
        }
    })
    .await;
}
