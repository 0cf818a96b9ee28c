//! Unusual answers of HTTP/1.1 servers that can be understood.

use channel::webhook::WebhookChannel;
use channel::{Channel as _, Tools};
use flow::Clock;
use notification::{Report, Verdict};
use tokio::io::AsyncWriteExt as _;

use crate::support::TlsListener;
use crate::support::jobs::{NOW, answer, beside, chunk, send, verdicts};
use crate::webhook::{listen, read, settings};

async fn sent(more: &serde_json::Value, url: String) -> Vec<Report> {
    let channel = WebhookChannel::new(&settings(more)).unwrap();
    let clock = Clock::starting_at(NOW);
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    send(&*sender, clock, &chunk(clock, "{}", [url]), 1).await
}

#[tokio::test]
async fn folded_headers_and_many_of_them_are_read() {
    let many = "x-tag: a\r\n".repeat(300);
    for headers in ["x-note: folded\r\n over lines\r\n\tthree\r\n", many.as_str()] {
        let (listener, url) = listen().await;
        let text = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n");
        let server = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read(&mut stream).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        };
        beside(server, async {
            let reports = sent(&serde_json::json!({}), url).await;
            assert_eq!(verdicts(&reports), [Verdict::Accepted], "{headers:.40} {reports:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_has_not_read_the_request_and_says_why() {
    let authority = rcgen::generate_simple_self_signed(["somebody".to_owned()]).unwrap();
    let listener = TlsListener::bind_asking(b"http/1.1", authority.cert.der().clone()).await;
    let (endpoint, ca_file) = (listener.endpoint(), listener.ca_file.path().to_owned());
    let server = async move {
        loop {
            assert!(listener.try_accept().await.is_err(), "it let in who showed nothing");
        }
    };
    beside(server, async {
        let reports = sent(&serde_json::json!({ "ca_file": ca_file }), endpoint + "/hook").await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }], "{reports:?}");
        let found = answer(&reports[0]);
        assert!(!found.may_have_acted);
        assert!(found.detail.contains("demands a client certificate"), "{found:?}");
    })
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_tls_is_said_in_words() {
    let (listener, url) = listen().await;
    let plain = async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            tokio::task::spawn_local(async move { read(&mut stream).await });
        }
    };
    beside(plain, async {
        let reports = sent(&serde_json::json!({}), url.replace("http:", "https:")).await;
        let found = answer(&reports[0]);
        assert!(found.detail.contains("this port does not speak TLS"), "{found:?}");
    })
    .await;
    let listener = TlsListener::bind_as_authority().await;
    let (endpoint, ca_file) = (listener.endpoint(), listener.ca_file.path().to_owned());
    let server = async move {
        loop {
            assert!(listener.try_accept().await.is_err());
        }
    };
    beside(server, async {
        let reports = sent(&serde_json::json!({ "ca_file": ca_file }), endpoint + "/hook").await;
        let found = answer(&reports[0]);
        assert!(found.detail.contains("this certificate is a CA's own"), "{found:?}");
    })
    .await;
}
